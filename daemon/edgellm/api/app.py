"""create_app: the HTTP application over an EngineClient."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from fastapi import FastAPI
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import Receive, Scope, Send

from edgellm import __version__
from edgellm.api import health, models
from edgellm.api.anthropic_messages import count_tokens, messages
from edgellm.api.chat_completions import chat_completions
from edgellm.api.completions import completions
from edgellm.api.docs_page import docs_page
from edgellm.api.embeddings import embeddings
from edgellm.api.error_mapping import nothing_at_this_path
from edgellm.api.gate import Gate
from edgellm.api.http_counters import HttpCounters
from edgellm.api.json_body import BodyReader
from edgellm.api.keys import KeyRing
from edgellm.api.openapi import describe
from edgellm.api.pairing import CLAIM_PATH, HELLO_PATH, ClosedDesk, PairingDesk, PairingRoutes
from edgellm.api.request_media import MediaLedger
from edgellm.api.response_store import ResponseStore
from edgellm.api.responses import delete_response, responses, stored_response
from edgellm.api.service import ApiService, caller_of
from edgellm.api.settings import ApiSettings, LiveSettings
from edgellm.api.speech import list_voices, speech
from edgellm.api.status_page import HEADERS as STATUS_PAGE_HEADERS
from edgellm.api.status_page import status_page
from edgellm.api.transcriptions import transcriptions, translations
from edgellm.api.upload import UploadReader
from edgellm.errors import RecordNotFoundError
from edgellm.serving.engine_client import EngineClient

Handler = Callable[[Request], Awaitable[Response]]


def create_app(engine: EngineClient, settings: ApiSettings | None = None, desk: PairingDesk | None = None) -> FastAPI:
    """The application. Starting and closing the engine is the owner's.

    ``app.state.keys`` is its KeyRing, ``app.state.settings`` its LiveSettings.
    """
    settings = settings or ApiSettings()
    live = LiveSettings(settings)
    store = ResponseStore(settings.stored_responses_max, settings.stored_responses_bytes_max)

    def revoked(client: str) -> None:
        engine.end_client(client)
        store.forget(client)
        if engine.records is not None:
            engine.records.forget(client)

    keys = KeyRing(settings.api_keys, on_revoked=revoked)
    counters = HttpCounters()
    bodies = BodyReader(settings.body_bytes_max, settings.bodies_bytes_max, settings.body_deadline_seconds)
    media = MediaLedger(settings.media)

    def takes_media() -> bool:
        return any(model.may_take_media for model in engine.models)

    service = ApiService(engine, live, counters, bodies, store, UploadReader(), media, takes_media)

    def limits_changed(new: ApiSettings) -> None:
        store.change(new.stored_responses_max, new.stored_responses_bytes_max)
        bodies.change(new.body_bytes_max, new.bodies_bytes_max, new.body_deadline_seconds)
        media.settings = new.media

    live.when_replaced(limits_changed)
    app = FastAPI(
        title="edgellm",
        version=__version__,
        docs_url=None,  # FastAPI's pages load their scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.keys = keys
    app.state.settings = live
    app.add_middleware(
        Gate,
        settings=live,
        keys=keys,
        counters=counters,
        note_refused=engine.note_refused,
        takes_media=takes_media,
    )

    async def alive(request: Request) -> Response:
        return JSONResponse({"status": "alive"})

    async def ready(request: Request) -> Response:
        status, headers, body = health.readiness(engine)
        return JSONResponse(body, status, headers)

    async def how_it_goes(request: Request) -> Response:
        return JSONResponse(health.health(engine))

    async def all_models(request: Request) -> Response:
        return JSONResponse(models.list_models(engine))

    async def one_model(request: Request) -> Response:
        name = request.path_params["model_id"]
        return JSONResponse(models.model_object(engine.model(name), name))

    async def all_voices(request: Request) -> Response:
        return JSONResponse(list_voices(engine))

    async def one_record(request: Request) -> Response:
        if engine.records is None:
            raise RecordNotFoundError("This server keeps no records of requests.")
        return JSONResponse(engine.records.find(caller_of(request).client, request.path_params["request_id"]))

    async def metrics(request: Request) -> Response:
        text = generate_latest(engine.counters.registry) + generate_latest(counters.registry)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    async def page(request: Request) -> Response:
        return HTMLResponse(status_page(engine, settings.base_url, not keys.required), headers=STATUS_PAGE_HEADERS)

    async def docs(request: Request) -> Response:
        return HTMLResponse(docs_page(app.openapi()), headers=STATUS_PAGE_HEADERS)

    pairing = PairingRoutes(desk or ClosedDesk())
    handlers: dict[tuple[str, str], Handler] = {
        ("POST", "/v1/chat/completions"): partial(chat_completions, service),
        ("POST", "/v1/completions"): partial(completions, service),
        ("POST", "/v1/embeddings"): partial(embeddings, service),
        ("POST", "/v1/audio/transcriptions"): partial(transcriptions, service),
        ("POST", "/v1/audio/translations"): partial(translations, service),
        ("POST", "/v1/audio/speech"): partial(speech, service),
        ("GET", "/v1/voices"): all_voices,
        ("POST", "/v1/responses"): partial(responses, service),
        ("GET", "/v1/responses/{response_id:path}"): partial(stored_response, service),
        ("DELETE", "/v1/responses/{response_id:path}"): partial(delete_response, service),
        ("POST", "/v1/messages"): partial(messages, service),
        ("POST", "/v1/messages/count_tokens"): partial(count_tokens, service),
        ("GET", "/v1/records/{request_id:path}"): one_record,
        ("GET", "/v1/models"): all_models,
        ("GET", "/v1/models/{model_id:path}"): one_model,
        ("GET", "/health/live"): alive,
        ("GET", "/health/ready"): ready,
        ("GET", "/health"): how_it_goes,
        ("GET", "/metrics"): metrics,
        ("GET", "/docs"): docs,
        ("GET", "/"): page,
        ("POST", HELLO_PATH): pairing.hello,
        ("POST", CLAIM_PATH): pairing.claim,
    }
    for (method, path), handler in handlers.items():
        app.router.add_route(path, handler, methods=[method])
    app.router.default = _nothing_there
    app.openapi = partial(describe, app)  # type: ignore[method-assign]
    return app


async def _nothing_there(scope: Scope, receive: Receive, send: Send) -> None:
    """For paths that the route table knows and the router does not: those with a line break in their parameter."""
    raise nothing_at_this_path()
