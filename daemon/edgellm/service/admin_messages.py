"""What is said over the admin socket: one JSON object a line, a request and its answer, then the end."""

from __future__ import annotations

import msgspec

LINE_BYTES_MAX = 65_536


class Reload(
    msgspec.Struct, tag="reload", tag_field="verb", frozen=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Take the configuration on anew.

    ``config`` is the file that the daemon is taken to have; another daemon refuses. ``wait_seconds`` is how long the
    answer may wait for the models that are loaded for it; None does not wait.
    """

    config: str | None = None
    wait_seconds: float | None = None


class HostPass(msgspec.Struct, tag="host_pass", tag_field="verb", frozen=True, forbid_unknown_fields=True):
    """Let the machine's administrator ask this daemon over HTTP for a while, as a client would."""


class Health(msgspec.Struct, tag="health", tag_field="verb", frozen=True, forbid_unknown_fields=True):
    """Say whether every required model answers; refused while one does not."""


class OpenPairing(msgspec.Struct, tag="open-pairing", tag_field="verb", frozen=True, forbid_unknown_fields=True):
    """Open a new pairing code, in the place of one that is open."""

    lifetime_seconds: float = 900.0


class ClosePairing(msgspec.Struct, tag="close-pairing", tag_field="verb", frozen=True, forbid_unknown_fields=True):
    """Close the pairing code that is open, if there is one."""


class ShowPairing(msgspec.Struct, tag="show-pairing", tag_field="verb", frozen=True, forbid_unknown_fields=True):
    """Whether a pairing code is open, and which; never the code itself."""


class ListPaired(msgspec.Struct, tag="list-paired", tag_field="verb", frozen=True, forbid_unknown_fields=True):
    """The clients that paired."""


class RevokePaired(msgspec.Struct, tag="revoke-paired", tag_field="verb", frozen=True, forbid_unknown_fields=True):
    """Take the key of a paired client back."""

    client: str


class PairingState(msgspec.Struct, frozen=True, omit_defaults=True):
    """``code`` is there once, in the answer to OpenPairing. ``fingerprint`` is that of the board's authority."""

    id: str
    left_seconds: float
    is_used: bool
    fingerprint: str
    code: str | None = None

    def __repr__(self) -> str:
        return f"PairingState({self.id})"


class Refused(msgspec.Struct, tag="refused", tag_field="answer", frozen=True):
    """``code`` is that of an error of our tree, and decides the command's exit code."""

    code: str
    message: str


class Done(msgspec.Struct, tag="done", tag_field="answer", frozen=True):
    """``lines`` say what came of it, for people. ``failures`` are what was waited for in vain.

    ``pid`` and ``config`` are the daemon's that answers; ``is_loading`` when models are being loaded still.
    """

    lines: list[str]
    pid: int = 0
    config: str | None = None
    failures: list[Refused] = []
    is_loading: bool = False
    pairing: PairingState | None = None


class HostPassIssued(msgspec.Struct, tag="host_pass_issued", tag_field="answer", frozen=True):
    """``key`` holds for ``lifetime_seconds``; ``certificate_sha256`` is of ``url``'s certificate, if any.

    ``address`` is what the server listens on: one of loopback is for this machine alone.
    """

    url: str
    key: str
    lifetime_seconds: float
    version: str
    address: str
    certificate_sha256: str | None = None


# A verb more is a struct more in this union, and a handler.
Request = Reload | HostPass | Health | OpenPairing | ClosePairing | ShowPairing | ListPaired | RevokePaired
Answer = Done | HostPassIssued | Refused
