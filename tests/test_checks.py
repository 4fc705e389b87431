"""Settings that are numbers."""

from collections.abc import Callable
from typing import Any

import pytest

from fastapi_mcp_mrtr.auth.jwks import JWKSCache
from fastapi_mcp_mrtr.checks import require_not_negative, require_positive
from fastapi_mcp_mrtr.server.groups import HandlerGroup
from fastapi_mcp_mrtr.server.registry import Settings

NAN = float("nan")


@pytest.mark.parametrize(
    ("check", "good", "bad", "message"),
    [
        (require_positive, [1, 0.5, float("inf")], [0, -1, -0.5, NAN], "lease must be positive"),
        (require_not_negative, [0, 0.0, 1, 0.5], [-1, -0.5, NAN], "lease must be 0 or more"),
    ],
)
def test_what_a_number_must_be(
    check: Callable[..., None], good: list[float], bad: list[float], message: str
) -> None:
    """decision: a setting that makes no sense stops the import, and says which one it is."""
    for value in good:
        check(ttl=1, lease=value)
    for value in bad:
        with pytest.raises(ValueError, match=f"^{message}, not {value!r}$"):
            check(ttl=1, lease=value)


@pytest.mark.parametrize("check", [require_positive, require_not_negative])
@pytest.mark.parametrize("value", ["5m", None, True, [1]])
def test_what_is_no_number_is_refused(check: Callable[..., None], value: Any) -> None:
    """decision: in words about the setting, not about operators."""
    with pytest.raises(TypeError, match=f"^lease takes a number, not {type(value).__name__}$"):
        check(lease=value)


@pytest.mark.parametrize(
    ("setting", "make"),
    [
        ("ttl", lambda value: Settings(ttl=value)),
        ("max_rounds", lambda value: Settings(max_rounds=value)),
        ("ask_timeout", lambda value: Settings(ask_timeout=value)),
        ("cache_ttl_ms", lambda value: HandlerGroup().resource("x:a", cache_ttl_ms=value)),
        ("cooldown", lambda value: JWKSCache("https://as.example", fetch=never, cooldown=value)),
    ],
)
def test_every_setting_says_so_in_the_same_words(
    setting: str, make: Callable[[Any], object]
) -> None:
    """decision: a handler's settings and a verifier's, like those of the router."""
    with pytest.raises(TypeError, match=f"^{setting} takes a number, not str$"):
        make("5m")
    with pytest.raises(ValueError, match=rf"^{setting} must be (positive|0 or more), not -1$"):
        make(-1)


async def never(url: str) -> bytes:
    raise NotImplementedError  # pragma: no cover - nothing is fetched
