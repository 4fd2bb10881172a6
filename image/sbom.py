"""Writes the bill of materials of an image: its Python packages and those of its distribution, as CycloneDX.

Runs where `cyclonedx-bom` is installed. The same packages give the same bytes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL


def distribution_packages(status: str, distribution: str) -> Iterator[Component]:
    """From dpkg's status file."""
    for paragraph in status.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line and line[:1] != " ")
        if fields.get("Status") == "install ok installed":
            name, version = fields["Package"], fields["Version"]
            purl = PackageURL("deb", distribution, name, version, {"arch": fields["Architecture"]})
            yield Component(type=ComponentType.LIBRARY, name=name, version=version, purl=purl, bom_ref=str(purl))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True, help="the interpreter whose packages are listed")
    parser.add_argument("--packages", type=Path, required=True, help="dpkg's status file")
    parser.add_argument("--distribution", required=True, help="as its os-release calls itself")
    parser.add_argument("--output", type=Path, required=True)
    chosen = parser.parse_args()
    listed = subprocess.run(  # noqa: S603  # our own words
        [*(sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", "--of=JSON"), chosen.python],
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
    bom = Bom.from_json(json.loads(listed))
    for component in distribution_packages(chosen.packages.read_text(), chosen.distribution):
        bom.components.add(component)
    text = JsonV1Dot6(bom).output_as_string(indent=1)
    chosen.output.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
