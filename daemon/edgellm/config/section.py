"""Section: what every table of the configuration is made of."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from edgellm.config import limits

Flag = Annotated[bool, Field(strict=True)]
Whole = Annotated[int, Field(strict=True)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Seconds = Annotated[float, Field(strict=True, gt=0, le=limits.DURATION_SECONDS_MAX, allow_inf_nan=False)]
Text = Annotated[str, Field(strict=True, min_length=1)]
Tokens = Annotated[int, Field(strict=True, ge=1, le=limits.TOKENS_MAX)]
ModelName = Annotated[Text, Field(max_length=limits.MODEL_NAME_CHARACTERS_MAX, pattern=limits.MODEL_NAME_PATTERN)]
PoolBytes = Annotated[int, Field(strict=True, ge=0, le=limits.SNAPSHOT_POOL_BYTES_MAX)]


class Section(BaseModel):
    """A table of the configuration: unknown keys are refused, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, protected_namespaces=())
