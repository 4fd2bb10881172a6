"""Writes the reference pages of daemon/reference from the code: every setting, every verb and option.

Also the configuration file of devices, which has every setting too.

``python -m edgellm.cli.reference FOLDER`` writes them; a test compares them with what is committed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from edgellm.cli.example_config import example_toml
from edgellm.cli.main import VERBS, overview, parser_of
from edgellm.config.environment import environment_variable
from edgellm.config.load import default_files
from edgellm.config.settings import ModelSettings, SamplingSettings, Settings, SpeculativeSettings

EXAMPLE_CONFIG = Path(__file__).resolve().parents[3] / "systemd/both/etc/edgellm/edgellm.toml"
_HELP_COLUMNS = 100
_GENERATED = "<!-- Written by `make reference` from the code; a test fails when it is not current. -->"


def config_page() -> str:
    """Every setting: key, type and bounds, default, environment variable, meaning."""
    files = ", then ".join(f"`{path}`" for path in default_files({}))
    home = str(Path.home())
    lines = [
        _GENERATED,
        "# Configuration",
        "",
        "Precedence: command-line flags, then `EDGELLM_*` environment variables, then the file, then the defaults.",
        f"The file is the one named by `--config`, else by `EDGELLM_CONFIG`, else the first found of {files}.".replace(
            home, "~"
        ),
        "It is TOML. Unknown keys are refused, by file and key. Relative paths in it are taken from its folder.",
        "`edgellm config show` prints what holds and where each value comes from; `edgellm config check` only checks.",
    ]
    sections: list[tuple[str, type[BaseModel], tuple[str, ...]]] = [("Top level", Settings, ())]
    for name, field in Settings.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            sections.append((f"`[{name}]`", field.annotation, (name,)))
    for title, section, prefix in sections:
        lines += ["", f"## {title}", "", *_intro(section, title)]
        lines += ["| key | value | default | environment | meaning |", "|---|---|---|---|---|"]
        lines += [
            _row(name, field, f"`{environment_variable((*prefix, name))}`")
            for name, field in section.model_fields.items()
            if name != "models" and not _is_section(field)
        ]
    for title, section in (
        ("`[[models]]`", ModelSettings),
        ("`[models.sampling]`", SamplingSettings),
        ("`[models.speculative_config]`", SpeculativeSettings),
    ):
        lines += ["", f"## {title}", "", *_intro(section, title)]
        lines += ["| key | value | default | meaning |", "|---|---|---|---|"]
        lines += [_row(name, field) for name, field in section.model_fields.items() if not _is_section(field)]
    lines += [
        "",
        "`EDGELLM_MODEL=NAME=SOURCE` (or only the source) serves that one model in place of the file's.",
        "",
        "## Example",
        "",
        "```toml",
        "[server]",
        'host = "0.0.0.0"',
        'api_keys_file = "keys"          # one name:key a line, chmod 600',
        "",
        "[[models]]",
        'source = "smollm2-135m-instruct"',
        "",
        "[models.sampling]",
        "temperature = 0.2",
        "```",
    ]
    return "\n".join(lines) + "\n"


def cli_page() -> str:
    """The help of every verb, as the command prints it."""
    lines = [_GENERATED, "# Command line", "", "```text", overview(), "```"]
    for name in VERBS:
        parser = parser_of(name)
        lines += ["", f"## edgellm {name}", "", "```text", _help(parser), "```"]
        for action, child in _children(parser):
            lines += ["", f"### edgellm {name} {action}", "", "```text", _help(child), "```"]
    lines += [
        "",
        "Errors are one line on standard error, `edgellm: what — what to do`. Exit codes: 0 done, 64 wrong command",
        "line, 65 damaged or unsupported model or a request that the server refuses, 66 model not there, 67 a daemon",
        "that was stopped and had to cut requests short or kill workers, 68 no usable runtime, 69 no usable port, no",
        "server or no daemon, 70 internal error or a failed build, 71 too little memory, 72 no engine and no leave to",
        "build one, 73 unusable cache, 74 output that cannot be written, 75 no answer of a hub, 77 a key that the",
        "server or a hub refuses or a user that the daemon does, 78 wrong configuration, 130 interrupted. `--debug`",
        "shows tracebacks.",
    ]
    return "\n".join(lines) + "\n"


def pages() -> Mapping[str, str]:
    return {"config.md": config_page(), "cli.md": cli_page()}


def _intro(section: type[BaseModel], title: str) -> list[str]:
    return [] if title == "Top level" else [(section.__doc__ or "").strip(), ""]


def _is_section(field: FieldInfo) -> bool:
    """A table, or a table that may be left out."""
    kinds = get_args(field.annotation) or (field.annotation,)
    return any(isinstance(kind, type) and issubclass(kind, BaseModel) for kind in kinds)


def _row(name: str, field: FieldInfo, *further: str) -> str:
    meaning = (field.description or "").replace("|", "\\|")
    return f"| {' | '.join([f'`{name}`', value_of(field), _default_of(field), *further, meaning])} |"


def _default_of(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default_factory is not None or field.default is None:
        return "unset"
    match field.default:
        case bool() as value:
            return f"`{str(value).lower()}`"
        case str() as value:
            return f'`"{value}"`'
        case float() as value:
            return f"`{value:g}`"
        case ():
            return "`[]`"
        case value:
            return f"`{value}`"


def value_of(field: FieldInfo) -> str:
    """A type in words, with its bounds."""
    words, bounds = _words(field.annotation, [*field.metadata])
    lowest = next((f"≥ {bound.ge:g}" for bound in bounds if isinstance(bound, Ge)), "")
    lowest = lowest or next((f"> {bound.gt:g}" for bound in bounds if isinstance(bound, Gt)), "")
    highest = next((f"≤ {bound.le:.10g}" for bound in bounds if isinstance(bound, Le)), "")
    extent = ", ".join(part for part in (lowest, highest) if part)
    return f"{words}, {extent}" if extent else words


def _words(annotation: Any, bounds: list[Any]) -> tuple[str, list[Any]]:
    if hasattr(annotation, "__metadata__"):
        for item in annotation.__metadata__:
            bounds += item.metadata if isinstance(item, FieldInfo) else [item]
        return _words(annotation.__origin__, bounds)
    if get_origin(annotation) is Literal:
        return " or ".join(f'`"{choice}"`' for choice in get_args(annotation)), bounds
    if get_origin(annotation) is tuple:
        return "list of texts", bounds
    arguments = [part for part in get_args(annotation) if part is not type(None)]
    if arguments:
        return _words(arguments[0], bounds)
    return {bool: "true or false", int: "whole number", float: "number", str: "text", Path: "path"}[annotation], bounds


def _help(parser: argparse.ArgumentParser) -> str:
    parser.formatter_class = _FixedWidth
    return parser.format_help().rstrip()


class _FixedWidth(argparse.HelpFormatter):
    """Help as wide on every terminal, without colour."""

    def __init__(self, prog: str, **options: Any) -> None:
        options.update(width=_HELP_COLUMNS)
        if sys.version_info >= (3, 14):
            options.update(color=False)
        super().__init__(prog, **options)


def _children(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def main(folder: Path) -> None:
    """Also the configuration file that devices get, in the folder that this source has for it."""
    folder.mkdir(parents=True, exist_ok=True)
    EXAMPLE_CONFIG.write_text(example_toml(), encoding="utf-8")
    print(EXAMPLE_CONFIG)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")
        print(folder / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
