"""`MCPRouter`: what a FastAPI user creates, decorates handlers with and includes."""

import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypedDict

from fastapi import APIRouter, Depends, params
from starlette.types import Lifespan

from fastapi_mcp_mrtr.checks import require_not_negative, require_positive
from fastapi_mcp_mrtr.protocol.older import OLDER_VERSIONS
from fastapi_mcp_mrtr.server.access import Access
from fastapi_mcp_mrtr.server.dispatch import VERSIONS, MCPServer
from fastapi_mcp_mrtr.server.flows import Defaults, Flows
from fastapi_mcp_mrtr.server.groups import HandlerGroup
from fastapi_mcp_mrtr.server.listing import Listings
from fastapi_mcp_mrtr.server.older.asks import Asks
from fastapi_mcp_mrtr.server.older.bridge import Bridge
from fastapi_mcp_mrtr.server.older.sessions import Sessions
from fastapi_mcp_mrtr.server.registry import Entry
from fastapi_mcp_mrtr.server.shared_bus import bus_over
from fastapi_mcp_mrtr.server.single_use import SingleUse
from fastapi_mcp_mrtr.server.subscriptions import ResourceUpdated, list_changed
from fastapi_mcp_mrtr.state.codec import AESGCMCodec, RequestStateCodec
from fastapi_mcp_mrtr.state.keys import KeyRing, Secret
from fastapi_mcp_mrtr.state.ledger import Ledger
from fastapi_mcp_mrtr.state.security import StateSecurity
from fastapi_mcp_mrtr.state.sessions import MemorySessionStore, SessionSecurity, SessionStore

from .console.guard import refuse_evident_host
from .console.settings import Console, ConsoleSetting
from .endpoint import MCPEndpoint, endpoint_function
from .exchange import StreamSettings
from .metadata import protected_resource, well_known_router
from .older import OlderEndpoint
from .operations import HandlerOperations, endpoint_operation
from .origin import OriginPolicy
from .routes import DocumentedRoute, MCPRoute, MCPRoutes, iter_endpoints

logger = logging.getLogger("fastapi_mcp_mrtr")

_BROWSER_HEADERS: Final = (
    "Authorization",
    "Content-Type",
    "Mcp-Method",
    "Mcp-Name",
    "MCP-Protocol-Version",
)
"""What a browser client sends beyond the headers that need no permission."""


_SESSION_HEADERS: Final = ("Mcp-Session-Id", "Last-Event-ID")
"""What browser clients of older revisions send too. They also have to read the first one."""

_LEDGERS: Final = (
    "MCPRouter(..., ledger=MemoryLedger()) for one process, RedisLedger(url) or SQLLedger(url) "
    "for several"
)


class CORSHeaders(TypedDict):
    """Arguments for FastAPI's `CORSMiddleware`."""

    allow_methods: list[str]
    allow_headers: list[str]
    expose_headers: list[str]


class MCPRouter(MCPRoutes, HandlerGroup):
    """An MCP endpoint for a FastAPI app, and the tools, prompts and resources behind it.

    ```python
    mcp = MCPRouter("travel-desk", version="1.0.0", principal=current_user)

    @mcp.tool()
    async def book_seat(flight: str) -> Rounds[str]:
        \"\"\"Book a seat.\"\"\"
        seat: str = yield need_input("seat", f"Which seat on {flight}?", str)
        yield f"Booked {seat} on {flight}."

    app = FastAPI()
    app.include_router(mcp)  # POST /mcp
    ```

    It serves MCP revision 2026-07-28 and the three before it, needs no lifespan, and can be
    included under any prefix, in nested routers and in mounted apps; `/mcp` and `/mcp/` are the
    same.

    Args:
        name: the server's name, shown to clients and part of what a state is bound to.
        version: the server's version, shown to clients.
        path: where the endpoint is, below the router's prefix.
        title: a name for people.
        instructions: guidance for the model on using this server.
        principal: any FastAPI dependency, or `Depends(...)`: whatever it returns is the caller's
            identity. States are bound to it, handlers read it as `Context.principal`. `None`:
            everybody is anonymous.
        principal_key: turns what `principal` returns into what identifies it: a string, int, UUID,
            bytes or a tuple of those. Needed for objects of your own.
        scopes_of: what a principal may do, for handlers with `scopes=`: a list, or a string with
            spaces between the scopes. `None` is nothing. A `ProtectedResource`, as the principal or
            below it, knows that by itself; with `scopes_of` it still says which scopes include
            others (`imply=`).
        resource_metadata_url: where clients learn how to log in (RFC 9728), for an app that
            verifies tokens itself: it is added to the challenge of a 401.
        keys: the secrets that seal `requestState`. `None`: a random one for this process, which a
            restart and other workers do not know; the log says so.
        codec: seals states in place of the built-in AES-256-GCM.
        audience: what a state is for; `name` by default. Servers that share secrets need
            different ones.
        ttl: seconds a state stays valid; each round renews it.
        flow_lifetime: seconds after which a flow ends however many rounds it has had.
        max_rounds: how many rounds of one call may ask before it ends with an error.
        max_state_bytes: how long a `requestState` may be, made or received.
        ledger: where rounds of `single_use` handlers are claimed and their responses kept:
            `MemoryLedger()` for one process, `RedisLedger` or `SQLLedger` for several.
        single_use: the default of the handlers' `single_use`.
        lease: seconds after which another worker may take over a round whose worker died. It is
            renewed while the round runs.
        max_response_bytes: how long a stored response may be. A longer one is an internal error.
        max_body_size: how long a request body may be, in bytes. More is 413.
        page_size: how many items the list methods return at once.
        list_ttl_ms: how long clients may keep a list, in milliseconds.
        allowed_origins: web origins that may call, such as `https://app.example.com`.
        allowed_hosts: hosts whose own pages may call, such as `api.example.com`.
        console: `True` shows a page at `/mcp/console` on which people play the client, on this
            computer only; `"debug"` also lets it open `requestState`s; `Console(...)` has more.
        keep_alive: seconds between the comments that keep a quiet stream open.
        shutdown_grace: seconds a streaming call may go on after the server was told to stop.
        openapi_tools: `False` shows only the endpoint in `/docs`, not what is behind it.
        versions: the protocol revisions served, of `"2026-07-28"`, `"2025-11-25"`, `"2025-06-18"`
            and `"2025-03-26"`; all by default. Without the older three there are no sessions.
        sessions: where sessions of older revisions keep what their ids cannot say, and how workers
            pass answers on to each other: `MemorySessionStore()` for one process, the default, or
            `RedisSessionStore` for several.
        ask_timeout: seconds a client of an older revision has to answer, at most a state's `ttl`.
            Today's clients come back whenever they can, within `ttl`.
        max_asks_per_session: how many questions may wait for one session's answers in a process.
            Each worker counts its own, whatever `sessions` is.
        session_lifetime: seconds after which an older client has to initialize again.
        clock: seconds since the epoch; for tests.
        router_options: everything `APIRouter` takes: `prefix`, `tags`, `dependencies`, ...

    Raises:
        ValueError, TypeError: a setting makes no sense.
        RuntimeError: there is to be a console, and the command line shows that the server listens
            to others than this computer.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str,
        path: str = "/mcp",
        title: str | None = None,
        instructions: str | None = None,
        principal: Callable[..., Any] | params.Depends | None = None,
        principal_key: Callable[[Any], Any] | None = None,
        scopes_of: Callable[[Any], Iterable[str] | None] | None = None,
        resource_metadata_url: str | None = None,
        keys: KeyRing | Secret | None = None,
        codec: RequestStateCodec | None = None,
        audience: str | None = None,
        ttl: float = 600.0,
        flow_lifetime: float = 3600.0,
        max_rounds: int = 16,
        max_state_bytes: int = 64 * 1024,
        ledger: Ledger | None = None,
        single_use: bool = False,
        lease: float = 30.0,
        max_response_bytes: int = 1024 * 1024,
        max_body_size: int = 4 * 1024 * 1024,
        page_size: int = 100,
        list_ttl_ms: int = 60_000,
        allowed_origins: Iterable[str] = (),
        allowed_hosts: Iterable[str] = (),
        console: ConsoleSetting = False,
        keep_alive: float = 15.0,
        shutdown_grace: float = 5.0,
        versions: Sequence[str] = VERSIONS,
        sessions: SessionStore | None = None,
        ask_timeout: float = 600.0,
        max_asks_per_session: int = 16,
        session_lifetime: float = 86_400.0,
        openapi_tools: bool = True,
        clock: Callable[[], float] = time.time,
        **router_options: Any,
    ) -> None:
        require_positive(
            ttl=ttl,
            flow_lifetime=flow_lifetime,
            max_rounds=max_rounds,
            max_state_bytes=max_state_bytes,
            lease=lease,
            max_response_bytes=max_response_bytes,
            max_body_size=max_body_size,
            page_size=page_size,
            keep_alive=keep_alive,
            shutdown_grace=shutdown_grace,
            ask_timeout=ask_timeout,
            max_asks_per_session=max_asks_per_session,
            session_lifetime=session_lifetime,
        )
        require_not_negative(list_ttl_ms=list_ttl_ms)
        _require_text(name=name, version=version)
        _require_callable(principal_key=principal_key, scopes_of=scopes_of, clock=clock)
        _require_object("ledger", ledger, ("claim", "answer"), "MemoryLedger()")
        _require_object("sessions", sessions, ("load", "listen"), "MemorySessionStore()")
        _require_object("codec", codec, ("seal", "unseal"), "AESGCMCodec(keys)")
        if path and not path.startswith("/"):
            raise ValueError(f"path must begin with /, not {path!r}")
        served = _checked_versions(versions)
        shown = Console.of(console)
        if shown is not None and not shown.hosts:
            refuse_evident_host(sys.argv, os.environ)
        HandlerGroup.__init__(self)
        APIRouter.__init__(self, **{"tags": ["mcp"], **router_options})
        self.name = name
        principal_depends = _as_depends(principal)
        self.principal_dependency = _dependency(principal)
        """The callable behind `principal=`, the key for `app.dependency_overrides` in tests."""
        ring = KeyRing.of(keys)
        codec = codec or AESGCMCodec(ring)
        self._bus = bus_over(sessions)
        self._registry.on_change(lambda kind: self._bus.publish(list_changed(kind)))
        security = StateSecurity(
            codec, ring, audience=audience or name, max_state_bytes=max_state_bytes
        )
        once = None
        if ledger is not None:
            once = SingleUse(
                ledger,
                codec,
                ring,
                audience=audience or name,
                lease=lease,
                max_response_bytes=max_response_bytes,
            )
        elif single_use:
            raise ValueError(f"single_use=True needs a ledger: {_LEDGERS}")
        else:
            self._registry.require(_refuse_single_use)
        resource = protected_resource(principal_depends)
        metadata_url = resource.metadata_url if resource else resource_metadata_url
        access = Access(resource, scopes_of, metadata_url)
        self._registry.require(access.require_source)
        self._resource = resource
        defaults = Defaults(ttl, flow_lifetime, max_rounds, single_use, ask_timeout)
        self._flows = Flows(security, defaults, once, clock)
        server = MCPServer(
            info=_implementation(name, version, title),
            instructions=instructions,
            registry=self._registry,
            flows=self._flows,
            access=access,
            listings=Listings(self._registry, codec, page_size=page_size, ttl_ms=list_ttl_ms),
            bus=self._bus,
            versions=served,
        )
        streams = StreamSettings(keep_alive, shutdown_grace)
        older = None
        self._sessions: Sessions | None = None
        self._asks: Asks | None = None
        older_versions = [version for version in served if version in OLDER_VERSIONS]
        if older_versions:
            store = MemorySessionStore() if sessions is None else sessions
            self._sessions = Sessions(
                SessionSecurity(codec, ring, audience=audience or name),
                store,
                versions=older_versions,
                lifetime=session_lifetime,
                clock=clock,
            )
            asks = self._asks = Asks(store, codec, ring, max_asks_per_session=max_asks_per_session)
            older = OlderEndpoint(
                server=server,
                sessions=self._sessions,
                store=store,
                codec=codec,
                asks=asks,
                bridge=Bridge(server, asks),
                bus=self._bus,
                streams=streams,
                ask_timeout=ask_timeout,
            )
        endpoint = MCPEndpoint(
            server=server,
            origins=OriginPolicy(
                allowed_origins, allowed_hosts, own_hosts=shown.hosts if shown else ()
            ),
            streams=streams,
            max_body_size=max_body_size,
            principal_key=principal_key,
            resource=resource,
            metadata_url=metadata_url,
            older=older,
        )
        self._methods = endpoint.methods
        function = endpoint_function(endpoint, principal_depends)
        function.mcp_router = self  # type: ignore[attr-defined]
        for methods in [["POST"]] if older is None else [["POST"], ["GET", "DELETE"]]:
            self.add_api_route(
                path,
                function,
                methods=methods,
                route_class_override=MCPRoute,
                include_in_schema=False,
            )
        scopes = resource.scopes if resource else ()
        self.add_api_route(
            path,
            methods=["POST"],
            route_class_override=DocumentedRoute,
            **endpoint_operation(principal_depends, scopes),
        )
        if openapi_tools:
            self._show_handlers(path, principal_depends, scopes)
        self.lifespan_context = _warning_first(
            self.lifespan_context, name if principal is None else None
        )
        if shown is not None:
            # Not needed by most apps, so not imported by them.
            from .console.routes import add_console

            issuers = resource.authorization_servers if resource else ()
            add_console(
                self,
                path,
                shown,
                endpoint=endpoint,
                principal=principal_depends,
                describe=self._flows.describe,
                max_body_size=max_body_size,
                connect=(*issuers, metadata_url) if metadata_url else issuers,
            )

    def _show_handlers(
        self, path: str, principal: params.Depends | None, scopes: tuple[str, ...]
    ) -> None:
        """Have an operation in OpenAPI for each handler, grouped below the router's first tag."""
        tags = self.tags
        operations = HandlerOperations(
            self._registry,
            path=path,
            tag=str(tags[0]) if tags else self.name,
            principal=principal,
            scopes=scopes,
        )
        self.tags = []  # an operation with two tags is shown twice
        self.include_router(operations.routes)
        self.tags = tags

    @property
    def waits(self) -> int:
        """How often handlers that older clients called said `not_yet()`; for tests."""
        return 0 if self._asks is None else self._asks.waits

    @property
    def clock(self) -> Callable[[], float]:
        """What tells the time: seconds since the epoch. Settable, for tests."""
        return self._flows.clock

    @clock.setter
    def clock(self, clock: Callable[[], float]) -> None:
        self._flows.clock = clock
        if self._sessions is not None:
            self._sessions.clock = clock

    @property
    def well_known(self) -> APIRouter:
        """The routes with the metadata of the protected resource (RFC 9728), to be included too.

        ```python
        app.include_router(mcp, prefix="/api")
        app.include_router(mcp.well_known)  # on the outermost app, and without a prefix
        ```

        One route has the resource's own path in it. The other, at the root, is an alias for
        clients that look there; with several protected resources the first one included has it.

        Raises:
            LookupError: the router's principal is no `ProtectedResource`.
        """
        if self._resource is None:
            raise LookupError("There is no metadata: the principal is no ProtectedResource")
        return well_known_router(self._resource)

    def notify_resource_updated(self, uri: str) -> None:
        """Tell the clients that subscribed to `uri` that it changed. Callable from any thread.

        Reaches the subscribers of this process, and those of all workers that share a store for
        sessions (basic/patterns/subscriptions).
        """
        self._bus.publish(ResourceUpdated(uri))

    def cors_headers(self) -> CORSHeaders:
        """What FastAPI's `CORSMiddleware` needs for browser clients, to be passed on with `**`.

        ```python
        app.add_middleware(CORSMiddleware, allow_origins=[...], **mcp.cors_headers())
        ```

        Lists the `Mcp-Param-*` headers of the tools registered so far. List the same origins in
        `allowed_origins`: CORS decides what a page may read, the endpoint what it may call.
        """
        mirrored = {
            header.full_name
            for tool in self._registry.tools.values()
            for header in tool.param_headers
        }
        session = _SESSION_HEADERS if self._sessions is not None else ()
        return {
            "allow_methods": list(self._methods),
            "allow_headers": [*_BROWSER_HEADERS, *session, *sorted(mirrored)],
            "expose_headers": ["WWW-Authenticate", *session[:1]],
        }


def find_router(app: Any, path: str = "/mcp") -> MCPRouter:
    """The router that serves `path` in an app.

    Raises:
        LookupError: none does; the message lists the paths that are MCP endpoints.
    """
    routers: dict[str, MCPRouter] = {}
    for route_path, endpoint in iter_endpoints(app):
        router = getattr(endpoint, "mcp_router", None)
        if isinstance(router, MCPRouter):
            routers[route_path] = router
    for route_path, router in routers.items():
        if route_path.rstrip("/") == path.rstrip("/"):
            return router
    raise LookupError(f"No MCPRouter at {path!r}; there are: {', '.join(routers) or 'none'}")


def _warning_first(lifespan: Lifespan[Any], is_open: str | None) -> Lifespan[Any]:
    """The same, once what is to be warned of has been said: at start-up.

    The app's routes warn when they are built, which FastAPI would do for the first request, and
    does where no lifespan runs. `is_open` names a server that asks nobody who they are.
    """

    @asynccontextmanager
    async def warning(app: Any) -> AsyncIterator[Any]:
        if is_open is not None:
            logger.warning(
                "No principal= configured: whoever reaches the MCP server %r may call it, and a "
                "requestState opens for everybody. If that is meant, say so with "
                "MCPRouter(principal=lambda: None)",
                is_open,
            )
        for _ in iter_endpoints(app):
            pass
        async with lifespan(app) as state:
            yield state

    return warning


def _dependency(principal: Callable[..., Any] | params.Depends | None) -> Any:
    return principal.dependency if isinstance(principal, params.Depends) else principal


def _as_depends(principal: Any) -> Any:
    if principal is None or isinstance(principal, params.Depends):
        return principal
    if not callable(principal):
        raise TypeError(f"principal= takes a dependency, not {type(principal).__name__}")
    return Depends(principal)


def _refuse_single_use(entry: Entry) -> None:
    if entry.settings.single_use:
        raise ValueError(
            f"{entry.kind} {entry.name!r} is single_use, which needs a ledger: {_LEDGERS}"
        )


def _implementation(name: str, version: str, title: str | None) -> Mapping[str, Any]:
    info = {"name": name, "version": version}
    return info if title is None else {**info, "title": title}


def _checked_versions(versions: Sequence[str]) -> tuple[str, ...]:
    """The versions to serve, newest first."""
    if isinstance(versions, str) or not versions or not set(versions) <= set(VERSIONS):
        raise ValueError(f"versions takes some of {', '.join(VERSIONS)}, not {versions!r}")
    return tuple(version for version in VERSIONS if version in versions)


def _require_text(**settings: str) -> None:
    for setting, value in settings.items():
        if not isinstance(value, str):
            raise TypeError(f"{setting} takes a string, not {type(value).__name__}")
        if not value:
            raise ValueError(f"{setting} must not be empty")


def _require_callable(**settings: Any) -> None:
    for setting, value in settings.items():
        if value is not None and not callable(value):
            raise TypeError(f"{setting} takes a function, not {type(value).__name__}")


def _require_object(setting: str, value: Any, methods: Sequence[str], such_as: str) -> None:
    """Refuse a URL or a class where an object is wanted."""
    missing = [name for name in methods if not hasattr(value, name)]
    if value is not None and (missing or isinstance(value, type)):
        what = value.__name__ if isinstance(value, type) else type(value).__name__
        raise TypeError(f"{setting} takes an object such as {such_as}, not {what}")
