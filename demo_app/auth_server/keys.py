"""The keys that sign access tokens, and when each signs. Knows no token."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from joserfc.jwk import ECKey, KeySet

ALGORITHM: Final = "ES256"

MARGIN: Final = 60
"""Seconds by which clocks may differ, and a token be older than it looks."""


@dataclass(frozen=True, slots=True)
class _Key:
    key: ECKey
    signs_from: float


class SigningKeys:
    """Publishes a key before it signs, and for as long as something that it signed is valid.

    A resource server that keeps the key set for `publish_ahead` seconds therefore never meets a
    signature that it cannot check.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        period: float,
        publish_ahead: float,
        token_lifetime: float,
    ) -> None:
        self._clock = clock
        self._period = period
        self._publish_ahead = publish_ahead
        self._token_lifetime = token_lifetime
        # Nobody has fetched anything yet, so the first key need not wait.
        self._keys = [_new_key(clock())]

    def rotate(self) -> None:
        """Publish a new key, to sign after `publish_ahead`. One that waits already is enough."""
        now = self._clock()
        if self._keys[-1].signs_from <= now:
            self._keys.append(_new_key(now + self._publish_ahead))

    def active(self) -> KeySet:
        """The key that signs, alone: given several, joserfc would pick any."""
        self._keep_up()
        now = self._clock()
        return KeySet([[k.key for k in self._keys if k.signs_from <= now][-1]])

    def published(self) -> Mapping[str, Any]:
        """The public part of every key that somebody may need to verify a token."""
        self._keep_up()
        return KeySet([k.key for k in self._keys]).as_dict(private=False)

    def _keep_up(self) -> None:
        now = self._clock()
        if now >= self._keys[-1].signs_from + self._period:
            self.rotate()
        kept = self._token_lifetime + MARGIN
        while len(self._keys) > 1 and now >= self._keys[1].signs_from + kept:
            del self._keys[0]


def _new_key(signs_from: float) -> _Key:
    # `auto_kid`: the kid is the key's RFC 7638 thumbprint.
    key = ECKey.generate_key("P-256", {"use": "sig", "alg": ALGORITHM}, private=True, auto_kid=True)
    return _Key(key, signs_from)
