"""plain_dependencies: what is called directly comes out as FastAPI would have it.

Every tree is solved twice, directly and by `solve_dependencies`, and the two are compared: values,
calls, errors.
"""

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any, Literal

import pytest
from fastapi import (
    BackgroundTasks,
    Cookie,
    Depends,
    FastAPI,
    Header,
    HTTPException,
    Path,
    Query,
    Request,
    Response,
    Security,
    WebSocket,
)
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.security import APIKeyHeader, SecurityScopes
from pydantic import AfterValidator, BaseModel
from starlette.requests import HTTPConnection

from fastapi_mcp_mrtr import MCPRouter
from fastapi_mcp_mrtr.server.injection import Dependencies, RequestDependencies, Tree
from tests import wire

pytestmark = pytest.mark.anyio

calls: list[str] = []
"""What was called, in order."""


@pytest.fixture(autouse=True)
def no_calls() -> None:
    calls.clear()


def called(value: str) -> str:
    calls.append(value)
    return value


class Filters(BaseModel):
    limit: int = 10
    tags: list[str] = []


class Greeter:
    async def __call__(self, x_user: Annotated[str, Header()]) -> str:
        return called(f"object {x_user}")


key = APIKeyHeader(name="x-key", auto_error=False)


async def leaf() -> str:
    return called("leaf")


async def user(
    x_user: Annotated[str, Header()], below: Annotated[str, Depends(leaf)], page: int = 1
) -> str:
    return called(f"{x_user} {below} {page}")


async def refuses(_: Annotated[str, Depends(leaf)]) -> None:
    raise HTTPException(401, called("refused"))


async def scoped(
    scopes: SecurityScopes, k: Annotated[str | None, Security(key, scopes=["deep"])]
) -> str:
    return called(f"{scopes.scopes} {scopes.scope_str} {k}")


async def of_request(request: Request, connection: HTTPConnection) -> bool:
    return request is connection


async def shouted(word: str, mark: str) -> str:
    return called(word + mark)


def trimmed(value: str) -> str:
    if not value.strip():
        raise ValueError("empty")
    return value.strip()


async def converted(
    size: Annotated[int, Query(ge=1, le=40)],
    tenant: Annotated[str, Path()],
    session: Annotated[str, Cookie()] = "none",
    ratio: float = 0.5,
    deep: bool = False,
    name: Annotated[str, Query(alias="q"), AfterValidator(trimmed)] = "x",
    raw: Annotated[str | None, Header(convert_underscores=False, alias="x_raw")] = None,
) -> dict[str, Any]:
    return locals()


async def several(filters: Annotated[Filters, Query()]) -> Filters:
    return filters


async def lists(
    ids: Annotated[list[int], Query()],
    kind: Annotated[Literal["a", "b"], Query()] = "a",
    x_many: Annotated[list[str] | None, Header()] = None,
) -> dict[str, Any]:
    return locals()


# The handlers, of which only the parameters count.


def nothing() -> None: ...
def one(a: Annotated[str, Depends(leaf)]) -> None: ...
def shared(a: Annotated[str, Depends(user)], b: Annotated[str, Depends(leaf)]) -> None: ...
def own(x_user: Annotated[str, Header()], a: Annotated[str, Depends(leaf)]) -> None: ...
def an_object(a: Annotated[str, Depends(Greeter())]) -> None: ...
def a_partial(a: Annotated[str, Depends(functools.partial(shouted, mark="!"))]) -> None: ...
def security(
    a: Annotated[str, Security(scoped, scopes=["read", "write"])],
    b: Annotated[str, Security(scoped, scopes=["admin"])],
    c: Annotated[str, Security(scoped, scopes=["read", "write"])],
    scopes: SecurityScopes,
) -> None: ...
def scopes_in_two_orders(
    a: Annotated[str, Security(scoped, scopes=["read", "write"])],
    b: Annotated[str, Security(scoped, scopes=["write", "read"])],
) -> None: ...
def the_request(a: Annotated[bool, Depends(of_request)], request: Request) -> None: ...
def conversions(a: Annotated[Any, Depends(converted)]) -> None: ...
def a_model(a: Annotated[Filters, Depends(several)]) -> None: ...
def many_values(a: Annotated[Any, Depends(lists)]) -> None: ...
def fails(a: Annotated[str, Depends(leaf)], b: Annotated[None, Depends(refuses)]) -> None: ...
def fails_after_an_error(
    a: Annotated[str, Depends(user)], b: Annotated[None, Depends(refuses)]
) -> None: ...


PLAIN: list[Callable[..., Any]] = [
    nothing,
    one,
    shared,
    own,
    an_object,
    a_partial,
    security,
    scopes_in_two_orders,
    the_request,
    conversions,
    a_model,
    many_values,
    fails,
    fails_after_an_error,
]

REQUESTS: dict[str, dict[str, Any]] = {
    "empty": {},
    "full": {
        "headers": [
            (b"x-user", b"alice"),
            (b"x-key", b"k"),
            (b"cookie", b"session=s"),
            (b"x_raw", b"raw"),
            (b"x-many", b"1"),
            (b"x-many", b"2"),
        ],
        "query_string": b"page=3&size=7&ids=1&ids=2&ratio=2&deep=yes&q=%20y&limit=3&tags=a&word=hi",
        "path_params": {"tenant": "acme"},
    },
    "malformed": {
        "headers": [(b"x-user", b"b\xf6b"), (b"x-user", b"second")],
        "query_string": b"page=x&size=41&ids=a&ratio=?&deep=maybe&q=%20&limit=x&kind=c&word",
        "path_params": {"tenant": "acme"},
    },
}


def request_of(**scope: Any) -> Request:
    return Request({"type": "http", "headers": [], "query_string": b"", "path_params": {}, **scope})


def tree_of(handler: Callable[..., Any]) -> Tree:
    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in inspect.signature(handler).parameters.values()
    ]
    return Dependencies(parameters).at("/{tenant}")


def left_to_fastapi(tree: Tree) -> Tree:
    tree.plain = None
    return tree


async def outcome(tree: Tree, request: Request, overrides: Any = None) -> tuple[Any, ...]:
    """What solving comes to, and what was called for it."""
    calls.clear()
    dependencies = RequestDependencies(request, "/{tenant}", overrides)
    result: Any = None
    try:
        result = await dependencies.solve(tree)
        for name, value in result.items():
            result[name] = value.scopes if isinstance(value, SecurityScopes) else value
    except RequestValidationError as error:
        result = [{**problem, "ctx": str(problem.get("ctx"))} for problem in error.errors()]
    except HTTPException as error:
        result = (error.status_code, error.detail)
    return result, [*calls], dependencies.solving


@pytest.mark.parametrize("sent", REQUESTS)
@pytest.mark.parametrize("handler", PLAIN)
async def test_it_comes_out_the_same(handler: Callable[..., Any], sent: str) -> None:
    """decision: calling directly is faster and nothing else."""
    tree, request = tree_of(handler), request_of(**REQUESTS[sent])
    assert tree.plain is not None
    directly = await outcome(tree, request)
    assert directly == await outcome(left_to_fastapi(tree), request)


async def test_every_kind_of_outcome_is_among_them() -> None:
    """decision: the comparison is of values, of validation errors and of exceptions."""
    full, malformed = request_of(**REQUESTS["full"]), request_of(**REQUESTS["malformed"])
    values, _, _ = await outcome(tree_of(conversions), full)
    assert values["a"] == {
        "size": 7,
        "tenant": "acme",
        "session": "s",
        "ratio": 2.0,
        "deep": True,
        "name": "y",
        "raw": "raw",
    }
    errors, _, solving = await outcome(tree_of(conversions), malformed)
    assert [error["loc"][-1] for error in errors] == ["size", "ratio", "deep", "q"]
    assert solving
    assert await outcome(tree_of(fails), full) == ((401, "refused"), ["leaf", "refused"], True)


async def test_nothing_is_called_twice_for_an_error_to_be_reported() -> None:
    """decision: what was called before the error showed is not called again."""
    _, called_for, _ = await outcome(tree_of(own), request_of())
    assert called_for == ["leaf"]


async def test_scalars_take_the_short_way() -> None:
    """decision: a header is looked up once, not asked for its aliases, models and lists."""
    tree = tree_of(conversions)
    assert tree.plain is not None
    names = [parameter.name for parameter in tree.plain.below[0].parameters]
    assert names == ["tenant", "size", "ratio", "deep", "q", b"x_raw", "session"]


async def test_the_cache_is_one() -> None:
    """decision: what the principal called directly is not called again by a tree that is not."""

    def sync(below: Annotated[str, Depends(leaf)]) -> str:
        return below

    def handler(a: Annotated[str, Depends(sync)], b: Annotated[str, Depends(leaf)]) -> None: ...

    dependencies = RequestDependencies(request_of(), "/", None)
    await dependencies.solve(tree_of(one))
    assert await dependencies.solve(tree_of(handler)) == {"a": "leaf", "b": "leaf"}
    await dependencies.solve(tree_of(one))
    assert calls == ["leaf"]


async def test_an_override_counts_from_the_moment_it_is_set() -> None:
    """user report: `dependency_overrides` was ignored in tools (py#2081)."""
    app = FastAPI()
    mcp = MCPRouter("s", version="1", principal=leaf)

    @mcp.tool()
    async def tell(value: Annotated[str, Depends(leaf)]) -> str:
        return value

    app.include_router(mcp)
    assert wire.text_of(wire.post(app, wire.call("tell"))) == "leaf"

    async def other(x_user: Annotated[str, Header()]) -> str:
        return x_user

    app.dependency_overrides[leaf] = other
    assert wire.text_of(wire.post(app, wire.call("tell"), x_user="bob")) == "bob"
    assert wire.post(app, wire.call("tell")).status_code == 422
    app.dependency_overrides.clear()
    assert wire.text_of(wire.post(app, wire.call("tell"))) == "leaf"


def sync_dependency() -> str:
    return ""


async def opened() -> AsyncIterator[str]:
    yield ""


def opened_in_thread() -> Iterator[str]:
    yield ""


async def with_socket(socket: WebSocket) -> None: ...


def deep(a: Annotated[str, Depends(opened)]) -> str:
    return a


@pytest.mark.parametrize(
    "annotation",
    [
        Annotated[str, Depends(sync_dependency)],
        Annotated[str, Depends(opened)],
        Annotated[str, Depends(opened_in_thread)],
        Annotated[str, Depends(deep)],
        Annotated[Any, Depends(object)],
        Annotated[str, Depends(leaf, use_cache=False)],
        Annotated[None, Depends(with_socket)],
        Response,
        BackgroundTasks,
    ],
)
async def test_what_is_not_plain_is_left_to_fastapi(annotation: Any) -> None:
    """decision: threads, exit stacks, responses and fresh values are its business."""

    async def below(a: Any) -> None: ...

    below.__annotations__["a"] = annotation

    def handler(a: Any, b: Annotated[None, Depends(below)]) -> None: ...

    assert tree_of(handler).plain is None


async def test_what_this_fastapi_cannot_be_asked_yet_is_left_to_it() -> None:
    """decision: a limit on concurrent calls, where a version has it, is kept."""

    class Limited(Dependant):
        """Takes any attribute."""

    limited: Any = Limited(call=leaf)
    limited.concurrency = object()
    assert Tree(Dependant(call=nothing, dependencies=[limited])).plain is None


async def test_what_only_checks_is_called_too() -> None:
    """decision: `include_router(dependencies=)` names no parameter; a lost one would be a hole."""
    tree = Tree(Dependant(call=nothing, dependencies=[Dependant(call=leaf)]))
    assert tree.plain is not None
    assert await outcome(tree, request_of()) == ({}, ["leaf"], False)


async def test_a_dependant_without_a_call_is_left_to_fastapi() -> None:
    """decision: the type allows it; what it would mean is FastAPI's to say."""
    assert Tree(Dependant()).plain is None
