"""The documentation: its code runs, its links lead somewhere, what it names exists.

How a page is written so that it can be run:

- ```` ```python ```` blocks share a namespace and run in order. A ```` ```text ```` block after one
  is what it prints; without one it prints nothing.
- `title="travel.py"` after the language saves the block under that name in a folder of the page's
  own instead of running it. Later blocks import it; commands find it.
- ```` ```console ```` blocks are typed into one shell in that folder: what follows `$ `, and the
  lines after it while a quote is open. The other lines are what the command prints. `uvicorn`
  keeps running in the background until the next one.
- `…` in what is printed stands for anything. Port 8000 is replaced by a free one.
- `<!-- skip: reason -->` in the line before a block leaves it out.
"""

import inspect
import io
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import pytest
from fastapi import FastAPI

import fastapi_mcp_mrtr
from fastapi_mcp_mrtr import (
    HandlerGroup,
    IntrospectionVerifier,
    JWKSCache,
    JWTVerifier,
    MCPRouter,
    ProtectedResource,
    errors,
    testing,
)

from . import site_links

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LANGUAGES = {"python", "console", "json", "text", "nginx"}
"""`text` is for output and pictures, `nginx` for what no test of Python can run."""

BLOCK = re.compile(
    r"^(?:<!-- skip: (?P<skip>[^\n]+) -->\n)?"
    r'^```(?P<language>\w*)(?: title="(?P<title>[\w.-]+)")?\n(?P<text>.*?)^```$',
    re.MULTILINE | re.DOTALL,
)


def page_id(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


every_page = pytest.mark.parametrize("page", PAGES, ids=page_id)


# ------------------------------------------------------------------------------ running pages


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    title: str | None
    text: str
    skip: str | None

    @property
    def where(self) -> str:
        return f"{page_id(self.page)}:{self.line}"


def blocks_of(page: Path) -> Iterator[Block]:
    source = page.read_text()
    for match in BLOCK.finditer(source):
        line = source.count("\n", 0, match.start("text"))
        language, title, text, skip = match.group("language", "title", "text", "skip")
        yield Block(page, line, language, title, text, skip)


def require_output(expected: str, actual: str, where: str) -> None:
    """`…` stands for anything."""
    pattern = re.escape(expected.strip()).replace("…", ".*?")
    if not re.fullmatch(pattern, actual.strip(), re.DOTALL):
        pytest.fail(f"{where} says that this is printed:\n{expected}\nbut it is:\n{actual}")


class Shell:
    """One bash for a page, as a reader has one terminal; and another for what keeps running."""

    END = "-- end of output --"

    def __init__(self, folder: Path, programs: Path = Path(sys.executable).parent) -> None:
        log, log_end = os.pipe()
        paths = [str(programs), os.environ["PATH"]]
        self._log = os.fdopen(log)
        self._bash = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=folder,
            env={**os.environ, "PATH": os.pathsep.join(paths), "LOG": str(log_end)},
            pass_fds=[log_end],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        os.close(log_end)
        self._run("set -m")  # each background job is a process group, to be killed as one

    def run(self, command: str) -> str:
        return self._serve(command) if command.startswith("uvicorn ") else self._run(command)

    def close(self) -> None:
        self._stop_serving()
        self._bash.communicate()
        self._log.close()

    def _run(self, command: str) -> str:
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        self._bash.stdin.write(f"{command}\necho; echo '{self.END}'\n")
        self._bash.stdin.flush()
        return self._output(self._bash.stdout)

    def _serve(self, command: str) -> str:
        self._stop_serving()
        self._run(f"{{ {command.strip()}; echo '{self.END}'; }} >&$LOG 2>&1 & SERVER=$!")
        return self._output(self._log, "Uvicorn running on")

    def _stop_serving(self) -> None:
        self._run("[ -z $SERVER ] || { kill -- -$SERVER; wait; SERVER=; }")

    def _output(self, stream: IO[str], last: str | None = None) -> str:
        """What comes until the end, or until a line with `last` in it, which then must come."""
        output = ""
        while (line := stream.readline()) not in (f"{self.END}\n", ""):
            output += line
            if last is not None and last in line:
                return output
        assert last is None, f"{last!r} is not in:\n{output}"
        return output


def commands_of(block: Block) -> Iterator[tuple[str, str]]:
    """Each command of a console block with what it is said to print."""
    command, output = "", ""
    for line in block.text.splitlines(keepends=True):
        if command.endswith("\\\n") or command.count("'") % 2:
            command += line
        elif line.startswith("$ "):
            if command:
                yield command, output
            command, output = line[2:], ""
        else:
            output += line
    yield command, output


class Reader:
    """Somebody who does everything a page says."""

    def __init__(self, page: Path, folder: Path) -> None:
        self.folder = folder
        self.shell: Shell | None = None
        self.module = ModuleType(f"page_{page.stem.replace('-', '_')}")
        self.port = str(free_port())

    def follow(self, blocks: list[Block]) -> None:
        for block, after in pairwise([*blocks, None]):
            assert block is not None
            if block.skip is not None:
                continue
            if block.title is not None:
                (self.folder / block.title).write_text(self._ported(block.text))
            elif block.language == "python":
                said = after.text if after and after.language == "text" else ""
                require_output(said, self._execute(block), block.where)
            elif block.language == "console":
                self._type(block)
            elif block.language == "json":
                json.loads(block.text)

    def _execute(self, block: Block) -> str:
        # At its own lines of the page, so that tracebacks and `inspect.getsource` find it.
        code = compile("\n" * block.line + self._ported(block.text), str(block.page), "exec")
        with redirect_stdout(io.StringIO()) as printed:
            exec(code, self.module.__dict__)
        return self._unported(printed.getvalue())

    def _type(self, block: Block) -> None:
        self.shell = self.shell or Shell(self.folder)
        for command, expected in commands_of(block):
            printed = self._unported(self.shell.run(self._ported(command)))
            require_output(expected, printed, f"{block.where}, `{command.strip()}`,")

    def _ported(self, text: str) -> str:
        return re.sub(r"\b8000\b", self.port, text)

    def _unported(self, text: str) -> str:
        return text.replace(self.port, "8000")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


@every_page
def test_what_a_page_says_is_so(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every block runs, in order, and prints what the page says. decision"""
    reader = Reader(page, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, reader.module.__name__, reader.module)
    known = set(sys.modules)
    try:
        reader.follow(list(blocks_of(page)))
    finally:
        if reader.shell is not None:
            reader.shell.close()
        for name in set(sys.modules) - known:
            if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]


@every_page
def test_a_page_has_no_block_that_nobody_runs(page: Path) -> None:
    """A language that no test knows would be text that may be wrong. decision"""
    blocks = list(blocks_of(page))
    assert {block.language for block in blocks} <= LANGUAGES
    assert page.read_text().count("\n```") == 2 * len(blocks)


def test_few_blocks_are_skipped() -> None:
    """Only what needs a package index, or would run this test again. decision"""
    blocks = [block for page in PAGES for block in blocks_of(page) if block.skip]
    foreign = [block.where for block in blocks if "another library" in str(block.skip)]
    assert len(foreign) <= 2, foreign
    assert len(blocks) - len(foreign) <= 4, [block.where for block in blocks]


# ----------------------------------------------------------------------------------- links


LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")


def prose_of(page: Path) -> str:
    return re.sub(r"`[^`\n]*`", "", BLOCK.sub("", page.read_text()))


def anchors_of(page: Path) -> set[str]:
    """The names that GitHub gives the headings."""
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    """Files and headings exist; links to elsewhere are https. decision"""
    for link in LINK.findall(prose_of(page)):
        if ":" in link:
            assert link.startswith("https://"), link
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors_of(target), link


def test_every_page_can_be_reached() -> None:
    """From the README, link by link. decision"""
    reached: set[Path] = set()
    waiting = [PAGES[0]]
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            targets = (link.partition("#")[0] for link in LINK.findall(prose_of(page)))
            files = ((page.parent / target).resolve() for target in targets if target)
            waiting += [file for file in files if file in PAGES]
    assert reached == set(PAGES)


# ---------------------------------------------------------------------------------- the site


def test_every_page_is_in_the_navigation() -> None:
    """And nothing else. decision"""
    listed = re.findall(r'"([\w/.-]+\.md)"', (ROOT / "zensical.toml").read_text())
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in PAGES[1:]]
    assert sorted(listed) == sorted(pages)


def test_a_dead_link_of_the_site_is_found(tmp_path: Path) -> None:
    """`make docs` fails for it. decision"""
    good = '<a href="b/#here">b</a><a href="https://example.com/">away</a><a id="top" href="#top">'
    (tmp_path / "b").mkdir()
    (tmp_path / "index.html").write_text(good)
    (tmp_path / "b" / "index.html").write_text('<h2 id="here"><a href="../">up</a></h2>')
    assert site_links.broken(tmp_path) == []
    bad = '<a href="c/">c</a><a href="b/#gone">b</a><script src="https://cdn.example.com/x.js">'
    (tmp_path / "index.html").write_text(bad)
    assert site_links.broken(tmp_path) == [
        "index.html loads https://cdn.example.com/x.js",
        "index.html links to c/",
        "index.html links to b/#gone, which has no such place",
    ]


# ------------------------------------------------------------------------- troubleshooting


def test_what_troubleshooting_quotes_is_what_is_said() -> None:
    """People search for the sentence they see. decision"""
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    quoted = re.findall(r"^### `([^`\n]+)`$", page, re.MULTILINE)
    quoted += re.findall(r"`([^`]+)`", "".join(re.findall(r"^\| (`.+?) \|", page, re.MULTILINE)))
    quoted += re.findall(r"cancels it, in both modes: `([^`]+)`", page)
    sources = [path.read_text() for path in Path(fastapi_mcp_mrtr.__file__).parent.rglob("*.py")]
    said = re.sub(r"\s+", " ", re.sub(r'"\n\s*f?"', "", "".join(sources)))
    assert len(quoted) > 15
    assert [each for each in quoted if re.sub(r"\s+", " ", each) not in said] == []


# ------------------------------------------------------------------------------- reference


def reference(name: str) -> str:
    return (ROOT / "docs" / "reference" / f"{name}.md").read_text()


def test_the_reference_names_every_public_name() -> None:
    """`__all__` is what a version promises, so all of it is described. decision"""
    pages = "".join(path.read_text() for path in (ROOT / "docs" / "reference").glob("*.md"))
    public = {*fastapi_mcp_mrtr.__all__, *testing.__all__}
    assert {name for name in public if not re.search(rf"\b{name}\b", pages)} == set()


def test_the_api_page_lists_every_public_name() -> None:
    """In an order of its own, the router first, so that a new name has to be put there. decision"""
    listed = re.findall(r"^ {8}- (\w+)$", reference("api"), re.MULTILINE)
    assert listed[0] == "MCPRouter"
    assert sorted(listed) == sorted(fastapi_mcp_mrtr.__all__)


@pytest.mark.parametrize(
    "call",
    [
        MCPRouter,
        HandlerGroup.tool,
        HandlerGroup.prompt,
        HandlerGroup.resource,
        ProtectedResource,
        JWTVerifier,
        IntrospectionVerifier,
        JWKSCache,
    ],
    ids=lambda call: call.__name__,
)
def test_the_reference_lists_every_setting(call: Any) -> None:
    """With the default it really has. decision"""
    _, _, section = reference("settings").partition(f"{call.__name__}(...)`\n")
    section, *_ = re.split(r"^##+ ", section, maxsplit=1, flags=re.MULTILINE)
    for parameter in inspect.signature(call).parameters.values():
        if parameter.name in ("self", "router_options"):
            continue
        row = re.search(rf"^\| `{parameter.name}` \| (.*?) \|", section, re.MULTILINE)
        assert row, f"{parameter.name} is not in the table"
        if parameter.default is not parameter.empty and not callable(parameter.default):
            assert f"`{parameter.default!r}`".replace("'", '"') in row[1], parameter.name


def test_the_reference_lists_every_code() -> None:
    """Each code of errors.py, with its number. decision"""
    codes = {value for value in vars(errors).values() if type(value) is int}
    assert {code for code in codes if f"`{code}`" not in reference("errors")} == set()


def test_every_verb_exists() -> None:
    """A command that the pages show is one of the Makefile's. decision"""
    pages = "".join(page.read_text() for page in PAGES)
    shown = set(re.findall(r"(?:`|^\$ )make (\w+)", pages, re.MULTILINE))
    verbs = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {"demo", "test"} <= shown <= set(verbs)


# --------------------------------------------------------------------------------- features


ROW = re.compile(
    r"^\| (?P<rule>[^|]+) \| (?P<section>[^|]+) \| (?P<level>[A-Z ]+) \| (?P<status>[^|]+) "
    r"\| (?P<tests>[^|]*)\|$",
    re.MULTILINE,
)
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
FEATURES = ROOT / "docs" / "features.md"
OAUTH = ROOT / "docs" / "reference" / "oauth-rules.md"


@pytest.mark.parametrize("page", [FEATURES, OAUTH], ids=page_id)
def test_every_test_that_the_matrix_names_exists(page: Path) -> None:
    """A renamed test must not leave a promise without proof. decision"""
    named = TEST.findall(page.read_text())
    assert named
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not (ROOT / file).is_file()
        or not re.search(rf"^\s*(async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE)
    ]
    assert missing == []


def test_every_rule_that_is_met_names_its_proof() -> None:
    """ "met" without a test would be an opinion. decision"""
    rows = list(ROW.finditer(FEATURES.read_text()))
    assert len(rows) > 50
    assert {row["status"] for row in rows} <= {"met", "yours", "n/a"}
    unproven = [row["rule"] for row in rows if row["status"] == "met" and "::" not in row["tests"]]
    assert unproven == []


OAUTH_ROW = re.compile(
    r"^\| (?P<number>\d+) \| [^|]+ \| [^|]+ \| "
    r"(MUST|MUST NOT|SHOULD|SHOULD NOT|ours) \| (?P<proof>[^|]+) \|$",
    re.MULTILINE,
)


def test_every_rule_of_a_resource_server_has_its_proof() -> None:
    """The numbers are what the tests refer to: none is left out, and none is without one."""
    rows = list(OAUTH_ROW.finditer(OAUTH.read_text()))
    assert [int(row["number"]) for row in rows] == list(range(1, 41))
    assert [row["number"] for row in rows if "::" not in row["proof"]] == ["19"]
    for rule in re.findall(
        r'"""rules? ([\d, to-]+)',
        "".join(path.read_text() for path in (ROOT / "tests" / "auth" / "rules").glob("test_*.py")),
    ):
        assert all(1 <= int(number) <= len(rows) for number in re.findall(r"\d+", rule))


@pytest.mark.parametrize("header", ["Mcp-Session-Id", "Last-Event-ID"])
def test_headers_of_earlier_revisions_change_nothing(header: str) -> None:
    """spec: SHOULD ignore both, and mint no session (streamable-http §Earlier Revisions)."""
    mcp = MCPRouter("desk", version="1")

    @mcp.tool()
    async def ping() -> str:
        return "pong"

    app = FastAPI()
    app.include_router(mcp)
    client = testing.MCPTestClient(app)
    plain, with_header = (client.begin_tool("ping", headers=h) for h in ({}, {header: "1"}))
    assert with_header.result == plain.result
    assert with_header.reply.headers == plain.reply.headers
    assert header not in with_header.reply.headers
