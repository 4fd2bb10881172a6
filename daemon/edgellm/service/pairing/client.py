"""The client's side of pairing: verifies the board, then gives it the hash of a key of its own making."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import secrets
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from edgellm.api.pairing import CLAIM_PATH, HELLO_PATH, PROTOCOL
from edgellm.errors import (
    BoardUnverifiedError,
    ConfigError,
    DaemonUnreachableError,
    PairingClosedError,
    PairingError,
    PairingRefusedError,
    RateLimitedError,
)
from edgellm.service.api_keys import make_key
from edgellm.service.pairing.boards import Board
from edgellm.service.pairing.code import NONCE_BYTES, PairingCode
from edgellm.service.tls import time_problem

ANSWER_SECONDS_MAX: Final = 20.0
ANSWER_BYTES_MAX: Final = 65_536
CLAIM_ATTEMPTS_MAX: Final = 4
CLAIM_PAUSE_SECONDS: Final = 2.0
_WRONG_NAME_CODES: Final = (62, 64)  # of OpenSSL: the certificate is not for this DNS name, or address


@dataclass(frozen=True, slots=True)
class BoardAddress:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def pair(
    address: BoardAddress,
    code: PairingCode,
    name: str,
    board: Board,
    *,
    pause: Callable[[float], None] = time.sleep,
) -> str:
    """The client's name with the board; its key and the authority are in ``board`` then.

    Raises BoardUnverifiedError before anything was sent that says something about the code or the key, and ConfigError
    where the clock is wrong.
    """
    nonce = secrets.token_bytes(NONCE_BYTES)
    authority = _verified_authority(address, code, nonce)
    key = board.unfinished_key() or make_key()
    board.begin(key)
    verifier = code.verifier(ssl.PEM_cert_to_DER_cert(authority))
    key_sha256 = hashlib.sha256(key.encode()).digest()
    claim = {
        "protocol": PROTOCOL,
        "nonce": nonce.hex(),
        "name": name,
        "key_sha256": key_sha256.hex(),
        "proof": verifier.proof_of_client(nonce, key_sha256, name).hex(),
    }
    for attempt in range(CLAIM_ATTEMPTS_MAX):
        try:
            answer = _ask(address, CLAIM_PATH, claim, _trusting(authority))
            break
        except DaemonUnreachableError as error:
            # The board may have written the key down and lost the answer: the same key may be claimed again.
            if attempt == CLAIM_ATTEMPTS_MAX - 1:
                raise DaemonUnreachableError(f"{error} — run the same command again: the code holds for it") from None
            pause(CLAIM_PAUSE_SECONDS)
        except PairingClosedError:
            board.forget_unfinished()  # no board will ever hold it
            raise PairingClosedError(
                f"the pairing code was used by another client, or its time is over — make a new one on {address.host}"
            ) from None
    board.finish(key, authority)
    return str(answer.get("name", name))


def _verified_authority(address: BoardAddress, code: PairingCode, nonce: bytes) -> str:
    """The certificate of the board's authority, which only somebody who knows the code can have proved."""
    unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unverified.check_hostname = False
    unverified.verify_mode = ssl.CERT_NONE  # what comes is public, and verified by the proof
    greeting = _ask(address, HELLO_PATH, {"protocol": PROTOCOL, "nonce": nonce.hex()}, unverified)
    try:
        authority, proof = str(greeting["authority"]), bytes.fromhex(greeting["proof"])
        verifier = code.verifier(ssl.PEM_cert_to_DER_cert(authority))
    except (KeyError, ValueError, TypeError):
        raise BoardUnverifiedError(
            f"{address} does not answer as a board of edgellm — nothing was sent to it"
        ) from None
    if not hmac.compare_digest(verifier.proof_of_board(nonce), proof):
        raise BoardUnverifiedError(
            f"{address} does not know this code: it is another board's or an older one, or somebody sits between you "
            "and the board — nothing was sent to it"
        )
    return authority


def _trusting(authority: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(cadata=authority)
    return context


def _ask(address: BoardAddress, path: str, body: Mapping[str, object], context: ssl.SSLContext) -> dict[str, Any]:
    connection = http.client.HTTPSConnection(address.host, address.port, timeout=ANSWER_SECONDS_MAX, context=context)
    try:
        connection.request("POST", path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        response = connection.getresponse()
        status, data = response.status, response.read(ANSWER_BYTES_MAX)
    except ssl.SSLCertVerificationError as error:
        if problem := time_problem(error):
            raise ConfigError(f"the certificate of {address} {problem}; nothing was sent to it") from None
        if error.verify_code in _WRONG_NAME_CODES:
            raise BoardUnverifiedError(
                f"the board's certificate is not for the name {address.host} — pair by a name of it, such as "
                f"edgellm-XXXX.local, or on the board: edgellm tls init --name {address.host}"
            ) from None
        raise BoardUnverifiedError(
            f"{address} is not the board that proved the code ({error.verify_message}): somebody sits between you and "
            "the board — nothing was sent to it"
        ) from None
    except ssl.SSLError as error:
        raise DaemonUnreachableError(f"what answers at {address} does not speak HTTPS ({error.reason})") from None
    except socket.gaierror:
        raise DaemonUnreachableError(
            f"nothing on this network has the name {address.host} — give the board's address, or let this machine look "
            "up .local names (libnss-mdns)"
        ) from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise DaemonUnreachableError(
            f"no board answers at {address} ({reason}) — is it switched on and ready, on the same network, and is this "
            "its port?"
        ) from None
    finally:
        connection.close()
    try:
        answer = json.loads(data)
        if status == 200:
            return dict(answer)
        problem = answer["error"]
        code, message = str(problem["code"]), str(problem["message"])
    except (ValueError, KeyError, TypeError):
        raise BoardUnverifiedError(f"{address} does not answer as a board of edgellm (HTTP {status})") from None
    raise _error_of(status, code, message, response.getheader("Retry-After"))


def _error_of(status: int, code: str, message: str, retry_after: str | None) -> Exception:
    shown = "".join(char for char in message if char.isprintable())[:300]
    if code == PairingClosedError.code:
        return PairingClosedError(shown)
    if code == PairingRefusedError.code:
        return PairingRefusedError(shown)
    if code == RateLimitedError.code and retry_after and retry_after.isdecimal():
        return PairingError(f"{shown} Try again in {retry_after} s.")
    return PairingError(f"the board refused with HTTP {status}: {shown}")
