"""Whatever ends a start says what to do: in its own text, or by its kind."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import edgellm
from edgellm import errors
from edgellm.service.remedies import SEPARATOR, with_remedy

PACKAGE = Path(edgellm.__file__).parent
# Of a start: what is read, fetched, built and loaded for it, and how it listens.
FOLDERS = ("config", "engines", "runtime", "service", "serving")
# A request's, a client's or an operator's question: no start ends with one.
OTHERS = (
    errors.AdmissionError,
    errors.AdminAccessError,
    errors.ClosedError,
    errors.DaemonUnreachableError,
    errors.ForcedShutdownError,
    errors.GenerationError,
    errors.LoadUnfinishedError,
    errors.PairingError,
    errors.RequestError,
)


def raised() -> Iterator[tuple[str, type[errors.EdgeLLMError], str]]:
    """Where an error is made, its kind, and the source of its text."""
    for folder in FOLDERS:
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                call = node.exc if isinstance(node, ast.Raise) else node.value if isinstance(node, ast.Return) else None
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
                    kind = getattr(errors, call.func.id, None)
                    if inspect.isclass(kind) and issubclass(kind, errors.EdgeLLMError):
                        yield f"{path.relative_to(PACKAGE)}:{node.lineno}", kind, ast.unparse(call)


def test_every_error_that_can_end_a_start_has_a_remedy() -> None:
    found, without = 0, []
    for place, kind, text in raised():
        if issubclass(kind, OTHERS):
            continue
        found += 1
        # A text that is made elsewhere is seen where that is.
        if SEPARATOR not in text and SEPARATOR not in str(with_remedy(kind("cause"))) and "self._missing" not in text:
            without.append(f"{place}: {text}")
    assert found > 300
    assert without == []


def test_an_error_s_own_remedy_counts() -> None:
    own = errors.CheckpointError("model.gguf: cut short — fetch it again")
    assert str(with_remedy(own)) == "model.gguf: cut short — fetch it again"
    assert with_remedy(own) is own
    without = errors.CheckpointError("model.gguf: cut short")
    assert str(with_remedy(without)).startswith(
        "model.gguf: cut short — the model is damaged or incomplete: get it anew"
    )
    assert str(with_remedy(without)).count(SEPARATOR) == 1
    assert str(with_remedy(errors.ConfigError("x"), "do this")) == "x — do this"
