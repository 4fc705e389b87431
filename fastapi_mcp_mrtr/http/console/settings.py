"""What a user chooses for the console. Knows no request."""

from collections.abc import Iterable
from typing import Final, Literal

from fastapi_mcp_mrtr.http.origin import checked_hosts, checked_origins


class Console:
    """A console with settings of its own, for `MCPRouter(console=...)`.

    ```python
    MCPRouter("travel-desk", version="1.0.0", console=Console(hosts=["desk.example.com"]))
    ```

    `console=True` is `Console()`, and `console="debug"` is `Console(debug=True)`.

    Args:
        hosts: who else than this computer may open it: the `Host` headers under which the server
            is reached, such as `desk.example.com` or `localhost:8000`. The endpoint accepts calls
            from pages of these hosts, as if they were in `allowed_hosts`.
        connect: origins of authorization servers that the page may talk to when people sign in.
            Those of a `ProtectedResource` and of `resource_metadata_url` are known.
        debug: also open the caller's own `requestState`s, on this computer only.

    Raises:
        ValueError, TypeError: an entry that no browser ever sends.
    """

    __slots__ = ("connect", "debug", "hosts")

    def __init__(
        self, *, hosts: Iterable[str] = (), connect: Iterable[str] = (), debug: bool = False
    ) -> None:
        self.hosts: Final = frozenset(checked_hosts("Console(hosts=)", hosts))
        self.connect: Final = tuple(checked_origins("Console(connect=)", connect))
        self.debug: Final = debug

    @classmethod
    def of(cls, value: "ConsoleSetting") -> "Console | None":
        """Read a `console=` setting. Raises: TypeError."""
        match value:
            case False | None:
                return None
            case True:
                return cls()
            case "debug":
                return cls(debug=True)
            case Console():
                return value
        raise TypeError(f'console= takes True, "debug" or a Console, not {value!r}')


ConsoleSetting = bool | Literal["debug"] | Console | None
