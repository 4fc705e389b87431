"""The command `fastapi-mcp-mrtr`: look at a server, call it from a terminal, and help with states.

It reaches servers over HTTP alone, like any other client. Needs the extra `[cli]`.
"""

import sys


def main() -> None:
    """Run the command with the arguments of this process."""
    try:
        from .commands import app
    except ImportError as error:
        sys.exit(
            "The command fastapi-mcp-mrtr needs an extra: "
            f"pip install 'fastapi-mcp-mrtr[cli]' ({error})"
        )
    app()
