"""Settings: everything an operator can set, validated once and frozen. Each field's description is its reference."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from edgellm.config import limits
from edgellm.config.cache_location import BAKED_ENGINES_DIR, default_cache_dir
from edgellm.config.network_names import require_host, require_origin
from edgellm.config.setting_error import SettingError

DEFAULT_MODEL_SOURCE = "smollm2-135m-instruct"
PAIRING_FOLDER_NAME = "pairing"

Flag = Annotated[bool, Field(strict=True)]
Whole = Annotated[int, Field(strict=True)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Seconds = Annotated[float, Field(strict=True, gt=0, le=limits.DURATION_SECONDS_MAX, allow_inf_nan=False)]
Text = Annotated[str, Field(strict=True, min_length=1)]
Tokens = Annotated[int, Field(strict=True, ge=1, le=limits.TOKENS_MAX)]
ModelName = Annotated[Text, Field(pattern=limits.MODEL_NAME_PATTERN)]
PoolBytes = Annotated[int, Field(strict=True, ge=0, le=limits.SNAPSHOT_POOL_BYTES_MAX)]


class Section(BaseModel):
    """A table of the configuration: unknown keys are refused, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, protected_namespaces=())


class ServerSettings(Section):
    """Where and how HTTP is served."""

    host: Text | None = Field(
        default=None, description="Address to bind. Unset: 127.0.0.1 without API keys, 0.0.0.0 with API keys."
    )
    port: Annotated[Whole, Field(ge=0, le=limits.PORT_MAX)] = Field(
        default=8000, description="TCP port to bind; 0 takes a free one and prints it."
    )
    api_keys_file: Path | None = Field(
        default=None,
        description="API keys, one client a line as `name:key` or `name:sha256:HEX`; closed to other users. "
        "`edgellm keys` makes and revokes them; changes hold at once.",
    )
    tls_certificate_file: Path | None = Field(
        default=None,
        description="Certificate (PEM, with its chain) to serve HTTPS with; needs `tls_key_file`. "
        "`edgellm tls init` makes both; a renewed one holds at once.",
    )
    tls_key_file: Path | None = Field(
        default=None, description="Private key (PEM, without a password) of the certificate; closed to other users."
    )
    tls_authority_file: Path | None = Field(
        default=None,
        description="Certificate (PEM) of the private authority that vouches for the server's; clients that pair are "
        "given it. Unset: `ca.crt` beside `tls_certificate_file`, where there is one.",
    )
    insecure_no_keys: Flag = Field(
        default=False,
        description="Allow a bind beyond this machine without API keys. Anyone who reaches the port may use it.",
    )
    unknown_fields: Literal["refuse", "ignore"] = Field(
        default="refuse", description="What an unknown request field does: a 400 that names it, or nothing."
    )
    request_body_bytes_max: Annotated[
        Whole, Field(ge=limits.REQUEST_BODY_BYTES_MIN, le=limits.REQUEST_BODY_BYTES_MAX)
    ] = Field(default=8 * 2**20, description="Largest request body; beyond it the answer is 413.")
    stored_responses_max: Annotated[Whole, Field(ge=0, le=limits.STORED_RESPONSES_MAX)] = Field(
        default=1024,
        description="Answers of `/v1/responses` kept in memory for `previous_response_id`; the oldest go first. "
        "0 keeps none and refuses the field.",
    )
    stored_responses_bytes_max: Annotated[Whole, Field(ge=0, le=limits.STORED_RESPONSES_BYTES_MAX)] = Field(
        default=32 * 2**20, description="Memory for them, with the conversations they end; 0 keeps none."
    )
    cors_origins: tuple[Text, ...] = Field(
        default=(), description='Origins a browser may call from; `"*"` allows every one.'
    )
    allowed_hosts: tuple[Text, ...] = Field(
        default=(),
        description="Names accepted in the Host header, beside this machine's own names, `.local` and addresses.",
    )
    trusted_gateways: tuple[Text, ...] = Field(
        default=(),
        description="Addresses or networks (CIDR) of gateways, such as `10.0.0.5` or `10.0.1.0/24`. What they say in "
        "`X-Forwarded-For` or `Forwarded` tells limits by address and the log who the client is; anybody else's is "
        "passed over.",
    )
    requests_per_minute: Annotated[Whole, Field(ge=1, le=limits.REQUESTS_PER_MINUTE_MAX)] | None = Field(
        default=None, description="Requests one client may send in a minute; beyond it the answer is 429. Unset: any."
    )
    concurrent_requests_per_client: Annotated[Whole, Field(ge=1, le=limits.CONNECTIONS_MAX)] | None = Field(
        default=None,
        description="Requests one client may have running and waiting; beyond it the answer is 429. Unset: any.",
    )
    connections_max: Annotated[Whole, Field(ge=1, le=limits.CONNECTIONS_MAX)] = Field(
        default=1024, description="Connections served at the same time."
    )
    connections_per_address_max: Annotated[Whole, Field(ge=1, le=limits.CONNECTIONS_MAX)] = Field(
        default=512, description="Connections of one address; raise it where many clients come through one proxy."
    )
    header_deadline_seconds: Seconds = Field(default=10.0, description="Time a client has to send a request's headers.")
    body_deadline_seconds: Seconds = Field(default=60.0, description="Time a client has to send a request's body.")
    idle_deadline_seconds: Seconds = Field(default=75.0, description="Time a kept-alive connection may be idle.")
    write_deadline_seconds: Seconds = Field(
        default=60.0, description="Time a client has to take a piece of the answer."
    )

    @field_validator("trusted_gateways")
    @classmethod
    def _gateways_are_networks(cls, gateways: tuple[str, ...]) -> tuple[str, ...]:
        for gateway in gateways:
            try:
                ipaddress.ip_network(gateway)
            except ValueError as error:
                raise ValueError(f"holds what is no address or network: {error}") from None
        return gateways

    @field_validator("cors_origins")
    @classmethod
    def _origins_can_match(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for origin in origins:
            require_origin(origin)
        return origins

    @field_validator("allowed_hosts")
    @classmethod
    def _hosts_can_match(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            require_host(host)
        return hosts

    @model_validator(mode="after")
    def _certificate_has_its_key(self) -> ServerSettings:
        files = {"tls_certificate_file": self.tls_certificate_file, "tls_key_file": self.tls_key_file}
        said = [name for name, file in files.items() if file is not None]
        if len(said) == 1:
            (missing,) = files.keys() - said
            option = f"--{missing.replace('_', '-')}"
            raise SettingError(said[0], f"needs {missing} ({option}) too; edgellm tls init makes both")
        return self


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


class EngineSettings(Section):
    """Engine bundles: where they are looked for, how many are kept, and whether a start may build one."""

    cache_max_size_gb: Annotated[Number, Field(gt=0, le=limits.ENGINE_CACHE_GB_MAX)] = Field(
        default=50.0,
        description="Most the engines below `cache_dir` may take, in GB of 2^30 bytes. Beyond it the least recently "
        "used go; pinned and loaded ones stay.",
    )
    build_on_start: Flag = Field(
        default=True,
        description="Build a missing engine, and fetch a missing model, when a model is loaded. Off: the start ends "
        "with exit code 72, or 66 for a model, and `edgellm engine build` makes it.",
    )
    clear_on_start: Flag = Field(
        default=False, description="Remove every engine below `cache_dir` at the start, so that all are built anew."
    )
    read_only_dirs: tuple[Text, ...] = Field(
        default=(BAKED_ENGINES_DIR,),
        description="Folders of engines that came with an image: searched first, used in place, never changed.",
    )
    trusted_keys_file: Path | None = Field(
        default=None,
        description="Keys that engine archives must be signed with to be imported, one a line as "
        "`NAME:ed25519:BASE64`. Unset: archives are checked against their own manifest alone.",
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
        "ended and replaced. Unset: no limit of its own.",
    )
    restarts_max: Annotated[Whole, Field(ge=0, le=limits.RESTARTS_MAX)] = Field(
        default=5, description="Replacements within `restart_window_seconds`; after that the replica stays down."
    )
    restart_window_seconds: Seconds = Field(default=600.0, description="Time over which replacements are counted.")


class RecordsSettings(Section):
    """A line of JSON for every request that ended. Off unless `file` is set."""

    file: Path | None = Field(
        default=None,
        description="File that gets the lines, closed to other users; SIGHUP opens it anew. One that cannot "
        "be written ends the start; later that costs the lines, never a request. "
        "`GET /v1/records/ID` shows a client its latest ones.",
    )
    max_bytes: Annotated[Whole, Field(ge=limits.RECORDS_FILE_BYTES_MIN, le=limits.RECORDS_FILE_BYTES_MAX)] = Field(
        default=64 * 2**20, description="Size of the file at which it is put aside as `FILE.1` and begun anew."
    )
    files_kept: Annotated[Whole, Field(ge=0, le=limits.RECORDS_FILES_MAX)] = Field(
        default=4, description="Files put aside that stay; the oldest goes."
    )
    include_text: Flag = Field(
        default=False, description="Put prompts and answers into the file. Off, no text of a request is kept anywhere."
    )


class PairingSettings(Section):
    """How clients without a key get one, with a code of `edgellm pair-code`. Needs API keys and a private authority."""

    enabled: Flag = Field(default=True, description="Whether a pairing code can be opened.")
    folder: Path | None = Field(
        default=None,
        description="Where the open code and the keys of paired clients are kept. Unset: `pairing` in `cache_dir`.",
    )


class LogSettings(Section):
    """What is written to standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe level written."
    )
    format: Literal["text", "json"] = Field(default="text", description="Lines for people or one JSON object a line.")


class Settings(Section):
    """The whole configuration."""

    cache_dir: Path = Field(
        default_factory=lambda: default_cache_dir(os.environ),
        description="Where models and bundles are kept. Unset: `$XDG_CACHE_HOME/edgellm`, else `~/.cache/edgellm`.",
    )
    admin_socket: Path | None = Field(
        default=None,
        description="Unix socket of `edgellm reload` and `pair-code`, for root and the daemon's own user. Unset: "
        "`edgellm/admin.sock` below `$XDG_RUNTIME_DIR`, else below `/run`.",
    )
    server: ServerSettings = Field(default=ServerSettings(), description="HTTP server.")
    admission: AdmissionSettings = Field(default=AdmissionSettings(), description="Queue and deadlines.")
    engines: EngineSettings = Field(default=EngineSettings(), description="Engine bundles.")
    residency: ResidencySettings = Field(default=ResidencySettings(), description="Memory for models.")
    workers: WorkerLimits = Field(default=WorkerLimits(), description="Worker processes.")
    records: RecordsSettings = Field(default=RecordsSettings(), description="Records of requests.")
    pairing: PairingSettings = Field(default=PairingSettings(), description="Pairing of clients.")
    log: LogSettings = Field(default=LogSettings(), description="Log.")
    models: Annotated[tuple[ModelSettings, ...], Field(max_length=limits.MODELS_MAX)] = Field(
        default=(),
        description=f"Models to serve, one `[[models]]` table each. None: {DEFAULT_MODEL_SOURCE}.",
    )

    @field_validator("models")
    @classmethod
    def _names_differ(cls, models: tuple[ModelSettings, ...]) -> tuple[ModelSettings, ...]:
        names = [name for model in models for name in (model.name, *model.aliases) if name is not None]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f'has the name "{name}" twice; each served model needs its own')
        return models

    @property
    def pairing_folder(self) -> Path:
        return self.pairing.folder or self.cache_dir / PAIRING_FOLDER_NAME

    @property
    def served_models(self) -> tuple[ModelSettings, ...]:
        return self.models or (ModelSettings(source=DEFAULT_MODEL_SOURCE),)
