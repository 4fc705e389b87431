"""Asks on their way to an older client and its answers on their way back, by whichever worker.

Knows no handler and no HTTP.
"""

import asyncio
import re
import secrets
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, Protocol

from pydantic_core import from_json

from fastapi_mcp_mrtr.protocol.jsonrpc import encode, encode_notification
from fastapi_mcp_mrtr.protocol.older import OlderAnswer
from fastapi_mcp_mrtr.state.codec import RequestStateCodec
from fastapi_mcp_mrtr.state.keys import KeyRing
from fastapi_mcp_mrtr.state.sealed import ASK, KeyedHash
from fastapi_mcp_mrtr.state.sessions.protocol import LISTENER_LIMIT, Listener, SessionStore
from fastapi_mcp_mrtr.state.sessions.session_id import Session

from .translate import CannotAsk, older_ask

_ABOUT: Final = "io.github.fastapi-mcp-mrtr/ask"
_PURPOSE: Final = b"answer"
_ASK_ID: Final = re.compile(r"(([A-Za-z0-9_-]{16})-([0-9a-f]{32}))\.(0|[1-9][0-9]{0,3})", re.ASCII)
_RANDOM_BYTES: Final = 12

_MAX_ANSWERED: Final = 4096
"""Asks of which a process remembers that their answer came."""


class Unanswered(Exception):
    """An ask came to nothing. The text, which the client may read, says which and why."""


class Sender(Protocol):
    """The stream to the client."""

    async def notify(self, message: bytes) -> None:
        """Send a message before the response."""


class Asks:
    """Sends the asks of a round as requests, and waits for their answers.

    The ids of one round share a random part, which is what the round listens for, and a hash that
    says to which session it was sent. So nobody can answer what was not asked of them, and what is
    no answer does not get as far as the store, which all sessions share.
    """

    def __init__(
        self,
        store: SessionStore,
        codec: RequestStateCodec,
        keys: KeyRing,
        *,
        max_asks_per_session: int,
    ) -> None:
        self._store = store
        self._codec = codec
        self._keys = keys
        self._hash = KeyedHash(keys, ASK)
        self._answered: OrderedDict[str, None] = OrderedDict()
        self._max_asks = max_asks_per_session
        self._open: Counter[str] = Counter()
        """How many asks wait in this process, by session."""
        self.waits = 0
        """How often a handler said `not_yet()`; for tests, which may do something about it."""

    def __len__(self) -> int:
        """How many asks wait in this process."""
        return self._open.total()

    async def ask(
        self, requests: Mapping[str, Any], session: Session, sender: Sender, *, seconds: float
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """The answers by key, and by key the elicitation ids of the URLs users were sent to.

        Raises:
            Unanswered: the client cannot be asked, did not answer in time, or with an error.
            SessionStoreUnavailable: answers could not reach this worker.
        """
        nonce = self._nonce(session)
        keys = list(requests)
        messages: list[bytes] = []
        try:
            for number, key in enumerate(keys):
                ask_id = f"{nonce}.{number}"
                ask = older_ask(requests[key], session.version, ask_id)
                # Today's clients see keys, too, and how many questions come together.
                about = {_ABOUT: {"key": key, "of": len(keys)}}
                ask["params"] = {**ask.get("params", {}), "_meta": about}
                messages.append(encode({"jsonrpc": "2.0", "id": ask_id, **ask}))
        except CannotAsk as error:
            raise Unanswered(f"This client cannot be asked: {error}") from None
        limit = max(LISTENER_LIMIT, 2 * len(keys))
        topic = _topic(session.uid, nonce)
        with self._counted(session, len(keys)):
            async with self._store.listen(topic, limit=limit) as listener:
                for message in messages:
                    await sender.notify(message)
                answers = await self._collect(listener, keys, topic, sender, seconds)
        urls = {
            key: f"{nonce}.{number}"
            for number, key in enumerate(keys)
            if requests[key]["params"].get("mode") == "url"
        }
        return answers, urls

    async def deliver(self, answer: OlderAnswer, session: Session) -> None:
        """Take an answer to whoever waits for it. Dropped if nobody does, here or elsewhere.

        The first one counts, so what comes after it is dropped here if this process had it.

        Raises:
            SessionStoreUnavailable: it may not have reached another worker.
        """
        match = _ASK_ID.fullmatch(answer.id) if isinstance(answer.id, str) else None
        if match is None:
            return
        ask_id, nonce, random, tag, number = match.group(), *match.groups()
        asked = _asked(session, random)
        is_ours = any(self._hash.fits(tag, kid, asked) for kid in self._keys.kids)
        if not is_ours or ask_id in self._answered:
            return
        with suppress(ValueError):  # what JSON cannot carry on is no answer
            said = encode([int(number), answer.result, answer.error])
            # The operator of the store can neither read answers nor make any.
            topic = _topic(session.uid, nonce)
            sealed = self._codec.seal(topic.encode() + b"\n" + said, purpose=_PURPOSE)
            await self._store.publish(topic, sealed.encode("ascii"))
            self._answered[ask_id] = None
            if len(self._answered) > _MAX_ANSWERED:
                self._answered.popitem(last=False)

    def _nonce(self, session: Session) -> str:
        random = secrets.token_urlsafe(_RANDOM_BYTES)
        return f"{random}-{self._hash.make(self._keys.primary_kid, _asked(session, random))}"

    @contextmanager
    def _counted(self, session: Session, number: int) -> Iterator[None]:
        if self._open[session.uid] + number > self._max_asks:
            raise Unanswered("Too many questions wait for answers in this session")
        self._open[session.uid] += number
        try:
            yield
        finally:
            self._open[session.uid] -= number
            if not self._open[session.uid]:
                del self._open[session.uid]

    async def _collect(
        self, listener: Listener, keys: list[str], topic: str, sender: Sender, seconds: float
    ) -> dict[str, Any]:
        nonce = topic.rpartition(":")[2]
        answers: dict[int, Any] = {}
        waiting = set(range(len(keys)))
        try:
            async with asyncio.timeout(seconds):
                while waiting:
                    number, result, error = self._open_answer(await listener.receive(), topic)
                    if number not in waiting:  # the first one counts
                        continue
                    waiting.remove(number)
                    answers[number] = result
                    if error is not None:
                        raise Unanswered(f"The client refused {keys[number]!r}: {_said(error)}")
        except TimeoutError:
            await _withdraw(sender, nonce, waiting)
            names = ", ".join(repr(keys[number]) for number in sorted(waiting))
            raise Unanswered(f"Nobody answered {names} within {seconds:g} seconds") from None
        except Unanswered:
            await _withdraw(sender, nonce, waiting)
            raise
        return {keys[number]: answers[number] for number in sorted(answers)}

    def _open_answer(self, sealed: bytes, topic: str) -> tuple[int, Any, Any]:
        """The number of the ask, what was answered, and the error if that is what it was."""
        try:
            opened = self._codec.unseal(sealed.decode("ascii"), purpose=_PURPOSE)
            place, _, said = opened.partition(b"\n")
            if place.decode() != topic:
                return _NO_ANSWER
            number, result, error = from_json(said)
        except Exception:  # a codec may raise whatever it likes
            return _NO_ANSWER
        return number, result, error


_NO_ANSWER: Final = (-1, None, None)


def _asked(session: Session, random: str) -> bytes:
    """What says to which session a round was sent."""
    return f"{session.uid}\n{random}".encode()


def _topic(uid: str, nonce: str) -> str:
    return f"answer:{uid}:{nonce}"


async def _withdraw(sender: Sender, nonce: str, numbers: Iterable[int]) -> None:
    """Tell the client that an answer would come too late (lifecycle §Timeouts)."""
    for number in sorted(numbers):
        params = {"requestId": f"{nonce}.{number}", "reason": "Nobody waits for it any more"}
        await sender.notify(encode_notification("notifications/cancelled", params))


def _said(error: Mapping[str, Any]) -> str:
    """An excerpt of a client's error, for that client and its model."""
    return f"{str(error.get('message', ''))[:200]} ({str(error.get('code'))[:20]})"
