"""A small hub on loopback: the part of the Hugging Face HTTP API that a download uses, with faults on demand.

Small files are answered through a relative redirect, large ones through an absolute one to a second host with a
signed address, as the public hub does; that host fails every request that carries a token.
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

LARGE_FILE_BYTES = 1024
KNOWN_USER = "hf_valid_token_of_the_tests"
STRANGER = "hf_token_of_somebody_without_access"
SIGNATURE = "Signature=secret-of-a-signed-address"


@dataclass
class Repository:
    """``revisions`` maps branches and tags to commits, ``commits`` commits to their files' contents."""

    name: str
    revisions: dict[str, str] = field(default_factory=dict)
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    private: bool = False
    gated: bool = False

    def commit(self, files: Mapping[str, bytes], revision: str = "main") -> str:
        content = [(name, _sha1(data)) for name, data in sorted(files.items())]
        sha = _sha1(f"{self.name}{len(self.commits)}{content}".encode())
        self.commits[sha] = dict(files)
        self.revisions[revision] = sha
        return sha

    def files_at(self, revision: str) -> tuple[str, dict[str, bytes]] | None:
        sha = self.revisions.get(revision, revision)
        return (sha, self.commits[sha]) if sha in self.commits else None


@dataclass
class Fault:
    """What happens to the next ``times`` requests whose path matches: an answer of its own, or a broken connection."""

    path: re.Pattern[str]
    times: int
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    after_bytes: int | None = None
    change: Callable[[bytes], bytes] | None = None
    hold: threading.Event | None = None


@dataclass(frozen=True)
class Seen:
    method: str
    host: str
    path: str
    token: str
    range: str


class HubServer:
    """``url`` is the hub. ``requests`` is what reached it and its second host so far.

    ``listener`` is where it listens, such as in the network of a device; on this machine's loopback without one.
    """

    def __init__(self, listener: socket.socket | None = None) -> None:
        self.repositories: dict[str, Repository] = {}
        self.requests: list[Seen] = []
        self.sent_bytes = 0
        self.ignores_ranges = False
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"hub": self})
        self._server = server_on(listener or socket.create_server(("127.0.0.1", 0)), handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        # Another host name is another origin for a client, though the same server answers.
        self.second_url = f"http://localhost:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def repository(self, name: str, files: Mapping[str, bytes] | None = None, **options: bool) -> Repository:
        repository = self.repositories[name] = Repository(name, **options)
        if files is not None:
            repository.commit(files)
        return repository

    def fail(self, path: str, times: int = 1, **what: Any) -> Fault:
        fault = Fault(re.compile(path), times, **what)
        with self._lock:
            self._faults.append(fault)
        return fault

    def mend(self) -> None:
        with self._lock:
            self._faults.clear()

    def fault_for(self, path: str) -> Fault | None:
        with self._lock:
            for fault in self._faults:
                if fault.times > 0 and fault.path.search(path):
                    fault.times -= 1
                    return fault
        return None

    def saw(self, path: str) -> list[Seen]:
        return [seen for seen in self.requests if re.search(path, seen.path)]


def server_on(listener: socket.socket, handler: Callable[..., BaseRequestHandler]) -> ThreadingHTTPServer:
    """Not serving yet."""
    address = listener.getsockname()
    server = ThreadingHTTPServer(address[:2], handler, bind_and_activate=False)
    server.socket.close()
    server.socket, server.server_address = listener, address
    return server


@contextmanager
def hub_server(listener: socket.socket | None = None) -> Iterator[HubServer]:
    server = HubServer(listener)
    try:
        yield server
    finally:
        server.close()


class _Handler(BaseHTTPRequestHandler):
    hub: HubServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        host = self.headers.get("Host", "")
        self.hub.requests.append(Seen(self.command, host, self.path, token, self.headers.get("Range", "")))
        fault = self.hub.fault_for(self.path)
        if fault is not None and fault.status:
            self._send(fault.status, b"{}", fault.headers)
            return
        path = unquote(urlsplit(self.path).path)
        if host.startswith("localhost"):
            self._send_large(path, token, fault)
        elif token and token not in (KNOWN_USER, STRANGER):
            self._refuse(401, "", "Invalid credentials in Authorization header")
        elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/(.+))?", path):
            self._describe(match[1], match[2] or "revision", match[3] or "main", token)
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._resolve(match[1], match[2], match[3], token, fault)
        elif match := re.fullmatch(r"/api/resolve-cache/models/([^/]+/[^/]+)/([^/]+)/(.+)", path):
            files = self.hub.repositories[match[1]].commits[match[2]]
            self._send_small(match[2], files[match[3]], fault)
        else:
            self._refuse(404, "", "Sorry, we can't find the page you are looking for.")

    def _readable(self, name: str, token: str) -> Repository | None:
        repository = self.hub.repositories.get(name)
        if repository is None or (repository.private and token != KNOWN_USER):
            if token:
                self._refuse(404, "RepoNotFound", "Repository not found")
            else:
                self._refuse(401, "RepoNotFound", "Invalid username or password.")
            return None
        return repository

    def _describe(self, name: str, kind: str, revision: str, token: str) -> None:
        repository = self._readable(name, token)
        if repository is None:
            return
        found = repository.files_at(revision)
        if found is None:
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            return
        sha, files = found
        if kind == "tree":
            self._send_json([{"type": "file", "path": name, **_facts(data)} for name, data in files.items()])
            return
        with_digests = parse_qs(urlsplit(self.path).query).get("blobs") == ["True"] or "blobs=true" in self.path
        siblings = []
        for file_name, data in files.items():
            facts = _facts(data)
            facts["blobId"] = facts.pop("oid")
            if "lfs" in facts:
                facts["lfs"]["sha256"] = facts["lfs"].pop("oid")
            siblings.append({"rfilename": file_name, **(facts if with_digests else {})})
        self._send_json(
            {
                "_id": "0",
                "id": name,
                "modelId": name,
                "sha": sha,
                "private": repository.private,
                "gated": "manual" if repository.gated else False,
                "disabled": False,
                "downloads": 1,
                "likes": 0,
                "tags": [],
                "siblings": siblings,
            }
        )

    def _resolve(self, name: str, revision: str, file_name: str, token: str, fault: Fault | None) -> None:
        repository = self._readable(name, token)
        if repository is None:
            return
        if repository.gated and token != KNOWN_USER:
            said = f"Access to model {name} is restricted"
            self._refuse(403 if token else 401, "GatedRepo", said)
            return
        found = repository.files_at(revision)
        if found is None:
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            return
        sha, files = found
        if file_name not in files:
            self._refuse(404, "EntryNotFound", "Entry not found", {"X-Repo-Commit": sha})
            return
        data = files[file_name]
        if len(data) < LARGE_FILE_BYTES:
            location = f"/api/resolve-cache/models/{name}/{sha}/{file_name}"
            self._send(307, b"", {"Location": location, "X-Repo-Commit": sha, "ETag": f'"{_git_digest(data)}"'})
            return
        digest = hashlib.sha256(data).hexdigest()
        headers = {
            "Location": f"{self.hub.second_url}/repos/{name}/{digest}?{SIGNATURE}&name={file_name}",
            "X-Repo-Commit": sha,
            "X-Linked-Etag": f'"{digest}"',
            "X-Linked-Size": str(len(data)),
        }
        self._send(302, b"", headers)

    def _send_small(self, sha: str, data: bytes, fault: Fault | None) -> None:
        self._send_bytes(data, {"ETag": f'"{_git_digest(data)}"', "X-Repo-Commit": sha}, fault)

    def _send_large(self, path: str, token: str, fault: Fault | None) -> None:
        if token:
            self._refuse(400, "", "Only one auth mechanism allowed")
            return
        name, _, digest = path.removeprefix("/repos/").rpartition("/")
        for files in self.hub.repositories[name].commits.values():
            for data in files.values():
                if len(data) >= LARGE_FILE_BYTES and hashlib.sha256(data).hexdigest() == digest:
                    self._send_bytes(data, {"ETag": f'"{digest}"'}, fault)
                    return
        self._refuse(404, "", "no such file")

    def _send_bytes(self, data: bytes, headers: Mapping[str, str], fault: Fault | None) -> None:
        status, start = 200, 0
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if match is not None and not self.hub.ignores_ranges:
            start = int(match[1])
            if start >= len(data):
                self._refuse(416, "", "Range not satisfiable", {"Content-Range": f"bytes */{len(data)}"})
                return
            status = 206
            headers = {**headers, "Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"}
        body = data[start:]
        if fault is not None and fault.change is not None:
            body = fault.change(body)
        self._send(status, body, {"Accept-Ranges": "bytes", **headers}, fault)

    def _refuse(self, status: int, code: str, said: str, headers: Mapping[str, str] | None = None) -> None:
        extra = {"X-Error-Code": code} if code else {}
        self._send(status, json.dumps({"error": said}).encode(), {**extra, "X-Error-Message": said, **(headers or {})})

    def _send_json(self, value: object) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, body: bytes, headers: Mapping[str, str], fault: Fault | None = None) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        cut = fault.after_bytes if fault is not None else None
        self.wfile.write(body if cut is None else body[:cut])
        self.wfile.flush()
        self.hub.sent_bytes += len(body) if cut is None else min(cut, len(body))
        if fault is not None and fault.hold is not None:
            fault.hold.wait(60)
        if cut is not None:
            self.close_connection = True


def _facts(data: bytes) -> dict[str, Any]:
    facts: dict[str, Any] = {"size": len(data), "oid": _git_digest(data)}
    if len(data) >= LARGE_FILE_BYTES:
        facts["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
    return facts


def _git_digest(data: bytes) -> str:
    return _sha1(b"blob %d\0" % len(data) + data)


def _sha1(data: bytes) -> str:
    """Git's digest, which is no matter of security."""
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()
