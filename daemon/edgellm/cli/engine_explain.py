"""``edgellm engine explain``: every input of an engine's key, hit or miss, and what would make a miss of a hit."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgellm.cli.arguments import add_setting_options
from edgellm.cli.engine_build import OPTIONS
from edgellm.cli.engine_context import MODEL_HELP, EngineContext, print_json
from edgellm.cli.engine_estimates import estimates_of, print_estimates
from edgellm.cli.progress_line import ProgressLine
from edgellm.errors import ModelError, UsageError

if TYPE_CHECKING:
    from edgellm.config import ModelSettings
    from edgellm.engines.engine_key import Difference, EngineKey
    from edgellm.engines.store import Store

HIT, MISS, DAMAGED, UNKNOWN = "hit", "miss", "damaged", "unknown"


def configure(action: str, parser: argparse.ArgumentParser) -> None:
    from edgellm.config import ModelSettings

    parser.add_argument("models", metavar="MODEL", nargs="*", help=MODEL_HELP)
    parser.add_argument(
        "--as-of",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="as if this platform value were another, to see before an upgrade what it makes stale; repeatable. "
        "Without MODEL every engine that is here is told to be usable or stale",
    )
    add_setting_options(parser.add_argument_group("every model explained"), OPTIONS, ModelSettings)


def run(namespace: argparse.Namespace, context: EngineContext) -> int:
    from edgellm.service.model_builds import wanted_digest

    platform = _platform(namespace.as_of)
    if platform and not namespace.models:
        return _explain_upgrade(context.store, platform, as_json=namespace.json)
    answers = []
    failures = []
    with ProgressLine() as line:
        for model in context.models():
            try:
                answer = _answer(model, context, platform, line)
            except ModelError as error:
                failures.append(error)
                answer = _without_key(model.source, str(error))
            answers.append({**answer, "wanted": wanted_digest(model)})
    if namespace.json:
        print_json(answers)
    else:
        for answer in answers:
            _print(answer)
    for failure in failures:  # told of all models, and ends as the first one does
        raise failure
    return 0


def _answer(
    model: ModelSettings, context: EngineContext, platform: Mapping[str, str], line: ProgressLine
) -> dict[str, Any]:
    """Raises ModelError where the model's files say no key."""
    from edgellm.service.model_builds import build_of

    builder, request = build_of(model, context.settings, context.store, line.show, download=False)
    key = builder.key(request)
    answer = _explained(model.source, key.as_of(platform) if platform else key, context.store)
    answer["estimates"] = estimates_of(model, builder, request, context.store, context.store.find(key))
    return answer


def _without_key(model: str, reason: str) -> dict[str, Any]:
    return {
        "model": model,
        "outcome": UNKNOWN,
        "key": None,
        "inputs": {},
        "engine": None,
        "problems": [reason],
        "nearest": None,
        "estimates": None,
    }


def _explained(model: str, key: EngineKey, store: Store) -> dict[str, Any]:
    found = store.find(key)
    problems = _load_problems(store, key)
    near = None if found is not None else store.nearest(key)
    return {
        "model": model,
        "outcome": DAMAGED if problems else MISS if found is None else HIT,
        "key": key.digest,
        "inputs": dict(key.inputs),
        "engine": None if found is None else str(found.directory),
        "problems": problems,
        "nearest": None
        if near is None
        else {
            "engine": str(near.entry.directory),
            "differences": [_difference(difference) for difference in near.differences],
        },
    }


def _load_problems(store: Store, key: EngineKey) -> list[str]:
    """Why what is there for ``key`` would not be loaded, and what the next build makes of it."""
    from edgellm.engines.bundle_files import check_at_load
    from edgellm.engines.manifest import MANIFEST_FILE, Manifest
    from edgellm.errors import BundleDamagedError, ManifestVersionError

    problems = []
    for entry in store.entries():
        if entry.short_key != key.short:
            continue
        try:
            manifest = Manifest.read(entry.directory / MANIFEST_FILE)
            if manifest.key == key:
                check_at_load(entry.directory, manifest)
                return []  # what a load would take
        except BundleDamagedError as error:
            problems.append(f"{error}: the next build {'makes another' if entry.read_only else 'replaces it'}")
        except ManifestVersionError as error:
            return [*problems, str(error)]
    return problems


def _difference(difference: Difference) -> dict[str, Any]:
    return {"input": difference.name, "wanted": difference.ours, "there": difference.theirs}


def _print(answer: Mapping[str, Any]) -> None:
    if answer["key"] is None:
        print(f"{answer['outcome'].upper()}  {answer['model']}")
        return
    print(f"{answer['outcome'].upper()}  {answer['model']}  key {answer['key'][:16]}")
    near = answer["nearest"]
    differing = {entry["input"]: entry["there"] for entry in near["differences"]} if near else {}
    for name, value in answer["inputs"].items():
        note = f"   <- {_shown(differing[name])} in the nearest" if name in differing else ""
        print(f"    {name:<32} {_shown(value)}{note}")
    for problem in answer["problems"]:
        print(f"  {problem}")
    if answer["engine"]:
        print(f"  engine  {answer['engine']}")
    elif near:
        print(f"  nearest {near['engine']}")
        for name in differing.keys() - answer["inputs"].keys():
            print(f"    {name:<32} only in the nearest: {_shown(differing[name])}")
    else:
        print("  no engine is here that could be compared")
    print_estimates(answer["estimates"])


def _shown(value: object) -> str:
    return "none" if value is None else str(value)


def _explain_upgrade(store: Store, platform: Mapping[str, str], *, as_json: bool) -> int:
    """What of the store would still be found on a platform with these values."""
    answers: list[dict[str, Any]] = []
    keys = [(entry, entry.key) for entry in store.entries() if entry.key is not None]
    for name in platform:
        if keys and not any(f"platform.{name}" in key.inputs for _, key in keys):
            raise UsageError(f"--as-of {name}: no engine here depends on such a value")
    for entry, key in keys:
        known = {name: value for name, value in platform.items() if f"platform.{name}" in key.inputs}
        differences = key.as_of(known).differences(key)
        answers.append(
            {
                "engine": entry.name,
                "stale": bool(differences),
                "differences": [_difference(difference) for difference in differences],
            }
        )
    if as_json:
        print_json(answers)
        return 0
    for answer in answers:
        reasons = "; ".join(
            f"{entry['input']} would be {_shown(entry['wanted'])}, is {_shown(entry['there'])}"
            for entry in answer["differences"]
        )
        print(f"{'STALE ' if answer['stale'] else 'usable'}  {answer['engine']}  {reasons}".rstrip())
    return 0


def _platform(texts: list[str]) -> dict[str, str]:
    platform = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals or not value:
            raise UsageError(f"--as-of {text!r} — give NAME=VALUE, such as lowering_version=2")
        platform[name] = value
    return platform
