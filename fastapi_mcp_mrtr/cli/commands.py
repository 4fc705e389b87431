"""The commands and their options. What they do is in the modules beside this one."""

import json
import re
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final

import typer

from fastapi_mcp_mrtr._version import __version__
from fastapi_mcp_mrtr.state.keys import Secret
from fastapi_mcp_mrtr.testing.answers import CANCEL, DECLINE, Refusal

from .calls import Answered, play
from .exits import Exit, Stop, stopping
from .listing import listed, offered
from .remote import Remote, unreachable
from .states import opened, read_keys
from .terminal import Terminal, clean
from .values import read

app = typer.Typer(
    name="fastapi-mcp-mrtr",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its boxes cut the names of options where the terminal is narrow
)

_DAY: Final = 86_400.0


def _seconds(least: float) -> Callable[[float], float]:
    def check(value: float) -> float:
        if not least <= value <= _DAY:
            raise typer.BadParameter(f"{value:g} is not from {least:g} to {_DAY:g} seconds")
        return value

    return check


def _endpoint(url: str) -> str:
    if why := unreachable(url):
        raise typer.BadParameter(f"{url!r} is no address to call: {why}")
    return url


URL = Annotated[
    str, typer.Argument(help="The endpoint, like http://127.0.0.1:8000/mcp", callback=_endpoint)
]
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
Timeout = Annotated[
    float,
    typer.Option(help="Seconds to wait for the server to say something", callback=_seconds(0.001)),
]

_FROM_INPUT = "-"

_HEADER: Final = re.compile(r"[\w!#$%&'*+.^`|~-]+:[\t\x20-\x7e]*", re.ASCII)
"""A name and a value that HTTP can carry (RFC 9110 §5), with a colon between."""


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fastapi-mcp-mrtr {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """Look at MCP servers, call their tools, answer what they ask."""


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


def _pairs(
    values: list[str] | None, separator: str, form: str, fold: Callable[[str], str] = str
) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for value in values or ():
        name, found, rest = value.partition(separator)
        name = fold(name.strip())
        if not (found and name):
            raise typer.BadParameter(f"{value!r} does not have the form {form}")
        if name in pairs:
            raise typer.BadParameter(f"{name} is given twice")
        pairs[name] = rest
    return pairs


def _refusals(
    answers: dict[str, str], decline: list[str] | None, cancel: list[str] | None
) -> dict[str, Refusal]:
    refusals = dict.fromkeys(decline or (), DECLINE)
    for key in cancel or ():
        if refusals.setdefault(key, CANCEL) is not CANCEL:
            raise typer.BadParameter(f"{key} is both declined and cancelled")
    for key in answers.keys() & refusals.keys():
        raise typer.BadParameter(f"{key} is both answered and refused")
    return refusals


def _remote(
    url: str, headers: list[str] | None, token: str | None, timeout: float, terminal: Terminal
) -> Remote:
    own = _pairs(headers, ":", "'Name: value'", str.lower)
    if token:
        own.setdefault("authorization", f"Bearer {token}")
    for name, text in own.items():
        if not _HEADER.fullmatch(f"{name}:{text}"):
            raise typer.BadParameter(f"the header {name!r} holds what HTTP cannot carry")
    own = {name: text.strip() for name, text in own.items()}
    return Remote(url, own, timeout=timeout, on_notification=terminal.notice)


@app.command()
def keygen(
    kid: Annotated[str | None, typer.Option(help="A label, to print with it as JSON")] = None,
) -> None:
    """Print a secret for `Secret(kid, value)`.

    It is 32 random bytes in hexadecimal.
    """
    value = secrets.token_hex(32)
    if kid is None:
        typer.echo(value)
        return
    try:
        Secret(kid, value)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    typer.echo(json.dumps({"kid": kid, "value": value}))


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
    pause: Annotated[
        float,
        typer.Option(help="Seconds between looks at what takes time", callback=_seconds(0)),
    ] = 2.0,
    headers: Headers = None,
    token: Token = None,
    timeout: Timeout = 60.0,
    as_json: AsJson = False,
) -> None:
    """Call a tool. What it asks and no option answers is asked here, if this is a terminal.

    In answer to a question, /decline says no and /cancel gives no answer.
    """
    terminal = Terminal()
    texts = _pairs(answers, "=", "key=value")
    answered = Answered(terminal, texts, _refusals(texts, decline, cancel))
    typed = _pairs(arguments, "=", "name=value")
    with _ending(as_json), _remote(url, headers, token, timeout, terminal) as remote:
        schemas = {each.name: each.input_schema for each in remote.list_tools()}
        schema = schemas.get(tool, {})
        given = {name: _value(name, text, schema) for name, text in typed.items()}
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
        sources = _pairs(keys, "=", "kid=env:NAME or kid=file:PATH")
        typer.echo(json.dumps(opened(text, read_keys(sources, text)), indent=2))


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
