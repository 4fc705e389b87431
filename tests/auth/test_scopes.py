"""Scopes: which are missing, which are implied, and which nobody may ask for."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastapi_mcp_mrtr.auth.scopes import (
    checked_implications,
    checked_scopes,
    implied_scopes,
    listed_scopes,
    missing_scopes,
    union_scopes,
)

IMPLY = {"admin": ["write"], "write": ["read", "list"]}


def test_what_was_not_granted_is_missing_in_the_order_asked() -> None:
    """rule 12: a token must have the scopes of the operation."""
    assert missing_scopes(["c", "a", "b"], {"a"}, {}) == ("c", "b")
    assert missing_scopes(["a"], {"a", "b"}, {}) == ()
    assert missing_scopes([], set(), {}) == ()


@pytest.mark.parametrize("granted", ["read", "write", "admin"])
def test_a_broader_scope_satisfies_a_narrower_requirement(granted: str) -> None:
    """rule 23, spec: MUST (index §Step-Up Authorization Flow): hierarchies, over any steps."""
    assert missing_scopes(["read"], {granted}, IMPLY) == ()


def test_a_narrower_scope_does_not_satisfy_a_broader_requirement() -> None:
    """rule 23: implications have a direction."""
    assert missing_scopes(["admin", "write", "read"], {"read"}, IMPLY) == ("admin", "write")


@pytest.mark.parametrize(
    ("said", "scopes"),
    [("read  write", ["read", "write"]), ("", []), (None, []), (["read"], ["read"]), ((), [])],
)
def test_an_app_says_scopes_in_several_ways(said: Any, scopes: list[str]) -> None:
    """decision: a string is what tokens have; letter by letter, `view` would grant `w`."""
    assert list(listed_scopes(said)) == scopes


def test_implications_that_go_round_end() -> None:
    """rule 23: transitive; a cycle makes its members equal."""
    assert implied_scopes({"a"}, {"a": ["b"], "b": ["c"], "c": ["a"]}) == {"a", "b", "c"}


@settings(deadline=None)
@given(
    st.dictionaries(st.sampled_from("abcdef"), st.lists(st.sampled_from("abcdef"))),
    st.sets(st.sampled_from("abcdef")),
    st.lists(st.sampled_from("abcdef")),
)
def test_implying_is_reaching(
    imply: dict[str, list[str]], granted: set[str], required: list[str]
) -> None:
    """rule 23: nothing is implied but what some chain of implications leads to."""
    have = set(granted)
    for _ in imply:
        have |= {narrower for scope in have for narrower in imply.get(scope, [])}
    assert implied_scopes(granted, imply) == have
    assert set(missing_scopes(required, granted, imply)) == set(required) - have


def test_a_union_keeps_the_order_and_names_each_once() -> None:
    """rule 22: challenges are built consistently."""
    assert union_scopes(["a", "b"], (), ["b", "c", "a"]) == ("a", "b", "c")


@pytest.mark.parametrize(
    ("scopes", "why"),
    [
        (["*"], "wildcard"),
        (["notes:*"], "wildcard"),
        (["notes:read", "offline_access"], "no resource requires"),
        (["notes read"], "no scope"),
        ([""], "no scope"),
        (['a"b'], "no scope"),
        (["a\\b"], "no scope"),
        (["ä"], "no scope"),
        ([5], "no scope"),
    ],
)
def test_what_no_challenge_may_name_is_refused(scopes: list[Any], why: str) -> None:
    """rules 8, 9: offline_access and wildcards; RFC 6749 §3.3 for the rest."""
    with pytest.raises(ValueError, match=why) as refused:
        checked_scopes("scopes", scopes)
    assert "scopes has" in str(refused.value)


def test_a_string_where_a_list_belongs_is_refused() -> None:
    """decision: else "notes" would be the five scopes n, o, t, e and s."""
    with pytest.raises(TypeError, match="takes a list of scopes, not the string 'notes'"):
        checked_scopes("scopes", "notes")
    with pytest.raises(TypeError, match=r"imply\['a'\] takes a list"):
        checked_implications({"a": "b"})


def test_a_scope_that_is_named_twice_counts_once() -> None:
    """decision"""
    assert checked_scopes("scopes", ["a", "b", "a"]) == ("a", "b")


def test_implications_are_checked_but_a_broader_scope_may_be_a_wildcard() -> None:
    """rule 23: what an issuer grants is its business, what we ask for is ours."""
    assert checked_implications(None) == {}
    assert checked_implications({"notes:*": ["notes:read"]}) == {"notes:*": ("notes:read",)}
    with pytest.raises(ValueError, match="wildcard"):
        checked_implications({"admin": ["notes:*"]})
    with pytest.raises(ValueError, match="imply has 'a b', which is no scope"):
        checked_implications({"a b": ["c"]})
