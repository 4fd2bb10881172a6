"""POST /pairing/hello and /pairing/claim: what a client without a key may ask of a board whose code it was told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal, Protocol

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from edgellm.api.json_body import BodyReader, parse_json_object
from edgellm.api.wire.fields import ParseContext, WireModel
from edgellm.api.wire.validation import validated
from edgellm.errors import PairingClosedError

BODY_BYTES_MAX: Final = 4_096
BODIES_BYTES_MAX: Final = 64 * 2**10
BODY_DEADLINE_SECONDS: Final = 10.0
PROTOCOL: Final = 1
HELLO_PATH: Final = "/pairing/hello"
CLAIM_PATH: Final = "/pairing/claim"

Hex256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
ClientName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,47}$")]


class PairingHello(WireModel):
    protocol: Literal[1]
    nonce: Hex256


class PairingClaim(WireModel):
    protocol: Literal[1]
    nonce: Hex256
    name: ClientName
    key_sha256: Hex256
    proof: Hex256


@dataclass(frozen=True, slots=True)
class Greeting:
    """``authority`` is its certificate in PEM; ``proof`` says that whoever sends it knows the code for it."""

    authority: str
    proof: bytes


class PairingDesk(Protocol):
    """Raises PairingClosedError, PairingRefusedError or RateLimitedError."""

    def hello(self, address: str, nonce: bytes) -> Greeting: ...

    async def claim(self, address: str, nonce: bytes, name: str, key_sha256: bytes, proof: bytes) -> str:
        """The name that the client has from now on."""
        ...


class ClosedDesk:
    """Of a server that has no authority to hand out, or no keys."""

    def hello(self, address: str, nonce: bytes) -> Greeting:
        raise PairingClosedError

    async def claim(self, address: str, nonce: bytes, name: str, key_sha256: bytes, proof: bytes) -> str:
        raise PairingClosedError


class PairingRoutes:
    """Bodies are small: everybody may send them."""

    def __init__(self, desk: PairingDesk) -> None:
        self._desk = desk
        self._bodies = BodyReader(BODY_BYTES_MAX, BODIES_BYTES_MAX, BODY_DEADLINE_SECONDS)

    async def hello(self, request: Request) -> Response:
        body = validated(PairingHello, parse_json_object(await self._bodies.read(request.receive)), ParseContext())
        greeting = self._desk.hello(_address(request), bytes.fromhex(body.nonce))
        return JSONResponse({"protocol": PROTOCOL, "authority": greeting.authority, "proof": greeting.proof.hex()})

    async def claim(self, request: Request) -> Response:
        body = validated(PairingClaim, parse_json_object(await self._bodies.read(request.receive)), ParseContext())
        nonce, key_sha256, proof = (bytes.fromhex(text) for text in (body.nonce, body.key_sha256, body.proof))
        name = await self._desk.claim(_address(request), nonce, body.name, key_sha256, proof)
        return JSONResponse({"protocol": PROTOCOL, "name": name})


def _address(request: Request) -> str:
    return request.client.host if request.client else ""
