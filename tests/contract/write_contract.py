"""Writes contract.json anew out of NVIDIA's published module: python -m tests.contract.write_contract"""

from __future__ import annotations

import json

from tests.contract.contract_parts import CONTRACT_FILE, without_parts_not_provided
from tests.contract.module_dump import dump
from tests.contract.nvidia_binary import cache_folder, fetch


def main() -> None:
    parts = without_parts_not_provided(dump(fetch(cache_folder()).load()))
    CONTRACT_FILE.write_text(json.dumps(parts, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
