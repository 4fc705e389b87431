"""What is left of a token once it is verified: who calls, and nothing to impersonate them with."""

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from fastapi_mcp_mrtr.auth.principal import principal_key_bytes
from fastapi_mcp_mrtr.auth.token import InvalidToken, KeysUnavailable, VerifiedToken, identified

from .issuer import ISSUER


def verified(**changes: Any) -> VerifiedToken:
    return VerifiedToken(**{"issuer": ISSUER, "subject": "alice", "client_id": "cli", **changes})


def test_a_token_to_stand_in_for_a_login_is_made_in_one_line() -> None:
    """decision: dependency overrides in tests."""
    token = VerifiedToken(issuer=ISSUER, subject="alice")
    assert (token.client_id, token.scopes, token.audience, token.claims) == (
        None,
        frozenset(),
        (),
        {},
    )
    assert token.expires_at == float("inf")


def test_it_cannot_be_changed() -> None:
    """decision: what was verified stays what it was."""
    claims = {"sub": "alice"}
    token = verified(claims=claims)
    claims["sub"] = "mallory"
    assert token.claims["sub"] == "alice"
    with pytest.raises(TypeError):
        token.claims["sub"] = "mallory"  # type: ignore[index]
    with pytest.raises(FrozenInstanceError):
        token.subject = "mallory"  # type: ignore[misc]


def test_scopes_are_no_string() -> None:
    """decision: a verifier of one's own that passes `scope` on would grant its letters."""
    with pytest.raises(TypeError, match="not the string 'read write'"):
        verified(scopes="read write")


def test_its_repr_shows_no_claims() -> None:
    """rule 25: logs have no personal data that nobody asked for."""
    token = verified(claims={"email": "alice@example.com"})
    assert "alice@example.com" not in repr(token)
    assert "VerifiedToken(issuer='https://as.example.com', subject='alice'" in repr(token)


def test_tokens_are_equal_by_what_they_say() -> None:
    """decision: they are values, and can be put into sets."""
    assert verified(claims={"a": 1}) == verified(claims={"a": 1})
    assert verified(claims={"a": 1}) != verified(claims={"a": 2})
    assert len({verified(), verified()}) == 1


# ---------------------------------------------------------------------------- the principal's key


def key(**changes: Any) -> bytes:
    return principal_key_bytes(verified(**changes))


def test_the_key_is_issuer_client_subject_and_tenant() -> None:
    """rule 34, pinned: states in flight hold a hash of it."""
    assert key(claims={"tid": "t1", "sub": "alice", "email": "a@b"}) == (
        b'["claims",["iss",["s","https://as.example.com"]],["tid",["s","t1"]],'
        b'["client",["s","cli"]],["sub",["s","alice"]]]'
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"scopes": frozenset({"notes:write"})},
        {"expires_at": 5.0},
        {"audience": ("https://elsewhere",)},
        {"claims": {"jti": "2", "exp": 9, "iat": 8, "sid": "s", "auth_time": 7, "scope": "x"}},
        {"claims": {"act": {"sub": "agent"}, "cnf": {"jkt": "x"}}},
    ],
)
def test_a_refresh_or_step_up_is_the_same_principal(changes: dict[str, Any]) -> None:
    """rule 34: nothing that is specific to one token is part of it."""
    assert key(**changes) == key()


@pytest.mark.parametrize(
    "changes",
    [
        {"issuer": "https://other.example.com"},
        {"issuer": "https://as.example.com/"},
        {"subject": "bob"},
        {"subject": None},
        {"client_id": "cli2"},
        {"client_id": None},
        {"claims": {"tid": "t1"}},
        {"claims": {"tenant": "t1"}},
        {"claims": {"org_id": "t1"}},
    ],
)
def test_another_user_client_issuer_or_tenant_is_another(changes: dict[str, Any]) -> None:
    """rule 34: `sub` is unique only per issuer."""
    assert key(**changes) != key()


def test_a_client_without_user_is_a_principal_of_its_own() -> None:
    """rule 34: client credentials."""
    assert key(subject=None, claims={}) == (
        b'["claims",["iss",["s","https://as.example.com"]],["client",["s","cli"]]]'
    )


def test_the_same_client_however_the_issuer_calls_it() -> None:
    """rule 34: client_id, else azp, else appid; what was read wins over what else is there."""
    assert key(claims={"azp": "another", "appid": "yet another"}) == key()


def test_nobody_is_no_principal() -> None:
    """rule 34: a broken verifier makes no shared principal."""
    with pytest.raises(TypeError, match="names nobody"):
        key(subject=None, client_id=None)


@pytest.mark.parametrize(
    "changes",
    [
        {"issuer": ""},
        {"subject": ["alice"]},
        {"client_id": {}},
        {"client_id": None, "claims": {"azp": 1.5}},
        {"claims": {"tid": True}},
    ],
)
def test_what_a_verifier_made_of_a_token_must_identify_somebody(changes: dict[str, Any]) -> None:
    """rule 34: the token is no good; it does not come so far that nobody can say whose it is."""
    with pytest.raises(InvalidToken, match=r"^claim"):
        identified(verified(**changes))
    assert identified(verified()) == verified()


def test_refusals_carry_their_reason() -> None:
    """decision: a verifier of one's own raises these."""
    assert str(InvalidToken("expired")) == InvalidToken("expired").reason == "expired"
    assert KeysUnavailable("down").retry_after == 5
    assert KeysUnavailable("down", retry_after=60).retry_after == 60
