"""Secrets and rings: what they refuse, hide and derive."""

from typing import Any

import pytest

from fastapi_mcp_mrtr.state.keys import KeyRing, Secret

from .samples import NEW, OLD


@pytest.mark.parametrize("kid", ["a", "2026-08", "A_b.c-9", "x" * 32])
def test_kid_alphabet(kid: str) -> None:
    """decision: a kid is readable in every token, so it is short and plain."""
    assert Secret(kid, bytes(32)).kid == kid


@pytest.mark.parametrize("kid", ["", "x" * 33, "a b", "ä", "a\n", "a\0", "a/b", "\ud800", "٣"])
def test_other_kids_are_refused(kid: str) -> None:
    """decision: ASCII letters, digits, _ . - and nothing else, not even a final newline."""
    with pytest.raises(ValueError, match="kid"):
        Secret(kid, bytes(32))


@pytest.mark.parametrize("value", [b"", bytes(31), "x" * 31, "é" * 15])
def test_short_secrets_are_refused(value: bytes | str) -> None:
    """decision: at least 32 bytes; a string counts as its UTF-8 bytes."""
    with pytest.raises(ValueError, match="at least 32") as refusal:
        Secret("a", value)
    assert not value or repr(value)[2:-1] not in str(refusal.value)


def test_string_secret_is_its_utf8_bytes() -> None:
    """decision: no guessing at hex or base64."""
    assert Secret("a", "é" * 16).value == "é".encode() * 16


@pytest.mark.parametrize("value", [None, 32, True, bytearray(32), ["x" * 32]])
def test_secrets_of_another_type_are_refused(value: Any) -> None:
    """decision: bytes(32) is 32 zeros, so a number must not pass for a secret."""
    with pytest.raises(TypeError, match="bytes or a string"):
        Secret("a", value)


def test_a_secret_that_is_not_set_says_where_to_look() -> None:
    """User report: `os.environ.get` gives None for a name that is not set."""
    with pytest.raises(TypeError, match=r"'k' must be .*\. Is the environment variable set\?"):
        Secret("k", None)  # type: ignore[arg-type]


def test_reprs_hide_values() -> None:
    """decision: a secret in a traceback or a log shows its kid and its length."""
    secret = Secret("a", "correct horse battery staple 1234")
    for text in (repr(secret), str(secret), f"{secret}", repr(KeyRing(primary=secret))):
        assert "'a'" in text
        assert "horse" not in text
    assert not hasattr(secret, "__dict__")


def test_generated_secrets_differ() -> None:
    """decision: generate() is for tests and single processes."""
    one, other = Secret.generate("a"), Secret.generate("a")
    assert one.value != other.value
    assert len(one.value) == 32


def test_kid_twice_is_refused() -> None:
    """decision: roles are by name, so a kid names one secret."""
    with pytest.raises(ValueError, match="share a kid"):
        KeyRing(primary=OLD, accepted=[Secret(OLD.kid, bytes(32))])


def test_value_twice_is_refused() -> None:
    """decision: a rotation to the same value is a rotation that did not happen."""
    with pytest.raises(ValueError, match="same value"):
        KeyRing(primary=OLD, accepted=[Secret("other", OLD.value)])


def test_primary_comes_first() -> None:
    """decision: kids lists the primary, then the accepted ones; the repr shows the roles."""
    ring = KeyRing(primary=NEW, accepted=[OLD])
    assert ring.kids == (NEW.kid, OLD.kid)
    assert ring.primary_kid == NEW.kid
    assert repr(ring) == "KeyRing(primary='2026-08', accepted=['2026-07'])"
    assert not ring.is_process_local


def test_derivation_is_pinned() -> None:
    """decision: HKDF-SHA256 (RFC 5869), no salt; a change here would break every live flow."""
    ring = KeyRing(primary=OLD)
    assert ring.derive(OLD.kid, b"principal").hex() == (
        "b1918544b141b89dec41e71aa609dafb9cf2c4d7ab0eda8bdc663d2aa624e37a"
    )


def test_derived_keys_are_separate() -> None:
    """decision: one key per secret, kid and purpose; the same again for the same."""
    ring = KeyRing(primary=OLD, accepted=[NEW])
    renamed = KeyRing(primary=Secret("2026-07x", OLD.value))
    keys = [
        ring.derive(OLD.kid, b"a"),
        ring.derive(OLD.kid, b"b"),
        ring.derive(NEW.kid, b"a"),
        renamed.derive("2026-07x", b"a"),
        KeyRing(primary=Secret("2026-07", bytes(32))).derive("2026-07", b"a"),
    ]
    assert len(set(keys)) == len(keys)
    assert {len(key) for key in keys} == {32}
    assert ring.derive(OLD.kid, b"a") == keys[0] == KeyRing(primary=OLD).derive(OLD.kid, b"a")


@pytest.mark.parametrize("kid", ["", "2026-09", "\ud800"])
def test_unknown_kid_derives_nothing(kid: str) -> None:
    """decision: LookupError, whatever the kid looks like."""
    with pytest.raises(LookupError):
        KeyRing(primary=OLD).derive(kid, b"a")


def test_process_local_rings_share_nothing() -> None:
    """decision: without keys= every process has its own secret, and says so."""
    one, other = KeyRing.process_local(), KeyRing.process_local()
    assert one.is_process_local
    assert one.kids != other.kids
    assert one.derive(one.primary_kid, b"a") != other.derive(other.primary_kid, b"a")


def test_keys_setting() -> None:
    """decision: keys= takes a ring, one secret, or nothing."""
    ring = KeyRing(primary=OLD)
    assert KeyRing.of(ring) is ring
    assert KeyRing.of(NEW).kids == (NEW.kid,)
    assert KeyRing.of(None).is_process_local


@pytest.mark.parametrize("keys", ["x" * 32, bytes(32), [OLD], False])
def test_other_keys_settings_are_refused(keys: object) -> None:
    """decision: a bare string has no kid; the message names the types, not the value."""
    with pytest.raises(TypeError, match="KeyRing or a Secret") as refusal:
        KeyRing.of(keys)  # type: ignore[arg-type]
    assert "xxx" not in str(refusal.value)
