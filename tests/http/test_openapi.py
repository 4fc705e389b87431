"""openapi: the endpoint in the app's own documentation."""

from collections.abc import Callable
from typing import Annotated, Any

import jsonschema
import pytest
from fastapi import Depends, FastAPI, Security
from fastapi.security import APIKeyHeader, HTTPBearer
from openapi_spec_validator import validate

from fastapi_mcp_mrtr import MCPRouter, ProtectedResource, VerifiedToken
from tests import wire


class Verifier:
    """Tokens are the names of users, who may read."""

    async def verify(self, token: str) -> VerifiedToken:
        return VerifiedToken(
            issuer="https://as.example.com", subject=token, scopes=frozenset({"read"})
        )


def protected() -> ProtectedResource:
    return ProtectedResource(
        resource="https://api.example.com/mcp",
        authorization_servers=["https://as.example.com"],
        verifier=Verifier(),
        scopes=["read"],
    )


def operation(app: FastAPI, path: str = "/mcp") -> dict[str, Any]:
    found: dict[str, Any] = app.openapi()["paths"][path]["post"]
    return found


def app_with(**options: Any) -> FastAPI:
    app, mcp = FastAPI(), MCPRouter("desk", version="1", **options)

    @mcp.tool()
    async def greet() -> str:
        return "hello"

    app.include_router(mcp)
    return app


def test_the_endpoint_is_documented() -> None:
    """User report: the endpoint was missing from /openapi.json and /docs."""
    found = operation(app_with())
    assert found["summary"] == "MCP endpoint"
    assert found["tags"] == ["mcp"]
    statuses = {"200", "202", "400", "403", "404", "413", "415"}
    assert set(found["responses"]) == statuses
    assert wire.client_of(app_with()).get("/docs").status_code == 200


def test_it_is_documented_where_it_is_included() -> None:
    """Decision: once, under its whole path, and as POST only."""
    app = FastAPI()
    app.include_router(MCPRouter("desk", version="1"), prefix="/api")
    assert list(app.openapi()["paths"]) == ["/api/mcp"]
    assert list(app.openapi()["paths"]["/api/mcp"]) == ["post"]


def test_the_headers_that_a_request_needs() -> None:
    """spec: the standard request headers (streamable-http §Standard Request Headers)."""
    parameters = {each["name"]: each for each in operation(app_with())["parameters"]}
    assert {name: each["required"] for name, each in parameters.items()} == {
        "MCP-Protocol-Version": True,
        "Mcp-Method": True,
        "Mcp-Name": False,
    }
    assert all(each["in"] == "header" for each in parameters.values())


def test_the_example_works() -> None:
    """Decision: "Try it out" gets an answer."""
    app = app_with()
    content = operation(app)["requestBody"]["content"]["application/json"]
    jsonschema.validate(content["example"], content["schema"])
    defaults = {
        each["name"]: each["schema"]["default"]
        for each in operation(app)["parameters"]
        if each["required"]
    }
    response = wire.client_of(app).post("/mcp", json=content["example"], headers=defaults)
    assert [tool["name"] for tool in wire.result_of(response)["tools"]] == ["greet"]


@pytest.mark.parametrize("how", ["principal", "dependencies"])
def test_the_security_scheme_of_the_app_shows(how: str) -> None:
    """User report: /docs had no Authorize button for the endpoint."""
    scheme = HTTPBearer(scheme_name="token")

    async def user(credentials: Annotated[Any, Security(scheme)]) -> str:
        return str(credentials.credentials)

    app = app_with(principal=user) if how == "principal" else app_with(dependencies=[Depends(user)])
    assert operation(app)["security"] == [{"token": []}]
    assert app.openapi()["components"]["securitySchemes"]["token"]["scheme"] == "bearer"


@pytest.mark.parametrize("openapi_tools", [True, False])
@pytest.mark.parametrize("way", [Depends, lambda user: Security(user, scopes=["more"])])
def test_the_scopes_of_every_request_show(way: Callable[..., Any], openapi_tools: bool) -> None:
    """Decision: as for each handler, so that "Authorize" in /docs asks for a token that will do."""
    auth = protected()

    async def user(token: Annotated[VerifiedToken, Depends(auth)]) -> str:
        return str(token.subject)

    app = app_with(principal=way(user), openapi_tools=openapi_tools)
    validate(app.openapi())
    scopes = ["read"] if way is Depends else ["more", "read"]
    for each in app.openapi()["paths"].values():
        assert each["post"]["security"] == [{"MCPOAuth2": scopes}]


def test_showing_scopes_costs_no_call() -> None:
    """Decision: FastAPI calls a dependency anew for other scopes; the principal has none added."""
    auth, called = protected(), []

    async def user(token: Annotated[VerifiedToken, Depends(auth)]) -> str:
        called.append(token.subject)
        return str(token.subject)

    app, mcp = FastAPI(), MCPRouter("desk", version="1", principal=user)

    @mcp.tool()
    async def greet(user: Annotated[str, Depends(user)]) -> str:
        return user

    app.include_router(mcp)
    response = wire.post(app, wire.call("greet"), authorization="Bearer ada")
    assert wire.text_of(response) == "ada"
    assert called == ["ada"]


def test_a_dependencys_header_shows_beside_those_of_the_protocol() -> None:
    """Decision: what FastAPI documents and what the protocol needs are merged."""

    async def user(key: Annotated[str, Security(APIKeyHeader(name="X-Key"))]) -> str:
        return key

    found = operation(app_with(principal=user))
    assert found["security"] == [{"APIKeyHeader": []}]
    assert len(found["parameters"]) == 3


def test_it_can_be_left_out() -> None:
    """Decision: an MCPRouter is an APIRouter, include_in_schema included."""
    assert app_with(include_in_schema=False).openapi()["paths"] == {}


def test_several_endpoints_have_operations_of_their_own() -> None:
    """spec: operationId MUST be unique (OpenAPI §Operation Object)."""
    app = FastAPI()
    for name in ("one", "two"):
        app.include_router(MCPRouter(name, version="1"), prefix=f"/{name}")
    ids = [each["post"]["operationId"] for each in app.openapi()["paths"].values()]
    assert len(set(ids)) == 2
