"""The application: one lifespan, one database, and three routers beside each other."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI

from fastapi_mcp_mrtr import MCPRouter

from . import mcp_tools, rest, web
from .auth import current_customer
from .db import Database
from .desk import Desk
from .payments import Payments
from .schemas import CustomerView
from .settings import Settings

VERSION = "1.0.0"


def create_app(
    settings: Settings | None = None, *, clock: Callable[[], float] = time.time
) -> FastAPI:
    """An app of its own, settled by `settings` or by the environment.

    `uvicorn --factory demo_app.app:create_app --workers 3` serves it from several processes; give
    them one `TRAVEL_DESK_SECRET`.
    """
    chosen = settings or Settings.from_env()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        database = Database(chosen.database)
        desk = Desk(database, clock=clock, hold_seconds=chosen.hold_seconds)
        await database.prepare(desk.now())
        app.state.settings = chosen
        app.state.desk = desk
        app.state.payments = Payments(desk, patience=chosen.patience)
        try:
            yield
        finally:
            await database.close()

    def principal_key(customer: CustomerView) -> str:
        return customer.id

    mcp = MCPRouter(
        "travel-desk",
        version=VERSION,
        title="Travel desk",
        instructions="Search flights first; book with the flight's number. Prices are euro cents.",
        principal=current_customer,
        principal_key=principal_key,
        keys=chosen.secret,
        clock=clock,
        tags=["MCP"],
    )
    mcp.include(mcp_tools.travel)

    app = FastAPI(title="Travel desk", version=VERSION, lifespan=lifespan)
    app.include_router(rest.router)
    app.include_router(web.router)
    app.include_router(mcp)
    app.add_exception_handler(web.Stop, web.show_stop)
    return app
