"""What is wrong with one setting of a table, found when the whole table is looked at."""

from __future__ import annotations


class SettingError(ValueError):
    """``setting`` is the key that the operator set and has to look at."""

    def __init__(self, setting: str, message: str) -> None:
        super().__init__(message)
        self.setting = setting
