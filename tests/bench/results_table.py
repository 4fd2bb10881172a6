"""Writes what a run measured into README.md, each section between its two markers, and nothing else of that file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.bench.http_comparison import Finding
from tests.bench.runtime_comparison import ComparisonRow

README = Path(__file__).parent / "README.md"
BEGIN = "<!-- {section}: begin -->"
END = "<!-- {section}: end -->"


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


def write_results(texts: Mapping[str, str]) -> None:
    """``texts`` by section. A section whose markers are missing is an error: nothing is written then."""
    readme = README.read_text(encoding="utf-8")
    for section, text in texts.items():
        begin, end = BEGIN.format(section=section), END.format(section=section)
        before, found, rest = readme.partition(begin)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            raise RuntimeError(f"{README} has no {begin} … {end}")
        readme = f"{before}{begin}\n{text.strip()}\n{end}{after}"
    README.write_text(readme, encoding="utf-8")
