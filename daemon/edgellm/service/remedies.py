"""What to do where a start ends: each error's own text says it after a dash, or what helps against all of its kind."""

from __future__ import annotations

from typing import TypeVar

from edgellm import errors

Error = TypeVar("Error", bound=errors.EdgeLLMError)
SEPARATOR = " — "

# The first that fits holds.
_OF_A_KIND: tuple[tuple[type[errors.EdgeLLMError], str], ...] = (
    (errors.UsageError, "edgellm VERB --help says what is taken"),
    (errors.ConfigError, "correct it, and try it with: edgellm config check"),
    (errors.ModelSourceError, "give a file or folder that is there, a name of edgellm models list, or a hub's id"),
    (errors.CheckpointError, "the model is damaged or incomplete: get it anew, or give another model"),
    (errors.UnsupportedModelError, "give a model of another family or format, such as one of edgellm models list"),
    (errors.BundleMismatchError, "build the engine on this machine: edgellm prewarm"),
    (
        errors.BundleDamagedError,
        "remove the engine (edgellm engine list, edgellm engine clear NAME), then build it",
    ),
    (errors.BuildFailedError, "the lines before this one say more; build it by hand with: edgellm engine build"),
    (errors.EngineUntrustedError, "get one that a key of engines.trusted_keys_file has signed"),
    (errors.CacheError, "check the disk, or set EDGELLM_CACHE_DIR to a folder on another"),
    (errors.RuntimeUnavailableError, "edgellm doctor says what is missing"),
    (errors.PortUnavailableError, "choose another with server.host and server.port"),
    (errors.WorkerFailedError, "the lines before this one say more; set log.level = 'debug' to see where"),
)


def with_remedy(error: Error, remedy: str = "") -> Error:
    """The error itself, whose text ends with what to do: what it says itself, else ``remedy`` or its kind's."""
    text = str(error)
    remedy = remedy or next((remedy for kind, remedy in _OF_A_KIND if isinstance(error, kind)), "")
    if remedy and SEPARATOR not in text:
        error.args = (f"{text}{SEPARATOR}{remedy}",)
    return error
