"""Commands run in the test's own process."""

from tests.unit.restored_logging import restored_logging

__all__ = ["restored_logging"]
