"""Writes what one run measured into README.md between two markers, and nothing else of that file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.bench.http_comparison import Finding
from tests.bench.runtime_comparison import ComparisonRow

README = Path(__file__).parent / "README.md"
BEGIN = "<!-- results: begin -->"
END = "<!-- results: end -->"


def verdict(met: bool | None) -> str:
    return "" if met is None else "yes" if met else "**no**"


def runtime_table(rows: Sequence[ComparisonRow]) -> str:
    lines = [
        "| model | threads, clock | measure | edgellm tok/s | llama.cpp tok/s | ratio | target | met |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.model} | {row.threads}, {row.clock} | {row.measure} | {row.ours.text(1)} | {row.theirs.text(1)} "
        f"| **{row.ratio.median:.2f}** ({row.ratio.lowest:.2f} to {row.ratio.highest:.2f}) | >= {row.target} "
        f"| {verdict(row.ratio.median >= row.target)} |"
        for row in rows
    ]
    return "\n".join(lines)


def findings_table(findings: Sequence[Finding]) -> str:
    lines = ["| measure | median (lowest to highest) | target | met |", "|---|---|---|---|"]
    lines += [
        f"| {finding.measure} | {finding.value.text(finding.digits)} {finding.unit} | {finding.target} "
        f"| {verdict(finding.met)} |"
        for finding in findings
    ]
    return "\n".join(lines)


def write_results(text: str) -> None:
    before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    README.write_text(f"{before}{BEGIN}\n{text.strip()}\n{END}{after}", encoding="utf-8")
