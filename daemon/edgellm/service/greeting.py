"""What `edgellm serve` tells a person on the terminal: stages while it loads, then how to talk to it."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import sys
import time
from pathlib import Path
from typing import TextIO

REDRAW_SECONDS = 0.5
HEARTBEAT_SECONDS = 10.0
_QUESTION = "Name three uses of a small computer."


class LossyOutput:
    """Standard output of a daemon: what cannot be written, as on a full disk, is lost, and serving goes on.

    A reader that went away is told apart: it has ended the pipe that the daemon is part of.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def isatty(self) -> bool:
        return self._stream.isatty()

    def write(self, text: str) -> None:
        """Writes at once."""
        try:
            self._stream.write(text)
            self._stream.flush()
        except BrokenPipeError:
            raise
        except OSError:
            pass


class StageLines:
    """One line a stage; on a terminal its fraction is redrawn in place, elsewhere repeated now and then."""

    def __init__(self, stream: LossyOutput) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._began = time.monotonic()
        self._shown_text = ""
        self._shown_seconds = 0.0
        self._open_line = False

    def show(self, model: str, stage: str, fraction: float | None) -> None:
        text = stage if model in stage else f"{model}: {stage}"
        now = time.monotonic()
        is_new = text != self._shown_text
        interval = REDRAW_SECONDS if self._terminal else HEARTBEAT_SECONDS
        if not is_new and now - self._shown_seconds < interval:
            return
        self._shown_text, self._shown_seconds = text, now
        amount = "" if fraction is None else f" {fraction:.0%}"
        if self._terminal and not is_new:
            self._stream.write(f"\r\x1b[2K{text}{amount} … {now - self._began:.0f} s")
        else:
            self.end_line()
            self._stream.write(f"{text}{amount} …{'' if self._terminal else chr(10)}")
        self._open_line = self._terminal

    def end_line(self) -> None:
        if self._open_line:
            self._stream.write("\n")
            self._open_line = False

    @property
    def elapsed_seconds(self) -> float:
        return time.monotonic() - self._began


def how_to_talk(base_url: str, model: str, *, with_key: bool, authority: Path | None = None) -> str:
    """The URL, a curl line and a Python line; each works as it stands on this machine."""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": _QUESTION}]}, ensure_ascii=False)
    key_header = '-H "Authorization: Bearer $EDGELLM_API_KEY" ' if with_key else ""
    curl = f"curl {base_url}/chat/completions {key_header}-H 'Content-Type: application/json' -d {shlex.quote(body)}"
    key = "__import__('os').environ['EDGELLM_API_KEY']" if with_key else "'none'"
    program = (
        f"from openai import OpenAI; print(OpenAI(base_url={base_url!r}, api_key={key})"
        f".chat.completions.create(model={model!r}, messages=[{{'role': 'user', 'content': {_QUESTION!r}}}])"
        ".choices[0].message.content)"
    )
    has_client = importlib.util.find_spec("openai") is not None
    python = f'{_interpreter() if has_client else "python3"} -c "{program}"'
    lines = [f"  URL     {base_url}"]
    if authority is not None:
        lines.append(f"  trust   export SSL_CERT_FILE={shlex.quote(str(authority))}")
    if with_key:
        lines.append("  key     export EDGELLM_API_KEY=one of server.api_keys_file")
    lines += [f"  curl    {curl}", f"  Python  {python}"]
    if not has_client:
        lines.append("          (once: python3 -m pip install openai)")
    return "\n".join(lines)


def _interpreter() -> str:
    """This interpreter as it is called from here: below the current folder its path is relative."""
    path = Path(sys.executable)
    return shlex.quote(os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path))
