"""listing: pages that are encoded once, cursors that only this server can make."""

import json
from typing import Any

import pytest
from fastapi import FastAPI

from fastapi_mcp_mrtr import HandlerGroup, MCPError, MCPRouter, Secret
from fastapi_mcp_mrtr.server.listing import Listings
from fastapi_mcp_mrtr.server.registry import Entry
from fastapi_mcp_mrtr.state.codec import AESGCMCodec
from fastapi_mcp_mrtr.state.keys import KeyRing
from tests import wire

META = {"by": "tests"}
METHODS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}


def handler() -> str:
    return ""


def by_id(id: str) -> str:
    return ""


def group_of(size: int) -> HandlerGroup:
    group = HandlerGroup()
    for n in range(size):
        group.tool(f"t{n}")(handler)
        group.prompt(f"p{n}")(handler)
        group.resource(f"x:{n}")(handler)
        group.resource(f"x{n}:{{id}}")(by_id)
    return group


def listings_of(group: HandlerGroup, page_size: int = 2) -> Listings:
    codec = AESGCMCodec(KeyRing.of(Secret("one", b"1" * 32)))
    return Listings(group._registry, codec, page_size=page_size, ttl_ms=5000)


def nothing(_: Entry) -> bool:
    return False


def encoded(listings: Listings, method: str, cursor: Any = None) -> bytes:
    params = {} if cursor is None else {"cursor": cursor}
    return listings.page(method, params, META, is_hidden=nothing)


def page(listings: Listings, method: str, cursor: Any = None) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(encoded(listings, method, cursor))
    return result


def names(result: dict[str, Any], method: str) -> list[str]:
    key = {"resources/list": "uri", "resources/templates/list": "uriTemplate"}.get(method, "name")
    return [item[key] for item in result[METHODS[method]]]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("page_size", [1, 2, 5, 6])
def test_every_item_is_listed_once_in_order(method: str, page_size: int) -> None:
    """spec: cursors lead through all pages (server/utilities/pagination), in stable order."""
    listings = listings_of(group_of(5), page_size)
    found, cursor = [], None
    while True:
        result = page(listings, method, cursor)
        found += names(result, method)
        cursor = result.get("nextCursor")
        if cursor is None:
            break
        assert len(result[METHODS[method]]) == page_size
    assert len(found) == len(set(found)) == 5
    assert [name.strip("tpx:{id}") for name in found] == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("method", METHODS)
def test_a_list_may_be_kept_and_says_who_made_it(method: str) -> None:
    """spec: resultType, ttlMs and cacheScope on every list (server/utilities/caching)."""
    result = page(listings_of(group_of(1)), method)
    assert result["resultType"] == "complete"
    assert (result["ttlMs"], result["cacheScope"]) == (5000, "public")
    assert result["_meta"] == META


def test_templates_and_resources_are_listed_apart() -> None:
    """spec: templates have a method of their own (server/resources)."""
    listings = listings_of(group_of(1))
    assert names(page(listings, "resources/list"), "resources/list") == ["x:0"]


@pytest.mark.parametrize("method", METHODS)
def test_what_was_never_offered_is_no_method(method: str) -> None:
    """spec: without the capability, -32601; with it, an empty list is an answer."""
    group = HandlerGroup()
    listings = listings_of(group)
    with pytest.raises(MCPError) as caught:
        page(listings, method)
    assert caught.value.code == -32601
    group.tool("t")(handler)
    group.remove_tool("t")
    assert page(listings, "tools/list")["tools"] == []


def test_pages_are_encoded_once_and_again_when_something_changes() -> None:
    """decision: the bytes are kept; user report: tools added late were missing (fa#63)."""
    group = group_of(3)
    listings = listings_of(group)
    first = encoded(listings, "tools/list")
    assert encoded(listings, "tools/list") is first
    cursor = json.loads(first)["nextCursor"]
    second = encoded(listings, "tools/list", cursor)
    assert encoded(listings, "tools/list", cursor) is second
    group.tool("late")(handler)
    assert encoded(listings, "tools/list") is not first
    assert names(page(listings, "tools/list", cursor), "tools/list") == ["t2", "late"]
    group.remove_tool("t0")
    assert names(page(listings, "tools/list"), "tools/list") == ["t1", "t2"]


def test_a_cursor_is_stable_while_its_place_is_there() -> None:
    """decision: what is registered or removed elsewhere does not move it."""
    group = group_of(4)
    listings = listings_of(group)
    cursor = page(listings, "tools/list")["nextCursor"]
    group.remove_tool("t0")
    group.tool("t4")(handler)
    assert names(page(listings, "tools/list", cursor), "tools/list") == ["t2", "t3"]


def test_a_cursor_whose_place_is_gone_is_invalid() -> None:
    """spec: an invalid cursor is -32602; the client begins again."""
    group = group_of(3)
    listings = listings_of(group)
    cursor = page(listings, "tools/list")["nextCursor"]
    group.remove_tool("t1")
    with pytest.raises(MCPError) as caught:
        page(listings, "tools/list", cursor)
    assert caught.value.code == -32602


def test_a_cursor_is_of_one_list() -> None:
    """decision: a cursor of another list is not ours either, though both have the name."""
    listings = listings_of(group_of(3))
    cursor = page(listings, "tools/list")["nextCursor"]
    for method in METHODS:
        if method != "tools/list":
            with pytest.raises(MCPError, match="Invalid cursor"):
                page(listings, method, cursor)


def test_a_cursor_that_was_tampered_with_is_invalid() -> None:
    """decision: sealed, so that every flipped character shows."""
    listings = listings_of(group_of(3))
    cursor = page(listings, "tools/list")["nextCursor"]
    for i in range(len(cursor)):
        other = "A" if cursor[i] != "A" else "B"
        with pytest.raises(MCPError, match="Invalid cursor"):
            page(listings, "tools/list", cursor[:i] + other + cursor[i + 1 :])


@pytest.mark.parametrize("cursor", ["", "x", 1, True, [], {}, "t1"])
def test_a_cursor_of_another_shape_is_invalid(cursor: Any) -> None:
    """spec: -32602 for an invalid cursor."""
    listings = listings_of(group_of(3))
    with pytest.raises(MCPError) as caught:
        page(listings, "tools/list", cursor)
    assert (caught.value.code, caught.value.message) == (-32602, "Invalid cursor")


def test_a_list_is_json_whatever_is_in_it() -> None:
    """decision: a default of NaN or a lone surrogate in a docstring must not take the list down."""
    group = HandlerGroup()

    def odd(x: float = float("nan")) -> str:
        return ""

    odd.__doc__ = "\ud800"
    group.tool(odd)
    result = page(listings_of(group), "tools/list")
    assert result["tools"][0]["description"] == "\ufffd"
    assert result["tools"][0]["inputSchema"]["properties"]["x"]["default"] is None


def test_a_list_that_differs_between_callers_is_private_and_encoded_for_each() -> None:
    """spec: a list that depends on who asks must not be shared (server/utilities/caching)."""
    group = group_of(3)
    group.tool("secret", scopes=["s"], visibility="authorized")(handler)
    listings = listings_of(group)

    def seen_by(hidden: set[str], cursor: str | None = None) -> dict[str, Any]:
        params = {} if cursor is None else {"cursor": cursor}
        page = listings.page("tools/list", params, META, is_hidden=lambda e: e.name in hidden)
        result: dict[str, Any] = json.loads(page)
        return result

    first = seen_by({"secret", "t0"})
    assert names(first, "tools/list") == ["t1", "t2"]
    assert first["cacheScope"] == "private"
    assert "nextCursor" not in first
    cursor = seen_by(set())["nextCursor"]
    assert names(seen_by(set(), cursor), "tools/list") == ["t2", "secret"]
    assert page(listings, "prompts/list")["cacheScope"] == "public"


def test_lists_through_the_endpoint() -> None:
    """user report: tools of a group that is joined after mounting were missing (fa#63)."""
    mcp = MCPRouter("s", version="1", page_size=3)
    app = FastAPI()
    app.include_router(mcp)
    response = wire.post(app, wire.message("tools/list"))
    assert (response.status_code, wire.error_of(response)["code"]) == (404, -32601)
    mcp.include(group_of(5))
    result = wire.result_of(wire.post(app, wire.message("tools/list")))
    cursor = result["nextCursor"]
    assert names(result, "tools/list") == ["t0", "t1", "t2"]
    result = wire.result_of(wire.post(app, wire.message("tools/list", {"cursor": cursor})))
    assert names(result, "tools/list") == ["t3", "t4"]
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"] == {"name": "s", "version": "1"}
    response = wire.post(app, wire.message("prompts/list", {"cursor": cursor}))
    assert (response.status_code, wire.error_of(response)["code"]) == (400, -32602)
