"""The codec of a bundle, made of the tokenizer and template files in it.

A tokenizer takes tens of megabytes and a while to read: replicas, models of one bundle and a model that is loaded again
share the codec for as long as one of them keeps it.
"""

from __future__ import annotations

import threading
from pathlib import Path
from weakref import WeakValueDictionary

from edgellm.engines.bundle import CHAT_TEMPLATE_FILE, TOKENIZER_CONFIG_FILE, TOKENIZER_FILE
from edgellm.engines.json_file import read_object, read_text_file
from edgellm.engines.visual_part import IMAGE_PLACEHOLDER, VISUAL_FOLDER
from edgellm.errors import CheckpointError, UnsupportedModelError
from edgellm.parsing.prompt_codec import PromptCodec

MAX_CONFIG_BYTES = 16 << 20

_Key = tuple[Path, tuple[tuple[int, ...], ...]]

_codecs: WeakValueDictionary[_Key, PromptCodec] = WeakValueDictionary()
_reading = threading.Lock()  # who comes while one is read gets that one


def bundle_codec(directory: Path) -> PromptCodec:
    """Raises CheckpointError or UnsupportedModelError naming the file that is missing or wrong."""
    key = _key(directory)
    with _reading:
        codec = _codecs.get(key)
        if codec is None:
            codec = _codecs[key] = _read(directory)
        return codec


def _key(directory: Path) -> _Key:
    """The files as they are now: what replaced one of them is read anew."""
    files = (TOKENIZER_FILE, TOKENIZER_CONFIG_FILE, CHAT_TEMPLATE_FILE, VISUAL_FOLDER)
    return directory.absolute(), tuple(_identity(directory / name) for name in files)


def _identity(path: Path) -> tuple[int, ...]:
    try:
        status = path.stat()
    except OSError:
        return ()  # reading it says why, if it has to be there
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _read(directory: Path) -> PromptCodec:
    tokenizer_json = read_text_file(directory / TOKENIZER_FILE)
    config_path, template_path = directory / TOKENIZER_CONFIG_FILE, directory / CHAT_TEMPLATE_FILE
    config = read_object(config_path, MAX_CONFIG_BYTES) if config_path.exists() else {}
    template = read_text_file(template_path, MAX_CONFIG_BYTES) if template_path.exists() else None
    sees = (directory / VISUAL_FOLDER).is_dir()
    modalities, placeholders = (("text", "image"), (IMAGE_PLACEHOLDER,)) if sees else (("text",), ())
    try:
        return PromptCodec(tokenizer_json, config, template, modalities=modalities, placeholders=placeholders)
    except (CheckpointError, UnsupportedModelError) as error:
        raise type(error)(f"{directory}: {error}") from None
