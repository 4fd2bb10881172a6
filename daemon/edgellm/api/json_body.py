"""JSON bodies: read within size and time, parsed within depth, never with NaN or lone surrogates."""

from __future__ import annotations

import asyncio

from pydantic_core import from_json
from starlette.types import Receive

from edgellm.api.error_mapping import HttpError
from edgellm.errors import RequestError


class ClientGoneError(Exception):
    """The client closed the connection before its request was complete."""


async def read_body(receive: Receive, size_bytes_max: int, deadline_seconds: float) -> bytes:
    """The whole body. Raises HttpError (413, 408) or ClientGoneError."""
    pieces: list[bytes] = []
    size_bytes = 0
    try:
        async with asyncio.timeout(deadline_seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGoneError
                piece = message.get("body", b"")
                size_bytes += len(piece)
                if size_bytes > size_bytes_max:
                    raise too_large(size_bytes_max)
                pieces.append(piece)
                if not message.get("more_body", False):
                    return b"".join(pieces)
    except TimeoutError:
        raise HttpError(
            408, "The request body did not arrive in time.", "request_timeout", [(b"connection", b"close")]
        ) from None


def too_large(size_bytes_max: int) -> HttpError:
    return HttpError(
        413,
        f"The request body is larger than {size_bytes_max} bytes.",
        "request_too_large",
        [(b"connection", b"close")],
    )


def parse_json_object(body: bytes) -> dict[str, object]:
    """A parser that bounds its depth by itself, so that no input reaches the interpreter's recursion limit."""
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
    if "surrogate" in reason or "hex escape" in reason or "unicode" in reason:
        return f"The request body holds text that is not valid Unicode{where}."
    return f"The request body is not valid JSON{where}."
