"""Limits of a request's fields, each named once; those of messages, tools and sampling are the runtime's.

Sizes of connections and bodies are settings.
"""

from __future__ import annotations

from typing import Final

from edgellm.parsing.messages import MESSAGES_MAX as MESSAGES_MAX
from edgellm.parsing.messages import PARTS_MAX as PARTS_MAX
from edgellm.runtime.sampling_params import LOGIT_BIAS_ENTRIES_MAX as LOGIT_BIAS_ENTRIES_MAX
from edgellm.runtime.sampling_params import LOGIT_BIAS_MAX as LOGIT_BIAS_MAX
from edgellm.runtime.sampling_params import PENALTY_MAX as PENALTY_MAX
from edgellm.runtime.sampling_params import REPETITION_PENALTY_MAX as REPETITION_PENALTY_MAX
from edgellm.runtime.sampling_params import SEED_MAX as SEED_MAX
from edgellm.runtime.sampling_params import STOP_BYTES_MAX as STOP_BYTES_MAX
from edgellm.runtime.sampling_params import STOP_STRINGS_MAX as STOP_STRINGS_MAX
from edgellm.runtime.sampling_params import TEMPERATURE_MAX as TEMPERATURE_MAX
from edgellm.runtime.sampling_params import TOP_LOGPROBS_MAX as TOP_LOGPROBS_MAX
from edgellm.runtime.speech_front_end import SPEECH_INPUT_CHARACTERS_MAX as SPEECH_INPUT_CHARACTERS_MAX
from edgellm.runtime.speech_front_end import SPEECH_SPEED_MAX as SPEECH_SPEED_MAX
from edgellm.runtime.speech_front_end import SPEECH_SPEED_MIN as SPEECH_SPEED_MIN
from edgellm.runtime.tools import TOOLS_MAX as TOOLS_MAX

JSON_SEPARATORS_MAX: Final = 2**19  # commas and opening brackets of a body: what parsing it may cost
INLINE_BODY_BYTES: Final = 16 * 2**10  # parsed on the event loop; larger ones in a thread
AUDIO_FILE_BYTES_MAX: Final = 25 * 2**20
FORM_TEXT_BYTES_MAX: Final = 64 * 2**10  # fields and headers of parts, beside the file
UPLOAD_BYTES_MAX: Final = AUDIO_FILE_BYTES_MAX + 2 * FORM_TEXT_BYTES_MAX  # a form with its file
UPLOADS_BYTES_MAX: Final = 8 * AUDIO_FILE_BYTES_MAX  # held of all files, coming, waiting and heard
BOUNDARY_BYTES_MAX: Final = 70  # as RFC 2046 has it
AUDIO_PROMPT_CHARACTERS_MAX: Final = 4096
LANGUAGE_CHARACTERS_MAX: Final = 16
CHOICES_MAX: Final = 8
PROMPTS_MAX: Final = 64
INPUTS_MAX: Final = 2048  # of one request for embeddings
SEQUENCES_MAX: Final = 64  # of one request: its prompts times n
BLOCKS_MAX: Final = 256  # of an Anthropic message: text, calls and results of one turn together
TOOL_CALLS_MAX: Final = 128
FUNCTION_NAME_PATTERN: Final = r"^[a-zA-Z0-9_.-]{1,128}$"
INT32_MAX: Final = 2**31 - 1
NAME_CHARACTERS_MAX: Final = 256
METADATA_ENTRIES_MAX: Final = 16
METADATA_KEY_CHARACTERS_MAX: Final = 64
METADATA_VALUE_CHARACTERS_MAX: Final = 512
IDENTIFIER_CHARACTERS_MAX: Final = 1024  # of users and caches, which clients make up
REQUEST_ID_CHARACTERS_MAX: Final = 128
CLIENTS_REMEMBERED_MAX: Final = 16_384  # whose rate is limited; beyond it the quietest are forgotten
FIRST_PROBE_SECONDS: Final = 0.2  # of whether a client that sends no more is still there
FURTHER_PROBE_SECONDS: Final = 5.0
LEADING_ZEROS_MAX: Final = 8  # of a chunk length: parsers take 16 digits and more
LINGER_SECONDS: Final = 2.0  # reading on after a refusal, so that the client gets to see it
