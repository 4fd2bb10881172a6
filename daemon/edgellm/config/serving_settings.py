"""The tables of what requests and models share: the queue, memory, worker processes."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from edgellm.config import limits
from edgellm.config.section import Number, Seconds, Section, Whole


class AdmissionSettings(Section):
    """How many requests wait, and for how long."""

    max_queued_requests: Annotated[Whole, Field(ge=0, le=limits.QUEUED_REQUESTS_MAX)] = Field(
        default=16,
        description="Requests that may wait for a free sequence of a model; 0 refuses at once when it is busy.",
    )
    queue_timeout_seconds: Seconds = Field(
        default=600.0, description="Longest wait in the queue; then the answer is 429."
    )
    request_timeout_seconds: Seconds | None = Field(
        default=None, description="Longest time one request may generate; unset: no limit."
    )
    priority_grants_ahead_max: Annotated[Whole, Field(ge=1, le=limits.QUEUED_REQUESTS_MAX)] = Field(
        default=8, description="Requests of higher priority that may go ahead of a waiting lower one in a row."
    )
    shutdown_drain_seconds: Annotated[Number, Field(ge=0, le=limits.DURATION_SECONDS_MAX)] = Field(
        default=30.0, description="Time running requests have to end after SIGTERM; then they are cancelled."
    )


class ResidencySettings(Section):
    """Memory for models, and whose turn it is where it does not hold all `on_demand` models at once."""

    model_memory_gb: Annotated[Number, Field(gt=0, le=limits.MODEL_MEMORY_GB_MAX)] | None = Field(
        default=None,
        description="Memory that all models together may take, in GB of 2^30 bytes. Unset: what is available when the "
        "daemon starts, by the machine and the cgroups above it. `always` models are loaded first; an `on_demand` "
        "model that does not fit beside them is refused with the numbers.",
    )
    swap_after_seconds: Seconds = Field(
        default=30.0,
        description="Time a loaded model with work goes on while requests wait for a model that has no room beside it. "
        "After that it takes nothing new, finishes what runs, and makes room.",
    )
    min_resident_seconds: Annotated[Number, Field(ge=0, le=limits.DURATION_SECONDS_MAX)] = Field(
        default=5.0, description="Time a loaded `on_demand` model stays at least before it makes room for another."
    )


class WorkerLimits(Section):
    """When a worker process is given up and replaced; its requests end with an error, others go on."""

    ping_deadline_seconds: Annotated[Seconds, Field(ge=2)] = Field(
        default=10.0, description="Longest time a worker may leave the daemon without an answer."
    )
    step_deadline_seconds: Seconds = Field(
        default=120.0, description="Longest time without a completed step while a worker has requests to work on."
    )
    cancel_grace_seconds: Seconds = Field(
        default=10.0, description="Time a worker has to stop a cancelled request before it is ended."
    )
    available_memory_min_mib: Annotated[Whole, Field(ge=0, le=limits.MEMORY_MIB_MAX)] = Field(
        default=256,
        description="Memory that must stay available on this machine, in MiB of 2^20 bytes. Below it the worker that "
        "grew most since it was loaded is ended and replaced. 0 leaves the choice to the kernel.",
    )
    memory_max_mib: Annotated[Whole, Field(ge=1, le=limits.MEMORY_MIB_MAX)] | None = Field(
        default=None,
        description="Most memory of one worker, in MiB, without mapped files such as weights; beyond it the worker is "
        "ended and replaced. Processes that decode media of its requests do not count: there are at most "
        f"{limits.DECODING_JOBS_MAX} at a time, each of up to {limits.DECODING_MEMORY_MIB_MAX} MiB and a "
        "quarter of what the machine has left. Unset: no limit of its own.",
    )
    restarts_max: Annotated[Whole, Field(ge=0, le=limits.RESTARTS_MAX)] = Field(
        default=5, description="Replacements within `restart_window_seconds`; after that the replica stays down."
    )
    restart_window_seconds: Seconds = Field(default=600.0, description="Time over which replacements are counted.")
