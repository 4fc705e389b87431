"""The demo's customers as people who can sign in."""

from typing import Final

from demo_app.db import CUSTOMERS, sha256

from .settings import Person

_BY_KEY: Final = {sha256(key): Person(id, name) for id, name, key, _ in CUSTOMERS}


async def seeded_customer(key: str) -> Person | None:
    """Whose API key this is, of those that the demo starts with."""
    return _BY_KEY.get(sha256(key))
