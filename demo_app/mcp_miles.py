"""The MCP face of the miles: a tool that needs what its user has with somebody else."""

from mcp_types import ToolAnnotations

from fastapi_mcp_mrtr import (
    Context,
    HandlerGroup,
    InputRefused,
    Rounds,
    ToolError,
    need_url,
    not_yet,
    step,
)

from .auth import CurrentCustomer
from .deps import LinksDep, MilesDep
from .miles import NotConnected
from .miles_club import NAME, Balance
from .models import ConnectionStatus
from .schemas import ConnectionView

miles_tools = HandlerGroup()


@miles_tools.tool(
    title="My miles", annotations=ToolAnnotations(read_only_hint=True, open_world_hint=True)
)
async def my_miles(
    customer: CurrentCustomer, miles: MilesDep, links: LinksDep, ctx: Context
) -> Rounds[Balance]:
    """How many miles you have with Nimbus Miles. Asks you to connect your account there, once.

    The client gets a link to a page of the desk, and in the end a number. What the desk gets from
    Nimbus Miles in between stays with the desk (elicitation §URL Mode for OAuth).
    """
    connection: ConnectionView | None = yield step(
        "connection", miles.begin, customer.id, ctx.idempotency_key("connection")
    )
    if connection is not None:
        try:
            yield need_url(
                "connect-page",
                f"Connect your {NAME} account, so that the desk can look up your miles.",
                links.connect_page(connection.id),
            )
        except InputRefused:
            await miles.abandon(connection.id)
        match await miles.outcome(connection):
            case ConnectionStatus.OPEN:
                yield not_yet()
            case ConnectionStatus.ABANDONED:
                raise ToolError(f"No {NAME} account was connected.")
    try:
        yield await miles.balance(customer.id)
    except NotConnected:
        raise ToolError(f"{NAME} no longer lets the desk look. Ask again to reconnect.") from None
