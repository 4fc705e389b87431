"""Serve a call of an older client: the server plays the client of the rounds.

It runs a round as if today's client had sent it, sends what the round asks to the client as
requests, and gives the answers to the next round together with its state, until there is a result.
So all that holds for rounds holds here: limits, lifetimes, what a state is bound to, validation,
asking again, `single_use`. Nothing of a handler or a dependency lives while somebody is asked.

Knows no HTTP.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, cast

from pydantic_core import from_json

from fastapi_mcp_mrtr.errors import (
    INPUT_REFUSED,
    INVALID_PARAMS,
    URL_ELICITATION_REQUIRED,
    MCPError,
    MissingClientCapability,
    RequestStateError,
    UnreadableAnswer,
)
from fastapi_mcp_mrtr.protocol.inbound import InboundRequest, RequestMeta
from fastapi_mcp_mrtr.protocol.jsonrpc import encode, encode_notification
from fastapi_mcp_mrtr.protocol.older import OlderRequest, older_error
from fastapi_mcp_mrtr.rounds.sentinels import Log
from fastapi_mcp_mrtr.server.calls import Call, Exchange
from fastapi_mcp_mrtr.server.dialogue import Dialogue
from fastapi_mcp_mrtr.server.dispatch import MCPServer
from fastapi_mcp_mrtr.server.injection import RequestDependencies
from fastapi_mcp_mrtr.server.results import tool_error
from fastapi_mcp_mrtr.server.single_use import IDEMPOTENCY_KEY
from fastapi_mcp_mrtr.state.sessions.session_id import Session

from .asks import Asks, Unanswered
from .translate import older_list, older_result

_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 5.0
"""Seconds between two rounds of a handler that says `not_yet()`: they double."""

_MAX_REMEMBERED: Final = 256
"""Log messages of a call that are not sent again when a round replays them."""

_USED_KEY: Final = (
    "This idempotency key was used for another call, or for one that cannot be made again any "
    "more. Begin anew with another key"
)
"""What everybody reads whose call with a key is refused, whatever the ledger has against it."""

_ANSWERED_OTHERWISE: Final = (
    "This call was answered otherwise meanwhile. Make it again with the same idempotency key to "
    "learn what came of it"
)

_sleep: Final = asyncio.sleep


class OlderExchange(Exchange, Protocol):
    """The transport's side of one request of an older client."""

    @property
    def may_ask(self) -> bool:
        """Whether requests can be sent to the client: it takes a stream."""
        ...


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, and the dependencies of the round that is about to run."""

    principal: Any
    principal_key: bytes
    dependencies: RequestDependencies


NextCaller = Callable[[], AbstractAsyncContextManager[Caller]]
"""Resolves the principal again, with dependencies of their own lifetime, for another round."""


class Bridge:
    """Answers what older and today's clients ask for alike. Knows nothing of a call that ended."""

    def __init__(self, server: MCPServer, asks: Asks) -> None:
        self._server = server
        self._asks = asks

    async def answer(
        self,
        request: OlderRequest,
        session: Session,
        log_level: str | None,
        exchange: OlderExchange,
        caller: Caller,
        next_caller: NextCaller,
    ) -> bytes:
        """The encoded result of a request, as the session's revision has it.

        Raises:
            MCPError: the error to answer with.
            ClientLeft: the client cancelled the call, or has gone for good.
            SessionStoreUnavailable: it asks, and answers could not arrive.
            Exception: what a dependency raised.
        """
        call = _BridgedCall(self._server, self._asks, request, session, exchange)
        try:
            result = await call.run(log_level, caller, next_caller)
        except MissingClientCapability as error:
            return _unanswered(request, f"This client cannot be asked: {_lacking(error)}")
        except Unanswered as error:
            return _unanswered(request, str(error))
        except MCPError as error:
            raise older_error(request.method, error) from None
        if isinstance(result, bytes):
            return older_list(request.method, result, session.version)
        return encode(older_result(request.method, result, session.version))


class _BridgedCall:
    """One call and what has become of it, from round to round."""

    def __init__(
        self,
        server: MCPServer,
        asks: Asks,
        request: OlderRequest,
        session: Session,
        exchange: OlderExchange,
    ) -> None:
        self._server = server
        self._asks = asks
        self._request = request
        self._session = session
        self._exchange = exchange
        self._urls: dict[str, str] = {}
        """The elicitation ids of the pages that users agreed to visit, by key."""
        self._deadline: float | None = None
        """Until when a handler may say `not_yet()`, by the clock of the event loop."""
        self._pause = _FIRST_PAUSE
        self._asked: Mapping[str, Any] | None = None
        """What the last round asked."""
        self._dialogue: Dialogue | None = None
        """What the rounds were given, where the call can be made again."""

    async def run(
        self, log_level: str | None, caller: Caller, next_caller: NextCaller
    ) -> dict[str, Any] | bytes:
        """Run rounds until one has a result, in today's form: its members, or a list's bytes."""
        request, session = self._request, self._session
        meta = RequestMeta(
            session.version,
            session.capabilities,
            session.client_info,
            log_level,
            request.progress_token,
            _text(request.meta.get("traceparent")),
            _text(request.meta.get("tracestate")),
            request.meta,
        )
        message = InboundRequest(request.id, request.method, request.params, meta)
        round = _Round(message, caller, self._exchange, None)
        result = await self._result(round)
        while result is None or (not isinstance(result, bytes) and _asks(result)):
            given = await self._exchange.guard(self._given(round, result))
            message = replace(message, params={**request.params, **given})
            async with next_caller() as caller:
                round = _Round(message, caller, self._exchange, round)
                result = await self._result(round)
        await self._pages_are_done()
        return result

    async def _result(self, round: "_Round") -> dict[str, Any] | bytes | None:
        """The result of a round. None: refused, as it is where the call was made before."""
        try:
            result = await self._server.answer(round)
        except RequestStateError:
            if self._dialogue_of(round) is None:
                raise
            return None
        except UnreadableAnswer:
            # Who makes the call again is asked again.
            if self._dialogue is not None and self._asked is not None:
                await self._dialogue.add(self._asked)
            raise
        if not isinstance(result, bytes):
            assert isinstance(result, dict)
            return result
        is_list = self._request.method.endswith("/list")
        return result if is_list else cast("dict[str, Any]", from_json(result))

    async def _given(self, round: "_Round", asked: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """What the next round is given: a state and answers, those of whoever was first."""
        dialogue = self._dialogue_of(round)
        if dialogue is not None:
            last = await dialogue.last()
            if last is not None and not _asks(last):
                return last
            asked = last or asked
        if asked is None:
            raise MCPError(INVALID_PARAMS, _USED_KEY)
        self._asked = asked
        answers = await self._between(round.message, asked)
        given: Mapping[str, Any] = {"requestState": asked["requestState"]}
        if answers is not None:
            given = {**given, "inputResponses": answers}
        if dialogue is None:
            return given
        kept = await dialogue.add(given)
        if kept is None:
            return await self._given(round, None)
        if kept != given:
            raise Unanswered(_ANSWERED_OTHERWISE)
        return kept

    def _dialogue_of(self, round: "_Round") -> Dialogue | None:
        if self._dialogue is None and IDEMPOTENCY_KEY in self._request.meta:
            self._dialogue = self._server.dialogue(round)
        return self._dialogue

    async def _between(
        self, message: InboundRequest, asked: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """What has to happen before the next round: answers, or time. Nothing else is alive."""
        seconds = self._server.ask_timeout(message)
        requests = asked.get("inputRequests")
        if requests is None:
            await self._wait(seconds)
            return None
        await self._pages_are_done()
        if not self._exchange.may_ask:
            raise _cannot_stream(requests)
        answers, urls = await self._asks.ask(
            requests, self._session, self._exchange, seconds=seconds
        )
        for key, elicitation_id in urls.items():
            answer = answers[key]
            if isinstance(answer, dict) and answer.get("action") == "accept":
                self._urls[key] = elicitation_id
        return answers

    async def _wait(self, seconds: float) -> None:
        """Wait for what a handler waits for, a page for instance; today's clients come back."""
        now = asyncio.get_running_loop().time()
        if self._deadline is None:
            self._deadline = now + seconds
            self._pause = _FIRST_PAUSE
        if not now + self._pause <= self._deadline:
            raise Unanswered(f"Not finished within {seconds:g} seconds")
        self._asks.waits += 1
        await _sleep(self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    async def _pages_are_done(self) -> None:
        """Say so for pages that the handler waited for and no longer waits for
        (elicitation §Completion Notifications)."""
        if self._deadline is not None:
            for elicitation_id in self._urls.values():
                params = {"elicitationId": elicitation_id}
                await self._exchange.notify(
                    encode_notification("notifications/elicitation/complete", params)
                )
            self._urls.clear()
            self._deadline = None


class _Round(Call):
    """One round. What rounds before it have shown is not shown again when they are replayed."""

    __slots__ = ("_replayed", "_shown")

    def __init__(
        self,
        message: InboundRequest,
        caller: Caller,
        exchange: OlderExchange,
        before: "_Round | None",
    ) -> None:
        super().__init__(
            message=message,
            headers=None,
            principal=caller.principal,
            principal_key=caller.principal_key,
            dependencies=caller.dependencies,
            exchange=exchange,
        )
        self._replayed = 0
        self._shown: list[int] = []
        if before is not None:
            self._shown = before._shown
            # For the client it is one call: its progress goes on increasing.
            self._last_progress = before._last_progress

    def _log(self, log: Log) -> bytes | None:
        encoded = super()._log(log)
        if encoded is None:
            return None
        at, known = self._replayed, hash(encoded)
        self._replayed += 1
        if at < len(self._shown):
            if self._shown[at] == known:
                return None
            del self._shown[at:]  # it went another way this time
        if at < _MAX_REMEMBERED:
            self._shown.append(known)
        return encoded


def _asks(result: Mapping[str, Any]) -> bool:
    return result.get("resultType") == "input_required"


def _unanswered(request: OlderRequest, text: str) -> bytes:
    """The end of a call whose asks came to nothing: readable by the model, where there is one.

    Raises:
        MCPError: -31001, for prompts and resources.
    """
    if request.method == "tools/call":
        return encode(tool_error(text))
    raise MCPError(INPUT_REFUSED, text)


def _lacking(error: MissingClientCapability) -> str:
    """What a client would have had to declare."""
    names = [
        f"{name} ({', '.join(sorted(members))})" if members else name
        for name, members in error.data["requiredCapabilities"].items()
    ]
    return f"it has not declared {' and '.join(names)}"


def _cannot_stream(requests: Mapping[str, Any]) -> Exception:
    """Why a client that takes no stream gets no result: requests reach it on streams only.

    A page, it may be sent to all the same, and call again after that (2025-11-25, elicitation §URL
    Elicitation Required Error).
    """
    pages = [request["params"] for request in requests.values()]
    if all(page.get("mode") == "url" for page in pages):
        elicitations = [{**page, "elicitationId": secrets.token_urlsafe(16)} for page in pages]
        return MCPError(
            URL_ELICITATION_REQUIRED,
            "This request needs a page to be visited first",
            {"elicitations": elicitations},
        )
    return Unanswered("This client cannot be asked: it accepts no text/event-stream")


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
