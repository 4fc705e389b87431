"""The official SDK's server, in JSON mode and as it comes."""

import os
from typing import Annotated

from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from starlette.applications import Starlette

from .shared import Seat

TOOLS = int(os.environ.get("BENCH_TOOLS", "0"))
"""How many tools there are instead of those that the other measurements need."""

server = MCPServer("bench", log_level="WARNING")

SCHEMA = {
    "type": "object",
    "properties": {
        "row": {"type": "integer", "minimum": 1, "maximum": 40},
        "letter": {"type": "string", "enum": ["A", "B", "C"]},
    },
    "required": ["row", "letter"],
}


@server.tool(structured_output=False)
async def echo(text: str) -> str:
    return text


async def which_seat(flight: str) -> Elicit[Seat]:
    return Elicit(f"Which seat on {flight}?", Seat)


def add_all() -> None:
    @server.tool(structured_output=False)
    async def fail(text: str) -> str:
        raise ToolError(text)

    @server.tool(structured_output=False)
    async def two_rounds(flight: str, ctx: Context) -> str | InputRequiredResult:
        """By hand: ask, then read what came back."""
        if ctx.input_responses is None:
            message = f"Which seat on {flight}?"
            params = ElicitRequestFormParams(message=message, requested_schema=SCHEMA)
            return InputRequiredResult(
                input_requests={"seat": ElicitRequest(params=params)}, request_state=flight
            )
        answer = ctx.input_responses["seat"]
        assert isinstance(answer, ElicitResult)
        seat = Seat.model_validate(answer.content)
        return f"{seat.row}{seat.letter}"

    @server.tool(structured_output=False)
    async def two_rounds_resolved(flight: str, seat: Annotated[Seat, Resolve(which_seat)]) -> str:
        return f"{seat.row}{seat.letter}"

    @server.tool(structured_output=False)
    async def stream(ctx: Context) -> str:
        for number in range(100):
            await ctx.report_progress(number + 1, total=100)
        return "done"


def add(number: int) -> None:
    @server.tool(f"tool_{number}", structured_output=False)
    async def tool(text: str, size: int = 1, deep: bool = False) -> str:
        """One of many tools, with a description of ordinary length for the model to read."""
        return text


if TOOLS:
    for number in range(TOOLS - 1):
        add(number)
else:
    add_all()


def json_mode() -> Starlette:
    return server.streamable_http_app(json_response=True)


def default_mode() -> Starlette:
    return server.streamable_http_app()
