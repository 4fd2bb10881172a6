"""What `edgellm serve` tells a person on the terminal: stages while it loads, then how to talk to it."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from edgellm.serving.load_failure import cause_for_log
from edgellm.serving.model import ModelState, ServedModel

REDRAW_SECONDS = 0.5
HEARTBEAT_SECONDS = 10.0
_SPOKEN = "Hello from edgellm."
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


@dataclass(slots=True)
class _Shown:
    """What was last said of a model, and when."""

    stage: str
    amount: str
    seconds: float


class StageLines:
    """One line a stage; on a terminal its fraction is redrawn in place, elsewhere repeated now and then.

    With ``several`` models every line begins with its model's name, and only the last one's line is redrawn.
    """

    def __init__(self, stream: LossyOutput, *, several: bool = False) -> None:
        self._stream = stream
        self._several = several
        self._terminal = stream.isatty()
        self._began = time.monotonic()
        self._shown: dict[str, _Shown] = {}
        self._last_model = ""
        self._open_line = False

    def show(self, model: str, stage: str, fraction: float | None) -> None:
        text = stage if model in stage and not self._several else f"{model}: {stage}"
        amount = "" if fraction is None else f" {fraction:.0%}"
        now = time.monotonic()
        shown = self._shown.get(model)
        is_new = shown is None or shown.stage != stage
        if shown is not None and not is_new and not self._is_due(model, shown, amount, now):
            return
        self._shown[model] = _Shown(stage, amount, now)
        self._last_model = model
        if self._terminal and not is_new:
            self._stream.write(f"\r\x1b[2K{text}{amount} … {now - self._began:.0f} s")
        else:
            self.end_line()
            self._stream.write(f"{text}{amount} …{'' if self._terminal else chr(10)}")
        self._open_line = self._terminal

    def _is_due(self, model: str, shown: _Shown, amount: str, now_seconds: float) -> bool:
        """To be said again within its stage: where nothing moves, one model alone still shows that it lives."""
        interval = REDRAW_SECONDS if self._terminal else HEARTBEAT_SECONDS
        if now_seconds - shown.seconds < interval:
            return False
        if self._terminal:
            return model == self._last_model
        return not self._several or amount != shown.amount

    def end_line(self) -> None:
        if self._open_line:
            self._stream.write("\n")
            self._open_line = False

    @property
    def elapsed_seconds(self) -> float:
        return time.monotonic() - self._began


def how_models_are(models: Sequence[ServedModel]) -> str:
    """A line for each where there are several, or one that failed; empty for one that is well."""
    if len(models) < 2 and not any(model.failure for model in models):
        return ""
    return "\n".join(f"  model   {model.name}: {_how_it_is(model)}" for model in models)


def _how_it_is(model: ServedModel) -> str:
    if model.failure is not None:
        return f"{model.state.value}: {cause_for_log(model.failure)}"
    return "loaded when it is asked for" if model.state is ModelState.UNLOADED else model.state.value


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
        lines.append(f"  trust   export SSL_CERT_FILE={shlex.quote(str(authority.absolute()))}")
    if with_key:
        lines.append("  key     export EDGELLM_API_KEY=the key that edgellm keys add printed")
    lines += [f"  curl    {curl}", f"  Python  {python}"]
    if not has_client:
        lines.append("          (once: python3 -m pip install openai)")
    return "\n".join(lines)


def how_to_transcribe(base_url: str, model: str, *, with_key: bool, authority: Path | None = None) -> str:
    """The URL, and a curl line that wants a sound file."""
    key_header = ' -H "Authorization: Bearer $EDGELLM_API_KEY"' if with_key else ""
    trust = f" --cacert {shlex.quote(str(authority.absolute()))}" if authority is not None else ""
    return (
        f"  URL     {base_url}\n"
        f"  curl    curl {base_url}/audio/transcriptions{trust}{key_header} -F model={shlex.quote(model)} "
        "-F file=@speech.wav"
    )


def how_to_speak(base_url: str, model: str, *, with_key: bool, authority: Path | None = None) -> str:
    """The URL, and a curl line that leaves a sound file."""
    key_header = ' -H "Authorization: Bearer $EDGELLM_API_KEY"' if with_key else ""
    trust = f" --cacert {shlex.quote(str(authority))}" if authority is not None else ""
    body = json.dumps({"model": model, "input": _SPOKEN}, ensure_ascii=False)
    return (
        f"  URL     {base_url}\n"
        f"  curl    curl {base_url}/audio/speech{trust}{key_header} -H 'Content-Type: application/json' "
        f"-d {shlex.quote(body)} -o speech.mp3"
    )


def _interpreter() -> str:
    """This interpreter as it is called from here: below the current folder its path is relative."""
    path = Path(sys.executable)
    return shlex.quote(os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path))
