"""The ASGI application: routes, errors as JSON, the page, and the task that watches the cluster."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final

import anyio
from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, RedirectResponse
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from milena import VERSION
from milena.command_line.errors import UserError
from milena.console import clusters, nodes, reading, scenarios, topics, transactions
from milena.console.context import Context, check_text
from milena.console.guard import Guard
from milena.console.model import encoded
from milena.console.node_link import CommandError, NodeAway
from milena.node.links.outgoing import ChannelError
from milena.node.serving.lab_descriptions import Misused
from milena.protocol.errors import ErrorCode, KafkaError, retriable

STATIC: Final = os.path.join(os.path.dirname(__file__), "static")
"""The files of the page, served as they are."""
NO_PAGE: Final = "this server has no page; `milena up --console` adds it"
NEW_LINK: Final = "The link was used, or is too old. `milena console` prints a new one."


class Answer(JSONResponse):
    """JSON that may have names which UTF-8 does not have."""

    def render(self, content: object) -> bytes:
        return encoded(content)


def application(context: Context) -> Guard:
    """Return the application with all checks around it."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(context.watch.run)
            yield
            tasks.cancel_scope.cancel()

    app = FastAPI(
        title="Milena",
        version=VERSION,
        description="State, events, faults and operations of one cluster. docs/http.md has examples.",
        docs_url=None,  # they load scripts from the network
        redoc_url=None,
        lifespan=lifespan,
        dependencies=[Depends(check_text)],
        default_response_class=Answer,
    )
    app.state.context = context
    for part in (reading, nodes, topics, transactions, scenarios, clusters):
        app.include_router(part.router)
    for kind, handler in HANDLERS:
        app.add_exception_handler(kind, handler)
    app.add_api_route("/login", _login, methods=["GET"], include_in_schema=False)
    if context.page:
        app.mount("/", StaticFiles(directory=STATIC, html=True, check_dir=False))
    else:
        app.add_api_route("/", _no_page, methods=["GET"], include_in_schema=False)
    return Guard(app, context.access, context.cookie)


async def _login(request: Request, code: str = "") -> Response:
    """Exchange the one-time code of a link for a cookie."""
    context: Context = request.app.state.context
    value = context.access.redeem(code)
    if value is None:
        return PlainTextResponse(NEW_LINK, 403)
    answer = RedirectResponse("/", 303)
    answer.set_cookie(context.cookie, value, httponly=True, samesite="strict", path="/")
    return answer


async def _no_page() -> Response:
    return _error(404, NO_PAGE)


# -- errors


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return Answer({"error": message}, status, headers)


async def _invalid(_: Request, error: Exception) -> Response:
    """Say of each wrong value where it is, and what is valid there."""
    assert isinstance(error, RequestValidationError)
    said = []
    for one in error.errors():
        place = ".".join(str(part) for part in one["loc"] if part not in ("body", "query", "path"))
        said.append(f"{place}: {one['msg']}" if place else f"the body: {one['msg']}")
    return _error(400, "; ".join(said))


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers, said = dict(error.headers or {}), str(error.detail)
    if said == HTTPStatus(404).phrase:
        said = f"there is no {request.url.path}; /openapi.json lists the paths"
    elif error.status_code == 405:
        allowed = headers.get("allow", headers.get("Allow", ""))
        said = f"{request.method} is not possible for {request.url.path}{f', only {allowed}' if allowed else ''}"
    return _error(error.status_code, said, headers)


async def _bad_request(_: Request, error: Exception) -> Response:
    return _error(400, str(error))


async def _unavailable(_: Request, error: Exception) -> Response:
    return _error(503, str(error))


async def _failed(_: Request, error: Exception) -> Response:
    """An error of the server itself. The log has its traceback."""
    return _error(500, f"the server failed: {type(error).__name__}; its log has more")


async def _kafka_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, KafkaError)
    said = f"{error.code.name}: {error.message}" if error.message else error.code.name
    if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # retriable in Kafka, because metadata may be late
        return _error(404, said)
    return _error(503 if retriable(error.code) else 400, said)


Handler = Callable[[Request, Exception], Awaitable[Response]]
HANDLERS: Final[tuple[tuple[type[Exception], Handler], ...]] = (
    (RequestValidationError, _invalid),
    (HTTPException, _refused),
    (CommandError, _bad_request),
    (Misused, _bad_request),
    (UserError, _bad_request),
    (NodeAway, _unavailable),
    (ChannelError, _unavailable),
    (KafkaError, _kafka_error),
    (Exception, _failed),
)
"""The errors that a handler of a request may raise, and the answers. NotListening is a UserError."""
