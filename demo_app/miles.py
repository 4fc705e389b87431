"""The desk as a client of Nimbus Miles: how customers connect an account, and what for.

What a customer gives the desk there is the desk's to keep: tokens are in the database under the
customer who has brought them, and go to Nimbus Miles and nowhere else. Knows no MCP and no page.
"""

import asyncio
import hmac
import json
import logging
import secrets
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import anyio
import httpx2
from authlib.integrations.base_client import OAuthError
from authlib.integrations.httpx_client import AsyncOAuth2Client
from sqlalchemy import delete, select

from .db import sha256
from .desk import Desk
from .errors import NotFound
from .miles_club import Balance, Registration
from .models import Connection, ConnectionStatus, MilesToken
from .payments import POLL_SECONDS
from .schemas import ConnectionView

logger = logging.getLogger(__name__)

LIFETIME: Final = timedelta(minutes=10)
"""How long a link may be used, and how long somebody may take at Nimbus Miles."""

SCOPE: Final = "miles:read"


class NotConnected(Exception):
    """The desk has nothing to ask Nimbus Miles with for this customer, or no longer."""


class Refused(Exception):
    """A browser came back in a way that connects nothing. The text is for the log."""


class Miles:
    """Connections to Nimbus Miles. Each is begun by a flow and made by a browser of one customer.

    Args:
        registration: what is known of Nimbus Miles.
        transport: how it is called; `None` is the network.
        patience: how many seconds `outcome` waits.
    """

    def __init__(
        self,
        desk: Desk,
        registration: Registration,
        *,
        transport: httpx2.AsyncBaseTransport | None,
        patience: float,
    ) -> None:
        self._desk = desk
        self._there = registration
        self._transport = transport
        self._patience = patience
        # Two that refresh one token look like a thief and a victim, and then both lose it.
        self._one_at_a_time = anyio.Lock()

    # --------------------------------------------------------------------------- connecting

    async def begin(self, customer_id: str, idempotency_key: str) -> ConnectionView | None:
        """Begin to connect an account; `None`: there is one. The same key, the same connection."""
        async with self._desk.database.writing() as session:
            row = await session.scalar(
                select(Connection).where(
                    Connection.customer_id == customer_id,
                    Connection.idempotency_key == idempotency_key,
                )
            )
            if row is None:
                if await session.get(MilesToken, customer_id):
                    return None
                row = Connection(
                    id=secrets.token_urlsafe(16),
                    customer_id=customer_id,
                    status=ConnectionStatus.OPEN,
                    idempotency_key=idempotency_key,
                    expires_at=self._desk.now() + LIFETIME,
                )
                session.add(row)
                await session.flush()
            return self._view(row)

    async def get(self, connection_id: str) -> ConnectionView:
        """Raises: NotFound. Whose connection it is, the caller must check."""
        async with self._desk.database.reading() as session:
            row = await session.get(Connection, connection_id)
            if row is None:
                raise NotFound("such connection")
            return self._view(row)

    async def depart(self, connection: ConnectionView, browser: str) -> str | None:
        """The link to Nimbus Miles for this browser, and for it alone; `None`: it is too late.

        Who goes there a second time gets a new `state`, and the first one is worth nothing.
        """
        state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(48)
        async with self._desk.database.writing() as session:
            row = await session.get_one(Connection, connection.id)
            if self._view(row).status is not ConnectionStatus.OPEN:
                return None
            row.state_sha256 = sha256(state)
            row.browser_sha256 = sha256(browser)
            row.code_verifier = verifier
            row.expires_at = self._desk.now() + LIFETIME
        async with self._client() as client:
            link, _ = client.create_authorization_url(
                self._there.authorization_endpoint,
                state=state,
                code_verifier=verifier,
                resource=self._there.api,
            )
        return str(link)

    async def arrive(
        self, answer: Mapping[str, str], *, browser: str, customer_id: str
    ) -> ConnectionView:
        """A browser is back from Nimbus Miles, with its answer. A `state` is good for one answer.

        Raises:
            Refused: nobody was sent there with this `state` or somebody else was, it is too late,
                or the answer is not from there. Nothing is connected.
        """
        found = await self._use_state(answer.get("state", ""), browser, customer_id)
        if answer.get("iss") != self._there.issuer:
            raise Refused("another issuer answered")
        connection, verifier = found
        if "code" not in answer:
            return await self._settle(connection, ConnectionStatus.ABANDONED)
        try:
            async with self._client() as client:
                token = await client.fetch_token(
                    self._there.token_endpoint,
                    grant_type="authorization_code",
                    code=answer["code"],
                    code_verifier=verifier,
                    redirect_uri=self._there.redirect_uri,
                )
        except (OAuthError, httpx2.HTTPError) as error:
            raise Refused(f"no token: {type(error).__name__}") from None
        return await self._settle(connection, ConnectionStatus.CONNECTED, token)

    async def abandon(self, connection_id: str) -> ConnectionView:
        """Close an open connection. One that is made stays as it is."""
        return await self._settle(connection_id, ConnectionStatus.ABANDONED)

    async def outcome(self, connection: ConnectionView) -> ConnectionStatus:
        """Wait a little for the browser. OPEN means: not yet, ask again."""
        deadline = anyio.current_time() + self._patience
        # The client may leave meanwhile; a query that is cut short would fill the log.
        while (
            status := (await asyncio.shield(self.get(connection.id))).status
        ) is ConnectionStatus.OPEN:
            if anyio.current_time() >= deadline:
                break
            await anyio.sleep(POLL_SECONDS)
        return status

    async def _use_state(self, state: str, browser: str, customer_id: str) -> tuple[str, str]:
        """The connection and the verifier that belong to `state`, which is used up by asking.

        Raises: Refused.
        """
        async with self._desk.database.writing() as session:
            row = await session.scalar(
                select(Connection).where(Connection.state_sha256 == sha256(state))
            )
            if row is None:
                raise Refused("unknown or used state")
            verifier, row.state_sha256, row.code_verifier = row.code_verifier, None, None
            open_still = self._view(row).status is ConnectionStatus.OPEN
            # The person, and the very browser: a link to Nimbus Miles can be passed on as well.
            same_person = row.customer_id == customer_id
            same_browser = hmac.compare_digest(row.browser_sha256 or "", sha256(browser))
            connection_id = row.id
        if not (open_still and same_person and same_browser and verifier):
            raise Refused(f"{open_still=} {same_person=} {same_browser=}")
        return connection_id, verifier

    async def _settle(
        self,
        connection_id: str,
        status: ConnectionStatus,
        token: Mapping[str, Any] | None = None,
    ) -> ConnectionView:
        async with self._desk.database.writing() as session:
            row = await session.get_one(Connection, connection_id)
            if row.status is ConnectionStatus.OPEN:
                row.status = status
                if token is not None:
                    await session.merge(_kept(row.customer_id, token))
            return self._view(row)

    # ------------------------------------------------------------------------------- using

    async def balance(self, customer_id: str) -> Balance:
        """Ask Nimbus Miles, as the customer let the desk. Refreshes the token where it must.

        Raises:
            NotConnected: the customer has connected no account, or has taken the right back.
        """
        async with self._one_at_a_time:
            return await self._balance(customer_id)

    async def _balance(self, customer_id: str) -> Balance:
        async with self._desk.database.reading() as session:
            row = await session.get(MilesToken, customer_id)
        if row is None:
            raise NotConnected

        async def keep(token: Mapping[str, Any], **_: str) -> None:
            async with self._desk.database.writing() as session:
                await session.merge(_kept(customer_id, token))

        try:
            async with self._client(token=json.loads(row.token), update_token=keep) as client:
                answer = await client.get(self._there.api)
        except OAuthError as error:
            logger.info("Nimbus Miles refreshes no token of %s: %s", customer_id, error.error)
            answer = None
        if answer is None or answer.status_code == 401:
            await self.disconnect(customer_id)
            raise NotConnected
        return Balance.model_validate_json(answer.raise_for_status().content)

    async def disconnect(self, customer_id: str) -> None:
        """Forget what the customer gave the desk."""
        async with self._desk.database.writing() as session:
            await session.execute(delete(MilesToken).where(MilesToken.customer_id == customer_id))

    def _client(self, **more: Any) -> Any:
        return AsyncOAuth2Client(
            client_id=self._there.client_id,
            client_secret=self._there.client_secret,
            scope=SCOPE,
            redirect_uri=self._there.redirect_uri,
            code_challenge_method="S256",
            token_endpoint=self._there.token_endpoint,
            transport=self._transport,
            **more,
        )

    def _view(self, row: Connection) -> ConnectionView:
        """As of now: what was not used in time cannot be used any more."""
        view = ConnectionView.model_validate(row)
        if view.status is ConnectionStatus.OPEN and row.expires_at <= self._desk.now():
            view.status = ConnectionStatus.ABANDONED
        return view


def _kept(customer_id: str, token: Mapping[str, Any]) -> MilesToken:
    """A real desk would encrypt this with a key that is not in the database."""
    return MilesToken(customer_id=customer_id, token=json.dumps(token))
