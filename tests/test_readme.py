"""The README's first section, done by somebody who has nothing but a wheel and an empty folder."""

import copy
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from .test_docs import Block, Shell, blocks_of, commands_of, free_port, require_output

ROOT = Path(__file__).resolve().parents[1]


def steps() -> Iterator[Block]:
    """The blocks of the first section."""
    readme = ROOT / "README.md"
    text = readme.read_text()
    start = text.index("## From an empty folder")
    lines = (text.count("\n", 0, start), text.count("\n", 0, text.index("\n## ", start)))
    return (block for block in blocks_of(readme) if lines[0] < block.line < lines[1])


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (file,) = folder.glob("*.whl")
    return file


class Newcomer:
    """Follows the steps. What they install is the wheel, and the port is one that is free."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.base = f"http://127.0.0.1:{self.port}"
        self.commands: list[str] = []
        self._wheel = wheel
        # No tools of the checkout, and Python as a reader has it.
        self._shell = Shell(folder, Path(sys.base_prefix) / "bin")

    def follow(self, block: Block) -> None:
        text = block.text.replace("8000", str(self.port))
        if block.title is not None:
            (self.folder / block.title).write_text(text)
            return
        for command, expected in commands_of(block):
            command = command.replace("8000", str(self.port))
            command = re.sub(r'"fastapi-mcp-mrtr(\[.*\])"', rf'"{self._wheel}\1"', command)
            if command.startswith("pip install "):
                command = command.replace("install", "install -qq --disable-pip-version-check", 1)
            self.commands.append(command)
            printed = self._shell.run(command)
            require_output(expected, printed.replace(str(self.port), "8000"), block.where)

    def close(self) -> None:
        self._shell.close()


@pytest.fixture(scope="module")
def newcomer(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    newcomer = Newcomer(tmp_path_factory.mktemp("empty"), wheel)
    try:
        for block in steps():
            newcomer.follow(block)
        yield newcomer
    finally:
        newcomer.close()


def test_the_steps_work_in_a_fresh_environment(newcomer: Newcomer) -> None:
    """From an empty folder to a two-round call in a terminal, as the README says. decision"""
    first_words = [command.split()[0] for command in newcomer.commands]
    assert first_words == ["python3", ".", "pip", "uvicorn", "fastapi-mcp-mrtr"]
    installed = newcomer.folder / ".venv"
    assert list(installed.rglob("fastapi_mcp_mrtr/py.typed"))
    assert not list(installed.rglob("__editable__*"))


def test_two_rounds_in_swagger_ui(newcomer: Newcomer) -> None:
    """What the page of the second way sends; tests/browser/test_swagger.py clicks it. decision"""
    with httpx2.Client(base_url=newcomer.base) as client:
        assert client.get("/docs").status_code == 200
        paths = client.get("/openapi.json").json()["paths"]
        operation = paths["/mcp#tool=pick_seat"]["post"]
        headers = {each["name"]: each["schema"]["default"] for each in operation["parameters"]}
        examples = operation["requestBody"]["content"]["application/json"]["examples"]

        def execute(body: Any) -> Any:
            return client.post("/mcp", json=body, headers=headers).json()["result"]

        asked = execute(examples["first"]["value"])
        assert asked["resultType"] == "input_required"
        assert examples["next"]["summary"] == "Next round, with answers"
        body = copy.deepcopy(examples["next"]["value"])
        body["params"]["requestState"] = asked["requestState"]
        answered = execute(body)
        assert answered["content"][0]["text"] == "Seat 12A on text is yours."


def test_the_console_is_served_from_the_wheel(newcomer: Newcomer) -> None:
    """Its page and all that the page loads, without Node and without the checkout. decision"""
    with httpx2.Client(base_url=newcomer.base, follow_redirects=True) as client:
        page = client.get("/mcp/console")
        assert page.status_code == 200
        loaded = re.findall(r'(?:src|href)="([^"#]+)"', page.text)
        assert any(name.endswith(".js") for name in loaded)
        for name in loaded:
            assert client.get(str(page.url.join(name))).status_code == 200, name


def test_the_readme_is_short_enough() -> None:
    """Somebody who is new reads ten lines of code, not a hundred. decision"""
    (code,) = (block.text for block in steps() if block.language == "python")
    assert len([line for line in code.splitlines() if line.strip()]) <= 12
    assert json.dumps(code).isascii()
