"""FastMCP, as it comes."""

from importlib import import_module
from typing import Any

# By name, because only the environment of the benchmark has it, and not that of the type checkers.
server: Any = import_module("fastmcp").FastMCP("bench")


async def echo(text: str) -> str:
    return text


server.tool(output_schema=None)(echo)

app = server.http_app()
