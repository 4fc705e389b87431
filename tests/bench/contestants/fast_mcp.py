"""FastMCP, as it comes."""

from fastmcp import FastMCP

server = FastMCP("bench")


@server.tool(output_schema=None)
async def echo(text: str) -> str:
    return text


app = server.http_app()
