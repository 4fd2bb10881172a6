"""Runs the daemon in the foreground: HTTP from the first moment, models while it answers, a drain at the end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from starlette.types import ASGIApp

from edgellm import __version__
from edgellm.api.server import HttpServer
from edgellm.api.settings import ServerSettings as HttpSettings
from edgellm.config import Settings
from edgellm.config.model_kind import WITHOUT_TEXT
from edgellm.errors import DaemonUnreachableError, EdgeLLMError, ForcedShutdownError, WorkerFailedError
from edgellm.service import logs
from edgellm.service.address import Listener
from edgellm.service.admin_messages import Done, Health, HostPass, HostPassIssued, Reload, Request
from edgellm.service.admin_server import AdminServer, Handler
from edgellm.service.greeting import (
    LossyOutput,
    StageLines,
    how_models_are,
    how_to_speak,
    how_to_talk,
    how_to_transcribe,
)
from edgellm.service.heartbeat import Heartbeat, require_ready, serving_text
from edgellm.service.models import serving_settings
from edgellm.service.notify import Supervisor
from edgellm.service.reconfiguration import MakeSpecs, ReadSettings, Reconfiguration, Reloaded
from edgellm.service.reload import ReloadedFiles, Reloader
from edgellm.service.reload_answer import failed_loads, require_same_file
from edgellm.service.remedies import with_remedy
from edgellm.service.tls import authority_beside, fingerprint_of
from edgellm.serving.engine_client import EngineClient
from edgellm.serving.load_failure import load_error_of
from edgellm.serving.model import ModelState, ServedModel
from edgellm.serving.model_spec import ModelSpec
from edgellm.serving.model_table import ModelChange
from edgellm.serving.record_file import RecordFileSettings, check_record_file
from edgellm.serving.records import RecordSettings

WATCH_SECONDS = 0.1
HOST_PASS_SECONDS = 300.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Application:
    """What answers HTTP, the files that it takes anew while it runs, how it takes other settings on, and what it does
    for whoever runs the machine."""

    app: ASGIApp
    files: Sequence[ReloadedFiles] = ()
    issue_pass: Callable[[float], str] = lambda lifetime_seconds: ""
    take_on: Callable[[Settings], None] = lambda settings: None
    verbs: Mapping[type[Request], Handler] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Source:
    """Where the configuration comes from, to be read anew while the daemon runs; ``file`` is None without one."""

    read: ReadSettings
    make_specs: MakeSpecs
    file: Path | None = None


class Daemon:
    """One listening socket, one EngineClient, one application. ``run`` returns after an orderly shutdown."""

    def __init__(
        self,
        settings: Settings,
        listener: Listener,
        specs: Sequence[ModelSpec],
        make_app: Callable[[EngineClient], Application],
        *,
        supervisor: Supervisor,
        output: TextIO | None = None,
        tls: ssl.SSLContext | None = None,
        with_keys: bool = False,
        source: Source | None = None,
        admin: socket.socket | None = None,
    ) -> None:
        self._settings = settings
        self._listener = listener
        self._specs = specs
        self._make_app = make_app
        self._supervisor = supervisor
        self._output = LossyOutput(sys.stdout if output is None else output)
        self._tls = tls
        self._with_keys = with_keys
        self._source = source
        self._admin = admin
        self._is_up = False  # between READY and the end

    async def run(self) -> None:
        """Raises the error of a required model that did not load, ForcedShutdownError when the end was not clean."""
        client = EngineClient(self._specs, serving_settings(self._settings), record_settings(self._settings))
        application = self._make_app(client)
        server = HttpServer(application.app, http_settings(self._settings), self._tls)
        reloader = Reloader(application.files)
        reconfiguration = self._reconfiguration(client, application)
        reloads: set[asyncio.Task[None]] = set()

        def hung_up() -> None:
            reloader.reload_now()
            if client.records is not None:
                client.records.reopen()
            if reconfiguration is not None:
                task = asyncio.create_task(self._reload_as_told(reconfiguration, client))
                reloads.add(task)
                task.add_done_callback(reloads.discard)

        async def reload(request: Reload) -> Done:
            config = None if self._source is None else self._source.file
            require_same_file(request.config, config)
            reloaded = await self._reload(reconfiguration, client)
            if client.records is not None:
                client.records.reopen()
            lines = [*reloaded.lines, *reloader.reload_now()]
            failures = [] if request.wait_seconds is None else await failed_loads(reloaded.loads, request.wait_seconds)
            is_loading = any(not load.work.done() for load in reloaded.loads)
            return Done(lines, os.getpid(), str(config) if config else None, failures, is_loading)

        async def host_pass(request: HostPass) -> HostPassIssued:
            certificate = self._settings.server.tls_certificate_file if self._tls else None
            return HostPassIssued(
                self._listener.url,
                application.issue_pass(HOST_PASS_SECONDS),
                HOST_PASS_SECONDS,
                __version__,
                self._listener.host,
                None if certificate is None else fingerprint_of(certificate),
            )

        async def health(_: Health) -> Done:
            require_ready(client)
            return Done([serving_text(client.models, self._listener.url)], os.getpid())

        handlers: dict[type[Request], Handler] = {
            **application.verbs,
            Reload: reload,
            HostPass: host_pass,
            Health: health,
        }
        admin = None if self._admin is None else AdminServer(self._admin, handlers)
        if admin is not None:
            await admin.start()
        stop = _Signals(hung_up)
        stop.install()
        watching = asyncio.create_task(reloader.watch())
        heartbeat = Heartbeat(client, self._supervisor, self._listener.url)
        beating = asyncio.create_task(heartbeat.beat())
        client.start()
        serving = asyncio.create_task(server.run_on([self._listener.socket]))
        self._say(f"listening on {self._listener.url}")
        try:
            await self._until_stopped(client, serving, stop, heartbeat)
        finally:
            heartbeat.watches_models = self._is_up = False
            drain_seconds = self._settings.admission.shutdown_drain_seconds
            self._supervisor.stopping(
                f"finishing {client.running_requests} running request(s)", drain_seconds=drain_seconds
            )
            if client.running_requests:
                self._say(f"finishing {client.running_requests} running request(s); interrupt again to cancel them")
            await _drain(client, drain_seconds, stop)
            server.stop()
            await asyncio.gather(serving, return_exceptions=True)
            await client.close()
            watching.cancel()
            beating.cancel()
            for task in reloads:
                task.cancel()
            if admin is not None:
                await admin.close()
            stop.remove()
            self._listener.socket.close()
        if client.requests_cut_short or client.workers_killed:
            raise ForcedShutdownError(
                f"stopped, but not cleanly: {client.requests_cut_short} request(s) cut short, "
                f"{client.workers_killed} worker(s) killed — admission.shutdown_drain_seconds gives requests more time"
            )

    def _reconfiguration(self, client: EngineClient, application: Application) -> Reconfiguration | None:
        if self._source is None:
            return None

        def take_on(settings: Settings, specs: Sequence[ModelSpec]) -> Sequence[ModelChange]:
            changes = client.reconfigure(specs, serving_settings(settings), record_settings(settings))
            application.take_on(settings)
            if settings.log.level != self._settings.log.level:
                logs.set_level(settings.log.level)
                client.log_at(settings.log.level)
            self._settings = settings
            return changes

        make_specs = self._source.make_specs

        def checked_specs(settings: Settings) -> Sequence[ModelSpec]:
            records = record_settings(settings)
            if records is not None and records != record_settings(self._settings):
                check_record_file(records.file.path)
            for files in application.files:
                files.check()
            return make_specs(settings)

        return Reconfiguration(self._settings, self._source.read, checked_specs, take_on)

    async def _reload(self, reconfiguration: Reconfiguration | None, client: EngineClient) -> Reloaded:
        """Raises an EdgeLLMError for what is wrong with the new configuration."""
        if reconfiguration is None or client.draining:
            raise DaemonUnreachableError("the daemon is ending, and takes nothing on any more")
        if self._is_up:
            self._supervisor.reloading()
        try:
            return await reconfiguration.reload()
        finally:
            if self._is_up:
                self._supervisor.ready(serving_text(client.models, self._listener.url))

    async def _reload_as_told(self, reconfiguration: Reconfiguration, client: EngineClient) -> None:
        with suppress(EdgeLLMError):  # which the log has
            await self._reload(reconfiguration, client)

    async def _until_stopped(
        self, client: EngineClient, serving: asyncio.Task[None], stop: _Signals, heartbeat: Heartbeat
    ) -> None:
        loading = asyncio.create_task(self._watch_loading(client))
        stopped = asyncio.create_task(stop.first.wait())
        try:
            done, _ = await asyncio.wait((loading, stopped, serving), return_when=asyncio.FIRST_COMPLETED)
            if loading in done:
                loading.result()
                heartbeat.watches_models = True
                await asyncio.wait((stopped, serving), return_when=asyncio.FIRST_COMPLETED)
            if serving.done() and not stop.first.is_set():
                serving.result()
                raise WorkerFailedError("the HTTP server ended by itself")
        finally:
            for task in (loading, stopped):
                task.cancel()
            await asyncio.gather(loading, stopped, return_exceptions=True)

    async def _watch_loading(self, client: EngineClient) -> None:
        """Show the stages, then READY. Raises the failure of a required model."""
        lines = StageLines(self._output, several=len(client.models) > 1)
        opened = asyncio.create_task(client.opened())
        try:
            while not opened.done():
                await asyncio.wait((opened,), timeout=WATCH_SECONDS)
                loading = []
                for model in client.models:
                    if model.state is ModelState.LOADING:
                        progress = model.progress
                        lines.show(model.name, progress.stage, progress.fraction)
                        amount = "" if progress.fraction is None else f" {progress.fraction:.0%}"
                        loading.append(f"{model.name}: {progress.stage}{amount}")
                if loading:
                    self._supervisor.starting("; ".join(loading))  # in one: the supervisor shows the last text alone
            opened.result()
        finally:
            opened.cancel()
            lines.end_line()
        failed = [
            (model.name, model.failure)
            for model in client.models
            if model.failure and model.spec.required and not model.is_late
        ]
        for name, failure in failed[1:]:
            _log.error("%s", with_remedy(load_error_of(name, failure)))
        for name, failure in failed:
            raise load_error_of(name, failure)
        self._is_up = True
        self._supervisor.ready(serving_text(client.models, self._listener.url))
        self._say(f"ready after {lines.elapsed_seconds:.1f} s")
        if states := how_models_are(client.models):
            self._output.write(f"{states}\n")
        well = [model for model in client.models if model.state is not ModelState.UNAVAILABLE]
        if well:
            talking = next((model for model in well if model.spec.kind not in WITHOUT_TEXT), well[0])
            self._output.write(f"\n{self._how_to_use(talking)}\n\n")

    def _how_to_use(self, model: ServedModel) -> str:
        certificate = self._settings.server.tls_certificate_file
        authority = certificate and authority_beside(certificate)
        how = {"asr": how_to_transcribe, "tts": how_to_speak}.get(model.spec.kind, how_to_talk)
        return how(f"{self._listener.url}/v1", model.name, with_key=self._with_keys, authority=authority)

    def _say(self, text: str) -> None:
        self._output.write(f"edgellm: {text}\n")


class _Signals:
    """SIGTERM and SIGINT: the first ends admission, the second the patience for what still runs.

    SIGHUP reads the configuration anew; to a daemon in a terminal it says that the terminal is gone, which ends it as
    SIGTERM does.
    """

    def __init__(self, reload: Callable[[], None]) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        self._handlers = {signal.SIGTERM: self._arrived, signal.SIGINT: self._arrived}
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup
            in_terminal = sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()
            self._handlers[signal.SIGHUP] = self._arrived if in_terminal else reload

    def install(self) -> None:
        for number, handler in self._handlers.items():
            asyncio.get_running_loop().add_signal_handler(number, handler)

    def remove(self) -> None:
        for number in self._handlers:
            asyncio.get_running_loop().remove_signal_handler(number)

    def _arrived(self) -> None:
        (self.second if self.first.is_set() else self.first).set()


async def _drain(client: EngineClient, limit_seconds: float, stop: _Signals) -> None:
    draining = asyncio.create_task(client.drain(limit_seconds))
    impatient = asyncio.create_task(stop.second.wait())
    try:
        await asyncio.wait((draining, impatient), return_when=asyncio.FIRST_COMPLETED)
        if not draining.done():
            await client.drain(0)
        await draining
    finally:
        impatient.cancel()


def record_settings(settings: Settings) -> RecordSettings | None:
    records = settings.records
    if records.file is None:
        return None
    file = RecordFileSettings(records.file.expanduser(), records.max_bytes, records.files_kept)
    return RecordSettings(file, records.include_text)


def http_settings(settings: Settings) -> HttpSettings:
    server = settings.server
    return HttpSettings(
        connections_max=server.connections_max,
        connections_per_address_max=server.connections_per_address_max,
        header_deadline_seconds=server.header_deadline_seconds,
        idle_deadline_seconds=server.idle_deadline_seconds,
        write_deadline_seconds=server.write_deadline_seconds,
    )
