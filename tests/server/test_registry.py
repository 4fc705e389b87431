"""registry: names are taken once, groups stay live, and nothing is half registered."""

from typing import Any

import pytest

from fastapi_mcp_mrtr.server.registry import (
    Entry,
    Kind,
    PromptEntry,
    Registry,
    ResourceEntry,
    Settings,
    ToolEntry,
    checked_name,
)
from fastapi_mcp_mrtr.server.results import ToolOutput
from fastapi_mcp_mrtr.server.signature import read_signature
from fastapi_mcp_mrtr.server.uri_template import UriTemplate


def handler() -> str:
    return ""


def tool(name: str) -> ToolEntry:
    output = ToolOutput(None, None)
    return ToolEntry(name, {"name": name}, read_signature(handler), Settings(), output, ())


def prompt(name: str) -> PromptEntry:
    return PromptEntry(name, {"name": name}, read_signature(handler), Settings())


def resource(uri: str) -> ResourceEntry:
    template = UriTemplate.parse(uri) if "{" in uri else None
    signature = read_signature(handler)
    return ResourceEntry(uri, {"uri": uri}, signature, Settings(), None, 0, "private", template)


def registry_of(*entries: Entry) -> Registry:
    registry = Registry()
    for entry in entries:
        registry.add(entry)
    return registry


# -------------------------------------------------------------------------------------- settings


def test_settings_that_make_no_sense_are_refused() -> None:
    """decision: fail at registration."""
    wrong: dict[str, Any]
    for wrong in (
        {"ttl": 0},
        {"ttl": float("nan")},
        {"max_rounds": 0},
        {"unasked_answers": "x"},
        {"visibility": "x"},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Settings(**wrong)
    assert Settings(ttl=1.5, max_rounds=1, unasked_answers="accept").ttl == 1.5


@pytest.mark.parametrize("name", ["a", "A-b_c.d", "x" * 128])
def test_legal_names(name: str) -> None:
    """spec: tool names SHOULD be 1 to 128 of A-Z a-z 0-9 _ - . (server/tools §Tool Names)."""
    assert checked_name(name) == name


@pytest.mark.parametrize("name", ["", "x" * 129, "a b", "a/b", "ä", "a\n"])
def test_illegal_names(name: str) -> None:
    """spec: as above."""
    with pytest.raises(ValueError, match="legal name"):
        checked_name(name)


# -------------------------------------------------------------------------------- adding, removing


def test_every_kind_has_its_table() -> None:
    """decision: lookups are by name, or URI."""
    registry = registry_of(tool("t"), prompt("p"), resource("x:a"), resource("x:{id}"))
    assert set(registry.tools) == {"t"}
    assert set(registry.prompts) == {"p"}
    assert set(registry.resources) == {"x:a"}
    assert set(registry.templates) == {"x:{id}"}


def test_a_resource_goes_before_a_template() -> None:
    """decision: the more specific one serves."""
    registry = registry_of(resource("x:{id}"), resource("x:a"))
    match = registry.match_resource("x:a")
    assert match is not None
    assert (match[0].name, match[1]) == ("x:a", {})
    match = registry.match_resource("x:b")
    assert match is not None
    assert (match[0].name, match[1]) == ("x:{id}", {"id": "b"})
    assert registry.match_resource("y:b") is None


@pytest.mark.parametrize("entry", [tool("a"), prompt("a"), resource("x:a"), resource("x:{a}")])
def test_a_name_is_taken_once(entry: Entry) -> None:
    """decision: the second one fails, and says who has the name."""
    registry = registry_of(entry)
    with pytest.raises(ValueError, match="already registered by 'handler'"):
        registry.add(entry)


def test_both_handlers_of_a_name_are_named() -> None:
    """User report: two functions of one name in two modules, and the message named one."""
    line = handler.__code__.co_firstlineno
    with pytest.raises(ValueError, match="already registered") as raised:
        registry_of(tool("a"), tool("a"))
    place = f"'handler' ({__name__}, line {line})"
    assert str(raised.value) == (
        f"tool 'a' is already registered by {place}; it cannot be {place} too"
    )


def test_kinds_do_not_share_names() -> None:
    """decision: a tool and a prompt may be called the same."""
    registry_of(tool("a"), prompt("a"))


@pytest.mark.parametrize(
    ("kind", "entry"),
    [
        ("tools", tool("a")),
        ("prompts", prompt("a")),
        ("resources", resource("x:a")),
        ("resources", resource("x:{a}")),
    ],
)
def test_what_is_removed_is_gone(kind: Kind, entry: Entry) -> None:
    """user report: tools could be added after mounting but never taken back (fa#63)."""
    registry = registry_of(entry)
    registry.remove(kind, entry.name)
    assert not registry._entries()
    assert registry.match_resource("x:a") is None
    registry.add(entry)
    with pytest.raises(KeyError):
        registry.remove(kind, "other")


def test_a_registry_may_have_conditions() -> None:
    """decision: what a router cannot serve fails where it is registered, a group's handler too."""

    def no_b(entry: Entry) -> None:
        if entry.name.endswith("b"):
            raise ValueError(f"{entry.kind} {entry.name!r} cannot be served")

    group, root = Registry(), Registry()
    root.require(no_b)
    root.include(group, "g.")
    group.add(tool("a"))
    with pytest.raises(ValueError, match=r"Tool 'g\.b' cannot be served"):
        group.add(tool("b"))
    assert list(root.tools) == ["g.a"]
    assert list(group.tools) == ["a"]


def test_listeners_hear_what_changed() -> None:
    """spec: list_changed notifications are by kind."""
    heard: list[Kind] = []
    registry = Registry()
    registry.on_change(heard.append)
    registry.add(tool("t"))
    registry.add(resource("x:{a}"))
    registry.remove("tools", "t")
    assert heard == ["tools", "resources", "tools"]


def test_what_there_ever_was_is_remembered() -> None:
    """spec: a server that declared tools answers tools/list, with an empty list if need be."""
    registry = registry_of(tool("t"))
    registry.remove("tools", "t")
    assert registry.ever == {"tools"}


# ---------------------------------------------------------------------------------------- groups


def test_a_group_brings_what_it_has_and_what_it_gets() -> None:
    """user report: tools registered after the group was joined were missing (fa#63)."""
    group, root = registry_of(tool("a"), resource("x:a")), Registry()
    root.include(group, "g.")
    group.add(tool("b"))
    group.add(prompt("p"))
    assert list(root.tools) == ["g.a", "g.b"]
    assert list(root.prompts) == ["g.p"]
    assert list(root.resources) == ["x:a"]
    assert root.tools["g.b"].definition["name"] == "g.b"
    assert group.tools["b"].definition["name"] == "b"


def test_prefixes_add_up() -> None:
    """decision: as with routers."""
    inner, middle, root = Registry(), Registry(), Registry()
    middle.include(inner, "inner.")
    root.include(middle, "middle.")
    inner.add(tool("a"))
    assert list(root.tools) == ["middle.inner.a"]


def test_what_a_group_removes_goes_everywhere() -> None:
    """decision: `include` is live both ways."""
    group, root = registry_of(tool("a")), Registry()
    root.include(group, "g.")
    group.remove("tools", "a")
    assert not root.tools


def test_a_root_may_remove_what_a_group_brought() -> None:
    """decision: here only; the group keeps it and can still take it back."""
    group, root = registry_of(tool("a")), Registry()
    root.include(group, "g.")
    root.remove("tools", "g.a")
    assert list(group.tools) == ["a"]
    root.add(tool("g.a"))  # its own now
    group.remove("tools", "a")
    assert list(root.tools) == ["g.a"]
    assert not group.tools


def test_a_name_taken_further_up_leaves_nothing_behind() -> None:
    """decision: a failed registration registers nowhere."""
    group, root = Registry(), registry_of(tool("g.a"))
    root.include(group, "g.")
    with pytest.raises(ValueError, match=r"'g\.a' is already registered"):
        group.add(tool("a"))
    assert not group.tools
    assert not group.ever


def test_a_group_with_one_taken_name_is_not_included_at_all() -> None:
    """decision: `include` is atomic."""
    group, root = registry_of(prompt("p"), tool("a")), registry_of(tool("a"))
    heard: list[Kind] = []
    root.on_change(heard.append)
    with pytest.raises(ValueError, match="already registered"):
        root.include(group, "")
    assert not root.prompts
    assert heard == []
    group.add(tool("b"))
    assert list(root.tools) == ["a"]


def test_a_group_that_comes_twice_by_two_ways_is_refused() -> None:
    """decision: the second way finds the names taken, now and later."""
    shared, left, right, root = Registry(), Registry(), Registry(), Registry()
    left.include(shared, "")
    right.include(shared, "")
    root.include(left, "")
    root.include(right, "")
    with pytest.raises(ValueError, match="already registered"):
        shared.add(tool("a"))
    assert not shared.tools
    assert not left.tools


def test_a_group_may_come_twice_under_two_prefixes() -> None:
    """decision: then the names differ."""
    group, root = registry_of(tool("a")), Registry()
    root.include(group, "x.")
    root.include(group, "y.")
    group.add(tool("b"))
    assert list(root.tools) == ["x.a", "y.a", "x.b", "y.b"]
    group.remove("tools", "a")
    assert list(root.tools) == ["x.b", "y.b"]


@pytest.mark.parametrize("prefix", ["a b", "a/", "x" * 129])
def test_a_prefix_has_to_be_legal(prefix: str) -> None:
    """decision: an illegal name shows where it is made, an empty group's too."""
    with pytest.raises(ValueError, match="legal name"):
        Registry().include(Registry(), prefix)


def test_a_prefix_must_leave_room_for_the_name() -> None:
    """decision: a name that becomes too long is refused, and registered nowhere."""
    group, root = Registry(), Registry()
    root.include(group, "x" * 100)
    with pytest.raises(ValueError, match="legal name"):
        group.add(tool("y" * 29))
    assert not group.tools


def test_a_group_cannot_include_itself() -> None:
    """decision: neither directly nor through another one."""
    a, b, c = Registry(), Registry(), Registry()
    b.include(a, "")
    c.include(b, "")
    for other in (a, b, c):
        with pytest.raises(ValueError, match="cannot include itself"):
            a.include(other, "")


def test_changes_are_heard_by_all_that_include_a_group() -> None:
    """spec: list_changed on every server that shows the list."""
    group, root = Registry(), Registry()
    heard: list[Any] = []
    root.on_change(heard.append)
    root.include(group, "g.")
    group.add(tool("a"))
    assert heard == ["tools"]
