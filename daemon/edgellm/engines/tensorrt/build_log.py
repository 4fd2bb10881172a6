"""Build log: what the lines of NVIDIA's builder say about its progress, its results and its failure.

Lines of its log are ``TIME LEVEL LOGGER: TEXT``; at its end it prints "Engine outputs:" with one line an engine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from edgellm.engines.progress import Progress, ProgressCallback

STAGE = "build"
_LOG_LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (?P<level>[A-Z]+) \S+?: (?P<text>.*)")
_ENGINE_COUNT = re.compile(r"Building (\d+) engines for \S+: (.+)")
_COMPONENT = re.compile(r"Building component (\S+)")
_LAYER = re.compile(r"building (?:\w+ )?layer (\d+)/(\d+)")
_SERIALISING = "Building serialized engine"
_WRITTEN = re.compile(r"Engine written to .+ \((\d+) bytes\)")
_OUTPUTS_HEADING = "Engine outputs:"
_OUTPUT = re.compile(r"  (\S+): (.+) \((\d+) bytes\)")
# The last line of a Python traceback, or of a command line that was refused.
_FAILURE = re.compile(r"(?:[\w.]*(?:Error|Exception|Interrupt)|\S+: error): .+")
MAX_FAILURE_CHARACTERS = 400


@dataclass(slots=True)
class BuildLog:
    """Reads the lines in order and tells progress. ``components`` are those that the builder reports as made."""

    on_progress: ProgressCallback
    planned: tuple[str, ...] = ()
    components: tuple[str, ...] = ()
    failure: str = ""
    _current: str = ""
    _position: int = 0
    _in_outputs: bool = field(default=False)

    def read(self, line: str) -> None:
        if self._in_outputs and (output := _OUTPUT.fullmatch(line)):
            self.components = (*self.components, _component_name(output[1]))
            return
        if line == _OUTPUTS_HEADING:
            self._in_outputs = True
            return
        logged = _LOG_LINE.fullmatch(line)
        if logged is None:
            if _FAILURE.match(line):
                self.failure = line[:MAX_FAILURE_CHARACTERS]
            return
        if logged["level"] in ("ERROR", "CRITICAL"):
            self.failure = logged["text"][:MAX_FAILURE_CHARACTERS]
        self._read_text(logged["text"])

    def _read_text(self, text: str) -> None:
        if planned := _ENGINE_COUNT.fullmatch(text):
            self.planned = tuple(_component_name(name) for name in planned[2].split(", "))
        elif component := _COMPONENT.fullmatch(text):
            self._current = _component_name(component[1])
            self._position += 1
            self._tell("reading the checkpoint")
        elif layer := _LAYER.match(text):
            self._tell(f"layer {layer[1]} of {layer[2]}")
        elif text.startswith(_SERIALISING):
            self._tell("compiling, which takes minutes")
        elif written := _WRITTEN.fullmatch(text):
            self._tell(f"{int(written[1]) / 1_000_000:.0f} MB written")

    @property
    def position(self) -> str:
        """Tell which engine is being made, for people."""
        if not self._current:
            return "its start"
        of = f" of {len(self.planned)}" if self.planned else ""
        return f"engine {self._position}{of} ({self._current})"

    def _tell(self, step: str) -> None:
        self.on_progress(Progress(STAGE, f"{self.position}: {step}"))


def _component_name(label: str) -> str:
    return label.replace("-", "_")
