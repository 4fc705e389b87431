"""The challenges, to the letter, and what becomes of those that an app raises itself."""

from typing import Any

import pytest
from fastapi import HTTPException
from fastapi.security import (
    APIKeyHeader,
    HTTPBasic,
    HTTPBearer,
    OAuth2PasswordBearer,
    OpenIdConnect,
)
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.requests import Request

from fastapi_mcp_mrtr.auth.challenges import (
    ChallengeError,
    augment_challenge,
    bearer,
    insufficient_scope,
    invalid_request,
    invalid_token,
    keys_unavailable,
    no_credentials,
)

METADATA = "https://h/.well-known/oauth-protected-resource/mcp"
FOUND_AT = f'resource_metadata="{METADATA}"'


def sent(refusal: ChallengeError) -> tuple[int, str | None, bytes]:
    response = refusal.response()
    return response.status_code, response.headers.get("WWW-Authenticate"), bytes(response.body)


# ---------------------------------------------------------------------- what each refusal says


def test_no_credentials() -> None:
    """rules 15, 21: 401 without error (RFC 6750 §3.1 SHOULD NOT)."""
    assert sent(no_credentials(["notes:read", "notes:list"], METADATA)) == (
        401,
        f'Bearer scope="notes:read notes:list", {FOUND_AT}',
        b"{}",
    )


def test_no_credentials_where_no_scope_is_needed() -> None:
    """rule 24: one parameter is left, as RFC 6750 §3 demands."""
    assert sent(no_credentials([], METADATA)) == (401, f"Bearer {FOUND_AT}", b"{}")


def test_invalid_token() -> None:
    """rules 16, 21: one text for every cause."""
    assert sent(invalid_token(["notes:read"], METADATA, "c0ffee")) == (
        401,
        f'Bearer error="invalid_token", scope="notes:read", {FOUND_AT}, '
        'error_description="The access token is invalid or expired"',
        b'{"error":"invalid_token",'
        b'"error_description":"The access token is invalid or expired",'
        b'"correlation_id":"c0ffee"}',
    )


def test_insufficient_scope() -> None:
    """rules 21, 22: every scope of the operation in one challenge."""
    assert sent(insufficient_scope(["notes:read", "notes:write"], METADATA)) == (
        403,
        f'Bearer error="insufficient_scope", scope="notes:read notes:write", {FOUND_AT}, '
        'error_description="The access token lacks a scope that this operation needs"',
        b'{"error":"insufficient_scope",'
        b'"error_description":"The access token lacks a scope that this operation needs"}',
    )


def test_insufficient_scope_of_an_app_without_metadata() -> None:
    """rule 2: no issuer configured, no resource_metadata in challenges."""
    assert insufficient_scope(["a"]).headers["WWW-Authenticate"] == (
        'Bearer error="insufficient_scope", scope="a", '
        'error_description="The access token lacks a scope that this operation needs"'
    )


def test_duplicate_header() -> None:
    """rule 15."""
    assert sent(invalid_request()) == (
        400,
        'Bearer error="invalid_request", '
        'error_description="The Authorization header was sent more than once"',
        b'{"error":"invalid_request",'
        b'"error_description":"The Authorization header was sent more than once"}',
    )


def test_keys_unavailable() -> None:
    """rule 17: no challenge, no body, but when to come back."""
    response = keys_unavailable(5).response()
    assert (response.status_code, response.body) == (503, b"")
    assert response.headers["Retry-After"] == "5"
    assert "WWW-Authenticate" not in response.headers
    assert "Content-Type" not in response.headers


def test_bodies_are_json() -> None:
    """decision: the bodies are objects."""
    assert invalid_request().response().headers["Content-Type"] == "application/json"


# --------------------------------------------------------------------------------- the builder


def test_a_challenge_needs_a_parameter() -> None:
    """rule 24 (RFC 6750 §3: MUST)."""
    with pytest.raises(ValueError, match="at least one parameter"):
        bearer()


@pytest.mark.parametrize("character", ['"', "\\", "\r", "\n", "\t", "\0", "\x7f", "ä", "\u2028"])
def test_what_would_end_a_quoted_value_is_stripped(character: str) -> None:
    """rule 24: no header is split and no quote is closed."""
    assert bearer(error_description=f"a{character}b") == 'Bearer error_description="ab"'


def test_a_description_never_looks_like_a_parameter() -> None:
    """rule 24: mcp's client searches the whole header for `scope=`; the description is last."""
    value = bearer(error="e", scope=["s"], error_description='scope="evil" error=x')
    assert value == 'Bearer error="e", scope="s", error_description="scopeevil errorx"'


# --------------------------------------------------------------------- challenges of the app


def augmented(status: int, challenge: str | None, url: str | None = METADATA) -> str | None:
    headers = None if challenge is None else {"WWW-Authenticate": challenge, "X-Other": "kept"}
    raised = HTTPException(status, "detail", headers)
    result = augment_challenge(raised, url)
    assert (result.status_code, result.detail) == (status, "detail")
    if challenge is not None:
        assert result.headers is not None
        assert result.headers["X-Other"] == "kept"
    return (result.headers or {}).get("WWW-Authenticate")


@pytest.mark.parametrize(
    ("raised", "becomes"),
    [
        ("Bearer", f"Bearer {FOUND_AT}"),
        ("bearer", f"bearer {FOUND_AT}"),
        ('Bearer scope="items"', f'Bearer scope="items", {FOUND_AT}'),
        ('Bearer realm="a, b", scope=x', f'Bearer realm="a, b", scope=x, {FOUND_AT}'),
        ('Bearer realm = "x"', f'Bearer realm = "x", {FOUND_AT}'),
        ('Bearer realm="say \\"Basic y\\""', f'Bearer realm="say \\"Basic y\\"", {FOUND_AT}'),
        ("Bearer, APIKey", f"Bearer {FOUND_AT}, APIKey"),
        ('Bearer a="b" , Basic realm="x"', f'Bearer a="b", {FOUND_AT} , Basic realm="x"'),
        ('Basic realm="x", Bearer', f'Basic realm="x", Bearer {FOUND_AT}'),
        ("Negotiate YWJj==, Bearer a=b, c=d", f"Negotiate YWJj==, Bearer a=b, c=d, {FOUND_AT}"),
        ("Bearer a=b, Bearer c=d", f"Bearer a=b, {FOUND_AT}, Bearer c=d"),
    ],
)
def test_a_bearer_challenge_is_told_where_to_log_in(raised: str, becomes: str) -> None:
    """decision: appended to the Bearer challenge, and to no other."""
    assert augmented(401, raised) == becomes


@pytest.mark.parametrize(
    "raised",
    [
        "APIKey",
        'Basic realm="x"',
        'DPoP algs="ES256"',
        'Basic realm="Bearer x"',
        'Bearer resource_metadata="https://other"',
        'Bearer scope="a", Resource_Metadata = "https://other", error="b"',
        'Bearer realm="never closed, Basic',
        "Bearer a=b\\",
    ],
)
def test_other_schemes_and_finished_challenges_are_left_alone(raised: str) -> None:
    """decision: a token would not help there. Nor is anything added to what is malformed."""
    assert augmented(401, raised) == raised


def test_a_bare_401_becomes_a_challenge() -> None:
    """decision: with issuers configured."""
    assert augmented(401, None) == f"Bearer {FOUND_AT}"
    assert augmented(401, " ") == f"Bearer {FOUND_AT}"


@pytest.mark.parametrize("challenge", [None, "Bearer", "APIKey"])
def test_without_metadata_nothing_changes(challenge: str | None) -> None:
    """rule 2: no issuer, no resource_metadata."""
    assert augmented(401, challenge, None) == challenge


def test_a_bare_403_stays_as_it_is() -> None:
    """decision: logging in would not help."""
    assert augmented(403, None) is None


def test_a_403_that_asks_for_scopes_says_where() -> None:
    """rule 21: 403 carries error, scope and resource_metadata."""
    raised = 'Bearer error="insufficient_scope", scope="a"'
    assert augmented(403, raised) == f"{raised}, {FOUND_AT}"


@pytest.mark.parametrize("status", [302, 303, 307, 400, 404, 500])
def test_other_statuses_pass_through(status: int) -> None:
    """decision: redirects to a login page, and everything else."""
    raised = HTTPException(status, headers={"Location": "/login"})
    assert augment_challenge(raised, METADATA) is raised


def test_what_was_raised_is_not_written_to() -> None:
    """decision: apps raise the same exception object again and again."""
    raised = HTTPException(401, headers={"www-authenticate": "Bearer"})
    result = augment_challenge(raised, METADATA)
    assert raised.headers == {"www-authenticate": "Bearer"}
    assert result.headers == {"www-authenticate": f"Bearer {FOUND_AT}"}
    assert augment_challenge(result, METADATA) is result


def test_a_subclass_stays_one_with_all_that_it_carries() -> None:
    """decision: the app's exception handlers are chosen by class."""

    class LoginNeeded(HTTPException):
        def __init__(self, *, tenant: str) -> None:
            super().__init__(401, "Log in")
            self.tenant = tenant

    cause = KeyError("session")
    try:
        raise LoginNeeded(tenant="acme") from cause
    except LoginNeeded as raised:
        result = augment_challenge(raised, METADATA)
    assert isinstance(result, LoginNeeded)
    assert (result.tenant, result.detail, result.__cause__) == ("acme", "Log in", cause)
    assert result.headers == {"WWW-Authenticate": f"Bearer {FOUND_AT}"}


def test_exceptions_of_starlette_are_augmented_too() -> None:
    """decision: FastAPI's is a subclass."""
    result = augment_challenge(StarletteHTTPException(401), METADATA)
    assert result.headers == {"WWW-Authenticate": f"Bearer {FOUND_AT}"}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("scheme", "becomes"),
    [
        (OAuth2PasswordBearer(tokenUrl="token"), f"Bearer {FOUND_AT}"),
        (HTTPBearer(), f"Bearer {FOUND_AT}"),
        (OpenIdConnect(openIdConnectUrl="/openid"), f"Bearer {FOUND_AT}"),
        (APIKeyHeader(name="X-API-Key"), "APIKey"),
        (HTTPBasic(), "Basic"),
    ],
)
async def test_what_fastapis_own_schemes_raise(scheme: Any, becomes: str) -> None:
    """decision: each of them, as this FastAPI raises it."""
    with pytest.raises(StarletteHTTPException) as raised:
        await scheme(Request({"type": "http", "headers": []}))
    result = augment_challenge(raised.value, METADATA)
    assert result.headers is not None
    assert result.headers["WWW-Authenticate"] == becomes
