"""A server that only plays a script: one prepared reply a request, right or wrong.

What a test of the client needs to know is what was sent, and how the client takes what comes back.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Request, Response

SERVER = {"io.modelcontextprotocol/serverInfo": {"name": "script", "version": "1"}}

Answer = Mapping[str, Any] | Response | Callable[["Seen"], "Mapping[str, Any] | Response"]


@dataclass
class Seen:
    """One request that reached the server."""

    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def params(self) -> dict[str, Any]:
        params: dict[str, Any] = self.body["params"]
        return params

    @property
    def meta(self) -> dict[str, Any]:
        meta: dict[str, Any] = self.params["_meta"]
        return meta


@dataclass
class Script:
    """The app, the replies to come and the requests that came."""

    replies: list[Answer]
    seen: list[Seen] = field(default_factory=list)

    def app(self, path: str = "/mcp") -> FastAPI:
        app = FastAPI()

        @app.post(path)
        async def endpoint(request: Request) -> Response:
            return self.next(Seen(dict(request.headers), await request.json()))

        return app

    def next(self, seen: Seen) -> Response:
        self.seen.append(seen)
        reply = self.replies.pop(0)
        if callable(reply) and not isinstance(reply, Response):
            reply = reply(seen)
        if isinstance(reply, Response):
            return reply
        return as_json(seen, reply)


def as_json(seen: Seen, members: Mapping[str, Any], status: int = 200) -> Response:
    """A JSON-RPC response to what was seen: `{"result": ...}` or `{"error": ...}`."""
    message = {"jsonrpc": "2.0", "id": seen.body["id"], **members}
    return Response(json.dumps(message), status, media_type="application/json")


def as_events(*messages: Mapping[str, Any]) -> Response:
    """A response stream with these messages."""
    text = ": hello\n\n" + "".join(f"data: {json.dumps(message)}\n\n" for message in messages)
    return Response(text, media_type="text/event-stream")


def done(text: str = "ok", **members: Any) -> dict[str, Any]:
    """The result of a tool."""
    content = [{"type": "text", "text": text}]
    return {"result": {"resultType": "complete", "content": content, "_meta": SERVER, **members}}


def asking(state: str | None = None, **asks: Mapping[str, Any]) -> dict[str, Any]:
    """An ask for input; without asks it only waits."""
    result: dict[str, Any] = {"resultType": "input_required"}
    if asks:
        result["inputRequests"] = asks
    if state is not None:
        result["requestState"] = state
    return {"result": result}


def failed(code: int, message: str, status: int = 400, data: Any = None) -> Answer:
    """A JSON-RPC error."""
    error = {"code": code, "message": message} | ({} if data is None else {"data": data})

    def answer(seen: Seen) -> Response:
        return as_json(seen, {"error": error}, status)

    return answer


def form(message: str = "Which seat?", **properties: Mapping[str, Any]) -> dict[str, Any]:
    """An elicitation in form mode."""
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    params = {"mode": "form", "message": message, "requestedSchema": schema}
    return {"method": "elicitation/create", "params": params}


SEAT = form(row={"type": "integer"}, letter={"type": "string"})
CONFIRM = form("Pay 120?", value={"type": "boolean"})
PAY = {
    "method": "elicitation/create",
    "params": {"mode": "url", "message": "Please pay", "url": "http://testserver/pay/1"},
}
POEM: dict[str, Any] = {
    "method": "sampling/createMessage",
    "params": {
        "messages": [{"role": "user", "content": {"type": "text", "text": "Write a poem"}}],
        "maxTokens": 100,
    },
}
ROOTS = {"method": "roots/list"}
