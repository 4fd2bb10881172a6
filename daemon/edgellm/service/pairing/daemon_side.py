"""Pairing in the daemon: whether it can be, whose keys hold, and what whoever runs the machine may ask."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from edgellm.api.keys import ApiKey
from edgellm.config import Settings
from edgellm.errors import ConfigError
from edgellm.service.admin_messages import (
    ClosePairing,
    Done,
    ListPaired,
    OpenPairing,
    PairingState,
    Request,
    RevokePaired,
    ShowPairing,
)
from edgellm.service.admin_server import Handler
from edgellm.service.api_keys import read_keys, read_keys_left
from edgellm.service.credentials import FOLDER, UNIT_FOLDER
from edgellm.service.pairing.desk import CodeState, Desk, paired_keys_file, read_paired_keys
from edgellm.service.tls import authority_beside

LIFETIME_SECONDS_MIN: Final = 60.0
LIFETIME_SECONDS_MAX: Final = 24 * 3_600.0


def all_keys(settings: Settings) -> tuple[ApiKey, ...]:
    """Those of the operator's file and of paired clients. Raises ConfigError."""
    path = settings.server.api_keys_file
    if path is None:
        return ()
    keys = read_keys_left(path)
    paired = read_paired_keys(settings.pairing_folder)
    both = {key.name for key in keys} & {key.name for key in paired}
    if both:
        raise ConfigError(
            f"{path}: {min(both)} is the name of a paired client too — give the key another name, or run: "
            f"edgellm paired revoke {min(both)}"
        )
    return (*keys, *paired)


def keys_at_start(settings: Settings) -> tuple[ApiKey, ...]:
    """As ``all_keys``; a server that begins must have a key where it has a file for them."""
    if settings.server.api_keys_file is not None:
        read_keys(settings.server.api_keys_file)
    return all_keys(settings)


def key_file_paths(settings: Settings) -> Sequence[Path]:
    own = settings.server.api_keys_file
    return [] if own is None else [own, paired_keys_file(settings.pairing_folder)]


def why_closed(settings: Settings, *, elsewhere: bool = False) -> str:
    """What keeps clients from pairing with a server of these settings; "" where they can. ``elsewhere`` is another
    machine, whose files are not here: an authority may lie beside its certificate, but not among credentials."""
    if not settings.pairing.enabled:
        return "pairing.enabled is false — set it to true and restart the server"
    if settings.server.api_keys_file is None:
        return "clients need no key here — set server.api_keys_file and restart the server"
    if not (_may_have_authority(settings) if elsewhere else authority_file(settings)):
        return (
            "the server has no certificate of a private authority — run edgellm tls init, set "
            "server.tls_certificate_file, server.tls_key_file and server.tls_authority_file, and restart the server"
        )
    return ""


def pairing_desk(settings: Settings, on_change: Callable[[], object]) -> Desk | None:
    """None where pairing cannot be. Raises ConfigError for damaged files."""
    authority, keys_file = authority_file(settings), settings.server.api_keys_file
    if why_closed(settings) or authority is None or keys_file is None:
        return None

    def taken_names() -> list[str]:
        return [key.name for key in read_keys_left(keys_file)]

    return Desk(settings.pairing_folder, authority, taken_names, on_change)


def _may_have_authority(settings: Settings) -> bool:
    certificate = settings.server.tls_certificate_file
    if certificate is None:
        return False
    among_credentials = any(certificate.is_relative_to(folder) for folder in (FOLDER, UNIT_FOLDER))
    return settings.server.tls_authority_file is not None or not among_credentials


def authority_file(settings: Settings) -> Path | None:
    """Of a server with HTTPS: the authority that clients are given."""
    certificate = settings.server.tls_certificate_file
    if certificate is None:
        return None
    return settings.server.tls_authority_file or authority_beside(certificate)


def pairing_verbs(desk: Desk | None, why_not: str) -> Mapping[type[Request], Handler]:
    """For the admin socket. Without a desk each of them says why there is none."""

    def at_desk() -> Desk:
        if desk is None:
            raise ConfigError(f"no client can pair: {why_not}")
        return desk

    async def open_code(request: OpenPairing) -> Done:
        if not LIFETIME_SECONDS_MIN <= request.lifetime_seconds <= LIFETIME_SECONDS_MAX:
            raise ConfigError(
                f"a pairing code is open for {LIFETIME_SECONDS_MIN:g} to {LIFETIME_SECONDS_MAX:g} seconds"
            )
        return Done([], pairing=_shown(await at_desk().open(request.lifetime_seconds)))

    async def close_code(request: ClosePairing) -> Done:
        was_open = await at_desk().close()
        return Done(["the pairing code is closed" if was_open else "no pairing code was open"])

    async def show(request: ShowPairing) -> Done:
        state = at_desk().state()
        return Done([], pairing=None if state is None else _shown(state))

    async def clients(request: ListPaired) -> Done:
        return Done([f"{key.name:<20} sha256:{key.sha256.hex()[:12]}…" for key in at_desk().clients()])

    async def revoke(request: RevokePaired) -> Done:
        await at_desk().revoke(request.client)
        return Done([f"the key of {request.client} is revoked"])

    return {
        OpenPairing: open_code,
        ClosePairing: close_code,
        ShowPairing: show,
        ListPaired: clients,
        RevokePaired: revoke,
    }


def _shown(state: CodeState) -> PairingState:
    code = None if state.code is None else str(state.code)
    return PairingState(state.id, state.left_seconds, state.is_used, state.fingerprint, code)
