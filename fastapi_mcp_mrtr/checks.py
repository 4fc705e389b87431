"""What settings that are numbers must be. Pure: knows none of them by name.

Each check says what is accepted, so that a NaN is refused.
"""

from collections.abc import Iterator, Mapping


def require_positive(**settings: float) -> None:
    """Refuse what is no number above zero.

    Raises: TypeError, ValueError; they name the setting.
    """
    for setting, value in _numbers(settings):
        if not value > 0:
            raise ValueError(f"{setting} must be positive, not {value!r}")


def require_not_negative(**settings: float) -> None:
    """Refuse what is neither zero nor a number above it.

    Raises: TypeError, ValueError; they name the setting.
    """
    for setting, value in _numbers(settings):
        if not value >= 0:
            raise ValueError(f"{setting} must be 0 or more, not {value!r}")


def _numbers(settings: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    for setting, value in settings.items():
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise TypeError(f"{setting} takes a number, not {type(value).__name__}")
        yield setting, value
