"""What every test shares."""

import signal

import pytest

# Whatever a shell starts in the background ignores Ctrl-C, a CI job often is such a thing, and a
# child inherits it. A handler is not inherited: what the tests start, Ctrl-C interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def anyio_backend() -> str:
    """uvicorn runs on asyncio, so the tests do."""
    return "asyncio"
