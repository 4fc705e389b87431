"""What the tests of this folder seal: one flow of one user, fixed secrets and a fixed clock."""

from dataclasses import dataclass, field
from typing import Any

from fastapi_mcp_mrtr.auth.principal import principal_key_bytes
from fastapi_mcp_mrtr.protocol.canonical import digest
from fastapi_mcp_mrtr.rounds.journal import Answer, Journal, StepResult
from fastapi_mcp_mrtr.state.codec import AESGCMCodec, RequestStateCodec
from fastapi_mcp_mrtr.state.keys import KeyRing, Secret
from fastapi_mcp_mrtr.state.security import FlowState, RequestBinding, StateSecurity

OLD = Secret("2026-07", bytes(range(32)))
NEW = Secret("2026-08", bytes(range(100, 132)))
RING = KeyRing(primary=OLD)
# Not random, because pytest-xdist wants the same parameters in every process.
FIXED_CODEC = AESGCMCodec(RING, entropy=lambda size: b"twelve bytes"[:size])

NOW = 1_785_000_000.25
TTL = 600.0
LIFETIME = 3600.0
LIMIT = 64 * 1024

JOURNAL = Journal(
    answers={"seat": Answer("Zm9v", "accept", {"row": 4, "letter": "A"})},
    steps={"hold": StepResult("hold('LH1', row=4)", "YmFy", {"price": 0.1})},
    asked={"confirm": "YmF6"},
)
FLOW = FlowState(flow_id="f" * 32, round=2, asked=2, started=NOW - 30, journal=JOURNAL)
BINDING = RequestBinding(
    method="tools/call",
    target="book_seat",
    arguments_digest=digest({"flight": "LH1"}),
    principal=principal_key_bytes({"iss": "https://idp.example", "sub": "alice"}),
    version="v1",
)


def security(
    codec: RequestStateCodec | None = None,
    keys: KeyRing = RING,
    *,
    audience: str = "travel-desk",
    max_state_bytes: int = LIMIT,
) -> StateSecurity:
    return StateSecurity(
        codec or AESGCMCodec(keys), keys, audience=audience, max_state_bytes=max_state_bytes
    )


def seal(
    by: StateSecurity,
    flow: FlowState = FLOW,
    binding: RequestBinding = BINDING,
    *,
    now: float = NOW,
    ttl: float = TTL,
    flow_lifetime: float = LIFETIME,
) -> str:
    return by.seal(flow, binding, now=now, ttl=ttl, flow_lifetime=flow_lifetime)


@dataclass
class OpenCodec:
    """A codec that protects nothing, so that a test can read and write payloads."""

    payloads: list[bytes] = field(default_factory=list)
    opens_to: Any = None

    def seal(self, payload: bytes, *, purpose: bytes) -> str:
        self.payloads.append(payload)
        return str(len(self.payloads) - 1)

    def unseal(self, token: str, *, purpose: bytes) -> bytes:
        if self.opens_to is not None:
            return self.opens_to  # type: ignore[no-any-return]
        return self.payloads[int(token)]
