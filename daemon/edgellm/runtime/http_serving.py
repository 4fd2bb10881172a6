"""OpenModel: what every model in this process can do besides its own work: be served over HTTP, and be closed."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Self


class OpenModel(ABC):
    """A context manager that closes the model at its end."""

    @property
    @abstractmethod
    def model_id(self) -> str: ...

    @abstractmethod
    def close(self) -> None:
        """Let what runs end, then let go of the model. Idempotent."""

    @abstractmethod
    def _ensure_open(self) -> None:
        """Raises ClosedError."""

    def __enter__(self) -> Self:
        self._ensure_open()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.close()

    def _serve(self, *, served_model_name: str, **settings: Any) -> None:
        # The application lies above this package; it is looked up by name, so that the layers below stay importable
        # without it.
        application = importlib.import_module("edgellm.service.model_server")
        application.serve_model(self, served_model_name=served_model_name or self.model_id, **settings)
