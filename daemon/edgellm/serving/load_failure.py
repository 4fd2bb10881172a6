"""Why a model did not load: with everything for the log, and in plain words for clients, who learn of no path."""

from __future__ import annotations

from edgellm.errors import (
    BuildFailedError,
    BundleDamagedError,
    CacheError,
    CheckpointError,
    ConfigError,
    EdgeLLMError,
    EngineError,
    EngineMissingError,
    GenerationError,
    HubAccessError,
    HubUnavailableError,
    InsufficientMemoryError,
    ModelSourceError,
    RuntimeUnavailableError,
    UnsupportedModelError,
    UnusableOutputError,
    WorkerFailedError,
)
from edgellm.serving.error_frames import error_frames

UNAVAILABLE = "The model is not available."

# The first that fits holds.
_CAUSES: tuple[tuple[type[EdgeLLMError], str], ...] = (
    (CheckpointError, "its files are damaged"),
    (HubAccessError, "the hub that it comes from does not let this server read it"),
    (ModelSourceError, "its files are not there"),
    (HubUnavailableError, "the hub that it comes from cannot be reached"),
    (UnsupportedModelError, "this server's runtime cannot run it"),
    (CacheError, "the server's cache cannot take it"),
    (EngineMissingError, "its engine is not built"),
    (BundleDamagedError, "its engine is damaged"),
    (BuildFailedError, "its engine could not be built"),
    (InsufficientMemoryError, "there is not enough memory for it"),
    (EngineError, "its engine cannot be used here"),
    (RuntimeUnavailableError, "its runtime cannot be used here"),
    (ConfigError, "the server's configuration of it is wrong"),
    (WorkerFailedError, "its worker failed"),
    (GenerationError, "it cannot generate"),
)


def cause_for_clients(error: BaseException) -> str:
    """A sentence or two without paths, native text or anything else of the host."""
    cause = next((cause for kind, cause in _CAUSES if isinstance(error, kind)), None)
    return f"{UNAVAILABLE} It could not be loaded: {cause}." if cause else UNAVAILABLE


def damaged_weights(error: UnusableOutputError, name: str, source: str) -> CheckpointError:
    """What it means that a model's first token could not be computed."""
    origin = f" ({source})" if source and source != name else ""
    return CheckpointError(
        f"model {name}{origin}: {error}, so its weights seem damaged — fetch the file again; "
        "if the file is sound, edgellm engine verify tells whether the engine built from it is"
    )


def cause_for_log(error: BaseException) -> str:
    return str(error) if isinstance(error, EdgeLLMError) else error_frames(error)


def load_error_of(model: str, failure: BaseException) -> EdgeLLMError:
    """It names the model, whatever it was about."""
    if isinstance(failure, EdgeLLMError):
        said = str(failure)
        if said.startswith(f"model {model}"):
            return failure
        return type(failure)(f"model {model} did not load: {said.removeprefix(f'{model}: ')}")
    return WorkerFailedError(f"model {model} did not load ({type(failure).__name__}) — run with --debug to see where")
