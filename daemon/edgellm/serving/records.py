"""Records: one line in a file for every request that ended, and the latest ones in memory for those who sent them."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from edgellm.errors import RecordNotFoundError
from edgellm.runtime.generation import AudioPrompt, ChatPrompt, GenerationRequest, SpeechPrompt, TextPrompt
from edgellm.serving.record_file import TEXT_FIELDS, RecordFile, RecordFileSettings
from edgellm.serving.report import RequestReport

RECORDS_IN_MEMORY_MAX = 1_024
CLOSE_LIMIT_SECONDS = 2.0
_SECONDS_DIGITS = 6

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RecordSettings:
    """``include_text`` puts prompts and answers into the file; without it no text of a request is kept anywhere."""

    file: RecordFileSettings
    include_text: bool = False


class Records:
    """Used from one event loop; the file is written elsewhere."""

    def __init__(
        self, settings: RecordSettings, count: Callable[[str, int], None], entries_max: int = RECORDS_IN_MEMORY_MAX
    ) -> None:
        self._settings = settings
        self._count = count
        self._file = RecordFile(settings.file, count)
        self._entries_max = entries_max
        self._entries: OrderedDict[tuple[str, str], Record] = OrderedDict()

    @property
    def include_text(self) -> bool:
        return self._settings.include_text

    def change(self, settings: RecordSettings) -> None:
        """Write as these say from now on; what the file of before still has to take is written to it."""
        if settings.file != self._settings.file:
            self._file.finish()
            self._file = RecordFile(settings.file, self._count)
        self._settings = settings

    def keep(self, report: RequestReport) -> None:
        """A request that has ended."""
        record = record_of(report)
        without_text = {name: value for name, value in record.items() if name not in TEXT_FIELDS}
        # Text may have been kept for it before a change of the settings.
        self._file.write(record if self.include_text else without_text)
        key = (report.client, report.request_id)
        self._entries[key] = without_text
        self._entries.move_to_end(key)
        while len(self._entries) > self._entries_max:
            self._entries.popitem(last=False)

    def find(self, client: str, request_id: str) -> Record:
        """The latest record of that id. Raises RecordNotFoundError, also for what belongs to somebody else."""
        record = self._entries.get((client, request_id))
        if record is None:
            raise RecordNotFoundError("The id names no request of yours that this server still remembers.")
        return record

    def forget(self, client: str) -> None:
        """Take a client's records out of memory: whoever gets its name next is not the same."""
        for key in [key for key in self._entries if key[0] == client]:
            del self._entries[key]

    def reopen(self) -> None:
        self._file.reopen()

    def finish(self) -> None:
        """Nothing is kept any more; what waits is still written. Returns at once."""
        self._file.finish()

    def close(self) -> None:
        """Blocks for up to CLOSE_LIMIT_SECONDS."""
        self._file.close(CLOSE_LIMIT_SECONDS)


def record_of(report: RequestReport) -> Record:
    """What the file says of a request; times are seconds, null for a stage that was not reached."""
    now_unix_seconds = time.time()
    record: dict[str, Any] = {
        "time": _rfc3339(now_unix_seconds),
        "id": report.request_id,
        "client": report.client,
        "route": report.route,
        "model": report.model,
        "lanes": list(report.lanes),
        "priority": report.priority.value,
        "outcome": report.outcome.value if report.outcome else None,
        "error": report.error_code,
        "choices": report.choices,
        "finish_reasons": dict(report.finish_reasons),
        "prompt_tokens": report.prompt_tokens,
        "cached_tokens": report.cached_tokens,
        "generated_tokens": report.generated_tokens,
        "queue_seconds": _between(report.entered_queue_seconds, report.granted_seconds or report.ended_seconds),
        "prefill_seconds": _between(report.submitted_seconds, report.first_token_seconds),
        "decode_seconds": _between(report.first_token_seconds, report.last_token_seconds),
        "native_seconds": _between(report.submitted_seconds, report.released_seconds),
        "total_seconds": _between(report.arrived_seconds, report.ended_seconds),
    }
    if report.media:
        record["media"] = dict(report.media)
    if report.metadata:
        record["metadata"] = dict(report.metadata)
    if report.texts is not None:
        record["prompts"] = [_prompt_text(prompt) for prompt in report.texts.prompts]
        record["answers"] = ["".join(report.texts.answers.get(index, ())) for index in range(report.choices)]
    return record


def _prompt_text(request: GenerationRequest) -> Any:
    match request.prompt:
        case TextPrompt(text):
            return text
        case AudioPrompt(context=context):
            return {"audio": True, "prompt": context}
        case SpeechPrompt(text, voice):
            return {"text": text, "voice": voice}
        case ChatPrompt():
            chosen = {each.name: getattr(request.prompt, each.name) for each in fields(ChatPrompt)}
            return {name: chosen[name] for name in ("messages", "tools") if chosen[name]}
        case _:
            return list(request.prompt.token_ids)


def _between(start_seconds: float | None, end_seconds: float | None) -> float | None:
    if start_seconds is None or end_seconds is None:
        return None
    return round(max(0.0, end_seconds - start_seconds), _SECONDS_DIGITS)


def _rfc3339(unix_seconds: float) -> str:
    whole = int(unix_seconds)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{int(1000 * (unix_seconds - whole)):03d}Z"
