"""What older sessions keep in Redis or Valkey. Knows Lua and keys; no answer, no handler.

A hash for each session, and two keys for each stream of events that a client may have missed. What
workers tell each other is a stream too, which every worker reads on one connection: after an outage
it goes on where it was, and what was said meanwhile is not lost. All of it is bounded and expires.
What the server holds may have been put there by somebody else, so none of it has to make sense.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

from redis.asyncio import Redis, RedisCluster

from fastapi_mcp_mrtr.protocol.inbound import LOG_LEVELS
from fastapi_mcp_mrtr.state.ledger.protocol import milliseconds
from fastapi_mcp_mrtr.state.redis_client import RedisClient, Script, describe
from fastapi_mcp_mrtr.state.remote import PerLoop, Remote

from .listeners import Listeners, QueueListener
from .protocol import (
    LISTENER_LIMIT,
    MAX_EVENT_BYTES,
    MAX_EVENTS,
    MAX_STREAMS,
    MAX_URIS,
    SessionData,
    SessionStoreUnavailable,
    make_event_id,
    read_event_id,
)

logger = logging.getLogger("fastapi_mcp_mrtr")

# What a worker that lost its connection finds when it is back: so many messages, so long in all,
# until nobody has said anything for so many seconds.
_BACKLOG: Final = 10_000
_BACKLOG_BYTES: Final = 32 * 1024 * 1024
_BACKLOG_SECONDS: Final = 120.0

# Seconds that one read waits for something to come, and that pass before the next attempt when the
# store has been away for a whole timeout.
_READ: Final = 0.5
_PAUSE: Final = 0.25

_LEVELS: Final = frozenset(level.encode() for level in LOG_LEVELS)

_MARK: Final = re.compile(r"(\d{1,20})\.(\d{1,20})", re.ASCII)
_MAX_MARK: Final = 2**64

_LOAD: Final = Script("return redis.call('HGETALL', KEYS[1])")

_EXTEND: Final = """
-- ttl, ...
local function extend()
  redis.call('HSET', KEYS[1], 'begun', 1)
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[1]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[1])
  end
end
local revoked = redis.call('HEXISTS', KEYS[1], 'revoked') == 1
"""

_SET_LOG_LEVEL: Final = Script(f"""{_EXTEND}
if not revoked then
  redis.call('HSET', KEYS[1], 'level', ARGV[2])
end
extend()
return 1
""")

_SUBSCRIBE: Final = Script(f"""{_EXTEND}
extend()
local others = redis.call('HLEN', KEYS[1]) - 1 - redis.call('HEXISTS', KEYS[1], 'level')
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
  return 1
end
if revoked or others >= tonumber(ARGV[3]) then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[2], 1)
return 1
""")

_UNSUBSCRIBE: Final = Script("return redis.call('HDEL', KEYS[1], ARGV[1])")

_REVOKE: Final = Script(f"""{_EXTEND}
extend()
local left = redis.call('PTTL', KEYS[1])
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'begun', 1, 'revoked', 1)
redis.call('PEXPIRE', KEYS[1], left)
return 1
""")

_APPEND: Final = Script("""
-- how many, how many bytes, ttl, event, ...; the keys: the stream, and the bytes it ever had
local last = redis.pcall('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
local function add(call)
  local total = call('INCRBY', KEYS[2], #ARGV[4])
  if type(total) ~= 'number' then
    return total
  end
  return total, call('XADD', KEYS[1], 'MAXLEN', ARGV[1], '*',
    'event', ARGV[4], 'total', total, unpack(ARGV, 5))
end
local function is_of_the_server(failed)
  return not (string.find(failed.err, '^ERR ') or string.find(failed.err, '^WRONGTYPE '))
end
local total, id = add(redis.pcall)
local failed = type(total) == 'table' and total or type(id) == 'table' and id
if failed and is_of_the_server(failed) then
  return failed
end
if failed or math.abs(total) > 2 ^ 52 then
  -- Nothing can be added to what somebody put there.
  redis.call('DEL', KEYS[1], KEYS[2])
  last = nil
  total, id = add(redis.call)
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
while true do
  local first = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
  if not first then
    break
  end
  local event, upto = first[2][2], tonumber(first[2][4])
  if upto and upto <= total and total - upto + #event <= tonumber(ARGV[2]) then
    break
  end
  redis.call('XDEL', KEYS[1], first[1])
end
local function second(id)
  return math.floor(tonumber(string.match(id, '^%d+')) / 1000)
end
return {id, (last and second(last[1]) == second(id)) and 0 or 1}
""")
"""Returns the id, and whether this is the first event of the stream in this second."""

_EVENTS_AFTER: Final = Script("""
if #redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1]) == 0 then
  return false
end
return redis.call('XRANGE', KEYS[1], '(' .. ARGV[1], '+')
""")

_REGISTER: Final = Script("""
-- stream, how many, ttl
local time = redis.call('TIME')
redis.call('ZADD', KEYS[1], time[1] * 1000 + math.floor(time[2] / 1000), ARGV[1])
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
local forgotten = {}
for _ = ARGV[2] + 1, redis.call('ZCARD', KEYS[1]) do
  forgotten[#forgotten + 1] = redis.call('ZPOPMIN', KEYS[1])[1]
end
return forgotten
""")

_NAME: Final = re.compile(rb"[!-z|~]{1,200}")
"""What a stream is called, which is nothing that would end the braces of a key."""

_LAST: Final = Script("""
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
return last and last[1] or '0-0'
""")


class _Hub:
    """Who listens in one event loop, and the task that reads for all of them."""

    def __init__(self) -> None:
        self.origin = secrets.token_bytes(8)
        """By which its own messages are known when they come back."""
        self.listeners = Listeners()
        self.position = b"0-0"
        self.reader: asyncio.Task[None] | None = None
        self.is_away = False
        """Whether the reader hears nothing."""
        self.has_skipped = False
        self.lock = asyncio.Lock()

    async def aclose(self) -> None:
        if self.reader is not None:
            self.reader.cancel()
            await asyncio.wait((self.reader,))


class RedisSessionStore:
    """Sessions of older revisions across processes and machines, in Redis 7 or later or in Valkey.

    ```python
    MCPRouter(
        "travel-desk", version="1.0.0", sessions=RedisSessionStore("redis://localhost:6379/0")
    )
    ```

    Takes a URL, or a client of `redis.asyncio` (`Redis` or `RedisCluster`) that stays yours. A call
    takes at most `timeout` seconds, reconnecting included; nothing has to be done after an outage.
    While something is listened for, one connection waits for messages. Of streams of events that a
    client may have missed, `max_streams` are kept: those that were written last, to the second.

    Where the server forgets, as after a crash without `appendonly yes`, a session that was ended
    counts as open again until it expires, and subscriptions are gone. With a cluster, all messages
    go through one node.
    """

    def __init__(
        self,
        client_or_url: str | Redis | RedisCluster,
        *,
        prefix: str = "mcp:session:",
        timeout: float = 5.0,
        max_streams: int = MAX_STREAMS,
    ) -> None:
        self._client = RedisClient(client_or_url)
        self._prefix = prefix
        self._max_streams = max_streams
        self._remote = Remote(
            "Redis", timeout=timeout, describe=describe, unavailable=SessionStoreUnavailable
        )
        self._hubs = PerLoop(_Hub, _Hub.aclose)
        # What one read waits, in the milliseconds of the store: less than a call may take.
        self._block = milliseconds(min(_READ, timeout / 2))

    async def load(self, session: str) -> SessionData:
        """See `SessionStore`."""
        flat: list[bytes] = await self._run(_LOAD, self._session(session))
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        if b"revoked" in fields:
            return SessionData(revoked=True)
        level = fields.get(b"level")
        if not (level is None or level in _LEVELS):
            raise SessionStoreUnavailable("Redis: the log level of a session is none")
        try:
            uris = frozenset(_text(name[2:]) for name in fields if name.startswith(b"u:"))
        except UnicodeDecodeError:
            why = "Redis: what a session subscribed to cannot be read"
            raise SessionStoreUnavailable(why) from None
        return SessionData(None if level is None else level.decode(), uris)

    async def set_log_level(self, session: str, level: str, *, ttl: float) -> None:
        """See `SessionStore`."""
        await self._run(_SET_LOG_LEVEL, self._session(session), milliseconds(ttl), level)

    async def subscribe(self, session: str, uri: str, *, ttl: float) -> bool:
        """See `SessionStore`."""
        arguments = milliseconds(ttl), _uri(uri), MAX_URIS
        done: int = await self._run(_SUBSCRIBE, self._session(session), *arguments)
        return done == 1

    async def unsubscribe(self, session: str, uri: str) -> None:
        """See `SessionStore`."""
        await self._run(_UNSUBSCRIBE, self._session(session), _uri(uri))

    async def revoke(self, session: str, *, ttl: float) -> None:
        """See `SessionStore`."""
        await self._run(_REVOKE, self._session(session), milliseconds(ttl))

    async def publish(self, topic: str, message: bytes) -> None:
        """See `SessionStore`."""
        if len(message) > _BACKLOG_BYTES:
            raise SessionStoreUnavailable(f"Redis: a message of {len(message)} bytes is too long")
        hub = await self._hubs.get()
        hub.listeners.send(topic, message)
        limits = _BACKLOG, _BACKLOG_BYTES, milliseconds(_BACKLOG_SECONDS)
        origin = "topic", _bytes(topic), "origin", hub.origin
        await self._run(_APPEND, self._messages(), *limits, message, *origin)

    @asynccontextmanager
    async def listen(
        self, topic: str, *, limit: int = LISTENER_LIMIT
    ) -> AsyncGenerator[QueueListener, None]:
        """See `SessionStore`."""
        hub = await self._hubs.get()
        async with hub.lock:
            await self._begin_to_read(hub)
        async with hub.listeners.listen(topic, limit) as listener:
            yield listener

    async def append(self, stream: str, event: bytes, *, ttl: float) -> str:
        """See `SessionStore`."""
        limits = MAX_EVENTS, MAX_EVENT_BYTES, milliseconds(ttl)
        id_, is_first = await self._run(_APPEND, self._events(stream), *limits, event)
        if is_first:
            await self._register(stream, milliseconds(ttl))
        return _event_id(stream, id_)

    async def events_after(self, event_id: str) -> list[tuple[str, bytes]] | None:
        """See `SessionStore`."""
        named = read_event_id(event_id)
        mark = named and _MARK.fullmatch(named[1])
        if not (named and mark and max(int(mark[1]), int(mark[2])) < _MAX_MARK):
            return None
        stream = named[0]
        entries = await self._run(_EVENTS_AFTER, self._events(stream)[:1], "-".join(mark.groups()))
        if entries is None:
            return None
        return [(_event_id(stream, id_), fields[1]) for id_, fields in entries]

    async def aclose(self) -> None:
        """See `SessionStore`. A client that was handed in stays open."""
        await self._hubs.aclose()
        await self._remote.settle()
        await self._client.aclose()

    # ---------------------------------------------------------------------------------- keys

    # The braces are what a cluster hashes, so that keys that go together are together.

    def _session(self, session: str) -> list[str]:
        return [f"{self._prefix}{{{session}}}"]

    def _events(self, stream: str) -> list[str]:
        return [f"{self._prefix}events:{{{stream}}}", f"{self._prefix}events:{{{stream}}}:bytes"]

    def _streams(self) -> list[str]:
        return [f"{self._prefix}{{streams}}"]

    def _messages(self) -> list[str]:
        return [f"{self._prefix}{{messages}}:log", f"{self._prefix}{{messages}}:bytes"]

    # ------------------------------------------------------------------------------- the store

    async def _run(self, script: Script, keys: list[str], *arguments: bytes | str | int) -> Any:
        return await self._remote.call(lambda: self._client.run(script, keys, *arguments))

    async def _execute(self, *command: bytes | str | int) -> Any:
        return await self._remote.call(lambda: self._client.execute(*command))

    async def _register(self, stream: str, ttl: int) -> None:
        """Note that a stream is in use, and forget the one that was not for longest if there are
        too many."""
        forgotten = await self._run(_REGISTER, self._streams(), stream, self._max_streams, ttl)
        names = [name for name in forgotten if _NAME.fullmatch(name)]
        for name in names:
            await self._execute("UNLINK", *self._events(name.decode("ascii")))
        if len(names) < len(forgotten):
            others = len(forgotten) - len(names)
            logger.warning("Redis: %d names of streams made no sense, and were removed", others)

    async def _begin_to_read(self, hub: _Hub) -> None:
        if hub.reader is None:
            hub.position = await self._run(_LAST, self._messages()[:1])
        elif hub.reader.done():
            logger.warning("Other workers were not heard for a while: the reader had been ended")
        else:
            return
        hub.reader = asyncio.create_task(self._read(hub))

    async def _read(self, hub: _Hub) -> None:
        """Pass on what other workers say, as long as this event loop runs, whatever it meets."""
        while True:
            try:
                await self._pass_on(hub)
            except Exception as error:
                # What anything else says may quote what it could not read.
                is_told = isinstance(error, SessionStoreUnavailable)
                reason = error if is_told else f"Redis: {type(error).__name__}"
                level = logging.DEBUG if hub.is_away else logging.WARNING
                logger.log(level, "Nothing is heard from other workers: %s", reason)
                hub.is_away = True
                await asyncio.sleep(_PAUSE)

    async def _pass_on(self, hub: _Hub) -> None:
        """Read once."""
        key = self._messages()[0]
        response = await self._execute(
            *("XREAD", "COUNT", 1000, "BLOCK", self._block), "STREAMS", key, hub.position
        )
        if hub.is_away:
            hub.is_away = False
            logger.info("Other workers are heard again.")
        if not response:
            await self._look_back(hub)
        for id_, fields in _entries(response):
            hub.position = id_
            try:
                origin, topic, event = fields[b"origin"], _text(fields[b"topic"]), fields[b"event"]
            except (KeyError, UnicodeDecodeError):
                level = logging.DEBUG if hub.has_skipped else logging.WARNING
                logger.log(
                    level, "Redis: a message of another worker made no sense, and is skipped"
                )
                hub.has_skipped = True
                continue
            if origin != hub.origin:
                hub.listeners.send(topic, event)

    async def _look_back(self, hub: _Hub) -> None:
        """Begin again with a log that was begun anew, by a server whose clock is behind or after
        somebody else's message that had the last id of all."""
        last = await self._run(_LAST, self._messages()[:1])
        if _order(last) < _order(hub.position):
            hub.position = b"0-0"


def _entries(response: Any) -> Iterator[tuple[bytes, dict[bytes, bytes]]]:
    """The entries of the one stream that was read, as this version of the client and this version
    of the protocol wrap them.
    """
    if not response:
        return
    [entries] = response.values() if isinstance(response, dict) else [response[0][1]]
    yield from entries[0] if isinstance(entries[0], list) else entries


def _order(id_: bytes) -> tuple[int, ...]:
    return tuple(map(int, id_.split(b"-")))


def _event_id(stream: str, id_: bytes) -> str:
    return make_event_id(stream, id_.decode().replace("-", "."))


def _uri(uri: str) -> bytes:
    return b"u:" + _bytes(uri)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(encoded: bytes) -> str:
    return encoded.decode("utf-8", "surrogatepass")
