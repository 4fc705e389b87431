"""The authorization endpoint: what may be asked for, what people are shown, where answers go."""

import re
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from demo_app.auth_server import TITLE, Client
from demo_app.oauth_player import LoginFailed, ScriptedBrowser

from .helpers import AMELIE, BRUNO
from .oauth import BASE, CALLBACK, CHALLENGE, ISSUER, MCP, REST, Kit, answer_of, kit

pytestmark = pytest.mark.anyio

WEB = "https://app.example.com/cb"


async def page(made: Kit, url: str, key: str = AMELIE) -> httpx2.Response:
    """The page behind a link, for somebody who has signed in."""
    form = csrf_of(await made.http.get(url))
    query = urlsplit(url).query
    await made.http.post(f"/as/sign-in?{query}", data={"key": key, "csrf": form})
    return await made.http.get(url)


def csrf_of(response: httpx2.Response) -> str:
    found = re.search(r'name="csrf" value="(\w+)"', response.text)
    assert found, response.text
    return found[1]


async def refusal(made: Kit, client_id: str, **changes: str | None) -> dict[str, str]:
    """The error that the client is sent."""
    answer = await made.ask(client_id, **changes)
    assert answer["iss"] == ISSUER
    assert answer["state"] == "as it was"
    assert "code" not in answer
    return answer


# ------------------------------------------------------------------------------- the answer


async def test_the_answer_names_its_issuer() -> None:
    """spec: SHOULD (index §Authorization Response Validation)"""
    async with kit() as made:
        answer = await made.ask((await made.register())["client_id"])
    assert answer == {"code": answer["code"], "state": "as it was", "iss": ISSUER}


async def test_so_does_a_no() -> None:
    """spec: SHOULD: in error responses too."""
    async with kit() as made:
        client = await made.register()
        answer = await made.ask(client["client_id"], made.browser(decision="deny"))
    assert (answer["error"], answer["iss"]) == ("access_denied", ISSUER)
    assert answer["state"] == "as it was"


async def test_a_query_of_the_redirect_uri_stays() -> None:
    """spec: MUST (RFC 6749 §3.1.2)"""
    uri = "http://127.0.0.1:5000/callback?tenant=1"
    async with kit() as made:
        client = await made.register(redirect_uris=[uri])
        answer = await made.ask(client["client_id"], redirect_uri=uri)
    assert answer["tenant"] == "1"


async def test_the_only_redirect_uri_need_not_be_named() -> None:
    """spec: OPTIONAL (RFC 6749 §4.1.1)"""
    async with kit() as made:
        client = (await made.register())["client_id"]
        link = made.link(client, redirect_uri=None)
        answer = await made.http.post(
            link, data={"decision": "allow", "csrf": csrf_of(await page(made, link))}
        )
        assert answer.headers["location"].startswith(f"{CALLBACK}?code=")
        code = answer_of(answer.headers["location"])["code"]
        assert (await made.token(client, code=code, redirect_uri=None)).status_code == 200


async def test_it_follows_with_get() -> None:
    """spec: MUST (RFC 9700 §4.12): so no browser posts the form on to the client."""
    async with kit() as made:
        client = await made.register()
        link = made.link(client["client_id"])
        form = {"decision": "allow", "csrf": csrf_of(await page(made, link))}
        answer = await made.http.post(link, data=form)
    assert answer.status_code == 303
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["referrer-policy"] == "no-referrer"


# ----------------------------------------------------------------------- PKCE, and only S256


@pytest.mark.parametrize(
    "changes",
    [
        {"code_challenge": None, "code_challenge_method": None},
        {"code_challenge": None},
        {"code_challenge_method": None},
        {"code_challenge_method": "plain"},
        {"code_challenge_method": "s256"},
        {"code_challenge": "short"},
        {"code_challenge": CHALLENGE.decode() + '"'},
    ],
    ids=["none", "no challenge", "no method", "plain", "other case", "too short", "strange"],
)
async def test_no_code_without_s256(changes: dict[str, str | None]) -> None:
    """user report: Authlib lets a request without challenge through, and takes an omitted method
    for plain. spec: MUST (security-considerations §Authorization Code Protection)"""
    async with kit() as made:
        answer = await refusal(made, (await made.register())["client_id"], **changes)
    assert answer["error"] == "invalid_request"


async def test_confidential_clients_need_it_too() -> None:
    """spec: MUST (OAuth 2.1 §7.5.2): Authlib asks public ones only."""
    async with kit() as made:
        client = await made.register(token_endpoint_auth_method="client_secret_post")
        answer = await refusal(
            made, client["client_id"], code_challenge=None, code_challenge_method=None
        )
    assert answer["error"] == "invalid_request"


# --------------------------------------------------------------------------- what for, and what


@pytest.mark.parametrize(
    "resource", [f"{MCP}/", f"{BASE}/other", "https://evil.example", f"{MCP}#f"]
)
async def test_a_resource_that_is_not_known(resource: str) -> None:
    """spec: invalid_target (RFC 8707 §2)"""
    async with kit() as made:
        answer = await refusal(made, (await made.register())["client_id"], resource=resource)
    assert answer["error"] == "invalid_target"


@pytest.mark.parametrize(("second", "error"), [(REST, "invalid_target"), (MCP, None)])
async def test_a_token_is_for_one_resource(second: str, error: str | None) -> None:
    """decision: several would make the token worth stealing."""
    async with kit() as made:
        client = await made.register()
        link = made.link(client["client_id"]) + f"&resource={second}"
        answer = answer_of(await made.browser().log_in(link))
    assert answer.get("error") == error


@pytest.mark.parametrize("scope", ["desk:admin", "desk:read desk:admin", "offline_access"])
async def test_a_scope_that_there_is_not(scope: str) -> None:
    """spec: invalid_scope (RFC 6749 §4.1.2.1)"""
    async with kit() as made:
        answer = await refusal(made, (await made.register())["client_id"], scope=scope)
    assert answer["error"] == "invalid_scope"


async def test_without_scope_the_least_is_meant() -> None:
    """spec: MUST (RFC 6749 §3.3): a default, or an error."""
    async with kit() as made:
        tokens = await made.tokens((await made.register())["client_id"], scope=None)
    assert tokens["scope"] == "desk:read"


async def test_a_response_type_that_there_is_not() -> None:
    """spec: MUST (RFC 9207 §2): errors that Authlib finds early carry `iss` too."""
    async with kit() as made:
        answer = await refusal(made, (await made.register())["client_id"], response_type="token")
    assert answer["error"] == "unsupported_response_type"


@pytest.mark.parametrize("name", ["scope", "code_challenge", "code_challenge_method"])
async def test_a_parameter_that_comes_twice(name: str) -> None:
    """spec: MUST NOT (RFC 6749 §3.1): the client learns of it."""
    async with kit() as made:
        link = made.link((await made.register())["client_id"])
        value = parse_qs(urlsplit(link).query)[name][0]
        answer = answer_of(await made.browser().log_in(f"{link}&{name}={value}"))
    assert (answer["error"], answer["iss"]) == ("invalid_request", ISSUER)


# ------------------------------------------------------------- nobody to send the error to


@pytest.mark.parametrize(
    "changes",
    [
        {"client_id": "nobody"},
        {"client_id": None},
        {"client_id": "http://127.0.0.1/c"},
        {"client_id": "n\u00f6body"},
        {"redirect_uri": "https://evil.example/cb"},
        {"redirect_uri": f'{CALLBACK}?"\\\u00fc'},
        {"redirect_uri": f"{CALLBACK}@evil.example"},
        {"state": "caf\u00e9"},
        {"response_type": '"\\'},
        {"response_type": "token", "redirect_uri": "https://evil.example/cb"},
        {"client_id": "desk"},
    ],
    ids=lambda changes: ",".join(f"{name}={value!a}" for name, value in changes.items()),
)
async def test_an_error_stays_here_if_the_client_cannot_be_trusted(
    changes: dict[str, str | None],
) -> None:
    """spec: MUST NOT (RFC 6749 §4.1.2.1): no redirect. user report: Authlib fails on quotes."""
    async with kit() as made:
        client = await made.register()
        response = await page(made, made.link(**{"client_id": client["client_id"], **changes}))
    assert response.status_code == 400
    assert "location" not in response.headers
    assert "That did not work" in response.text


@pytest.mark.parametrize("name", ["client_id", "redirect_uri", "state", "response_type"])
async def test_nor_if_it_says_two_things(name: str) -> None:
    """spec: MUST NOT (RFC 6749 §3.1)"""
    async with kit() as made:
        link = made.link((await made.register())["client_id"])
        value = parse_qs(urlsplit(link).query)[name][0]
        response = await page(made, f"{link}&{name}={value}")
    assert response.status_code == 400
    assert "location" not in response.headers


@pytest.mark.parametrize("query", ["client_id=%ff", "&".join("a=b" for _ in range(51))])
async def test_a_query_that_cannot_be_read(query: str) -> None:
    """decision"""
    async with kit() as made:
        response = await page(made, f"{ISSUER}/authorize?{query}")
    assert response.status_code == 400


async def test_with_several_redirect_uris_one_must_be_named() -> None:
    """spec: MUST (RFC 6749 §3.1.2.3)"""
    async with kit() as made:
        client = await made.register(redirect_uris=[CALLBACK, WEB])
        response = await page(made, made.link(client["client_id"], redirect_uri=None))
    assert response.status_code == 400


# ------------------------------------------------------------------------------ what is shown


async def test_the_page_says_who_wants_what_and_where_it_goes() -> None:
    """spec: MUST (security-considerations §Localhost Redirect URI Risks), oauth best practice"""
    async with kit() as made:
        client = await made.register(client_name="<b>Nice</b> app", redirect_uris=[WEB])
        link = made.link(client["client_id"], redirect_uri=WEB, scope="desk:read desk:pay")
        html = (await page(made, link)).text
    assert "&lt;b&gt;Nice&lt;/b&gt; app" in html
    assert "<b>Nice</b>" not in html
    assert client["client_id"] in html
    assert "https://app.example.com" in html
    assert "Pay for bookings in your name" in html
    assert "Hold seats" not in html
    assert "Amélie Moreau" in html
    assert TITLE in html
    assert "Any program on this" not in html


async def test_a_program_on_this_computer_is_a_reason_to_think() -> None:
    """spec: SHOULD (security-considerations §Localhost Redirect URI Risks)"""
    async with kit() as made:
        client = await made.register(client_name=None)
        html = (await page(made, made.link(client["client_id"]))).text
    assert "Any program on this\ncomputer could use that name" in html
    assert "http://127.0.0.1:5000" in html
    assert "A program without a name" in html


async def test_a_document_s_host_is_shown() -> None:
    """spec: the name alone is anybody's (security-considerations §Client ID Metadata Document)"""
    url = "https://app.example.com/client.json"
    said = {"client_id": url, "client_name": "Bank", "redirect_uris": [WEB]}
    async with kit(documents={url: httpx2.Response(200, json=said)}) as made:
        html = (await page(made, made.link(url, redirect_uri=WEB))).text
    assert "<b>app.example.com</b>" in html
    assert url in html


async def test_a_step_up_says_what_is_new() -> None:
    """decision: the same client, asking for more."""
    async with kit() as made:
        client = (await made.register())["client_id"]
        first = await page(made, made.link(client))
        await made.tokens(client)
        more = await page(made, made.link(client, scope="desk:read desk:pay"))
        bruno = await page(made, made.link(client, scope="desk:read desk:pay"), BRUNO)
    assert 'class="new"' not in first.text
    (listed,) = re.findall(r"<li><span>Pay.*?</li>", more.text)
    assert 'class="new"' in listed
    assert more.text.count('class="new"') == 1
    assert 'class="new"' not in bruno.text


async def test_no_page_can_be_framed_kept_or_scripted() -> None:
    """decision: clickjacking would be consent without a person."""
    async with kit() as made:
        client = await made.register()
        link = made.link(client["client_id"])
        pages = [
            await made.http.get(link),
            await page(made, link),
            await made.http.get(link + "%ff"),
        ]
    for response in pages:
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert response.headers["x-frame-options"] == "DENY"
        assert response.headers["cache-control"] == "no-store"
        assert response.headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize(
    ("uri", "targets"),
    [
        (CALLBACK, "'self' https: http://127.0.0.1:5000"),
        ("http://localhost/callback", "'self' https: http://localhost"),
        ("http://[::1]:5000/callback", "'self' https: http:"),
        (WEB, "'self' https:"),
    ],
)
async def test_the_form_may_lead_to_the_client(uri: str, targets: str) -> None:
    """user report: Chromium applies form-action to the redirect that follows, and knows no IPv6."""
    async with kit() as made:
        client = await made.register(redirect_uris=[uri])
        response = await page(made, made.link(client["client_id"], redirect_uri=uri))
    policy = response.headers["content-security-policy"]
    assert f"form-action {targets};" in policy


# ------------------------------------------------------------------------ sign-in and sessions


async def test_a_wrong_key_signs_nobody_in() -> None:
    """decision"""
    async with kit() as made:
        link = made.link((await made.register())["client_id"])
        with pytest.raises(LoginFailed, match="401"):
            await made.browser("key-nobody").log_in(link)


async def test_the_cookie_is_for_this_server_and_no_script() -> None:
    """decision"""
    async with kit(issuer="https://as.example.com/as") as made:
        cookie = (await made.http.get("/as/authorize")).headers["set-cookie"]
    assert {"HttpOnly", "Path=/as", "SameSite=lax", "Secure"} <= set(cookie.split("; "))


async def test_signing_in_changes_the_cookie() -> None:
    """decision: one that somebody planted before is worth nothing."""
    async with kit() as made:
        made.http.cookies.set("as_session", "planted", domain="127.0.0.1", path="/as")
        link = made.link((await made.register())["client_id"])
        assert "Let <q>" in (await page(made, link)).text
        made.http.cookies.clear()
        planted = {"Cookie": "as_session=planted"}
        assert "Sign in" in (await made.http.get(link, headers=planted)).text


async def test_signing_out_ends_the_session() -> None:
    """decision: also for whoever has kept the cookie."""
    async with kit() as made:
        link = made.link((await made.register())["client_id"])
        csrf = csrf_of(await page(made, link))
        kept = {"Cookie": f"as_session={made.http.cookies['as_session']}"}
        query = urlsplit(link).query
        await made.http.post(f"/as/sign-out?{query}", data={"csrf": csrf})
        assert "Sign in" in (await made.http.get(link)).text
        made.http.cookies.clear()
        assert "Sign in" in (await made.http.get(link, headers=kept)).text


async def test_a_session_ends_by_itself() -> None:
    """decision: a form that was open goes back to sign-in, not to the client."""
    async with kit(session_lifetime=60) as made:
        link = made.link((await made.register())["client_id"])
        form = {"decision": "allow", "csrf": csrf_of(await page(made, link))}
        made.clock.advance(60)
        answer = await made.http.post(link, data=form)
    assert answer.headers["location"].startswith("/as/authorize?")


# ---------------------------------------------------------------------------- foreign forms


@pytest.mark.parametrize("place", ["authorize", "sign-in", "sign-out"])
@pytest.mark.parametrize("csrf", [None, "", "f" * 64, "caf\u00e9"])
async def test_a_form_needs_the_token_of_its_page(place: str, csrf: str | None) -> None:
    """decision: consent must be given here (security best practices §Confused Deputy)"""
    async with kit() as made:
        link = made.link((await made.register())["client_id"])
        await page(made, link)
        form = {"decision": "allow", "key": AMELIE, **({} if csrf is None else {"csrf": csrf})}
        response = await made.http.post(f"/as/{place}?{urlsplit(link).query}", data=form)
    assert response.status_code == 403
    assert "location" not in response.headers


async def test_a_token_is_good_for_one_request_only() -> None:
    """decision: what was shown is what is allowed."""
    async with kit() as made:
        client = (await made.register())["client_id"]
        csrf = csrf_of(await page(made, made.link(client)))
        more = made.link(client, scope="desk:pay")
        response = await made.http.post(more, data={"decision": "allow", "csrf": csrf})
    assert response.status_code == 403


async def test_a_token_is_good_for_one_person_only() -> None:
    """decision"""
    async with kit() as made:
        link = made.link((await made.register())["client_id"])
        amelie = csrf_of(await page(made, link))
        bruno = csrf_of(await page(made, link, BRUNO))
        response = await made.http.post(link, data={"decision": "allow", "csrf": amelie})
    assert amelie != bruno
    assert response.status_code == 403


async def test_a_body_that_is_no_form() -> None:
    """decision"""
    async with kit() as made:
        link = made.link((await made.register())["client_id"])
        csrf = csrf_of(await page(made, link))
        response = await made.http.post(link, json={"decision": "allow", "csrf": csrf})
    assert response.status_code == 403


@pytest.mark.parametrize("decision", ["deny", "ALLOW", ""])
async def test_only_allow_allows(decision: str) -> None:
    """decision"""
    async with kit() as made:
        link = made.link((await made.register())["client_id"])
        csrf = csrf_of(await page(made, link))
        answer = await made.http.post(link, data={"decision": decision, "csrf": csrf})
    assert "error=access_denied" in answer.headers["location"]


async def test_a_client_may_be_gone_when_the_form_comes() -> None:
    """decision: the page says so."""
    async with kit() as made:
        link = made.link((await made.register())["client_id"])
        csrf = csrf_of(await page(made, link))
        made.auth.server.clients._added.clear()
        response = await made.http.post(link, data={"decision": "allow", "csrf": csrf})
    assert response.status_code == 400


async def test_a_client_may_be_known_from_the_start() -> None:
    """spec: SHOULD (client-registration §Pre-registration)"""
    async with kit(clients=[Client(id="known", redirect_uris=(CALLBACK,))]) as made:
        assert (await made.tokens("known"))["token_type"] == "Bearer"


async def test_the_style_of_the_page() -> None:
    """decision: the policy lets no style into the page itself."""
    async with kit() as made:
        response = await made.http.get("/as/consent.css")
    assert response.headers["content-type"].startswith("text/css")
    assert ".consent" in response.text


# ----------------------------------------------------------------------- the scripted browser


async def test_the_browser_gives_up_on_a_page_without_end() -> None:
    """decision"""

    def again(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(303, headers={"Location": "/as/authorize"})

    browser = ScriptedBrowser(AMELIE, transport=httpx2.MockTransport(again))
    with pytest.raises(LoginFailed, match="pages"):
        await browser.log_in(f"{ISSUER}/authorize?redirect_uri={CALLBACK}")


async def test_the_browser_does_not_take_another_site_for_the_callback() -> None:
    """decision: http://127.0.0.1:5000 is how http://127.0.0.1:50001 begins as well."""
    there = {
        "/as/authorize": "http://127.0.0.1:50001/elsewhere",
        "/elsewhere": "http://127.0.0.1:5000?code=1",
    }

    def onward(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(303, headers={"Location": there[request.url.path]})

    browser = ScriptedBrowser(AMELIE, transport=httpx2.MockTransport(onward))
    url = await browser.log_in(f"{ISSUER}/authorize?redirect_uri=http://127.0.0.1:5000")
    assert url == "http://127.0.0.1:5000?code=1"
