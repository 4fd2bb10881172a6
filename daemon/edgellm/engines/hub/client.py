"""HubClient: what is asked of a hub, through huggingface_hub; every failure comes out as one of our errors.

The only module that imports huggingface_hub, and it is imported only when an id has to be fetched: the library costs
half a second of start-up time.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
from huggingface_hub import HfApi, constants, get_session, get_token, hf_hub_url, hf_raise_for_status
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # documented, not declared

from edgellm import __version__
from edgellm.config.regular_file import open_regular
from edgellm.engines.hub.failure import (
    broken_failure,
    connection_failure,
    offline_failure,
    rate_limit_failure,
    shown_endpoint,
    status_failure,
)
from edgellm.engines.hub.hub_id import COMMIT, HubId
from edgellm.engines.hub.selection import HubFile
from edgellm.engines.progress import Progress, ProgressCallback
from edgellm.errors import ConfigError, HubUnavailableError, ModelError

ENDPOINT_VARIABLE = "HF_ENDPOINT"
TOKEN_PATH_VARIABLE = "HF_TOKEN_PATH"  # noqa: S105  # the name of a variable
CREDENTIALS_VARIABLE = "CREDENTIALS_DIRECTORY"  # where systemd puts the credentials of a service
TOKEN_CREDENTIAL = "hub-token"  # noqa: S105  # the name of a file
ANSWER_SECONDS = 15.0
# Tries without a byte of progress before the hub counts as unreachable.
TRIES = 4
TOKEN_FILE_BYTES_MAX = 1 << 16
# What a hub may ask to wait; beyond it the operator decides.
MAX_WAIT_SECONDS = 60
_DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class HubRepository:
    """A repository at one commit."""

    commit: str
    files: tuple[HubFile, ...]


class HubClient:
    """``sleep`` waits between tries, in seconds. Raises ModelError only."""

    def __init__(
        self, hub_id: HubId, on_progress: ProgressCallback, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._id = hub_id
        self._on_progress = on_progress
        self._sleep = sleep
        self.endpoint = (os.environ.get(ENDPOINT_VARIABLE) or constants.ENDPOINT).rstrip("/")
        self._token = _token()
        # With telemetry the library asks the hub for a list of programs to name in its User-Agent.
        constants.HF_HUB_DISABLE_TELEMETRY = True
        # Their lines quote signed addresses; what matters of them is in our errors.
        for name in ("huggingface_hub", "httpx2", "httpcore2"):
            logging.getLogger(name).setLevel(logging.ERROR)

    @property
    def endpoint_name(self) -> str:
        return shown_endpoint(self.endpoint)

    def describe(self) -> HubRepository:
        """The commit that the revision means now, and every file with its size and digest."""
        api = HfApi(
            endpoint=self.endpoint, token=self._token or False, library_name="edgellm", library_version=__version__
        )
        for tries in range(1, TRIES + 1):
            try:
                info = api.model_info(
                    self._id.repository, revision=self._id.revision, files_metadata=True, timeout=ANSWER_SECONDS
                )
                break
            except (httpx2.HTTPError, OSError) as error:  # the second: offline mode, what the hub refuses
                self._wait_or_raise(error, tries)
            except (ValueError, TypeError, KeyError) as error:
                raise HubUnavailableError(
                    f"{self.endpoint_name} does not answer as a Hugging Face hub does "
                    f"({type(error).__name__}) — check HF_ENDPOINT and proxies"
                ) from None
        files = []
        for sibling in info.siblings or []:
            digest = sibling.lfs.sha256 if sibling.lfs is not None else sibling.blob_id
            # Commit and digests become names of folders and files.
            if sibling.size is not None and digest is not None and _DIGEST.fullmatch(digest):
                files.append(HubFile(sibling.rfilename, sibling.size, digest))
        if info.sha is None or not COMMIT.fullmatch(info.sha) or (info.siblings and not files):
            raise HubUnavailableError(
                f"{self.endpoint_name} does not say the commit of {self._id}, or the digests of its files, as a "
                "Hugging Face hub does — check HF_ENDPOINT"
            )
        return HubRepository(info.sha, tuple(files))

    def receive(self, commit: str, file: HubFile, offset: int, write: Callable[[int, bytes], None]) -> None:
        """Give ``write`` the file's bytes from ``offset`` on, with their position; goes on where a connection broke.

        A hub that ignores the range sends the file anew, from position 0.
        """
        position, tries = offset, 0
        while position < file.size_bytes:
            try:
                with self._open(commit, file, position) as (start, blocks):
                    position = start
                    for block in blocks:
                        write(position, block)
                        position += len(block)
                        tries = 0
                        if position > file.size_bytes:
                            return  # the digest will tell
                if position < file.size_bytes:
                    tries += 1
                    if tries >= TRIES:
                        raise broken_failure(file.name, position, file.size_bytes, tries, "it ended too early")
                    self._pause(tries)
            except HfHubHTTPError as error:
                tries += 1
                self._wait_or_raise(error, tries)
            except httpx2.HTTPError as error:
                tries += 1
                if tries >= TRIES and position > 0:
                    raise broken_failure(file.name, position, file.size_bytes, tries, self._reason(error)) from None
                self._wait_or_raise(error, tries)

    @contextmanager
    def _open(self, commit: str, file: HubFile, offset: int) -> Iterator[tuple[int, Iterator[bytes]]]:
        url = hf_hub_url(self._id.repository, file.name, revision=commit, endpoint=self.endpoint)
        headers = build_hf_headers(token=self._token or False, library_name="edgellm", library_version=__version__)
        # Sizes and positions count the file's bytes, not those of a compressed transfer.
        headers["Accept-Encoding"] = "identity"
        if offset:
            headers["Range"] = f"bytes={offset}-"
        with get_session().stream("GET", url, headers=headers, timeout=ANSWER_SECONDS) as response:
            hf_raise_for_status(response)
            partial = response.status_code == 206 and _range_start(response.headers) == offset
            # Blocks as they come: a larger size would be gathered, and lost when the connection breaks.
            yield (offset if partial else 0), response.iter_bytes()

    def _wait_or_raise(self, error: Exception, tries: int) -> None:
        """Return when another try makes sense, after the wait it needs."""
        if isinstance(error, OfflineModeIsEnabled):
            raise offline_failure(self._id) from None
        if not isinstance(error, HfHubHTTPError):
            if tries >= TRIES or _is_lasting(error):
                raise connection_failure(self.endpoint, self._reason(error)) from None
            self._pause(tries)
            return
        status, headers = error.response.status_code, error.response.headers
        if status == 429:
            wait_seconds = _retry_after_seconds(headers)
            if tries >= TRIES or (wait_seconds or 0) > MAX_WAIT_SECONDS:
                raise rate_limit_failure(self.endpoint, wait_seconds, has_token=self._token is not None) from None
            self._pause(tries, wait_seconds)
            return
        if status in (408, 500, 502, 503, 504) and tries < TRIES:
            self._pause(tries)
            return
        raise self._status_failure(status, headers) from None

    def _status_failure(self, status: int, headers: Mapping[str, str]) -> ModelError:
        code, message = headers.get("X-Error-Code", ""), headers.get("X-Error-Message", "")
        return status_failure(self._id, self.endpoint, status, code, message, has_token=self._token is not None)

    def _pause(self, tries: int, wait_seconds: int | None = None) -> None:
        seconds = 2.0 ** (tries - 1) if wait_seconds is None else float(wait_seconds)
        self._on_progress(
            Progress("wait", f"waiting {seconds:.0f} s for {self.endpoint_name} (try {tries} of {TRIES})")
        )
        self._sleep(seconds)

    def _reason(self, error: Exception) -> str:
        """Why a transfer failed, without anything that grants access."""
        if isinstance(error, httpx2.TimeoutException):
            return f"no answer within {ANSWER_SECONDS:.0f} s"
        text = " ".join(str(error).split()) or type(error).__name__
        return text.replace(self._token, "***") if self._token else text


def _token() -> str | None:
    """The token of the environment, of the file it names, of the service's credentials, or of the user.

    A file that was named and cannot be read is an error; a credential that is not there is none.
    """
    if os.environ.get("HF_TOKEN"):
        return get_token()
    if path := os.environ.get(TOKEN_PATH_VARIABLE):
        return _token_of_file(Path(path).expanduser(), TOKEN_PATH_VARIABLE)
    if folder := os.environ.get(CREDENTIALS_VARIABLE):
        credential = Path(folder, TOKEN_CREDENTIAL)
        if credential.exists() and (token := _token_of_file(credential, CREDENTIALS_VARIABLE)):
            return token
    return get_token()


def _token_of_file(path: Path, variable: str) -> str | None:
    try:
        with open_regular(path) as stream:
            token = stream.read(TOKEN_FILE_BYTES_MAX).decode("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise ConfigError(f"{variable}: {path}: {reason}: it must name a file with the token") from None
    return token or None


def _range_start(headers: Mapping[str, str]) -> int | None:
    start = headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0]
    return int(start) if start.isdecimal() else None


def _retry_after_seconds(headers: Mapping[str, str]) -> int | None:
    value = headers.get("Retry-After", "").strip()
    return int(value) if value.isdecimal() and len(value) < 10 else None


def _is_lasting(error: Exception) -> bool:
    """Whether another try would end the same way: a wrong address, proxy or certificate."""
    lasting = (httpx2.ProxyError, httpx2.UnsupportedProtocol, httpx2.InvalidURL)
    return isinstance(error, lasting) or "CERTIFICATE" in str(error).upper()
