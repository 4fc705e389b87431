"""What is inside a `requestState`, for support. Knows no server."""

import getpass
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastapi_mcp_mrtr.errors import RequestStateError
from fastapi_mcp_mrtr.state.codec import AESGCMCodec, kid_of
from fastapi_mcp_mrtr.state.keys import KeyRing, Secret
from fastapi_mcp_mrtr.state.security import describe_state

from .exits import Exit, Stop

_TIMES = ("issued", "expires", "started", "ends")


def read_keys(sources: Mapping[str, str], token: str) -> KeyRing:
    """The secrets that `sources` name: `env:NAME` or `file:PATH` for each kid.

    Without any, the one that the token names is asked for. Raises: Stop.
    """
    try:
        secrets = [Secret(kid, _read(source)) for kid, source in sources.items()]
        if not secrets:
            kid = kid_of(token)
            secrets = [Secret(kid, getpass.getpass(f"The secret {kid!r}: "))]
        return KeyRing(primary=secrets[0], accepted=secrets[1:])
    except RequestStateError as error:
        raise Stop(Exit.FAILED, f"This is no requestState: {error.reason}") from None
    except (OSError, ValueError) as error:
        raise Stop(Exit.FAILED, f"The secrets cannot be read: {error}") from None


def _read(source: str) -> str:
    place, _, name = source.partition(":")
    if place == "env":
        if name not in os.environ:
            raise ValueError(f"there is no variable {name} in the environment")
        return os.environ[name]
    if place == "file":
        return Path(name).read_text("utf-8").strip()
    raise ValueError("a secret comes from env:NAME or file:PATH; an option can be seen by others")


def opened(token: str, keys: KeyRing) -> dict[str, Any]:
    """What the state says, with times that can be read. Raises: Stop."""
    try:
        said = describe_state(AESGCMCodec(keys), token)
    except RequestStateError as error:
        names = ", ".join(keys.kids)
        why = f"It does not open with {names}: {error.reason}"
        raise Stop(Exit.FAILED, why) from None
    times = {name: datetime.fromtimestamp(said[name], UTC).isoformat() for name in _TIMES}
    return {**said, **times}
