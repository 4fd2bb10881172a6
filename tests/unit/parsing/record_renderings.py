"""Records what transformers makes of the templates and conversations here. Run by hand; needs transformers."""

from __future__ import annotations

import json
from pathlib import Path

from jinja2.exceptions import TemplateError
from tests.unit.parsing.chat_templates import CONVERSATIONS, SPECIAL_TOKENS, TEMPLATES

RENDERINGS = Path(__file__).with_name("renderings.json")


def main() -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    recorded: dict[str, dict[str, str | None]] = {}
    for name, template in TEMPLATES.items():
        recorded[name] = {}
        for key, arguments in CONVERSATIONS.items():
            options = {"add_generation_prompt": True, **arguments, **SPECIAL_TOKENS}
            messages = options.pop("messages")
            try:
                rendered, _ = render_jinja_template([messages], chat_template=template, **options)
                recorded[name][key] = rendered[0]
            except (TemplateError, TypeError):
                recorded[name][key] = None
    RENDERINGS.write_text(json.dumps(recorded, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
