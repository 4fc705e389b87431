"""The secrets that seal a `requestState`, and which of them is for what. Knows no token format.

A *secret* is cryptographic material and its *kid* the label by which a token names it. Nothing is
ever encrypted with a secret itself: each use has a key of its own, derived by HKDF-SHA256.
"""

import os
import re
from collections.abc import Iterable
from typing import Final, Self

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

_MIN_SECRET_BYTES: Final = 32
_KEY_BYTES: Final = 32
_KID: Final = re.compile(r"[A-Za-z0-9_.-]{1,32}", re.ASCII)
_INFO: Final = b"fastapi-mcp-mrtr/1"


class Secret:
    """At least 32 random bytes and the label tokens know them by.

    ```python
    Secret("2026-08", os.environ["MCP_STATE_SECRET"])
    ```

    A string counts as its UTF-8 bytes. `python -c "import secrets; print(secrets.token_hex(32))"`
    makes a good one. The kid is readable in every token; the value never shows in a `repr`.
    """

    __slots__ = ("kid", "value")

    kid: Final[str]
    value: Final[bytes]

    def __init__(self, kid: str, value: bytes | str) -> None:
        if not _KID.fullmatch(kid):
            raise ValueError(f"A kid is 1 to 32 characters of A-Z a-z 0-9 _ . - and not {kid!r}.")
        material = value.encode() if isinstance(value, str) else value
        if not isinstance(material, bytes):
            raise TypeError(
                f"The secret {kid!r} must be bytes or a string."
                + (" Is the environment variable set?" if value is None else "")
            )
        if not len(material) >= _MIN_SECRET_BYTES:
            raise ValueError(
                f"The secret {kid!r} has {len(material)} bytes; at least {_MIN_SECRET_BYTES} "
                "random ones are needed, as `secrets.token_hex(32)` gives."
            )
        self.kid = kid
        self.value = material

    def __repr__(self) -> str:
        return f"Secret({self.kid!r}, <{len(self.value)} bytes>)"

    @classmethod
    def generate(cls, kid: str) -> Self:
        """Make a fresh random secret."""
        return cls(kid, os.urandom(_MIN_SECRET_BYTES))


class KeyRing:
    """The secret new states are sealed with, and those whose states are still accepted.

    ```python
    KeyRing(primary=Secret("b", new), accepted=[Secret("a", old)])
    ```

    Workers do not restart at the same moment, so a secret is replaced in three deployments. Each
    ends when every worker runs it, and in none does a flow break:

    1. announce: `KeyRing(primary=a, accepted=[b])`. All can open states of `b`, nobody makes any.
    2. switch: `KeyRing(primary=b, accepted=[a])`. New rounds use `b`, flows begun with `a` go on.
    3. retire: `KeyRing(primary=b)`, a `ttl` later, when the last state of `a` has expired. If `a`
       leaked, go straight here: flows in progress have to start over, and that is the point.
    """

    __slots__ = ("_derived", "_secrets", "is_process_local", "primary_kid", "warned")

    def __init__(self, *, primary: Secret, accepted: Iterable[Secret] = ()) -> None:
        secrets = (primary, *accepted)
        self._secrets = {secret.kid: secret.value for secret in secrets}
        if len(self._secrets) != len(secrets):
            raise ValueError("Two secrets of one KeyRing share a kid; a kid names one secret.")
        if len(set(self._secrets.values())) != len(secrets):
            raise ValueError("Two secrets of one KeyRing have the same value under two kids.")
        self._derived: dict[tuple[str, bytes], bytes] = {}
        self.primary_kid = primary.kid
        self.is_process_local = False
        self.warned = False
        """Whether the log has been told that this ring is process-local."""

    def __repr__(self) -> str:
        primary, *accepted = self._secrets
        return f"KeyRing(primary={primary!r}, accepted={accepted!r})"

    @classmethod
    def process_local(cls) -> Self:
        """Make a ring around a random secret that no other process has and no restart survives."""
        # A random kid, so that another worker's log says "unknown kid" and not "forged".
        ring = cls(primary=Secret.generate(f"local-{os.urandom(4).hex()}"))
        ring.is_process_local = True
        return ring

    @classmethod
    def of(cls, keys: "KeyRing | Secret | None") -> "KeyRing":
        """Read a `keys=` setting: a ring, a single secret, or `None` for a process-local ring."""
        match keys:
            case None:
                return cls.process_local()
            case Secret():
                return cls(primary=keys)
            case KeyRing():
                return keys
        raise TypeError(f"keys= takes a KeyRing or a Secret, not {type(keys).__name__}.")

    @property
    def kids(self) -> tuple[str, ...]:
        """The kids of all secrets, the primary one first."""
        return tuple(self._secrets)

    def derive(self, kid: str, purpose: bytes) -> bytes:
        """Derive the 32-byte key for one purpose from the secret `kid`.

        Raises: LookupError, when the ring has no such secret.
        """
        key = self._derived.get((kid, purpose))
        if key is None:
            secret = self._secrets[kid]
            # A kid has no NUL, so the parts cannot run into each other.
            info = b"\0".join((_INFO, kid.encode("ascii"), purpose))
            key = HKDF(SHA256(), _KEY_BYTES, salt=None, info=info).derive(secret)
            self._derived[kid, purpose] = key
        return key
