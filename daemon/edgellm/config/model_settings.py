"""The tables of a served model: its source, its engine, its limits and its defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from edgellm.config import limits
from edgellm.config.model_kind import ModelKind
from edgellm.config.section import Flag, ModelName, Number, PoolBytes, Seconds, Section, Text, Tokens, Whole
from edgellm.config.setting_error import SettingError


class SamplingSettings(Section):
    """What a request gets that leaves a sampling field out. Unset: the model's own generation config decides."""

    temperature: Annotated[Number, Field(ge=0, le=2)] | None = Field(default=None, description="0 is greedy.")
    top_p: Annotated[Number, Field(gt=0, le=1)] | None = Field(default=None, description="1 is off.")
    top_k: Annotated[Whole, Field(ge=-1)] | None = Field(default=None, description="-1 and 0 are off.")
    min_p: Annotated[Number, Field(ge=0, le=1)] | None = Field(default=None, description="0 is off.")
    repetition_penalty: Annotated[Number, Field(gt=0, le=2)] | None = Field(default=None, description="1 is off.")
    max_new_tokens: Tokens | None = Field(default=None, description="Longest answer of a request that names no length.")


class SpeculativeSettings(Section):
    """Speculative decoding on TensorRT: a cheap draft proposes tokens, the model checks several at once."""

    method: Literal["eagle3", "mtp", "dflash", "jetspec", "dspark"] = Field(
        default=..., description="How drafts are made. An engine is compiled for one method."
    )
    model: Text | None = Field(
        default=None, description="Draft checkpoint, named as a source; every method but `mtp` needs one."
    )
    num_speculative_tokens: Tokens | None = Field(
        default=None, description="Tokens proposed at once. Unset: what the engine was compiled for, or 6."
    )


class ModelSettings(Section):
    """One served model."""

    source: Text = Field(
        default=...,
        description="A name of `edgellm models list`, a Hugging Face id (`ORG/NAME`, `ORG/NAME@REVISION`, "
        "`ORG/NAME:GGUF`), a GGUF file, or a safetensors directory. "
        "A path that starts with `.` is taken from the configuration file's folder.",
    )
    name: ModelName | None = Field(
        default=None, description="What clients send as `model`. Unset: taken from the source."
    )
    kind: ModelKind = Field(
        default="auto",
        description="What it is for: `chat` (text), `embeddings`, `asr` (speech recognition by a Whisper model in "
        "CTranslate2's format, which needs the `audio` extra) or `tts` (speech by a Piper voice, which needs the "
        "`speech` extra, or by a speech model on TensorRT). `auto` goes by the source; a model that makes text and "
        "embeddings then does both.",
    )
    aliases: Annotated[tuple[ModelName, ...], Field(max_length=limits.ALIASES_MAX)] = Field(
        default=(),
        description="Further names that clients may send; answers carry `name`. No two models share a name.",
    )
    required: Flag = Field(
        default=True,
        description="The daemon ends when this model cannot be loaded at the start, and is ready only while it "
        "answers. An `on_demand` model is checked at the start too: its files, and whether memory could hold it. "
        "Off: the others are served without it.",
    )
    residency: Literal["always", "on_demand"] = Field(
        default="always",
        description="`always`: loaded at the start, and it stays. `on_demand`: loaded when a request asks for it, and "
        "unloaded when others need the memory (`[residency]`); its requests wait in its queue meanwhile.",
    )
    idle_timeout_seconds: Seconds | None = Field(
        default=None,
        description="Time without a request after which an `on_demand` model is unloaded, whoever needs the memory. "
        "Unset: it stays until others need the memory.",
    )
    runtime: Literal["auto", "native", "tensorrt"] = Field(
        default="auto", description="Runtime that loads the model; `auto` takes TensorRT where a supported GPU is."
    )
    executor: Literal["auto", "fused", "ggml"] = Field(
        default="auto",
        description="Executor of the native runtime: fused has CPU kernels of its own, ggml runs on its devices; "
        "auto takes ggml where it finds an accelerator.",
    )
    threads: Whole | None = Field(
        default=None, description="CPU threads of the native runtime. Unset: chosen from the CPUs this process may use."
    )
    replicas: Annotated[Whole, Field(ge=1, le=limits.REPLICAS_MAX)] = Field(
        default=1, description="Worker processes that each hold this model; requests go to the least busy one."
    )
    cpus: Annotated[Text, Field(pattern=limits.CPU_LIST_PATTERN)] | None = Field(
        default=None,
        description='CPUs of this model\'s workers, such as `"0-3,6"`. Unset: all that the daemon may use.',
    )
    max_input_len: Tokens | None = Field(
        default=None, description="Longest prompt in tokens. Unset: 4096, or what the model takes when that is less."
    )
    max_batch_size: Annotated[Whole, Field(ge=1, le=limits.BATCH_SEQUENCES_MAX)] | None = Field(
        default=None,
        description="Sequences that run together. Unset: 4 on the native runtime with in-flight batching, else 1.",
    )
    max_kv_cache_capacity: Tokens | None = Field(
        default=None, description="Tokens of prompt and answer of one sequence. Unset: 8192, or what the model takes."
    )
    quantisation: Literal["auto", "f32", "f16", "q8_0", "q4_0", "q4_1", "as-is"] | None = Field(
        default=None,
        description="Weight format a safetensors checkpoint is lowered to; `as-is` is that of a GGUF file. "
        "Unset: the runtime's default.",
    )
    enable_in_flight_batching: Flag | None = Field(
        default=None,
        description="Let requests join a running batch. Unset: on for the native runtime, off for TensorRT.",
    )
    enable_context_reuse: Flag | None = Field(
        default=None,
        description="Reuse the longest prefix seen before. Unset: on for the native runtime, off for TensorRT.",
    )
    context_reuse_max_records: Annotated[Whole, Field(ge=1, le=limits.CONTEXT_RECORDS_MAX)] | None = Field(
        default=None, description="Prefixes kept for reuse. Unset: the runtime's default."
    )
    context_reuse_recurrent_snapshot_pool_bytes: PoolBytes | None = Field(
        default=None, description="Memory for recurrent states of hybrid models on TensorRT. Unset: none."
    )
    context_reuse_partial_kv_snapshot_pool_bytes: PoolBytes | None = Field(
        default=None, description="Memory for prefixes that end within a page, on TensorRT. Unset: none."
    )
    max_image_tokens: Tokens | None = Field(
        default=None, description="Image tokens of one request that a TensorRT engine is compiled for."
    )
    max_image_tokens_per_image: Tokens | None = Field(
        default=None, description="Image tokens of one image that a TensorRT engine is compiled for."
    )
    max_lora_rank: Annotated[Whole, Field(ge=0, le=limits.LORA_RANK_MAX)] | None = Field(
        default=None,
        description="Largest rank of adapters that a TensorRT engine is compiled to take. Unset: none. This version "
        "loads no adapters: it is for programs that the engine is exported to.",
    )
    reduced_vocab_dir: Path | None = Field(
        default=None,
        description="Folder with the `vocab_map.safetensors` of a reduced vocabulary, as NVIDIA's "
        "`tensorrt-edgellm-reduce-vocab` makes it, that a TensorRT engine is compiled with.",
    )
    speculative_config: SpeculativeSettings | None = Field(
        default=None, description="Speculative decoding on TensorRT; on the command line a JSON object."
    )
    draft_top_k: Tokens | None = Field(
        default=None, description="Branches of a draft; 1 is a line. Unset: 10 for `eagle3`, else 1."
    )
    draft_step: Tokens | None = Field(
        default=None, description="Steps of a draft, where `num_speculative_tokens` is unset. Unset: 6."
    )
    verify_tree_size: Tokens | None = Field(
        default=None, description="Tokens the model checks at once. Unset: what the engine was compiled for."
    )
    max_verify_tree_size: Tokens | None = Field(
        default=None, description="Most tokens to check at once that an engine is compiled for."
    )
    max_draft_tree_size: Tokens | None = Field(
        default=None, description="Most tokens to propose at once that a draft engine is compiled for."
    )
    max_queued_requests: Annotated[Whole, Field(ge=0, le=limits.QUEUED_REQUESTS_MAX)] | None = Field(
        default=None, description="As in `[admission]`, for this model alone."
    )
    queue_timeout_seconds: Seconds | None = Field(
        default=None, description="As in `[admission]`, for this model alone."
    )
    request_timeout_seconds: Seconds | None = Field(
        default=None, description="As in `[admission]`, for this model alone."
    )
    reasoning_parser: Literal["auto", "none", "qwen3", "deepseek_r1", "muse_glimmer", "nemotron"] = Field(
        default="auto",
        description="How reasoning is told apart from the answer; `auto` goes by the model's chat template and name.",
    )
    tool_call_parser: Literal["auto", "generic", "hermes", "qwen3_xml", "nemotron", "openai"] = Field(
        default="auto", description="How tool calls are found in answers; `auto` goes by the chat template and name."
    )
    enable_auto_tool_choice: Flag = Field(
        default=True, description='Let the model call tools by itself; off, `tool_choice: "auto"` means `"none"`.'
    )
    sampling: SamplingSettings = Field(
        default=SamplingSettings(), description="Defaults of this model's sampling fields."
    )

    @field_validator("cpus")
    @classmethod
    def _ranges_go_up(cls, cpus: str | None) -> str | None:
        for part in (cpus or "").split(","):
            first, dash, last = part.partition("-")
            if dash and int(last) < int(first):
                raise ValueError(f"has the range {part}, which ends before it begins")
        return cpus

    @model_validator(mode="after")
    def _timeout_can_pass(self) -> ModelSettings:
        if self.idle_timeout_seconds is not None and self.residency == "always":
            raise SettingError("idle_timeout_seconds", 'needs residency = "on_demand": an "always" model stays loaded')
        return self

    @field_validator("threads")
    @classmethod
    def _threads_start_at_one(cls, value: int | None) -> int | None:
        if value is None:
            return value
        if value < 1:
            raise ValueError("must be at least 1; leave it out to let edgellm choose")
        if value > limits.THREADS_MAX:
            raise ValueError(f"must be at most {limits.THREADS_MAX}; leave it out to let edgellm choose")
        return value
