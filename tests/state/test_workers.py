"""How many workers there evidently are, and what the log says without keys=."""

import logging
import sys

import pytest

from fastapi_mcp_mrtr.state.keys import KeyRing
from fastapi_mcp_mrtr.state.workers import evident_workers, warn_if_process_local

from .samples import RING


@pytest.mark.parametrize(
    ("command", "workers"),
    [
        ("uvicorn app:app --workers 4", 4),
        ("uvicorn app:app --workers=4", 4),
        ("/srv/.venv/bin/uvicorn --workers 4 app:app", 4),
        ("/site-packages/uvicorn/__main__.py app:app --workers 2", 2),
        ("fastapi run --workers 3", 3),
        ("gunicorn -w 8 app:app", 8),
        ("gunicorn -w8 app:app", 8),
        ("gunicorn -w=8 app:app", 8),
        ("hypercorn -w 2 app:app", 2),
        ("granian --workers 2 app:app", 2),
        ("uvicorn.exe app:app --workers 2", 2),
        ("serve.py --workers 5", 5),
        ("uvicorn app:app --workers 2 --workers 6", 6),
        ("uvicorn app:app", None),
        ("uvicorn app:app --workers 1", None),
        ("uvicorn app:app --workers 0", None),
        ("uvicorn app:app --workers -3", None),
        ("uvicorn app:app --workers", None),
        ("uvicorn app:app --workers many", None),
        ("uvicorn app:app --workers 4x", None),
        ("uvicorn app:app --workers 99999999999", None),
        ("uvicorn app:app --workers ٤", None),
        ("uvicorn app:app --workers-per-core 4", None),
        ("uvicorn app:app -wal 4", None),
        ("script.py -w 4", None),
        ("pytest -n 4", None),
        ("", None),
    ],
)
def test_command_lines(command: str, workers: int | None) -> None:
    """user report: four workers and no shared secret; the command line says so."""
    assert evident_workers(command.split(), {}) == workers


@pytest.mark.parametrize(
    ("environ", "workers"),
    [
        ({"WEB_CONCURRENCY": "4"}, 4),
        ({"WEB_CONCURRENCY": " 4\n"}, 4),
        ({"WEB_CONCURRENCY": "1"}, None),
        ({"WEB_CONCURRENCY": ""}, None),
        ({"WEB_CONCURRENCY": "auto"}, None),
        ({"WEB_CONCURRENCY": "-4"}, None),
        ({"GUNICORN_CMD_ARGS": "--bind=0.0.0.0 --workers=3"}, 3),
        ({"GUNICORN_CMD_ARGS": "-w 3"}, 3),
        ({"GUNICORN_CMD_ARGS": "--workers=1", "WEB_CONCURRENCY": "9"}, None),
        ({}, None),
    ],
)
def test_environments(environ: dict[str, str], workers: int | None) -> None:
    """decision: WEB_CONCURRENCY is what hosting platforms set and uvicorn and gunicorn read."""
    assert evident_workers(["uvicorn", "app:app"], environ) == workers


def test_the_command_line_wins() -> None:
    """decision: as in the servers themselves."""
    assert evident_workers(["uvicorn", "--workers", "1"], {"WEB_CONCURRENCY": "8"}) is None
    assert evident_workers([], {"WEB_CONCURRENCY": "8"}) == 8


def records(caplog: pytest.LogCaptureFixture) -> list[tuple[str, int]]:
    return [(record.name, record.levelno) for record in caplog.records]


def test_one_process_is_warned_once(caplog: pytest.LogCaptureFixture) -> None:
    """decision: right for one process on a laptop; the log says what it is not right for."""
    ring = KeyRing.process_local()
    for _ in range(3):
        warn_if_process_local(ring, argv=["uvicorn"], environ={}, has_parent=False)
    assert records(caplog) == [("fastapi_mcp_mrtr", logging.WARNING)]
    assert "MCPRouter(keys=" in caplog.text


def test_every_ring_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    """decision: two routers without keys= are two mistakes."""
    for _ in range(2):
        warn_if_process_local(KeyRing.process_local(), argv=[], environ={}, has_parent=False)
    assert len(caplog.records) == 2


def test_several_workers_are_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """user report: 1 flow in 8 worked over 8 workers; that is louder than a warning."""
    ring = KeyRing.process_local()
    warn_if_process_local(ring, argv=["gunicorn", "-w", "8"], environ={}, has_parent=False)
    assert records(caplog) == [("fastapi_mcp_mrtr", logging.ERROR)]
    assert "8 worker processes" in caplog.text
    assert "BREAKS" in caplog.text


def test_a_child_process_is_told_about_siblings(caplog: pytest.LogCaptureFixture) -> None:
    """decision: uvicorn.run(workers=...) leaves no trace but the parent, and so does its reload."""
    ring = KeyRing.process_local()
    warn_if_process_local(ring, argv=["main.py"], environ={}, has_parent=True)
    assert records(caplog) == [("fastapi_mcp_mrtr", logging.WARNING)]
    assert "uvicorn.run(workers=...)" in caplog.text


def test_configured_rings_are_silent(caplog: pytest.LogCaptureFixture) -> None:
    """decision: with keys= nothing is wrong with any number of workers."""
    warn_if_process_local(RING, argv=["gunicorn", "-w", "8"], environ={}, has_parent=True)
    assert not caplog.records


def test_the_process_itself_is_asked(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """decision: argv, environment and parent default to what is true here."""
    monkeypatch.setattr(sys, "argv", ["uvicorn", "app:app"])
    monkeypatch.setenv("WEB_CONCURRENCY", "3")
    warn_if_process_local(KeyRing.process_local())
    assert "3 worker processes" in caplog.text
    monkeypatch.delenv("WEB_CONCURRENCY")
    monkeypatch.delenv("GUNICORN_CMD_ARGS", raising=False)
    caplog.clear()
    warn_if_process_local(KeyRing.process_local())
    assert records(caplog) == [("fastapi_mcp_mrtr", logging.WARNING)]


def test_no_secret_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """decision: the log names the remedy and no material."""
    ring = KeyRing.process_local()
    warn_if_process_local(ring, argv=["gunicorn", "-w", "8"], environ={}, has_parent=True)
    assert ring.primary_kid not in caplog.text
