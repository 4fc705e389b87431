"""The apps that the browser tests open: a server that asks for everything, and a protected one."""

import asyncio
import base64
import struct
import zlib
from datetime import date
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, Header
from fastapi.responses import HTMLResponse
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from pydantic import BaseModel, Field, field_validator

from demo_app.auth_server import AuthServer, AuthSettings, Resource, seeded_customer
from fastapi_mcp_mrtr import (
    Complete,
    Context,
    JWTVerifier,
    MCPHeader,
    MCPRouter,
    ProtectedResource,
    Rounds,
    Secret,
    Titles,
    ToolError,
    VerifiedToken,
    log,
    need_input,
    need_roots,
    need_sampling,
    need_url,
    not_yet,
    progress,
    step,
)


def cities(value: str) -> list[str]:
    return [city for city in ("Lisbon", "Lima", "Oslo") if city.startswith(value)]


def png(width: int, height: int) -> str:
    """A picture of a sunset, in Base64."""
    rows = b"".join(
        b"\0"
        + bytes((255 - y * 120 // height, 140 - y * 80 // height, 60 + y * 130 // height)) * width
        for y in range(height)
    )

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )
    return base64.b64encode(data).decode()


def silence() -> str:
    """A tenth of a second of it, in Base64."""
    samples = bytes(1600)
    head = struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        b"RIFF", 36 + len(samples), b"WAVE",
        b"fmt ", 16, 1, 1, 8000, 16000, 2, 16, b"data", len(samples),
    )  # fmt: skip
    return base64.b64encode(head + samples).decode()


class Seat(BaseModel):
    """A seat on the plane."""

    row: int = Field(ge=1, le=40, title="Row", description="1 is in front.")
    letter: Literal["A", "B", "C"] = Field(title="Seat")
    note: str | None = Field(None, max_length=80, title="Anything else?")

    @field_validator("row")
    @classmethod
    def no_bad_luck(cls, row: int) -> int:
        if row == 13:
            raise ValueError("there is no such row")
        return row


MEALS = {"v": "Vegetables", "f": "Fish", "m": "Meat"}


class Meals(BaseModel):
    meal: Annotated[Literal["v", "f", "m"], Titles(MEALS)] = Field(title="Meal")
    extras: Annotated[list[Literal["w", "c"]], Titles({"w": "Wine", "c": "Coffee"})] = Field(
        default=["c"], title="Extras"
    )


class Baggage(BaseModel):
    bags: int = Field(ge=0, le=5)
    fragile: bool = False


class Booking(BaseModel):
    flight: str
    seat: str
    price: float
    paid: bool


class Filter(BaseModel):
    origin: str
    latest: date | None = None
    stops: list[str] = []


def server(**options: Any) -> tuple[MCPRouter, asyncio.Event]:
    mcp = MCPRouter(
        "desk",
        version="1.2.0",
        title="Travel desk",
        instructions="Search flights first; book with the flight's number.",
        keys=Secret("tests", "a secret of the tests, thirty-two bytes or more"),
        **options,
    )

    async def hold(flight: str, seat: str) -> float:
        return 129.5

    @mcp.tool(title="Book a seat", annotations=ToolAnnotations(destructive_hint=False))
    async def book_seat(
        flight: Annotated[str, Field(pattern=r"^[A-Z]{2}\d+$", description="Such as LX318.")],
    ) -> Rounds[Booking]:
        """Book a seat. Asks which, holds it, and asks again before it is paid for."""
        seat: Seat = yield need_input("seat", f"Which seat would you like on {flight}?", Seat)
        price: float = yield step("hold", hold, flight, f"{seat.row}{seat.letter}")
        ok: bool = yield need_input(
            "confirm", f"Pay {price} euros for {seat.row}{seat.letter}?", bool
        )
        yield Booking(flight=flight, seat=f"{seat.row}{seat.letter}", price=price, paid=ok)

    @mcp.tool(title="Plan a trip")
    async def plan_trip() -> Rounds[str]:
        """Asks for meals and baggage in one round."""
        meals, baggage = yield (
            need_input("meals", "What would you like to eat?", Meals),
            need_input("baggage", "How much do you bring?", Baggage),
        )
        yield f"{meals.meal} and {', '.join(meals.extras)}, {baggage.bags} bags"

    paid: set[str] = set()

    @mcp.tool(title="Pay by card")
    async def pay(page: str, ctx: Context) -> Rounds[str]:
        """Sends you to a page, and waits until you have paid there."""
        yield need_url("pay", "Please pay for your flight.", f"{page}?payment={ctx.flow_id[:8]}")
        if ctx.flow_id not in paid:
            paid.add(ctx.flow_id)  # for the next round: the page itself takes no money
            yield not_yet()
        yield "Paid."

    @mcp.tool(title="Compare fares", annotations=ToolAnnotations(read_only_hint=True))
    async def compare_fares(pause: float = 0.0) -> Rounds[str]:
        """Asks every partner, and says how far it is."""
        for done, partner in enumerate(("Northwind", "SkyPool", "Lanterne")):
            yield progress(done, 3, f"Asking {partner}")
            yield log("info", f"{partner} answered")
            if pause:
                await released.wait()
        yield log("warning", {"slow": ["SkyPool"]})
        yield "SkyPool is cheapest."

    released = asyncio.Event()

    @mcp.tool(title="Write a greeting")
    async def greet() -> Rounds[str]:
        """Asks your model for a text."""
        reply = yield need_sampling(
            "greeting", "Greet a traveller to Lisbon.", max_tokens=60, system_prompt="Be brief."
        )
        yield f"It wrote: {reply.content.text}"

    @mcp.tool(title="List folders")
    async def folders() -> Rounds[str]:
        """Asks which folders it may look at."""
        roots = yield need_roots("roots")
        yield ", ".join(str(root.uri) for root in roots)

    @mcp.tool(title="Show a postcard", structured=False)
    async def postcard() -> list[object]:
        """Returns a picture, a sound and files."""
        return [
            TextContent(type="text", text="Greetings <b onclick='x'>from</b> Lisbon."),
            ImageContent(type="image", data=png(240, 120), mime_type="image/png"),
            ImageContent(type="image", data="PHN2Zy8+", mime_type="image/svg+xml"),
            AudioContent(type="audio", data=silence(), mime_type="audio/wav"),
            ResourceLink(type="resource_link", name="terms", uri="desk://terms"),
            ResourceLink(type="resource_link", name="trap", uri="javascript:alert(1)"),
            EmbeddedResource(
                type="resource",
                resource=TextResourceContents(
                    uri="desk://note", mime_type="text/plain", text="A note"
                ),
            ),
            EmbeddedResource(
                type="resource",
                resource=BlobResourceContents(
                    uri="desk://stamp", mime_type="image/png", blob=png(40, 40)
                ),
            ),
        ]

    @mcp.tool(title="Fail")
    async def fail() -> str:
        """Always fails."""
        raise ToolError("There are no flights today.")

    @mcp.tool(title="Search flights", annotations=ToolAnnotations(read_only_hint=True))
    async def search(where: Filter, region: Annotated[str, MCPHeader("Region")] = "eu") -> str:
        """Takes a nested argument, a list and a mirrored one."""
        return f"{where.origin} until {where.latest} by {where.stops} in {region}"

    @mcp.prompt(title="Plan a weekend")
    async def weekend(city: Annotated[str, Complete(cities)], mood: str = "calm") -> str:
        """A weekend in a city."""
        return f"Plan a {mood} weekend in {city}."

    @mcp.resource("desk://terms", title="Terms")
    async def terms() -> str:
        """The small print."""
        return "Be on time."

    @mcp.resource("desk://flights/{number}", title="A flight")
    async def flight(number: str) -> dict[str, str]:
        """One flight by its number."""
        return {"number": number, "from": "ZRH"}

    return mcp, released


def key_holder(x_api_key: Annotated[str | None, Header()] = None) -> str:
    return x_api_key or "nobody"


def open_app() -> FastAPI:
    """A server for everybody, behind a prefix, with the console in debug mode."""
    app = FastAPI()
    mcp, released = server(console="debug", principal=key_holder)
    app.include_router(mcp, prefix="/api")

    @app.post("/release")
    async def release() -> None:
        released.set()

    @app.get("/elsewhere")
    async def elsewhere() -> HTMLResponse:
        return HTMLResponse("<title>Elsewhere</title><h1>Elsewhere</h1>")

    return app


def protected_app(base: str) -> FastAPI:
    """A server behind OAuth, and its authorization server, both at `base`."""
    app, place, issuer = FastAPI(), f"{base}/mcp", f"{base}/as"
    auth = AuthServer(
        AuthSettings(
            issuer=issuer,
            resources=(Resource(uri=place, name="Travel desk"),),
            sign_in=seeded_customer,
        )
    )
    resource = ProtectedResource(
        resource=place,
        authorization_servers=[issuer],
        scopes=["desk:read"],
        verifier=JWTVerifier(
            issuer=issuer,
            audience=place,
            jwks_uri=f"{issuer}/jwks.json",
            fetch=auth.fetch_keys,
        ),
    )
    mcp = MCPRouter("desk", version="1", title="Travel desk", console="debug", principal=resource)

    @mcp.tool(title="Who am I")
    async def whoami(token: Annotated[VerifiedToken, Depends(resource)]) -> Rounds[str]:
        """Says whose token it got."""
        sure: bool = yield need_input("sure", "Do you want to know?", bool)
        yield f"You are {token.subject}" if sure else "Very well."

    @mcp.tool(title="Cancel", scopes=["desk:book"])
    async def cancel(booking: str) -> str:
        """Needs more than signing in grants."""
        return f"{booking} is cancelled."

    app.include_router(mcp)
    app.include_router(mcp.well_known)
    app.include_router(auth.router)
    return app
