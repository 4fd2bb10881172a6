"""The tables of what is written down: the log, and records of requests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from edgellm.config import limits
from edgellm.config.section import Flag, Section, Whole


class RecordsSettings(Section):
    """A line of JSON for every request that ended. Off unless `file` is set."""

    file: Path | None = Field(
        default=None,
        description="File that gets the lines, closed to other users; SIGHUP opens it anew. One that cannot "
        "be written ends the start, and a reload that names it; later that costs the lines, never a request. "
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


class LogSettings(Section):
    """What is written to standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe level written."
    )
    format: Literal["text", "json"] = Field(default="text", description="Lines for people or one JSON object a line.")
