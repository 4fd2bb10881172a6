"""``python -m tests.image``: measures images and bundles."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "image"))

from tests.image.measure import main

main()
