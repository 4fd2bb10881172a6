"""The smoke chat: a question through the local port, as a client would ask it, and what its answer must be like."""

from __future__ import annotations

import hashlib
import http.client
import json
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from edgellm.errors import UpgradeError
from edgellm.host.admin_question import ANSWER_DEADLINE_SECONDS, admin_socket, ask_server
from edgellm.host.paths import HostPaths

ANSWER_BYTES_MAX = 1_048_576
QUESTION = "Say hello in a few words."
TOKENS_MAX = 16


@dataclass(frozen=True, slots=True)
class SmokeResult:
    """``tokens_per_second`` is of the whole answer, the time to its first token included."""

    version: str
    model: str
    tokens: int
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0

    def as_json(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "model": self.model,
            "tokens": self.tokens,
            "seconds": round(self.seconds, 3),
            "tokens_per_second": round(self.tokens_per_second, 1),
        }


def smoke_chat(paths: HostPaths, version: str | None = None) -> list[SmokeResult]:
    """One for each model that is ready and can chat. Raises UpgradeError that says which property does not hold.

    ``version`` is what the server must be.
    """
    access = LocalAccess.ask(paths)
    if version is not None and access.version != version:
        raise UpgradeError(f"the server that answers is edgellm {access.version}, not {version}")
    health = access.request("GET", "/health/ready")
    if health.status != http.client.OK:
        raise UpgradeError(f"/health/ready answers {health.status}")
    models = _expect_json(access.request("GET", "/v1/models"), "/v1/models")
    ready = [str(one["id"]) for one in models.get("data", ()) if _can_chat(one)]
    if not ready:
        raise UpgradeError("no model is ready to chat")
    return [_chat(access, model) for model in ready]


def _can_chat(model: Mapping[str, Any]) -> bool:
    own = model.get("edgellm", {})
    return own.get("state") == "ready" and own.get("alias_of") is None and "text" in own.get("output_modalities", ())


def _chat(access: LocalAccess, model: str) -> SmokeResult:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": QUESTION}],
        "max_tokens": TOKENS_MAX,
        "temperature": 0,
    }
    began = time.monotonic()
    answer = _expect_json(access.request("POST", "/v1/chat/completions", body), f"the chat with {model}")
    seconds = time.monotonic() - began
    try:
        (choice,) = answer["choices"]
        text, reason = choice["message"], choice["finish_reason"]
        tokens = answer["usage"]["completion_tokens"]
        said = text.get("content") or text.get("reasoning_content") or ""
    except (KeyError, ValueError, TypeError, AttributeError):
        raise UpgradeError(f"the chat with {model} was answered by something that is no completion") from None
    if answer.get("model") != model:
        raise UpgradeError(f"{model} was asked, and another model answered")
    if not isinstance(said, str) or not said:
        raise UpgradeError(f"{model} answered with no text")
    if reason not in ("stop", "length"):
        raise UpgradeError(f"the answer of {model} ended with {reason!r}, not with stop or length")
    if not isinstance(tokens, int) or not 1 <= tokens <= TOKENS_MAX:
        raise UpgradeError(f"{model} counts {tokens!r} tokens of at most {TOKENS_MAX}")
    return SmokeResult(access.version, model, tokens, seconds)


@dataclass(frozen=True, slots=True)
class LocalAnswer:
    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class LocalAccess:
    """Where the server is and a key of a few minutes, from the server itself over its admin socket."""

    url: str
    key: str
    version: str
    certificate_sha256: str | None
    address: str = ""

    @classmethod
    def ask(cls, paths: HostPaths) -> LocalAccess:
        """Raises UpgradeError where no server answers."""
        path = admin_socket(paths)
        try:
            answer = ask_server(paths, {"verb": "host_pass"})
            if answer["answer"] != "host_pass_issued":
                raise UpgradeError(f"the server's admin socket refused: {answer.get('message', answer['answer'])}")
            fingerprint = answer.get("certificate_sha256")
            address = str(answer.get("address", ""))  # an earlier server does not say it
            return cls(str(answer["url"]), str(answer["key"]), str(answer["version"]), fingerprint, address)
        except OSError as error:
            raise UpgradeError(f"the server's admin socket {path}: {error.strerror or error}") from None
        except KeyError:
            raise UpgradeError(f"the server's admin socket {path} answered something that is no answer") from None

    def request(self, method: str, path: str, body: object = None) -> LocalAnswer:
        content = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        connection = self._connection()
        try:
            connection.connect()
            self._check_certificate(connection)
            connection.request(method, path, content, headers)
            response = connection.getresponse()
            return LocalAnswer(response.status, response.read(ANSWER_BYTES_MAX))
        except (OSError, http.client.HTTPException) as error:
            raise UpgradeError(f"{path} was not answered: {str(error) or type(error).__name__}") from None
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        host, port = parts.hostname or "127.0.0.1", parts.port
        if parts.scheme != "https":
            return http.client.HTTPConnection(host, port, timeout=ANSWER_DEADLINE_SECONDS)
        # Names and authorities do not matter here: the certificate is compared with the one that the server said.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return http.client.HTTPSConnection(host, port, timeout=ANSWER_DEADLINE_SECONDS, context=context)

    def _check_certificate(self, connection: http.client.HTTPConnection) -> None:
        """Before the key is sent."""
        if isinstance(connection.sock, ssl.SSLSocket):
            shown = hashlib.sha256(connection.sock.getpeercert(binary_form=True) or b"").hexdigest()
            if shown != self.certificate_sha256:
                raise UpgradeError(f"{self.url} shows another certificate than the server has")


def _expect_json(answer: LocalAnswer, what: str) -> dict[str, Any]:
    if answer.status != http.client.OK:
        raise UpgradeError(f"{what} was answered with {answer.status}")
    try:
        value = json.loads(answer.body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise UpgradeError(f"{what} was answered with something that is no JSON object")
    return value
