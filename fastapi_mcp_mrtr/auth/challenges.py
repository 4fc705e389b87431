"""What a refused request is told: status, `WWW-Authenticate` and body. Pure: no request, no token.

| situation | status | `Bearer …` | body |
|---|---|---|---|
| no credentials, or of another scheme | 401 | `scope`, `resource_metadata` | `{}` |
| the token is not acceptable | 401 | `error="invalid_token"`, … | the error |
| scopes are missing | 403 | `error="insufficient_scope"`, all of its scopes, … | the error |
| several `Authorization` headers | 400 | `error="invalid_request"`, … | the error |
| whether the token is good is unknown | 503 | none, but `Retry-After` | none |

Clients look for `scope=` and its kin anywhere in the header, so `error_description` comes last and
holds no equals sign.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from fastapi import HTTPException as FastAPIHTTPException
from fastapi import Response
from pydantic_core import to_json
from starlette.exceptions import HTTPException

_DESCRIPTIONS: Final[Mapping[str, str]] = {
    "invalid_token": "The access token is invalid or expired",
    "insufficient_scope": "The access token lacks a scope that this operation needs",
    "invalid_request": "The Authorization header was sent more than once",
}
"""What the client reads, the same for every cause; the log has the reason."""

_UNQUOTABLE: Final = re.compile(r'[^\x20-\x7e]|["\\]')


class ChallengeError(FastAPIHTTPException):
    """A refusal by `ProtectedResource`, ready to be sent.

    The MCP endpoint sends `response()`. FastAPI's own handler, in routes of yours, sends the same
    status and headers with `{"detail": …}` for a body; to have the OAuth body there too:

    ```python
    app.add_exception_handler(ChallengeError, send_challenge)
    ```
    """

    headers: dict[str, str]

    def __init__(
        self, status: int, headers: dict[str, str], body: Mapping[str, str] | None, detail: str
    ) -> None:
        super().__init__(status, detail, headers)
        self.body = body

    def response(self) -> Response:
        """The response with the exact body: a JSON object, or nothing."""
        content = None if self.body is None else to_json(self.body)
        media_type = None if self.body is None else "application/json"
        return Response(content, self.status_code, self.headers, media_type)


async def send_challenge(request: object, refusal: Exception) -> Response:
    """An exception handler for `ChallengeError`."""
    assert isinstance(refusal, ChallengeError)
    return refusal.response()


def no_credentials(scopes: Iterable[str], resource_metadata: str) -> ChallengeError:
    """401 without `error`: nobody has done anything wrong yet (RFC 6750 §3.1)."""
    challenge = bearer(scope=scopes, resource_metadata=resource_metadata)
    return ChallengeError(401, {"WWW-Authenticate": challenge}, {}, "Not authenticated")


def invalid_token(
    scopes: Iterable[str], resource_metadata: str, correlation_id: str
) -> ChallengeError:
    """401: get another token."""
    return _error(401, "invalid_token", scopes, resource_metadata, correlation_id=correlation_id)


def insufficient_scope(
    scopes: Iterable[str], resource_metadata: str | None = None
) -> ChallengeError:
    """403: get a token with all of these scopes (index §Runtime Insufficient Scope Errors)."""
    return _error(403, "insufficient_scope", scopes, resource_metadata)


def invalid_request() -> ChallengeError:
    """400: which of the headers counts is not for us to choose."""
    return _error(400, "invalid_request")


def keys_unavailable(retry_after: int) -> ChallengeError:
    """503 without a challenge, so that nobody throws a good token away."""
    return ChallengeError(503, {"Retry-After": str(retry_after)}, None, "Try again later")


def _error(
    status: int,
    error: str,
    scopes: Iterable[str] = (),
    resource_metadata: str | None = None,
    **extra: str,
) -> ChallengeError:
    description = _DESCRIPTIONS[error]
    challenge = bearer(
        error=error,
        scope=scopes,
        resource_metadata=resource_metadata,
        error_description=description,
    )
    body = {"error": error, "error_description": description, **extra}
    return ChallengeError(status, {"WWW-Authenticate": challenge}, body, description)


def bearer(
    *,
    error: str | None = None,
    scope: Iterable[str] = (),
    resource_metadata: str | None = None,
    error_description: str | None = None,
) -> str:
    """A `WWW-Authenticate` value, its parameters always in this order.

    Raises:
        ValueError: there is no parameter; a challenge needs one (RFC 6750 §3).
    """
    parameters = {
        "error": error,
        "scope": " ".join(scope),
        "resource_metadata": resource_metadata,
        "error_description": (error_description or "").replace("=", ""),
    }
    listed = [f"{name}={_quoted(value)}" for name, value in parameters.items() if value]
    if not listed:
        raise ValueError("A Bearer challenge needs at least one parameter.")
    return f"Bearer {', '.join(listed)}"


def _quoted(value: str) -> str:
    return f'"{_UNQUOTABLE.sub("", value)}"'


# ------------------------------------------------------------- challenges that others have raised


def augment_challenge(exc: HTTPException, resource_metadata_url: str | None) -> HTTPException:
    """Tell clients of an app's own 401 where to log in: add `resource_metadata` to its challenge.

    | raised | becomes |
    |---|---|
    | 401 `Bearer`, with or without parameters | the same with `resource_metadata` |
    | 403 `Bearer error="insufficient_scope"` | the same with `resource_metadata` |
    | 401 without a challenge | `Bearer resource_metadata="…"` |
    | `APIKey`, `Basic`, … | as it is: a token would not help |
    | 403 without a challenge; redirects; others | as they are |
    | anything, where there is no metadata | as it is |

    Returns `exc` itself or a copy; one that is shared between requests is not written to.
    """
    if resource_metadata_url is None or exc.status_code not in (401, 403):
        return exc
    headers = dict(exc.headers or {})
    name = next((name for name in headers if name.lower() == "www-authenticate"), None)
    challenge = headers.pop(name).strip() if name is not None else ""
    if challenge:
        augmented = _augmented(challenge, resource_metadata_url)
    elif exc.status_code == 401:
        augmented = bearer(resource_metadata=resource_metadata_url)
    else:
        return exc
    if augmented == challenge:
        return exc
    return _with_headers(exc, {**headers, name or "WWW-Authenticate": augmented})


def _with_headers(exc: HTTPException, headers: dict[str, str]) -> HTTPException:
    """A copy of any subclass, whatever its constructor takes."""
    copy = exc.__class__.__new__(exc.__class__)
    copy.__dict__.update(exc.__dict__)
    copy.args = exc.args
    copy.__cause__ = exc.__cause__
    copy.headers = headers
    return copy


_WELL_FORMED: Final = re.compile(r'(?:[^"\\]|\\.|"(?:[^"\\]|\\.)*")*')
# Between commas that are not within quotes: a parameter, or a scheme with its first parameter.
_ITEM: Final = re.compile(r'(?:[^,"\\]|\\.|"(?:[^"\\]|\\.)*")+')
_SCHEME: Final = re.compile(r"\s*([!#$%&'*+.^_`|~0-9A-Za-z-]+)(?=\s|$)(?!\s*=)")
_RESOURCE_METADATA: Final = re.compile(r"(?:^|\s)resource_metadata\s*=", re.IGNORECASE)


def _augmented(challenges: str, resource_metadata_url: str) -> str:
    """Append the parameter to the first Bearer challenge, unless it has one."""
    if not _WELL_FORMED.fullmatch(challenges):
        return challenges
    within = False
    end = 0
    has_parameters = False
    for item in _ITEM.finditer(challenges):
        scheme = _SCHEME.match(item[0])
        if scheme is not None:
            if within:
                break
            within = scheme[1].lower() == "bearer"
            has_parameters = bool(item[0][scheme.end() :].strip())
        if within:
            if _RESOURCE_METADATA.search(item[0]):
                return challenges
            end = item.start() + len(item[0].rstrip())
    if not end:
        return challenges
    parameter = f"resource_metadata={_quoted(resource_metadata_url)}"
    separator = ", " if has_parameters else " "
    return f"{challenges[:end]}{separator}{parameter}{challenges[end:]}"
