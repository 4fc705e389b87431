"""The endpoint in OpenAPI, and each tool, prompt and resource as an operation of its own.

Serves no request.

OpenAPI knows one operation for a path and a method, and all of MCP is one POST. Paths that differ
in their fragment are different paths to OpenAPI and one path to HTTP, which does not send it: so
`/mcp#tool=book_seat` has a form of its own in `/docs`, and trying it out calls `/mcp`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from inspect import Parameter, Signature
from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import Body, Response, params
from fastapi.routing import APIRoute

from fastapi_mcp_mrtr.auth.scopes import union_scopes
from fastapi_mcp_mrtr.server.access import required_scopes
from fastapi_mcp_mrtr.server.registry import Entry, Registry

from .messages import Message, PromptMessage, ResourceMessage, ToolMessage
from .openapi import (
    OPERATION,
    REFUSALS,
    STREAM,
    UNAUTHENTICATED,
    Describe,
    Described,
    Json,
    MCPErrorResponse,
    described,
)
from .routes import DocumentedRoutes

_KINDS: Final[Mapping[str, tuple[type[Message], str, str]]] = {
    "tools": (ToolMessage, "tool", "tools"),
    "prompts": (PromptMessage, "prompt", "prompts"),
    "resources": (ResourceMessage, "resource", "resources"),
    "templates": (ResourceMessage, "template", "resources"),
}
"""The registry's table → its messages, what fragments call one of it, the tag."""


class HandlerOperations:
    """The operations of one router's handlers. `routes` is to be included into it.

    Args:
        path: the endpoint's.
        tag: what the tags of the operations begin with.
        principal: the dependency behind the router's `principal=`.
        scopes: what every request needs.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        path: str,
        tag: str,
        principal: params.Depends | None,
        scopes: tuple[str, ...],
    ) -> None:
        self._registry = registry
        self._path = path
        self._tag = tag
        self._principal = principal
        self._scopes = scopes
        self.routes: Final = DocumentedRoutes(self._build)
        registry.on_change(lambda _: self.routes.changed())

    def _build(self) -> Iterator[APIRoute]:
        taken: set[str] = set()
        for table, (message_type, noun, group) in _KINDS.items():
            entries: Mapping[str, Entry] = getattr(self._registry, table)
            for entry in list(entries.values()):  # a copy: others may be registered meanwhile
                if entry.settings.visibility != "authorized":
                    message = message_type(entry)
                    fragment = _unique(f"{noun}={quote(message.label, safe='')}", taken)
                    yield self._route(message, fragment, f"{self._tag} {group}")

    def _route(self, message: Message, fragment: str, tag: str) -> APIRoute:
        name = _identifier(fragment)
        entry = message.entry
        body = Parameter(
            "body",
            Parameter.KEYWORD_ONLY,
            annotation=Annotated[
                described(f"{name}_request", message.request_schema),
                Body(openapi_examples=message.examples()),
            ],
        )

        def operation(**_: Any) -> None:
            raise NotImplementedError  # pragma: no cover - no request is ever routed here

        operation.__signature__ = Signature([body])  # type: ignore[attr-defined]
        return APIRoute(
            f"{self._path}#{fragment}",
            operation,
            name=name,
            methods=["POST"],
            tags=[tag],
            summary=str(entry.definition.get("title", message.label)),
            description=message.description(),
            dependencies=list(self._dependencies(entry)),
            response_model=_response(name, message),
            response_description="What the handler returns, or what it asks for",
            responses={
                200: {"content": STREAM},
                **(UNAUTHENTICATED if self._principal else {}),
                **REFUSALS,
                "default": {"description": "How the app's own dependencies refuse"},
            },
            openapi_extra={"parameters": message.headers()},
        )

    def _dependencies(self, entry: Entry) -> Iterator[params.Depends]:
        """What a call solves: the principal, with the scopes it needs here, and the handler's own.

        FastAPI documents the headers, cookies and security schemes that are below them.
        """
        if self._principal is not None:
            yield _with_scopes(self._principal, (*self._scopes, *required_scopes(entry)))
        if entry.signature.dependencies is not None:
            yield entry.signature.dependencies.documented()


def endpoint_operation(
    principal: params.Depends | None, scopes: tuple[str, ...]
) -> Mapping[str, Any]:
    """Arguments for `add_api_route`, of a route that documents the endpoint.

    The one that serves it asks the principal for no scopes: FastAPI tells dependencies apart by
    their scopes, and so would call it once more for a handler that depends on it, too.
    """

    async def mcp() -> Response:
        """Send a JSON-RPC request of the Model Context Protocol."""
        raise NotImplementedError  # pragma: no cover - no request is ever routed here

    if principal is None:
        return {**OPERATION, "endpoint": mcp}
    return {
        **OPERATION,
        "endpoint": mcp,
        "responses": {**OPERATION["responses"], **UNAUTHENTICATED},
        "dependencies": [_with_scopes(principal, scopes)],
    }


def _with_scopes(principal: params.Depends, scopes: Iterable[str]) -> params.Security:
    """The principal as a dependency that needs these scopes and its own."""
    own: Iterable[str] = getattr(principal, "scopes", None) or ()
    return params.Security(
        principal.dependency,
        use_cache=principal.use_cache,
        scopes=list(union_scopes(own, scopes)),
    )


def _response(name: str, message: Message) -> type[Described]:
    """One of several components. Client generators trip over objects that are written in place."""
    types = [described(f"{name}_{kind}", s) for kind, s in message.response_schemas().items()]
    types.append(MCPErrorResponse)

    def schema(describe: Describe) -> Json:
        return {"anyOf": [describe(each.core_schema()) for each in types]}

    return described(f"{name}_response", schema)


def _identifier(fragment: str) -> str:
    return re.sub(r"\W", "_", fragment)


def _unique(fragment: str, taken: set[str]) -> str:
    """The fragment, with a number if another one makes the same identifier."""
    candidate, number = fragment, 1
    while (name := _identifier(candidate)) in taken:
        number += 1
        candidate = f"{fragment}-{number}"
    taken.add(name)
    return candidate
