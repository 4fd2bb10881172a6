"""Value types of the runtime contract that a script can fill: enums, and objects with fixed fields.

Objects refuse unknown attributes, getters of lists and maps give copies, enums are no ints.
"""

from __future__ import annotations

import enum
import io
import struct
import wave
from collections.abc import Sequence
from typing import Any, ClassVar


class FinishReason(enum.Enum):
    NOT_FINISHED = 0
    END_ID = 1
    LENGTH = 2
    CANCELLED = 3
    ERROR = 4
    STOP_WORDS = 5


class GuideType(enum.Enum):
    JSON_OBJECT = 0
    JSON_SCHEMA = 1
    REGEX = 2
    EBNF = 3
    STRUCTURAL_TAG = 4
    CHOICE = 5


class ToolChoiceMode(enum.Enum):
    NONE = 0
    AUTO = 1
    REQUIRED = 2
    FUNCTION = 3


class ShutdownMode(enum.Enum):
    DRAIN = 0
    CANCEL = 1


class ContextCacheLookupPolicy(enum.Enum):
    USE_CACHE = 0
    BYPASS = 1


class ContextCacheCommitPolicy(enum.Enum):
    INCLUDING_GENERATED_TOKENS = 0
    PREFILL_STATE_ONLY = 1


class SubmitError(Exception):
    pass


class Record:
    """A value object of the contract: fixed fields; lists and maps come out as copies."""

    FIELDS: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        for name, default in self.FIELDS.items():
            object.__setattr__(self, f"_{name}", default() if callable(default) else default)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self.FIELDS:
            raise AttributeError(name)
        value = object.__getattribute__(self, f"_{name}")
        return value.copy() if isinstance(value, (list, dict)) else value

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.FIELDS:
            raise AttributeError(name)
        if isinstance(value, str):
            try:
                value.encode("utf-8")
            except UnicodeEncodeError as error:
                raise TypeError(name) from error
        object.__setattr__(self, f"_{name}", value)


class MessageContent(Record):
    FIELDS: ClassVar[dict[str, Any]] = {"type": "", "content": ""}

    def __init__(self, type: str = "", content: str = "") -> None:
        super().__init__()
        self.type = type
        self.content = content


class MessageToolCall(Record):
    FIELDS: ClassVar[dict[str, Any]] = {
        "id": "",
        "type": "function",
        "name": "",
        "arguments": "",
        "arguments_is_string": True,
    }


class Message(Record):
    FIELDS: ClassVar[dict[str, Any]] = {
        "role": "",
        "contents": list,
        "reasoning_content": "",
        "has_reasoning_content": False,
        "tool_calls": list,
        "has_tool_calls": False,
        "tool_call_id": "",
        "name": "",
        "has_content": True,
        "content_is_array": False,
        "content_is_null": False,
    }


class ToolDefinition(Record):
    FIELDS: ClassVar[dict[str, Any]] = {
        "name": "",
        "description": "",
        "parameters": "{}",
        "strict": False,
        "has_description": True,
        "has_parameters": True,
        "has_strict": False,
    }


class ToolChoice(Record):
    FIELDS: ClassVar[dict[str, Any]] = {"mode": ToolChoiceMode.AUTO, "function_name": ""}


class GuidedDecodingParams(Record):
    FIELDS: ClassVar[dict[str, Any]] = {"type": GuideType.JSON_OBJECT, "guide": ""}

    def __init__(self, type: GuideType = GuideType.JSON_OBJECT, guide: str = "") -> None:
        super().__init__()
        self.type = type
        self.guide = guide


class RequestExtensions(Record):
    FIELDS: ClassVar[dict[str, Any]] = {
        "token_ids": None,
        "min_p": 0.0,
        "frequency_penalty": 0.0,
        "presence_penalty": 0.0,
        "repetition_penalty": 1.0,
        "ignore_eos": False,
        "embeddings": False,
        "cache_domain": "",
    }


class PlainRequest(Record):
    FIELDS: ClassVar[dict[str, Any]] = {
        "messages": list,
        "image_buffers": list,
        "audio_buffers": list,
        "stop_strings": list,
        "logit_bias": dict,
        "guided_decoding": None,
        "sampling_seed": None,
    }


class ExtendedRequest(PlainRequest):
    FIELDS: ClassVar[dict[str, Any]] = {**PlainRequest.FIELDS, "extensions": RequestExtensions}


class LLMGenerationRequest(Record):
    FIELDS: ClassVar[dict[str, Any]] = {
        "requests": list,
        "temperature": 0.0,
        "top_p": 0.0,
        "top_k": 0,
        "max_generate_length": 0,
        "apply_chat_template": True,
        "add_generation_prompt": True,
        "enable_thinking": False,
        "reasoning_effort": "",
        "tools": list,
        "tool_choice": ToolChoice,
        "parallel_tool_calls": True,
        "disable_spec_decode": False,
        "skip_special_tokens": True,
        "stream_channels": list,
        "num_logprobs": 0,
        "context_cache_lookup_policy": ContextCacheLookupPolicy.USE_CACHE,
        "context_cache_commit_policy": ContextCacheCommitPolicy.INCLUDING_GENERATED_TOKENS,
        "context_cache_replay_tail_length": 0,
    }


class ContextCacheConfig(Record):
    FIELDS: ClassVar[dict[str, Any]] = {
        "enabled": False,
        "max_records": 1024,
        "recurrent_snapshot_pool_bytes": 0,
        "partial_kv_snapshot_pool_bytes": 0,
    }


class OmniAudioParams(Record):
    FIELDS: ClassVar[dict[str, Any]] = {
        "talker_temperature": 0.9,
        "talker_top_k": 50,
        "talker_top_p": 1.0,
        "repetition_penalty": 1.05,
        "max_audio_length": 4096,
        "speaker_name": "",
        "codec_chunk_frames": 10,
        "talker_prefill_threshold": 4,
    }


class AudioData(Record):
    FIELDS: ClassVar[dict[str, Any]] = {"sample_rate": 24000, "num_samples": 0}


class ImageData(Record):
    FIELDS: ClassVar[dict[str, Any]] = {
        "width": 0,
        "height": 0,
        "channels": 0,
        "frames": 1,
        "is_video": False,
        "timestamps": list,
        "fps": 1.0,
        "do_resize": True,
    }


def load_audio_buffer_from_bytes(data: bytes) -> AudioData:
    sound = AudioData()
    with wave.open(io.BytesIO(data), "rb") as opened:
        sound.sample_rate = opened.getframerate()
        sound.num_samples = opened.getnframes()
    return sound


def load_image_from_bytes(data: bytes) -> ImageData:
    assert data[:2] == b"BM"
    image = ImageData()
    image.width, image.height = struct.unpack_from("<ii", data, 18)
    image.channels = 3
    return image


def load_video_from_array(array: Any, fps: float = 1.0, timestamps: Sequence[float] = ()) -> ImageData:
    video = ImageData()
    video.frames, video.height, video.width, video.channels = array.shape
    video.is_video = True
    video.fps = fps
    video.timestamps = list(timestamps)
    return video
