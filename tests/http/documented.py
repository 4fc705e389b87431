"""What a person does with `/docs`: find an operation, fill in nothing, send it."""

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from starlette.testclient import TestClient

from tests import wire

Json = dict[str, Any]


def document(app: FastAPI | TestClient) -> Json:
    """The OpenAPI document, as `/docs` gets it."""
    client = app if isinstance(app, TestClient) else wire.client_of(app)
    found: Json = client.get("/openapi.json").json()
    return found


def operations(app: FastAPI | TestClient) -> dict[str, Json]:
    """The operations of handlers, by path."""
    paths = document(app)["paths"]
    return {path: item["post"] for path, item in paths.items() if "#" in path}


def body_of(operation: Json, example: str = "first") -> Json:
    """An example body."""
    examples = operation["requestBody"]["content"]["application/json"]["examples"]
    found: Json = examples[example]["value"]
    return found


def headers_of(operation: Json) -> dict[str, str]:
    """The header parameters that come filled in."""
    return {
        each["name"]: each["schema"]["default"]
        for each in operation["parameters"]
        if each["in"] == "header" and "default" in each["schema"]
    }


def try_out(
    client: FastAPI | TestClient,
    path: str,
    operation: Json,
    body: Json | None = None,
    headers: Mapping[str, str] | None = None,
) -> wire.Response:
    """Send an operation's example; or that body, with the operation's headers."""
    client = client if isinstance(client, TestClient) else wire.client_of(client)
    return client.post(
        path.partition("#")[0],  # what a browser sends of it
        json=body_of(operation) if body is None else body,
        headers={**headers_of(operation), **(headers or {})},
    )
