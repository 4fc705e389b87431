"""A Starlette route that reads JSON and answers with JSON."""

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route


async def echo(request: Request) -> JSONResponse:
    body = await request.json()
    return JSONResponse({"text": body["text"]})


app = Starlette(routes=[Route("/echo", echo, methods=["POST"])])
