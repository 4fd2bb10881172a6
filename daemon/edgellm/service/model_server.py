"""serve_model: the daemon over one LLM or TTS of this process, as its serve() runs it, until it is interrupted."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TextIO, cast

import uvloop
from pydantic import ValidationError

from edgellm.api.app import create_app
from edgellm.api.keys import ApiKey
from edgellm.api.media_settings import MediaSettings
from edgellm.api.settings import ApiSettings
from edgellm.config.settings import AdmissionSettings, ServerSettings, Settings
from edgellm.errors import ConfigError, ForcedShutdownError
from edgellm.parsing.answer_parser import AUTO
from edgellm.runtime.llm import LLM
from edgellm.runtime.tts import TTS
from edgellm.service.address import bind_host, listen
from edgellm.service.host_names import own_names
from edgellm.service.logs import LogLines
from edgellm.service.notify import Supervisor
from edgellm.service.runner import Application, Daemon
from edgellm.serving.engine_client import EngineClient
from edgellm.serving.model_spec import ModelSpec, OpenedModel, ReportProgress
from edgellm.serving.opened_llm import opened_llm
from edgellm.serving.sequential_lane import SequentialLane
from edgellm.serving.speech import SpeakingModel

CLIENT_NAME = "api_key"

_log = logging.getLogger(__name__)


def serve_model(
    model: LLM | TTS,
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
    local_media_root: str | None = None,
) -> None:
    """Returns after SIGINT or SIGTERM, once what ran has ended and the model is closed. Call it on the main thread.

    What `edgellm serve` prints is logged at info.
    """

    async def open_lanes(report: ReportProgress) -> OpenedModel:
        if isinstance(model, TTS):
            return OpenedModel([SequentialLane(SpeakingModel(model))])
        return opened_llm(model)

    spec = ModelSpec(
        served_model_name,
        open_lanes,
        reasoning_parser=reasoning_parser,
        tool_call_parser=tool_call_parser,
        enable_auto_tool_choice=enable_auto_tool_choice,
        kind="tts" if isinstance(model, TTS) else "auto",
    )
    settings = _settings(host, port, max_queued_requests, queue_timeout_seconds)
    bound_host = bind_host(host, has_keys=bool(api_key), remedy="give api_key, or bind 127.0.0.1")
    keys = (ApiKey.of(CLIENT_NAME, api_key),) if api_key else ()
    listener = listen(bound_host, port)
    look_up_hosts = partial(own_names, bound_host)
    supervisor = Supervisor()

    def make_app(client: EngineClient) -> Application:
        api = ApiSettings(
            api_keys=keys,
            # A page that rebinds its name has no key; without a key only names of loopback get through.
            allowed_hosts=("*",) if keys else look_up_hosts(),
            look_up_hosts=None if keys else look_up_hosts,
            media=MediaSettings(local_root=Path(local_media_root) if local_media_root else None),
            base_url=f"{listener.url}/v1",
        )
        return Application(create_app(client, api))

    try:
        daemon = Daemon(
            settings,
            listener,
            [spec],
            make_app,
            supervisor=supervisor,
            output=cast("TextIO", LogLines(_log)),
            with_keys=bool(keys),
        )
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, suppress(ForcedShutdownError):
            runner.run(daemon.run())
    finally:
        listener.socket.close()
        supervisor.close()


def _settings(host: str | None, port: int, max_queued_requests: int, queue_timeout_seconds: float) -> Settings:
    """Raises ConfigError with the argument's name."""
    try:
        return Settings(
            server=ServerSettings(host=host, port=port),
            admission=AdmissionSettings(
                max_queued_requests=max_queued_requests, queue_timeout_seconds=queue_timeout_seconds
            ),
        )
    except ValidationError as error:
        (first, *_) = error.errors(include_url=False, include_input=False)
        raise ConfigError(f"{first['loc'][-1]}: {first['msg'].lower()}") from None
