"""What the client puts in place inside an app, and that it takes all of it back."""

import gc
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI
from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Mount
from starlette.testclient import TestClient

from fastapi_mcp_mrtr.http import router as router_module
from fastapi_mcp_mrtr.testing import MCPTestClient
from fastapi_mcp_mrtr.testing.inside import overridden


class Router:
    """The two attributes that the client reaches."""

    def __init__(self, principal: Callable[..., Any] | None = None) -> None:
        self.clock: Callable[[], float] = self.now
        self.original = self.clock
        self.principal_dependency = principal

    def now(self) -> float:
        return 1000.0


@pytest.fixture
def router(monkeypatch: pytest.MonkeyPatch) -> Router:
    router = Router()
    monkeypatch.setattr(router_module, "find_router", lambda app, url: router)
    return router


def test_the_clock_moves_and_is_set_right_by_closing(router: Router) -> None:
    """An injected clock; undone at close; decision."""
    client = MCPTestClient(FastAPI())
    client.advance(10)
    client.advance(5)
    assert router.clock() == 1015.0
    client.close()
    assert router.clock is router.original


def test_leaving_the_context_sets_the_clock_right(router: Router) -> None:
    """Undone also where the test fails; decision."""
    with suppress(RuntimeError), MCPTestClient(FastAPI()) as client:
        client.advance(10)
        raise RuntimeError
    assert router.clock is router.original


def test_a_forgotten_client_sets_the_clock_right(router: Router) -> None:
    """A bare client that nobody closes leaves nothing behind; decision."""
    client = MCPTestClient(FastAPI())
    client.advance(10)
    del client
    gc.collect()
    assert router.clock is router.original


@pytest.mark.parametrize("first", [0, 1])
def test_clients_of_one_router_close_in_any_order(router: Router, first: int) -> None:
    """Each takes back its own share; decision."""
    clients = [MCPTestClient(FastAPI()), MCPTestClient(FastAPI())]
    clients[0].advance(10)
    clients[1].advance(100)
    assert router.clock() == 1110.0
    clients[first].close()
    assert router.clock() == 1000.0 + [100.0, 10.0][first]
    clients[1 - first].close()
    assert router.clock is router.original


def test_a_clock_replaced_meanwhile_is_left_alone(router: Router) -> None:
    """The test's own clock wins; decision."""
    client = MCPTestClient(FastAPI())
    client.advance(10)
    router.clock = other = lambda: 5.0
    client.close()
    assert router.clock is other


def test_a_closed_client_may_advance_again(router: Router) -> None:
    """Contexts can be entered again; decision."""
    with MCPTestClient(FastAPI()) as client:
        client.advance(10)
    with client:
        client.advance(1)
        assert router.clock() == 1001.0
    assert router.clock is router.original


def current_user() -> str | None:
    return "alice"


def whoami(user: Annotated[str | None, Depends(current_user)]) -> str | None:
    return user


def user_app() -> FastAPI:
    app = FastAPI()
    app.get("/me")(whoami)
    return app


def test_somebody_else_for_a_while(router: Router) -> None:
    """user report: alice begins, bob answers."""
    router.principal_dependency = current_user
    app = user_app()
    client = MCPTestClient(app)
    with client.as_principal("bob") as same:
        assert same is client
        assert client.http.get("/me").json() == "bob"
        with client.as_principal("carol"):
            assert client.http.get("/me").json() == "carol"
        assert client.http.get("/me").json() == "bob"
    assert client.http.get("/me").json() == "alice"
    assert app.dependency_overrides == {}


def test_nobody_can_be_nobody(router: Router) -> None:
    """None is a principal like another: the anonymous one; decision."""
    router.principal_dependency = current_user
    client = MCPTestClient(user_app())
    with client.as_principal(None):
        assert client.http.get("/me").json() is None


def test_without_a_principal_there_is_nobody_to_be(router: Router) -> None:
    """An anonymous router cannot tell two users apart; decision."""
    with pytest.raises(TypeError, match="no principal="), MCPTestClient(FastAPI()).as_principal(1):
        pass


def wrapped() -> Any:
    return CORSMiddleware(user_app(), allow_origins=["*"])


def mounted() -> Any:
    app = FastAPI()
    app.mount("/sub", user_app())
    return app


def mounted_in_starlette() -> Any:
    return Starlette(routes=[Mount("/sub", wrapped())])


@pytest.mark.parametrize(
    ("make", "url"),
    [
        (wrapped, "/me"),
        (mounted, "/sub/me"),
        (mounted_in_starlette, "/sub/me"),
    ],
)
def test_an_override_reaches_every_app_inside(make: Callable[[], Any], url: str) -> None:
    """Middleware around, sub-apps below; decision."""
    app = make()
    http = TestClient(app)
    with overridden(app, current_user, "bob"):
        assert http.get(url).json() == "bob"
    assert http.get(url).json() == "alice"


def test_an_override_that_stood_before_stands_again() -> None:
    """The app's own overrides are not the client's to lose; decision."""
    app = user_app()
    app.dependency_overrides[current_user] = before = lambda: "before"
    with overridden(app, current_user, "bob"):
        pass
    assert app.dependency_overrides == {current_user: before}
