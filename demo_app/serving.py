"""Serve the app in this process, play against it over real HTTP, stop when told to."""

import argparse
import asyncio
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import uvicorn

from fastapi_mcp_mrtr import Secret

from .app import create_app
from .db import CUSTOMERS
from .player import (
    API_KEY,
    PlayFailed,
    Transcript,
    logging_in,
    play_booking,
    play_payment,
)
from .settings import Settings

HOST: Final = "127.0.0.1"


def run(argv: Sequence[str]) -> int:
    """The exit code: 0, or 1 if the desk could not open or the booking did not go as it should."""
    options = _parser().parse_args(argv)
    try:
        listener = _listen(options.port)
    except OSError as error:
        other = options.port + 1 if options.port < 65535 else 8000
        print(
            f"Cannot listen on {HOST}:{options.port}: {error.strerror}. Free the port, or choose "
            f"another one: PORT={other} make demo",
            file=sys.stderr,
        )
        return 1
    with listener, tempfile.TemporaryDirectory(prefix="travel-desk-") as temporary:
        settings = replace(
            Settings.from_env(),
            database=options.database or Path(temporary, "desk.sqlite3"),
            # Nothing here outlives the process, so neither need the secret.
            secret=Secret.generate("demo"),
        )
        exit_code = 0
        try:
            asyncio.run(_open(listener, settings, once=options.once))
        except* PlayFailed as failures:
            print(f"The booking did not go as planned: {failures.exceptions}", file=sys.stderr)
            exit_code = 1
        except* asyncio.CancelledError:
            pass  # SIGTERM
    return exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m demo_app", description=__doc__)
    parser.add_argument(
        "--port", type=_port, default=os.environ.get("PORT", "8000"), help="$PORT, or 8000"
    )
    parser.add_argument(
        "--once", action="store_true", help="stop after the booking instead of serving on"
    )
    parser.add_argument(
        "--database", type=Path, help="keep the data in this file; without it, every start is fresh"
    )
    return parser


def _port(text: str) -> int:
    if text.isascii() and text.isdigit() and int(text) < 2**16:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no port: a number up to 65535 is")


def _listen(port: int) -> socket.socket:
    """Bound before anything else starts, so that a busy port is the first thing to be said."""
    listener = socket.socket()
    try:
        if os.name == "posix":  # else the port stays busy for a minute after the last run
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


class _Server(uvicorn.Server):
    """Says when it is up, and leaves signals to `_open`, which has a player to stop first."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set_result(None)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _open(listener: socket.socket, settings: Settings, *, once: bool) -> None:
    _cancel_on_sigterm()
    base_url = f"http://{HOST}:{listener.getsockname()[1]}"
    # The issuer of tokens is part of them, so the address is settled before there is an app.
    settings = replace(settings, public_url=base_url, login=True)
    config = uvicorn.Config(create_app(settings), log_level="warning", timeout_graceful_shutdown=3)
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    transcript = Transcript(sys.stdout)
    try:
        await asyncio.wait({serving, server.up}, return_when=asyncio.FIRST_COMPLETED)
        async with logging_in(base_url, transcript) as login:
            await play_booking(base_url, transcript, login)
            if not once:
                await play_payment(
                    base_url, transcript, login, lambda link: _invite(transcript, base_url, link)
                )
                await asyncio.wait({serving})
    finally:
        # `wait`, since `await serving` would hand Ctrl-C's cancellation on to the server.
        server.should_exit = True
        await asyncio.wait({serving})


def _cancel_on_sigterm() -> None:
    task = asyncio.current_task()
    assert task is not None
    with suppress(NotImplementedError):  # Windows has no such signal
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


def _invite(transcript: Transcript, base_url: str, link: str) -> None:
    keys = ", ".join(key for _, _, key, _ in CUSTOMERS)
    transcript.line()
    transcript.line("The desk is open. Ctrl-C closes it.", "title")
    transcript.line(f"  REST endpoints  {base_url}/docs")
    transcript.line(f"  Console         {base_url}/mcp/console")
    transcript.line(f"  MCP endpoint    {base_url}/mcp")
    transcript.line(f"                  clients log in by themselves; sign in with one of {keys},")
    transcript.line("                  or have them send the key in the header X-API-Key")
    transcript.line(f"  Payment page    {link}")
    transcript.line(
        f"                  sign in with {API_KEY}; once you have paid, the call goes on here"
    )
    transcript.line(
        "  Several workers need an authorization server outside them. This one is in memory, so\n"
        "  `uvicorn --factory demo_app.app:create_app --workers 3` takes API keys only."
    )
    transcript.line()
