"""Chat templates of the kinds that models have, written for these tests, and conversations to render with them.

``renderings.json`` holds what transformers makes of every pair; ``python -m tests.unit.parsing.record_renderings``
writes it anew, in an environment that has transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

# One system message, taken out first; a begin token of its own; roles must alternate.
ALTERNATING = """
{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set loop_messages = messages[1:] %}
    {%- set system_message = messages[0]['content'] | trim + '\n\n' %}
{%- else %}
    {%- set loop_messages = messages %}
    {%- set system_message = '' %}
{%- endif %}
{%- for message in loop_messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Roles must alternate user/assistant/user/assistant') }}
    {%- endif %}
    {%- if message['role'] == 'user' %}
        {{- '[INST] ' + (system_message if loop.first else '') + message['content'] | trim + ' [/INST]' }}
    {%- elif message['role'] == 'assistant' %}
        {{- ' ' + message['content'] | trim + eos_token }}
    {%- else %}
        {{- raise_exception('Only user and assistant roles are known, not ' + message['role']) }}
    {%- endif %}
{%- endfor %}
"""

# Tools, reasoning, tool results grouped, thinking switched: the shape of current reasoning models.
REASONING = """
{%- macro render_content(content) %}
    {%- if content is string %}
        {{- content }}
    {%- elif content is not none %}
        {%- for part in content %}
            {%- if part.type == 'text' %}{{- part.text }}{%- endif %}
        {%- endfor %}
    {%- endif %}
{%- endmacro %}
{%- set ns = namespace(last_user=-1, index=0) %}
{%- for message in messages %}
    {%- if message.role == 'user' %}{%- set ns.last_user = loop.index0 %}{%- endif %}
{%- endfor %}
{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}
        {{- render_content(messages[0].content) + '\n\n' }}
    {%- endif %}
    {{- '# Tools\n<tools>' }}
    {%- for tool in tools %}
        {{- '\n' }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- '\n</tools><|im_end|>\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + render_content(messages[0].content) + '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + render_content(message.content) + '<|im_end|>\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\n' }}
        {%- if message.reasoning_content is string and loop.index0 > ns.last_user %}
            {{- '<think>\n' + message.reasoning_content.strip('\n') + '\n</think>\n\n' }}
        {%- endif %}
        {{- render_content(message.content) }}
        {%- for tool_call in message.tool_calls or [] %}
            {%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
            {{- '\n<tool_call>\n{"name": "' + tool_call.name + '", "arguments": ' }}
            {%- if tool_call.arguments is string %}
                {{- tool_call.arguments }}
            {%- else %}
                {{- tool_call.arguments | tojson }}
            {%- endif %}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or loop.previtem.role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\n<tool_response>\n' + render_content(message.content) + '\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}
{%- endif %}
"""

# Arguments only as text, tools indented, break and continue, filters with options.
TEXT_ARGUMENTS = """
{%- for message in messages -%}
    {%- if message.role == 'system' -%}{%- continue -%}{%- endif -%}
    {%- if loop.index > 40 -%}{%- break -%}{%- endif -%}
    {{ '<' ~ message.role | upper ~ '>' }}
    {%- if message.tool_calls is defined and message.tool_calls -%}
        {%- for call in message.tool_calls -%}
            {{ call.function.name ~ '(' + call.function.arguments + ')' }}{{ ', ' if not loop.last }}
        {%- endfor -%}
    {%- else -%}
        {{ message.content }}
    {%- endif %}
{% endfor -%}
{% if tools %}{{ tools | map(attribute='function') | map(attribute='name') | sort | join(', ') }}
{{ tools[0] | tojson(indent=4) }}{% endif %}
{% generation %}{{ reasoning_effort | default('medium') }}{% endgeneration %}
"""

# Content only as parts.
PARTS_ONLY = """
{%- for message in messages -%}
    {{ message.role }}:
    {%- for part in message.content -%}
        {%- if part['type'] == 'text' -%}{{ part['text'] }}{%- endif -%}
    {%- endfor -%}
    {{ ';' }}
{%- endfor -%}
"""

TEMPLATES: Mapping[str, str] = {
    "chatml": CHATML,
    "alternating": ALTERNATING,
    "reasoning": REASONING,
    "text_arguments": TEXT_ARGUMENTS,
    "parts_only": PARTS_ONLY,
}
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}

WEATHER_TOOL: Mapping[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Wetter in <Köln> & 'anderswo' \"heute\"",
        "parameters": {"type": "object", "properties": {"city": {"type": "string", "enum": ["Köln", "東京"]}}},
    },
}
TIME_TOOL: Mapping[str, Any] = {"type": "function", "function": {"name": "time", "parameters": {"type": "object"}}}


def call(arguments: object, **message: Any) -> dict[str, Any]:
    function = {"name": "weather", "arguments": arguments}
    return {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": function}], **message}


USER: Mapping[str, Any] = {"role": "user", "content": "  Hi <b>&amp; 'you'  \n"}
ANSWER: Mapping[str, Any] = {"role": "assistant", "content": "Grüße 👋"}
AGAIN: Mapping[str, Any] = {"role": "user", "content": "And {{ 1 + 1 }}?"}
SYSTEM: Mapping[str, Any] = {"role": "system", "content": " Be brief. "}
PARTS: Mapping[str, Any] = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}

# Each has what the arguments of ``ChatTemplate.render`` are.
CONVERSATIONS: Mapping[str, Mapping[str, Any]] = {
    "one": {"messages": [USER]},
    "turns": {"messages": [SYSTEM, USER, ANSWER, AGAIN]},
    "no_prompt": {"messages": [USER, ANSWER], "add_generation_prompt": False},
    "parts": {"messages": [PARTS]},
    "tools": {"messages": [SYSTEM, USER], "tools": [WEATHER_TOOL, TIME_TOOL]},
    "tool_turn": {
        "messages": [
            USER,
            call({"city": "Köln", "days": 2}, content=None, reasoning_content="Hm.\n"),
            {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
            {"role": "tool", "tool_call_id": "c1", "content": "warm"},
        ],
        "tools": [WEATHER_TOOL],
    },
    "text_call": {"messages": [USER, call('{"city":"Köln"}', content="")]},
    "no_thinking": {"messages": [USER], "enable_thinking": False},
    "effort": {"messages": [USER], "reasoning_effort": "high", "enable_thinking": True},
    "two_users": {"messages": [USER, AGAIN]},
}
