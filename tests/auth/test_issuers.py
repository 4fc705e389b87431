"""Several issuers: each token goes to the verifier of its issuer, and to no other."""

import json
from typing import Any

import pytest

from fastapi_mcp_mrtr.auth.issuers import SeveralIssuers
from fastapi_mcp_mrtr.auth.jwt import JWTVerifier
from fastapi_mcp_mrtr.auth.token import InvalidToken, VerifiedToken

from .issuer import ISSUER, RESOURCE, Clock, access_claims, access_token, b64, jwk_set, rsa, sign

pytestmark = pytest.mark.anyio

SECOND = "https://second.example.com"
THIRD = "https://third.example.com"


class Introspects:
    """Stands in for a verifier that asks its issuer, and tells what it was asked."""

    takes_opaque_tokens = True

    def __init__(self, issuer: str = THIRD) -> None:
        self.issuer = issuer
        self.asked: list[str] = []

    async def verify(self, token: str) -> VerifiedToken:
        self.asked.append(token)
        return VerifiedToken(issuer=self.issuer, subject="carol")


def jwt_verifier(issuer: str, kid: str) -> JWTVerifier:
    keys = jwk_set(rsa(kid))
    return JWTVerifier(issuer=issuer, audience=RESOURCE, jwks=keys, clock=Clock())


def several(*more: Any) -> SeveralIssuers:
    return SeveralIssuers([jwt_verifier(ISSUER, "rsa"), jwt_verifier(SECOND, "second"), *more])


async def test_a_token_goes_to_the_verifier_of_its_issuer() -> None:
    """rule 12: right issuer."""
    both = several()
    assert both.issuers == (ISSUER, SECOND)
    assert (await both.verify(access_token())).issuer == ISSUER
    second = access_token(iss=SECOND, key=rsa("second"))
    assert (await both.verify(second)).issuer == SECOND


async def test_one_issuer_cannot_speak_for_another() -> None:
    """rule 12: `iss` chooses the keys, so who names another issuer is checked with its keys."""
    with pytest.raises(InvalidToken, match="unknown key"):
        await several().verify(access_token(iss=SECOND))
    with pytest.raises(InvalidToken, match="bad signature"):
        await several().verify(sign(access_claims(iss=SECOND), kid="second"))


@pytest.mark.parametrize(
    "iss", ["https://evil.example.com", ISSUER + "/", SECOND.upper(), None, 5, [ISSUER], ...]
)
async def test_a_token_of_an_unknown_issuer_goes_to_nobody(iss: Any) -> None:
    """rule 14: least of all to somebody else's introspection endpoint."""
    introspects = Introspects()
    with pytest.raises(InvalidToken, match="unknown issuer"):
        await several(introspects).verify(access_token(iss=iss))
    assert introspects.asked == []


@pytest.mark.parametrize(
    "token",
    [
        "opaque",
        "a.b",
        "a.b.c",
        "a.b.c.d",
        "é.é.é",
        f"x.{b64(b'[]')}.y",
        f"x.{b64(b'5')}.y",
        f"x.{b64(b'[' * 2000)}.y",
    ],
)
async def test_a_token_that_is_no_jwt_goes_to_the_one_that_takes_those(token: str) -> None:
    """decision: JWTs of one issuer beside opaque tokens of another."""
    introspects = Introspects()
    assert (await several(introspects).verify(token)).subject == "carol"
    assert introspects.asked == [token]
    with pytest.raises(InvalidToken, match="unknown issuer"):
        await several().verify(token)


async def test_an_introspecting_issuer_may_make_jwts() -> None:
    """decision: its own are for it to judge."""
    introspects = Introspects()
    claims = json.dumps({"iss": THIRD}).encode()
    assert (await several(introspects).verify(f"x.{b64(claims)}.y")).issuer == THIRD


async def test_between_two_that_take_opaque_tokens_nobody_chooses() -> None:
    """rule 14: an opaque token would reach an issuer that it is not from."""
    first, second = Introspects(), Introspects("https://fourth.example.com")
    with pytest.raises(InvalidToken, match="unknown issuer"):
        await several(first, second).verify("opaque")
    assert first.asked == second.asked == []


def test_two_verifiers_for_one_issuer_are_refused() -> None:
    """decision"""
    with pytest.raises(ValueError, match=f"Two verifiers are for the issuer '{ISSUER}'"):
        several(jwt_verifier(ISSUER, "rsa"))
