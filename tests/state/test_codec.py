"""AES-GCM tokens: what opens, what does not, and that there is one spelling of each."""

import base64

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fastapi_mcp_mrtr.errors import INVALID_PARAMS, INVALID_REQUEST_STATE, RequestStateError
from fastapi_mcp_mrtr.state.codec import (
    NOT_BASE64URL,
    OTHER_FORMAT,
    REASONS,
    REQUEST_STATE,
    SEAL_BROKEN,
    UNKNOWN_KID,
    AESGCMCodec,
    RequestStateCodec,
)
from fastapi_mcp_mrtr.state.keys import KeyRing, Secret

from .samples import FIXED_CODEC, NEW, OLD, RING

CODEC = AESGCMCodec(RING)
TOKEN = FIXED_CODEC.seal(b'{"seat": "4A"}', purpose=REQUEST_STATE)


def raw(token: str) -> bytes:
    return base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))


def spelled(data: bytes | bytearray) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def refusal(token: str, purpose: bytes = REQUEST_STATE, codec: RequestStateCodec = CODEC) -> str:
    with pytest.raises(RequestStateError) as refused:
        codec.unseal(token, purpose=purpose)
    assert refused.value.code == INVALID_PARAMS
    assert str(refused.value) == refused.value.message == INVALID_REQUEST_STATE
    assert refused.value.reason in REASONS
    return refused.value.reason


@given(st.binary(max_size=2000), st.sampled_from([b"request-state", b"cursor", b""]))
def test_round_trip(payload: bytes, purpose: bytes) -> None:
    """decision: what was sealed for a purpose opens for it, whatever the bytes."""
    token = CODEC.seal(payload, purpose=purpose)
    assert CODEC.unseal(token, purpose=purpose) == payload
    assert token.isascii()
    assert not set(token) & set("+/=")


def test_layout() -> None:
    """decision: version, length of kid, kid, 12 bytes of nonce, ciphertext, 16 bytes of tag."""
    codec = AESGCMCodec(RING, entropy=lambda size: b"n" * size)
    data = raw(codec.seal(b"payload", purpose=b"cursor"))
    assert data.startswith(b"\x01\x072026-07" + b"n" * 12)
    assert len(data) == 9 + 12 + len(b"payload") + 16


def test_sealing_twice_gives_two_tokens() -> None:
    """spec: MAY encrypt (mrtr §Server Requirements); equal states must not look equal."""
    assert CODEC.seal(b"x", purpose=b"cursor") != CODEC.seal(b"x", purpose=b"cursor")


@pytest.mark.parametrize("place", range(len(TOKEN)))
def test_every_flipped_character_rejects(place: int) -> None:
    """user report: a state with any base64 character changed must be refused."""
    for bit in range(8):
        flipped = chr(ord(TOKEN[place]) ^ 1 << bit)
        refusal(TOKEN[:place] + flipped + TOKEN[place + 1 :])


def test_every_flipped_bit_rejects() -> None:
    """spec: MUST reject a state that fails integrity (mrtr §Server Requirements 4)."""
    data = raw(TOKEN)
    reasons = set()
    for place in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[place] ^= 1 << bit
            reasons.add(refusal(spelled(flipped)))
    assert reasons == {OTHER_FORMAT, UNKNOWN_KID, SEAL_BROKEN}


@given(st.binary(max_size=300), st.data())
def test_any_flipped_bit_of_any_token_rejects(payload: bytes, data: st.DataObject) -> None:
    """spec: MUST reject a state that fails integrity (mrtr §Server Requirements 4)."""
    flipped = bytearray(raw(CODEC.seal(payload, purpose=REQUEST_STATE)))
    place = data.draw(st.integers(0, len(flipped) - 1))
    flipped[place] ^= 1 << data.draw(st.integers(0, 7))
    refusal(spelled(flipped))


def test_every_truncation_rejects() -> None:
    """decision: a token is whole or nothing, at either end."""
    data = raw(TOKEN)
    for length in range(len(data)):
        refusal(spelled(data[:length]))
        refusal(spelled(data[length + 1 :]))
    for length in range(len(TOKEN)):
        refusal(TOKEN[:length])


@given(st.binary(min_size=1, max_size=40))
def test_every_extension_rejects(more: bytes) -> None:
    """decision: nothing may be appended or put in front."""
    refusal(spelled(raw(TOKEN) + more))
    refusal(spelled(more + raw(TOKEN)))


@given(st.text())
@example("")
@example("A")
@example("\ud800")
@example("A" * 100)
@example("AQ")
@example("Af8")
def test_garbage_rejects(token: str) -> None:
    """decision: whatever text arrives, the answer is the frozen refusal and never a crash."""
    refusal(token)


@given(st.binary(max_size=100))
def test_garbage_bytes_reject(data: bytes) -> None:
    """decision: whatever bytes arrive under a plausible header, the answer is the refusal."""
    refusal(spelled(data))
    refusal(spelled(raw(TOKEN)[:9] + data))


def test_there_is_one_spelling() -> None:
    """user report: padding, other alphabets and sloppy trailing bits opened like the original."""
    data = b"\xfb\xff"
    for _ in range(3):  # every length of the last group
        data += b"\xfe"
        token = CODEC.seal(data, purpose=REQUEST_STATE)
        variants = {
            token + "=",
            token + "==",
            token + "===",
            token + "\n",
            " " + token,
            token + "\0",
            token + "!",
            "=" + token,
            token[:8] + "\n" + token[8:],
            token[:8] + "=" + token[8:],
            token[:8] + "." + token[8:],
            token[:8] + "é" + token[8:],
            token.replace("A", "\uff21", 1),
            token + "A",
            token + "AAAA",
            *(token[:-1] + last for last in "ABCDEFGHQgwx0-_" if last != token[-1]),
        }
        for variant in variants - {token}:
            refusal(variant)
    for plain, url in (("+", "-"), ("/", "_")):
        token = next(
            sealed
            for sealed in (CODEC.seal(b"x" * 60, purpose=REQUEST_STATE) for _ in range(1000))
            if url in sealed
        )
        assert refusal(token.replace(url, plain)) == NOT_BASE64URL


def test_sloppy_trailing_bits_are_named() -> None:
    """decision: bits that no encoder sets make another spelling, hence a refusal before AES."""
    token = next(
        sealed
        for sealed in (CODEC.seal(b"x" * n, purpose=b"") for n in range(3))
        if len(sealed) % 4
    )
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    sloppy = token[:-1] + alphabet[alphabet.index(token[-1]) + 1]
    assert raw(sloppy) == raw(token)
    assert refusal(sloppy, purpose=b"") == NOT_BASE64URL


def test_purposes_are_separate() -> None:
    """decision: a cursor is no requestState and the reverse."""
    assert refusal(TOKEN, purpose=b"cursor") == SEAL_BROKEN


def test_header_is_authenticated() -> None:
    """decision: a token cannot be moved to another kid, even if both have the same length."""
    codec = AESGCMCodec(KeyRing(primary=NEW, accepted=[OLD]))
    moved = raw(TOKEN).replace(OLD.kid.encode(), NEW.kid.encode())
    assert refusal(spelled(moved), codec=codec) == SEAL_BROKEN


def test_kid_and_purpose_do_not_run_together() -> None:
    """decision: the kid `ab` with purpose `c` and the kid `a` with purpose `bc` are apart."""
    secrets = [Secret("a", bytes(32)), Secret("ab", bytes(31) + b"1")]
    one, two = (AESGCMCodec(KeyRing(primary=secret)) for secret in secrets)
    token = one.seal(b"x", purpose=b"bc")
    assert refusal(token, purpose=b"c", codec=two) == UNKNOWN_KID


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", OTHER_FORMAT),
        (b"\x01", OTHER_FORMAT),
        (b"\x02" + raw(TOKEN)[1:], OTHER_FORMAT),
        (b"\x01\xff" + raw(TOKEN)[2:], OTHER_FORMAT),
        (raw(TOKEN)[: 9 + 12 + 15], OTHER_FORMAT),
        (b"\x01\x00" + bytes(40), UNKNOWN_KID),
        (b"\x01\x072026-09" + raw(TOKEN)[9:], UNKNOWN_KID),
        (raw(TOKEN)[: 9 + 12 + 16], SEAL_BROKEN),
    ],
)
def test_reasons(data: bytes, reason: str) -> None:
    """user report: the log must tell a changed state from one of another secret or version."""
    assert refusal(spelled(data)) == reason


def test_another_process_is_named_by_its_kid() -> None:
    """user report: workers without a shared secret; the log says unknown kid, not forgery."""
    one, other = (AESGCMCodec(KeyRing.process_local()) for _ in range(2))
    token = one.seal(b"x", purpose=REQUEST_STATE)
    assert refusal(token, codec=other) == UNKNOWN_KID


PHASES = [
    KeyRing(primary=OLD),
    KeyRing(primary=OLD, accepted=[NEW]),
    KeyRing(primary=NEW, accepted=[OLD]),
    KeyRing(primary=NEW),
]


@pytest.mark.parametrize("phase", [0, 1, 2])
def test_rotation_breaks_no_flow_while_workers_differ(phase: int) -> None:
    """decision: during each deployment old and new workers open each other's states."""
    workers = [AESGCMCodec(ring) for ring in PHASES[phase : phase + 2]]
    made_by = [worker.seal(b"x", purpose=REQUEST_STATE) for worker in workers]
    for token in made_by:
        for worker in workers:
            assert worker.unseal(token, purpose=REQUEST_STATE) == b"x"


def test_rotation_needs_its_first_phase() -> None:
    """decision: switching at once would show old workers a kid they do not know."""
    token = AESGCMCodec(PHASES[2]).seal(b"x", purpose=REQUEST_STATE)
    assert refusal(token, codec=AESGCMCodec(PHASES[0])) == UNKNOWN_KID


def test_rotation_ends_the_old_secret() -> None:
    """decision: after the third phase nothing sealed with the old secret opens any more."""
    token = AESGCMCodec(PHASES[1]).seal(b"x", purpose=REQUEST_STATE)
    assert refusal(token, codec=AESGCMCodec(PHASES[3])) == UNKNOWN_KID
