"""Names of a checkpoint's files, and the most that is read of the small ones; without numpy, which reads weights."""

from __future__ import annotations

CONFIG_FILE = "config.json"
SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
GENERATION_CONFIG_FILE = "generation_config.json"
TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
SPECIAL_TOKENS_FILE = "special_tokens_map.json"
CHAT_TEMPLATE_FILE = "chat_template.jinja"
PREPROCESSOR_FILE = "preprocessor_config.json"  # of images
PROCESSOR_FILE = "processor_config.json"
PROCESSOR_TEMPLATE_FILE = "chat_template.json"  # of older processors of images and text
MODULES_FILE = "modules.json"  # of sentence-transformers
MAX_SMALL_FILE_BYTES = 16 << 20
