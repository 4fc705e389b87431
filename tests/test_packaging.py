"""What is shipped: the wheel, its metadata, and what importing the package does."""

import email
import gzip
import re
import subprocess
import sys
import tomllib
import zipfile
from email.message import Message
from pathlib import Path

import pytest
from readme_renderer import markdown

import fastapi_mcp_mrtr
from fastapi_mcp_mrtr import _version
from fastapi_mcp_mrtr.state.ledger.redis import RedisLedger

from .lowest import constraints

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "fastapi_mcp_mrtr"
CONSOLE = PACKAGE / "http" / "console" / "static"
CONSOLE_FILES = ("index.html", "console.js", "console.css", "icon.svg", "licences.txt")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built with the backend that is installed: no network."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (file,) = folder.glob("*.whl")
    return zipfile.ZipFile(file)


@pytest.fixture(scope="session")
def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = (n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(wheel.read(name))


def python(code: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert done.stderr == ""
    return done.stdout.strip()


# --------------------------------------------------------------------------------- the wheel


def test_the_wheel_holds_every_module_and_the_typed_marker(wheel: zipfile.ZipFile) -> None:
    """Nothing is left out and nothing slips in. decision"""
    sources = {p.relative_to(ROOT).as_posix() for p in PACKAGE.rglob("*.py")}
    shipped = {name for name in wheel.namelist() if ".dist-info/" not in name}
    page = {p.relative_to(ROOT).as_posix() for p in CONSOLE.iterdir()}
    assert page >= {f"{CONSOLE.relative_to(ROOT).as_posix()}/{name}" for name in CONSOLE_FILES}
    assert shipped == sources | page | {"fastapi_mcp_mrtr/py.typed"}


def test_the_console_is_small(wheel: zipfile.ZipFile) -> None:
    """All of it, as a server would compress it. issue: under 300 kB"""
    size = sum(len(gzip.compress(wheel.read(n))) for n in wheel.namelist() if "/static/" in n)
    assert 0 < size < 300_000


def test_the_wheel_holds_the_licence(wheel: zipfile.ZipFile) -> None:
    """MIT asks that its text goes along. decision"""
    (name,) = (n for n in wheel.namelist() if n.endswith("LICENSE"))
    assert wheel.read(name).decode().startswith("MIT License")


def test_the_version_is_written_once(metadata: Message) -> None:
    """The build reads what the package says of itself. decision"""
    assert metadata["Version"] == _version.__version__
    assert fastapi_mcp_mrtr.__version__ == _version.__version__
    assert "version" not in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_metadata_names_what_is_needed(metadata: Message) -> None:
    """Six dependencies, Python 3.11, MIT, typed. decision"""
    needed = [r for r in metadata.get_all("Requires-Dist", []) if "extra ==" not in r]
    assert {re.match(r"[a-z-]+", requirement)[0] for requirement in needed} == {  # type: ignore[index]
        "authlib",
        "cryptography",
        "fastapi",
        "mcp-types",
        "pydantic",
        "sse-starlette",
    }
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "MIT"
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])


def test_the_long_description_renders(metadata: Message) -> None:
    """The README is what a package index shows. decision"""
    assert metadata["Description-Content-Type"] == "text/markdown"
    description = metadata.get_payload()
    assert isinstance(description, str)
    html = markdown.render(description)
    assert html is not None
    assert "<h1" in html


def test_every_requirement_states_a_lower_bound() -> None:
    """`make lowest` runs the tests on them. decision"""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {line.partition("==")[0] for line in constraints(project)} >= {"fastapi", "pydantic"}


def test_a_requirement_without_a_lower_bound_is_refused() -> None:
    """Otherwise `make lowest` would silently test the newest. decision"""
    with pytest.raises(ValueError, match="'fastapi' states no lower bound"):
        list(constraints({"name": "x", "dependencies": ["fastapi"]}))


# -------------------------------------------------------------------------------- the import


def test_importing_configures_no_logging_and_starts_nothing() -> None:
    """Nothing happens on import. decision"""
    code = """
import logging, threading, fastapi_mcp_mrtr
root = logging.getLogger()
names = [name for name in root.manager.loggerDict if name.startswith("fastapi_mcp_mrtr")]
mine = [logging.getLogger(name) for name in names]
print(root.handlers, logging.getLevelName(root.level))
print([logger for logger in mine if logger.handlers or logger.level or not logger.propagate])
print(threading.active_count())
"""
    assert python(code).splitlines() == ["[] WARNING", "[]", "1"]


def test_importing_leaves_alone_what_is_not_always_needed() -> None:
    """The SDK, the test client and a server are not imported with the package. decision"""
    code = """
import sys, fastapi_mcp_mrtr
unneeded = {"mcp", "uvicorn", "httpx", "redis", "sqlalchemy", "authlib", "fastapi_mcp_mrtr.testing"}
print(sorted(unneeded & set(sys.modules)))
"""
    assert python(code) == "[]"


def test_importing_patches_nothing_in_fastapi() -> None:
    """A guest changes nothing in its host's modules. decision"""
    code = """
import fastapi, fastapi.routing, starlette.routing
owners = [fastapi, fastapi.routing, starlette.routing, fastapi.FastAPI, fastapi.APIRouter]
before = [dict(vars(owner)) for owner in owners]
import fastapi_mcp_mrtr
print([
    (owner, name)
    for owner, was in zip(owners, before)
    for name, value in was.items()
    if vars(owner).get(name) is not value
])
"""
    assert python(code) == "[]"


def test_ledgers_that_need_an_extra_are_imported_when_they_are_asked_for() -> None:
    """Importing the package brings neither driver. decision"""
    code = """
import sys, fastapi_mcp_mrtr
listed = {"RedisLedger", "RedisSessionStore", "SQLLedger"}
print(listed <= set(dir(fastapi_mcp_mrtr)), listed <= set(fastapi_mcp_mrtr.__all__))
from fastapi_mcp_mrtr import RedisLedger, RedisSessionStore
print("redis" in sys.modules, "sqlalchemy" in sys.modules)
from fastapi_mcp_mrtr import SQLLedger
print("sqlalchemy" in sys.modules)
"""
    assert python(code).splitlines() == ["True True", "True False", "True"]
    assert fastapi_mcp_mrtr.RedisLedger is RedisLedger
    assert "SQLLedger" in dir(fastapi_mcp_mrtr)


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("RedisLedger", "redis", "redis"),
        ("RedisSessionStore", "redis", "redis"),
        ("SQLLedger", "sqlalchemy", "sql"),
    ],
)
def test_a_missing_extra_is_named(name: str, package: str, extra: str) -> None:
    """Only by those who ask for it: a star import takes what there is. decision"""
    code = f"""
import sys
sys.modules[{package!r}] = None
from fastapi_mcp_mrtr import *
print(MCPRouter.__name__)
try:
    from fastapi_mcp_mrtr import {name}
except ImportError as error:
    print(error)
"""
    router, reason = python(code).splitlines()
    assert router == "MCPRouter"
    assert f"pip install 'fastapi-mcp-mrtr[{extra}]'" in reason


def test_a_name_that_is_none_is_no_attribute() -> None:
    """The lazy names let no misspelt one pass. decision"""
    with pytest.raises(AttributeError, match="has no attribute 'RedisLegder'"):
        fastapi_mcp_mrtr.RedisLegder  # type: ignore[attr-defined]  # noqa: B018


def test_everything_public_is_there() -> None:
    """`__all__` is the compatibility contract. decision"""
    assert sorted(set(fastapi_mcp_mrtr.__all__)) == sorted(fastapi_mcp_mrtr.__all__)
    assert [n for n in fastapi_mcp_mrtr.__all__ if not hasattr(fastapi_mcp_mrtr, n)] == []


# -------------------------------------------------------------------------------- the source


def test_every_excluded_line_says_why() -> None:
    """`# pragma: no cover` and `no branch` carry a reason. decision"""
    silent = [
        f"{file.relative_to(ROOT)}:{number}"
        for file in PACKAGE.rglob("*.py")
        for number, line in enumerate(file.read_text("utf-8").splitlines(), 1)
        if re.search(r"pragma: no (cover|branch)", line)
        and not re.search(r"pragma: no (cover|branch) - \w{2,}", line)
    ]
    assert silent == []


def test_every_module_says_what_it_is() -> None:
    """A module opens with what it is and what it must not know. decision"""
    silent = [
        str(file.relative_to(ROOT))
        for file in PACKAGE.rglob("*.py")
        if (text := file.read_text("utf-8")).strip() and not text.startswith(('"""', 'r"""'))
    ]
    assert silent == []
