"""serve_model: one LLM of this process over HTTP, as LLM.serve() does it, until it is interrupted."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import signal
import socket

import uvloop

from edgellm.api.app import create_app
from edgellm.api.keys import ApiKey
from edgellm.api.server import HttpServer
from edgellm.api.settings import ApiSettings
from edgellm.errors import ConfigError, PortUnavailableError
from edgellm.parsing.answer_parser import AUTO
from edgellm.runtime.llm import LLM
from edgellm.serving.engine_client import EngineClient
from edgellm.serving.model import ModelSpec, OpenedModel, ReportProgress
from edgellm.serving.opened_llm import opened_llm
from edgellm.serving.settings import ServingSettings

DRAIN_SECONDS = 30.0
_LOOPBACK = "127.0.0.1"
_ANY_ADDRESS = "0.0.0.0"  # noqa: S104  # chosen only with a key
_log = logging.getLogger(__name__)


def serve_model(
    llm: LLM,
    *,
    host: str | None,
    port: int,
    served_model_name: str,
    api_key: str,
    max_queued_requests: int,
    queue_timeout_seconds: float,
    reasoning_parser: str = AUTO,
    tool_call_parser: str = AUTO,
    enable_auto_tool_choice: bool = True,
) -> None:
    """Returns after SIGINT or SIGTERM, once what ran has ended and the LLM is closed. Call it on the main thread."""
    settings = ServingSettings(max_queued_requests=max_queued_requests, queue_timeout_seconds=queue_timeout_seconds)
    bound_host = host or (_ANY_ADDRESS if api_key else _LOOPBACK)
    if not api_key and not _is_loopback(bound_host):
        raise ConfigError(f"host {bound_host} is open to others: give api_key, or bind {_LOOPBACK}")

    async def open_lanes(report: ReportProgress) -> OpenedModel:
        return opened_llm(llm)

    spec = ModelSpec(
        served_model_name,
        open_lanes,
        reasoning_parser=reasoning_parser,
        tool_call_parser=tool_call_parser,
        enable_auto_tool_choice=enable_auto_tool_choice,
    )
    with _listening(bound_host, port) as listener:
        bound_port = listener.getsockname()[1]
        api = ApiSettings(
            api_keys=(ApiKey.of("api_key", api_key),) if api_key else (),
            # A page that rebinds its name has no key; without a key only names of loopback get through.
            allowed_hosts=("*",) if api_key else ApiSettings().allowed_hosts,
            base_url=f"http://{_LOOPBACK if bound_host == _ANY_ADDRESS else bound_host}:{bound_port}/v1",
        )
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(spec, settings, api, listener))


async def _serve(spec: ModelSpec, settings: ServingSettings, api: ApiSettings, listener: socket.socket) -> None:
    engine = EngineClient([spec], settings)
    server = HttpServer(create_app(engine, api))
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    serving = loop.create_task(server.run_on([listener]))
    stopped = loop.create_task(stop.wait())
    try:
        engine.start()
        await engine.opened()
        failure = engine.model(spec.name).failure
        if failure is not None:
            raise failure
        _log.info("%s is served at %s", spec.name, api.base_url)
        await asyncio.wait((serving, stopped), return_when=asyncio.FIRST_COMPLETED)
        await engine.drain(DRAIN_SECONDS)
    finally:
        server.stop()
        stopped.cancel()
        await asyncio.gather(serving, stopped, return_exceptions=True)
        await engine.close()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise PortUnavailableError(
            f"cannot listen on {host} port {port}: {error.strerror}; choose another port"
        ) from None


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
