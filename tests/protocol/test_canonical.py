"""The canonical form: injective over JSON, blind to the order of members, never a crash."""

import json
import math
import random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fastapi_mcp_mrtr.protocol import canonical as module
from fastapi_mcp_mrtr.protocol.canonical import canonical, digest

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
# Surrogates too, which st.text() leaves out.
texts = st.text(alphabet=st.characters(), max_size=6) | st.just("\ud800") | st.just("\udc00x")
values = st.recursive(
    scalars | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


def typed(value: Any) -> str:
    """Spell a value by Python's own repr, with its members in order: equal only if identical."""
    match value:
        case dict():
            return repr(sorted((key, typed(member)) for key, member in value.items()))
        case list():
            return f"list{[typed(item) for item in value]}"
    return f"{type(value).__name__}:{value!r}"


def nested(depth: int) -> Any:
    value: Any = {"b": [1, None], "a": "x"}
    for level in range(depth):
        value = [value, level] if level % 2 else {"k": value, "j": level}
    return value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None, "é"]}, '{"a":[true,null,"\\u00e9"],"b":1}'),
        ({}, "{}"),
        ([], "[]"),
        ("", '""'),
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (10**30, "1" + "0" * 30),
    ],
)
def test_form_is_pinned(value: Any, text: str) -> None:
    """decision: states in flight compare digests of it, so it does not change."""
    assert canonical(value) == text.encode()


def test_digest_is_pinned() -> None:
    """decision: BLAKE2b of 24 bytes in base64url."""
    assert digest({"flight": "LH1", "row": 4}) == "Ytv0UeBD9yE3eYtddea7heArZSm0Mxx3"


def test_numbers_strings_and_booleans_are_apart() -> None:
    """decision: 1, 1.0, "1", true and [1] are five values."""
    alike = [1, 1.0, "1", "1.0", True, "true", [1], ["1"], {"1": 1}, None, "null", 0, False, -0.0]
    assert len({digest(value) for value in alike}) == len(alike)


def test_neighbours_are_apart() -> None:
    """decision: no two places where a boundary could shift spell the same."""
    alike: list[Any] = [
        {"a": {"b": 1}},
        {"a": {}, "b": 1},
        {"a": "b", "b": 1},
        {"a,b": 1},
        {'a":1,"b': 1},
        {"a": [1, 2]},
        {"a": [[1], 2]},
        {"a": [12]},
        {"a": "1,2"},
        {"": 1},
        {"a": None},
        {},
        [],
        [{}],
        [[]],
    ]
    assert len({digest(value) for value in alike}) == len(alike)


@given(values, values)
@example(1, 1.0)
@example([True], [1])
def test_injective(one: Any, other: Any) -> None:
    """decision: equal digests mean equal values of equal types."""
    assert (digest(one) == digest(other)) == (typed(one) == typed(other))


@given(st.dictionaries(texts, values, max_size=6), st.randoms())
def test_order_of_members_is_irrelevant(value: dict[str, Any], chance: random.Random) -> None:
    """decision: clients may send members in any order."""
    shuffled = list(value.items())
    chance.shuffle(shuffled)
    assert digest(dict(shuffled)) == digest(value)


@given(values)
def test_what_a_client_sends_twice_is_the_same(value: Any) -> None:
    """spec: the retry repeats the original parameters (mrtr §Client Requirements)."""
    assert digest(json.loads(json.dumps(value))) == digest(value)


@given(values)
def test_digest_is_short_ascii(value: Any) -> None:
    """decision: 192 bits in 32 characters, safe in any header or URL."""
    assert len(digest(value)) == 32
    assert digest(value).replace("-", "").replace("_", "").isalnum()
    assert canonical(value).isascii()


@pytest.mark.parametrize("value", ["\ud800", {"\udfff": "\ud800"}, math.inf, -math.inf, math.nan])
def test_odd_values_have_a_form(value: Any) -> None:
    """decision: lone surrogates, NaN and the infinities are spelled, each its own way."""
    assert digest(value) == digest(value)
    assert digest(value) not in {digest(repr(value)), digest(None), digest("")}


@pytest.mark.parametrize("depth", [500, 1000, 10_000])
def test_depth_is_no_limit(depth: int) -> None:
    """decision: a deeply nested argument is digested, not a RecursionError."""
    assert digest(nested(depth)) != digest(nested(depth + 2))


@given(values)
def test_deep_form_is_the_same_form(value: Any) -> None:
    """decision: how much stack there was left must not decide whether a state opens."""
    assert module._encode_deep(value).encode() == canonical(value)


@pytest.mark.parametrize("value", [b"x", {1, 2}, object(), {"a": object()}])
def test_other_objects_are_refused(value: Any) -> None:
    """decision: no falling back on repr, whose text is different in each process."""
    with pytest.raises(TypeError):
        canonical(value)
