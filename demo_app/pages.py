"""The HTML. Functions from values to text; knows no database, no cookies and no routes' logic."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from string import Template
from typing import Final

from .models import BookingStatus, ConnectionStatus, PaymentStatus
from .schemas import (
    AirportView,
    BookingView,
    ConnectionView,
    CustomerView,
    FlightView,
    PaymentView,
    euros,
)


class Html(str):
    """Text that is markup already. Everything else is escaped on its way into a page."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Brand:
    """Whose page it is.

    Attributes:
        style: a class of the body, for colours of its own.
    """

    name: str
    icon: str
    style: str = ""


DESK: Final = Brand("Travel desk", "/static/desk.svg")


def fill(template: str, **values: object) -> Html:
    safe = {k: v if isinstance(v, Html) else escape(str(v)) for k, v in values.items()}
    return Html(Template(template).substitute(safe))


def join(parts: Sequence[Html]) -> Html:
    return Html("".join(parts))


def when(moment: datetime) -> str:
    return f"{moment:%a} {moment.day} {moment:%b, %H:%M}"


def home(flights: Sequence[FlightView], airports: Sequence[AirportView]) -> Html:
    """What is here, for somebody who opens the address in a browser."""
    cities = {airport.code: airport.city for airport in airports}
    return page(
        "Travel desk",
        fill(
            HOME,
            board=join(
                [
                    fill(
                        BOARD_ROW,
                        number=flight.number,
                        origin=cities[flight.origin],
                        destination=cities[flight.destination],
                        departs=when(flight.departs_at),
                        fare=euros(flight.fare_cents),
                    )
                    for flight in flights
                ]
            ),
        ),
        wide=True,
    )


def sign_in(place: str, what: str, csrf: str, *, failed: bool = False) -> Html:
    """Says nothing of what is at `place`: whoever has the link may not be who started it."""
    return page(
        "Sign in",
        fill(
            SIGN_IN,
            what=what,
            action=f"{place}/sign-in",
            csrf=csrf,
            invalid=Html(' aria-invalid="true" aria-describedby="key-error"' if failed else ""),
            error=field_error("key", "The desk does not know this key." if failed else None),
        ),
    )


def pay(
    payment: PaymentView,
    booking: BookingView,
    flight: FlightView,
    customer: CustomerView,
    csrf: str,
    *,
    entered: dict[str, str] | None = None,
    errors: dict[str, str] | None = None,
    failure: str | None = None,
) -> Html:
    """The form. What was entered wrongly is shown again beside its reason; the code never is."""
    entered, errors = entered or {}, errors or {}
    fields = join(
        [
            fill(
                FIELD,
                name=name,
                label=label,
                hint=hint,
                autocomplete=autocomplete,
                value="" if name == "code" else entered.get(name, ""),
                invalid=Html(
                    f' aria-invalid="true" aria-describedby="{name}-error"'
                    if name in errors
                    else ""
                ),
                error=field_error(name, errors.get(name)),
            )
            for name, label, hint, autocomplete in FIELDS
        ]
    )
    return page(
        f"Pay {euros(payment.amount_cents)}",
        fill(
            PAY,
            ticket=ticket(booking, flight, payment.amount_cents),
            failure=fill(ALERT, text=failure) if failure else Html(""),
            fields=fields,
            amount=euros(payment.amount_cents),
            action=f"/pay/{payment.id}",
            csrf=csrf,
        ),
        account=account(customer, f"/pay/{payment.id}", csrf),
    )


def settled(
    payment: PaymentView,
    booking: BookingView,
    flight: FlightView,
    customer: CustomerView,
    csrf: str,
) -> Html:
    """What became of a payment that is no longer open."""
    lapsed = booking.status is BookingStatus.EXPIRED
    kind, title, text = OUTCOMES[payment.status]
    if payment.status is PaymentStatus.ABANDONED and lapsed:
        title, text = "Too late", "The seats were not held any longer. Nothing was charged."
    return page(
        title,
        fill(
            SETTLED,
            icon=ICONS[kind],
            kind=kind,
            title=title,
            text=text,
            ticket=ticket(booking, flight, payment.amount_cents),
        ),
        account=account(customer, f"/pay/{payment.id}", csrf),
    )


def connect(connection: ConnectionView, customer: CustomerView, csrf: str) -> Html:
    """Before somebody goes to Nimbus Miles: who wants what of whom."""
    place = f"/connect/{connection.id}"
    return page(
        "Connect Nimbus Miles",
        fill(CONNECT, action=place, csrf=csrf),
        account=account(customer, place, csrf),
    )


def connected(connection: ConnectionView, customer: CustomerView, csrf: str) -> Html:
    """What became of it."""
    done = connection.status is ConnectionStatus.CONNECTED
    kind = "done" if done else "stop"
    title, text = CONNECTED[done]
    return page(
        title,
        fill(OUTCOME, icon=ICONS[kind], kind=kind, title=title, text=text),
        account=account(customer, f"/connect/{connection.id}", csrf),
    )


def notice(title: str, text: str, account: Html | None = None) -> Html:
    body = fill(NOTICE, icon=ICONS["stop"], title=title, text=text)
    return page(title, body, account=account)


def account(customer: CustomerView, place: str, csrf: str) -> Html:
    return fill(ACCOUNT, name=customer.name, action=f"{place}/sign-out", csrf=csrf)


def ticket(booking: BookingView, flight: FlightView, amount_cents: int) -> Html:
    return fill(
        TICKET,
        origin=flight.origin,
        destination=flight.destination,
        number=flight.number,
        departs=when(flight.departs_at),
        reference=booking.reference,
        passengers=join(
            [
                fill(PASSENGER, name=passenger.name, seat=passenger.seat or "–")
                for passenger in booking.passengers
            ]
        ),
        amount=euros(amount_cents),
    )


def field_error(name: str, text: str | None) -> Html:
    return (
        fill('<p class="error" id="$name-error">$text</p>', name=name, text=text)
        if text
        else Html("")
    )


def page(
    title: str,
    body: Html,
    *,
    account: Html | None = None,
    wide: bool = False,
    brand: Brand = DESK,
) -> Html:
    return fill(
        PAGE,
        title=title,
        body=body,
        account=account or Html(""),
        style=f"{'wide' if wide else 'narrow'} {brand.style}".strip(),
        brand=brand.name,
        icon=brand.icon,
    )


# ------------------------------------------------------------------------------------ markup

PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="robots" content="noindex">
<title>$title · $brand</title>
<link rel="icon" href="$icon" type="image/svg+xml">
<link rel="stylesheet" href="/static/desk.css">
</head>
<body class="$style">
<header>
<a class="brand" href="/"><img src="$icon" alt="" width="28" height="28">$brand</a>
$account</header>
<main>
$body
</main>
</body>
</html>
"""

ACCOUNT: Final = """<form class="account" method="post" action="$action">
<input type="hidden" name="csrf" value="$csrf">
<span>$name</span><button class="link">Sign out</button>
</form>"""

SIGN_IN: Final = """<section class="card">
<h1>Sign in to continue</h1>
<p class="muted">$what is waiting. Before it is shown, the desk checks that you are the one who
started it.</p>
<form method="post" action="$action">
<input type="hidden" name="csrf" value="$csrf">
<label for="key">API key</label>
<input id="key" name="key" type="password" autocomplete="current-password" required
 autofocus$invalid>
$error
<button class="primary">Sign in</button>
</form>
<p class="hint">The demo's customers sign in with <code>key-amelie</code>, <code>key-bruno</code> or
<code>key-chen</code>.</p>
</section>"""

PAY: Final = """<h1 class="offscreen">Pay $amount</h1>
$ticket
<section class="card">
$failure
<form method="post" action="$action">
<input type="hidden" name="csrf" value="$csrf">
<div class="fields">
$fields
</div>
<button class="primary">Pay $amount</button>
<button class="secondary" formaction="$action/cancel" formnovalidate>Do not pay</button>
</form>
<p class="hint">No real money: pay with <code>4242 4242 4242 4242</code>, or see a refusal with
<code>4000 0000 0000 0002</code>; any future date, any code.</p>
</section>"""

FIELDS: Final = (
    ("number", "Card number", "1234 1234 1234 1234", "cc-number"),
    ("expires", "Expires", "MM/YY", "cc-exp"),
    ("code", "Security code", "123", "cc-csc"),
)
"""Name, label, placeholder and autocomplete token."""

FIELD: Final = """<div class="field $name">
<label for="$name">$label</label>
<input id="$name" name="$name" inputmode="numeric" placeholder="$hint" autocomplete="$autocomplete"
 value="$value" required maxlength="30"$invalid>
$error
</div>"""

TICKET: Final = """<section class="ticket">
<div class="route"><b>$origin</b><i></i><b>$destination</b></div>
<dl>
<div><dt>Flight</dt><dd>$number</dd></div>
<div><dt>Departs (UTC)</dt><dd>$departs</dd></div>
<div><dt>Booking</dt><dd>$reference</dd></div>
</dl>
<ul>$passengers</ul>
<p class="total"><span>Total</span><b>$amount</b></p>
</section>"""

PASSENGER: Final = "<li><span>$name</span><b>$seat</b></li>"

OUTCOME: Final = """<section class="card outcome $kind" role="status">
$icon
<h1>$title</h1>
<p>$text</p>
</section>"""

SETTLED: Final = OUTCOME + "\n$ticket"

CONNECT: Final = """<section class="card">
<h1>Connect your Nimbus Miles account?</h1>
<p class="muted">Your assistant asked the travel desk for your miles. Nimbus Miles knows them, and
will ask you whether the desk may look.</p>
<ol class="steps">
<li>You go on to <b>Nimbus Miles</b>, sign in there, and say yes or no.</li>
<li>You come back here. Your assistant learns the number of miles, and nothing else.</li>
</ol>
<form method="post" action="$action">
<input type="hidden" name="csrf" value="$csrf">
<button class="primary" name="decision" value="allow">Go on to Nimbus Miles</button>
<button class="secondary" formaction="$action/cancel">Not now</button>
</form>
<p class="hint">Only go on if it was you who asked.</p>
</section>"""

CONNECTED: Final = {
    True: (
        "Connected",
        "The desk can look up your miles from now on. Your assistant hears of it by itself; you "
        "can close this page.",
    ),
    False: (
        "Not connected",
        "The desk got no access to Nimbus Miles. You can close this page.",
    ),
}
"""Title and text, by whether it was."""

NOTICE: Final = """<section class="card outcome stop" role="alert">
$icon
<h1>$title</h1>
<p>$text</p>
</section>"""

ALERT: Final = '<p class="alert" role="alert">$text</p>'

OUTCOMES: Final = {
    PaymentStatus.PAID: (
        "done",
        "Paid. Have a good flight!",
        "Your assistant hears of it by itself. You can close this page.",
    ),
    PaymentStatus.ABANDONED: (
        "stop",
        "Not paid",
        "Nothing was charged. You can close this page.",
    ),
    PaymentStatus.REFUNDED: (
        "stop",
        "Refunded",
        "The booking was cancelled and the money is on its way back.",
    ),
}
"""Icon, title and text for what a payment can have become."""

ICONS: Final = {
    "done": Html(
        '<svg viewBox="0 0 48 48" aria-hidden="true"><circle cx="24" cy="24" r="22"/>'
        '<path d="m14 25 7 7 13-15"/></svg>'
    ),
    "stop": Html(
        '<svg viewBox="0 0 48 48" aria-hidden="true"><circle cx="24" cy="24" r="22"/>'
        '<path d="M24 13v14m0 7v1"/></svg>'
    ),
}

HOME: Final = """<section class="hero">
<h1>Flights you book by talking</h1>
<p>An assistant connects to <code>/mcp</code> and books for you: it asks which seat, holds it, and
asks again before anything is paid. People and programs use the same desk, over the same
database.</p>
<nav><a class="button" href="/docs">REST endpoints</a></nav>
</section>
<section class="card">
<h2>Departures</h2>
<div class="scroll"><table>
<thead><tr><th>Flight<th>From<th>To<th>Departs (UTC)<th class="amount">Fare</thead>
<tbody>$board</tbody>
</table></div>
</section>"""

BOARD_ROW: Final = (
    '<tr><td><b>$number</b><td>$origin<td>$destination<td>$departs<td class="amount">$fare</tr>'
)

ICON: Final = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 28 28">
<rect width="28" height="28" rx="8" fill="#1d4ed8"/>
<path fill="#fff" d="m5.5 15.2 5.2-.9 3.4-7.4 1.7-.3-1 7.1 4-.7 1.3-2
 1.2-.2-.3 3.1 1.3 2.8-1.2.2-1.9-1.4-4 .7 3.3 6.3-1.7.3-5.7-5.8-5.2.9z"/>
</svg>
"""

STYLE: Final = """
:root {
  --ground: #eef2f7; --card: #fff; --ink: #0f172a; --muted: #55627a; --line: #d5dce8;
  --accent: #1d4ed8; --accent-ink: #fff; --accent-hover: #1e40af;
  --good: #15803d; --bad: #b42318; --bad-ground: #fdecea; --field: #fff;
  --shadow: 0 1px 2px rgb(15 23 42 / .06), 0 8px 24px rgb(15 23 42 / .07);
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #0b1120; --card: #151d30; --ink: #e8edf7; --muted: #9aa8c1; --line: #2b3752;
    --accent: #6f9bff; --accent-ink: #0b1120; --accent-hover: #90b2ff;
    --good: #4ade80; --bad: #ff9b8f; --bad-ground: #3a1b1b; --field: #0f1728;
    --shadow: 0 1px 2px rgb(0 0 0 / .4), 0 8px 24px rgb(0 0 0 / .35);
  }
}
.nimbus { --accent: #0f766e; --accent-hover: #115e59; }
@media (prefers-color-scheme: dark) {
  .nimbus { --accent: #2dd4bf; --accent-hover: #5eead4; }
}
* { box-sizing: border-box; margin: 0; }
body {
  background: var(--ground); color: var(--ink); min-height: 100vh; padding: 0 16px 48px;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif;
}
header, main { margin: 0 auto; max-width: 460px; }
.wide header, .wide main { max-width: 860px; }
header {
  align-items: center; display: flex; flex-wrap: wrap; gap: 4px 16px;
  justify-content: space-between; padding: 20px 4px;
}
main { display: grid; gap: 16px; }
h1 { font-size: 1.4rem; letter-spacing: -.01em; line-height: 1.25; }
h2 { font-size: 1.1rem; margin-bottom: 12px; }
a { color: var(--accent); }
code {
  background: var(--ground); border-radius: 4px; font-size: .9em; padding: 1px 5px;
  white-space: nowrap;
}
.brand {
  align-items: center; color: inherit; display: flex; font-weight: 650; gap: 10px;
  text-decoration: none;
}
.account { align-items: baseline; color: var(--muted); display: flex; font-size: .9rem; gap: 12px; }
.card, .ticket {
  background: var(--card); border: 1px solid var(--line); border-radius: 16px;
  box-shadow: var(--shadow); min-width: 0; padding: 24px;
}
.muted { color: var(--muted); margin-top: 8px; }
.hint {
  border-top: 1px solid var(--line); color: var(--muted); font-size: .85rem; margin-top: 20px;
  padding-top: 16px;
}
.steps { color: var(--muted); margin-top: 14px; padding-left: 1.3em; }
.steps li { padding: 3px 0; }
.card > form { margin-top: 20px; }
.card > form:first-child { margin-top: 0; }
label { display: block; font-size: .9rem; font-weight: 600; margin-bottom: 6px; }
input:not([type=hidden]) {
  background: var(--field); border: 1px solid var(--muted); border-radius: 10px; color: inherit;
  font: inherit; padding: 11px 12px; width: 100%;
}
input::placeholder { color: var(--muted); opacity: .65; }
input[aria-invalid] { border-color: var(--bad); }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
.fields { display: grid; gap: 16px; grid-template-columns: 1fr 1fr; }
.field.number { grid-column: 1 / -1; }
.error { color: var(--bad); font-size: .85rem; margin-top: 6px; }
.alert {
  background: var(--bad-ground); border-radius: 10px; color: var(--bad); margin-bottom: 20px;
  padding: 10px 14px;
}
button, .button {
  border: 1px solid transparent; border-radius: 10px; cursor: pointer; display: block;
  font: inherit; font-weight: 600; padding: 12px 16px; text-align: center; text-decoration: none;
}
.primary, .button { background: var(--accent); color: var(--accent-ink); }
.primary { margin-top: 20px; width: 100%; }
.primary:hover, .button:hover { background: var(--accent-hover); }
.secondary { background: none; color: var(--muted); margin-top: 8px; width: 100%; }
.secondary:hover { color: var(--ink); }
.link {
  background: none; color: var(--accent); display: inline; font-weight: 500; padding: 0;
  text-decoration: underline;
}
.ticket { overflow: hidden; position: relative; }
.route { align-items: center; display: flex; font-size: 2rem; gap: 16px; letter-spacing: .02em; }
.route b { font-weight: 750; }
.route i {
  background: linear-gradient(90deg, var(--line), var(--accent)); border-radius: 2px; flex: 1;
  height: 3px; position: relative;
}
.route i::after {
  border: solid var(--accent); border-width: 3px 3px 0 0; border-radius: 2px; content: "";
  height: 10px; position: absolute; right: 1px; top: -4px; transform: rotate(45deg); width: 10px;
}
dl { display: flex; flex-wrap: wrap; gap: 12px 28px; margin-top: 16px; }
dt { color: var(--muted); font-size: .8rem; }
dd { font-weight: 600; }
.ticket ul {
  border-top: 2px dashed var(--line); list-style: none; margin: 18px -24px 0; padding: 14px 24px 0;
}
.ticket li, .total { display: flex; gap: 16px; justify-content: space-between; padding: 3px 0; }
.ticket li span { overflow-wrap: anywhere; }
.total {
  border-top: 1px solid var(--line); font-size: 1.1rem; margin-top: 12px; padding-top: 12px;
}
.outcome { text-align: center; }
.outcome svg { fill: none; height: 56px; stroke: var(--good); stroke-linecap: round;
  stroke-linejoin: round; stroke-width: 3; width: 56px; }
.outcome.stop svg { stroke: var(--bad); }
.outcome h1 { margin-top: 12px; }
.outcome p { color: var(--muted); margin-top: 8px; }
.hero { padding: 24px 4px 12px; }
.hero h1 { font-size: clamp(1.8rem, 6vw, 2.6rem); letter-spacing: -.02em; }
.hero p { color: var(--muted); font-size: 1.1rem; margin-top: 12px; max-width: 60ch; }
.hero nav { display: flex; gap: 12px; margin-top: 20px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th { color: var(--muted); font-size: .8rem; font-weight: 500; text-align: left; }
th, td { padding: 9px 16px 9px 0; white-space: nowrap; }
th.amount, td.amount { padding-right: 0; text-align: right; }
tbody tr { border-top: 1px solid var(--line); }
.offscreen { clip-path: inset(50%); height: 1px; overflow: hidden; position: absolute; width: 1px; }
@media (max-width: 560px) {
  thead { clip-path: inset(50%); position: absolute; }
  tbody tr { display: grid; grid-template-columns: 1fr auto; padding: 10px 0; }
  td { padding: 0; }
  td:nth-child(2) { grid-area: 2 / 1; }
  td:nth-child(3) { grid-area: 3 / 1; }
  td:nth-child(3)::before { content: "→ "; }
  td:nth-child(4) { color: var(--muted); grid-area: 2 / 2; text-align: right; }
  td.amount { font-weight: 600; grid-area: 1 / 2; }
}
@media (max-width: 480px) {
  .card, .ticket { padding: 20px; }
  .ticket ul { margin: 18px -20px 0; padding: 14px 20px 0; }
}
"""
