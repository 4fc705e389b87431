"""Names that need a package which only an extra brings. Knows modules, and nothing in them."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any


def ask_for(name: str, extras: Mapping[str, str], package: str) -> Any:
    """Import a name when it is asked for; `extras` says of which, which is also its module.

    For a package's `__getattr__`. Raises: AttributeError, for other names; ImportError, which says
    what to install.
    """
    extra = extras.get(name)
    if extra is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f".{extra}", package), name)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{name} needs the extra [{extra}]: pip install 'fastapi-mcp-mrtr[{extra}]' "
            f"({error.name} is not installed)"
        ) from error
