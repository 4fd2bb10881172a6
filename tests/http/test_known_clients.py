"""Bodies that well-known programs send, written from their public documentation and sources, not recorded.

Each is sent as it is to the real daemon, which must stream an answer; the reader leaves once it has seen some of it.
"""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from tests.http.daemon_process import MODEL, Daemon

EVENTS_READ = 6
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
JSON_SCHEMA = {"$schema": "http://json-schema.org/draft-07/schema#", "additionalProperties": False, **SCHEMA}


def function(name: str) -> dict[str, Any]:
    return {"name": name, "description": f"The tool {name}.", "parameters": SCHEMA}


OPEN_WEBUI = {
    "stream": True,
    "model": MODEL,
    "messages": [{"role": "system", "content": "User's name: Ada"}, {"role": "user", "content": "Say hello."}],
    "stream_options": {"include_usage": True},
    "tools": [{"type": "function", "function": function("get_current_time")}],
}
OPEN_WEBUI_TITLE = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "### Task:\nGenerate a title for this chat as JSON."}],
    "stream": True,
    "max_completion_tokens": 1000,
    "temperature": 0.7,
}
CONTINUE_CHAT = {
    "messages": [
        {"role": "system", "content": "You are in chat mode."},
        {"role": "user", "content": [{"type": "text", "text": "Explain this file."}]},
    ],
    "model": MODEL,
    "max_tokens": 4096,
    "temperature": 0.5,
    "top_p": 0.9,
    "frequency_penalty": 0,
    "presence_penalty": 0,
    "stream": True,
    "stop": ["<|im_end|>"],
    "tools": [{"type": "function", "function": {**function("read_file"), "strict": False}}],
    "parallel_tool_calls": False,
}
CONTINUE_AUTOCOMPLETE = {
    "model": MODEL,
    "prompt": "def add(a, b):\n    return",
    "max_tokens": 2048,
    "temperature": 0.01,
    "stream": True,
    "stop": ["/src/", "```"],
}
HOME_ASSISTANT = {
    "model": MODEL,
    "input": [
        {"type": "message", "role": "developer", "content": "You are a voice assistant for Home Assistant."},
        {"type": "message", "role": "user", "content": "turn on the kitchen light"},
    ],
    "max_output_tokens": 3000,
    "top_p": 1.0,
    "temperature": 1.0,
    "user": "01JABCDEF",
    "store": False,
    "stream": True,
    "tools": [{"type": "function", "strict": False, **function("HassTurnOn")}],
    "reasoning": {"effort": "low", "summary": "auto"},
    "include": ["reasoning.encrypted_content"],
}
CODEX = {
    "model": MODEL,
    "instructions": "You are a coding agent running in a terminal.",
    "input": [
        {
            "type": "message",
            "role": "developer",
            "content": [{"type": "input_text", "text": "<permissions>Ask first.</permissions>"}],
        },
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "<environment_context><cwd>/src</cwd></environment_context>"}],
        },
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "list the files"}]},
        {"type": "reasoning", "summary": [], "encrypted_content": None},
        {
            "type": "function_call",
            "name": "exec_command",
            "arguments": '{"name":"ls"}',
            "call_id": "call_1",
        },
        {"type": "function_call_output", "call_id": "call_1", "output": "Exit code: 0\nOutput:\nmain.py\n"},
    ],
    "tools": [
        {"type": "function", "strict": False, **function("exec_command")},
        {"type": "function", "strict": False, **function("update_plan")},
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": False,
    "reasoning": {"effort": "medium", "summary": "auto"},
    "store": False,
    "stream": True,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "0199c6a5-0000-7000-8000-000000000000",
    "client_metadata": {"session": "1"},
}
CLAUDE_CODE = {
    "model": MODEL,
    "max_tokens": 32000,
    "stream": True,
    "temperature": 1,
    "system": [
        {"type": "text", "text": "You are a coding agent.", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
    ],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "<system-reminder>Today is Sunday.</system-reminder>"},
                {"type": "text", "text": "list the files"},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "I list them.", "signature": "abc"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"name": "ls"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "content": "main.py",
                    "is_error": False,
                    "cache_control": {"type": "ephemeral"},
                }
            ],
        },
    ],
    "tools": [
        {"name": "Bash", "description": "Runs a command.", "input_schema": JSON_SCHEMA},
        {"name": "Read", "description": "Reads a file.", "input_schema": JSON_SCHEMA, "eager_input_streaming": True},
    ],
    "thinking": {"type": "adaptive"},
    "output_config": {"effort": "high"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "metadata": {"user_id": "user_0_account__session_1"},
}
CLAUDE_CODE_HEADERS = {
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "interleaved-thinking-2025-05-14,context-management-2025-06-27",
    "authorization": "Bearer none",
    "x-app": "cli",
}
BODIES = {
    "open-webui": ("/v1/chat/completions", OPEN_WEBUI, {}),
    "open-webui-title": ("/v1/chat/completions", OPEN_WEBUI_TITLE, {}),
    "continue": ("/v1/chat/completions", CONTINUE_CHAT, {}),
    "continue-autocomplete": ("/v1/completions", CONTINUE_AUTOCOMPLETE, {}),
    "home-assistant": ("/v1/responses", HOME_ASSISTANT, {}),
    "codex": ("/v1/responses", CODEX, {"originator": "codex_cli_rs", "session_id": "0199c6a5"}),
    "claude-code": ("/v1/messages?beta=true", CLAUDE_CODE, CLAUDE_CODE_HEADERS),
}


@pytest.mark.parametrize("name", BODIES)
def test_the_program_gets_a_stream(name: str, daemon: Daemon) -> None:
    path, body, headers = BODIES[name]
    events = []
    with httpx.stream("POST", f"{daemon.url}{path}", json=body, headers=headers, timeout=120) as answer:
        if answer.status_code != 200:
            answer.read()
        assert answer.status_code == 200, answer.text
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                events.append(json.loads(line.removeprefix("data: ")))
            if len(events) == EVENTS_READ or line == "data: [DONE]":
                break
    assert events
    assert not any("error" in event and event["error"] for event in events)
    daemon.wait_for(daemon.is_idle)


def test_claude_code_counts_first(daemon: Daemon) -> None:
    counted = {name: value for name, value in CLAUDE_CODE.items() if name in ("model", "system", "messages", "tools")}
    answer = daemon.post("/v1/messages/count_tokens?beta=true", counted, headers=CLAUDE_CODE_HEADERS)
    assert answer.status_code == 200, answer.text
    assert answer.json()["input_tokens"] > 100


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({"type": "web_search", "external_web_access": False}, "tools[0].type"),
        ({"type": "image_generation", "output_format": "png"}, "tools[0].type"),
        ({"type": "custom", "name": "apply_patch", "format": {"type": "grammar"}}, "tools[0].type"),
    ],
)
def test_codex_hears_which_of_its_tools_are_not_taken(tool: dict[str, Any], param: str, daemon: Daemon) -> None:
    """Its configuration turns them off: web_search = "disabled", [features] image_generation = false."""
    answer = daemon.post("/v1/responses", {**CODEX, "stream": False, "tools": [tool]})
    assert answer.status_code == 400
    assert (answer.json()["error"]["code"], answer.json()["error"]["param"]) == ("unsupported_parameter", param)
