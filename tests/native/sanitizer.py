"""What can't be measured in a process that runs under the address sanitizer."""

from __future__ import annotations

import os

import pytest

UNDER_ADDRESS_SANITIZER = "libasan" in os.environ.get("LD_PRELOAD", "")

measures_memory = pytest.mark.skipif(
    UNDER_ADDRESS_SANITIZER, reason="the address sanitizer keeps freed memory and maps shadows of all there is"
)
