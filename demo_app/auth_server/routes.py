"""The endpoints: FastAPI in front, Authlib behind. What is decided is decided there."""

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic_core import from_json, to_json

from . import pages
from .authlib_parts import InvalidRequestError, OAuth2Error
from .clients import Client
from .documents import DocumentRefused, Documents, document_url
from .grants import CodeGrant
from .metadata import metadata, well_known_path
from .server import Server
from .settings import AuthSettings, Person
from .store import new_secret
from .visits import FORM, Visit, body_of
from .wire import SPELLING, Answer, EndpointRequest, JSONRequest, Parameters

logger = logging.getLogger(__name__)

CORS: Final = {"Access-Control-Allow-Origin": "*"}

PREFLIGHT: Final = {
    **CORS,
    "Access-Control-Allow-Methods": "GET, POST",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, MCP-Protocol-Version",
    "Access-Control-Max-Age": "3600",
}
"""For what programs in a browser call. Pages for people are not among that."""

CROSS_ORIGIN: Final = ("jwks.json", "token", "register")

NOT_OURS: Final = "This form does not belong to the page you have open. Go back and reload it."

NO_DOCUMENT: Final = (
    "The program says that it is described at an address where no such description is to be had."
)

BAD_REQUEST: Final = "The program that led here has asked for something that cannot be."


class AuthServer:
    """The authorization server of the demo, in memory. Its endpoints are `router`'s.

    ```python
    settings = AuthSettings(
        issuer="http://127.0.0.1:8000/as",
        resources=(Resource(uri="http://127.0.0.1:8000/mcp", name="Travel desk"),),
        sign_in=seeded_customer,
    )
    app.include_router(AuthServer(settings).router)  # without prefix: the issuer says where
    ```

    Args:
        clock: seconds since the epoch.
        clients: those that are known without registering.
        documents: fetches what clients say of themselves; the default does so over the network.
    """

    def __init__(
        self,
        settings: AuthSettings,
        *,
        clock: Callable[[], float] = time.time,
        clients: Iterable[Client] = (),
        documents: Documents | None = None,
    ) -> None:
        self.settings: Final = settings
        self.server: Final = Server(settings, clock, clients)
        self.keys: Final = self.server.keys
        self._documents = documents or Documents(settings, clock)
        self._metadata = metadata(settings)
        self._csrf_key = secrets.token_bytes(32)
        self.router: Final = self._routes()

    def _routes(self) -> APIRouter:
        router = APIRouter(include_in_schema=False)
        path = self.settings.path
        for method, place, endpoint in (
            ("GET", well_known_path(self.settings), self.discover),
            ("GET", f"{path}/jwks.json", self.jwks),
            ("GET", f"{path}/consent.css", self.style),
            ("GET", f"{path}/authorize", self.ask),
            ("POST", f"{path}/authorize", self.decide),
            ("POST", f"{path}/sign-in", self.sign_in),
            ("POST", f"{path}/sign-out", self.sign_out),
            ("POST", f"{path}/token", self.token),
            ("POST", f"{path}/register", self.register),
            ("POST", f"{path}/revoke", self.revoke),
            ("POST", f"{path}/introspect", self.introspect),
        ):
            router.add_api_route(place, endpoint, methods=[method])
        for place in (well_known_path(self.settings), *(f"{path}/{n}" for n in CROSS_ORIGIN)):
            router.add_api_route(place, self.preflight, methods=["OPTIONS"])
        return router

    # ------------------------------------------------------------------- for programs to read

    async def discover(self) -> Response:
        return JSONResponse(self._metadata, headers={**CORS, "Cache-Control": "max-age=300"})

    async def jwks(self) -> Response:
        kept = f"max-age={self.settings.publish_ahead}"
        return JSONResponse(self.keys.published(), headers={**CORS, "Cache-Control": kept})

    async def fetch_keys(self, _url: str) -> bytes:
        """For a resource server in this process: what it would get from the `jwks_uri`."""
        return to_json(self.keys.published())

    async def preflight(self) -> Response:
        return Response(status_code=204, headers=PREFLIGHT)

    async def style(self) -> Response:
        return Response(pages.STYLE, media_type="text/css")

    # -------------------------------------------------------------------------- for people

    def _visit(self, request: Request) -> Visit:
        return Visit(
            request, settings=self.settings, store=self.server.store, csrf_key=self._csrf_key
        )

    def _answer(self, visit: Visit, answer: Answer) -> Response:
        """To the client if there is a way, else to the person."""
        if answer.location:
            return visit.redirect(answer.location)
        detail = answer.body.get("error_description") or answer.body["error"]
        return visit.page(pages.refusal(self.settings.house, BAD_REQUEST, detail), answer.status)

    async def ask(self, request: Request) -> Response:
        """The authorization endpoint: who are you, and is this what you want?"""
        visit = self._visit(request)
        if visit.person is None:
            return visit.page(pages.sign_in(self.settings.house, visit.link("sign-in"), visit.csrf))
        try:
            wanted = visit.authorization_request()
            # Not before sign-in, and nowhere else: the address is whatever somebody wrote.
            await self._learn(wanted.payload.client_id)
            grant: CodeGrant = self.server.get_consent_grant(wanted, visit.person)
        except DocumentRefused as refused:
            logger.warning("Client document refused: %s", refused)
            return visit.page(pages.refusal(self.settings.house, NO_DOCUMENT), 400)
        except OAuth2Error as error:
            return self._answer(visit, self.server.handle_error_response(None, error))
        return self._consent(visit, visit.person, grant)

    def _consent(self, visit: Visit, person: Person, grant: CodeGrant) -> Response:
        wanted: EndpointRequest = grant.request
        resource = self.settings.resource(wanted.resource or "")
        assert resource is not None
        html = pages.consent(
            self.settings.house,
            client=wanted.client,
            redirect_uri=grant.redirect_uri,
            resource=resource,
            scopes={scope: self.settings.scopes[scope] for scope in wanted.scope.split()},
            approved=self.server.store.approved_scopes(person, wanted.client.id, resource.uri),
            person=person,
            action=visit.link("authorize"),
            sign_out=visit.link("sign-out"),
            style=f"{self.settings.path}/consent.css",
            csrf=visit.csrf,
        )
        return visit.page(html, leads_to=grant.redirect_uri)

    async def decide(self, request: Request) -> Response:
        """The form of the consent page: back to the client, with a code or without."""
        visit = self._visit(request)
        form = await visit.form()
        if visit.person is None:  # the session ended while the page was open
            return visit.redirect(visit.link("authorize"))
        if form is None:
            return visit.page(pages.refusal(self.settings.house, NOT_OURS), 403)
        allowed = form.get("decision") == "allow"
        try:
            wanted = visit.authorization_request()
            grant = self.server.get_consent_grant(wanted, visit.person)
        except OAuth2Error as error:
            return self._answer(visit, self.server.handle_error_response(None, error))
        logger.info(
            "%s %s %r for client %r",
            visit.person.id,
            "allowed" if allowed else "refused",
            wanted.scope,
            wanted.client.id,
        )
        return self._answer(
            visit,
            self.server.create_authorization_response(
                wanted, grant_user=visit.person if allowed else None, grant=grant
            ),
        )

    async def sign_in(self, request: Request) -> Response:
        visit = self._visit(request)
        form = await visit.form()
        if form is None:
            return visit.page(pages.refusal(self.settings.house, NOT_OURS), 403)
        person = await self.settings.sign_in(form.get("key", "").strip())
        if person is None:
            html = pages.sign_in(
                self.settings.house, visit.link("sign-in"), visit.csrf, failed=True
            )
            return visit.page(html, 401)
        # Always a new one: a cookie that somebody planted before is worth nothing.
        visit.session = self.server.store.open_session(person)
        return visit.redirect(visit.link("authorize"))

    async def sign_out(self, request: Request) -> Response:
        visit = self._visit(request)
        if await visit.form() is None:
            return visit.page(pages.refusal(self.settings.house, NOT_OURS), 403)
        self.server.store.close_session(visit.session)
        visit.session = new_secret()
        return visit.redirect(visit.link("authorize"))

    async def _learn(self, client_id: str | None) -> None:
        """Raises: DocumentRefused: the id is a URL, and no good."""
        loopback = self.settings.loopback_documents
        if client_id and document_url(client_id, loopback=loopback):
            self.server.clients.add(await self._documents.client(client_id))

    # ------------------------------------------------------------------------ for programs

    async def token(self, request: Request) -> Response:
        return await self._call(request, self._token, CORS)

    def _token(self, wanted: EndpointRequest) -> Answer:
        if "grant_type" not in wanted.form:
            raise InvalidRequestError("Missing 'grant_type' in request.")
        answer: Answer = self.server.create_token_response(wanted)
        return answer

    async def revoke(self, request: Request) -> Response:
        return await self._call(request, self._endpoint("revocation"))

    async def introspect(self, request: Request) -> Response:
        return await self._call(request, self._endpoint("introspection"))

    def _endpoint(self, name: str) -> Callable[[EndpointRequest], Answer]:
        return lambda wanted: self.server.create_endpoint_response(name, wanted)

    async def _call(
        self,
        request: Request,
        call: Callable[[EndpointRequest], Answer],
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        try:
            parameters = Parameters(await body_of(request, FORM))
            parameters.check(SPELLING)
            issuer = self.settings.issuer
            answer = call(EndpointRequest("POST", issuer, parameters, request.headers))
        except OAuth2Error as error:
            answer = self.server.handle_error_response(None, error)
        return JSONResponse(answer.body, answer.status, {**answer.headers, **(headers or {})})

    async def register(self, request: Request) -> Response:
        try:
            content = from_json(await body_of(request, "application/json"))
            answer: Answer = self.server.create_endpoint_response(
                "client_registration", JSONRequest(content)
            )
        except OAuth2Error as error:
            answer = self.server.handle_error_response(None, error)
        except ValueError:
            answer = self.server.handle_error_response(
                None, InvalidRequestError("The body is not JSON.")
            )
        return JSONResponse(answer.body, answer.status, {**answer.headers, **CORS})
