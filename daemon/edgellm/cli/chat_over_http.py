"""Talks to an OpenAI-compatible server with the standard library alone, streaming."""

from __future__ import annotations

import http.client
import json
import ssl
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from edgellm.cli.chat import KEY_VARIABLE
from edgellm.errors import EdgeLLMError, UsageError
from edgellm.host.start_command import start_command
from edgellm.service.tls import AUTHORITY_FILE, time_problem

CONNECT_SECONDS_MAX = 10.0
ANSWER_SECONDS_MAX = 900.0  # between two pieces: a queue of other people's requests may be before ours
LOADING_POLL_SECONDS = 1.0
ERROR_BYTES_MAX = 65_536


class ServerAnswerError(EdgeLLMError):
    """The server refused, failed, or is not there."""

    code = "server_answer"
    exit_code = 69


class RequestRefusedError(ServerAnswerError):
    """The server is well; what was asked of it is not."""

    code = "request_refused"
    exit_code = 65


class KeyRefusedError(ServerAnswerError):
    """The server wants another key, or does not let this caller in."""

    code = "key_refused"
    exit_code = 77


class Server:
    """One model of a server. ``model`` None means its only one."""

    def __init__(
        self,
        url: str,
        *,
        key: str | None,
        model: str | None,
        temperature: float | None,
        max_tokens: int | None,
        authority: Path | None = None,
    ) -> None:
        """``authority`` vouches for the server; None leaves that to those that this machine trusts."""
        self._url = _split(url)
        self._tls = ssl.create_default_context(cafile=authority) if authority else None
        self._headers = {"Content-Type": "application/json"}
        if key is not None:
            if not key.isascii() or not key.isprintable():
                raise UsageError("the API key may hold visible ASCII characters only")
            self._headers["Authorization"] = f"Bearer {key}"
        options = {"temperature": temperature, "max_tokens": max_tokens}
        self._options = {name: value for name, value in options.items() if value is not None}
        self._model = self._pick_model(model)

    @property
    def name(self) -> str:
        return f"{self._model} at {self._url.scheme}://{self._url.netloc}"

    def close(self) -> None:
        """Nothing is held between answers."""

    def answer(self, messages: list[dict[str, str]]) -> Generator[str]:
        body = {"model": self._model, "messages": messages, "stream": True, **self._options}
        connection, response = self._request_when_loaded("POST", "/chat/completions", body)
        try:
            yield from _content_of(response)
        except (OSError, http.client.HTTPException):
            raise ServerAnswerError("the connection to the server was lost in the middle of the answer") from None
        finally:
            connection.close()

    def _pick_model(self, wanted: str | None) -> str:
        connection, response = self._request_when_loaded("GET", "/models", None)
        try:
            names = [entry["id"] for entry in json.load(response)["data"]]
        except (ValueError, KeyError, TypeError):
            raise ServerAnswerError(f"{self._url.netloc} does not answer as an OpenAI-compatible server") from None
        finally:
            connection.close()
        if wanted is None and len(names) == 1:
            return str(names[0])
        if wanted in names:
            return str(wanted)
        complaint = f"the server has no model {wanted!r}" if wanted else "the server has several models"
        raise UsageError(f"{complaint} — choose with --model: {', '.join(map(str, names))}")

    def _request_when_loaded(
        self, method: str, path: str, body: dict[str, Any] | None
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        said = False
        while True:
            connection, response = self._request(method, path, body)
            if response.status == 200:
                return connection, response
            error = _error_of(response)
            connection.close()
            if response.status == 401:
                remedy = f"send another key: with --api-key-file FILE, or in {KEY_VARIABLE}"
                if "Authorization" not in self._headers:
                    remedy = f"give your key with --api-key-file FILE, or in {KEY_VARIABLE}"
                raise KeyRefusedError(f"the server answered 401: {error.get('message', 'no reason')} — {remedy}")
            if response.status != 503 or error.get("code") != "model_loading":
                raise _kind_of(response.status)(
                    f"the server answered {response.status}: {error.get('message', 'no reason')}"
                )
            if not said:
                sys.stderr.write("edgellm: the model is loading; waiting …\n")
                said = True
            time.sleep(LOADING_POLL_SECONDS)

    def _request(
        self, method: str, path: str, body: dict[str, Any] | None
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        secure = self._url.scheme == "https"
        host, port = self._url.hostname or "", self._url.port
        connection = (
            http.client.HTTPSConnection(host, port, timeout=CONNECT_SECONDS_MAX, context=self._tls)
            if secure
            else http.client.HTTPConnection(host, port, timeout=CONNECT_SECONDS_MAX)
        )
        try:
            connection.connect()
            connection.sock.settimeout(ANSWER_SECONDS_MAX)
            payload = None if body is None else json.dumps(body).encode()
            connection.request(method, f"{self._url.path}{path}", payload, self._headers)
            return connection, connection.getresponse()
        except ssl.SSLCertVerificationError as error:
            connection.close()
            problem = time_problem(error) or (
                f"is not trusted ({error.verify_message}) — for one of edgellm tls init set "
                f"SSL_CERT_FILE=…/{AUTHORITY_FILE}, a copy of the server's file"
            )
            raise ServerAnswerError(f"the certificate of {self._url.scheme}://{self._url.netloc} {problem}") from None
        except ssl.SSLError as error:
            connection.close()
            raise ServerAnswerError(
                f"what answers at {self._url.netloc} does not speak HTTPS ({error.reason}) — try --url "
                f"http://{self._url.netloc}"
            ) from None
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise ServerAnswerError(
                f"no server answers at {self._url.scheme}://{self._url.netloc} ({reason}) — start one with: "
                f"{start_command()}, name another with --url, or load a model here with --local"
            ) from None
        except BaseException:  # an interrupt: the server must see that nobody waits any more
            connection.close()
            raise


def _split(url: str) -> SplitResult:
    """The server's base with ``/v1``, however much of it was given."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    try:
        usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
        (parts.hostname or "").encode("idna")  # as a look-up would: UnicodeError is a ValueError
    except ValueError:
        usable = False
    if not usable:
        raise UsageError(f"--url {url!r} is no address of a server — for example {'http://127.0.0.1:8000'}")
    path = parts.path.rstrip("/")
    return parts._replace(path=path if path.endswith("/v1") else f"{path}/v1", query="", fragment="")


def _kind_of(status: int) -> type[ServerAnswerError]:
    if status in (401, 403):
        return KeyRefusedError
    may_pass = status in (408, 429) or status >= 500
    return ServerAnswerError if may_pass or status < 400 else RequestRefusedError


def _error_of(response: http.client.HTTPResponse) -> dict[str, Any]:
    try:
        error = json.loads(response.read(ERROR_BYTES_MAX))["error"]
    except (ValueError, KeyError, TypeError, OSError, http.client.HTTPException):
        return {}
    return error if isinstance(error, dict) else {}


def _content_of(response: http.client.HTTPResponse) -> Generator[str]:
    """The text of an event stream's deltas. Raises ServerAnswerError for an error in the stream."""
    for raw in response:
        line = raw.strip()
        if not line.startswith(b"data:"):
            continue
        data = line.removeprefix(b"data:").strip()
        if data == b"[DONE]":
            return
        try:
            event = json.loads(data)
            if "error" in event:
                raise ServerAnswerError(f"the server broke off: {event['error'].get('message', 'no reason')}")
            choices = event["choices"]
            content = choices[0]["delta"].get("content") if choices else None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ServerAnswerError("the server sent an event that is not a chat completion chunk") from None
        if content:
            yield content
    raise ServerAnswerError("the server ended the stream without finishing the answer")
