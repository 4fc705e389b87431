"""Every kind of handler, called by clients of every revision: one source, the same behaviour.

A test says what holds for all. Where a revision cannot ask what a handler asks, the call ends with
a result that says so, and nothing hangs.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from fastapi_mcp_mrtr.testing import (
    CANCEL,
    DECLINE,
    AnswersNotAsked,
    ErrorReply,
    MCPTestClient,
    in_turn,
)

from .desk import PAGE, PIXEL, Desk

NEWEST = "2026-07-28"
VERSIONS = (NEWEST, "2025-11-25", "2025-06-18", "2025-03-26")
ASKS_FORMS = VERSIONS[:3]
ASKS_URLS = VERSIONS[:2]
SEAT = {"row": 4, "letter": "A"}

forms = pytest.mark.parametrize("version", ASKS_FORMS, indirect=True)
urls = pytest.mark.parametrize("version", ASKS_URLS, indirect=True)


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def client(desk: Desk, version: str) -> Iterator[MCPTestClient]:
    with MCPTestClient(desk.app, version=version) as client:
        yield client


def text(result: Any) -> str:
    said: str = result.content[0].text
    return said


def told(client: MCPTestClient) -> list[tuple[str, Any]]:
    """The notifications of the last reply."""
    params = [(n.method.rpartition("/")[2], n.params) for n in client.replies[-1].notifications]
    return [(name, p.get("progress", p.get("data"))) for name, p in params]


# ------------------------------------------------------------------------------ nothing is asked


def test_a_coroutine(client: MCPTestClient) -> None:
    """decision: plain tools are the same to all."""
    assert text(client.call_tool("plain", {"a": 1})) == "3"


def test_a_function_in_a_thread(client: MCPTestClient) -> None:
    """decision: so are those in a worker thread."""
    assert text(client.call_tool("threaded", {"name": "Ada"})) == "Hello, Ada"


def test_structured_content(client: MCPTestClient, version: str) -> None:
    """spec: structured content since 2025-06-18; the text says the same to everybody."""
    result = client.call_tool("structured", {"flight": "LX1"})
    booking = {"flight": "LX1", "seat": "4A"}
    assert result.structured_content == (None if version == "2025-03-26" else booking)
    assert '"4A"' in text(result)


def test_a_picture(client: MCPTestClient) -> None:
    """decision: content blocks that every revision has."""
    [block] = client.call_tool("picture").content
    assert (block.type, block.data) == ("image", PIXEL)  # type: ignore[union-attr]


def test_a_dependency(client: MCPTestClient, desk: Desk) -> None:
    """decision: opened before, closed after, and not in the schema."""
    assert text(client.call_tool("injected", {"text": "with"})) == "with session"
    assert desk.events == ["open", "body", "close"]
    [tool] = [tool for tool in client.list_tools() if tool.name == "injected"]
    assert tool.input_schema["properties"].keys() == {"text"}


@pytest.mark.parametrize(("how", "said"), [("tool", "The flight is full"), ("http", "Taken")])
def test_a_failure_that_the_model_may_read(client: MCPTestClient, how: str, said: str) -> None:
    """decision: isError with the author's words."""
    result = client.call_tool("failing", {"how": how})
    assert (result.is_error, text(result)) == (True, said)


def test_an_error_of_the_authors(client: MCPTestClient) -> None:
    """decision: code, message and data as given."""
    error = client.begin_tool("failing", {"how": "code"}).error
    assert (error.code, error.message, error.data) == (-31999, "Mine", {"a": 1})


def test_a_crash(client: MCPTestClient) -> None:
    """decision: nothing of it reaches the client."""
    error = client.begin_tool("failing", {"how": "crash"}).error
    assert (error.code, error.message) == (-32603, "Internal error")
    assert "secret" not in client.replies[-1].text


def test_progress_and_logs(client: MCPTestClient) -> None:
    """spec: on the stream of the request they are about, in order."""
    assert text(client.call_tool("telling")) == "told"
    assert told(client) == [
        ("progress", 0),
        ("progress", 1),
        ("progress", 2),
        ("message", "careful"),
        ("message", {"deep": True}),
    ]


def test_the_context(client: MCPTestClient, version: str) -> None:
    """decision: a handler may look at the revision; it need not."""
    client.headers["X-User"] = "bob"
    assert text(client.call_tool("whoami")) == f"bob {version} 1"


def test_an_exception_of_a_dependency(client: MCPTestClient) -> None:
    """decision: an HTTPException is the HTTP response, before any byte was sent."""
    client.headers["X-User"] = "nobody"
    assert client.begin_tool("whoami").status_code == 403


def test_lists(client: MCPTestClient) -> None:
    """decision: the same offer."""
    assert len(client.list_tools()) == 18
    assert [prompt.name for prompt in client.list_prompts()] == ["itinerary"]
    assert [str(resource.uri) for resource in client.list_resources()] == ["eras://plain"]
    assert [t.uri_template for t in client.list_resource_templates()] == ["eras://rules/{flight}"]


def test_a_plain_resource(client: MCPTestClient) -> None:
    """decision: plain resources too."""
    [contents] = client.read_resource("eras://plain").contents
    assert contents.text == "plain"  # type: ignore[union-attr]


def test_what_is_not_there(client: MCPTestClient, version: str) -> None:
    """spec: -32002 for a resource in the older revisions, -32602 today."""
    with pytest.raises(ErrorReply) as refused:
        client.read_resource("eras://nothing")
    assert refused.value.code == (-32602 if version == NEWEST else -32002)
    assert client.begin_tool("nothing").error.code == -32602


# ----------------------------------------------------------------------------------- it asks


@forms
def test_a_conversation(client: MCPTestClient, desk: Desk) -> None:
    """user report: a second code path for clients that cannot be asked by result. There is none:
    rounds have dependencies of their own, nothing is open while a person thinks, a step runs once.
    """
    first = client.begin_tool("book", {"flight": "LX1"})
    assert first.asks["seat"].message == "Which seat on LX1?"
    assert desk.events == ["open", "close"]
    second = first.answer({"seat": SEAT})
    assert second.asks["ok"].message == "Pay for held 4A?"
    assert desk.events == ["open", "close", "open", "hold 4A", "close"]
    result = second.answer({"ok": True}).result
    assert result.structured_content == {"flight": "LX1", "seat": "4A"}
    assert desk.events == [
        *("open", "close", "open", "hold 4A", "close"),
        *("open", "paid", "close"),
    ]


@forms
def test_a_conversation_in_a_thread(client: MCPTestClient) -> None:
    """decision: def generators as well."""
    result = client.call_tool("threaded_book", {"flight": "LX1"}, answers={"seat": SEAT})
    assert text(result) == "LX1 4A"


@forms
def test_an_answer_that_is_not_valid(client: MCPTestClient) -> None:
    """decision: asked again, with the reason."""
    first = client.begin_tool("threaded_book", {"flight": "LX1"})
    second = first.answer({"seat": {"row": 99, "letter": "A"}})
    assert "row" in second.asks["seat"].message
    assert text(second.answer({"seat": SEAT}).result) == "LX1 4A"


@forms
def test_a_batch(client: MCPTestClient) -> None:
    """decision: several questions at once, answered in any order."""
    first = client.begin_tool("party", {"travellers": 3})
    assert first.asks.keys() == {"name-0", "name-1", "name-2"}
    answers = {f"name-{n}": f"N{n}" for n in (2, 0, 1)}
    assert text(first.answer(answers).result) == "N0, N1, N2"


@forms
def test_sub_flows(client: MCPTestClient) -> None:
    """decision: prefixed keys keep two flows of one kind apart."""
    answers = {"pilot.name": "Ada", "guest.name": "Bo"}
    assert text(client.call_tool("pair", answers=answers)) == "Ada and Bo"


@forms
@pytest.mark.parametrize(("refusal", "word"), [(DECLINE, "decline"), (CANCEL, "cancel")])
def test_a_refusal_that_is_caught(client: MCPTestClient, refusal: Any, word: str) -> None:
    """decision: plain try and except."""
    first = client.begin_tool("persistent").answer({"first": refusal})
    assert first.asks["second"].message == f"Why {word}?"
    assert text(first.answer({"second": "because"}).result) == "because"


@forms
def test_a_refusal_that_is_not(client: MCPTestClient) -> None:
    """decision: the tool says who declined what."""
    result = client.call_tool("book", {"flight": "LX1"}, answers={"seat": DECLINE})
    assert (result.is_error, text(result)) == (True, "The user declined 'seat'.")


@urls
def test_a_page_and_waiting_for_it(client: MCPTestClient, desk: Desk) -> None:
    """decision: whoever waits for a page waits on either side; the handler does not know which."""
    waits: list[str] = []

    def complete(round_: Any) -> None:
        waits.append(round_.kind)
        desk.paid = True

    opened: list[str] = []

    def visit(ask: Any) -> bool:
        opened.append(ask.url)
        return True

    assert text(client.call_tool("pay", answers={"page": visit}, on_wait=complete)) == "paid"
    assert opened == [PAGE]
    assert waits == ["input_required"]


def test_sampling(client: MCPTestClient) -> None:
    """spec: all revisions have sampling."""
    assert text(client.call_tool("poem", {"topic": "x"}, answers={"poem": "roses"})) == "roses"


def test_roots(client: MCPTestClient) -> None:
    """spec: all revisions have roots."""
    roots = ["file:///a", "file:///b"]
    assert text(client.call_tool("folders", answers={"roots": roots})) == ", ".join(roots)


@forms
def test_a_prompt(client: MCPTestClient) -> None:
    """decision: prompts are flows like tools."""
    prompt = client.get_prompt("itinerary", {"city": "Rome"}, answers={"days": 3})
    assert prompt.messages[0].content.text == "3 days in Rome"  # type: ignore[union-attr]


@forms
def test_a_resource(client: MCPTestClient) -> None:
    """decision: and so are resources."""
    read = client.read_resource("eras://rules/LX1", answers={"fare": "light"})
    assert read.contents[0].text == "LX1 light"  # type: ignore[union-attr]


@forms
def test_a_prompt_whose_question_is_refused(client: MCPTestClient) -> None:
    """decision: a JSON-RPC error outside the reserved ranges."""
    first = client.begin_prompt("itinerary", {"city": "Rome"})
    assert first.answer({"days": DECLINE}).error.code == -31001


@forms
def test_single_use(client: MCPTestClient, desk: Desk) -> None:
    """decision: the ledger, steps and on_commit know no revision."""
    assert text(client.call_tool("once", answers={"ok": True})) == "charged"
    assert desk.events == ["hold money", "committed"]


@forms
def test_a_call_that_was_lost_while_it_asked(client: MCPTestClient, desk: Desk) -> None:
    """decision: with an idempotency key it goes on where it was, and no step runs again."""
    key = {"io.github.fastapi-mcp-mrtr/idempotencyKey": "k-1"}
    assert client.begin_tool("once", meta=key).asks.keys() == {"ok"}
    again = client.begin_tool("once", meta=key)
    assert text(again.answer({"ok": True}).result) == "charged"
    assert desk.events == ["hold money", "committed"]


@forms
def test_a_handler_that_asks_for_ever(client: MCPTestClient) -> None:
    """decision: max_rounds holds for all."""
    client.max_rounds = 100
    yes: Mapping[str, Any] = {f"again-{n}": True for n in range(100)}
    first = client.begin_tool("endless")
    round_ = first
    while round_.kind == "input_required":
        round_ = round_.answer({key: yes[key] for key in round_.asks})
    assert round_.error.code == -31002


@forms
def test_the_client_plays_answers_in_turn(client: MCPTestClient) -> None:
    """decision: scripts are the same, helpers included."""
    answers = {"seat": in_turn({"row": 99, "letter": "A"}, SEAT)}
    result = client.call_tool("threaded_book", {"flight": "LX1"}, answers=answers)
    assert text(result) == "LX1 4A"


@forms
def test_an_answer_that_is_never_asked(client: MCPTestClient) -> None:
    """decision: a script that is out of date fails on either side."""
    with pytest.raises(AnswersNotAsked):
        client.call_tool("party", {"travellers": 1}, answers={"name-0": "A", "name-9": "B"})


# ------------------------------------------------------------------------------- it cannot ask


@pytest.mark.parametrize("version", ["2025-03-26"], indirect=True)
@pytest.mark.parametrize("tool", ["party", "book"])
def test_a_revision_without_questions(client: MCPTestClient, tool: str) -> None:
    """decision: a result that says so, instead of a hang."""
    arguments: dict[str, dict[str, Any]] = {
        "party": {"travellers": 1},
        "book": {"flight": "LX1"},
    }
    result = client.call_tool(tool, arguments[tool])
    assert result.is_error
    assert text(result).startswith("This client cannot be asked")


@pytest.mark.parametrize("version", ["2025-06-18", "2025-03-26"], indirect=True)
def test_a_revision_without_pages(client: MCPTestClient) -> None:
    """decision: likewise for url mode, which came with 2025-11-25."""
    result = client.call_tool("pay")
    assert result.is_error
    assert text(result).startswith("This client cannot be asked")


@pytest.mark.parametrize("version", VERSIONS[1:], indirect=True)
def test_a_client_that_declares_nothing(client: MCPTestClient) -> None:
    """spec: MUST NOT ask for what was not declared (lifecycle §Capability Negotiation)."""
    client.capabilities = {}
    calls: dict[str, dict[str, Any]] = {
        "party": {"travellers": 1},
        "poem": {"topic": "x"},
        "folders": {},
    }
    for tool, arguments in calls.items():
        result = client.call_tool(tool, arguments)
        assert result.is_error
        assert text(result).startswith("This client cannot be asked")
