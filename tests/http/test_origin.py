"""origin: which pages may call, which may not, and which settings would allow nothing."""

from typing import Any

import pytest

from fastapi_mcp_mrtr.http.origin import OriginPolicy
from fastapi_mcp_mrtr.protocol.headers import RequestHeaders

POLICY = OriginPolicy(
    ["https://app.example.com", "http://intranet:8080/", "chrome-extension://abcdef"],
    ["api.example.com", "Api.Example.com:8443"],
)


def allowed(origin: str | None, host: str | None, policy: OriginPolicy = POLICY) -> bool:
    """Whether a request passes; a refusal names the settings that decide."""
    raw = [(b"origin", origin), (b"host", host)]
    headers = RequestHeaders.read(
        [(name, value.encode("latin-1")) for name, value in raw if value is not None]
    )
    refusal = policy.refusal(headers)
    assert refusal is None or ("allowed_origins" in refusal and "allowed_hosts" in refusal)
    return refusal is None


@pytest.mark.parametrize("host", ["api.example.com", "evil.example", "127.0.0.1:8000", None])
def test_no_origin_is_no_browser(host: str | None) -> None:
    """spec: servers MUST validate Origin (streamable-http); other clients send none."""
    assert allowed(None, host)


@pytest.mark.parametrize("host", ["localhost", "localhost:8000", "127.0.0.1:1", "[::1]:8000"])
@pytest.mark.parametrize(
    "origin",
    ["http://localhost:5173", "http://127.0.0.1", "https://[::1]:3000", "http://LOCALHOST"],
)
def test_pages_of_this_machine_may_call_a_server_of_this_machine(origin: str, host: str) -> None:
    """Decision: development works without settings."""
    assert allowed(origin, host)


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://evil.example", "localhost:8000"),  # DNS rebinding's other half
        ("http://localhost:5173", "evil.example:8000"),  # DNS rebinding
        ("http://localhost:5173", None),
        ("http://127.0.0.1.evil.example", "127.0.0.1"),
        ("http://localhost.evil.example", "localhost"),
        ("http://evil.example#localhost", "localhost"),
        ("http://localhost@evil.example", "localhost"),
        ("http://evil.example", "localhost@evil.example"),
        ("null", "localhost"),
        ("", "localhost"),
        ("http://[::1", "localhost"),
        ("http://localhost", "[::1"),
        ("file://", "localhost"),
    ],
)
def test_rebinding_and_its_kin_are_refused(origin: str, host: str | None) -> None:
    """spec: servers MUST validate Origin to prevent DNS rebinding (streamable-http)."""
    assert not allowed(origin, host)


@pytest.mark.parametrize(
    "origin",
    [
        "https://app.example.com",
        "HTTPS://App.Example.com",
        "http://intranet:8080",
        "chrome-extension://abcdef",
    ],
)
def test_listed_origins_may_call(origin: str) -> None:
    """Decision: exact, but for the case, which names and schemes do not have."""
    assert allowed(origin, "whatever.example")


@pytest.mark.parametrize(
    "origin",
    [
        "http://app.example.com",
        "https://app.example.com:444",
        "https://app.example.com.evil.example",
        "https://sub.app.example.com",
        "https://app.example.com/",
        "app.example.com",
        "null",
    ],
)
def test_others_may_not(origin: str) -> None:
    """Decision: neither other schemes or ports nor what merely begins or ends alike."""
    assert not allowed(origin, "whatever.example")


@pytest.mark.parametrize("origin", ["https://a.example:443", "http://a.example:80"])
def test_a_default_port_is_no_difference(origin: str) -> None:
    """Decision: browsers leave it out, so an entry with it would allow nothing."""
    assert allowed(origin.rpartition(":")[0], None, OriginPolicy([origin], []))
    assert not allowed("https://a.example", None, OriginPolicy(["https://a.example:80"], []))


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("https://api.example.com", "api.example.com"),
        ("http://api.example.com", "api.example.com"),
        ("https://api.example.com:8443", "api.example.com:8443"),
        ("https://API.example.com", "api.example.COM"),
    ],
)
def test_pages_of_a_listed_host_may_call_it(origin: str, host: str) -> None:
    """Decision: an app's own pages, whatever the proxy did with TLS."""
    assert allowed(origin, host)


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("https://other.example", "other.example"),  # the same origin, but a host of nobody's list
        ("https://evil.example", "api.example.com"),
        ("https://api.example.com:8443", "api.example.com"),
        ("ftp://api.example.com", "api.example.com"),
    ],
)
def test_the_same_origin_is_not_enough(origin: str, host: str) -> None:
    """spec: after rebinding, Origin and Host agree; only a list tells (streamable-http)."""
    assert not allowed(origin, host)


@pytest.mark.parametrize("twice", [b"origin", b"host"])
def test_two_that_differ_are_refused(twice: bytes) -> None:
    """Decision: a proxy may have checked the other one."""
    raw = [
        (b"origin", b"http://localhost"),
        (b"host", b"localhost"),
        (twice, b"localhost.evil.example"),
    ]
    assert OriginPolicy([], []).refusal(RequestHeaders.read(raw)) is not None


def test_another_header_may_come_twice() -> None:
    """Decision: what decides here is Origin and Host."""
    raw = [(b"origin", b"http://localhost"), (b"host", b"localhost"), (b"x", b"1"), (b"x", b"2")]
    assert OriginPolicy([], []).refusal(RequestHeaders.read(raw)) is None


@pytest.mark.parametrize(
    ("origins", "hosts", "setting"),
    [
        ("https://app.example.com", [], "allowed_origins"),
        ([], "api.example.com", "allowed_hosts"),
    ],
)
def test_one_string_is_no_list(origins: Any, hosts: Any, setting: str) -> None:
    """Decision: its letters would be the entries, and nothing would be allowed."""
    with pytest.raises(TypeError, match=f"{setting} is a list of strings, not one string"):
        OriginPolicy(origins, hosts)


@pytest.mark.parametrize(
    "origin",
    ["*", "app.example.com", "https://", "https://app.example.com/page", "https://*.example.com",
     "https://a b", "https://münchen.example", "://app.example.com",
     "https://me@app.example.com", "", "null"],
)  # fmt: skip
def test_an_origin_that_no_browser_sends(origin: str) -> None:
    """Decision: an entry that can never match fails at once, wildcards above all."""
    with pytest.raises(ValueError, match=r"allowed_origins: .* is no origin like https://"):
        OriginPolicy([origin], [])


@pytest.mark.parametrize(
    "host", ["", "*", "https://api.example.com", "api.example.com/mcp", "a b", "münchen.example"]
)
def test_a_host_that_no_client_sends(host: str) -> None:
    """Decision: the same for hosts."""
    with pytest.raises(ValueError, match=r"allowed_hosts: .* is no host like api.example.com"):
        OriginPolicy([], [host])
