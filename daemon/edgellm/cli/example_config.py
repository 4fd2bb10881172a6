"""Writes the configuration file that `edgellm install` puts on a device: every setting, commented out with its default.

`make reference` writes it; a test compares it with what is committed.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from edgellm.config.settings import DEFAULT_MODEL_SOURCE, ModelSettings, Settings

COLUMNS = 110
STATE_FOLDER = "/var/lib/edgellm"
CREDENTIALS = "/run/credentials/edgellm.service"
# What a device needs to be told.
SET: Mapping[str, object] = {"cache_dir": STATE_FOLDER}
# What a device would be told, for settings without a default of their own.
SHOWN: Mapping[str, object] = {
    "server.host": "0.0.0.0",  # noqa: S104 -- shown in a comment
    "server.api_keys_file": f"{CREDENTIALS}/api-keys",
    "server.tls_certificate_file": f"{CREDENTIALS}/tls-certificate",
    "server.tls_key_file": f"{CREDENTIALS}/tls-key",
    "server.tls_authority_file": f"{CREDENTIALS}/tls-authority",
    "models.source": DEFAULT_MODEL_SOURCE,
}
_HEAD = """\
Configuration of edgellm on this device. Yours: upgrades leave it alone. A line that is commented out shows the
default. After a change: edgellm config check, then systemctl reload edgellm, or restart it where reload says so.

To serve the network, give each client a key and uncomment server.api_keys_file:
    edgellm keys add NAME
    systemctl restart edgellm
The service takes keys, certificate and private key from /etc/edgellm/credentials (api-keys, tls-certificate, tls-key)
when it starts. To have changes of keys hold at once, name /etc/edgellm/credentials/api-keys instead.

To serve other models, uncomment [[models]], then: systemctl restart edgellm-prewarm edgellm"""


def example_toml() -> str:
    lines = [*_comment(_HEAD), ""]
    tables = []
    for name, field in Settings.model_fields.items():
        section = _section_of(field)
        if section is not None:
            tables += ["", *_comment(field.description or ""), f"[{name}]", *_settings(section, f"{name}.")]
        elif name != "models":
            lines += _setting(name, field, name)
    models = Settings.model_fields["models"]
    tables += ["", *_comment(models.description or ""), "#[[models]]", *_settings(ModelSettings, "models.")]
    return "\n".join([*lines, *tables]) + "\n"


def _settings(section: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in section.model_fields.items():
        if _section_of(field) is None:
            yield from _setting(name, field, prefix + name)


def _setting(name: str, field: FieldInfo, dotted: str) -> Iterator[str]:
    yield from _comment((field.description or "").replace("`", ""))
    if dotted in SET:
        yield f"{name} = {_value(SET[dotted])}"
        return
    default = SHOWN.get(dotted, None if field.is_required() else field.default)
    yield f"#{name} is unset" if default is None else f"#{name} = {_value(default)}"


def _section_of(field: FieldInfo) -> type[BaseModel] | None:
    annotation = field.annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _comment(text: str) -> list[str]:
    wrapped = [line for part in text.split("\n") for line in (textwrap.wrap(part, COLUMNS) or [""])]
    if text == _HEAD:
        wrapped = text.split("\n")
    return [f"# {line}".rstrip() for line in wrapped]


def _value(value: Any) -> str:
    # JSON writes texts, numbers, booleans and lists of texts as TOML does.
    return json.dumps(value, ensure_ascii=False)
