"""What a handler can ask about the call it serves. Knows no wire format and no HTTP."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import anyio.from_thread

from fastapi_mcp_mrtr.rounds.sentinels import Log, LogLevel, Progress, log, progress


@dataclass(frozen=True, slots=True)
class Client:
    """What the client says of itself on this request (basic/index §_meta). Never an identity."""

    protocol_version: str
    capabilities: Mapping[str, Any]
    info: Mapping[str, Any] | None


class _Done:
    """Already sent: awaiting it returns at once."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield  # pragma: no cover - makes this a generator


_DONE: Final = _Done()


class Context:
    """The call a handler serves. Annotate a parameter with it; the name is free.

    ```python
    @mcp.tool()
    async def export(ctx: Context) -> str:
        await ctx.report_progress(1, total=3, message="reading")
        ...
    ```

    Attributes:
        client: what the client declared on this request; not verified, never an identity.
        principal: what the router's `principal=` dependency returned; `None` when anonymous.
        principal_key: text that identifies the principal, for keys in your own storage.
        round: which request of the flow this is, from 1.
        flow_id: the same in all rounds of one call, different between calls.
        is_takeover: under `single_use`, whether somebody else may have run this very round before,
            in part or wholly, and crashed before its response was recorded.
    """

    __slots__ = (
        "_emit",
        "_on_commit",
        "client",
        "flow_id",
        "is_takeover",
        "principal",
        "principal_key",
        "round",
    )

    def __init__(
        self,
        *,
        client: Client,
        principal: Any,
        principal_key: str,
        round: int,
        flow_id: str,
        emit: Callable[[Progress | Log], Coroutine[Any, Any, None]],
        is_takeover: bool,
        on_commit: Callable[[Callable[[], Any]], None],
    ) -> None:
        self.client = client
        self.principal = principal
        self.principal_key = principal_key
        self.round = round
        self.flow_id = flow_id
        self.is_takeover = is_takeover
        self._emit = emit
        self._on_commit = on_commit

    def on_commit(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Run `fn` once this call is over, when its final response has been recorded.

        For effects that must not happen for a call that goes on or fails: `fn` is not called by a
        round that asks, nor after an error. Several run in order, `def` functions in a worker
        thread. Under `single_use` they run at most once a flow: not again for a repeated request,
        and never if the process dies between recording and running them. Their failures are logged.
        """
        self._on_commit(partial(fn, *args, **kwargs))

    def idempotency_key(self, key: str) -> str:
        """A key for an outside system: the same on every round and replay of this flow.

        32 hexadecimal digits, different for every flow and every `key`.
        """
        text = f"{self.flow_id}\0{key}".encode("utf-8", "surrogatepass")
        return hashlib.blake2b(text, digest_size=16).hexdigest()

    def report_progress(
        self, done: float, total: float | None = None, message: str | None = None
    ) -> Awaitable[None]:
        """Tell the client how far the call is. Await it; in a `def` handler just call it.

        Sent only if the client asked for progress on this call, and only while `done` increases
        (basic/patterns/progress).

        Raises:
            TypeError: `done` or `total` is no number.
        """
        return self._send(progress(done, total, message))

    def log(self, level: LogLevel, data: Any, logger: str | None = None) -> Awaitable[None]:
        """Send the client a log message. Await it; in a `def` handler just call it.

        Sent only if the client asked for this level or a lower one on this call
        (server/utilities/logging). No credentials and no personal data in `data`.

        Raises:
            ValueError: the protocol has no such level.
        """
        return self._send(log(level, data, logger))

    def _send(self, notification: Progress | Log) -> Awaitable[None]:
        try:
            asyncio.get_running_loop()
        except RuntimeError:  # a `def` handler in its worker thread
            anyio.from_thread.run(self._emit, notification)
            return _DONE
        return self._emit(notification)
