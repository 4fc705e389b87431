"""What a server offers, as data and as text. Knows no terminal."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel

from fastapi_mcp_mrtr.errors import METHOD_NOT_FOUND
from fastapi_mcp_mrtr.testing.failures import ErrorReply

from .remote import Remote
from .values import kind_of

Json = dict[str, Any]

_LISTS: Final[Mapping[str, Callable[[Remote], Sequence[BaseModel]]]] = {
    "tools": Remote.list_tools,
    "prompts": Remote.list_prompts,
    "resources": Remote.list_resources,
    "resourceTemplates": Remote.list_resource_templates,
}


def offered(remote: Remote) -> Json:
    """What the server says of itself, and all its lists; those that it does not have are empty.

    Raises:
        ErrorReply, RejectedRequest, ProtocolViolation: the server does not play along.
    """
    found: Json = {"server": _plain(remote.discover())}
    for member, fetch in _LISTS.items():
        try:
            found[member] = [_plain(item) for item in fetch(remote)]
        except ErrorReply as error:
            if error.code != METHOD_NOT_FOUND:
                raise
            found[member] = []
    return found


def listed(found: Json) -> str:
    """The same for people."""
    server = found["server"]
    info = server.get("_meta", {}).get("io.modelcontextprotocol/serverInfo", {})
    lines = [f"{info.get('title') or info.get('name', '?')} {info.get('version', '')}".strip()]
    lines.append(f"  revisions: {', '.join(server.get('supportedVersions', ()))}")
    if instructions := server.get("instructions"):
        lines.append(f"  {instructions}")
    for member in _LISTS:
        if found[member]:
            lines += ["", f"{member}:"]
        for item in found[member]:
            name = item.get("uriTemplate") or item.get("uri") or item["name"]
            lines.append(f"  {name}{_arguments(item)}")
            if text := item.get("description") or item.get("title"):
                lines.append(f"      {text.splitlines()[0]}")
    return "\n".join(lines)


def _arguments(item: Json) -> str:
    """`(flight: string, day?: string)`"""
    if "inputSchema" in item:
        schema = item["inputSchema"]
        required = schema.get("required", ())
        defs = schema.get("$defs")
        names = [
            f"{name}{'' if name in required else '?'}: {kind_of(each, defs) or 'any'}"
            for name, each in schema.get("properties", {}).items()
        ]
    else:
        arguments = item.get("arguments") or ()
        names = [f"{each['name']}{'' if each.get('required') else '?'}" for each in arguments]
    return f"({', '.join(names)})" if names else ""


def _plain(model: BaseModel) -> Json:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)
