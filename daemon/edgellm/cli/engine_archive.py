"""``edgellm engine export``, ``import`` and ``keygen``: engines as files that move between boards."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from edgellm.cli.arguments import ENGINE_OPTIONS, add_setting_options
from edgellm.cli.engine_build import OPTIONS
from edgellm.cli.engine_context import EngineContext, megabytes, open_context, print_json
from edgellm.cli.progress_line import ProgressLine
from edgellm.errors import UsageError
from edgellm.host.option_types import named_path

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from edgellm.engines.engine_key import EngineKey


def configure(action: str, parser: argparse.ArgumentParser) -> None:
    from edgellm.config import ModelSettings, Settings

    if action == "export":
        parser.add_argument(
            "name", metavar="MODEL|ENGINE", help="a model, or an engine's name or key as edgellm engine list has it"
        )
        parser.add_argument("file", metavar="FILE", type=named_path, help="the archive to write")
        parser.add_argument(
            "--sign", metavar="KEYFILE", type=named_path, help="sign it with this key of edgellm engine keygen"
        )
        parser.add_argument("--force", action="store_true", help="replace FILE")
        add_setting_options(parser.add_argument_group("the model exported"), OPTIONS, ModelSettings)
    elif action == "import":
        parser.add_argument("file", metavar="FILE", type=named_path, help="an archive of edgellm engine export")
        parser.add_argument(
            "--into",
            metavar="FOLDER",
            type=named_path,
            help="put engine, checkpoint and references into this folder, to become a read-only one of an image; the "
            "platform is compared where it is used",
        )
        add_setting_options(parser.add_argument_group("who is trusted"), ENGINE_OPTIONS, Settings)
    else:
        parser.add_argument(
            "file", metavar="KEYFILE", type=named_path, help="the private key to write; it must not exist"
        )
        parser.add_argument(
            "--name", metavar="NAME", default="engines", help="what the key is called (default: engines)"
        )


def run(namespace: argparse.Namespace, context: EngineContext) -> int:
    if namespace.action == "export":
        return _export(namespace, context)
    if namespace.action == "import":
        return _import(namespace, context)
    return _keygen(namespace)


def _export(namespace: argparse.Namespace, context: EngineContext) -> int:
    from edgellm.engines.archive.export import export_bundle
    from edgellm.engines.cache_directory import models_dir
    from edgellm.engines.hub.hub_model import find_model
    from edgellm.engines.references import all_references
    from edgellm.errors import EngineMissingError

    folder, roots = models_dir(context.settings.cache_dir), context.store.read_only
    references = [reference for root in (*roots, folder) for reference in all_references(root)]
    paths = {
        reference.checkpoint_digest: model.path
        for reference in references
        if (model := find_model(reference.hub_id, folder, roots)) is not None
    }
    with ProgressLine() as line:
        key, named = _key_and_sources(namespace, context, line)
        paths |= named
        lease = context.store.lease(key)
        if lease is None:
            raise EngineMissingError(
                f"{namespace.name}: no engine {key.short} is here — run edgellm engine build {namespace.name}"
            )
        digests = {"checkpoint": key.checkpoint_digest, "draft": key.inputs.get("draft")}
        with lease:
            size_bytes = export_bundle(
                lease,
                namespace.file,
                checkpoints={role: paths[str(digest)] for role, digest in digests.items() if str(digest) in paths},
                references=references,
                key=_signing_key(namespace.sign),
                overwrite=namespace.force,
                on_progress=line.show,
            )
            name = lease.directory.name
    if namespace.json:
        print_json({"engine": name, "key": key.digest, "file": str(namespace.file), "size_bytes": size_bytes})
    else:
        print(f"{namespace.file}  {megabytes(size_bytes)}  {name}")
    return 0


def _key_and_sources(
    namespace: argparse.Namespace, context: EngineContext, line: ProgressLine
) -> tuple[EngineKey, dict[str, Path]]:
    """The key that NAME means, and where the checkpoints of a model that was named lie, by digest."""
    try:
        keys = {entry.key.digest: entry.key for entry in context.entries([namespace.name]) if entry.key is not None}
        if keys:
            return next(iter(keys.values())), {}
    except UsageError as error:
        no_engine = error
    else:
        no_engine = UsageError(f"the engine {namespace.name!r} cannot be read — see edgellm engine verify")
    from edgellm.errors import ModelSourceError

    namespace.models = [namespace.name]
    try:
        ((_, builder, request),) = open_context(namespace).requests(line.show, download=False)
    except ModelSourceError as error:
        raise UsageError(f"{no_engine}, and no model is either: {error}") from None
    key = builder.key(request)
    digests = {key.checkpoint_digest: request.source.path}
    if request.draft is not None:
        digests[str(key.inputs["draft"])] = request.draft.path
    return key, digests


def _import(namespace: argparse.Namespace, context: EngineContext) -> int:
    from edgellm.engines.archive.unpacking import import_archive
    from edgellm.engines.cache_directory import models_dir
    from edgellm.engines.store import Store
    from edgellm.runtime.engine_builders import available_builders

    keys_file = context.settings.engines.trusted_keys_file
    trusted = None
    if keys_file is not None:
        from edgellm.engines.archive.signing import read_trusted_keys

        trusted = read_trusted_keys(keys_file)
    into: Path | None = namespace.into
    with ProgressLine() as line:
        imported = import_archive(
            namespace.file,
            Store(into, (), max_size_bytes=context.store.max_size_bytes) if into else context.store,
            into or models_dir(context.settings.cache_dir),
            available_builders(),
            trusted=trusted,
            check_platform=into is None,
            on_progress=line.show,
        )
    if namespace.json:
        print_json(
            {
                "engine": str(imported.directory),
                "key": imported.manifest.key.digest,
                "model": imported.manifest.model_id,
                "was_there": imported.was_there,
                "signed_by": imported.signer,
                "references": [str(reference.hub_id) for reference in imported.references],
            }
        )
    else:
        notes = ["was there already"] if imported.was_there else []
        notes += [f"signed by {imported.signer}"] if imported.signer else []
        print(f"{imported.directory}  {', '.join(notes)}".rstrip())
    return 0


def _keygen(namespace: argparse.Namespace) -> int:
    from edgellm.engines.archive.signing import make_key

    line = make_key(namespace.file, namespace.name).line()
    if namespace.json:
        print_json({"file": str(namespace.file), "trusted_key": line})
    else:
        print(line)
    return 0


def _signing_key(path: Path | None) -> Ed25519PrivateKey | None:
    if path is None:
        return None
    from edgellm.engines.archive.signing import read_private_key

    return read_private_key(path)
