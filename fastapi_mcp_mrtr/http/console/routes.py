"""Where the console is: the page, its files, and in debug mode what a state says.

All are below the endpoint's path and move with it, under every prefix. Knows no cryptography: what
opens a state is handed in.
"""

import inspect
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.routing import APIRoute
from pydantic_core import from_json

from fastapi_mcp_mrtr.errors import RequestStateError
from fastapi_mcp_mrtr.http.endpoint import MCPEndpoint
from fastapi_mcp_mrtr.protocol.headers import RequestHeaders
from fastapi_mcp_mrtr.server.injection import read_body

from .assets import load_assets, load_page
from .guard import REFUSAL, Guard, is_local, is_same_origin
from .settings import Console

logger = logging.getLogger("fastapi_mcp_mrtr")

Describe = Callable[[object, bytes], Mapping[str, Any]]
"""From a state and a principal's key to what the state says. Raises RequestStateError."""

_STATE_HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class ConsoleRoute(APIRoute):
    """A route that only those may use who may see the console, decided before everything else."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        guard: Guard = self.endpoint.guard  # type: ignore[attr-defined]
        handle = super().get_route_handler()

        async def guarded(request: Request) -> Response:
            headers = RequestHeaders.read(request.scope["headers"])
            refusal = guard.refusal(headers, request.scope)
            if refusal is not None:
                return PlainTextResponse(refusal, 403)
            return await handle(request)

        return guarded


def add_console(
    router: APIRouter,
    path: str,
    console: Console,
    *,
    endpoint: MCPEndpoint,
    principal: Any,
    describe: Describe,
    max_body_size: int,
    connect: tuple[str, ...],
) -> None:
    """Add the console of the endpoint at `path` to its router. `connect` are URLs it may call."""
    guard, below = Guard(console), f"{path.rstrip('/')}/console"
    page = load_page(debug=console.debug, connect=(*console.connect, *connect))
    assets = load_assets()

    async def show() -> Response:
        return Response(page.body, headers=page.headers)

    async def slash() -> Response:
        # The page's files are relative to it; a relative redirect holds under every prefix.
        return Response(status_code=307, headers={"Location": "../console"})

    async def asset(name: str, request: Request) -> Response:
        found = assets.get(name)
        if found is None:
            return PlainTextResponse("Not found", 404)
        if request.headers.get("if-none-match") == found.headers["ETag"]:
            return Response(status_code=304, headers=found.headers)
        return Response(found.body, headers=found.headers)

    def add(route: str, function: Any, *methods: str) -> None:
        function.guard = guard
        router.add_api_route(
            route,
            function,
            methods=list(methods),
            include_in_schema=False,
            route_class_override=ConsoleRoute,
        )

    add(below, show, "GET", "HEAD")
    add(f"{below}/", slash, "GET", "HEAD")
    add(f"{below}/{{name}}", asset, "GET", "HEAD")
    if console.debug:
        logger.warning(
            "console='debug': the console of %s opens requestStates for whoever they were made "
            "for, on this computer only. Do not deploy it",
            router.name,  # type: ignore[attr-defined]
        )
        states = _opens_states(endpoint, principal, describe, max_body_size)
        add(f"{below}/state", states, "POST")


def _opens_states(
    endpoint: MCPEndpoint, principal: Any, describe: Describe, max_body_size: int
) -> Any:
    """What tells a developer what is in a state: the caller's own, sealed by this very app."""

    async def state(*, request: Request, principal: Any = None) -> Response:
        headers = RequestHeaders.read(request.scope["headers"])
        here = is_local(headers, request.scope)
        if not (here and is_same_origin(headers)):
            return JSONResponse({"error": REFUSAL}, 403, _STATE_HEADERS)
        if (headers.content_type or "").partition(";")[0].strip().lower() != "application/json":
            return JSONResponse({"error": "The body must be JSON"}, 415, _STATE_HEADERS)
        body = await read_body(request, max_body_size)
        try:
            token = from_json(body or b"")["requestState"]
        except (ValueError, TypeError, LookupError):
            return JSONResponse({"error": "There is no requestState"}, 400, _STATE_HEADERS)
        try:
            said = describe(token, endpoint.key_of(principal))
        except RequestStateError as error:
            logger.info("The console could not open a requestState: %s", error.reason)
            return JSONResponse({"error": error.message}, 400, _STATE_HEADERS)
        return JSONResponse(said, headers=_STATE_HEADERS)

    parameters = [inspect.Parameter("request", inspect.Parameter.KEYWORD_ONLY, annotation=Request)]
    if principal is not None:
        parameters.append(
            inspect.Parameter(
                "principal", inspect.Parameter.KEYWORD_ONLY, annotation=Any, default=principal
            )
        )
    state.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return state
