"""Session ids: what they say comes back, and every other token is no session."""

import dataclasses
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastapi_mcp_mrtr.auth.principal import principal_key_bytes
from fastapi_mcp_mrtr.errors import SessionNotFound
from fastapi_mcp_mrtr.state.codec import (
    CURSOR,
    OTHER_FORMAT,
    REQUEST_STATE,
    SEAL_BROKEN,
    SESSION,
    UNKNOWN_KID,
    AESGCMCodec,
    RequestStateCodec,
)
from fastapi_mcp_mrtr.state.keys import KeyRing, Secret
from fastapi_mcp_mrtr.state.sessions.session_id import (
    MAX_INFO_CHARACTERS,
    MAX_SESSION_ID_BYTES,
    Session,
    SessionSecurity,
)
from tests.state.samples import FIXED_CODEC, NEW, NOW, OLD, RING, OpenCodec, security
from tests.state.samples import seal as seal_state

ALICE = principal_key_bytes({"iss": "https://idp.example", "sub": "alice"})
BOB = principal_key_bytes({"iss": "https://idp.example", "sub": "bob"})
LIFETIME = 86_400.0

SESSION_OF_ALICE = Session.begin(
    version="2025-11-25",
    capabilities={"elicitation": {"form": {}, "url": {}}, "roots": {"listChanged": True}},
    client_info={"name": "an-editor", "version": "1.2.3"},
    expires=NOW + LIFETIME,
    entropy=lambda size: b"sixteen bytes..."[:size],
)
CLAIMS = [
    "format",
    "audience",
    "expires",
    "kid",
    "principal",
    "uid",
    "version",
    "capabilities",
    "client_info",
]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=12,
)


def sessions(
    codec: RequestStateCodec | None = None, keys: KeyRing = RING, *, audience: str = "travel-desk"
) -> SessionSecurity:
    return SessionSecurity(codec or AESGCMCodec(keys), keys, audience=audience)


TOKEN = sessions(FIXED_CODEC).seal(SESSION_OF_ALICE, principal=ALICE)


def refusal(
    token: Any,
    *,
    by: SessionSecurity | None = None,
    principal: bytes = ALICE,
    now: float = NOW,
) -> str:
    """The reason in the log, having checked that nothing else hangs on the error."""
    with pytest.raises(SessionNotFound) as refused:
        (by or sessions()).unseal(token, principal=principal, now=now)
    error = refused.value
    assert error.args == (error.reason,)
    assert error.__suppress_context__
    assert isinstance(error.reason, str)
    return error.reason


def payload() -> list[Any]:
    codec = OpenCodec()
    sessions(codec).seal(SESSION_OF_ALICE, principal=ALICE)
    claims: list[Any] = json.loads(codec.payloads[0])
    return claims


def refused_payload(data: Any) -> str:
    return refusal("0", by=sessions(OpenCodec(opens_to=data)))


def refused_claim(name: str, value: Any) -> str:
    claims = payload()
    claims[CLAIMS.index(name)] = value
    return refused_payload(json.dumps(claims).encode())


GOLDEN = (
    "AQcyMDI2LTA3dHdlbHZlIGJ5dGVzzCIl6xygiAtTEQYcb0PcB7TaYC0cT4l4JVDTW5EBY7YHcIZEPcrz-zpPox3p"
    "RyX4d6MFGjXU9gSu-Bs7rFEmfC7vSVJkeS5W3w26DMoGX7n4tIfj5BzCTqsyLlUANItIJdaydrJVi_OynG-aw-MH"
    "RWj-5LM2dssYUPijRu7YTROZhIXgiD9usu7P4byIF45gTGsl-md1rgaTPXynu30_purbXfruHN0Ko3YxBDdbHYZk"
    "vxheVwKYZL93aoHPzX-7zFg9hBOTsR7iNLTsLpAagveLnAdqy0qV34SbP_l5WP0N5UDI7VtV5Bs_5W00CErz-z8k"
    "vPRMkyo"
)
"""As the first version that had sessions sealed it."""


# ------------------------------------------------------------------------------ the way round


def test_an_update_of_the_server() -> None:
    """decision: sessions survive it, and workers of both versions serve them meanwhile."""
    assert TOKEN == GOLDEN
    assert sessions().unseal(GOLDEN, principal=ALICE, now=NOW) == SESSION_OF_ALICE


def test_round_trip() -> None:
    """decision: whatever worker opens an id knows everything that was agreed."""
    assert sessions().unseal(TOKEN, principal=ALICE, now=NOW) == SESSION_OF_ALICE


@given(st.dictionaries(st.text(), json_values), st.none() | st.dictionaries(st.text(), json_values))
def test_whatever_a_client_declares(declared: dict[str, Any], info: dict[str, Any] | None) -> None:
    """decision: a session begins with any capabilities and info that are objects."""
    session = Session.begin(
        version="2025-06-18", capabilities=declared, client_info=info, expires=NOW + 1
    )
    token = sessions().seal(session, principal=ALICE)
    assert sessions().unseal(token, principal=ALICE, now=NOW) == session


def test_the_longest_fits_into_a_header() -> None:
    """decision: a client that names itself at length gets an id all the same."""
    keys = KeyRing(primary=Secret("k" * 32, bytes(32)))
    hostile: dict[str, Any] = dict.fromkeys(("name", "title", "version", "x"), "\ud800" * 10_000)
    session = Session.begin(
        version="2025-11-25",
        capabilities={
            name: {member: {"x" * 10_000: 1} for member in ("form", "url", "context", "tools")}
            for name in ("elicitation", "sampling", "roots", "experimental")
        },
        client_info=hostile,
        expires=NOW + LIFETIME,
    )
    token = sessions(keys=keys, audience="x" * 10_000).seal(session, principal=ALICE)
    assert len(token) <= MAX_SESSION_ID_BYTES
    assert session.client_info == dict.fromkeys(
        ("name", "title", "version"), "\ud800" * MAX_INFO_CHARACTERS
    )
    assert session.capabilities == {
        "elicitation": {"form": {}, "url": {}},
        "sampling": {"context": {}, "tools": {}},
        "roots": {},
    }


def test_an_id_is_visible_ascii() -> None:
    """spec: MUST only contain visible ASCII characters (transports §Session Management 1)."""
    assert all("!" <= character <= "~" for character in TOKEN)


def test_uids_are_unguessable() -> None:
    """spec: SHOULD be globally unique and cryptographically secure (§Session Management 1)."""
    uids = {
        Session.begin(version="x", capabilities={}, client_info=None, expires=1).uid
        for _ in range(100)
    }
    assert len(uids) == 100
    assert {len(uid) for uid in uids} == {32}


def test_nothing_of_the_client_can_be_read() -> None:
    """decision: an id ends up in logs of proxies, so it says nothing."""
    assert "an-editor" not in TOKEN
    assert sessions().seal(SESSION_OF_ALICE, principal=ALICE) != TOKEN


def test_what_is_no_object_declares_nothing() -> None:
    """decision: `false` must not declare a capability."""
    session = Session.begin(
        version="2025-11-25",
        capabilities={"elicitation": False, "sampling": {"tools": False}, "roots": None},
        client_info={"name": 1, "version": None},
        expires=1,
    )
    assert session.capabilities == {"sampling": {}}
    assert session.client_info == {}


# ------------------------------------------------------------------------------ who may use it


def test_another_principal() -> None:
    """decision: to everybody else it is no session (security best practices §Session Hijacking)."""
    assert refusal(TOKEN, principal=BOB) == "other principal"
    assert refusal(TOKEN, principal=principal_key_bytes(None)) == "other principal"


def test_expiry() -> None:
    """decision: not a moment longer than it lasts."""
    assert refusal(TOKEN, now=NOW + LIFETIME) == "expired"
    assert refusal(TOKEN, now=math.nan) == "expired"
    sessions().unseal(TOKEN, principal=ALICE, now=NOW + LIFETIME - 1)


@pytest.mark.parametrize("expires", [math.nan, math.inf])
def test_a_session_without_an_end(expires: float) -> None:
    """decision: what is no time is not in the future."""
    eternal = dataclasses.replace(SESSION_OF_ALICE, expires=expires)
    codec = OpenCodec()
    token = sessions(codec).seal(eternal, principal=ALICE)
    assert refusal(token, by=sessions(codec)) == "expired"


def test_another_server() -> None:
    """decision: two servers that share a secret do not share sessions."""
    assert refusal(TOKEN, by=sessions(audience="other")) == "other audience"


def test_another_secret() -> None:
    """decision: an id of a secret that was retired is none."""
    assert refusal(TOKEN, by=sessions(keys=KeyRing(primary=NEW))) == UNKNOWN_KID


def test_a_secret_that_is_still_accepted() -> None:
    """decision: sessions outlive the change of a secret."""
    ring = KeyRing(primary=NEW, accepted=[OLD])
    assert sessions(keys=ring).unseal(TOKEN, principal=ALICE, now=NOW) == SESSION_OF_ALICE


def test_a_claimed_kid_that_is_unknown() -> None:
    """decision: with a codec of one's own, too, a principal is compared under a known secret."""
    assert refused_claim("kid", "another") == "other principal"


def test_a_principal_is_needed() -> None:
    """decision: nobody is not anonymous."""
    with pytest.raises(ValueError, match="anonymous"):
        sessions().seal(SESSION_OF_ALICE, principal=b"")


# ------------------------------------------------------------------------------------ garbage


@pytest.mark.parametrize("token", [None, "", 1, b"x", [], "é", TOKEN + "=", TOKEN[:-1], " "])
def test_other_values(token: Any) -> None:
    """decision: whatever is no id is no session, and never a crash."""
    refusal(token)


@given(st.text())
def test_any_text(token: str) -> None:
    """decision: the same for whatever a client may send."""
    refusal(token)


@given(st.integers(0, len(TOKEN) - 1), st.characters(min_codepoint=33, max_codepoint=126))
def test_any_character_changed(at: int, character: str) -> None:
    """decision: an id opens as it was made or not at all."""
    if TOKEN[at] != character:
        refusal(TOKEN[:at] + character + TOKEN[at + 1 :])


def test_too_long_is_refused_before_the_codec_sees_it() -> None:
    """decision: what is too long costs nothing."""
    assert refusal("A" * (MAX_SESSION_ID_BYTES + 1)).startswith("not ASCII, empty or longer than")
    assert refusal("A" * MAX_SESSION_ID_BYTES) == OTHER_FORMAT


def test_tokens_of_other_purposes() -> None:
    """decision: a state or a cursor is no session, though the same secret sealed it."""
    assert refusal(seal_state(security())) == SEAL_BROKEN
    for purpose in (CURSOR, REQUEST_STATE):
        assert refusal(FIXED_CODEC.seal(json.dumps(payload()).encode(), purpose=purpose))
    session = FIXED_CODEC.seal(json.dumps(payload()).encode(), purpose=SESSION)
    assert sessions().unseal(session, principal=ALICE, now=NOW) == SESSION_OF_ALICE


@pytest.mark.parametrize("data", [b"", b"\xff", b"1", b"{}", b"[]", b"[2]", b"[1]", b"[" * 9999])
def test_other_payloads(data: bytes) -> None:
    """decision: a good seal around something else, as another version may have made."""
    assert refused_payload(data).startswith("payload")


@pytest.mark.parametrize("claim", CLAIMS[1:])
@pytest.mark.parametrize("value", [True, 1.5, "é", [], None, {"x": 1}])
def test_claims_of_other_types(claim: str, value: Any) -> None:
    """decision: no claim is taken for something it is not."""
    fits = {
        "expires": (float,),
        "capabilities": (dict,),
        "client_info": (dict, type(None)),
    }.get(claim, (str,))
    if type(value) in fits and claim in {"uid", "version", "capabilities", "client_info"}:
        return
    assert refused_claim(claim, value)


def test_any_exception_of_any_codec() -> None:
    """decision: every exception rejects, and its text stays out of the log."""

    class Raising(OpenCodec):
        def unseal(self, token: str, *, purpose: bytes) -> bytes:
            raise KeyError(token)

    assert refusal("secret", by=sessions(Raising())) == "codec raised KeyError"


@pytest.mark.parametrize("sealed", [b"x", None, "é", "a\nb"])
def test_a_codec_that_seals_to_something_else(sealed: Any) -> None:
    """decision: told when the session begins, to whoever wrote the codec."""

    class Sealing(OpenCodec):
        def seal(self, payload: bytes, *, purpose: bytes) -> str:
            return sealed  # type: ignore[no-any-return]

    with pytest.raises(TypeError, match="seal to a str of ASCII"):
        sessions(Sealing()).seal(SESSION_OF_ALICE, principal=ALICE)


@pytest.mark.parametrize("sealed", ["a b", "a" * (MAX_SESSION_ID_BYTES + 1)])
def test_a_codec_whose_ids_fit_into_no_header(sealed: str) -> None:
    """decision: told with the number, since proxies cut what is longer."""

    class Sealing(OpenCodec):
        def seal(self, payload: bytes, *, purpose: bytes) -> str:
            return sealed

    with pytest.raises(ValueError, match="fit into a header"):
        sessions(Sealing()).seal(SESSION_OF_ALICE, principal=ALICE)


def test_a_random_secret_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """decision: a server whose sessions end with it says so, once."""
    keys = KeyRing.process_local()
    for _ in range(2):
        sessions(keys=keys).seal(SESSION_OF_ALICE, principal=ALICE)
    (record,) = caplog.records
    assert "No keys= configured" in record.getMessage()
