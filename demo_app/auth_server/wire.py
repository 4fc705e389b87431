"""Requests and answers in the form that Authlib works on. Knows no rule of OAuth but spelling."""

import base64
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

from .authlib_parts import (
    InvalidClientError,
    InvalidRequestError,
    OAuth2Payload,
    OAuth2Request,
    add_params_to_uri,
)

_VISIBLE: Final = re.compile(r"[ -~]+")  # RFC 6749 Appendix A: VSCHAR

_QUOTABLE: Final = re.compile(r"[ !#-\[\]-~]+")
"""What may stand in an error_description. Authlib repeats values there, and fails on others."""

_SCOPES: Final = re.compile(r"[!#-\[\]-~]+(?: [!#-\[\]-~]+)*")

SPELLING: Final[Mapping[str, re.Pattern[str]]] = {
    **dict.fromkeys(
        ("client_id", "client_secret", "state", "code", "refresh_token", "token"), _VISIBLE
    ),
    **dict.fromkeys(
        (
            "response_type", "redirect_uri", "grant_type",
            "code_challenge", "code_challenge_method", "code_verifier",
        ),
        _QUOTABLE,
    ),
    "scope": _SCOPES,
}  # fmt: skip
"""The parameters that count and what they are made of. Each may come once (RFC 6749 §3.1, §3.2).

`resource` is not among them: it may come several times (RFC 8707 §2).
"""

BEFORE_REDIRECTING: Final = ("client_id", "redirect_uri", "response_type", "state")
"""If one of these is malformed, nobody knows where an error may be sent, or what to say there."""


class Parameters(OAuth2Payload):  # type: ignore[misc]
    """The parameters of one request, with every value that each had."""

    def __init__(self, encoded: bytes, defaults: Mapping[str, str] | None = None) -> None:
        """Raises: InvalidRequestError: it is not application/x-www-form-urlencoded."""
        try:
            # Without `keep_blank_values`: what has no value counts as omitted (RFC 6749 §3.1).
            pairs = parse_qsl(encoded.decode("ascii"), errors="strict", max_num_fields=50)
        except ValueError:
            raise InvalidRequestError("The parameters cannot be read.") from None
        self._all: dict[str, list[str]] = {}
        for name, value in pairs:
            self._all.setdefault(name, []).append(value)
        for name, value in (defaults or {}).items():
            self._all.setdefault(name, [value])

    @property
    def data(self) -> dict[str, str]:
        return {name: values[0] for name, values in self._all.items()}

    @property
    def datalist(self) -> dict[str, list[str]]:
        return self._all

    def check(self, names: Iterable[str]) -> None:
        """Raises: InvalidRequestError: one of these is there twice, or has strange characters."""
        for name in names:
            values = self._all.get(name, [])
            if len(values) > 1:
                raise InvalidRequestError(f"Multiple '{name}' in request.")
            if values and not SPELLING[name].fullmatch(values[0]):
                raise InvalidRequestError(f"Invalid '{name}' in request.")


class EndpointRequest(OAuth2Request):  # type: ignore[misc]
    """One request to one of the endpoints.

    Attributes:
        resource: the resource that it is about, once that is known.
    """

    def __init__(
        self, method: str, issuer: str, parameters: Parameters, headers: Any = None
    ) -> None:
        # Authlib looks whether the URI is https, which behind a proxy the request's own is not.
        super().__init__(method, issuer, headers=headers)
        self.payload = parameters
        self.resource: str | None = None

    @property
    def form(self) -> dict[str, str]:
        return self.payload.data

    def credentials(self) -> str | None:
        """How the client authenticates, if by anything but its id.

        Raises:
            InvalidClientError: an Authorization header that cannot be read; Authlib would fail.
            InvalidRequestError: a secret in the body as well (RFC 6749 §2.3).
        """
        header = self.headers.get("Authorization")
        in_body = "client_secret" in self.form
        if header is None:
            return "client_secret_post" if in_body else None
        if in_body:
            raise InvalidRequestError("More than one way of authenticating the client.")
        try:
            scheme, _, encoded = header.partition(" ")
            name, colon, _ = base64.b64decode(encoded, validate=True).decode().partition(":")
            if scheme.lower() == "basic" and name and colon:
                return "client_secret_basic"
        except ValueError:
            pass
        raise InvalidClientError("The Authorization header cannot be read.", status_code=401)


class JSONRequest:
    """A request whose body is JSON, in the shape in which Authlib's registration wants it."""

    def __init__(self, content: object) -> None:
        self.payload = self
        self.data = content
        self.credential: object = None
        self.metadata: Any = None


class Answer:
    """What Authlib answers. `location` is what its extensions read and write."""

    def __init__(self, status: int, body: Any, headers: Iterable[tuple[str, str]]) -> None:
        self.status = status
        self.body = body
        self.headers = dict(headers)

    @property
    def location(self) -> str | None:
        return self.headers.get("Location")

    @location.setter
    def location(self, uri: str) -> None:
        self.headers["Location"] = uri


def with_issuer(location: str, issuer: str) -> str:
    """The answer with `iss`, so that a client sees whose it is (RFC 9207 §2)."""
    uri: str = add_params_to_uri(location, [("iss", issuer)])
    return uri
