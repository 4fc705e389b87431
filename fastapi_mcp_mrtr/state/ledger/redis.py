"""The ledger in Redis or Valkey. Knows Lua and keys; no response, no handler.

One hash a flow, under one key, so that any cluster will do. Each method is one script, which runs
alone and reads the clock of the server. The scripts use nothing that Valkey does not have.
"""

from __future__ import annotations

from typing import Any, Final

from redis.asyncio import Redis, RedisCluster

from fastapi_mcp_mrtr.state.redis_client import RedisClient, Script, describe
from fastapi_mcp_mrtr.state.remote import Remote

from .protocol import (
    Answered,
    Claim,
    Claimed,
    LedgerUnavailable,
    Refused,
    Status,
    held,
    milliseconds,
    new_owner,
)

_CLAIM: Final = Script("""
-- round, fingerprint, owner, lease, ttl
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local lease, ttl = tonumber(ARGV[4]), tonumber(ARGV[5])
local record = redis.call('HMGET', KEYS[1],
  'status', 'round', 'fingerprint', 'owner', 'lease_ends')
local status = record[1]
local becomes = 'claimed'
if status and tonumber(ARGV[1]) <= tonumber(record[2]) then
  if tonumber(ARGV[1]) < tonumber(record[2]) then
    return {'refused', 'earlier round'}
  end
  if status ~= 'open' then
    if ARGV[2] ~= record[3] then
      return {'refused', 'other answers'}
    end
    if status == 'answered' then
      return {'answered', redis.call('HGET', KEYS[1], 'response')}
    end
    local left = tonumber(record[5]) - now
    if ARGV[3] == record[4] then
      becomes = status  -- the reply was lost
    elseif status ~= 'lapsed' and left > 0 then
      return {'held', left}
    else
      becomes = 'taken over'
    end
  end
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1],
  'status', becomes, 'round', ARGV[1], 'fingerprint', ARGV[2], 'owner', ARGV[3],
  'lease_ends', string.format('%.0f', now + lease))
redis.call('PEXPIRE', KEYS[1], math.max(lease, ttl))
return {becomes}
""")

_IF_OWNED: Final = """
-- round, owner, ...
local record = redis.call('HMGET', KEYS[1], 'round', 'owner', 'status')
local status = record[3]
if not status or ARGV[1] ~= record[1] or ARGV[2] ~= record[2] then
  return 0
end
local running = status == 'claimed' or status == 'taken over'
"""

_RENEW: Final = Script(f"""{_IF_OWNED}
if not running then
  return 0
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local lease = tonumber(ARGV[3])
redis.call('HSET', KEYS[1], 'lease_ends', string.format('%.0f', now + lease))
if redis.call('PTTL', KEYS[1]) < lease then
  redis.call('PEXPIRE', KEYS[1], lease)
end
return 1
""")

_ANSWER: Final = Script(f"""{_IF_OWNED}
if running then
  redis.call('HSET', KEYS[1], 'status', 'answered', 'response', ARGV[3])
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
  return 1
end
-- The reply was lost, or this is another response.
return redis.call('HGET', KEYS[1], 'response') == ARGV[3] and 1 or 0
""")

_RELEASE: Final = Script(f"""{_IF_OWNED}
if running then
  local ran = ARGV[3] == '1' or status == 'taken over'
  redis.call('HSET', KEYS[1], 'status', ran and 'lapsed' or 'open', 'owner', '')
end
return 0
""")


class RedisLedger:
    """Single use across processes and machines, in Redis 7 or later or in Valkey.

    ```python
    MCPRouter("travel-desk", version="1.0.0", ledger=RedisLedger("redis://localhost:6379/0"))
    ```

    Takes a URL, or a client of `redis.asyncio` (`Redis` or `RedisCluster`) that stays yours. A call
    takes at most `timeout` seconds, reconnecting included; nothing has to be done after an outage.

    A state is single-use as long as the server keeps what it was told. So let it write to disk
    (`appendonly yes`), and let it evict nothing (`maxmemory-policy noeviction`): what it drops, and
    the last second before a crash, are states that can be used again. Leases and expiry go by the
    server's clock; a step of it that is longer than a lease ends that lease.
    """

    def __init__(
        self,
        client_or_url: str | Redis | RedisCluster,
        *,
        prefix: str = "mcp:flow:",
        timeout: float = 5.0,
    ) -> None:
        self._client = RedisClient(client_or_url)
        self._prefix = prefix
        self._remote = Remote(
            "Redis", timeout=timeout, describe=describe, unavailable=LedgerUnavailable
        )

    async def claim(
        self, flow: str, round: int, fingerprint: str, *, lease: float, ttl: float
    ) -> Claim:
        """See `Ledger`."""
        owner = new_owner()
        times = milliseconds(lease), milliseconds(ttl)

        async def attempt() -> Claim:
            match await self._run(_CLAIM, flow, round, fingerprint, owner, *times):
                case [b"refused", reason]:
                    return Refused(reason.decode())
                case [b"answered", response]:
                    return Answered(response)
                case [b"held", left]:
                    return held(left / 1000)
                case [becomes]:
                    return Claimed(owner, becomes.decode() == Status.TAKEN_OVER.value)
            raise AssertionError  # pragma: no cover - the script returns nothing else

        return await self._remote.claim(
            attempt, lambda: self.release(flow, round, owner, ran=False)
        )

    async def renew(self, flow: str, round: int, owner: str, *, lease: float) -> bool:
        """See `Ledger`."""
        return await self._changes(_RENEW, flow, round, owner, milliseconds(lease))

    async def answer(
        self, flow: str, round: int, owner: str, response: bytes, *, ttl: float
    ) -> bool:
        """See `Ledger`."""
        return await self._changes(_ANSWER, flow, round, owner, response, milliseconds(ttl))

    async def release(self, flow: str, round: int, owner: str, *, ran: bool) -> None:
        """See `Ledger`."""
        await self._changes(_RELEASE, flow, round, owner, int(ran))

    async def aclose(self) -> None:
        """See `Ledger`. A client that was handed in stays open."""
        await self._remote.settle()
        await self._client.aclose()

    async def _changes(self, script: Script, flow: str, *arguments: bytes | str | int) -> bool:
        done: int = await self._remote.call(lambda: self._run(script, flow, *arguments))
        return done == 1

    async def _run(self, script: Script, flow: str, *arguments: bytes | str | int) -> Any:
        # The braces are what a cluster hashes; with one key it is good to have and no duty.
        return await self._client.run(script, [f"{self._prefix}{{{flow}}}"], *arguments)
