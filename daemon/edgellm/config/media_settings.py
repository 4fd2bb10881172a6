"""The table of media in requests: where they may come from, and how much of them there may be."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from edgellm.config import limits
from edgellm.config.section import Seconds, Section, Text, Whole

MediaBytes = Annotated[Whole, Field(ge=limits.MEDIA_BYTES_MIN, le=limits.MEDIA_BYTES_MAX)]


class MediaSettings(Section):
    """Images, videos and sounds in chats."""

    local_root: Path | None = Field(
        default=None,
        description="Folder of this machine whose files requests may name, by path or `file://` URL; whatever leads "
        "out of it is refused with 403. Unset: none.",
    )
    remote_hosts: tuple[Text, ...] = Field(
        default=(),
        description="Hosts that media may be fetched from over HTTP(S): names, or addresses, with a port where it is "
        'not 80 or 443, such as `"192.168.1.5:8080"`; `"*"` is every host of the internet. Names must mean public '
        "addresses, whoever answers for them. Empty: nothing is fetched.",
    )
    remote_deadline_seconds: Seconds = Field(default=20.0, description="Time that fetching one of them may take.")
    request_bytes_max: MediaBytes = Field(
        default=288 * 2**20, description="Media of one request, beside the text that `request_body_bytes_max` bounds."
    )
    bytes_max: MediaBytes = Field(
        default=512 * 2**20, description="Memory for media of all requests together; beyond it the answer is 429."
    )
