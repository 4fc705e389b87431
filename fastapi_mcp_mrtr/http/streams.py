"""An SSE response that leaves nothing to the cycle collector. The one module on the internals of
sse-starlette, imported when the first stream opens, because most calls need none.

Knows nothing of what it sends.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator

from sse_starlette import EventSourceResponse
from starlette.types import Receive, Scope, Send


def _shows_no_event(record: logging.LogRecord) -> bool:
    return record.msg != "chunk: %s"


# It logs all that it sends at DEBUG, and what is sent here holds states and answers.
logging.getLogger("sse_starlette.sse").addFilter(_shows_no_event)


class EventStream(EventSourceResponse):
    """sse-starlette's response, its parts run by plain tasks.

    The task group that it runs them in keeps a reference cycle for every part that it cancels at
    the end: some 160 objects a stream, and a stream is what every call with progress is.
    """

    is_complete = False
    """Whether all was sent. If not, the client has left or the server is stopping."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        parts = [
            asyncio.ensure_future(part)
            for part in (
                self._stream_response(send),
                self._ping(send),
                self._listen_for_exit_signal_with_grace(),
                self._listen_for_disconnect(receive),
            )
        ]
        try:
            # The first to end ends the stream: all is sent, the server stops, the client has left.
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            self.is_complete = parts[0].done()
        finally:
            await _cancel(parts)
            if isinstance(self.body_iterator, AsyncGenerator):
                await self.body_iterator.aclose()  # not all versions do, where sending failed
        while parts:
            # No variable may hold a part that failed: the traceback would hold the variable.
            if not parts[-1].cancelled():
                parts.pop().result()
            else:
                parts.pop()
        if self.background is not None:
            await self.background()


async def _cancel(parts: list[asyncio.Task[None]]) -> None:
    for part in parts:
        part.cancel()
    await asyncio.wait(parts)
