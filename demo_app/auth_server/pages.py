"""What people see: sign in, consent, and why there is nothing to consent to. Values to text."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from demo_app.pages import ACCOUNT, ICONS, Html, field_error, fill, join, page

from .clients import Client, is_loopback, origin
from .settings import House, Person, Resource


def sign_in(house: House, action: str, csrf: str, *, failed: bool = False) -> Html:
    """Says nothing of the client: what it wants is read once it is known by whom."""
    return page(
        "Sign in",
        fill(
            SIGN_IN,
            action=action,
            csrf=csrf,
            invalid=Html(' aria-invalid="true" aria-describedby="key-error"' if failed else ""),
            error=field_error("key", "Nobody has this key here." if failed else None),
            title=house.title,
            service=house.service,
            key=house.key,
            keys=join([fill("<code>$key</code> ", key=key) for key in house.keys]),
        ),
        brand=house.brand,
    )


def consent(
    house: House,
    *,
    client: Client,
    redirect_uri: str,
    resource: Resource,
    scopes: Mapping[str, str],
    approved: frozenset[str],
    person: Person,
    action: str,
    sign_out: str,
    style: str,
    csrf: str,
) -> Html:
    """Asks for everything that follows from a yes, before it does.

    Args:
        scopes: what is asked for, in words.
        approved: which of them this person has let this client do before.
    """
    name = client.name or "A program without a name"
    # Where a secret goes along with the code, no other program can pose as this one.
    known = client.vetted and client.secret_sha256 is not None
    loopback = is_loopback(redirect_uri) and not known
    return page(
        f"Let {name} in?",
        fill(
            CONSENT,
            style=style,
            name=name,
            resource=resource.name,
            identity=fill(
                DOCUMENT if client.document else VETTED if client.vetted else REGISTERED,
                id=client.id,
                host=urlsplit(client.id).netloc,
            ),
            target=TARGETS[loopback],
            origin=origin(redirect_uri),
            warning=fill(WARNING, name=name) if loopback else Html(""),
            scopes=join(
                [
                    fill(
                        SCOPE,
                        scope=scope,
                        text=text,
                        new=Html(NEW if approved and scope not in approved else ""),
                    )
                    for scope, text in scopes.items()
                ]
            ),
            action=action,
            csrf=csrf,
            title=house.title,
        ),
        account=fill(ACCOUNT, name=person.name, action=sign_out, csrf=csrf),
        brand=house.brand,
    )


def refusal(house: House, text: str, detail: str | None = None) -> Html:
    """There is nobody to send the error to, so it is the person who learns of it."""
    return page(
        "That did not work",
        fill(
            REFUSAL,
            icon=ICONS["stop"],
            text=text,
            detail=fill(DETAIL, text=detail) if detail else Html(""),
        ),
        brand=house.brand,
    )


# ------------------------------------------------------------------------------------ markup

SIGN_IN: Final = """<section class="card">
<h1>Sign in to your account</h1>
<p class="muted">A program wants to use $service for you. Once you have signed in, you will
see which one and what for, and can still say no.</p>
<form method="post" action="$action">
<input type="hidden" name="csrf" value="$csrf">
<label for="key">$key</label>
<input id="key" name="key" type="password" autocomplete="current-password" required
 autofocus$invalid>
$error
<button class="primary">Sign in</button>
</form>
<p class="hint">$title. People who can sign in here: $keys</p>
</section>"""

CONSENT: Final = """<link rel="stylesheet" href="$style">
<section class="card consent">
<h1>Let <q>$name</q> use your account?</h1>
<dl>
$identity
<div><dt>Wants to use</dt><dd>$resource</dd></div>
<div><dt>Your answer goes to</dt><dd>$target<code>$origin</code></dd></div>
</dl>
$warning
<h2>It could then, in your name:</h2>
<ul>
$scopes
</ul>
<form method="post" action="$action">
<input type="hidden" name="csrf" value="$csrf">
<button class="primary" name="decision" value="allow">Allow</button>
<button class="secondary" name="decision" value="deny">Do not allow</button>
</form>
<p class="hint">$title. Everything is forgotten when it stops.</p>
</section>"""

DOCUMENT: Final = """<div><dt>Described by</dt><dd><b>$host</b><code>$id</code></dd></div>"""

REGISTERED: Final = """<div><dt>Registered itself; nobody has checked its name</dt>
<dd><code>$id</code></dd></div>"""

VETTED: Final = """<div><dt>Known here as</dt><dd><code>$id</code></dd></div>"""

TARGETS: Final = {True: "A program on this computer ", False: "The website "}

WARNING: Final = """<p class="note"><b>Did you just start $name yourself?</b> Any program on this
computer could use that name. If nothing that you did led here, do not allow it.</p>"""

SCOPE: Final = "<li><span>$text</span>$new<code>$scope</code></li>"

NEW: Final = '<b class="new">New</b>'

REFUSAL: Final = """<section class="card outcome stop" role="alert">
$icon
<h1>That did not work</h1>
<p>$text</p>
$detail
</section>"""

DETAIL: Final = "<p>For whoever writes the program: $text</p>"

STYLE: Final = """
.consent { overflow-wrap: anywhere; }
.consent h2 { margin: 20px 0 4px; }
.consent dl { display: grid; gap: 14px; }
.consent dd code {
  display: block; font-weight: 400; margin-top: 2px; white-space: normal; width: fit-content;
}
.consent ul { list-style: none; padding: 0; }
.consent li {
  align-items: baseline; border-top: 1px solid var(--line); display: grid; gap: 2px 10px;
  grid-template-columns: 1fr auto; padding: 10px 0;
}
.consent li:first-child { border-top: 0; }
.consent li code { grid-area: 2 / 1; justify-self: start; }
.consent .new { color: var(--good); font-size: .85rem; }
.note {
  border: 1px solid var(--muted); border-left-width: 4px; border-radius: 10px; margin-top: 16px;
  padding: 10px 14px;
}
"""
