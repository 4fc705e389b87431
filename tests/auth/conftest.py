"""What the tests of `auth` share."""

import pytest

from fastapi_mcp_mrtr.auth import http_client


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy with other tests is no issuer that does not answer."""
    monkeypatch.setattr(http_client, "TIMEOUT", 60.0)
