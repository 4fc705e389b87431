"""What the service offers. Replace it with your own."""

from fastapi_mcp_mrtr import Context, HandlerGroup, Rounds, need_input, step

desk = HandlerGroup()


async def charge(flight: str, idempotency_key: str) -> str:
    """Stands for a payment provider, which knows the key of a charge that comes twice."""
    return f"{flight}-{idempotency_key[:8]}"


@desk.tool(title="Buy a ticket", single_use=True)
async def buy_ticket(flight: str, ctx: Context) -> Rounds[str]:
    """Buy a ticket, if its price is right."""
    ok: bool = yield need_input("confirm", f"{flight} is 189 euros. Buy it?", bool)
    if not ok:
        yield "Nothing was bought."
        return
    receipt: str = yield step("charge", charge, flight, ctx.idempotency_key("charge"))
    yield f"Bought {flight}, receipt {receipt}."
