"""The application: one lifespan, one database, and its routers beside each other."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx2
from fastapi import FastAPI

from fastapi_mcp_mrtr import MCPRouter, RedisSessionStore

from . import connect, mcp_miles, mcp_tools, rest, web
from .auth import caller_by_key, caller_by_token_or_key, scopes_of
from .db import Database
from .desk import Desk
from .login import authorization_server, protected_desk
from .miles import Miles
from .miles_club import MilesClub
from .payments import Payments
from .settings import Settings

VERSION = "1.0.0"


def create_app(
    settings: Settings | None = None, *, clock: Callable[[], float] = time.time
) -> FastAPI:
    """An app of its own, settled by `settings` or by the environment.

    `uvicorn --factory demo_app.app:create_app --workers 3` serves it from several processes; give
    them one `TRAVEL_DESK_SECRET`, and for clients of older revisions one `TRAVEL_DESK_REDIS`.

    With `login`, clients of the MCP endpoint can log in by OAuth; without, they send API keys.
    """
    chosen = settings or Settings.from_env()
    login = server = club = None
    if chosen.login:
        server = authorization_server(chosen.base_url, clock=clock)
        login = protected_desk(chosen.base_url, server, clock=clock)
        club = MilesClub(chosen.base_url, f"{chosen.base_url}{connect.CALLBACK}", clock=clock)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        database = Database(chosen.database)
        desk = Desk(database, clock=clock, hold_seconds=chosen.hold_seconds)
        await database.prepare(desk.now())
        app.state.settings = chosen
        app.state.desk = desk
        app.state.payments = Payments(desk, patience=chosen.patience)
        if club is not None:
            app.state.miles = Miles(
                desk,
                club.registration,
                transport=httpx2.ASGITransport(app),  # it is in this process
                patience=chosen.patience,
            )
        try:
            yield
        finally:
            await database.close()

    mcp = MCPRouter(
        "travel-desk",
        version=VERSION,
        title="Travel desk",
        instructions="Search flights first; book with the flight's number. Prices are euro cents.",
        principal=caller_by_token_or_key(login) if login else caller_by_key,
        scopes_of=scopes_of,
        keys=chosen.secret,
        sessions=RedisSessionStore(chosen.redis) if chosen.redis else None,
        clock=clock,
        console=True,
        tags=["MCP"],
    )
    mcp.include(mcp_tools.travel)
    if club is not None:
        mcp.include(mcp_miles.miles_tools)

    app = FastAPI(title="Travel desk", version=VERSION, lifespan=lifespan)
    app.include_router(rest.router)
    app.include_router(web.router)
    app.include_router(mcp)
    app.state.login = login
    app.state.auth_server = server
    if server is not None and club is not None:
        app.include_router(mcp.well_known)
        app.include_router(server.router)
        app.include_router(club.router)
        app.include_router(connect.router)
    app.add_exception_handler(web.Stop, web.show_stop)
    return app
