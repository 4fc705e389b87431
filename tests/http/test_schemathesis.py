"""openapi: a property-based client, driven by the document alone, finds nothing that breaks."""

from typing import Annotated, Any

import schemathesis
from fastapi import Depends, FastAPI, Header
from hypothesis import HealthCheck, settings

from fastapi_mcp_mrtr import Secret

from .test_operations import desk


async def user(x_user: Annotated[str, Header()] = "nobody") -> str:
    return x_user


app = FastAPI()
app.include_router(desk(keys=Secret("tests", b"t" * 32), principal=Depends(user)), prefix="/api")
schema = schemathesis.openapi.from_asgi("/openapi.json", app)


@schema.parametrize()
@settings(
    max_examples=5,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
def test_no_request_is_answered_with_a_server_error(case: schemathesis.Case[Any]) -> None:
    """Decision: whatever fits the document, and whatever nearly does."""
    assert case.call().status_code < 500


def test_it_sends_to_the_operations_of_handlers() -> None:
    """A path with a fragment is one that a client can send to. decision"""
    operation = schema["/api/mcp#tool=status"]["POST"]
    case = operation.Case(
        body={}, headers={"Mcp-Method": "tools/call"}, media_type="application/json"
    )
    assert case.call().json()["error"]["code"] == -32600
