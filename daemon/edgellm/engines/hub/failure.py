"""What a hub's refusal, or its silence, means to the operator: one sentence each, and what to do.

Nothing here quotes a header, a URL with a query or a token: a signed address is a credential too.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from edgellm.engines.hub.hub_id import HubId
from edgellm.errors import HubAccessError, HubUnavailableError, ModelError, ModelSourceError

HOW_TO_SIGN_IN = "set HF_TOKEN, or HF_TOKEN_PATH to a file that holds it (a service has it in hub-token)"
REFUSED_CREDENTIALS = "Invalid credentials in Authorization header"


def shown_endpoint(endpoint: str) -> str:
    """The address without a user name and password."""
    parts = urlsplit(endpoint)
    host = parts.hostname or ""
    return f"{parts.scheme}://{host}:{parts.port}" if parts.port else f"{parts.scheme}://{host}"


def status_failure(
    hub_id: HubId, endpoint: str, status: int, code: str, message: str, *, has_token: bool
) -> ModelError:
    """``code`` and ``message`` are the hub's ``X-Error-Code`` and ``X-Error-Message``, empty where it sent none."""
    hub, repository = shown_endpoint(endpoint), hub_id.repository
    if code == "RevisionNotFound":
        return ModelSourceError(
            f"{repository} has no revision {hub_id.revision!r} — give a branch, a tag or a commit after the @, or none "
            "for main"
        )
    if code == "EntryNotFound":
        return ModelSourceError(f"{hub_id}: {hub} lists a file that it does not have — try again, or another revision")
    if code == "GatedRepo":
        if has_token:
            return HubAccessError(
                f"{repository} is gated, and the account of this token may not read it ({status}) — ask for access at "
                f"{hub}/{repository}, then try again"
            )
        return HubAccessError(
            f"{repository} is gated ({status}) — accept its terms at {hub}/{repository}, then {HOW_TO_SIGN_IN} of that "
            "account"
        )
    if status == 401 and has_token and (message == REFUSED_CREDENTIALS or code != "RepoNotFound"):
        return HubAccessError(f"{hub} refuses the token (401): it is wrong, expired or revoked — {HOW_TO_SIGN_IN} anew")
    if status in (401, 404):
        see = "that this token may read" if has_token else "that may be read without a token"
        hint = "" if has_token else f", and {HOW_TO_SIGN_IN} where it is private"
        return ModelSourceError(
            f"{repository}: {hub} has no such repository {see} ({status}), nor is it a folder here — check the "
            f"spelling{hint}"
        )
    if status == 403:
        return HubAccessError(
            f"{repository}: {hub} does not let this {'token' if has_token else 'machine'} read it (403) — "
            + ("give the token the permission to read repositories" if has_token else HOW_TO_SIGN_IN)
        )
    if status >= 500:
        return HubUnavailableError(
            f"{hub} cannot answer now ({status}) — try again later; what was fetched so far is kept"
        )
    return HubUnavailableError(f"{hub} answers {status} for {hub_id} — check HF_ENDPOINT, proxies and the spelling")


def rate_limit_failure(endpoint: str, wait_seconds: int | None, *, has_token: bool) -> HubUnavailableError:
    when = "in some minutes" if wait_seconds is None else f"in {wait_seconds} seconds"
    raise_limit = "" if has_token else f"; with a token the limit is higher: {HOW_TO_SIGN_IN}"
    return HubUnavailableError(
        f"{shown_endpoint(endpoint)} asks to wait (429) — try again {when}; what was fetched so far is "
        f"kept{raise_limit}"
    )


def connection_failure(endpoint: str, reason: str) -> HubUnavailableError:
    hub = shown_endpoint(endpoint)
    if "CERTIFICATE" in reason.upper():
        return HubUnavailableError(
            f"the certificate of {hub} is not trusted here ({reason}) — set SSL_CERT_FILE to the certificates of your "
            "proxy, and check the clock"
        )
    return HubUnavailableError(
        f"cannot reach {hub} ({reason}) — check the network, HTTPS_PROXY and HF_ENDPOINT; without a network, give the "
        "path of a checkpoint folder or import an engine"
    )


def broken_failure(file_name: str, done_bytes: int, size_bytes: int, tries: int, reason: str) -> HubUnavailableError:
    return HubUnavailableError(
        f"the connection broke {tries} times while {file_name} was fetched ({reason}): {done_bytes / 1e6:.0f} of "
        f"{size_bytes / 1e6:.0f} MB are kept — try again, it goes on from there"
    )


def offline_failure(hub_id: HubId) -> HubUnavailableError:
    return HubUnavailableError(
        f"{hub_id} is not on this machine, and HF_HUB_OFFLINE forbids to fetch it — unset that, import an engine, or "
        "give the path of a checkpoint folder"
    )
