"""The stores that tests start for themselves: Debian's redis-server and postgresql.

Each runs on a free port of the loopback interface in a folder of its own, as an unprivileged user
where the tests run as root, and is ended by its process id. `stop` and `start` restart one in
place: same port, same data.

`REDIS_SERVER` names another server that speaks the protocol, such as a `valkey-server`;
`POSTGRES_BIN` the folder of another PostgreSQL.
"""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pytest

_READY_WITHIN: Final = 60.0
"""Seconds. Only a server that does not start at all takes so long."""
_TRIES: Final = 5


def free_port() -> int:
    """A port that nobody listens on, this moment."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def found(program: str | None, what: str) -> str:
    """The program; without it the test is skipped, and fails where nothing may be left out."""
    if program is not None and shutil.which(program):
        return program
    reason = f"{what} is not installed"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


class Service:
    """A server in a folder of its own, to be used as a context manager."""

    account = "nobody"
    stop_signal = signal.SIGTERM

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ledger-", dir="/tmp"))
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        # A server that refuses to run as root is given an account of the system.
        self._user: int | None = None
        self._group: int | None = None
        self._groups: list[int] | None = None
        if os.geteuid() == 0:
            account = pwd.getpwnam(self.account)
            self._user, self._group, self._groups = account.pw_uid, account.pw_gid, []
            os.chown(self.folder, self._user, self._group)

    def __enter__(self) -> Self:
        try:
            self.prepare()
            for attempt in range(_TRIES):
                self.port = free_port()
                try:
                    self.start()
                    return self
                except RuntimeError:
                    # Another process may have taken the port in the meantime.
                    if attempt == _TRIES - 1:
                        raise
        except BaseException:
            self.__exit__(None, None, None)
            raise
        raise AssertionError

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def url(self) -> str:
        raise NotImplementedError

    @property
    def log(self) -> str:
        """What the server has written, for the message of a test that fails."""
        return (self.folder / "log").read_text(errors="replace")

    def prepare(self) -> None:
        """What comes before the first start."""

    def command(self) -> list[str]:
        raise NotImplementedError

    def is_ready(self) -> bool:
        """Whether the server answers, waiting for it a little."""
        raise NotImplementedError

    def start(self) -> None:
        """Start the server and wait until it answers."""
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                self.command(),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                user=self._user,
                group=self._group,
                extra_groups=self._groups,
            )
        self._process = process
        while not self.is_ready():
            if process.poll() is not None:
                raise RuntimeError(f"{self.command()[0]} ended at once:\n{self.log}")

    def stop(self) -> None:
        """End the server in an orderly way; its data stay."""
        self._end(self.stop_signal)

    def kill(self) -> None:
        """End the server as a crash would."""
        self._end(signal.SIGKILL)

    def _end(self, signal_number: int) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal_number)
            process.wait()

    @contextmanager
    def away(self) -> Iterator[None]:
        """The server is stopped for as long as the block lasts."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    def run(self, command: list[str], environ: Mapping[str, str] | None = None) -> str:
        """Run a program of the server's as the server's user."""
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={**os.environ, **(environ or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            text=True,
            timeout=_READY_WITHIN,
            user=self._user,
            group=self._group,
            extra_groups=self._groups,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{command[0]}: {done.stdout}{done.stderr}")
        return done.stdout


class RedisServer(Service):
    """redis-server, or what `REDIS_SERVER` names. It writes each change to a file."""

    def __init__(self, *, cluster: bool = False) -> None:
        self.program = found(os.environ.get("REDIS_SERVER", "redis-server"), "redis-server")
        self.cluster = cluster
        super().__init__()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def command(self) -> list[str]:
        options = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": str(self.folder),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "maxmemory-policy": "noeviction",
            "cluster-enabled": "yes" if self.cluster else "no",
        }
        return [self.program, *(part for k, v in options.items() for part in (f"--{k}", v))]

    def is_ready(self) -> bool:
        try:
            return self.say("PING").startswith("+PONG")
        except OSError:
            return False

    def say(self, *words: str) -> str:
        """Send one command on a connection of its own, and return the reply as it comes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=_READY_WITHIN) as link:
            lines = [f"*{len(words)}", *(x for word in words for x in (f"${len(word)}", word))]
            link.sendall("\r\n".join([*lines, ""]).encode())
            return link.recv(64 * 1024).decode()


class PostgresServer(Service):
    """postgres from `POSTGRES_BIN` or the newest of Debian's packages."""

    account = "postgres"
    stop_signal = signal.SIGINT  # "fast": clients are disconnected, transactions rolled back

    def __init__(self) -> None:
        installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_major)
        given = os.environ.get("POSTGRES_BIN")
        folder = Path(given) if given else installed[-1] if installed else None
        self.bin = Path(found(str(folder / "postgres") if folder else None, "postgresql")).parent
        super().__init__()

    @property
    def url(self) -> str:
        return f"postgresql+asyncpg://postgres@127.0.0.1:{self.port}/postgres"

    def prepare(self) -> None:
        options = ["--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-sync"]
        self.run([str(self.bin / "initdb"), *options, "--pgdata", str(self.folder / "data")])

    def command(self) -> list[str]:
        settings = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.folder),
            "max_connections": "200",
            # A killed postgres loses nothing by this, only a killed machine.
            "fsync": "off",
        }
        options = [part for k, v in settings.items() for part in ("-c", f"{k}={v}")]
        return [str(self.bin / "postgres"), "-D", str(self.folder / "data"), *options]

    def is_ready(self) -> bool:
        try:
            self.run([str(self.bin / "pg_isready"), "-h", "127.0.0.1", "-p", str(self.port)])
        except RuntimeError:
            return False
        return True

    def sql(self, statement: str) -> str:
        """Run a statement with psql and return what it prints."""
        where = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-d", "postgres"]
        return self.run([str(self.bin / "psql"), *where, "-XAtq", "-c", statement]).strip()


def _major(folder: Path) -> int:
    return int(folder.parent.name)
