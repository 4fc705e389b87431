"""Scripts and commands in Redis or Valkey, for what is kept there. Knows no record and no key.

Takes a URL, with a client for each event loop, or the client of an app, which stays the app's.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final, cast

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    ClusterDownError,
    ConnectionError,
    DataError,
    NoScriptError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    TimeoutError,
    TryAgainError,
)

from .remote import Failure, PerLoop

# A restart, a failover, a resharding. What the client says itself,
_CLIENTS: Final = (ConnectionError, TimeoutError, RedisClusterException, OSError)
# what the server says, as the client names it,
_MAY_PASS: Final = (ReadOnlyError, ClusterDownError, TryAgainError)
# and its code where the client has no name for it, which not every kind and version has.
_CODES_THAT_PASS: Final = ("CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN")
_NEVER_PASSES: Final = (AuthenticationError, AuthorizationError)
_CODE: Final = re.compile(r"[A-Z]{2,}(?= )")
"""How most errors of a server begin. The rest of the line may quote the command."""


class Script:
    """A script in Lua, sent as its digest wherever the server knows it already."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class RedisClient:
    """One way to a server or a cluster, from any event loop."""

    def __init__(self, client_or_url: str | Redis | RedisCluster) -> None:
        self._given = None if isinstance(client_or_url, str) else client_or_url
        self._made = PerLoop(lambda: _client(cast(str, client_or_url)), Redis.aclose)

    async def run(self, script: Script, keys: list[str], *arguments: bytes | str | int) -> Any:
        """Run a script. The keys are of one slot."""
        try:
            return await self.execute("EVALSHA", script.sha, len(keys), *keys, *arguments)
        except NoScriptError:
            return await self.execute("EVAL", script.text, len(keys), *keys, *arguments)

    async def execute(self, *command: bytes | str | int) -> Any:
        """Run a command. What comes back is bytes, whatever the client was told about decoding."""
        client = await self._made.get() if self._given is None else self._given
        return await client.execute_command(*command, NEVER_DECODE=True)

    async def aclose(self) -> None:
        """Close the client of this event loop, unless it was handed in."""
        await self._made.aclose()


def describe(error: Exception) -> Failure | None:
    """See `Remote`."""
    is_stores = isinstance(error, RedisError | RedisClusterException | OSError)
    if not is_stores or isinstance(error, DataError):
        return None
    if isinstance(error, _CLIENTS) and not isinstance(error, _NEVER_PASSES):
        return Failure(f"{type(error).__name__}: {error}", True)
    code = _CODE.match(str(error))
    may_pass = isinstance(error, _MAY_PASS) or (code is not None and code[0] in _CODES_THAT_PASS)
    return Failure(f"{type(error).__name__}{f' {code[0]}' if code else ''}", may_pass)


def _client(url: str) -> Redis:
    # Repeating is done here, with one deadline for everything.
    return Redis.from_url(url, retry=Retry(NoBackoff(), 0))
