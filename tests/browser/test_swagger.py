"""`/docs` and `/redoc` as FastAPI serves them, with the tools in them, in a browser."""

import json
import re
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from fastapi import FastAPI, HTTPException, Security
from fastapi.security import APIKeyHeader
from playwright.sync_api import Locator, Page, Route, expect
from pydantic import BaseModel, Field

from fastapi_mcp_mrtr import MCPHeader, MCPRouter, Rounds, need_input

from .conftest import OpenTab, Serving

STATIC = Path(str(resources.files("fastapi_offline"))) / "static"
"""The pages' scripts and styles, which FastAPI has from elsewhere."""


class Seat(BaseModel):
    row: int = Field(ge=1, le=40)
    letter: Literal["A", "B", "C"]


def create_app(_: str) -> FastAPI:
    async def user(
        key: Annotated[str | None, Security(APIKeyHeader(name="X-API-Key", auto_error=False))],
    ) -> str:
        if key != "key-ada":
            raise HTTPException(401, "Unknown API key")
        return "ada"

    mcp = MCPRouter("travel-desk", version="1", principal=user)

    @mcp.tool(title="Book a seat")
    async def book_seat(
        flight: Annotated[str, MCPHeader("Flight"), Field(examples=["LX318"])],
    ) -> Rounds[str]:
        """Book a seat, asking for whatever is missing."""
        seat: Seat = yield need_input("seat", f"Which seat on {flight}?", Seat)
        ok: bool = yield need_input("confirm", f"Book {seat.row}{seat.letter}?", bool)
        yield f"Booked {seat.row}{seat.letter} on {flight}." if ok else "Nothing was booked."

    app = FastAPI(title="Travel desk")
    app.include_router(mcp, prefix="/api")
    return app


@pytest.fixture(scope="module")
def base(serve: Serving) -> str:
    return serve(create_app)


@pytest.fixture
def page(open_tab: OpenTab) -> Page:
    """A tab for which there is nothing but this machine."""
    tab = open_tab(viewport={"width": 1200, "height": 900})
    tab.page.route(lambda url: "//127.0.0.1:" not in url, from_here)
    return tab.page


def from_here(route: Route) -> None:
    """Answer for the world: with the pages' own files, and else with nothing."""
    file = STATIC / route.request.url.rpartition("/")[2]
    if file.is_file():
        route.fulfill(path=file)
    else:
        route.fulfill(status=204)


class Operation:
    """An operation that somebody has opened to try it out."""

    def __init__(self, page: Page, path: str) -> None:
        self.block: Locator = page.locator(".opblock").filter(
            has=page.locator(f'[data-path="{path}"]')
        )
        self.block.locator(".opblock-summary-control").click()
        self.block.get_by_role("button", name="Try it out").click()
        self.body = self.block.locator("textarea.body-param__text")

    def execute(self, text: str) -> str:
        """The response's body, once `text` is in it."""
        self.block.get_by_role("button", name="Execute").click()
        response = self.block.locator(
            ".live-responses-table tr.response > .response-col_description"
        )
        expect(response).to_contain_text(text)
        return str(response.locator("code.language-json").first.inner_text())

    def choose(self, example: str) -> None:
        self.block.locator(".examples-select-element").select_option(label=example)
        expect(self.body).to_have_value(re.compile('"inputResponses"'))

    def edit(self, change: Callable[[Any], None]) -> None:
        """Change the body, as somebody types it."""
        body = json.loads(self.body.input_value())
        change(body)
        self.body.fill(json.dumps(body))


def authorize(page: Page, key: str) -> None:
    page.get_by_role("button", name="Authorize").first.click()
    dialog = page.locator(".modal-ux")
    dialog.get_by_role("textbox").fill(key)
    dialog.locator(".auth-btn-wrapper").get_by_role("button", name="Apply credentials").click()
    dialog.get_by_role("button", name="Close").last.click()


def test_a_two_round_tool_is_called_from_swagger_ui(page: Page, base: str) -> None:
    """User report: no /docs for tools. Nothing is typed but the state and the answers."""
    page.goto(f"{base}/docs")
    authorize(page, "key-ada")
    operation = Operation(page, "/api/mcp#tool=book_seat")
    answer = json.loads(operation.execute("input_required"))
    assert answer["result"]["inputRequests"]["seat"]["params"]["message"] == "Which seat on LX318?"

    operation.choose("Next round, with answers")
    for expected in ("Book 4B?", "Booked 4B on LX318."):

        def change(body: Any, state: str = answer["result"]["requestState"]) -> None:
            body["params"]["requestState"] = state
            body["params"]["inputResponses"]["seat"]["content"] = {"row": 4, "letter": "B"}

        operation.edit(change)
        answer = json.loads(operation.execute(expected))
    assert answer["result"]["resultType"] == "complete"


def test_who_is_not_authorized_is_told(page: Page, base: str) -> None:
    """Decision: the principal's own refusal, where the caller looks."""
    page.goto(f"{base}/docs")
    operation = Operation(page, "/api/mcp#tool=book_seat")
    operation.execute("Unknown API key")


def test_redoc_has_a_section_for_each_handler(page: Page, base: str) -> None:
    """Decision: /redoc is for reading what /docs is for trying."""
    page.goto(f"{base}/redoc")
    section = page.locator('[data-section-id*="tool_book_seat"]').last
    expect(section.get_by_role("heading", name="Book a seat")).to_be_visible()
    expect(section).to_contain_text("asking for whatever is missing")
    expect(section).to_contain_text("Mcp-Param-Flight")
    expect(section).to_contain_text("/api/mcp#tool=book_seat")
