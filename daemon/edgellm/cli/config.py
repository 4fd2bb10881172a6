"""``edgellm config``: checks the configuration and shows what holds and where it comes from."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgellm.cli.arguments import CREDENTIAL_OPTIONS, add_config_option, add_setting_options, load_from_arguments

if TYPE_CHECKING:
    from edgellm.config import LoadedSettings

HANDED_OUT = Path("/run/credentials")  # where systemd puts the credentials of services that run


def configure(parser: argparse.ArgumentParser) -> None:
    from edgellm.config import Settings

    actions = parser.add_subparsers(dest="action", metavar="check|show", required=True)
    check = actions.add_parser("check", help="exit 0 when the configuration is right, else say what is wrong")
    show = actions.add_parser("show", help="print every setting with its value and origin, as TOML")
    check.add_argument(
        "--elsewhere",
        action="store_true",
        help="the file is for another machine: what it names is there, and this machine's environment says nothing",
    )
    check.add_argument(
        "--pairable",
        action="store_true",
        help="with --elsewhere: refuse a server that no client could pair with, unless pairing.enabled = false says so",
    )
    for action in (check, show):
        add_config_option(action)
    add_setting_options(
        check.add_argument_group("keys and certificate to check it with, in the place of those it names"),
        CREDENTIAL_OPTIONS,
        Settings,
    )


def run(namespace: argparse.Namespace) -> int:
    if namespace.action == "check" and namespace.pairable and not namespace.elsewhere:
        from edgellm.errors import UsageError

        raise UsageError("--pairable needs --elsewhere — see edgellm config check --help")
    if namespace.action == "check" and namespace.elsewhere:
        return _check_for_elsewhere(namespace)
    loaded = load_from_arguments(namespace)
    if namespace.action == "show":
        print("\n".join(effective_toml(loaded)))
    else:
        loaded.refuse_unknown_variables()
        _require_sources(loaded)
        _check_files_here(loaded)
        print(f"configuration is right ({loaded.file or 'no file; defaults and environment'})")
    return 0


def _check_for_elsewhere(namespace: argparse.Namespace) -> int:
    from edgellm.errors import UsageError

    if namespace.config is None:
        raise UsageError("--elsewhere needs --config FILE — see edgellm config check --help")
    loaded = load_from_arguments(namespace, environ={})
    _check_files_here(loaded, elsewhere=True)
    if namespace.pairable:
        _require_pairing(loaded)
    print(f"configuration is right ({namespace.config}; what it names was not looked for)")
    return 0


def _require_pairing(loaded: LoadedSettings) -> None:
    """Raise ConfigError where no client could pair with a server of it, and nothing says that this is meant."""
    from edgellm.errors import ConfigError
    from edgellm.service.pairing.daemon_side import why_closed

    if loaded.settings.pairing.enabled and (why := why_closed(loaded.settings, elsewhere=True)):
        raise ConfigError(
            f"{loaded.file}: no client could pair with a server of it: {why.partition(' — ')[0]} — set "
            "server.api_keys_file, server.tls_certificate_file, server.tls_key_file and server.tls_authority_file; or, "
            "where it is meant, pairing.enabled = false"
        )


def _require_sources(loaded: LoadedSettings) -> None:
    """Raise ConfigError for a model's path that is not there. What can be fetched need not be here yet."""
    from edgellm.engines.cache_directory import models_dir
    from edgellm.engines.piper_voice import resolve_piper_voice
    from edgellm.engines.source import is_fetchable, resolve
    from edgellm.engines.whisper_folder import resolve_whisper
    from edgellm.errors import ConfigError, ModelError
    from edgellm.service.model_kinds import has_sound_engine, kind_of

    folder = models_dir(loaded.settings.cache_dir)
    for index, model in enumerate(loaded.settings.served_models):
        if is_fetchable(model.source):
            continue
        try:
            kind = "auto" if has_sound_engine(model, loaded.settings) else kind_of(model, loaded.settings)
            find = {"asr": resolve_whisper, "tts": resolve_piper_voice}.get(kind, resolve)
            find(model.source, folder, download=False)
        except ModelError as error:
            key = f"models[{index}].source"
            raise ConfigError(f"{loaded.origins.get(key, loaded.file or 'models')}: {key}: {error}") from None


def _check_files_here(loaded: LoadedSettings, *, elsewhere: bool = False) -> None:
    """Raise ConfigError for keys and certificates that the server would refuse at its start, and for an address beyond
    this machine without keys. Files of the configuration may be on a device alone; those that are named beside it are
    here.
    """
    from edgellm.service.address import bind_host
    from edgellm.service.api_keys import read_keys
    from edgellm.service.credentials import handed_next
    from edgellm.service.pairing.daemon_side import keys_at_start
    from edgellm.service.tls import check_certificate

    server = loaded.settings.server

    def is_beside(name: str) -> bool:
        return loaded.origins.get(f"server.{name}", "").startswith("--")

    def is_here(name: str, file: Path) -> bool:
        """Not what a service that runs was handed at its start: the next start is handed what is there then."""
        if is_beside(name):
            return True
        return not elsewhere and not file.is_relative_to(HANDED_OUT) and os.access(file, os.R_OK)

    keys = server.api_keys_file
    if keys is not None and is_here("api_keys_file", keys):
        if elsewhere:
            read_keys(keys)
        else:
            keys_at_start(loaded.settings)
    bind_host(server.host, has_keys=keys is not None, insecure_no_keys=server.insecure_no_keys)
    certificate, key = server.tls_certificate_file, server.tls_key_file
    if certificate is None or key is None:
        return
    if is_here("tls_certificate_file", certificate) and is_here("tls_key_file", key):
        check_certificate(certificate, key)
    elif not elsewhere and not is_beside("tls_certificate_file") and not is_beside("tls_key_file"):
        sources = [handed_next(certificate), handed_next(key)]
        certificate, key = (file if file is not None and os.access(file, os.R_OK) else None for file in sources)
        if certificate is not None and key is not None:
            check_certificate(certificate, key)


def effective_toml(loaded: LoadedSettings) -> Iterator[str]:
    """The settings in force as TOML; each line's comment names where its value was set."""
    from edgellm.config.load import default_files

    if loaded.file is not None:
        yield f"# file: {loaded.file}"
    else:
        yield f"# no file; looked for {', '.join(str(path) for path in default_files())}"
    values = loaded.settings.model_dump()
    models = values.pop("models")
    yield from _table(values, "", loaded.origins)
    for index, model in enumerate(models):
        yield ""
        yield "[[models]]"
        yield from _table(model, "models", loaded.origins, key_prefix=f"models[{index}]")


def _table(table: Mapping[str, Any], name: str, origins: Mapping[str, str], key_prefix: str = "") -> Iterator[str]:
    prefix = key_prefix or name
    for key, value in table.items():
        if not isinstance(value, Mapping):
            dotted = f"{prefix}.{key}" if prefix else key
            yield _line(key, value, origins.get(dotted, "default"))
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield ""
            yield f"[{name}.{key}]" if name else f"[{key}]"
            inner = f"{name}.{key}" if name else key
            yield from _table(value, inner, origins, f"{key_prefix}.{key}" if key_prefix else "")


def _line(key: str, value: Any, origin: str) -> str:
    if value is None:
        return f"# {key} is unset"
    if isinstance(value, Path):
        value = str(value)
    # JSON writes texts, numbers, booleans and lists of texts as TOML does.
    return f"{key} = {json.dumps(value, ensure_ascii=False)}  # {origin}"
