"""The application: `uvicorn --factory service.main:create_app`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Response, Security
from fastapi.security import APIKeyHeader
from redis.asyncio import Redis
from redis.exceptions import RedisError

from fastapi_mcp_mrtr import MCPRouter, RedisLedger, RedisSessionStore

from .settings import Settings, digest
from .tools import desk

VERSION = "1.0.0"


def create_app(settings: Settings | None = None, **options: Any) -> FastAPI:
    """An app of its own. `options` are FastAPI's."""
    chosen = settings or Settings.from_env()
    redis: Redis = Redis.from_url(chosen.redis_url, socket_timeout=2, health_check_interval=30)
    sessions = RedisSessionStore(redis)

    async def caller(key: Annotated[str, Security(APIKeyHeader(name="X-API-Key"))]) -> str:
        who = chosen.callers.get(digest(key))
        if who is None:
            raise HTTPException(401, "Unknown API key")
        return who

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await sessions.aclose()
        await redis.aclose()

    mcp = MCPRouter(
        "ticket-desk",
        version=VERSION,
        principal=caller,
        keys=chosen.keys,
        ledger=RedisLedger(redis),
        sessions=sessions,
        allowed_hosts=chosen.allowed_hosts,
    )
    mcp.include(desk)
    app = FastAPI(title="Ticket desk", version=VERSION, lifespan=lifespan, **options)
    app.include_router(mcp)

    @app.get("/healthz", tags=["health"])
    async def healthz() -> dict[str, str]:
        """The process answers. If it does not, restart it."""
        return {"status": "alive"}

    @app.get("/readyz", tags=["health"])
    async def readyz(response: Response) -> dict[str, str]:
        """What calls need is there. If it is not, send them elsewhere."""
        try:
            await redis.ping()
        except RedisError:
            response.status_code = 503
            return {"status": "no Redis"}
        return {"status": "ready"}

    return app
