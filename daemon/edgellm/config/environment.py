"""Settings from EDGELLM_* environment variables, each named after its key: server.port is EDGELLM_SERVER_PORT."""

from __future__ import annotations

import difflib
import json
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from edgellm.config.settings import Settings
from edgellm.errors import ConfigError

ENVIRONMENT_PREFIX = "EDGELLM_"
FILE_VARIABLE = "EDGELLM_CONFIG"
MODEL_VARIABLE = "EDGELLM_MODEL"

# Names with the prefix that are no settings: the command's own, its container's, those of a source checkout, and those
# that NVIDIA's TensorRT Edge-LLM reads.
OTHER_VARIABLES = frozenset(
    ENVIRONMENT_PREFIX + name
    for name in (
        *("CONFIG", "MODEL", "DEBUG", "API_KEY", "URL", "EXTENSIONS_SOCKET"),
        *("PYTHON", "TESTS", "VENV", "GGML_DIR", "SANITIZE", "TEST_CACHE", "CI", "CI_STAGES"),
        *(
            "PLUGIN_PATH",
            "PYBIND_DIR",
            "DEVICE_FILE",
            "NCCL_SO_PATH",
            "IGNORE_EOS",
            "GDN_TIME_COMMIT",
            "FORCE_TOKENS_FILE",
        ),
        *("ENABLE_PDL", "DUMP_LOGITS_KVCACHE_DIR", "DSPARK_W", "DISABLE_CUDA_GRAPH"),
    )
)

KeyPath = tuple[str | int, ...]


def scalar_fields(
    section: type[BaseModel] = Settings, prefix: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], FieldInfo]]:
    """Every single-valued setting outside ``[[models]]`` with its path."""
    for name, field in section.model_fields.items():
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from scalar_fields(annotation, (*prefix, name))
        elif (*prefix, name) != ("models",):
            yield (*prefix, name), field


def environment_variable(path: tuple[str, ...]) -> str:
    return ENVIRONMENT_PREFIX + "_".join(path).upper()


def environment_values(environ: Mapping[str, str]) -> Iterator[tuple[KeyPath, Any, str]]:
    known = {environment_variable(path): (path, field) for path, field in scalar_fields()}
    for variable in sorted(environ):
        if variable in known:
            path, field = known[variable]
            yield path, parse_text(environ[variable], field.annotation, variable), variable
        elif variable.startswith(ENVIRONMENT_PREFIX):
            _refuse_lookalike(variable, known)
    if environ.get(MODEL_VARIABLE):
        yield ("models",), [parse_model_argument(environ[MODEL_VARIABLE], MODEL_VARIABLE)], MODEL_VARIABLE


def unknown_variables(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Variables with edgellm's prefix that nothing is known to read. They have no effect."""
    known = {environment_variable(path) for path, _ in scalar_fields()} | OTHER_VARIABLES
    return tuple(sorted(name for name in environ if name.startswith(ENVIRONMENT_PREFIX) and name not in known))


def _refuse_lookalike(variable: str, known: Mapping[str, object]) -> None:
    """A misspelt setting must not be ignored; variables of other programs that share the prefix must be."""
    sections = {name.split("_")[1] for name in known if name.count("_") > 1}
    tail = variable.removeprefix(ENVIRONMENT_PREFIX)
    same_key = [name for name in known if name.endswith(f"_{tail}")]
    if tail.split("_")[0] in sections & {"SERVER", "ADMISSION", "ENGINES", "RESIDENCY", "LOG"} or same_key:
        likely = same_key or difflib.get_close_matches(variable, known, n=1, cutoff=0.5)
        hint = f" — did you mean {likely[0]}?" if likely else ""
        raise ConfigError(f"environment variable {variable} is no setting of edgellm{hint}")


def parse_text(text: str, annotation: Any, spelling: str) -> Any:
    """The value that ``text`` means, given as ``spelling``. Raises ConfigError for a table that is no JSON."""
    kinds = set(_kinds(annotation))
    if any(issubclass(kind, BaseModel) for kind in kinds):
        return parse_json(text, spelling)
    if tuple in kinds:
        return [part.strip() for part in text.split(",") if part.strip()]
    if kinds & {int, float, bool}:
        lowered = text.strip().lower()
        if bool in kinds and lowered in ("1", "true", "yes", "on", "0", "false", "no", "off"):
            return lowered in ("1", "true", "yes", "on")
        for parse in (int, float):
            try:
                return parse(lowered)
            except ValueError:
                continue
    return text


def parse_json(text: str, spelling: str) -> Any:
    """Raises ConfigError that says what JSON expects, and where."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, character {error.colno}" if "\n" in text else f"character {error.colno}"
        raise ConfigError(f"{spelling} is not JSON: {error.msg[:1].lower()}{error.msg[1:]} at {where}") from None
    except RecursionError:
        raise ConfigError(f"{spelling} is not JSON that can be read: it is nested too deep") from None


def _kinds(annotation: Any) -> Iterator[type]:
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        for part in get_args(annotation):
            yield from _kinds(part)
    elif origin is Literal:
        yield str
    elif hasattr(annotation, "__metadata__"):
        yield from _kinds(annotation.__origin__)
    elif origin is not None:
        yield origin
    elif isinstance(annotation, type):
        yield annotation


def parse_model_argument(text: str, spelling: str) -> dict[str, str]:
    """``NAME=SOURCE`` or ``SOURCE`` as a ``[[models]]`` table."""
    name, equals, source = text.partition("=")
    if not equals:
        name, source = "", text
    if not source or (equals and not name):
        raise ConfigError(f"{spelling} {text!r} — give NAME=SOURCE or SOURCE")
    if source.startswith("~"):
        source = str(Path(source).expanduser())
    return {"name": name, "source": source} if name else {"source": source}
