"""What several contestants do: the same dependencies, the same question, the same text."""

from typing import Annotated, Literal

from fastapi import Header
from pydantic import BaseModel, Field


class Echo(BaseModel):
    text: str


class Seat(BaseModel):
    row: int = Field(ge=1, le=40)
    letter: Literal["A", "B", "C"]


async def current_user(x_api_key: Annotated[str, Header()]) -> str:
    """Who calls: the one dependency of the bare route, and the principal of the library."""
    return x_api_key


async def settings() -> str:
    return "settings"


async def database() -> str:
    return "database"


async def clock() -> str:
    return "clock"
