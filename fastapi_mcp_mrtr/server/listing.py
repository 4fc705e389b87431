"""The list methods: pages encoded once, kept until something changes, cursors that are sealed."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from fastapi_mcp_mrtr.errors import INVALID_PARAMS, METHOD_NOT_FOUND, MCPError
from fastapi_mcp_mrtr.protocol.jsonrpc import encode
from fastapi_mcp_mrtr.state.codec import RequestStateCodec
from fastapi_mcp_mrtr.state.cursor import open_cursor, seal_cursor

from .registry import Entry, Kind, Registry

_LISTS: Final[Mapping[str, tuple[Kind, str, str]]] = {
    "tools/list": ("tools", "tools", "tools"),
    "prompts/list": ("prompts", "prompts", "prompts"),
    "resources/list": ("resources", "resources", "resources"),
    "resources/templates/list": ("resources", "templates", "resourceTemplates"),
}
"""Method → what changes it, the registry's table, the member of the result."""


class Listings:
    """Answers the list methods from bytes. `page_size` items a page, in order of registration."""

    def __init__(
        self, registry: Registry, codec: RequestStateCodec, *, page_size: int, ttl_ms: int
    ) -> None:
        self._registry = registry
        self._codec = codec
        self._page_size = page_size
        # The lists are the same for every caller (server/utilities/caching).
        self.caching: Final = {"ttlMs": ttl_ms, "cacheScope": "public"}
        self._pages: dict[tuple[str, str | None], bytes] = {}
        registry.on_change(self._forget)

    def page(
        self,
        method: str,
        params: Mapping[str, Any],
        meta: Mapping[str, Any],
        *,
        is_hidden: Callable[[Entry], bool],
    ) -> bytes:
        """The encoded result of a list request.

        `is_hidden` says what does not exist for the caller. Where the list may differ between
        callers, it is encoded for each and private to them (server/utilities/caching).

        Raises:
            MCPError: -32602 for a cursor that is not ours or no longer leads anywhere; -32601 when
                the server offers nothing of this kind.
        """
        kind, table, member = _LISTS[method]
        if kind not in self._registry.ever:
            raise MCPError(METHOD_NOT_FOUND, "Method not found")
        cursor = params.get("cursor")
        after = None if cursor is None else open_cursor(self._codec, method, cursor)
        pages = self._pages
        encoded = pages.get((method, after))
        if encoded is None:
            entries: dict[str, Entry] = dict(getattr(self._registry, table))
            if any(entry.settings.visibility == "authorized" for entry in entries.values()):
                shown = {name for name, entry in entries.items() if not is_hidden(entry)}
                caching = {**self.caching, "cacheScope": "private"}
                return self._encode(
                    method, entries, shown, member, after, {**caching, "_meta": meta}
                )
            common = {**self.caching, "_meta": meta}
            encoded = self._encode(method, entries, entries.keys(), member, after, common)
            pages[method, after] = encoded
        return encoded

    def _encode(
        self,
        method: str,
        entries: Mapping[str, Entry],
        shown_names: Collection[str],
        member: str,
        after: str | None,
        common: Mapping[str, Any],
    ) -> bytes:
        names = list(entries)
        if after is not None:
            if after not in entries:
                raise MCPError(INVALID_PARAMS, "Invalid cursor")
            del names[: names.index(after) + 1]
        names = [name for name in names if name in shown_names]
        shown = names[: self._page_size]
        result: dict[str, Any] = {
            "resultType": "complete",
            member: [entries[name].definition for name in shown],
            **common,
        }
        if self._page_size < len(names):
            result["nextCursor"] = seal_cursor(self._codec, method, shown[-1])
        return encode(result)

    def _forget(self, kind: Kind) -> None:
        # A new dict: a page encoded meanwhile from the old tables lands in the old one.
        self._pages = {}
