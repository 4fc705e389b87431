"""The console: one page beside the endpoint, on which people play the part of an MCP client.

    settings   what a user chooses       guard   who may see it
    assets     the page and its headers  routes  where it is

The page is a program of its own; its sources are in `console/` of the repository, and what Vite
makes of them is in `static/`. It talks to the endpoint like any other client.
"""

from .settings import Console as Console
