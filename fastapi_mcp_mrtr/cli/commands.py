"""The commands and their options. What they do is in the modules beside this one."""

import json
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from .calls import Answered, play
from .exits import Exit, Stop, stopping
from .listing import listed, offered
from .remote import Remote
from .states import opened, read_keys
from .terminal import Terminal, clean
from .values import read

app = typer.Typer(
    name="fastapi-mcp-mrtr",
    help="Look at MCP servers, call their tools, answer what they ask.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

URL = Annotated[str, typer.Argument(help="The endpoint, like http://127.0.0.1:8000/mcp")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs")]
Headers = Annotated[
    list[str] | None, typer.Option("--header", "-H", help="A header, like 'X-API-Key: ...'")
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar="MCP_TOKEN",
        show_envvar=True,
        help="An access token. Other users of this machine can see options; set the variable",
    ),
]
Timeout = Annotated[float, typer.Option(help="Seconds to wait for the server to say something")]

_FROM_INPUT = "-"


@contextmanager
def _ending(as_json: bool) -> Iterator[None]:
    """Say why the command stops, and exit with the status for it."""
    try:
        with stopping():
            yield
    except Stop as stop:
        if as_json:
            typer.echo(json.dumps({"error": str(stop), "status": stop.status.name.lower()}))
        typer.echo(clean(stop), err=True)
        raise typer.Exit(stop.status) from None


def _pairs(values: list[str] | None, separator: str, form: str) -> Iterator[tuple[str, str]]:
    for value in values or ():
        name, found, rest = value.partition(separator)
        if not (found and name.strip()):
            raise typer.BadParameter(f"{value!r} does not have the form {form}")
        yield name.strip(), rest


def _remote(
    url: str, headers: list[str] | None, token: str | None, timeout: float, terminal: Terminal
) -> Remote:
    own = {name: text.strip() for name, text in _pairs(headers, ":", "'Name: value'")}
    if token:
        own.setdefault("Authorization", f"Bearer {token}")
    return Remote(url, own, timeout=timeout, on_notification=terminal.notice)


@app.command()
def keygen(
    kid: Annotated[str | None, typer.Option(help="A label, to print with it as JSON")] = None,
) -> None:
    """Print a fresh secret for `Secret(kid, value)`: 32 random bytes in hexadecimal."""
    value = secrets.token_hex(32)
    typer.echo(value if kid is None else json.dumps({"kid": kid, "value": value}))


@app.command()
def inspect(
    url: URL,
    headers: Headers = None,
    token: Token = None,
    timeout: Timeout = 60.0,
    as_json: AsJson = False,
) -> None:
    """Say what a server is and what it offers."""
    with _ending(as_json), _remote(url, headers, token, timeout, Terminal()) as remote:
        found = offered(remote)
        typer.echo(json.dumps(found, indent=2) if as_json else clean(listed(found)))


@app.command()
def call(
    url: URL,
    tool: Annotated[str, typer.Argument(help="The tool's name")],
    arguments: Annotated[
        list[str] | None, typer.Option("--arg", "-a", help="An argument, like flight=LX318")
    ] = None,
    answers: Annotated[
        list[str] | None,
        typer.Option("--answer", help="An answer, like seat=12A or seat.row=4 or seat={...}"),
    ] = None,
    decline: Annotated[list[str] | None, typer.Option(help="A question to say no to")] = None,
    cancel: Annotated[list[str] | None, typer.Option(help="A question not to answer")] = None,
    pause: Annotated[float, typer.Option(help="Seconds between looks at what takes time")] = 2.0,
    headers: Headers = None,
    token: Token = None,
    timeout: Timeout = 60.0,
    as_json: AsJson = False,
) -> None:
    """Call a tool. What it asks and no option answers is asked here, if this is a terminal.

    In answer to a question, /decline says no and /cancel gives no answer.
    """
    terminal = Terminal()
    answered = Answered(terminal, list(_pairs(answers, "=", "key=value")), decline, cancel)
    with _ending(as_json), _remote(url, headers, token, timeout, terminal) as remote:
        schemas = {each.name: each.input_schema for each in remote.list_tools()}
        schema = schemas.get(tool, {})
        given = {
            name: _value(name, text, schema) for name, text in _pairs(arguments, "=", "name=value")
        }
        result = play(remote, tool, given, answered, pause=pause, terminal=terminal)
        if as_json:
            typer.echo(json.dumps(result, indent=2))
        else:
            typer.echo(clean(_readable(result)))
        if result.get("isError"):
            raise typer.Exit(Exit.FAILED)


@app.command("open-state")
def open_state(
    token: Annotated[str, typer.Argument(help="A requestState, or - to read it from the input")],
    keys: Annotated[
        list[str] | None,
        typer.Option(
            "--keys", help="A secret, like 2026-08=env:MCP_STATE_SECRET or 2026-08=file:/run/key"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what is inside a requestState. Needs the secrets of the server that made it.

    Nothing is checked but the seal: whether the state is still good, and for whom, is only told.
    Without --keys, a secret is asked for and not shown.
    """
    with _ending(as_json):
        text = sys.stdin.read().strip() if token == _FROM_INPUT else token
        pairs = list(_pairs(keys, "=", "kid=env:NAME or kid=file:PATH"))
        typer.echo(json.dumps(opened(text, read_keys(pairs, text)), indent=2))


def _value(name: str, text: str, schema: dict[str, Any]) -> Any:
    try:
        return read(text, schema.get("properties", {}).get(name, {}), schema.get("$defs"))
    except ValueError as error:
        raise typer.BadParameter(f"--arg {name}: {error}") from None


def _readable(result: dict[str, Any]) -> str:
    """The structured content, or else the text, and a word for what is neither."""
    if "structuredContent" in result:
        return json.dumps(result["structuredContent"], indent=2, ensure_ascii=False)
    blocks = result.get("content", ())
    return "\n".join(str(block.get("text", f"({block.get('type')})")) for block in blocks)
