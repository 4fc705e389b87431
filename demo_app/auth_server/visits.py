"""Between browsers and the pages for people: session, forms, headers. Knows no grant."""

import hashlib
import hmac
import json
from typing import Final

from fastapi import Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from demo_app.pages import Html

from .authlib_parts import InvalidRequestError, OAuth2Error
from .clients import origin
from .settings import AuthSettings
from .store import Store, new_secret
from .wire import BEFORE_REDIRECTING, EndpointRequest, Parameters

COOKIE: Final = "as_session"
MAX_BODY: Final = 16 * 1024
FORM: Final = "application/x-www-form-urlencoded"


async def body_of(request: Request, media_type: str) -> bytes:
    """Raises: InvalidRequestError: it is of another type, or too large."""
    declared = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if declared != media_type:
        raise InvalidRequestError(f"The body must be {media_type}.")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            raise InvalidRequestError("The body is too large.", status_code=413)
    return body


class Visit:
    """A browser at one of the pages for people: who it is, what it came with, what it is sent."""

    def __init__(
        self, request: Request, *, settings: AuthSettings, store: Store, csrf_key: bytes
    ) -> None:
        self._request = request
        self._settings = settings
        self._csrf_key = csrf_key
        self._query: bytes = request.scope["query_string"]
        self.session = request.cookies.get(COOKIE) or new_secret()
        self.person = store.person(self.session)

    @property
    def csrf(self) -> str:
        """What a form must carry. Only this person's page for this very request has it."""
        person = self.person.id if self.person else None
        text = json.dumps([self.session, person, self._query.decode("latin-1")])
        return hmac.new(self._csrf_key, text.encode(), hashlib.sha256).hexdigest()

    async def form(self) -> dict[str, str] | None:
        """The fields of the form, or `None` if it is not one of ours."""
        try:
            fields = Parameters(await body_of(self._request, FORM)).data
        except OAuth2Error:
            return None
        token = fields.get("csrf", "").encode()
        return fields if hmac.compare_digest(token, self.csrf.encode()) else None

    def authorization_request(self) -> EndpointRequest:
        """What the client asks for, in the query of every page.

        Raises: OAuth2Error: that cannot be read well enough to tell the client so.
        """
        parameters = Parameters(self._query, {"scope": self._settings.default_scope})
        parameters.check(BEFORE_REDIRECTING)
        return EndpointRequest("GET", self._settings.issuer, parameters)

    def link(self, place: str) -> str:
        return f"{self._settings.path}/{place}?{self._query.decode('latin-1')}"

    def page(self, html: Html, status: int = 200, *, leads_to: str | None = None) -> Response:
        response = HTMLResponse(html, status, page_headers(leads_to))
        self._set_cookie(response)
        return response

    def redirect(self, place: str) -> Response:
        """303: what follows is a GET, and no browser sends the form along (RFC 9700 §4.12)."""
        response = RedirectResponse(place, 303, page_headers())
        self._set_cookie(response)
        return response

    def _set_cookie(self, response: Response) -> None:
        response.set_cookie(
            COOKIE,
            self.session,
            max_age=self._settings.session_lifetime,
            path=self._settings.path or "/",
            httponly=True,
            secure=self._settings.https,
            # Lax: clients' links arrive signed in, foreign forms without.
            samesite="lax",
        )


def page_headers(leads_to: str | None = None) -> dict[str, str]:
    """No scripts, no frames around the page (clickjacking), nothing kept, nothing passed on.

    `leads_to` is the redirect URI that follows the page's form.
    """
    form_action = f"'self' {form_targets(leads_to)}" if leads_to else "'self'"
    return {
        "Content-Security-Policy": "default-src 'none'; img-src 'self'; style-src 'self'; "
        f"form-action {form_action}; frame-ancestors 'none'; base-uri 'none'",
        "X-Frame-Options": "DENY",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    }


def form_targets(redirect_uri: str) -> str:
    """What `form-action` must name: browsers apply it to all redirects that follow a form, and a
    program's callback may lead on to its website. It cannot name an IPv6 address."""
    target = origin(redirect_uri)
    if "[" in target:
        target = target.partition(":")[0] + ":"
    return "https:" if target.startswith("https:") else f"https: {target}"
