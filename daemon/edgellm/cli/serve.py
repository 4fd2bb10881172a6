"""``edgellm serve``: HTTP in the foreground until it is interrupted."""

from __future__ import annotations

import argparse
import sys
from contextlib import closing

from edgellm.cli.arguments import (
    MODEL_OPTIONS,
    SERVER_OPTIONS,
    add_config_option,
    add_setting_options,
    load_from_arguments,
)
from edgellm.errors import EdgeLLMError, UsageError


def configure(parser: argparse.ArgumentParser) -> None:
    from edgellm.config import ModelSettings, Settings

    parser.add_argument(
        "model_argument",
        metavar="MODEL",
        nargs="*",
        help="SOURCE or NAME=SOURCE: a name of edgellm models list, a Hugging Face id (ORG/NAME, ORG/NAME@REVISION, "
        "ORG/NAME:GGUF), a GGUF file or a safetensors directory "
        "(default: the models of the configuration file, else smollm2-135m-instruct)",
    )
    parser.add_argument("--model", metavar="NAME=SOURCE", action="append", help="the same, as an option; repeatable")
    add_config_option(parser)
    add_setting_options(parser.add_argument_group("server"), SERVER_OPTIONS, Settings)
    add_setting_options(parser.add_argument_group("every model served"), MODEL_OPTIONS, ModelSettings)


def run(namespace: argparse.Namespace) -> int:
    if namespace.model_argument and namespace.model:
        raise UsageError("give models as arguments or with --model, not both")
    models, spelling = (namespace.model, "--model") if namespace.model else (namespace.model_argument, "MODEL")
    try:
        loaded = load_from_arguments(namespace, models, spelling)
    except EdgeLLMError as error:
        _tell_supervisor(error)
        raise
    if loaded.unknown_variables:
        names = ", ".join(loaded.unknown_variables)
        sys.stderr.write(f"edgellm: warning: no setting is called {names} — it has no effect\n")
    from edgellm.service.start import start

    return start(loaded.settings, lambda: load_from_arguments(namespace, models, spelling).settings, loaded.file)


def _tell_supervisor(error: EdgeLLMError) -> None:
    """What ends the start before the server is there to say so."""
    from edgellm.service.notify import Supervisor
    from edgellm.service.remedies import with_remedy

    with closing(Supervisor()) as supervisor:
        supervisor.failed(with_remedy(error))
