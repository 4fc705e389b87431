"""console: the page beside the endpoint, who may see it, and what its debug mode opens."""

import logging
import re
import sys
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin

import pytest
from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException
from starlette.testclient import TestClient

from fastapi_mcp_mrtr import Console, JWTVerifier, MCPRouter, ProtectedResource, Rounds, need_input
from fastapi_mcp_mrtr.http.console.assets import STATIC, content_security_policy
from fastapi_mcp_mrtr.http.console.guard import (
    REFUSAL,
    Guard,
    evident_host,
    refuse_evident_host,
)
from fastapi_mcp_mrtr.http.console.settings import ConsoleSetting
from fastapi_mcp_mrtr.protocol.headers import RequestHeaders
from tests import wire

HERE = ("127.0.0.1", 50000)
BASE = "http://127.0.0.1:8000"
ORIGIN = {"Origin": BASE}


def caller(x_user: str | None = Header(None)) -> str | None:
    return x_user


def desk(console: ConsoleSetting = True, **options: Any) -> MCPRouter:
    mcp = MCPRouter("desk", version="1", console=console, **{"principal": caller, **options})

    @mcp.tool()
    async def book() -> Rounds[str]:
        seat: str = yield need_input("seat", "Which seat?", str)
        yield seat

    return mcp


def browser(app: Any, client: Any = HERE, base_url: str = BASE, **options: Any) -> TestClient:
    return TestClient(app, base_url=base_url, client=client, follow_redirects=False, **options)


def including(mcp: MCPRouter, **options: Any) -> FastAPI:
    app = FastAPI()
    app.include_router(mcp, **options)
    return app


class Files(HTMLParser):
    """The URLs that a page loads."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.urls: list[str] = []
        self.inline: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "style" or "style" in given or (tag == "script" and "src" not in given):
            self.inline.append(tag)
        for name in ("src", "href"):
            if value := given.get(name):
                self.urls.append(value)


# ----------------------------------------------------------------------------- where it is


def prefixed() -> FastAPI:
    return including(desk(), prefix="/api/{tenant}")


def nested() -> FastAPI:
    outer = APIRouter(prefix="/outer")
    outer.include_router(desk(prefix="/inner"))
    app = FastAPI()
    app.include_router(outer)
    return app


def mounted() -> FastAPI:
    app = FastAPI()
    app.mount("/sub", including(desk()))
    return app


@pytest.mark.parametrize(
    ("app", "place"),
    [
        (including(desk()), "/mcp"),
        (including(desk(path="/")), ""),
        (including(desk(path="/tools/")), "/tools"),
        (prefixed(), "/api/acme/mcp"),
        (nested(), "/outer/inner/mcp"),
        (mounted(), "/sub/mcp"),
    ],
    ids=["plain", "at the root", "another path", "prefix", "nested", "mounted"],
)
def test_the_page_and_its_files_are_beside_the_endpoint(app: FastAPI, place: str) -> None:
    """Under every prefix, in nested routers and sub-apps, by relative URLs alone. decision"""
    http = browser(app)
    page = http.get(f"{place}/console")
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    urls = Files(page.text).urls
    assert len(urls) == 3
    for url in urls:
        assert "//" not in url
        assert not url.startswith("/")
        found = http.get(urljoin(f"{BASE}{place}/console", url))
        assert found.status_code == 200, url


def test_a_proxy_that_strips_a_prefix_needs_to_rewrite_nothing() -> None:
    """`--root-path`: nothing on the page names a path. decision"""
    http = browser(including(desk()), root_path="/behind")
    assert "behind" not in http.get("/mcp/console").text
    assert http.get("/mcp/console/console.js").status_code == 200


def test_a_final_slash_leads_to_the_page() -> None:
    """Its relative URLs would lead astray below the slash. decision"""
    answer = browser(prefixed()).get("/api/acme/mcp/console/")
    assert (answer.status_code, answer.headers["location"]) == (307, "../console")


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("path", ["/mcp/console", "/mcp/console/console.js", "/mcp/console/state"])
def test_it_is_off_by_default(path: str, method: str) -> None:
    """Nobody shows a console to the world by accident. decision"""
    assert browser(including(desk(console=False))).request(method, path).status_code == 404


def test_it_is_not_part_of_the_api() -> None:
    """OpenAPI is about what programs call. decision"""
    with_console = including(desk(console=True)).openapi()
    assert with_console == including(desk(console=False)).openapi()


def test_an_unknown_file_is_not_found() -> None:
    """Only what was built is served; a name is never a path. decision"""
    http = browser(including(desk()))
    for name in ("index.html", "../routes.py", "..%2Froutes.py", "__init__.py"):
        assert http.get(f"/mcp/console/{name}").status_code in (404, 405), name


def test_its_router_s_dependencies_guard_it_too() -> None:
    """What an app demands of everything below a router, it demands here. decision"""

    def nobody() -> None:
        raise HTTPException(401)

    app = including(desk(), dependencies=[Depends(nobody)])
    assert browser(app).get("/mcp/console").status_code == 401


# --------------------------------------------------------------------------------- headers


def test_nothing_stands_in_the_page_that_could_run_or_be_styled() -> None:
    """The policy allows no inline script and style, so there must be none. decision"""
    page = browser(including(desk())).get("/mcp/console")
    assert Files(page.text).inline == []


def test_the_page_is_kept_by_nobody_and_framed_by_nobody() -> None:
    """Its headers, and a policy that names every source. decision"""
    headers = browser(including(desk())).get("/mcp/console").headers
    policy = dict(
        directive.split(" ", 1) for directive in headers["content-security-policy"].split("; ")
    )
    assert policy == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self' data:",
        "media-src": "data:",
        "connect-src": "'self'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "base-uri": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-frame-options"] == "DENY"
    assert headers["cross-origin-opener-policy"] == "same-origin"


def test_the_page_may_ask_the_authorization_servers() -> None:
    """Signing in takes requests to them, and to nobody else. decision"""
    resource = ProtectedResource(
        resource=f"{BASE}/mcp",
        authorization_servers=["https://login.example/tenant"],
        verifier=JWTVerifier(
            issuer="https://login.example/tenant",
            audience=f"{BASE}/mcp",
            jwks_uri="https://login.example/keys",
        ),
    )
    mcp = desk(Console(connect=["https://tokens.example"]), principal=resource)
    policy = browser(including(mcp)).get("/mcp/console").headers["content-security-policy"]
    assert f"connect-src 'self' https://tokens.example https://login.example {BASE};" in policy


def test_the_page_may_ask_where_an_app_s_own_metadata_is() -> None:
    """`resource_metadata_url` is where a sign-in begins. decision"""
    mcp = desk(resource_metadata_url="https://meta.example/.well-known/oauth-protected-resource")
    policy = browser(including(mcp)).get("/mcp/console").headers["content-security-policy"]
    assert "connect-src 'self' https://meta.example;" in policy


def test_a_source_that_a_policy_cannot_say_is_left_out() -> None:
    """An odd URL must not add a directive, nor break the others. decision"""
    policy = content_security_policy(["http://[::1]:9000/as", "https://a.example;script-src *"])
    assert "connect-src 'self';" in policy
    assert "*" not in policy


def test_files_have_their_type_and_are_asked_for_again_cheaply() -> None:
    """They change with the package only. decision"""
    http = browser(including(desk()))
    script = http.get("/mcp/console/console.js")
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"
    assert script.headers["x-content-type-options"] == "nosniff"
    assert script.headers["cache-control"] == "no-cache"
    again = http.get("/mcp/console/console.js", headers={"If-None-Match": script.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    changed = http.get("/mcp/console/console.js", headers={"If-None-Match": '"other"'})
    assert changed.status_code == 200


def test_the_script_makes_no_code_of_text() -> None:
    """The policy forbids it, so a dependency that does would break the page. decision"""
    script = (STATIC / "console.js").read_text()
    assert not re.search(r"new Function\b|\beval\(", script)


# ------------------------------------------------------------------------------ who sees it


@pytest.mark.parametrize(
    ("base_url", "client", "headers"),
    [
        ("http://desk.example.com", HERE, {}),
        ("http://127.0.0.1.example.com", HERE, {}),
        ("http://192.168.1.4:8000", HERE, {}),
        (BASE, ("192.168.1.20", 5000), {}),
        (BASE, ("::ffff:192.168.1.20", 5000), {}),
        (BASE, ("testclient", 5000), {}),
        (BASE, None, {}),
        (BASE, HERE, {"X-Forwarded-For": "203.0.113.9"}),
        (BASE, HERE, {"X-Forwarded-For": ""}),
        (BASE, HERE, {"X-Forwarded-Proto": "https"}),
        (BASE, HERE, {"CF-Connecting-IP": "203.0.113.9"}),
        (BASE, HERE, {"Forwarded": "for=203.0.113.9"}),
        (BASE, HERE, {"Via": "1.1 proxy"}),
        (BASE, HERE, {"Host": ""}),
    ],
)
@pytest.mark.parametrize("path", ["", "/", "/console.js", "/state"])
def test_others_than_this_computer_are_refused(
    base_url: str, client: Any, headers: dict[str, str], path: str
) -> None:
    """By the Host header, the client's address and signs of a proxy; any of them is enough.
    decision"""
    http = browser(including(desk("debug")), client, base_url)
    method = "POST" if path == "/state" else "GET"
    answer = http.request(method, f"/mcp/console{path}", headers=headers)
    assert (answer.status_code, answer.text) == (403, REFUSAL)


@pytest.mark.parametrize("base_url", [BASE, "http://localhost:8000", "http://[::1]:8000"])
@pytest.mark.parametrize("client", [HERE, ("127.8.8.8", 1), ("::1", 1), ("::ffff:127.0.0.1", 1)])
def test_this_computer_has_several_names(base_url: str, client: Any) -> None:
    """Loopback is 127.0.0.0/8 and ::1, also as IPv6 sockets show IPv4. decision"""
    http = browser(including(desk()), client, base_url)
    assert http.get("/mcp/console").status_code == 200


def test_a_host_that_came_twice_is_nobody_s() -> None:
    """Somebody else may have read the other one. decision"""
    guard = Guard(Console(hosts=["desk.example.com"]))
    twice = [(b"host", b"desk.example.com"), (b"host", b"127.0.0.1")]
    assert guard.refusal(RequestHeaders.read(twice), {"client": HERE}) == REFUSAL
    assert guard.refusal(RequestHeaders.read(twice[:1]), {"client": None}) is None


@pytest.mark.parametrize(("version", "refused"), [("1.0", REFUSAL), ("1.1", None), ("2", None)])
def test_nginx_is_known_by_the_version_that_it_speaks(version: str, refused: str | None) -> None:
    """With `proxy_pass` alone it calls the app by a loopback name and adds no header, but speaks
    HTTP/1.0, which browsers do not. decision"""
    headers = RequestHeaders.read([(b"host", b"127.0.0.1:8000"), (b"connection", b"close")])
    scope = {"client": HERE, "http_version": version}
    assert Guard(Console()).refusal(headers, scope) == refused


def test_hosts_let_others_in_under_these_names() -> None:
    """And their pages may call the endpoint, as with `allowed_hosts`. decision"""
    app = including(desk(Console(hosts=["Desk.example.com"])))
    http = browser(app, ("203.0.113.9", 1), "https://desk.example.com")
    assert http.get("/mcp/console").status_code == 200
    body = wire.message("server/discover")
    headers = {**wire.headers(body), "Origin": "https://desk.example.com"}
    assert http.post("/mcp", json=body, headers=headers).status_code == 200
    other = browser(app, ("203.0.113.9", 1), "https://other.example.com")
    assert other.get("/mcp/console").status_code == 403
    assert other.post("/mcp", json=body, headers=headers).status_code == 403


def test_the_endpoint_takes_calls_of_the_page() -> None:
    """A loopback origin on a loopback host, as ever. decision"""
    body = wire.message("server/discover")
    http = browser(including(desk()))
    assert http.post("/mcp", json=body, headers={**wire.headers(body), **ORIGIN}).status_code == 200


COMMANDS = [
    ("uvicorn app:app --host 0.0.0.0", "0.0.0.0"),
    ("uvicorn app:app --host=10.0.0.4 --port 80", "10.0.0.4"),
    ("/venv/bin/uvicorn --host :: app:app", "::"),
    ("/site-packages/uvicorn/__main__.py app:app --host desk.example.com", "desk.example.com"),
    ("serve.py --host 0.0.0.0", "0.0.0.0"),
    ("fastapi run", "0.0.0.0"),
    ("fastapi run --host 127.0.0.1", None),
    ("fastapi dev", None),
    ("gunicorn -b 0.0.0.0:8000 app:app", "0.0.0.0"),
    ("gunicorn --bind=:8000 app:app", "*"),
    ("gunicorn -b [::]:8000 app:app", "[::]"),
    ("gunicorn -b 127.0.0.1:8000 -b unix:/run/desk.sock app:app", None),
    ("hypercorn --bind 0.0.0.0:8000 app:app", "0.0.0.0"),
    ("hypercorn -b fd://3 app:app", None),
    ("granian --host 0.0.0.0 app:app", "0.0.0.0"),
    ("uvicorn app:app --host 127.0.0.1", None),
    ("uvicorn app:app --host localhost", None),
    ("uvicorn app:app --host ::1", None),
    ("uvicorn app:app", None),
    ("script.py -b 0.0.0.0:80", None),
    ("", None),
]


@pytest.mark.parametrize(("command", "host"), COMMANDS)
def test_command_lines_that_say_where_the_server_listens(command: str, host: str | None) -> None:
    """What can be seen at start-up is refused at start-up. decision"""
    assert evident_host(command.split(), {}) == host


@pytest.mark.parametrize(
    ("command", "environ", "host"),
    [
        ("uvicorn app:app", {"UVICORN_HOST": "0.0.0.0"}, "0.0.0.0"),
        ("granian app:app", {"GRANIAN_HOST": "0.0.0.0"}, "0.0.0.0"),
        ("uvicorn app:app --host 127.0.0.1", {"UVICORN_HOST": "0.0.0.0"}, None),
        ("gunicorn app:app", {"GUNICORN_CMD_ARGS": "--bind=0.0.0.0:80"}, "0.0.0.0"),
        ("gunicorn app:app", {"PORT": "8000"}, "0.0.0.0"),
        ("gunicorn -b 127.0.0.1:80 app:app", {"PORT": "8000"}, None),
        ("pytest", {"UVICORN_HOST": "0.0.0.0"}, None),
    ],
)
def test_variables_that_say_where_the_server_listens(
    command: str, environ: dict[str, str], host: str | None
) -> None:
    """Read where the server reads them. decision"""
    assert evident_host(command.split(), environ) == host


def test_a_server_for_everybody_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The import of the app fails, with a sentence that says what to do. decision"""
    monkeypatch.setattr(sys, "argv", ["uvicorn", "app:app", "--host", "0.0.0.0"])
    with pytest.raises(RuntimeError, match=r"listens on 0\.0\.0\.0.*Console\(hosts="):
        desk()
    desk(console=False)
    desk(Console(hosts=["desk.example.com"]))


def test_a_server_for_this_computer_starts() -> None:
    """Nothing evident, nothing raised. decision"""
    refuse_evident_host(["uvicorn", "app:app"], {})


# -------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("setting", "debug"), [(True, False), ("debug", True), (Console(debug=True), True)]
)
def test_a_setting_may_be_said_briefly(setting: Any, debug: bool) -> None:
    """True, "debug" and a Console. decision"""
    console = Console.of(setting)
    assert console is not None
    assert console.debug is debug


@pytest.mark.parametrize("setting", [None, False])
def test_no_console(setting: Any) -> None:
    """Both spellings of none. decision"""
    assert Console.of(setting) is None


@pytest.mark.parametrize("setting", ["on", 1.5, ["localhost"]])
def test_another_setting_is_refused(setting: Any) -> None:
    """Where the router is made. decision"""
    with pytest.raises(TypeError, match="console= takes True"):
        desk(setting)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"hosts": "desk.example.com"}, TypeError, r"Console\(hosts=\) is a list"),
        ({"hosts": ["https://desk.example.com"]}, ValueError, r"Console\(hosts=\)"),
        ({"connect": ["login.example"]}, ValueError, r"Console\(connect=\)"),
    ],
)
def test_an_entry_that_would_allow_nothing_is_refused(
    options: Any, error: type[Exception], message: str
) -> None:
    """The message names the setting. decision"""
    with pytest.raises(error, match=message):
        Console(**options)


# ------------------------------------------------------------------------------- debug mode


class Debugged:
    """A desk in debug mode, and a state of Ada's."""

    def __init__(self, **options: Any) -> None:
        self.mcp = desk("debug", **options)
        self.http = browser(including(self.mcp))
        self.headers = {"X-User": "ada", **ORIGIN}
        body = wire.call("book")
        answer = self.http.post("/mcp", json=body, headers={**wire.headers(body), "X-User": "ada"})
        self.token: str = answer.json()["result"]["requestState"]

    def open(self, token: Any = None, headers: dict[str, str] | None = None, **more: Any) -> Any:
        content = {"requestState": token or self.token}
        given = {**self.headers, **(headers or {})}
        return self.http.post("/mcp/console/state", json=content, headers=given, **more)


@pytest.fixture
def debugged() -> Debugged:
    return Debugged()


def test_a_state_is_told_to_its_owner(debugged: Debugged) -> None:
    """What it is bound to, and its journal. decision"""
    answer = debugged.open()
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    said = answer.json()
    assert (said["method"], said["target"], said["round"]) == ("tools/call", "book", 1)
    assert list(said["journal"]["asked"]) == ["seat"]
    assert said["issued"] <= said["now"] < said["expires"]
    assert "principal" not in said


def test_an_expired_state_is_told_too(debugged: Debugged) -> None:
    """That it has expired may be just what a developer wants to know. decision"""
    debugged.mcp.clock = lambda: 4e9
    said = debugged.open().json()
    assert said["expires"] < said["now"]


def test_a_state_is_told_to_nobody_else(
    debugged: Debugged, caplog: pytest.LogCaptureFixture
) -> None:
    """The endpoint's own principal decides, and the frozen sentence answers. decision"""
    with caplog.at_level(logging.INFO):
        answer = debugged.open(headers={"X-User": "bob"})
    assert answer.status_code == 400
    assert answer.json() == {"error": "Invalid or expired requestState"}
    assert "other principal" in caplog.text
    assert debugged.token not in caplog.text


def test_a_state_of_other_keys_stays_closed(debugged: Debugged) -> None:
    """Only this app's keys open it. decision"""
    assert debugged.open(Debugged().token).status_code == 400


@pytest.mark.parametrize(
    "origin",
    ["http://127.0.0.1:9000", "https://evil.example", "http://localhost:8000", "null", ""],
)
def test_other_pages_are_told_nothing(debugged: Debugged, origin: str) -> None:
    """Not even those of this computer: the console itself is of the same origin. decision"""
    assert debugged.open(headers={"Origin": origin}).status_code == 403


def test_no_origin_is_no_page(debugged: Debugged) -> None:
    """It is for the console, and browsers say where a POST comes from. decision"""
    del debugged.headers["Origin"]
    assert debugged.open().status_code == 403


def test_a_form_cannot_send_it(debugged: Debugged) -> None:
    """A media type that takes a preflight. decision"""
    answer = debugged.http.post(
        "/mcp/console/state",
        content=b'{"requestState": "x"}',
        headers={**debugged.headers, "Content-Type": "text/plain"},
    )
    assert answer.status_code == 415


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"1", b"{}", b'"x"', b"x" * 5_000_000])
def test_garbage_is_refused(debugged: Debugged, content: bytes) -> None:
    """Whatever it is, and however long. decision"""
    headers = {**debugged.headers, "Content-Type": "application/json"}
    answer = debugged.http.post("/mcp/console/state", content=content, headers=headers)
    assert (answer.status_code, answer.json()) == (400, {"error": "There is no requestState"})


@pytest.mark.parametrize("token", ["x", "AQ", 7, ["x"], {"a": 1}])
def test_no_state_at_all_is_refused(debugged: Debugged, token: Any) -> None:
    """With the sentence for every cause. decision"""
    assert debugged.open(token).json() == {"error": "Invalid or expired requestState"}


def test_hosts_do_not_open_states_elsewhere() -> None:
    """`hosts=` lets people see the page; states are opened on this computer only. decision"""
    console = Console(hosts=["desk.example.com"], debug=True)
    http = browser(including(desk(console)), ("203.0.113.9", 1), "https://desk.example.com")
    answer = http.post(
        "/mcp/console/state",
        json={"requestState": "x"},
        headers={"Origin": "https://desk.example.com"},
    )
    assert answer.status_code == 403


def test_nothing_opens_states_without_debug_mode() -> None:
    """The route is not there. decision"""
    http = browser(including(desk(True)))
    answer = http.post("/mcp/console/state", json={"requestState": "x"}, headers=ORIGIN)
    assert answer.status_code == 405
    assert 'name="console-debug" content="no"' in http.get("/mcp/console").text


def test_the_page_knows_that_it_may_ask_for_states(debugged: Debugged) -> None:
    """It offers what there is. decision"""
    assert 'name="console-debug" content="yes"' in debugged.http.get("/mcp/console").text


def test_debug_mode_demands_what_the_endpoint_demands() -> None:
    """The principal's own 401. decision"""

    def nobody() -> str:
        raise HTTPException(401, headers={"WWW-Authenticate": "Bearer"})

    http = browser(including(desk("debug", principal=nobody)))
    answer = http.post("/mcp/console/state", json={"requestState": "x"}, headers=ORIGIN)
    assert answer.status_code == 401


def test_without_a_principal_everybody_is_anonymous() -> None:
    """As at the endpoint. decision"""
    debugged = Debugged(principal=None)
    assert debugged.open().status_code == 200


def test_debug_mode_warns_at_start_up(caplog: pytest.LogCaptureFixture) -> None:
    """It is not for deployment, and the log says so. decision"""
    desk("debug")
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "the console of desk opens requestStates" in record.message
    caplog.clear()
    desk(True)
    assert caplog.records == []
