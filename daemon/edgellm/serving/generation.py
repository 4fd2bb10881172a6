"""Generation: one admitted request as it runs. It owns its leases and gives each back when its lane let go."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from edgellm.errors import (
    EdgeLLMError,
    KeyRevokedError,
    RequestCancelledError,
    RequestTimeoutError,
    ShuttingDownError,
    WorkerFailedError,
)
from edgellm.runtime.capabilities import Capabilities
from edgellm.runtime.generation import GenerationRequest
from edgellm.runtime.outputs import StreamDelta
from edgellm.serving.admission import Lease
from edgellm.serving.delta_buffer import AtOnce, DeltaBuffer
from edgellm.serving.error_frames import error_frames
from edgellm.serving.lane import Lane, LaneGeneration
from edgellm.serving.report import Outcome, RequestReport, outcome_of_error
from edgellm.serving.running_choice import RunningChoice, tokens_max

_log = logging.getLogger(__name__)


class CancelCause(Enum):
    CLIENT_LEFT = "client left"
    TIMED_OUT = "timed out"
    SHUTTING_DOWN = "shutting down"
    KEY_REVOKED = "key revoked"


_ERROR_OF_CAUSE: dict[CancelCause, Callable[[], EdgeLLMError]] = {
    CancelCause.CLIENT_LEFT: lambda: RequestCancelledError("The request was cancelled."),
    CancelCause.TIMED_OUT: lambda: RequestTimeoutError("The request took longer than the server allows."),
    CancelCause.SHUTTING_DOWN: lambda: ShuttingDownError("The server is shutting down."),
    CancelCause.KEY_REVOKED: lambda: KeyRevokedError("The API key of this request was revoked."),
}
_OUTCOME_OF_CAUSE = {
    CancelCause.CLIENT_LEFT: Outcome.DISCONNECTED,
    CancelCause.TIMED_OUT: Outcome.TIMED_OUT,
    CancelCause.SHUTTING_DOWN: Outcome.UNAVAILABLE,
    CancelCause.KEY_REVOKED: Outcome.REFUSED,
}


@dataclass(frozen=True, slots=True)
class ChoiceDelta:
    """A delta of the choice ``index``."""

    index: int
    delta: StreamDelta


class Generation:
    """Runs the choices of one request in the slots it was granted, several at a time where it has several.

    The tasks that drive the lanes belong to the generation, not to whoever reads it: a reader may go away at any
    point, and the leases still come back when the lanes have let go.
    """

    def __init__(
        self,
        requests: Sequence[GenerationRequest],
        leases: Sequence[Lease],
        report: RequestReport,
        capabilities: Capabilities,
        token_gap: Callable[[float], None],
        on_end: Callable[[Generation], None],
        acquire: Callable[[], Awaitable[Lease]],
    ) -> None:
        self.report = report
        self.capabilities = capabilities
        self.prompt_tokens = sum(len(request.prompt_token_ids or ()) for request in requests)
        """Known from the start where the front end tokenises; 0 where the runtime does."""
        self._buffer = DeltaBuffer()
        self._pending = deque(enumerate(requests))
        self._active: dict[LaneGeneration, None] = {}  # in the order of their start, and so they are cancelled
        self._cancel_cause: CancelCause | None = None
        self._error: EdgeLLMError | None = None
        self._token_gap = token_gap
        self._on_end = on_end
        self._acquire = acquire
        self._has_run_again = False
        self._waiting_again: asyncio.Future[Lease] | None = None
        loop = asyncio.get_running_loop()
        self._accepted: asyncio.Future[None] = loop.create_future()
        self._to_accept = len(leases)
        self._ended = asyncio.Event()
        self._open_slots = len(leases)
        self._timer: asyncio.TimerHandle | None = None
        self._tasks = [loop.create_task(self._drive_slot(lease)) for lease in leases]

    async def accepted(self) -> None:
        """Return once the lane took the first choices. Raises what refused one of them, after all slots came back."""
        try:
            await asyncio.shield(self._accepted)
        except EdgeLLMError:
            await self._ended.wait()
            raise

    async def next_deltas(self, at_once: AtOnce | None = None) -> list[ChoiceDelta]:
        """What has come since the last call, one merged delta a choice; empty when all choices have finished.

        While this waits, a delta is offered to ``at_once`` straight from the lane, without waking the caller; those
        that it takes (True) are not returned. Raises the error that ended the generation, after everything before it
        was handed out.
        """
        deltas = await self._buffer.take(at_once)
        if not deltas and self._error is not None:
            raise self._error
        return [ChoiceDelta(index, delta) for index, delta in deltas]

    def _tokens_max_to_come(self) -> int:
        """What a slot may have to say after what runs in it now, were the rest shared out evenly."""
        return sum(tokens_max(request) for _, request in self._pending) // max(1, self._open_slots)

    def cancel(self, cause: CancelCause) -> None:
        """Stop within one step. Idempotent; without effect once the generation has ended."""
        if self._cancel_cause is not None or self._ended.is_set():
            return
        self._cancel_cause = cause
        self._fail(_ERROR_OF_CAUSE[cause]())

    def cancel_after(self, limit_seconds: float) -> None:
        """Cancel as timed out unless it has ended by then."""
        self._timer = asyncio.get_running_loop().call_later(limit_seconds, self.cancel, CancelCause.TIMED_OUT)

    async def ended(self) -> None:
        """Return once every lease has been given back."""
        await self._ended.wait()

    async def _drive_slot(self, lease: Lease) -> None:
        slot = _Slot(lease)
        try:
            while self._error is None and self._pending:
                index, request = self._pending.popleft()
                choice = RunningChoice(
                    index, request, self.report, self._buffer, self._token_gap, self._tokens_max_to_come
                )
                slot.show_progress(choice)
                try:
                    await self._run_choice(slot, request, choice)
                except EdgeLLMError as error:
                    if not (isinstance(error, WorkerFailedError) and self._may_run_again(choice)):
                        choice.count_prompt_if_begun()
                        raise
                    self._pending.appendleft((index, request))
                    await self._take_another_lane(slot)
        except EdgeLLMError as error:
            self._fail(error)
        except asyncio.CancelledError:
            if self._error is None:  # nobody but _fail cancels a wait in here
                raise
        except Exception as error:
            # A lane must not raise anything else; if it does, this request ends and the daemon goes on.
            _log.error("a lane failed: %s", error_frames(error))
            self._fail(WorkerFailedError("The model's worker failed."))
        finally:
            slot.release()
            if not slot.is_accepted:
                self._slot_accepted()
            self._open_slots -= 1
            if self._open_slots == 0:
                self._end()

    async def _run_choice(self, slot: _Slot, request: GenerationRequest, choice: RunningChoice) -> None:
        report = self.report
        if report.submitted_seconds is None:
            report.submitted_seconds = time.monotonic()
        if slot.lane.name not in report.lanes:
            report.lanes.append(slot.lane.name)
        try:
            await self._submit_choice(slot, request, choice)
        finally:
            report.released_seconds = time.monotonic()

    async def _submit_choice(self, slot: _Slot, request: GenerationRequest, choice: RunningChoice) -> None:
        running = await slot.lane.submit(request, choice)
        choice.has_begun = self._error is None
        self._active[running] = None
        if not slot.is_accepted:
            slot.is_accepted = True
            self._slot_accepted()
        if self._error is not None:
            running.cancel()
        try:
            await choice.released()
        finally:
            self._active.pop(running, None)

    def _may_run_again(self, choice: RunningChoice) -> bool:
        """Once a request, for a choice whose worker was lost before it said anything."""
        if self._has_run_again or choice.has_spoken or self._error is not None:
            return False
        self._has_run_again = True
        return True

    async def _take_another_lane(self, slot: _Slot) -> None:
        """Wait for a place on a lane that is alive. Raises AdmissionError when none will be."""
        slot.release()
        self._waiting_again = asyncio.ensure_future(self._acquire())
        try:
            slot.lease = await self._waiting_again
        finally:
            self._waiting_again = None

    def _slot_accepted(self) -> None:
        self._to_accept -= 1
        if self._to_accept > 0 or self._accepted.done():
            return
        if self._error is not None:
            self._refuse_acceptance(self._error)
        else:
            self.report.accepted_seconds = time.monotonic()
            self._accepted.set_result(None)

    def _refuse_acceptance(self, error: EdgeLLMError) -> None:
        self._accepted.set_exception(error)
        self._accepted.exception()  # a reader that is gone does not read it

    def _fail(self, error: EdgeLLMError) -> None:
        if self._error is not None:
            return
        self._error = error
        for running in list(self._active):
            running.cancel()
        if self._waiting_again is not None:
            self._waiting_again.cancel()
        self._buffer.close()
        if not self._accepted.done():
            self._refuse_acceptance(error)

    def _end(self) -> None:
        report = self.report
        report.ended_seconds = time.monotonic()
        if self._error is None:
            report.outcome = Outcome.SUCCESS
        else:
            report.outcome = (
                _OUTCOME_OF_CAUSE[self._cancel_cause] if self._cancel_cause else outcome_of_error(self._error)
            )
            report.error_code = self._error.code
        if self._timer is not None:
            self._timer.cancel()
        self._buffer.close()
        self._ended.set()
        self._on_end(self)


class _Slot:
    """A lease, or none while its request waits for another lane."""

    __slots__ = ("is_accepted", "lease")

    def __init__(self, lease: Lease) -> None:
        self.lease: Lease | None = lease
        self.is_accepted = False

    @property
    def lane(self) -> Lane:
        assert self.lease is not None  # noqa: S101  # it runs no choice while it waits
        return self.lease.lane

    def show_progress(self, choice: RunningChoice) -> None:
        if self.lease is not None:
            self.lease.progress = choice.progress

    def release(self) -> None:
        lease, self.lease = self.lease, None
        if lease is not None:
            lease.release()
