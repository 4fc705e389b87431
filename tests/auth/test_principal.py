"""From what a dependency returned to who it is: each rule, and that no two people share a key."""

import enum
import json
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType, SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fastapi_mcp_mrtr.auth.principal import principal_key_bytes

ALICE = {"iss": "https://idp.example", "sub": "alice", "client_id": "cli"}
ID = UUID("12345678-1234-5678-1234-567812345678")


class Role(str, enum.Enum):  # noqa: UP042 - the old spelling is what users have
    ADMIN = "admin"


class Rank(enum.IntEnum):
    FIRST = 1


class Colour(enum.Enum):
    RED = "red"


def refusal(value: Any, **options: Any) -> str:
    """Return the message, having checked that it names the way out."""
    with pytest.raises(TypeError, match="principal_key=") as refused:
        principal_key_bytes(value, **options)
    return str(refused.value)


# -------------------------------------------------------------------------------- plain values


@pytest.mark.parametrize(
    ("value", "key"),
    [
        (None, '["anonymous"]'),
        ("alice", '["s","alice"]'),
        ("Zoë", '["s","Zo\\u00eb"]'),
        ("\ud800", '["s","\\ud800"]'),
        (1, '["i","1"]'),
        (0, '["i","0"]'),
        (-255, '["i","-ff"]'),
        (b"\x00\xff", '["b","00ff"]'),
        (ID, '["u","12345678123456781234567812345678"]'),
        (("user", 1, True), '["t",["s","user"],["i","1"],["c",true]]'),
        (("a", False), '["t",["s","a"],["c",false]]'),
        (frozenset({"b", "a"}), '["f",["s","a"],["s","b"]]'),
        (ALICE, '["claims",["iss",["s","https://idp.example"]],["client",["s","cli"]],'
                '["sub",["s","alice"]]]'),
    ],
)  # fmt: skip
def test_keys_are_pinned(value: Any, key: str) -> None:
    """decision: states in flight hold a hash of it, so the spelling does not change."""
    assert principal_key_bytes(value) == key.encode()
    assert json.loads(key)


def test_types_are_apart() -> None:
    """decision: "1", 1, b"1" and so on are different principals, alone and in tuples."""
    values: list[Any] = ["1", 1, b"1", UUID(int=1), ("1",), (1,), (True,), (False,), (0,), None]
    values += [frozenset({"1"}), frozenset({1}), (("1",),), ("1", "1"), ("1,1",), {"sub": "1"}]
    values += ["31", "c", "true", "anonymous", ("anonymous",), ("s", "1"), 10, 16, "a"]
    values += [{"sub": 1}, {"client_id": "1"}, (("sub", "1"),), ("claims", ("sub", "1"))]
    assert len({principal_key_bytes(value) for value in values}) == len(values)


leaves = st.text(min_size=1) | st.integers() | st.binary(min_size=1) | st.uuids()
principals = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner | st.booleans(), min_size=1, max_size=4).map(tuple)
        | st.frozensets(leaves, min_size=1, max_size=4)
    ),
    max_leaves=8,
)


def typed(value: Any) -> Any:
    """Make a value that Python's == tells apart by type too."""
    if isinstance(value, tuple):
        return ("tuple", *map(typed, value))
    if isinstance(value, frozenset):
        return frozenset({"frozenset", *map(typed, value)})
    return type(value), value


@given(principals, principals)
def test_injective(one: Any, other: Any) -> None:
    """decision: two principals have one key only if they are the same value of the same type."""
    same = principal_key_bytes(one) == principal_key_bytes(other)
    assert same == (typed(one) == typed(other))


@given(principals)
def test_keys_are_ascii_and_never_empty(value: Any) -> None:
    """decision: usable as a storage key, and never nobody."""
    key = principal_key_bytes(value)
    assert key
    assert key.isascii()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["a", 1], ("a", 1)),
        ({"a", "b"}, frozenset({"b", "a"})),
        (Role.ADMIN, "admin"),
        (Rank.FIRST, 1),
        (dict(ALICE), OrderedDict(reversed(ALICE.items()))),
        (dict(ALICE), MappingProxyType(ALICE)),
    ],
)
def test_what_is_the_same(one: Any, other: Any) -> None:
    """decision: lists are tuples, sets frozensets, str and int enums their values, by design."""
    assert principal_key_bytes(one) == principal_key_bytes(other)


def test_long_numbers() -> None:
    """decision: Python refuses to print them in decimal; that must not be a crash."""
    assert principal_key_bytes(10**5000) != principal_key_bytes(10**5000 + 1)


def test_keys_are_the_same_in_every_process() -> None:
    """decision: no hash(), whose salt differs between workers."""
    code = (
        "from fastapi_mcp_mrtr.auth.principal import principal_key_bytes as key;"
        "print(key(frozenset(map(str, range(50)))).decode())"
    )
    other = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONHASHSEED": "1", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        check=True,
    )
    assert other.stdout.strip() == principal_key_bytes(frozenset(map(str, range(50))))


# ----------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    "value", ["", b"", (), [], {}, frozenset(), set(), ("user", ""), ("a", ()), ("a", ("b", b""))]
)
def test_empty_values_are_refused(value: Any) -> None:
    """decision: a broken dependency must not turn all its callers into one principal."""
    refusal(value)


@pytest.mark.parametrize("value", [True, False])
def test_bare_bools_are_refused(value: bool) -> None:
    """decision: a dependency that only says yes makes everybody the same user."""
    assert "not who" in refusal(value)


@pytest.mark.parametrize(
    "value",
    [
        1.0,
        float("nan"),
        ("a", 1.5),
        ("user", None),
        object(),
        Decimal(1),
        1j,
        Colour.RED,
        bytearray(b"x"),
        range(3),
        iter("a"),
        len,
        SimpleNamespace(sub="alice"),
        ("a", {"sub": "alice"}),
        frozenset({("a", None)}),
    ],
)
def test_other_values_are_refused(value: Any) -> None:
    """decision: no falling back on repr or hash; the message names principal_key=."""
    refusal(value)


def test_messages_show_types_and_no_values() -> None:
    """decision: the message is for the log, which is no place for identities."""
    for value in ("", ("alice", 1.5), {"sub": ["alice"]}, {"email": "alice"}, {"sub": 1.5}):
        message = refusal(value)
        assert "alice" not in message
        assert "1.5" not in message


def test_nesting_is_bounded() -> None:
    """decision: a list that contains itself is refused, not a RecursionError."""
    cyclic: list[Any] = ["a"]
    cyclic.append(cyclic)
    refusal(cyclic)


# ------------------------------------------------------------------------------------- claims


def test_refreshed_token_is_the_same_principal() -> None:
    """decision: nothing specific to one token enters, so a refresh in mid-flow is harmless."""
    first = {**ALICE, "jti": "1", "exp": 1, "iat": 1, "scope": "read", "nonce": "a", "aud": "x"}
    later = {**ALICE, "jti": "2", "exp": 2, "iat": 2, "scope": "read write", "sid": "s"}
    assert principal_key_bytes(first) == principal_key_bytes(later) == principal_key_bytes(ALICE)


def test_step_up_is_the_same_principal() -> None:
    """decision: more scopes or roles do not make another person."""
    stepped = {**ALICE, "scope": "admin", "acr": "2", "roles": ["admin"], "groups": []}
    assert principal_key_bytes(stepped) == principal_key_bytes(ALICE)


def test_delegation_and_proof_keys_stay_out() -> None:
    """decision: actors and DPoP keys may rotate; who wants them bound passes principal_key=."""
    delegated = {**ALICE, "act": {"sub": "agent"}, "cnf": {"jkt": "x"}}
    assert principal_key_bytes(delegated) == principal_key_bytes(ALICE)


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://other.example"},
        {"sub": "bob"},
        {"client_id": "re-registered"},
        {"tid": "t"},
        {"tenant": "t"},
        {"org_id": "t"},
    ],
)
def test_each_identity_claim_counts(changes: Mapping[str, str]) -> None:
    """user report: two users of one client shared a session; sub is unique per issuer only."""
    assert principal_key_bytes({**ALICE, **changes}) != principal_key_bytes(ALICE)


def test_tenant_claims_are_apart() -> None:
    """decision: the same value under another claim is another tenant."""
    keys = {principal_key_bytes({**ALICE, name: "t"}) for name in ("tid", "tenant", "org_id")}
    assert len(keys) == 3


def test_client_claims_in_order() -> None:
    """decision: client_id, else azp, else appid; issuers spell one thing in three ways."""
    user = {"iss": "i", "sub": "alice"}
    by_name = [principal_key_bytes({**user, name: "cli"}) for name in ("client_id", "azp", "appid")]
    assert len(set(by_name)) == 1
    all_three = {**user, "client_id": "cli", "azp": "x", "appid": "y"}
    assert principal_key_bytes(all_three) == by_name[0]
    assert principal_key_bytes({**user, "azp": "cli", "appid": "y"}) == by_name[0]
    assert principal_key_bytes(user) != by_name[0]


def test_client_credentials() -> None:
    """decision: without sub the client is the principal; with sub = client it is spelled out."""
    machine = principal_key_bytes({"iss": "i", "client_id": "job"})
    rfc9068 = principal_key_bytes({"iss": "i", "client_id": "job", "sub": "job"})
    assert machine == principal_key_bytes({"iss": "i", "azp": "job", "exp": 1})
    assert machine != rfc9068


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"iss": "i"},
        {"iss": "i", "tid": "t", "email": "alice@example.com"},
        {"id": 1, "username": "alice"},
        {"client_id": None, "azp": None},
    ],
)
def test_claims_that_name_nobody_are_refused(claims: Mapping[str, Any]) -> None:
    """decision: an issuer or a tenant alone would be one principal for all its users."""
    assert "names nobody" in refusal(claims)


@pytest.mark.parametrize("name", ["iss", "sub", "client_id", "tid", "tenant", "org_id"])
@pytest.mark.parametrize("value", ["", [], ["a"], {}, 1.5, True, b"x", object()])
def test_claims_of_another_type_are_refused(name: str, value: Any) -> None:
    """decision: a claim that is there must be a name."""
    refusal({**ALICE, name: value})


@pytest.mark.parametrize("name", ["iss", "client_id", "tid", "tenant", "org_id"])
def test_null_is_absent(name: str) -> None:
    """decision: models dump optional claims as null."""
    without = {claim: value for claim, value in ALICE.items() if claim != name}
    assert principal_key_bytes({**ALICE, name: None}) == principal_key_bytes(without)


def test_null_sub_is_refused() -> None:
    """decision: a user token that lost its sub must not pass for its client."""
    refusal({**ALICE, "sub": None})


@given(
    st.dictionaries(st.sampled_from(["iss", "tid", "tenant", "org_id"]), st.text(min_size=1)),
    st.dictionaries(st.sampled_from(["iss", "tid", "tenant", "org_id"]), st.text(min_size=1)),
    st.text(min_size=1),
    st.text(min_size=1),
)
def test_claims_are_injective(
    one: dict[str, str], other: dict[str, str], sub: str, other_sub: str
) -> None:
    """decision: no two different identities spell the same."""
    one, other = {**one, "sub": sub}, {**other, "sub": other_sub}
    assume(one != other)
    assert principal_key_bytes(one) != principal_key_bytes(other)


def test_claims_cannot_pose_as_an_attribute() -> None:
    """decision: a mapping is claims, whatever a token's issuer calls them."""

    class Attributes(dict[str, Any]):
        __getattr__ = dict.__getitem__

    token = Attributes(ALICE, mcp_principal_key="root")
    assert getattr(token, "mcp_principal_key") == "root"  # noqa: B009 - it has no such attribute
    assert principal_key_bytes(token) == principal_key_bytes(ALICE)


# ------------------------------------------------------------------------- the user's own word


def test_principal_key_decides() -> None:
    """decision: a function from what the dependency returns to what identifies it."""
    user = SimpleNamespace(id=7, name="alice")
    assert principal_key_bytes(user, lambda user: user.id) == principal_key_bytes(7)
    assert principal_key_bytes(ALICE, lambda claims: claims["sub"]) == principal_key_bytes("alice")
    assert principal_key_bytes("x", str.upper) == principal_key_bytes("X")


def test_principal_key_may_pick_the_claims() -> None:
    """decision: what it returns is read by the same rules, mappings included."""
    user = SimpleNamespace(claims=ALICE)
    assert principal_key_bytes(user, lambda user: user.claims) == principal_key_bytes(ALICE)


def test_principal_key_wins_over_the_attribute() -> None:
    """decision: the router's setting is the later word."""
    user = SimpleNamespace(id=7, mcp_principal_key="x")
    assert principal_key_bytes(user, lambda user: user.id) == principal_key_bytes(7)


def test_anonymous_is_not_asked_for_a_key() -> None:
    """decision: None is anonymous before principal_key= sees it, which need not expect None."""
    assert principal_key_bytes(None, lambda user: user.id) == principal_key_bytes(None)


@pytest.mark.parametrize("value", [None, "", (), True, 1.5, {}, ("user", None)])
def test_principal_key_must_name_somebody(value: Any) -> None:
    """decision: a key function that finds nothing must not make its users anonymous or alike."""
    refusal(SimpleNamespace(), principal_key=lambda user: value)


def test_principal_key_that_raises() -> None:
    """decision: fail closed; what went wrong in it is its author's to see."""
    with pytest.raises(AttributeError):
        principal_key_bytes(SimpleNamespace(), lambda user: user.id)


@pytest.mark.parametrize("own", ["alice", 7, ID, ("user", 7), ALICE])
def test_own_attribute_or_method(own: Any) -> None:
    """decision: a user class may carry the rule itself, as attribute, property or method."""

    class User:
        @property
        def mcp_principal_key(self) -> Any:
            return own

    for user in (
        User(),
        SimpleNamespace(mcp_principal_key=own),
        SimpleNamespace(mcp_principal_key=lambda: own),
    ):
        assert principal_key_bytes(user) == principal_key_bytes(own)


@pytest.mark.parametrize("own", [None, "", False, object()])
def test_own_attribute_must_name_somebody(own: Any) -> None:
    """decision: as with principal_key=."""
    refusal(SimpleNamespace(mcp_principal_key=own))


def test_a_mixture_of_users_and_keys_is_told_apart_by_tuples() -> None:
    """decision: user "bob" and API key "bob" are two principals if the dependency says which."""
    assert principal_key_bytes(("user", "bob")) != principal_key_bytes(("key", "bob"))
