"""What a requestState is bound to: each check alone, and every kind of garbage."""

import dataclasses
import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic_core import to_json

from fastapi_mcp_mrtr.auth.principal import principal_key_bytes
from fastapi_mcp_mrtr.errors import (
    INVALID_PARAMS,
    INVALID_REQUEST_STATE,
    HandlerError,
    RequestStateError,
    RequestStateTooLarge,
)
from fastapi_mcp_mrtr.rounds.journal import Journal, StepResult
from fastapi_mcp_mrtr.state.codec import SEAL_BROKEN, UNKNOWN_KID, AESGCMCodec
from fastapi_mcp_mrtr.state.keys import KeyRing, Secret
from fastapi_mcp_mrtr.state.security import FlowState, RequestBinding, StateSecurity

from .samples import (
    BINDING,
    FIXED_CODEC,
    FLOW,
    JOURNAL,
    LIFETIME,
    LIMIT,
    NEW,
    NOW,
    OLD,
    RING,
    TTL,
    OpenCodec,
    seal,
    security,
)

STATES = security()
TOKEN = seal(security(FIXED_CODEC))
CLAIMS = [
    "format",
    "audience",
    "issued",
    "expires",
    "started",
    "ends",
    "flow_id",
    "round",
    "asked",
    "kid",
    "principal",
    "method",
    "target",
    "arguments",
    "version",
    "journal",
]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=12,
)


def refusal(
    token: object,
    binding: RequestBinding = BINDING,
    *,
    by: StateSecurity = STATES,
    now: float = NOW + 1,
) -> str:
    """Return the logged reason, having checked what the client reads and that nothing leaks."""
    with pytest.raises(RequestStateError) as refused:
        by.unseal(token, binding, now=now)
    error = refused.value
    assert (error.code, error.message, error.data) == (INVALID_PARAMS, INVALID_REQUEST_STATE, None)
    assert error.args == (INVALID_REQUEST_STATE,)
    assert error.__suppress_context__ or error.__context__ is None
    return error.reason


def payload() -> list[Any]:
    """Return the claims of a good state."""
    codec = OpenCodec()
    seal(security(codec))
    claims: list[Any] = json.loads(codec.payloads[0])
    return claims


def opened(data: bytes) -> FlowState:
    return security(OpenCodec(opens_to=data)).unseal("0", BINDING, now=NOW + 1)


def refused_payload(data: bytes) -> str:
    return refusal("0", by=security(OpenCodec(opens_to=data)))


def refused_claim(name: str, value: Any) -> str:
    claims = payload()
    claims[CLAIMS.index(name)] = value
    return refused_payload(json.dumps(claims).encode())


# ------------------------------------------------------------------------------ the way round


def test_round_trip() -> None:
    """spec: MUST get back what it sent (mrtr §Server Requirements): every entry of the flow."""
    assert STATES.unseal(TOKEN, BINDING, now=NOW + 1) == FLOW


@given(
    flow_id=st.text(min_size=1),
    rounds=st.integers(1, 1000),
    started=st.floats(0, NOW),
    values=st.dictionaries(st.text(), json_values, max_size=4),
)
def test_any_flow_round_trips(
    flow_id: str, rounds: int, started: float, values: dict[str, Any]
) -> None:
    """decision: floats to the last bit, infinities, lone surrogates: the journal comes back."""
    journal = Journal(steps={key: StepResult("c", "d", value) for key, value in values.items()})
    flow = FlowState(flow_id, rounds, started, journal, asked=rounds // 2)
    token = seal(STATES, flow, flow_lifetime=NOW * 2)
    back = STATES.unseal(token, BINDING, now=NOW)
    # repr, because NaN equals nothing; what is told on the way back only is left out.
    assert repr(dataclasses.replace(back, kid=None, expires=0.0)) == repr(flow)
    assert (back.kid, back.expires) == (RING.primary_kid, NOW + TTL)


def test_lone_surrogates_round_trip() -> None:
    """decision: a file name a step found may hold one; it must not cost the flow."""
    journal = Journal(steps={"\udc80": StepResult("c", "d", {"name": "\ud800"})})
    flow = dataclasses.replace(FLOW, journal=journal)
    assert STATES.unseal(seal(STATES, flow), BINDING, now=NOW) == flow


@pytest.mark.parametrize("depth", [190, 230, 250, 300, 500])
def test_deep_values_round_trip(depth: int) -> None:
    """decision: whatever nesting a body may have had, a state can carry."""
    value: Any = 1
    for _ in range(depth):
        value = [value]
    flow = dataclasses.replace(FLOW, journal=Journal(steps={"s": StepResult("c", "d", value)}))
    assert STATES.unseal(seal(STATES, flow), BINDING, now=NOW) == flow


def test_bottomless_value_is_the_handlers_error() -> None:
    """decision: what no JSON writer takes is named as the author's mistake, not a crash."""
    value: Any = 1
    for _ in range(100_000):
        value = [value]
    flow = dataclasses.replace(FLOW, journal=Journal(steps={"s": StepResult("c", "d", value)}))
    with pytest.raises(HandlerError, match="RecursionError"):
        seal(STATES, flow)


def test_unserializable_value_is_the_handlers_error() -> None:
    """decision: the error shows the class of the failure and not the value."""
    secret = type("Hidden", (), {"__repr__": lambda self: "hunter2"})()
    flow = dataclasses.replace(FLOW, journal=Journal(steps={"s": StepResult("c", "d", secret)}))
    with pytest.raises(HandlerError) as failure:
        seal(STATES, flow)
    assert "hunter2" not in f"{failure.value} {failure.value.__cause__}"


def test_principal_is_not_in_the_payload() -> None:
    """decision: a keyed hash; even who opens the token does not read who the user is."""
    codec = OpenCodec()
    seal(security(codec))
    assert b"alice" not in codec.payloads[0]
    assert b"idp.example" not in codec.payloads[0]


def test_principal_hash_is_keyed() -> None:
    """decision: the same user has another hash under another secret: nobody can guess along."""
    position = CLAIMS.index("principal")
    hashes = set()
    for ring in (RING, KeyRing(primary=NEW)):
        codec = OpenCodec()
        seal(security(codec, ring))
        hashes.add(json.loads(codec.payloads[0])[position])
    assert len(hashes) == 2


def test_a_binding_without_a_principal_is_refused() -> None:
    """decision: empty bytes would be a principal that everybody shares."""
    nobody = dataclasses.replace(BINDING, principal=b"")
    with pytest.raises(ValueError, match="anonymous"):
        seal(STATES, binding=nobody)
    with pytest.raises(ValueError, match="anonymous"):
        STATES.unseal(TOKEN, nobody, now=NOW)


# ------------------------------------------------------------------------------- the bindings


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"method": "prompts/get"}, "other method"),
        ({"target": "cancel_seat"}, "other target"),
        ({"arguments_digest": "x"}, "other arguments"),
        ({"principal": principal_key_bytes("bob")}, "other principal"),
        ({"principal": principal_key_bytes(None)}, "other principal"),
        ({"version": "v2"}, "other handler version"),
        ({"version": None}, "other handler version"),
    ],
)
def test_each_binding_is_checked(changes: dict[str, Any], reason: str) -> None:
    """spec: SHOULD bind to principal, method and parameters (mrtr §Server Requirements 5)."""
    assert refusal(TOKEN, dataclasses.replace(BINDING, **changes)) == reason


@given(
    field=st.sampled_from(["method", "target", "arguments_digest", "version", "principal"]),
    data=st.data(),
)
def test_any_change_of_any_binding_rejects(field: str, data: st.DataObject) -> None:
    """user report: a state was good for other users, tools and arguments."""
    values = st.binary(min_size=1) if field == "principal" else st.text()
    value = data.draw(values | st.none() if field == "version" else values)
    assume(value != getattr(BINDING, field))
    changes: dict[str, Any] = {field: value}
    refusal(TOKEN, dataclasses.replace(BINDING, **changes))


def test_a_state_without_version_is_not_one_with_any() -> None:
    """decision: adding a version= tag ends the flows begun before it."""
    token = seal(STATES, binding=dataclasses.replace(BINDING, version=None))
    assert refusal(token) == "other handler version"


def test_anonymous_state_is_not_good_for_a_user() -> None:
    """decision: who logs in between two rounds starts over, or could redeem what others began."""
    anonymous = dataclasses.replace(BINDING, principal=principal_key_bytes(None))
    token = seal(STATES, binding=anonymous)
    assert STATES.unseal(token, anonymous, now=NOW) == FLOW
    assert refusal(token) == "other principal"


def test_other_audience_rejects() -> None:
    """decision: servers that share a secret do not share states."""
    assert refusal(TOKEN, by=security(audience="hotel-desk")) == "other audience"


def test_other_secret_rejects() -> None:
    """spec: MUST reject what it cannot verify (mrtr §Server Requirements 4)."""
    assert refusal(TOKEN, by=security(keys=KeyRing(primary=NEW))) == UNKNOWN_KID
    same_kid = KeyRing(primary=Secret(OLD.kid, bytes(32)))
    assert refusal(TOKEN, by=security(keys=same_kid)) == SEAL_BROKEN


def test_unknown_principal_kid_rejects() -> None:
    """decision: a codec with keys of its own still needs the ring the principal was hashed with."""
    codec = OpenCodec()
    token = seal(security(codec))
    assert refusal(token, by=security(codec, KeyRing(primary=NEW))) == "other principal"


@pytest.mark.parametrize("phase", [0, 1, 2])
def test_rotation_breaks_no_flow(phase: int) -> None:
    """decision: in each of the three phases old and new workers understand each other."""
    rings = [
        KeyRing(primary=OLD),
        KeyRing(primary=OLD, accepted=[NEW]),
        KeyRing(primary=NEW, accepted=[OLD]),
        KeyRing(primary=NEW),
    ]
    workers = [security(keys=ring) for ring in rings[phase : phase + 2]]
    for token in [seal(worker) for worker in workers]:
        for worker in workers:
            assert worker.unseal(token, BINDING, now=NOW) == FLOW


# --------------------------------------------------------------------------------- the clock


def test_expiry() -> None:
    """spec: SHOULD be short-lived (mrtr §Server Requirements 5); valid while now < exp."""
    just_before = math.nextafter(NOW + TTL, 0)
    assert STATES.unseal(TOKEN, BINDING, now=just_before) == FLOW
    assert refusal(TOKEN, now=NOW + TTL) == "expired"


def test_each_round_renews_the_expiry() -> None:
    """decision: ttl bounds the time between two rounds, not the conversation."""
    token = seal(STATES, now=NOW + TTL)
    assert STATES.unseal(token, BINDING, now=NOW + TTL * 2 - 1) == FLOW


def test_flow_lifetime_is_absolute() -> None:
    """decision: however often the expiry is renewed, the flow ends a lifetime after it began."""
    end = FLOW.started + LIFETIME
    token = seal(STATES, now=end - 1)
    assert STATES.unseal(token, BINDING, now=math.nextafter(end, 0)) == FLOW
    assert refusal(token, now=end) == "flow lifetime over"


def test_issue_time_has_a_minute_of_leeway() -> None:
    """decision: clocks of workers differ; a state from further ahead is not from one of ours."""
    assert STATES.unseal(TOKEN, BINDING, now=NOW - 60) == FLOW
    assert refusal(TOKEN, now=NOW - 60.01) == "issued in the future"


def test_start_time_has_a_minute_of_leeway() -> None:
    """decision: a flow cannot have begun later than its states were issued."""
    flow = dataclasses.replace(FLOW, started=NOW + 61)
    assert refusal(seal(STATES, flow), now=NOW) == "flow started in the future"


@pytest.mark.parametrize("now", [math.nan, math.inf, -math.inf])
def test_a_broken_clock_opens_nothing(now: float) -> None:
    """decision: conditions say what is accepted, so NaN rejects."""
    refusal(TOKEN, now=now)


@pytest.mark.parametrize("now", [math.nan, math.inf, -math.inf])
def test_a_broken_clock_mints_nothing_that_opens(now: float) -> None:
    """decision: the same for the clock of the worker that minted."""
    refusal(seal(STATES, now=now))


@pytest.mark.parametrize("name", ["ttl", "flow_lifetime"])
@pytest.mark.parametrize("seconds", [math.nan, math.inf, -math.inf, 0, -1])
def test_states_without_an_end_do_not_open(name: str, seconds: float) -> None:
    """decision: a state must expire; an endless one is refused like one that has."""
    refusal(
        STATES.seal(
            FLOW, BINDING, now=NOW, **{"ttl": TTL, "flow_lifetime": LIFETIME, name: seconds}
        )
    )


@pytest.mark.parametrize("started", [math.nan, math.inf, -math.inf])
def test_flows_without_a_start_do_not_open(started: float) -> None:
    """decision: NaN and the infinities are no time."""
    refusal(seal(STATES, dataclasses.replace(FLOW, started=started)))


# ----------------------------------------------------------------------------- what is no token


@pytest.mark.parametrize("token", [None, 1, 1.5, True, [], ["x"], {}, {"a": 1}, TOKEN.encode()])
def test_other_types_reject(token: object) -> None:
    """user report: a state sent as a number was a crash."""
    assert refusal(token) == "not a string"


@pytest.mark.parametrize("token", ["", "é", "\ud800", "x" * (LIMIT + 1)])
def test_impossible_strings_reject_before_the_codec_sees_them(token: str) -> None:
    """user report: a 300 kB state was accepted; what is too long must cost nothing."""
    codec = OpenCodec(opens_to=b"never reached")
    assert refusal(token, by=security(codec)).startswith("not ASCII, empty or longer")


def test_the_limit_holds_in_both_directions() -> None:
    """user report: a state may be as long as the limit, to the byte, and no longer."""
    exact = security(max_state_bytes=len(TOKEN))
    assert exact.unseal(seal(exact), BINDING, now=NOW) == FLOW
    short = security(max_state_bytes=len(TOKEN) - 1)
    refusal(TOKEN, by=short)
    with pytest.raises(RequestStateTooLarge) as failure:
        seal(short)
    assert failure.value.size == len(TOKEN)
    assert failure.value.limit == len(TOKEN) - 1
    assert failure.value.largest_key == "hold"
    assert "row" not in str(failure.value)


@given(st.text())
def test_any_text_rejects(token: str) -> None:
    """decision: whatever arrives, the answer is the frozen refusal."""
    refusal(token)


# --------------------------------------------------------------------------- whose codec it is


@pytest.mark.parametrize(
    "make",
    [
        lambda token: ValueError(token),
        lambda token: KeyError(token),
        lambda token: RuntimeError(token),
        lambda token: RequestStateError(f"bad: {token}"),
        lambda token: RequestStateError([token]),  # type: ignore[arg-type]
        lambda token: OSError(5, token),
        lambda token: UnicodeDecodeError("utf-8", token.encode(), 0, 1, token),
        lambda token: StopIteration(token),
        lambda token: HandlerError(token),
    ],
)
def test_any_exception_of_any_codec_rejects(make: Callable[[str], Exception]) -> None:
    """decision: every exception is a refusal, and the log gets its class, never its words."""

    class Raising(OpenCodec):
        def unseal(self, token: str, *, purpose: bytes) -> bytes:
            raise make(token)

    reason = refusal(TOKEN, by=security(Raising()))
    assert reason == f"codec raised {type(make(TOKEN)).__name__}"


def test_codecs_may_use_the_known_reasons() -> None:
    """decision: a codec of one's own can tell the log which of the usual causes it was."""

    class Raising(OpenCodec):
        def unseal(self, token: str, *, purpose: bytes) -> bytes:
            raise RequestStateError(SEAL_BROKEN)

    assert refusal(TOKEN, by=security(Raising())) == SEAL_BROKEN


@pytest.mark.parametrize("result", ["text", 1, [], bytearray(b"x"), object()])
def test_codecs_must_open_to_bytes(result: object) -> None:
    """decision: an async codec's coroutine, or anything else that is not bytes, rejects."""
    reason = refusal("0", by=security(OpenCodec(opens_to=result)))
    assert reason == "codec returned something else than bytes"


@pytest.mark.parametrize("token", [b"bytes", None, 1, "täxt"])
def test_codecs_must_seal_to_ascii(token: object) -> None:
    """decision: what would not come back is refused when it is made."""

    class Odd(OpenCodec):
        def seal(self, payload: bytes, *, purpose: bytes) -> str:
            return token  # type: ignore[return-value]

    with pytest.raises(TypeError, match="ASCII"):
        seal(security(Odd()))


def test_codecs_are_told_the_purpose() -> None:
    """decision: both ways with the same purpose, and it is not the cursors'."""
    purposes = []

    class Noting(OpenCodec):
        def seal(self, payload: bytes, *, purpose: bytes) -> str:
            purposes.append(purpose)
            return super().seal(payload, purpose=purpose)

        def unseal(self, token: str, *, purpose: bytes) -> bytes:
            purposes.append(purpose)
            return super().unseal(token, purpose=purpose)

    states = security(Noting())
    assert states.unseal(seal(states), BINDING, now=NOW) == FLOW
    assert purposes == [b"request-state", b"request-state"]


def test_a_seal_that_fails_is_not_hidden() -> None:
    """decision: a KMS that is down is the server's error, not the client's."""

    class Down(OpenCodec):
        def seal(self, payload: bytes, *, purpose: bytes) -> str:
            raise ConnectionError

    with pytest.raises(ConnectionError):
        seal(security(Down()))


# ---------------------------------------------------------- a good seal around something else


def test_the_claims_of_these_tests_are_the_codes() -> None:
    """The names used below are the order of the payload."""
    assert opened(json.dumps(payload()).encode()) == FLOW
    assert len(payload()) == len(CLAIMS)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000, b"nonsense", b"1" * 5000])
def test_what_is_no_json_rejects(data: bytes) -> None:
    """decision: a payload of another version may be anything."""
    assert refused_payload(data) == "payload is not JSON"


@pytest.mark.parametrize(
    "value", [None, 1, "x", {}, [], [[]], [None], [2], ["1"], [1.5], {"format": 1}]
)
def test_other_formats_reject(value: Any) -> None:
    """decision: a later version changes the format number and older workers refuse it."""
    assert refused_payload(json.dumps(value).encode()) == "payload of another format"


@pytest.mark.parametrize("missing", range(1, len(CLAIMS)))
def test_a_missing_claim_rejects(missing: int) -> None:
    """decision: all claims or none; nothing has a default."""
    claims = payload()
    del claims[missing]
    assert refused_payload(json.dumps(claims).encode()) == "payload of another shape"


def test_another_claim_rejects() -> None:
    """decision: a claim this version does not know may be a condition it would not check."""
    assert refused_payload(json.dumps([*payload(), 1]).encode()) == "payload of another shape"


@pytest.mark.parametrize("name", CLAIMS)
@pytest.mark.parametrize("value", [True, None, [], "1", 1, 1.5, {}])
def test_a_claim_of_another_type_rejects(name: str, value: Any) -> None:
    """decision: types are exact; the log names the claim."""
    current = payload()[CLAIMS.index(name)]
    alike = {int, float} if isinstance(current, float) else {type(current)}
    if name == "version":
        alike.add(type(None))
    if name == "format":
        alike = {type(None), list, dict, str, float, int}
    if type(value) in alike:
        return
    assert refused_claim(name, value) == f"claim {name} of another type"


@pytest.mark.parametrize("name", ["issued", "expires", "started", "ends"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_times_that_are_none_reject(name: str, value: float) -> None:
    """decision: NaN and infinity are refused wherever a time stands."""
    refused_claim(name, value)


@pytest.mark.parametrize(
    ("name", "value"), [("round", 0), ("round", -1), ("asked", -1), ("asked", 3), ("round", 1)]
)
def test_impossible_counts_reject(name: str, value: int) -> None:
    """decision: rounds count from 1, and no more of them asked than there were."""
    assert refused_claim(name, value) == "impossible round"


@pytest.mark.parametrize("value", ["", "\ud800", "é", "x" * 32, "0" * 32])
def test_other_principal_hashes_reject(value: str) -> None:
    """decision: whatever text stands there, it is compared and not trusted."""
    assert refused_claim("principal", value) == "other principal"


@pytest.mark.parametrize("value", ["", "\ud800", "é", "2026-09"])
def test_other_principal_kids_reject(value: str) -> None:
    """decision: an unknown kid is an unknown principal."""
    assert refused_claim("kid", value) == "other principal"


@pytest.mark.parametrize(
    "journal", [{"a": 1}, {"a": {"k": 1}}, {"a": {"k": ["d", "steal"]}}, {"s": {"k": [1] * 9}}]
)
def test_other_journals_reject(journal: dict[str, Any]) -> None:
    """decision: a journal of another version ends the flow and not the request handler."""
    assert refused_claim("journal", journal) == "journal of another shape"


@given(json_values)
def test_any_payload_rejects(value: Any) -> None:
    """decision: valid seal, arbitrary JSON: refused, never a crash."""
    refused_payload(to_json(value, inf_nan_mode="constants"))


@given(st.binary())
def test_any_bytes_reject(data: bytes) -> None:
    """decision: valid seal, arbitrary bytes: refused, never a crash."""
    refused_payload(data)


@given(st.sampled_from(CLAIMS[:-1]), json_values)
def test_any_claim_of_any_value_rejects_or_is_harmless(name: str, value: Any) -> None:
    """decision: one claim replaced by arbitrary JSON never crashes, and never opens for another."""
    claims = payload()
    claims[CLAIMS.index(name)] = value
    try:
        flow = opened(to_json(claims, inf_nan_mode="constants"))
    except RequestStateError:
        return
    assert name in {"flow_id", "issued", "started", "expires", "ends", "round", "asked"} or (
        value == payload()[CLAIMS.index(name)]
    )
    assert flow.journal == JOURNAL


# -------------------------------------------------------------------------------- the warning


def test_the_first_state_sealed_with_a_process_local_secret_warns(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """user report: a flow worked 1 time in 8 over 8 workers; the log must say why, once."""
    ring = KeyRing.process_local()
    states = security(AESGCMCodec(ring), ring)
    assert not caplog.records
    tokens = [seal(states) for _ in range(3)]
    assert len(caplog.records) == 1
    assert all(token not in caplog.text for token in tokens)


def test_configured_secrets_do_not_warn(caplog: pytest.LogCaptureFixture) -> None:
    """decision: with keys= there is nothing to say."""
    seal(security())
    assert not caplog.records


# --------------------------------------------------------------------------- told to developers


def test_a_state_is_described_without_its_principal() -> None:
    """The journal with long names, and everything that it is bound to. decision"""
    by = security()
    said = by.describe(seal(by), BINDING.principal)
    assert (said["method"], said["target"], said["version"]) == ("tools/call", "book_seat", "v1")
    assert said["journal"]["steps"]["hold"]["value"] == {"price": 0.1}
    assert said["journal"]["answers"]["seat"]["content"] == {"row": 4, "letter": "A"}
    assert "principal" not in said


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"audience": "another-desk"}, "other audience"),
        ({"keys": KeyRing(primary=NEW)}, UNKNOWN_KID),
    ],
)
def test_another_server_describes_nothing(other: dict[str, Any], reason: str) -> None:
    """As it would open nothing. decision"""
    with pytest.raises(RequestStateError) as caught:
        security(**other).describe(seal(security()), BINDING.principal)
    assert caught.value.reason == reason


def test_nobody_else_is_told() -> None:
    """Only the principal that it was sealed for. decision"""
    with pytest.raises(RequestStateError) as caught:
        security().describe(seal(security()), principal_key_bytes("bob"))
    assert caught.value.reason == "other principal"


def test_a_journal_of_another_shape_is_not_described() -> None:
    """Whatever another version may have written. decision"""
    codec = OpenCodec()
    by = security(codec)
    token = seal(by)
    claims = json.loads(codec.payloads[0])
    codec.payloads[0] = json.dumps([*claims[:-1], {"a": 1}]).encode()
    with pytest.raises(RequestStateError) as caught:
        by.describe(token, BINDING.principal)
    assert caught.value.reason == "journal of another shape"
