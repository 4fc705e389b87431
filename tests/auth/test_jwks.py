"""Keys: which of a set are usable, and when the set is fetched, used while old, or given up."""

import gc
import json
import logging
import warnings
from contextlib import suppress
from typing import Any

import anyio
import pytest
from joserfc.jwk import OctKey

from fastapi_mcp_mrtr.auth.jwks import JWKSCache, KeySet, PublicKey
from fastapi_mcp_mrtr.auth.jwt import JWTVerifier
from fastapi_mcp_mrtr.auth.token import InvalidToken, KeysUnavailable

from .issuer import (
    ISSUER,
    NOW,
    RESOURCE,
    Answer,
    Clock,
    Issuer,
    access_token,
    ec,
    jwk_set,
    okp,
    rsa,
    serve,
)

pytestmark = pytest.mark.anyio

URI = "https://as.example.com/jwks.json"


class Endpoint:
    """A `jwks_uri` whose answers a test chooses and whose fetches it counts."""

    def __init__(self, *keys: Any) -> None:
        self.document: Any = jwk_set(*keys)
        self.fetches = 0
        self.gate: anyio.Event | None = None

    async def __call__(self, uri: str) -> bytes:
        assert uri == URI
        self.fetches += 1
        if self.gate is not None:
            await self.gate.wait()
        if isinstance(self.document, Exception):
            raise self.document
        if isinstance(self.document, bytes):
            return self.document
        return json.dumps(self.document).encode()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint(rsa(), ec())


@pytest.fixture
def cache(endpoint: Endpoint, clock: Clock) -> JWKSCache:
    return JWKSCache(URI, fetch=endpoint, clock=clock)


async def found(cache: JWKSCache, kid: str | None = "rsa", key_type: str = "RSA") -> str | None:
    return (await cache.get(kid, key_type)).kid


# ------------------------------------------------------------------------------- reading a set


def kids(document: Any) -> list[str | None]:
    keys = KeySet(document)
    return [
        kid
        for kid in ("rsa", "ec", "okp", "bad", "oct", None)
        for key_type in ("RSA", "EC", "OKP", "oct")
        if keys.find(kid, key_type)
    ]


def broken(key: Any, **changes: Any) -> dict[str, Any]:
    document = {**key.as_dict(private=False), "kid": "bad", **changes}
    return {name: value for name, value in document.items() if value is not ...}


@pytest.mark.parametrize(
    "bad",
    [
        broken(rsa(), kty="AKP"),
        broken(rsa(), kty=...),
        broken(rsa(), kty=["RSA"]),
        broken(rsa(), n=...),
        broken(rsa(), n="***"),
        broken(rsa(), n=5),
        broken(rsa(), e=""),
        broken(rsa(), use="enc"),
        broken(rsa(), use="tls"),
        broken(rsa(), use=5),
        broken(rsa(), key_ops=["dance"]),
        broken(rsa(), kid=5),
        broken(ec(), crv="P-999"),
        broken(ec(), crv=...),
        broken(ec(), x="AA"),
        broken(ec(), y="a"),
        broken(okp(), crv="Ed999"),
        broken(okp(), x="AA"),
        {"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0", "kid": "oct"},
        {},
        5,
        None,
        "rsa",
        ["rsa"],
    ],
)
def test_a_key_that_is_not_usable_is_skipped_alone(bad: Any) -> None:
    """decision: unknown types and curves, bad base64, `oct`, `use: enc`; the others are kept."""
    good = jwk_set(rsa(), ec(), okp())["keys"]
    assert kids({"keys": [good[0], bad, *good[1:]]}) == ["rsa", "ec", "okp"]


def test_a_short_rsa_key_is_skipped() -> None:
    """decision: RFC 7518 §3.3 demands 2048 bits; joserfc only warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        short = rsa("bad", 1024)
        assert kids(jwk_set(short, ec())) == ["ec", None]


def test_a_symmetric_key_is_never_found() -> None:
    """rule 12: not even by its type."""
    keys = KeySet({"keys": [OctKey.generate_key(256, {"kid": "oct"}).as_dict(private=True)]})
    assert not keys
    assert keys.find("oct", "oct") is None
    assert keys.find(None, "oct") is None


def test_a_key_is_found_by_its_name_and_type() -> None:
    """decision: two keys may share a kid if they are of two types; of one type the first counts."""
    document = jwk_set(rsa("a"), ec("a"), ec("b"))
    document["keys"].append({**ec("c").as_dict(private=False), "kid": "b"})
    keys = KeySet(document)
    named = keys.find("a", "EC")
    assert named is not None
    assert named.get("crv") == "P-256"
    first = keys.find("b", "EC")
    assert first is not None
    assert first.get("x") == ec("b").get("x")
    assert keys.find("a", "OKP") is None
    assert keys.find("c", "EC") is None


def test_a_key_without_a_name_is_found_if_it_is_the_only_one() -> None:
    """decision: no kid and several keys is refused."""
    alone = KeySet({"keys": [rsa(None).as_dict(private=False)]})
    assert alone.find(None, "RSA")
    assert alone.find(None, "EC") is None
    assert alone.find("rsa", "RSA") is None
    assert KeySet(jwk_set(rsa(), rsa("b"))).find(None, "RSA") is None


@pytest.mark.parametrize("document", [[], {}, {"keys": {}}, {"keys": None}, "keys", None, 5])
def test_what_is_no_set_is_refused(document: Any) -> None:
    """decision"""
    with pytest.raises(ValueError, match="no JWK set"):
        KeySet(document)


# --------------------------------------------------------------------------------------- cache


async def test_keys_are_fetched_once_and_kept(cache: JWKSCache, endpoint: Endpoint) -> None:
    """decision: nothing is fetched before it is needed."""
    assert endpoint.fetches == 0
    assert await found(cache) == "rsa"
    assert await found(cache, "ec", "EC") == "ec"
    assert endpoint.fetches == 1


async def test_keys_are_fresh_for_300_seconds(
    cache: JWKSCache, endpoint: Endpoint, clock: Clock
) -> None:
    """decision: TTL 300."""
    await found(cache)
    clock.now += 299.9
    await found(cache)
    assert endpoint.fetches == 1
    clock.now += 0.1
    await found(cache)
    assert endpoint.fetches == 2


async def test_a_key_that_was_withdrawn_is_refused_after_the_ttl(
    cache: JWKSCache, endpoint: Endpoint, clock: Clock
) -> None:
    """decision: a set that was fetched replaces the one before."""
    await found(cache)
    endpoint.document = jwk_set(rsa("new"))
    clock.now += 300
    with pytest.raises(InvalidToken, match="unknown key"):
        await found(cache)
    assert await found(cache, "new") == "new"
    assert endpoint.fetches == 2


async def test_an_unknown_kid_causes_a_fetch(
    cache: JWKSCache, endpoint: Endpoint, clock: Clock
) -> None:
    """decision: rotation before the TTL has passed."""
    await found(cache)
    endpoint.document = jwk_set(rsa("new"), rsa())
    clock.now += 30
    assert await found(cache, "new") == "new"
    assert endpoint.fetches == 2


async def test_forged_kids_cannot_storm_the_issuer(
    cache: JWKSCache, endpoint: Endpoint, clock: Clock
) -> None:
    """decision: at most one fetch in 30 seconds, from a cold start on, however many tokens come."""

    async def storm() -> None:
        for number in range(50):
            with pytest.raises(InvalidToken, match="unknown key"):
                await found(cache, f"forged-{number}")

    await storm()
    assert endpoint.fetches == 1
    clock.now += 29.9
    await storm()
    assert endpoint.fetches == 1
    clock.now += 0.1
    await storm()
    assert endpoint.fetches == 2
    assert await found(cache) == "rsa"


async def test_a_storm_while_the_issuer_is_down_is_no_worse(
    cache: JWKSCache, endpoint: Endpoint, clock: Clock
) -> None:
    """decision: a failed fetch counts."""
    await found(cache)
    endpoint.document = OSError("down")
    clock.now += 30
    for number in range(50):
        with pytest.raises(InvalidToken, match="unknown key"):
            await found(cache, f"forged-{number}")
    assert endpoint.fetches == 2


async def test_fifty_cold_lookups_are_one_fetch(cache: JWKSCache, endpoint: Endpoint) -> None:
    """decision: single flight."""
    endpoint.gate = anyio.Event()
    names: list[str | None] = []

    async def look_up() -> None:
        names.append(await found(cache))

    async with anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(look_up)
        await anyio.wait_all_tasks_blocked()
        assert not names
        endpoint.gate.set()
    assert names == ["rsa"] * 50
    assert endpoint.fetches == 1


async def test_fifty_cold_lookups_that_fail_are_one_fetch(
    cache: JWKSCache, endpoint: Endpoint
) -> None:
    """decision: who waited for a fetch that failed does not try again at once."""
    endpoint.gate = anyio.Event()
    endpoint.document = OSError("down")
    refused = 0

    async def look_up() -> None:
        nonlocal refused
        with pytest.raises(KeysUnavailable):
            await found(cache)
        refused += 1

    async with anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(look_up)
        await anyio.wait_all_tasks_blocked()
        endpoint.gate.set()
    assert (refused, endpoint.fetches) == (50, 1)


async def test_a_client_that_leaves_does_not_end_the_fetch_for_others(
    cache: JWKSCache, endpoint: Endpoint
) -> None:
    """decision: the next one that waits fetches."""
    endpoint.gate = anyio.Event()
    names: list[str | None] = []

    async def look_up() -> None:
        names.append(await found(cache))

    async with anyio.create_task_group() as tasks:
        leaver = anyio.CancelScope()

        async def leave() -> None:
            with leaver:
                await look_up()

        tasks.start_soon(leave)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(look_up)
        await anyio.wait_all_tasks_blocked()
        leaver.cancel()
        await anyio.wait_all_tasks_blocked()
        endpoint.gate.set()
    assert names == ["rsa"]
    assert endpoint.fetches == 2


async def test_nobody_waits_for_a_renewal_but_who_needs_it(
    cache: JWKSCache, endpoint: Endpoint, clock: Clock
) -> None:
    """decision: a slow issuer slows one request; the others use the key that there is."""
    await found(cache)
    clock.now += 300
    endpoint.gate = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(found, cache)
        await anyio.wait_all_tasks_blocked()
        assert endpoint.fetches == 2
        assert await found(cache) == "rsa"
        endpoint.gate.set()


@pytest.mark.parametrize(
    "answer",
    [
        OSError("down"),
        TimeoutError(),
        b"",
        b"<html>",
        b"[]",
        b'{"keys": 5}',
        b'{"error": "server_error"}',
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
async def test_old_keys_serve_while_the_issuer_is_out(
    cache: JWKSCache, endpoint: Endpoint, clock: Clock, answer: Any
) -> None:
    """decision: stale-if-error for 24 hours, trying again every 30 seconds, then 503."""
    await found(cache)
    endpoint.document = answer
    clock.now += 300
    assert await found(cache) == "rsa"
    assert await found(cache) == "rsa"
    assert endpoint.fetches == 2
    clock.now += 30
    assert await found(cache) == "rsa"
    assert endpoint.fetches == 3
    clock.now += 24 * 3600 - 330 - 0.1
    assert await found(cache) == "rsa"
    clock.now += 0.2
    with pytest.raises(KeysUnavailable, match=URI):
        await found(cache)


async def test_an_issuer_that_comes_back_is_noticed(
    cache: JWKSCache, endpoint: Endpoint, clock: Clock
) -> None:
    """rule 17: 503 says 5 seconds, and 5 seconds later another fetch is made."""
    document, endpoint.document = endpoint.document, OSError("down")
    with pytest.raises(KeysUnavailable) as unknown:
        await found(cache)
    assert unknown.value.retry_after == 5
    endpoint.document = document
    clock.now += 4.9
    with pytest.raises(KeysUnavailable):
        await found(cache)
    assert endpoint.fetches == 1
    clock.now += 0.1
    assert await found(cache) == "rsa"


async def test_when_to_come_back_is_configurable(endpoint: Endpoint, clock: Clock) -> None:
    """rule 17: and in whole seconds on the wire."""
    endpoint.document = OSError("down")
    with pytest.raises(KeysUnavailable) as unknown:
        await found(JWKSCache(URI, fetch=endpoint, clock=clock, retry_after=1.5))
    assert unknown.value.retry_after == 2


async def test_an_issuer_without_keys_has_withdrawn_them(
    cache: JWKSCache, endpoint: Endpoint, clock: Clock
) -> None:
    """decision: a well-formed answer counts, so stolen keys serve no longer; and it is a 503."""
    await found(cache)
    endpoint.document = {"keys": []}
    clock.now += 300
    with pytest.raises(KeysUnavailable):
        await found(cache)
    endpoint.document = jwk_set(rsa("new"))
    clock.now += 5
    assert await found(cache, "new") == "new"


async def test_a_clock_that_is_set_back_makes_nothing_last(
    cache: JWKSCache, endpoint: Endpoint, clock: Clock
) -> None:
    """decision: else keys would be fresh, and fetches forbidden, until time has caught up."""
    await found(cache)
    clock.now -= 3600
    endpoint.document = jwk_set(rsa("new"))
    assert await found(cache, "new") == "new"
    assert endpoint.fetches == 2


async def test_a_failed_fetch_is_logged(
    cache: JWKSCache, endpoint: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    """decision: once a fetch, so at most every 5 seconds."""
    endpoint.document = OSError("connection refused")
    for _ in range(3):
        with pytest.raises(KeysUnavailable):
            await found(cache)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("fastapi_mcp_mrtr", logging.WARNING)
    assert record.getMessage() == f"No keys from {URI}: OSError: connection refused"


@pytest.mark.parametrize("setting", ["ttl", "cooldown", "retry_after", "stale"])
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_settings_that_make_no_sense_are_refused(
    setting: str, value: float, endpoint: Endpoint
) -> None:
    """decision: a cooldown of nothing would let anybody storm the issuer."""
    settings: dict[str, Any] = {setting: value}
    with pytest.raises(ValueError, match=f"{setting} must be positive"):
        JWKSCache(URI, fetch=endpoint, **settings)


def test_its_repr_names_the_place(cache: JWKSCache) -> None:
    """decision"""
    assert repr(cache) == f"JWKSCache('{URI}')"


async def test_looking_up_leaves_no_work_to_the_cycle_collector(cache: JWKSCache) -> None:
    """decision: refused lookups included."""

    async def use() -> PublicKey | None:
        with suppress(InvalidToken):
            await cache.get("forged", "RSA")
        return await cache.get("rsa", "RSA")

    await use()
    gc.collect()
    gc.disable()
    try:
        for _ in range(20):
            await use()
        assert gc.collect() == 0
    finally:
        gc.enable()


# -------------------------------------------------------------------------------- over loopback


async def test_keys_rotate_over_real_http() -> None:
    """decision: the new key is published, then signs; the old one is withdrawn."""
    issuer, clock = Issuer(), Clock()
    async with serve(issuer) as url:
        verifier = JWTVerifier(
            issuer=ISSUER, audience=RESOURCE, jwks_uri=f"{url}/jwks.json", clock=clock
        )
        old, new = access_token(exp=NOW + 900), access_token(exp=NOW + 900, key=rsa("new"))
        assert (await verifier.verify(old)).subject == "alice"

        issuer.answers["/jwks.json"] = Answer(jwk_set(rsa(), rsa("new")))
        clock.now += 30
        assert (await verifier.verify(new)).subject == "alice"
        assert (await verifier.verify(old)).subject == "alice"

        issuer.answers["/jwks.json"] = Answer(jwk_set(rsa("new")))
        clock.now += 250
        assert (await verifier.verify(old)).subject == "alice"
        clock.now += 50
        with pytest.raises(InvalidToken, match="unknown key"):
            await verifier.verify(old)
        assert (await verifier.verify(new)).subject == "alice"
    assert [request.path for request in issuer.requests] == ["/jwks.json"] * 3


async def test_an_outage_over_real_http() -> None:
    """rule 17: the last keys, and 503 for who has none."""
    issuer, clock = Issuer(), Clock()

    def verifier(url: str) -> JWTVerifier:
        return JWTVerifier(
            issuer=ISSUER, audience=RESOURCE, jwks_uri=f"{url}/jwks.json", clock=clock
        )

    async with serve(issuer) as url:
        warm, cold = verifier(url), verifier(url)
        await warm.verify(access_token())
        issuer.answers["/jwks.json"] = Answer({}, 503)
        clock.now += 300
        token = access_token(exp=clock.now + 300)
        assert (await warm.verify(token)).subject == "alice"
        with pytest.raises(KeysUnavailable):
            await cold.verify(token)
    assert len(issuer.requests) == 3
