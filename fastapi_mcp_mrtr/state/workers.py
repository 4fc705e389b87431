"""Say so in the log when another worker, or this one restarted, cannot open what is sealed here.

Knows argv, the environment and logging; no token and no secret.
"""

import logging
import multiprocessing
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Final

from .keys import KeyRing

logger = logging.getLogger("fastapi_mcp_mrtr")

SERVERS: Final = frozenset({"fastapi", "granian", "gunicorn", "hypercorn", "uvicorn"})
# `-w` is a server's option only on a server's command line; `--workers` means one thing everywhere.
_LONG: Final = re.compile(r"--workers[= ](\d{1,6})(?= |$)", re.ASCII)
_LONG_OR_SHORT: Final = re.compile(r"(?:--workers[= ]|-w[= ]?)(\d{1,6})(?= |$)", re.ASCII)

_REMEDY: Final = (
    "Give every process the same secret of at least 32 random bytes: "
    'MCPRouter(keys=Secret("2026-08", os.environ["MCP_STATE_SECRET"])).'
)


def evident_workers(argv: Sequence[str], environ: Mapping[str, str]) -> int | None:
    """Return how many worker processes the command line or the environment asks for, if several.

    Read in the order in which the servers give precedence: the options of uvicorn, gunicorn,
    hypercorn, granian and `fastapi run`, then `GUNICORN_CMD_ARGS`, then `WEB_CONCURRENCY`. `None`
    is no proof: a worker count in code or in a configuration file cannot be seen from here.
    """
    on_server = not SERVERS.isdisjoint(program_names(argv))
    option = _LONG_OR_SHORT if on_server else _LONG
    found = (
        option.findall(" ".join(argv))
        or _LONG_OR_SHORT.findall(environ.get("GUNICORN_CMD_ARGS", ""))
        or re.findall(r"^\s*(\d{1,6})\s*$", environ.get("WEB_CONCURRENCY", ""), re.ASCII)
    )
    # An option given twice counts as given last.
    workers = int(found[-1]) if found else 1
    return workers if workers > 1 else None


def warn_if_process_local(
    keys: KeyRing,
    *,
    argv: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
    has_parent: bool | None = None,
) -> None:
    """Log once per ring that its secret is random and this process's own; as an error if it hurts.

    The keyword arguments default to what is true of this process.
    """
    if not keys.is_process_local or keys.warned:
        return
    keys.warned = True
    workers = evident_workers(
        sys.argv if argv is None else argv, os.environ if environ is None else environ
    )
    if has_parent is None:
        has_parent = multiprocessing.parent_process() is not None
    if workers is not None:
        logger.error(
            "No keys= configured, and %d worker processes are evident. Each seals requestState "
            "with a random secret of its own, so a flow BREAKS whenever its next round reaches "
            "another worker. %s",
            workers,
            _REMEDY,
        )
    elif has_parent:
        logger.warning(
            "No keys= configured, and this process was started by another one, as "
            "uvicorn.run(workers=...) does. If it has siblings, a flow BREAKS whenever its next "
            "round reaches one of them; it breaks at every restart in any case. %s",
            _REMEDY,
        )
    else:
        logger.warning(
            "No keys= configured: requestState is sealed with a random secret of this process. "
            "Flows break when it restarts, and with more than one worker. %s",
            _REMEDY,
        )


def warn_if_not_alone(what: str, consequence: str, remedy: str) -> None:
    """Log that something is this process's own, if the process evidently has siblings, or may."""
    workers = evident_workers(sys.argv, os.environ)
    if workers is not None:
        logger.error(
            "%s is one process's own, and %d worker processes are evident: %s. %s",
            what,
            workers,
            consequence,
            remedy,
        )
    elif multiprocessing.parent_process() is not None:
        logger.warning(
            "%s is one process's own, and this one was started by another, as "
            "uvicorn.run(workers=...) does. If it has siblings, %s. %s",
            what,
            consequence,
            remedy,
        )


def program_names(argv: Sequence[str]) -> Iterable[str]:
    """Name the program run: `uvicorn` both for `/bin/uvicorn` and for `python -m uvicorn`."""
    path = PurePath(argv[0] if argv else "")
    return path.stem, path.parent.name
