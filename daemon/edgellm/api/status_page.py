"""The page at /: says to a person with a browser that the server is there, how far it is, and how to use it."""

from __future__ import annotations

from html import escape

from edgellm import __version__
from edgellm.serving.engine_client import EngineClient
from edgellm.serving.model import ModelState, ServedModel

STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:42rem;margin:3rem auto;padding:0 1rem}"
    "code,pre{background:#8881;border-radius:4px;padding:.1em .3em}pre{padding:1em;overflow:auto}"
    "td,th{text-align:left;vertical-align:top;padding:.2em 1em .2em 0}"
    "@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}}"
)
HEADERS = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'", "cache-control": "no-store"}


def status_page(engine: EngineClient, base_url: str, name_models: bool) -> str:
    """``name_models`` is for servers without keys: names are for those who may use them."""
    ready = "is ready" if engine.ready else "is not ready yet"
    rows = "".join(_row(model) for model in engine.models) if name_models else ""
    table = f"<table><tr><th>Model</th><th>State</th></tr>{rows}</table>" if rows else ""
    call = (
        f"curl {base_url}/chat/completions -H 'Content-Type: application/json' \\\n"
        '  -d \'{"messages": [{"role": "user", "content": "Hello"}]}\''
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>edgellm</title><style>{STYLE}</style><h1>edgellm {ready}</h1>{table}"
        f"<p>OpenAI clients use the base URL <code>{escape(base_url)}</code>.</p><pre>{escape(call)}</pre>"
        f"<p>Version {escape(__version__)}. More: /health, /v1/models, /metrics, /docs.</p></html>"
    )


def _row(model: ServedModel) -> str:
    state = model.progress.stage if model.state is ModelState.LOADING else model.state.value
    return f"<tr><td>{escape(model.name)}</td><td>{escape(state)}</td></tr>"
