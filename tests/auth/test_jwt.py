"""JWT access tokens: which are taken, and what every other thing is refused for."""

import gc
import json
import subprocess
import sys
import warnings
from base64 import urlsafe_b64decode
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from joserfc import jwt
from joserfc.jwk import OctKey

from fastapi_mcp_mrtr.auth.jwks import JWKSCache
from fastapi_mcp_mrtr.auth.jwt import JWTVerifier
from fastapi_mcp_mrtr.auth.token import InvalidToken, VerifiedToken

from .issuer import (
    ISSUER,
    NOW,
    RESOURCE,
    Clock,
    access_claims,
    access_token,
    b64,
    ec,
    jwk_set,
    okp,
    rsa,
    sign,
)

pytestmark = pytest.mark.anyio

KEYS: dict[str, Any] = {"RS256": rsa(), "PS256": rsa(), "ES256": ec(), "Ed25519": okp()}


def verifier(**changes: Any) -> JWTVerifier:
    return JWTVerifier(
        **{
            "issuer": ISSUER,
            "audience": RESOURCE,
            "jwks": jwk_set(rsa(), ec(), okp()),
            "clock": Clock(),
            **changes,
        }
    )


async def refusal(token: str, **changes: Any) -> str:
    with pytest.raises(InvalidToken) as refused:
        await verifier(**changes).verify(token)
    return refused.value.reason


# -------------------------------------------------------------------------------- what is taken


@pytest.mark.parametrize("alg", list(KEYS))
async def test_a_good_token_is_read(alg: str) -> None:
    """rule 12: each of the algorithms that are allowed by default."""
    token = await verifier().verify(access_token(alg=alg, key=KEYS[alg], scope="a b"))
    assert token == VerifiedToken(
        issuer=ISSUER,
        subject="alice",
        client_id="cli",
        scopes=frozenset({"a", "b"}),
        audience=(RESOURCE,),
        expires_at=NOW + 300,
        claims=access_claims(scope="a b"),
    )


async def test_a_token_made_by_joserfc_is_read() -> None:
    """decision: the tokens of these tests are not only what these tests think they are."""
    header = {"alg": "ES256", "typ": "at+jwt", "kid": "ec"}
    token = await verifier().verify(jwt.encode(header, access_claims(), ec()))
    assert token.subject == "alice"


@pytest.mark.parametrize(
    ("alg", "key"),
    [
        ("RS384", rsa()),
        ("RS512", rsa()),
        ("PS384", rsa()),
        ("PS512", rsa()),
        ("ES384", ec("ec384", "P-384")),
        ("ES512", ec("ec521", "P-521")),
        ("Ed448", okp("ed448", "Ed448")),
        ("EdDSA", okp()),
    ],
)
async def test_other_algorithms_are_taken_once_configured(alg: str, key: Any) -> None:
    """rule 12: an allow-list; and EdDSA, which joserfc warns of, without a warning per request."""
    token = access_token(alg=alg, key=key)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        good = await verifier(jwks=jwk_set(key), algorithms=[alg]).verify(token)
    assert good.subject == "alice"
    assert await refusal(token, jwks=jwk_set(key)) == "UnsupportedAlgorithmError"


@pytest.mark.parametrize("typ", ["at+jwt", "AT+JWT", "application/at+jwt", "Application/AT+jwt"])
@pytest.mark.parametrize("profile", ["rfc9068", "jwt"])
async def test_both_profiles_take_access_tokens(typ: str, profile: str) -> None:
    """rule 12 (RFC 9068 §4): media types are case-insensitive."""
    good = await verifier(profile=profile).verify(sign(access_claims(), typ=typ))
    assert good.subject == "alice"


@pytest.mark.parametrize("typ", ["JWT", "jwt", ...])
async def test_the_jwt_profile_takes_what_keycloak_entra_and_auth0_make(typ: Any) -> None:
    """decision: `typ: JWT` and none, in the profile that was chosen for it, and not by default."""
    token = sign(access_claims(), typ=typ)
    assert (await verifier(profile="jwt").verify(token)).subject == "alice"
    assert await refusal(token) == "other typ"


async def test_header_members_that_nobody_knows_are_ignored() -> None:
    """decision: Entra ID's `nonce`; and headers of more than 512 bytes."""
    token = sign(access_claims(), nonce="n", x5t="t", more="x" * 1500)
    assert (await verifier().verify(token)).subject == "alice"


@pytest.mark.parametrize("claim", ["client_id", "azp", "appid"])
async def test_the_client_has_several_names(claim: str) -> None:
    """rule 34: and tokens without a client, or without jti, are tokens."""
    claims: dict[str, Any] = {"client_id": ..., "jti": ..., claim: "cli"}
    token = access_token(**claims)
    assert (await verifier().verify(token)).client_id == "cli"
    assert (await verifier().verify(access_token(client_id=...))).client_id is None


@pytest.mark.parametrize(
    ("claims", "scopes"),
    [
        ({"scope": "a b"}, {"a", "b"}),
        ({"scope": ""}, set()),
        ({"scope": " a  b "}, {"a", "b"}),
        ({"scope": "a\u00a0b"}, {"a\u00a0b"}),
        ({"scope": ["a", "b"]}, {"a", "b"}),
        ({"scope": ..., "scp": "a b"}, {"a", "b"}),
        ({"scope": ..., "scp": ["a", "b"]}, {"a", "b"}),
        ({"scope": "a", "scp": ["b"]}, {"a", "b"}),
        ({"scope": ...}, set()),
        ({"scope": None}, set()),
        ({"scope": ..., "permissions": ["a"]}, set()),
    ],
)
async def test_scopes_are_read_as_issuers_write_them(
    claims: dict[str, Any], scopes: set[str]
) -> None:
    """decision: a string, a list, `scp`; separated by spaces and nothing else."""
    assert (await verifier().verify(access_token(**claims))).scopes == scopes


async def test_other_claims_may_hold_scopes() -> None:
    """decision: Auth0's `permissions`, Entra ID's `roles`."""
    token = access_token(permissions=["a"], roles=["b"])
    read = await verifier(scope_claims=["permissions", "roles"]).verify(token)
    assert read.scopes == {"a", "b"}


# ------------------------------------------------------------------------------------- audience


@pytest.mark.parametrize(
    "aud",
    [
        RESOURCE,
        [RESOURCE],
        ["https://other.example.com", RESOURCE],
        "HTTPS://API.example.COM/mcp",
    ],
)
async def test_a_token_for_this_server_is_taken(aud: Any) -> None:
    """rule 13, spec: MUST (index §Token Handling); scheme and host in any case."""
    assert (await verifier().verify(access_token(aud=aud))).subject == "alice"


@pytest.mark.parametrize(
    "aud",
    [
        "https://api.example.com/mcp/",
        "https://api.example.com/mcp2",
        "https://api.example.com/mcp/admin",
        "https://api.example.com/",
        "https://api.example.com",
        "https://api.example.com/MCP",
        "https://api.example.com:443/mcp",
        "http://api.example.com/mcp",
        "https://evil.example.com/mcp",
        ["https://api.example.com/mcp/x", "https://other.example.com"],
        f"{RESOURCE} {RESOURCE}",
        "",
        [],
    ],
)
async def test_a_token_for_a_sibling_is_refused(aud: Any) -> None:
    """rule 13, spec: MUST NOT accept any other token (index §Token Handling)."""
    assert await refusal(access_token(aud=aud)) == "other audience"


@pytest.mark.parametrize("aud", [5, True, {"aud": RESOURCE}, [RESOURCE, 5], [[RESOURCE]]])
async def test_an_audience_of_another_type_is_refused(aud: Any) -> None:
    """rule 12: a claim of another type rejects."""
    assert await refusal(access_token(aud=aud)) == "aud of another type"


async def test_several_audiences_only_by_configuration() -> None:
    """rule 13: a GUID as Entra ID has it, compared exactly."""
    both = verifier(audience=[RESOURCE, "5B1C-Aa"])
    assert (await both.verify(access_token(aud="5B1C-Aa"))).audience == ("5B1C-Aa",)
    assert (await both.verify(access_token())).audience == (RESOURCE,)
    assert await refusal(access_token(aud="5b1c-aa"), audience=[RESOURCE, "5B1C-Aa"]) == (
        "other audience"
    )


# --------------------------------------------------------------------------------- other claims


@pytest.mark.parametrize("claim", ["iss", "sub", "aud", "exp", "iat"])
@pytest.mark.parametrize("value", [..., None])
async def test_a_claim_that_must_be_there_is(claim: str, value: Any) -> None:
    """rule 12: exp, iss, aud, sub and iat."""
    assert await refusal(access_token(**{claim: value})) == f"no {claim}"


@pytest.mark.parametrize(
    "iss",
    ["https://as.example.com/", "https://AS.example.com", "https://evil.example.com", 5, [ISSUER]],
)
async def test_an_issuer_is_compared_byte_for_byte(iss: Any) -> None:
    """rules 6, 12."""
    assert await refusal(access_token(iss=iss)) == "other issuer"


async def test_a_token_expires() -> None:
    """rule 16, spec: MUST (index §Token Handling): to the second, and with 30 seconds of leeway."""
    token = access_token(exp=NOW)
    clock = Clock()
    clock.now = NOW + 29.9
    assert (await verifier(clock=clock).verify(token)).expires_at == NOW
    clock.now = NOW + 30
    assert await refusal(token, clock=clock) == "expired"
    assert await refusal(token, leeway=0) == "expired"


@pytest.mark.parametrize("exp", ["NaN", "Infinity", "-Infinity", "1e400", "1e300", "9" * 400])
async def test_a_time_that_is_no_time_is_expired(exp: str) -> None:
    """rule 12: every comparison with NaN is false, so what is stated is what is accepted."""
    payload = json.dumps(access_claims(exp=0)).replace('"exp": 0', f'"exp": {exp}')
    assert exp in payload
    assert await refusal(sign(payload.encode())) == "expired"


@pytest.mark.parametrize("exp", ["1900000000", True, [1900000000], {}])
async def test_a_time_of_another_type_is_expired(exp: Any) -> None:
    """rule 12."""
    assert await refusal(access_token(exp=exp)) == "expired"


@pytest.mark.parametrize("claim", ["iat", "nbf"])
async def test_a_token_from_the_future_is_refused(claim: str) -> None:
    """decision: within the leeway the issuer's clock may be ahead."""

    def since(time: Any) -> str:
        return sign(access_claims(**{claim: time}))

    assert (await verifier().verify(since(NOW + 30))).subject == "alice"
    assert await refusal(since(NOW + 31)) == f"{claim} in the future"
    assert await refusal(since("now")) == f"{claim} in the future"


@pytest.mark.parametrize("name", ["sub", "client_id", "azp", "appid", "tid", "tenant", "org_id"])
@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("", "an empty string"),
        (True, "of type bool, not a string"),
        (1.5, "of type float, not a string"),
        (["s3cret"], "of type list, not a string"),
        ({"id": "s3cret"}, "of type dict, not a string"),
    ],
)
async def test_an_identity_that_is_no_name_is_refused(name: str, value: Any, fault: str) -> None:
    """rule 34: it must not become a principal that many share, nor an internal error."""
    changes = {name: value} if name == "client_id" else {"client_id": ..., name: value}
    assert await refusal(access_token(**changes)) == f"claim {name!r} is {fault}"


@pytest.mark.parametrize("name", ["sub", "client_id"])
async def test_a_number_is_no_user_and_no_client(name: str) -> None:
    """rule 34 (RFC 9068 §2.2): both are strings."""
    fault = f"claim {name!r} is of type int, not a string"
    assert await refusal(sign(access_claims(**{name: 5}))) == fault


@pytest.mark.parametrize("name", ["tid", "tenant", "org_id"])
async def test_a_tenant_may_be_a_number_or_null(name: str) -> None:
    """rule 34: issuers count their tenants, and write null where there is none."""
    for value in (7, None):
        token = await verifier().verify(sign(access_claims(**{name: value})))
        assert token.mcp_principal_key[name] == value


async def test_claims_that_do_not_identify_may_be_anything() -> None:
    """decision: `azp` beside `client_id` is not read, and a profile is nobody's identity."""
    token = await verifier().verify(access_token(azp=["cli"], organization={"id": 5}))
    assert token.claims["organization"] == {"id": 5}


@pytest.mark.parametrize("scope", [5, True, {"a": 1}, ["a", 5]])
async def test_scopes_of_another_type_are_refused(scope: Any) -> None:
    """decision: `scope: 5` is a 401 and no AttributeError."""
    assert await refusal(access_token(scope=scope)) == "scope of another type"


@pytest.mark.parametrize("cnf", [{"jkt": "x"}, {"x5t#S256": "x"}, {}, "x"])
async def test_a_token_that_is_bound_to_a_key_is_no_bearer_token(cnf: Any) -> None:
    """rule 38: nobody has checked the proof."""
    assert await refusal(access_token(cnf=cnf)) == "bound to a key"


VERIFIER = verifier()
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@UNHURRIED
@given(
    st.dictionaries(
        st.sampled_from([*access_claims(), "azp", "appid", "scp", "nbf", "cnf", "tid"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=4,
        ),
    )
)
async def test_whatever_the_claims_are_the_answer_is_one_of_two(claims: dict[str, Any]) -> None:
    """rule 12: never a 500, and what is verified names this server and somebody."""
    payload = json.dumps(access_claims() | claims).encode()
    try:
        token = await VERIFIER.verify(sign(payload, alg="ES256", key=ec()))
    except InvalidToken:
        return
    assert RESOURCE in token.audience or "HTTPS" in str(token.audience).upper()
    assert token.subject
    assert NOW - 30 < token.expires_at < float("inf")


# ------------------------------------------------------------------------------------- forgeries


async def test_alg_none_is_refused() -> None:
    """rule 12: with and without a signature."""
    unsigned = sign(access_claims(), alg="none")
    assert unsigned.endswith(".")
    assert await refusal(unsigned) == "UnsupportedAlgorithmError"
    assert await refusal(unsigned + "AAAA") == "UnsupportedAlgorithmError"


@pytest.mark.parametrize("alg", ["HS256", "HS384", "HS512"])
async def test_a_public_key_is_no_secret(alg: str) -> None:
    """rule 12: HS/RS confusion, with each form of the key that an attacker can get."""
    public = rsa().as_pem(private=False)
    stripped = public.strip()
    modulus = rsa().as_dict(private=False)["n"]
    for secret in (stripped + b"\n", stripped, str(modulus).encode()):
        # Made by hand: joserfc refuses a PEM as a secret, as an attacker's library does not.
        forged = sign(access_claims(), alg=alg, key=OctKey(secret, secret, {"kid": "rsa"}))
        assert await refusal(forged) == "UnsupportedAlgorithmError"


@pytest.mark.parametrize(
    "alg", ["RS1", "none", "None", "rs256", "", "A128KW", "dir", None, 5, True, [], {}, ["RS256"]]
)
async def test_an_algorithm_that_is_not_listed_is_refused(alg: Any) -> None:
    """rule 12: an allow-list, and names that are no strings."""
    good = access_token()
    header = b64(json.dumps({"alg": alg, "typ": "at+jwt", "kid": "rsa"}).encode())
    assert await refusal(".".join([header, *good.split(".")[1:]])) in {
        "UnsupportedAlgorithmError",
        "TypeError",
    }


async def test_a_key_serves_its_own_algorithm_only() -> None:
    """rule 12: neither the kid of another type of key, nor what the JWK says it is not for."""
    assert await refusal(sign(access_claims(), kid="ec")) == "unknown key"
    token = access_token()
    for_pss = jwk_set(rsa(), alg="PS256")
    assert await refusal(token, jwks=for_pss) == "UnsupportedKeyAlgorithmError"


@pytest.mark.parametrize("crit", [["exp"], ["b64"], [], "b64", None])
async def test_crit_is_refused(crit: Any) -> None:
    """rule 12: nothing critical is understood; and an unencoded payload (RFC 7797) least of all."""
    reason = await refusal(sign(access_claims(), crit=crit, exp=1))
    assert reason == "crit in header"


async def test_an_unencoded_payload_is_refused() -> None:
    """rule 12: RFC 7797 needs crit."""
    assert await refusal(sign(access_claims(), b64=False)) == "MissingCritHeaderError"
    assert await refusal(sign(access_claims(), b64=False, crit=["b64"])) == "crit in header"


@pytest.mark.parametrize(
    "typ",
    ["dpop+jwt", "logout+jwt", "oauth-authz-req+jwt", "JOSE", "", 5, ["at+jwt"], {"at+jwt": 1}],
)
@pytest.mark.parametrize("profile", ["rfc9068", "jwt"])
async def test_a_jwt_made_for_something_else_is_refused(typ: Any, profile: str) -> None:
    """rule 12 (RFC 8725 §3.11)."""
    reason = await refusal(sign(access_claims(), typ=typ), profile=profile)
    assert reason in {"other typ", "TypeError"}


async def test_a_changed_token_is_refused() -> None:
    """rule 12: header, claims and signature, one bit each."""
    header, claims, signature = access_token().split(".")
    other_header, other_claims, other_signature = access_token(sub="bob").split(".")
    assert header == other_header
    flipped = ("B" if signature[0] == "A" else "A") + signature[1:]
    assert await refusal(f"{header}.{other_claims}.{signature}") == "bad signature"
    assert await refusal(f"{header}.{claims}.{other_signature}") == "bad signature"
    assert await refusal(f"{header}.{claims}.{flipped}") == "bad signature"
    assert await refusal(f"{header}.{claims}.") == "bad signature"
    assert await refusal(f"{header}.{claims}.{signature}=") == "bad signature"


async def test_a_key_in_the_header_is_not_used() -> None:
    """rule 12: jwk, jku, x5u are the sender's word."""
    mine = rsa("mine")
    headers: list[dict[str, Any]] = [
        {"jwk": mine.as_dict(private=False)},
        {"jku": "https://evil.example.com/jwks.json"},
        {"x5u": "https://evil.example.com/cert"},
    ]
    for header in headers:
        assert await refusal(sign(access_claims(), key=mine, **header)) == "unknown key"
        assert await refusal(sign(access_claims(), key=mine, kid="rsa", **header)) == (
            "bad signature"
        )


@pytest.mark.parametrize("kid", [5, ["rsa"], {"rsa": 1}, True])
async def test_a_kid_of_another_type_is_refused(kid: Any) -> None:
    """decision: it is only for looking up."""
    assert await refusal(sign(access_claims(), kid=kid)) == "kid of another type"


async def test_without_a_kid_there_must_be_no_doubt() -> None:
    """decision: no kid and several keys is refused; with one, there is no other."""
    token = sign(access_claims(), kid=...)
    assert await refusal(token) == "unknown key"
    assert (await verifier(jwks=jwk_set(rsa())).verify(token)).subject == "alice"
    assert await refusal(token, jwks=jwk_set(ec())) == "unknown key"


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "..",
        "...",
        "a.b.c",
        "not-a-jwt",
        "eyJhbGciOiJSUzI1NiJ9",
        "eyJhbGciOiJSUzI1NiJ9..",
        "a.b.c.d.e",
        f"{b64(b'[]')}.e30.AA",
        f"{b64(b'5')}.e30.AA",
        f"{b64(b'null')}.e30.AA",
        f"{b64(b'{}')}.e30.AA",
        f"{b64(b'[1, 2, 3]')}.e30.AA",
        f"""{b64(b'["alg"]')}.e30.AA""",
        f"""{b64(b'"alg"')}.e30.AA""",
        f"{b64(b'{' * 2000)}.e30.AA",
        f"{b64(b'[' * 3000)}.e30.AA",
        f"{b64(bytes([0xFF, 0xFE]))}.e30.AA",
        "é.é.é",
        "\ud800.a.b",
        "a b.c.d",
    ],
)
async def test_garbage_is_refused(token: str) -> None:
    """rule 12: whatever the parser raises (JoseError, ValueError, AttributeError…) is a 401."""
    await refusal(token)


@pytest.mark.parametrize(
    "payload", [b"", b"[]", b"5", b"null", b"{", b'"x"', b"[" * 5000, b"\xff\xfe", b'{"a": \xff}']
)
async def test_signed_garbage_is_refused(payload: bytes) -> None:
    """rule 12: an issuer's mistake is no 500 either."""
    assert await refusal(sign(payload)) in {"no claims", "ValueError", "DecodeError"}


@UNHURRIED
@given(st.text(max_size=200) | st.from_regex(r"[\w-]{0,40}\.[\w-]{0,40}\.[\w-]{0,40}"))
async def test_any_text_is_refused(token: str) -> None:
    """rule 12: never anything but InvalidToken."""
    with pytest.raises(InvalidToken):
        await VERIFIER.verify(token)


@pytest.mark.parametrize(
    "header",
    [
        {"more": "x" * 4096},
        {"more": ["x"] * 2000},
    ],
)
async def test_a_header_has_its_limit(header: dict[str, Any]) -> None:
    """decision: 4096 bytes."""
    assert await refusal(sign(access_claims(), **header)) == "ExceededSizeError"


async def test_the_reason_quotes_nothing_of_the_token() -> None:
    """rule 25: what is logged is in our words."""
    evil = "evil\nINFO: all is well"
    tokens = [
        sign(access_claims(), kid=evil),
        sign(access_claims(), typ=evil),
        access_token(iss=evil),
        access_token(aud=evil),
        f"{b64(json.dumps({'alg': evil}).encode())}.e30.AA",
        f"{evil}.b.c",
    ]
    for token in tokens:
        assert "evil" not in await refusal(token)


# --------------------------------------------------------------------------------- configuration


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"issuer": "http://as.example.com"}, "issuer='http://as.example.com' must be https"),
        ({"issuer": "https://as.example.com?x"}, "must not have a query"),
        ({"audience": ""}, "never guessed"),
        ({"audience": []}, "never guessed"),
        ({"audience": [RESOURCE, ""]}, "never guessed"),
        ({"leeway": -1}, "0 to 300 seconds"),
        ({"leeway": 301}, "0 to 300 seconds"),
        ({"leeway": float("nan")}, "0 to 300 seconds"),
        ({"profile": "oidc"}, "profile='oidc' is none of rfc9068, jwt"),
        ({"algorithms": []}, "takes some of RS256"),
        ({"algorithms": ["HS256"]}, "takes some of RS256"),
        ({"algorithms": ["RS256", "none"]}, "takes some of RS256"),
        ({"jwks": None}, "Either jwks_uri= or jwks="),
        ({"jwks_uri": "https://as.example.com/jwks.json"}, "Either jwks_uri= or jwks="),
        ({"jwks": {"keys": []}}, "no key that is asymmetric"),
        ({"jwks": {"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}}, "no key that is asymmetric"),
        ({"jwks": {}}, "no JWK set"),
        ({"jwks": [rsa().as_dict(private=False)]}, "no JWK set"),
        ({"jwks": None, "jwks_uri": "http://as.example.com/jwks.json"}, "must be https"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, Any], why: str) -> None:
    """decision: at construction, and naming the setting."""
    with pytest.raises(ValueError, match=why):
        verifier(**changes)


def test_a_string_where_a_list_belongs_is_refused() -> None:
    """decision: else "scope" would be five claims."""
    with pytest.raises(TypeError, match="scope_claims takes a list"):
        verifier(scope_claims="scope")


def test_one_algorithm_may_be_a_string() -> None:
    """decision"""
    assert verifier(algorithms="ES256").issuer == ISSUER


async def test_a_cache_with_settings_of_its_own_is_taken() -> None:
    """decision: shared between verifiers, or with another ttl."""

    async def fetch(uri: str) -> bytes:
        return json.dumps(jwk_set(rsa())).encode()

    cache = JWKSCache("https://as.example.com/jwks.json", fetch=fetch)
    assert (await verifier(jwks=cache).verify(access_token())).subject == "alice"


async def test_keys_are_fetched_as_the_app_likes() -> None:
    """decision: key fetching is a pluggable coroutine."""
    asked = []

    async def fetch(uri: str) -> bytes:
        asked.append(uri)
        return json.dumps(jwk_set(rsa())).encode()

    by_uri = verifier(jwks=None, jwks_uri="https://as.example.com/jwks.json", fetch=fetch)
    assert (await by_uri.verify(access_token())).subject == "alice"
    assert (await by_uri.verify(access_token())).subject == "alice"
    assert asked == ["https://as.example.com/jwks.json"]


def test_what_verifies_is_imported_when_a_verifier_is_made() -> None:
    """decision: who has no JWTs waits for no joserfc, and who fetches nothing for no httpx2."""
    code = """
import json, sys
import fastapi_mcp_mrtr.auth.resource
from fastapi_mcp_mrtr.auth.introspection import IntrospectionVerifier
from fastapi_mcp_mrtr.auth.jwt import JWTVerifier
lazy = {"joserfc", "httpx2", "authlib", "http.cookiejar"}
print(sorted(lazy & set(sys.modules)))
JWTVerifier(issuer="https://as", audience="x", jwks=json.loads(sys.argv[1]))
print(sorted(lazy & set(sys.modules)))
"""
    command = [sys.executable, "-c", code, json.dumps(jwk_set(ec()))]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert printed.splitlines() == ["[]", "['joserfc']"]


def test_its_repr_names_the_issuer() -> None:
    """decision"""
    assert repr(verifier()) == "JWTVerifier(issuer='https://as.example.com')"


async def test_verifying_leaves_no_work_to_the_cycle_collector() -> None:
    """decision: garbage cycles are what makes p99; refused tokens included."""
    mine = verifier()
    good = access_token()
    tokens = [good, good[:-8] + "AAAAAAAA", "a.b.c", access_token(exp=1), sign(b"[]")]

    async def use() -> None:
        for token in tokens:
            with suppress(InvalidToken):
                await mine.verify(token)

    await use()
    gc.collect()
    gc.disable()
    try:
        for _ in range(20):
            await use()
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_the_tokens_of_these_tests_are_jwts() -> None:
    """decision: the helper is not the reason why things are refused."""
    header, claims, _ = access_token().split(".")
    assert json.loads(urlsafe_b64decode(header + "==")) == {
        "alg": "RS256",
        "typ": "at+jwt",
        "kid": "rsa",
    }
    assert json.loads(urlsafe_b64decode(claims + "==")) == access_claims()
