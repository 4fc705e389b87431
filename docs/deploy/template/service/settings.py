"""Settings from the environment, read once at the start. What is missing stops the start."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fastapi_mcp_mrtr import KeyRing, Secret


@dataclass(frozen=True)
class Settings:
    redis_url: str
    keys: KeyRing
    callers: Mapping[str, str]
    """The SHA-256 of an API key, and who has it."""
    allowed_hosts: tuple[str, ...]

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> "Settings":
        """MCP_STATE_KEYS, API_KEYS (or the same with _FILE), REDIS_URL, ALLOWED_HOSTS."""
        primary, *accepted = (
            Secret(kid, value) for kid, value in _pairs(_secret(environ, "MCP_STATE_KEYS"))
        )
        return cls(
            redis_url=environ["REDIS_URL"],
            keys=KeyRing(primary=primary, accepted=accepted),
            callers={digest(key): who for who, key in _pairs(_secret(environ, "API_KEYS"))},
            allowed_hosts=tuple(environ.get("ALLOWED_HOSTS", "").split()),
        )


def digest(key: str) -> str:
    """What is compared and kept of an API key, which has entropy enough for a plain hash."""
    return hashlib.sha256(key.encode()).hexdigest()


def _secret(environ: Mapping[str, str], name: str) -> str:
    """The variable, or the file that the variable with _FILE names, as containers mount them."""
    file = environ.get(f"{name}_FILE")
    return Path(file).read_text("utf-8") if file else environ[name]


def _pairs(text: str) -> list[tuple[str, str]]:
    """`name=value`, separated by blanks or line ends."""
    pairs = []
    for pair in text.split():
        name, _, value = pair.partition("=")
        pairs.append((name, value))
    return pairs
