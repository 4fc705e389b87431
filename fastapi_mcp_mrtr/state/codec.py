"""Sealing: bytes into a token nobody else can read or make, and back. Knows no claim, no clock.

What a state says and whether it may be used here and now is checked in `security.py`, whatever
codec is in use. A codec has one duty: what `unseal` returns was given to `seal` for that purpose.
"""

import binascii
import os
from collections.abc import Callable
from typing import Final, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fastapi_mcp_mrtr.errors import RequestStateError

from .keys import KeyRing

REQUEST_STATE: Final = b"request-state"
CURSOR: Final = b"cursor"
SESSION: Final = b"session"
ANSWER: Final = b"answer"

NOT_BASE64URL: Final = "not canonical base64url"
OTHER_FORMAT: Final = "token of another format"
UNKNOWN_KID: Final = "sealed under an unknown kid"
SEAL_BROKEN: Final = "seal broken"
REASONS: Final = (NOT_BASE64URL, OTHER_FORMAT, UNKNOWN_KID, SEAL_BROKEN)
"""The words the log may use for a token that does not open."""

_VERSION: Final = 1
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_KEY_PURPOSE: Final = b"aes-256-gcm"

# Base64 out of its URL-safe alphabet. What is not in that alphabet becomes "!", which no encoder
# writes.
_FROM_URLSAFE: Final = bytes.maketrans(b"-_+/=", b"+/!!!")


class RequestStateCodec(Protocol):
    """Anything that can seal: the built-in AES-GCM, a JWE, a KMS.

    A token made for one purpose must not open for another. `unseal` may raise whatever it likes:
    every exception rejects the token. The log shows the class of the exception, since its message
    may quote the token; or the reason of a `RequestStateError` if it is one of `REASONS`.
    """

    def seal(self, payload: bytes, *, purpose: bytes) -> str:
        """Make a token of ASCII text that keeps the payload secret and cannot be altered."""
        ...

    def unseal(self, token: str, *, purpose: bytes) -> bytes:
        """Return the payload of a token that `seal` made for this purpose, else raise."""
        ...


class AESGCMCodec:
    """AES-256-GCM with a random nonce.

    ```text
    token  = base64url(header || nonce || ciphertext || tag)      canonical, without padding
    header = version (1 byte) || length of kid (1 byte) || kid    authenticated, with the purpose
    ```

    Nothing is compressed: the length would tell journaled secrets to whoever chooses the answers.
    A random 96-bit nonce is good for 2**32 tokens of one secret (NIST SP 800-38D §8.3), which is
    100 a second for 16 months; replace the secret before that.
    """

    def __init__(self, keys: KeyRing, *, entropy: Callable[[int], bytes] = os.urandom) -> None:
        self._entropy = entropy
        self._ciphers = {_header(kid): AESGCM(keys.derive(kid, _KEY_PURPOSE)) for kid in keys.kids}
        self._primary_header = _header(keys.primary_kid)
        self._primary = self._ciphers[self._primary_header]

    def seal(self, payload: bytes, *, purpose: bytes) -> str:
        """Seal with the primary secret."""
        header, nonce = self._primary_header, self._entropy(_NONCE_BYTES)
        return _encode(header + nonce + self._primary.encrypt(nonce, payload, header + purpose))

    def unseal(self, token: str, *, purpose: bytes) -> bytes:
        """Open a token sealed with any secret of the ring.

        Raises: RequestStateError, for everything else.
        """
        raw = _decode(token)
        if not (len(raw) > 1 and raw[0] == _VERSION):
            raise RequestStateError(OTHER_FORMAT)
        nonce_at = 2 + raw[1]
        sealed_at = nonce_at + _NONCE_BYTES
        if not len(raw) >= sealed_at + _TAG_BYTES:
            raise RequestStateError(OTHER_FORMAT)
        header = raw[:nonce_at]
        cipher = self._ciphers.get(header)
        if cipher is None:
            raise RequestStateError(UNKNOWN_KID)
        try:
            return cipher.decrypt(raw[nonce_at:sealed_at], raw[sealed_at:], header + purpose)
        except InvalidTag:
            raise RequestStateError(SEAL_BROKEN) from None


def kid_of(token: str) -> str:
    """The label of the secret that a token of `AESGCMCodec` says it is sealed with. Not verified.

    Raises: RequestStateError, it is no such token.
    """
    raw = _decode(token)
    if not (len(raw) > 1 and raw[0] == _VERSION and len(raw) >= 2 + raw[1]):
        raise RequestStateError(OTHER_FORMAT)
    return raw[2 : 2 + raw[1]].decode("ascii", "replace")


def _header(kid: str) -> bytes:
    label = kid.encode("ascii")
    return bytes((_VERSION, len(label))) + label


def _encode(raw: bytes) -> str:
    encoded = binascii.b2a_base64(raw, newline=False).rstrip(b"=")
    return encoded.replace(b"+", b"-").replace(b"/", b"_").decode("ascii")


def _decode(token: str) -> bytes:
    """Decode base64url in the one spelling `_encode` uses, so that no token has a second one."""
    try:
        text = token.encode("ascii").translate(_FROM_URLSAFE) + b"=" * (-len(token) % 4)
        raw = binascii.a2b_base64(text)
    except ValueError:
        raise RequestStateError(NOT_BASE64URL) from None
    # The decoder skips what it does not know; only the canonical spelling survives the way back.
    if binascii.b2a_base64(raw, newline=False) != text:
        raise RequestStateError(NOT_BASE64URL)
    return raw
