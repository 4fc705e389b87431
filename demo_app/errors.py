"""What can be wrong with a request to the desk.

As `HTTPException`s they serve both faces: a REST client reads status and detail, and an MCP tool
answers with an error result that says the detail.
"""

from fastapi import HTTPException


class NotFound(HTTPException):
    """There is no such thing, or it is somebody else's."""

    def __init__(self, what: str) -> None:
        super().__init__(404, f"There is no {what}.")


class Conflict(HTTPException):
    """The request contradicts what is in the database."""

    def __init__(self, detail: str) -> None:
        super().__init__(409, detail)
