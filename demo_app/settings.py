"""What a deployment of the desk chooses, and the environment variables it chooses with."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from fastapi_mcp_mrtr import Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Defaults fit one process on a laptop.

    Attributes:
        database: the SQLite file; created and filled when missing.
        secret: seals `requestState`. Several workers must share one; `None` makes one per process.
        public_url: where browsers reach the app, such as "https://desk.example.com". `None` takes
            it from each request, which is right unless a proxy hides it.
        redis: where several workers share the sessions of clients of older revisions, such as
            "redis://localhost:6379/0". One process needs none.
        login: whether clients can log in to the MCP endpoint. The authorization server is part of
            this process and in its memory, so it is for one worker. Needs `public_url`.
        hold_seconds: how long a seat stays held without being paid for.
        patience: how many seconds a round waits for a payment before it answers "not yet". Clients
            stop after some rounds, so a longer round gives the customer more time.
        partner_pause: how many seconds each partner takes in the slow fare comparison.
    """

    database: Path = Path("travel-desk.sqlite3")
    secret: Secret | None = None
    public_url: str | None = None
    redis: str | None = None
    login: bool = False
    hold_seconds: float = 15 * 60
    patience: float = 20.0
    partner_pause: float = 0.5

    def __post_init__(self) -> None:
        """Raises: ValueError: clients could not find out where to log in."""
        if self.login and not self.public_url:
            raise ValueError("login=True needs public_url: it is part of every token.")

    @property
    def base_url(self) -> str:
        """`public_url` without a slash at the end."""
        return (self.public_url or "").rstrip("/")

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """Read `TRAVEL_DESK_DATABASE`, `TRAVEL_DESK_SECRET` (32 bytes or more) and so on."""
        defaults = cls()
        secret = environ.get("TRAVEL_DESK_SECRET")
        return cls(
            database=Path(environ.get("TRAVEL_DESK_DATABASE", defaults.database)),
            secret=Secret("desk", secret) if secret else None,
            public_url=environ.get("TRAVEL_DESK_URL") or None,
            redis=environ.get("TRAVEL_DESK_REDIS") or None,
            login=environ.get("TRAVEL_DESK_LOGIN", "") not in ("", "0"),
            hold_seconds=float(environ.get("TRAVEL_DESK_HOLD_SECONDS", defaults.hold_seconds)),
            patience=float(environ.get("TRAVEL_DESK_PATIENCE", defaults.patience)),
            partner_pause=float(environ.get("TRAVEL_DESK_PARTNER_PAUSE", defaults.partner_pause)),
        )
