"""Starts the daemon from settings: everything that can be wrong is found before the first model is loaded."""

from __future__ import annotations

import asyncio
import faulthandler
import ipaddress
import logging
import os
from contextlib import suppress
from functools import partial
from pathlib import Path

import uvloop

from edgellm.api.app import create_app
from edgellm.api.forwarded import ForwardedClients
from edgellm.api.keys import ApiKey, KeyRing
from edgellm.api.media_settings import MediaSettings
from edgellm.api.settings import ApiSettings
from edgellm.config import Settings
from edgellm.errors import EdgeLLMError
from edgellm.runtime.process_memory import limit_malloc_arenas
from edgellm.service import logs
from edgellm.service.access_log import AccessLog
from edgellm.service.address import LOOPBACK, Listener, bind_host, listen
from edgellm.service.admin_server import open_admin_socket
from edgellm.service.credentials import CredentialSources
from edgellm.service.host_names import own_names
from edgellm.service.models import clear_engines, model_specs
from edgellm.service.notify import Supervisor
from edgellm.service.open_files import raise_open_files_limit
from edgellm.service.pairing.daemon_side import (
    all_keys,
    authority_file,
    key_file_paths,
    keys_at_start,
    pairing_desk,
    pairing_verbs,
    why_closed,
)
from edgellm.service.reconfiguration import ReadSettings
from edgellm.service.reload import ReloadedFiles
from edgellm.service.remedies import with_remedy
from edgellm.service.runner import Application, Daemon, Source, record_settings
from edgellm.service.tls import ServerCertificate
from edgellm.serving.engine_client import EngineClient
from edgellm.serving.record_file import check_record_file

_log = logging.getLogger(__name__)


def start(settings: Settings, read_anew: ReadSettings, config_file: Path | None = None) -> int:
    """Serve until SIGTERM or SIGINT. Raises an EdgeLLMError when it cannot start or a required model does not load.

    ``read_anew`` gives the settings as they are by then, with what was said on the command line; ``config_file``
    is where they come from.
    """
    limit_malloc_arenas()
    with suppress(OSError, ValueError):  # standard error that is no file
        faulthandler.enable()  # a watchdog that fires leaves where the event loop was stuck
    supervisor = Supervisor()
    credentials = CredentialSources.of(os.environ)
    settings = credentials.applied_to(settings)
    logs.configure(settings.log, journal=logs.goes_to_journal())
    try:
        return _serve(settings, supervisor, credentials, read_anew, config_file)
    except EdgeLLMError as error:
        supervisor.failed(with_remedy(error))
        raise
    finally:
        supervisor.close()


def _serve(
    settings: Settings,
    supervisor: Supervisor,
    credentials: CredentialSources,
    read_anew: ReadSettings,
    config_file: Path | None,
) -> int:
    for warning in credentials.warnings():
        _log.warning("%s", warning)
    keys = keys_at_start(settings)
    host = bind_host(settings.server.host, has_keys=bool(keys), insecure_no_keys=settings.server.insecure_no_keys)
    certificate = _certificate(settings)
    if (records := record_settings(settings)) is not None:
        check_record_file(records.file.path)
    listener = listen(host, settings.server.port, "https" if certificate else "http")
    raise_open_files_limit(settings.server.connections_max)
    try:
        specs = model_specs(settings)
        if settings.engines.clear_on_start:
            clear_engines(settings)
        if not keys:
            _warn_without_keys(host)

        def make_app(client: EngineClient) -> Application:
            key_files = ReloadedFiles(
                "API keys",
                [*key_file_paths(settings), *credentials.awaited(settings.server.api_keys_file)],
                reload=lambda: ring.replace(all_keys(credentials.applied_to(settings))),
                check=lambda: all_keys(credentials.applied_to(settings)),
            )
            desk = pairing_desk(settings, key_files.reload_now)
            app = create_app(client, api_settings(settings, listener, all_keys(settings)), desk)
            ring: KeyRing = app.state.keys
            gateways = [ipaddress.ip_network(gateway) for gateway in settings.server.trusted_gateways]
            files = [key_files] if keys else []
            if certificate is not None:
                files.append(
                    ReloadedFiles("certificate and key", certificate.paths, certificate.reload, certificate.check)
                )

            def take_on(new: Settings) -> None:
                app.state.settings.replace(api_settings(new, listener, keys))

            verbs = pairing_verbs(desk, why_closed(settings))
            issue_pass = app.state.keys.issue_pass
            return Application(ForwardedClients(AccessLog(app), gateways), files, issue_pass, take_on, verbs)

        daemon = Daemon(
            settings,
            listener,
            specs,
            make_app,
            supervisor=supervisor,
            tls=certificate.context if certificate else None,
            with_keys=bool(keys),
            source=Source(
                lambda: credentials.applied_to(read_anew()),
                model_specs,
                config_file and Path(os.path.abspath(config_file)),
            ),
            admin=open_admin_socket(settings.admin_socket, os.environ),
        )
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(daemon.run())
    finally:
        listener.socket.close()
    return 0


def _certificate(settings: Settings) -> ServerCertificate | None:
    certificate, key = settings.server.tls_certificate_file, settings.server.tls_key_file
    if certificate is None or key is None:
        return None
    return ServerCertificate(certificate, key, authority_file(settings))


def api_settings(settings: Settings, listener: Listener, keys: tuple[ApiKey, ...]) -> ApiSettings:
    server = settings.server
    look_up_hosts = partial(own_names, listener.host, server.allowed_hosts)
    return ApiSettings(
        api_keys=keys,
        unknown_fields=server.unknown_fields,
        allowed_hosts=look_up_hosts(),
        look_up_hosts=look_up_hosts,
        cors_origins=server.cors_origins,
        requests_per_minute=server.requests_per_minute,
        concurrent_requests=server.concurrent_requests_per_client,
        body_bytes_max=server.request_body_bytes_max,
        stored_responses_max=server.stored_responses_max,
        stored_responses_bytes_max=server.stored_responses_bytes_max,
        body_deadline_seconds=server.body_deadline_seconds,
        media=MediaSettings(
            local_root=settings.media.local_root,
            remote_hosts=settings.media.remote_hosts,
            remote_seconds_max=settings.media.remote_deadline_seconds,
            request_bytes_max=settings.media.request_bytes_max,
            bytes_max=settings.media.bytes_max,
        ),
        base_url=f"{listener.url}/v1",
    )


def _warn_without_keys(host: str) -> None:
    if host == LOOPBACK:
        _log.warning("no API keys are set: only programs on this machine can connect (server.api_keys_file sets keys)")
    else:
        _log.warning("no API keys are set and %s is bound: everyone who reaches this machine can use it", host)
