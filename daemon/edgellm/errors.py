"""Every error that edgellm raises on purpose, in one tree.

    EdgeLLMError
    ├── ConfigError                  a setting, file, flag or environment variable is wrong
    │   └── UsageError               the command line itself is wrong
    ├── ModelError
    │   ├── ModelSourceError         the model is not there, or is no model
    │   │   └── HubAccessError       a hub does not let this machine, or this token, read it
    │   ├── HubUnavailableError      a hub cannot be reached, or cannot answer now
    │   ├── CheckpointError          a model file is damaged or inconsistent
    │   └── UnsupportedModelError    a sound model that this runtime cannot run
    ├── CacheError                   the cache directory cannot take what must be kept
    ├── EngineError                  an engine bundle, or the build of one
    │   ├── EngineMissingError       not built, and building is not allowed here
    │   ├── BundleDamagedError       a bundle's files are not what its manifest says
    │   ├── ManifestVersionError     a bundle written by a newer edgellm
    │   ├── BundleMismatchError      a bundle for another platform, model or profile
    │   ├── EngineUntrustedError     an archive that nobody vouches for whom this machine trusts
    │   ├── BuildFailedError         a builder ended without a bundle
    │   └── InsufficientMemoryError  a build or load that would starve this machine
    ├── RuntimeUnavailableError      no usable runtime on this machine
    ├── PortUnavailableError         the address to serve on is taken
    ├── DaemonUnreachableError       no daemon answers on its admin socket
    ├── LoadUnfinishedError          a model was still loading when the wait for it ended, or was given up
    ├── AdminAccessError             the daemon does not take orders from this user
    ├── PairingError                 a client that has no key yet does not get one
    │   ├── PairingClosedError       no code is open: never opened, used, or its time is over
    │   ├── PairingRefusedError      the client does not know the code
    │   └── BoardUnverifiedError     what answers the client is not the board that the code is of
    ├── ForcedShutdownError          it ended, and had to cut requests short or kill workers for it
    ├── FlashError                   a board could not be flashed
    ├── FirstBootError               a step of a new board's first boot failed
    ├── AnnouncementError            the network cannot be told of the server
    ├── UpgradeError                 another release, and the one that serves
    │   ├── ReleaseSourceError       what is to be installed is not there, or is no release
    │   ├── ReleaseUntrustedError    nobody vouches for it whom this machine trusts, or it was changed
    │   ├── VersionFloorError        it is older than the oldest version that this machine may run
    │   ├── HostSpaceError           there is no room for it
    │   ├── UpgradeRunningError      another upgrade runs, or was interrupted
    │   ├── UpgradeReturnedError     it did not serve, and the one of before serves again
    │   └── ServiceDownError         no release serves
    ├── RequestError                 one request is wrong; it names the field
    │   ├── UnknownParameterError
    │   ├── UnsupportedParameterError
    │   ├── UnsupportedModalityError
    │   ├── MediaAccessError         it names a place that requests may not have media fetched from
    │   ├── ContextLengthError
    │   ├── InvalidSchemaError
    │   ├── GuideLimitError      a sound guide met a limit of the grammar engine while it was followed
    │   ├── ModelNotFoundError
    │   ├── StoredResponseNotFoundError
    │   ├── RecordNotFoundError
    │   └── DuplicateRequestIdError
    ├── AdmissionError               the request is fine; the server cannot take it now
    │   ├── ServerBusyError
    │   ├── RateLimitedError
    │   ├── ShuttingDownError
    │   ├── ModelLoadingError
    │   └── ModelUnavailableError
    ├── GenerationError              it was taken and did not end well
    │   ├── UnusableOutputError      the model computed no numbers: its weights seem damaged
    │   ├── WorkerFailedError
    │   ├── RequestTimeoutError
    │   ├── KeyRevokedError
    │   └── RequestCancelledError
    └── ClosedError                  used after close()

Texts are for people: they name the file or field and say what to do. They never hold prompt text, and
those of RequestError, AdmissionError and GenerationError never hold paths or native text, since they
travel to clients. ``code`` is the stable machine-readable name.
"""

from __future__ import annotations

from typing import ClassVar


class EdgeLLMError(Exception):
    """Base of all; ``exit_code`` is what a process ends with when nobody handled it (sysexits)."""

    code: ClassVar[str] = "internal_error"
    exit_code: ClassVar[int] = 70


class ConfigError(EdgeLLMError):
    code = "invalid_config"
    exit_code = 78


class UsageError(ConfigError):
    """The command line itself is wrong."""

    code = "usage"
    exit_code = 64


class ModelError(EdgeLLMError):
    code = "model_error"
    exit_code = 65


class ModelSourceError(ModelError):
    code = "model_source"
    exit_code = 66


class HubAccessError(ModelSourceError):
    code = "hub_access_denied"
    exit_code = 77


class HubUnavailableError(ModelError):
    code = "hub_unavailable"
    exit_code = 75


class CheckpointError(ModelError):
    code = "checkpoint_damaged"


class UnsupportedModelError(ModelError):
    code = "model_unsupported"


class CacheError(EdgeLLMError):
    code = "cache_unusable"
    exit_code = 73


class EngineError(EdgeLLMError):
    code = "engine_error"
    exit_code = 65


class EngineMissingError(EngineError):
    code = "engine_missing"
    exit_code = 72


class BundleDamagedError(EngineError):
    code = "bundle_damaged"


class ManifestVersionError(EngineError):
    code = "manifest_version"


class BundleMismatchError(EngineError):
    code = "bundle_mismatch"


class EngineUntrustedError(EngineError):
    code = "engine_untrusted"
    exit_code = 77


class BuildFailedError(EngineError):
    code = "build_failed"
    exit_code = 70


class InsufficientMemoryError(EngineError):
    code = "insufficient_memory"
    exit_code = 71


class RuntimeUnavailableError(EdgeLLMError):
    code = "runtime_unavailable"
    exit_code = 68  # of its own: a service manager must not start again what no restart mends


class PortUnavailableError(EdgeLLMError):
    code = "port_unavailable"
    exit_code = 69


class DaemonUnreachableError(EdgeLLMError):
    code = "daemon_unreachable"
    exit_code = 69


class LoadUnfinishedError(EdgeLLMError):
    code = "load_unfinished"
    exit_code = 75


class AdminAccessError(EdgeLLMError):
    code = "not_allowed"
    exit_code = 77


class PairingError(EdgeLLMError):
    code = "pairing_failed"
    exit_code = 77


class PairingClosedError(PairingError):
    code = "pairing_closed"

    def __init__(self, message: str = "No pairing code is open on this board; edgellm pair-code opens one.") -> None:
        super().__init__(message)


class PairingRefusedError(PairingError):
    code = "pairing_refused"

    def __init__(self, message: str = "The proof does not fit the open pairing code.") -> None:
        super().__init__(message)


class BoardUnverifiedError(PairingError):
    code = "board_unverified"
    exit_code = 76


class ForcedShutdownError(EdgeLLMError):
    code = "forced_shutdown"
    exit_code = 67  # of its own: the end was ordered, and not clean


class FlashError(EdgeLLMError):
    code = "flash_failed"
    exit_code = 70


class FirstBootError(EdgeLLMError):
    code = "first_boot_failed"
    exit_code = 75  # the next boot goes on from there


class AnnouncementError(EdgeLLMError):
    code = "announcement_failed"
    exit_code = 73


class UpgradeError(EdgeLLMError):
    code = "upgrade_failed"


class ReleaseSourceError(UpgradeError):
    code = "release_source"
    exit_code = 66


class ReleaseUntrustedError(UpgradeError):
    code = "release_untrusted"
    exit_code = 77


class VersionFloorError(UpgradeError):
    code = "version_floor"
    exit_code = 77


class HostSpaceError(UpgradeError):
    code = "no_space"
    exit_code = 73


class UpgradeRunningError(UpgradeError):
    code = "upgrade_running"
    exit_code = 75


class UpgradeReturnedError(UpgradeError):
    code = "upgrade_returned"
    exit_code = 76  # of its own: the service is as it was before


class ServiceDownError(UpgradeError):
    code = "service_down"
    exit_code = 69


class RequestError(EdgeLLMError, ValueError):
    """``param`` is a JSON path into the request such as ``messages[2].content[0]``, or None."""

    code = "invalid_value"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class UnknownParameterError(RequestError):
    code = "unknown_parameter"


class UnsupportedParameterError(RequestError):
    code = "unsupported_parameter"


class UnsupportedModalityError(RequestError):
    code = "unsupported_modality"


class MediaAccessError(RequestError):
    """A place that requests may not have media fetched from."""

    code = "media_not_allowed"


class ContextLengthError(RequestError):
    code = "context_length_exceeded"


class InvalidSchemaError(RequestError):
    code = "invalid_schema"


class GuideLimitError(RequestError):
    code = "guide_limit_exceeded"


class ModelNotFoundError(RequestError):
    code = "model_not_found"


class StoredResponseNotFoundError(RequestError):
    code = "not_found"


class RecordNotFoundError(RequestError):
    code = "not_found"


class DuplicateRequestIdError(RequestError):
    code = "duplicate_request_id"


class AdmissionError(EdgeLLMError):
    """``retry_after_seconds`` is computed from what is running; None where no wait helps."""

    code = "server_busy"

    def __init__(self, message: str, *, retry_after_seconds: float | None = 1.0) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_seconds = retry_after_seconds


class ServerBusyError(AdmissionError):
    code = "server_busy"


class RateLimitedError(AdmissionError):
    """One client asks for more than it may; others are served."""

    code = "rate_limited"


class ShuttingDownError(AdmissionError):
    code = "shutting_down"


class ModelLoadingError(AdmissionError):
    code = "model_loading"


class ModelUnavailableError(AdmissionError):
    code = "model_unavailable"


class GenerationError(EdgeLLMError):
    """``reason`` is what is known of the cause; it goes into the daemon's log and never to clients."""

    code = "internal_error"

    def __init__(self, message: str, *, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class UnusableOutputError(GenerationError):
    code = "unusable_output"
    exit_code = 65


class WorkerFailedError(GenerationError):
    code = "worker_failed"


class RequestTimeoutError(GenerationError):
    code = "request_timeout"


class KeyRevokedError(GenerationError):
    """The key that a request came with was taken back while it waited or ran."""

    code = "invalid_api_key"


class RequestCancelledError(GenerationError):
    code = "request_cancelled"


class ClosedError(EdgeLLMError, RuntimeError):
    code = "closed"
