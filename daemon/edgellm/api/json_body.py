"""JSON bodies: read within size and time, parsed within depth, never with NaN or lone surrogates."""

from __future__ import annotations

import asyncio

from pydantic_core import from_json
from starlette.types import Receive

from edgellm.api import limits
from edgellm.api.error_mapping import HttpError
from edgellm.errors import RequestError, ServerBusyError


class ClientGoneError(Exception):
    """The client closed the connection before its request was complete."""


class BodyReader:
    """Reads bodies; what it holds of all of them at a time is bounded, whatever the number of connections."""

    def __init__(self, body_bytes_max: int, bodies_bytes_max: int, deadline_seconds: float) -> None:
        self.change(body_bytes_max, bodies_bytes_max, deadline_seconds)
        self._held_bytes = 0

    def change(self, body_bytes_max: int, bodies_bytes_max: int, deadline_seconds: float) -> None:
        """Other limits, for the bodies that come from now on."""
        self._body_bytes_max = body_bytes_max
        self._bodies_bytes_max = bodies_bytes_max
        self._deadline_seconds = deadline_seconds

    async def read(self, receive: Receive) -> bytes:
        """The whole body. Raises HttpError (413, 408), ServerBusyError or ClientGoneError."""
        pieces: list[bytes] = []
        size_bytes = 0
        try:
            async with asyncio.timeout(self._deadline_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGoneError
                    piece = message.get("body", b"")
                    size_bytes += len(piece)
                    self._held_bytes += len(piece)
                    if size_bytes > self._body_bytes_max:
                        raise too_large(self._body_bytes_max)
                    if self._held_bytes > self._bodies_bytes_max:
                        raise ServerBusyError("Too many large requests are being sent at the same time.")
                    pieces.append(piece)
                    if not message.get("more_body", False):
                        return b"".join(pieces)
        except TimeoutError:
            raise HttpError(
                408, "The request body did not arrive in time.", "request_timeout", [(b"connection", b"close")]
            ) from None
        finally:
            self._held_bytes -= size_bytes


def too_large(size_bytes_max: int) -> HttpError:
    return HttpError(
        413,
        f"The request body is larger than {size_bytes_max} bytes.",
        "request_too_large",
        [(b"connection", b"close")],
    )


def parse_json_object(body: bytes | bytearray) -> dict[str, object]:
    """Raises RequestError. The parser bounds its depth itself: no input reaches the interpreter's recursion limit."""
    if body.count(b",") + body.count(b"[") + body.count(b"{") > limits.JSON_SEPARATORS_MAX:
        raise RequestError("The request body holds more values than any request needs.")
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise RequestError(_explained(str(error))) from None
    if not isinstance(value, dict):
        raise RequestError("The request body must be a JSON object.")
    return value


def _explained(reason: str) -> str:
    """Fixed texts and a position: the parser's own words are not passed on."""
    position = reason.rpartition(" at ")[2] if " at line " in reason else ""
    where = f" ({position})" if position else ""
    if "recursion limit" in reason:
        return f"The request body nests too deeply{where}."
    if "number out of range" in reason:  # whole numbers of more digits than the parser, and Python, take
        return f"The request body holds a number with too many digits{where}."
    if "surrogate" in reason or "hex escape" in reason or "unicode" in reason:
        return f"The request body holds text that is not valid Unicode{where}."
    return f"The request body is not valid JSON{where}."
