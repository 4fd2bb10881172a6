"""Loads Settings from flags, environment, file and defaults, in that order of precedence, and knows each origin."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from edgellm.config import limits
from edgellm.config.environment import (
    FILE_VARIABLE,
    KeyPath,
    environment_values,
    environment_variable,
    unknown_variables,
)
from edgellm.config.regular_file import open_regular
from edgellm.config.setting_error import SettingError
from edgellm.config.settings import DEFAULT_MODEL_SOURCE, ModelSettings, Settings
from edgellm.config.toml_lines import line_of
from edgellm.errors import ConfigError

FILE_NAME = "edgellm.toml"
FILE_BYTES_MAX = 1_048_576


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """``origins`` says for each dotted key that was set where its value came from; the others are defaults.

    ``unknown_variables`` of the environment look like settings and are none.
    """

    settings: Settings
    origins: Mapping[str, str]
    file: Path | None
    unknown_variables: tuple[str, ...] = ()

    def refuse_unknown_variables(self) -> None:
        if self.unknown_variables:
            names = ", ".join(self.unknown_variables)
            raise ConfigError(f"no setting of edgellm is called {names} — check the spelling, or unset it")


@dataclass(frozen=True, slots=True)
class Flag:
    """A command-line option's value and how it is spelled."""

    value: Any
    spelling: str


def dotted(path: KeyPath) -> str:
    """``("models", 0, "threads")`` as ``models[0].threads``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def default_files(environ: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """Where a configuration file is looked for when none is named; the first one found counts alone."""
    home = (os.environ if environ is None else environ).get("XDG_CONFIG_HOME", "")
    base = Path(home) if Path(home).is_absolute() else Path("~/.config").expanduser()
    return (base / "edgellm" / FILE_NAME, Path("/etc/edgellm") / FILE_NAME)


def load_settings(
    *,
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[tuple[str, ...], Flag] | None = None,
    model_flags: Mapping[str, Flag] | None = None,
) -> LoadedSettings:
    """Return validated settings. Raises ConfigError that names the file, variable or flag, and the key.

    ``flags`` is keyed by path; a ``("models",)`` flag (a list of tables) replaces all models of the file.
    ``model_flags`` is keyed by field of ``[[models]]`` and applies to every served model.
    """
    environ = os.environ if environ is None else environ
    found = _find_file(file, environ)
    tree: dict[str, Any] = {}
    origins: dict[str, str] = {}
    text = "" if found is None else _read_file(found)
    if found is not None:
        tree = _parse(found, text)
        _anchor_paths(tree, found.parent)
        _note_origins(tree, (), str(found), origins)
    for path, value, origin in [*environment_values(environ), *_flag_values(flags or {})]:
        _set(tree, path, value, origins, origin)
    if model_flags and not tree.get("models"):
        tree["models"] = [{"source": DEFAULT_MODEL_SOURCE}]
    for key, flag in (model_flags or {}).items():
        for index, _ in enumerate(tree.get("models") or ()):
            _set(tree, ("models", index, key), flag.value, origins, flag.spelling)
    try:
        settings = Settings.model_validate(tree)
    except ValidationError as error:
        wrong = _Wrong.of(error.errors()[0], origins, found)
        line = line_of(text, wrong.path) if found is not None and wrong.origin == str(found) else None
        raise ConfigError(f"{wrong.describe()}{'' if line is None else f' (at line {line})'}") from None
    return LoadedSettings(settings, origins, found, unknown_variables(environ))


def peek_admin_socket(file: Path | None = None, environ: Mapping[str, str] | None = None) -> Path | None:
    """The setting as it stands in the environment or the file, also where other settings there are wrong.

    Raises ConfigError for a file that cannot be read.
    """
    environ = os.environ if environ is None else environ
    said = environ.get(environment_variable(("admin_socket",)))
    found = None if said else _find_file(file, environ)
    if found is not None:
        tree = _parse(found, _read_file(found))
        _anchor_paths(tree, found.parent)
        said = tree.get("admin_socket")
    return Path(said) if isinstance(said, str) and said else None


def _find_file(named: Path | None, environ: Mapping[str, str]) -> Path | None:
    if named is None and environ.get(FILE_VARIABLE):
        named = Path(environ[FILE_VARIABLE])
    if named is not None:
        return named
    # Not Path.is_file(): a home that this user may not look into, as under sudo -u, holds no file for it.
    return next((path for path in default_files(environ) if os.path.isfile(path)), None)


def _read_file(path: Path) -> str:
    try:
        with open_regular(path) as stream:
            data = stream.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"configuration file {path}: {error.strerror} — check the path and its permissions") from None
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(f"configuration file {path} is larger than {FILE_BYTES_MAX} bytes — is it the right file?")
    try:
        return data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ConfigError(f"configuration file {path}: byte {error.start} is not UTF-8 — save it as UTF-8") from None


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"configuration file {path} is no valid TOML: {error}") from None


def _anchor_paths(tree: dict[str, Any], folder: Path) -> None:
    """Paths written in a file are relative to that file, whoever starts the program from wherever."""

    def anchor(table: Any, key: str, *, only_if_dotted: bool) -> None:
        value = table.get(key) if isinstance(table, dict) else None
        if not isinstance(value, str) or not value:
            return
        expanded = Path(value).expanduser() if value.startswith("~") else Path(value)
        if expanded.is_absolute():
            table[key] = str(expanded)
        elif not only_if_dotted or value.split("/", 1)[0] in (".", ".."):
            table[key] = str((folder / expanded).absolute())

    for key in ("cache_dir", "admin_socket"):
        anchor(tree, key, only_if_dotted=False)
    for key in ("api_keys_file", "tls_certificate_file", "tls_key_file"):
        anchor(tree.get("server"), key, only_if_dotted=False)
    anchor(tree.get("records"), "file", only_if_dotted=False)
    engines = tree.get("engines")
    folders = engines.get("read_only_dirs") if isinstance(engines, dict) else None
    if isinstance(engines, dict) and isinstance(folders, list):
        for index, path in enumerate(folders):
            entry = {"path": path}
            anchor(entry, "path", only_if_dotted=False)
            folders[index] = entry["path"]
    models = tree.get("models")
    for model in models if isinstance(models, list) else ():
        anchor(model, "source", only_if_dotted=True)
        anchor(model, "reduced_vocab_dir", only_if_dotted=False)


def _note_origins(value: Any, path: KeyPath, origin: str, origins: dict[str, str]) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            _note_origins(item, (*path, key), origin, origins)
    elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        for index, item in enumerate(value):
            _note_origins(item, (*path, index), origin, origins)
    else:
        origins[dotted(path)] = origin


def _set(tree: dict[str, Any], path: KeyPath, value: Any, origins: dict[str, str], origin: str) -> None:
    table: Any = tree
    for part in path[:-1]:
        if isinstance(part, int):
            table = table[part]
        else:
            if not isinstance(table.get(part), dict | list):
                table[part] = {}
            table = table[part]
    table[path[-1]] = value
    name = dotted(path)
    for key in [key for key in origins if key == name or key.startswith((f"{name}.", f"{name}["))]:
        del origins[key]
    _note_origins(value, path, origin, origins)


def _flag_values(flags: Mapping[tuple[str, ...], Flag]) -> Iterator[tuple[KeyPath, Any, str]]:
    for path, flag in flags.items():
        yield path, flag.value, flag.spelling


_PLAIN_WORDS = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "string_type": "must be a text",
    "string_too_short": "must not be empty",
    "path_type": "must be a path",
    "tuple_type": "must be a list",
    "missing": "is required",
}


_PATTERNS = {
    limits.MODEL_NAME_PATTERN: (
        "may hold only letters, digits and . _ : / @ + -, no two dots in a row, and starts with a letter or digit"
    ),
    limits.CPU_LIST_PATTERN: "must be a list of CPU numbers and ranges, such as 0-3,6",
}


@dataclass(frozen=True, slots=True)
class _Wrong:
    """What the validation refused: at which key, and where that was set."""

    error: ErrorDetails
    path: KeyPath
    origin: str

    @classmethod
    def of(cls, error: ErrorDetails, origins: Mapping[str, str], file: Path | None) -> _Wrong:
        # Pydantic adds the branch of a union to a location; a setting's path has none of those.
        path = tuple(error["loc"])
        context = error.get("ctx", {})
        if isinstance(context.get("error"), SettingError):
            path = (*path, context["error"].setting)
        while path and dotted(path) not in origins and path[:-1] and dotted(path[:-1]) in origins:
            path = path[:-1]
        key = dotted(path)
        origin = origins.get(key) or next(
            (o for k, o in origins.items() if k.startswith((f"{key}.", f"{key}["))), str(file or "")
        )
        return cls(error, path, origin)

    def describe(self) -> str:
        kind, context, path = self.error["type"], self.error.get("ctx", {}), self.path
        key, origin = dotted(path), self.origin
        where = f"{origin}: {key}" if origin and key else origin or key or "configuration"
        if kind == "extra_forbidden":
            likely = difflib.get_close_matches(str(path[-1]), _keys_beside(path), n=1)
            hint = f'did you mean "{likely[0]}"?' if likely else f"known keys there: {', '.join(_keys_beside(path))}"
            return f"{origin}: unknown key {key} — {hint}"
        if kind in ("model_type", "model_attributes_type", "dict_type"):
            return f"{where} must be a table"
        if kind == "value_error":
            return f"{where} {context.get('error')}"
        if kind == "greater_than_equal":
            return f"{where} must be at least {context['ge']}"
        if kind == "greater_than":
            return f"{where} must be greater than {context['gt']}"
        if kind == "less_than_equal":
            return f"{where} must be at most {context['le']}"
        if kind == "literal_error":
            return f"{where} must be {context['expected']}"
        if kind == "too_long":
            return f"{where} may hold at most {context['max_length']} entries"
        if kind == "string_too_long":
            return f"{where} may have at most {context['max_length']} characters"
        if kind == "string_pattern_mismatch":
            return f"{where} {_PATTERNS.get(context['pattern']) or 'must match ' + context['pattern']}"
        return f"{where} {_PLAIN_WORDS.get(kind) or self.error['msg']}"


def _keys_beside(path: KeyPath) -> list[str]:
    section: type[BaseModel] = Settings
    for part in path[:-1]:
        if isinstance(part, int):
            continue
        field = section.model_fields.get(str(part))
        if field is None:
            return []
        if part == "models":
            section = ModelSettings
        elif isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            section = field.annotation
    return list(section.model_fields)
