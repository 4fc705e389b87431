"""The endpoint as older revisions know it: sessions, POST, GET and DELETE. Imported by the router.

Origin, principal, media type and size are checked before, as for everybody. Then, in this order:
shape of the message (400) → session id (400 without, 404 for one that is none) → the message.
To a session every JSON-RPC error travels with 200: a 404 would mean that the session is over.
Knows no handler.
"""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Final

from fastapi import Response

from fastapi_mcp_mrtr.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    RESOURCE_NOT_FOUND,
    MCPError,
    SessionNotFound,
)
from fastapi_mcp_mrtr.protocol.headers import RequestHeaders
from fastapi_mcp_mrtr.protocol.inbound import id_of, is_id
from fastapi_mcp_mrtr.protocol.jsonrpc import encode_error, encode_result
from fastapi_mcp_mrtr.protocol.older import (
    FORWARDED,
    LAST_EVENT_ID,
    SESSION_ID,
    OlderAnswer,
    OlderNotification,
    OlderRequest,
    older_message,
    read_initialize,
    read_level,
    read_message,
    read_messages,
    read_uri,
)
from fastapi_mcp_mrtr.server.calls import ClientLeft
from fastapi_mcp_mrtr.server.dispatch import MCPServer
from fastapi_mcp_mrtr.server.failures import protocol_error, readable
from fastapi_mcp_mrtr.server.injection import RequestDependencies
from fastapi_mcp_mrtr.server.older.asks import Asks
from fastapi_mcp_mrtr.server.older.bridge import Bridge, Caller
from fastapi_mcp_mrtr.server.older.events import Recorder, Replay, UnknownEvent
from fastapi_mcp_mrtr.server.older.listening import ListeningStream
from fastapi_mcp_mrtr.server.older.sessions import OpenSession, Sessions
from fastapi_mcp_mrtr.server.results import tool_error
from fastapi_mcp_mrtr.server.subscriptions import Bus
from fastapi_mcp_mrtr.state.codec import RequestStateCodec
from fastapi_mcp_mrtr.state.sessions.protocol import (
    MAX_URIS,
    SessionStore,
    SessionStoreUnavailable,
)
from fastapi_mcp_mrtr.state.sessions.session_id import Session

from .arrival import Arrival
from .endpoint import app_handles, carry_over_headers, stopped, takes_stream
from .exchange import AlreadySent, JSONBytes, StreamSettings, event
from .session_exchange import AWAY_SECONDS, SessionExchange

logger = logging.getLogger("fastapi_mcp_mrtr")

_NO_SESSION: Final = "Session not found"
"""What everybody reads whose session id is not good, whatever is wrong with it."""

_ONCE: Final = frozenset({SESSION_ID, LAST_EVENT_ID, "mcp-protocol-version"})
"""Headers that somebody on the way may have read otherwise if they were sent twice."""

_TRY_AGAIN: Final = "Try again later"


class OlderEndpoint:
    """Answers the requests of older clients. Holds settings only, nothing about a session."""

    def __init__(
        self,
        *,
        server: MCPServer,
        sessions: Sessions,
        store: SessionStore,
        codec: RequestStateCodec,
        asks: Asks,
        bridge: Bridge,
        bus: Bus,
        streams: StreamSettings,
        ask_timeout: float,
    ) -> None:
        self._server = server
        self._sessions = sessions
        self._store = store
        self._codec = codec
        self._asks = asks
        self._bridge = bridge
        self._bus = bus
        self._streams = streams
        self._kept = ask_timeout + 2 * AWAY_SECONDS

    def message(self, headers: RequestHeaders, body: bytes) -> Any:
        """The JSON of a POST that is an older client's; None if it is not."""
        return older_message(headers, body, self._sessions.versions)

    async def post(self, arrival: Arrival, message: Any) -> Response:
        """Answer a POST."""
        if isinstance(message, dict) and message.get("method") == "initialize":
            return self._initialize(arrival, message)
        try:
            opened = await self._open(arrival)
        except _Refused as refused:
            return refused.response
        version = opened.session.version
        try:
            is_batch, messages = read_messages(message, version)
        except MCPError as error:
            return JSONBytes(encode_error(id_of(message), error.code, error.message), 400)
        try:
            requests = [m for m in messages if isinstance(m, OlderRequest)]
            for said in messages:
                if not isinstance(said, OlderRequest):
                    await self._take(said, opened)
        except SessionStoreUnavailable as error:
            return JSONBytes(_unavailable(error), 503)
        if not requests:
            return Response(status_code=202)
        exchange = self._exchange(arrival, requests[0], opened)
        try:
            if is_batch:
                body = await self._batch(arrival, requests, opened, exchange)
            else:
                body = await self._reply(arrival, arrival.caller, requests[0], opened, exchange)
        except ClientLeft:
            # cancellation §Behavior Requirements: nothing is sent for it.
            await exchange.abandon(stopped(requests[0].id) if exchange.is_cut else b"")
            return AlreadySent() if exchange.is_streaming else Response(status_code=202)
        except BaseException:
            await exchange.abandon()
            raise
        return AlreadySent() if await exchange.finish(body) else JSONBytes(body)

    # ------------------------------------------------------------------------------ sessions

    def _initialize(self, arrival: Arrival, message: dict[str, Any]) -> Response:
        try:
            request = read_message(message)
            if not isinstance(request, OlderRequest):
                raise MCPError(INVALID_REQUEST, "Invalid request: initialize needs an id")
            asked = read_initialize(request.params, self._sessions.versions)
        except MCPError as error:
            body = encode_error(id_of(message), error.code, error.message, error.data)
            return JSONBytes(body, 400)
        result = self._server.initialization(asked.version)
        response = JSONBytes(encode_result(request.id, result))
        session_id = self._sessions.begin(asked, arrival.caller.principal_key)
        response.headers["Mcp-Session-Id"] = session_id
        return response

    async def _open(self, arrival: Arrival) -> OpenSession:
        """The session of a request. Raises: _Refused."""
        session_id = arrival.headers.get(SESSION_ID)
        if session_id is None:
            raise _bad_request(
                "The Mcp-Session-Id header is required; it comes with the answer to initialize"
            )
        if contradicted := arrival.headers.conflicts & _ONCE:
            raise _bad_request(f"{min(contradicted)} was sent twice with different values")
        try:
            return await self._sessions.open(session_id, arrival.caller.principal_key)
        except SessionNotFound:
            body = encode_error(None, INVALID_REQUEST, _NO_SESSION)
            raise _Refused(JSONBytes(body, 404)) from None
        except SessionStoreUnavailable as error:
            raise _Refused(JSONBytes(_unavailable(error), 503)) from None

    async def get(self, arrival: Arrival) -> Response:
        """Open a stream: the session's own, or one that was lost (transports §Listening)."""
        if not takes_stream(arrival.headers):
            message = "A GET opens a stream: it needs Accept: text/event-stream"
            return JSONBytes(encode_error(None, INVALID_REQUEST, message), 406)
        try:
            opened = await self._open(arrival)
        except _Refused as refused:
            return refused.response
        event_id = arrival.headers.get(LAST_EVENT_ID)
        if event_id is not None:
            return await self._resume(opened.session, event_id)
        stream = ListeningStream(
            opened.session,
            sessions=self._sessions,
            store=self._store,
            bus=self._bus,
            kinds=self._server.kinds,
        )
        left = self._sessions.ends_in(opened.session)
        expires = self._server.expires_in(arrival.caller, at_most=left)
        return self._streams.until(expires, stream.messages(), stream.close)

    async def _resume(self, session: Session, event_id: str) -> Response:
        replay = Replay(self._store, self._codec, self._sessions, session)
        events = replay.events_after(event_id)
        try:
            await anext(events)
        except UnknownEvent:
            message = "There is no such event, or it is no longer known"
            return JSONBytes(encode_error(None, INVALID_REQUEST, message), 400)
        except SessionStoreUnavailable as error:
            return JSONBytes(_unavailable(error), 503)
        return self._streams.response(_numbered(events))

    async def delete(self, arrival: Arrival) -> Response:
        """End a session (transports §Session Management 5)."""
        try:
            opened = await self._open(arrival)
            await self._sessions.end(opened.session)
        except _Refused as refused:
            return refused.response
        except SessionStoreUnavailable as error:
            return JSONBytes(_unavailable(error), 503)
        return Response(status_code=204)

    # ------------------------------------------------------------------------------ messages

    async def _take(self, said: OlderNotification | OlderAnswer, opened: OpenSession) -> None:
        """A message that has no answer."""
        if isinstance(said, OlderAnswer):
            await self._asks.deliver(said, opened.session)
        elif said.method == "notifications/cancelled":
            request_id = said.params.get("requestId")
            if is_id(request_id):
                await self._sessions.cancel(opened.session, request_id)

    async def _batch(
        self,
        arrival: Arrival,
        requests: Sequence[OlderRequest],
        opened: OpenSession,
        exchange: SessionExchange,
    ) -> bytes:
        """The responses to a batch, one after the other (2025-03-26).

        Raises:
            ClientLeft: there is nobody to answer any more.
        """
        replies: list[bytes] = []
        for number, request in enumerate(requests):
            exchange.begin(request.id)
            try:
                if number == 0:
                    caller = arrival.caller
                    reply = await self._reply(arrival, caller, request, opened, exchange, late=True)
                else:
                    reply = await self._next_reply(arrival, request, opened, exchange)
            except ClientLeft:
                if not exchange.is_cancelled:
                    raise
            else:
                replies.append(reply)
        return b"[%b]" % b",".join(replies)

    async def _next_reply(
        self,
        arrival: Arrival,
        request: OlderRequest,
        opened: OpenSession,
        exchange: SessionExchange,
    ) -> bytes:
        """The response to a later request of a batch, which has dependencies of its own."""
        try:
            async with arrival.again() as caller:
                return await self._reply(arrival, caller, request, opened, exchange, late=True)
        except Exception as error:
            return _late(request, error)

    async def _reply(
        self,
        arrival: Arrival,
        caller: Caller,
        request: OlderRequest,
        opened: OpenSession,
        exchange: SessionExchange,
        *,
        late: bool = False,
    ) -> bytes:
        """The response to a request, whatever comes of it. `late`: the status is no more to say.

        Raises:
            ClientLeft: there is nobody to answer.
            Exception: what a dependency raised, for the app or the endpoint to answer.
        """
        own = _OWN.get(request.method)
        try:
            if request.method in FORWARDED:
                result = await self._bridge.answer(
                    request, opened.session, opened.data.log_level, exchange, caller, arrival.again
                )
            elif own is not None:
                await own(self, caller, request.params, opened)
                result = b"{}"
            else:
                raise MCPError(METHOD_NOT_FOUND, "Method not found")
            return encode_result(request.id, result)
        except MCPError as error:
            return encode_error(request.id, error.code, error.message, error.data)
        except SessionStoreUnavailable as error:
            return _unavailable(error, request.id)
        except Exception as error:
            late = late or exchange.is_streaming
            if not late and app_handles(error, caller.dependencies.request):
                raise
            return _late(request, error)

    def _exchange(
        self, arrival: Arrival, request: OlderRequest, opened: OpenSession
    ) -> SessionExchange:
        session = opened.session
        exchange = SessionExchange(
            arrival.connection,
            store=self._store,
            session=session,
            recorder=Recorder(self._store, self._codec, session, kept=self._kept),
            request_id=request.id,
        )
        if takes_stream(arrival.headers):
            exchange.may_stream(partial(self._stream, arrival.caller.dependencies))
        return exchange

    def _stream(self, dependencies: RequestDependencies, events: AsyncIterator[bytes]) -> Response:
        response = self._streams.response(events)
        carry_over_headers(dependencies, response)
        return response

    async def _ping(
        self, caller: Caller, params: Mapping[str, Any], opened: OpenSession
    ) -> None: ...

    async def _set_level(
        self, caller: Caller, params: Mapping[str, Any], opened: OpenSession
    ) -> None:
        await self._sessions.set_log_level(opened.session, read_level(params))

    async def _subscribe(
        self, caller: Caller, params: Mapping[str, Any], opened: OpenSession
    ) -> None:
        uri = read_uri(params)
        if not self._server.has_resource(caller, uri):
            raise MCPError(RESOURCE_NOT_FOUND, "Resource not found", {"uri": uri})
        if not await self._sessions.subscribe(opened.session, uri):
            raise MCPError(INVALID_PARAMS, f"A session has at most {MAX_URIS} subscriptions")

    async def _unsubscribe(
        self, caller: Caller, params: Mapping[str, Any], opened: OpenSession
    ) -> None:
        await self._sessions.unsubscribe(opened.session, read_uri(params))


_OWN: Final[Mapping[str, Callable[..., Awaitable[None]]]] = {
    "ping": OlderEndpoint._ping,
    "logging/setLevel": OlderEndpoint._set_level,
    "resources/subscribe": OlderEndpoint._subscribe,
    "resources/unsubscribe": OlderEndpoint._unsubscribe,
}
"""The requests that are about the session itself. Their result is empty."""


async def _numbered(
    events: AsyncGenerator[tuple[str, bytes] | None, None],
) -> AsyncIterator[bytes]:
    try:
        async with aclosing(events):
            async for numbered in events:
                assert numbered is not None  # that was the first one
                event_id, message = numbered
                yield b"id: %b\r\n%b" % (event_id.encode(), event(message))
    except SessionStoreUnavailable as error:
        # The client comes back for what is missing, later.
        logger.error("The session store is unavailable: %s", error)


class _Refused(Exception):
    """A request that belongs to no session: what it is answered with."""

    def __init__(self, response: Response) -> None:
        super().__init__()
        self.response = response


def _bad_request(message: str) -> _Refused:
    return _Refused(JSONBytes(encode_error(None, INVALID_REQUEST, message), 400))


def _unavailable(error: Exception, request_id: str | int | None = None) -> bytes:
    logger.error("The session store is unavailable: %s", error)
    return encode_error(request_id, INTERNAL_ERROR, _TRY_AGAIN, {"retryable": True})


def _late(request: OlderRequest, error: Exception) -> bytes:
    """What a dependency raised in a later round, when the status had been sent long ago."""
    text = readable(error) if request.method == "tools/call" else None
    if text is not None:
        return encode_result(request.id, tool_error(text))
    known = protocol_error(error, f"{request.method} (request {str(request.id)[:64]!r})")
    return encode_error(request.id, known.code, known.message, known.data)
