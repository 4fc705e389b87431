"""Constructors of sentinels: what is refused, and where."""

from collections.abc import Generator
from typing import Any

import pytest
from pydantic import BaseModel

from fastapi_mcp_mrtr.rounds.sentinels import (
    Log,
    NotYet,
    Prefixed,
    Progress,
    Step,
    log,
    need_input,
    need_roots,
    need_sampling,
    need_url,
    not_yet,
    prefixed,
    progress,
    step,
)

URL = "https://example.org/"


def nothing() -> Generator[None, None, None]:
    yield


def with_key(kind: str, key: Any) -> Any:
    match kind:
        case "input":
            return need_input(key, "?", str)
        case "url":
            return need_url(key, "?", URL)
        case "sampling":
            return need_sampling(key, "?", max_tokens=1)
        case "roots":
            return need_roots(key)
        case "step":
            return step(key, len, "a")
    return prefixed(key, nothing())


KINDS = ["input", "url", "sampling", "roots", "step", "prefixed"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("key", ["", "x" * 129])
def test_a_key_has_1_to_128_characters(kind: str, key: str) -> None:
    """Decision: refused at the line that makes the sentinel."""
    with pytest.raises(ValueError, match="1 to 128"):
        with_key(kind, key)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("key", [None, 5, b"x"])
def test_a_key_is_text(kind: str, key: Any) -> None:
    """Decision: refused at the line that makes the sentinel."""
    with pytest.raises(TypeError, match="key"):
        with_key(kind, key)


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_key_is_fine(kind: str) -> None:
    """Decision: 128 characters, as for tool names."""
    assert "x" * 128 in repr(with_key(kind, "x" * 128))


@pytest.mark.parametrize("message", [None, 5])
def test_a_message_is_text(message: Any) -> None:
    """Decision: refused at the line that makes the ask."""
    with pytest.raises(TypeError, match="message of 'x'"):
        need_input("x", message, str)
    with pytest.raises(TypeError, match="message of 'x'"):
        need_url("x", message, URL)


def test_a_schema_that_the_wire_cannot_say_is_refused_by_name() -> None:
    """Decision: TypeError that names model and field."""

    class Trip(BaseModel):
        stops: dict[str, int]

    with pytest.raises(TypeError, match=r"Trip\.stops"):
        need_input("x", "?", Trip)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.org",
        "/path",
        "//example.org/",
        "http://",
        "https:///path",
        "ftp://example.org/",
        "javascript:alert(1)",
        "https://exa mple.org/",
        "https://example.org/\n",
        "https://[::1",
        None,
    ],
)
def test_a_url_is_absolute_http_or_https(url: Any) -> None:
    """Decision: users are sent to web pages, nowhere else."""
    with pytest.raises(ValueError, match="url of 'x'"):
        need_url("x", "Go", url)


@pytest.mark.parametrize("url", [URL, "http://localhost:8000/a?b=c", "https://[::1]/"])
def test_web_urls_are_fine(url: str) -> None:
    """Decision: http as well, for development."""
    assert need_url("x", "Go", url).url == url


@pytest.mark.parametrize("max_tokens", [0, -1, 1.5, "10", True, None])
def test_max_tokens_is_a_positive_whole_number(max_tokens: Any) -> None:
    """Spec: schema: maxTokens is an integer."""
    with pytest.raises(ValueError, match="max_tokens of 'x'"):
        need_sampling("x", "Hi", max_tokens=max_tokens)


@pytest.mark.parametrize("messages", [[], 5, None, [5], {"role": "user"}, [["a"]]])
def test_messages_are_text_or_sampling_messages(messages: Any) -> None:
    """Decision: refused at the line that makes the ask."""
    with pytest.raises(TypeError, match="need_sampling wants"):
        need_sampling("x", messages, max_tokens=1)


def test_a_step_names_itself_when_it_is_refused() -> None:
    """Decision: the message says which step."""
    not_callable: Any = 5
    with pytest.raises(TypeError, match="Step 'x': wants a function"):
        step("x", not_callable)


def test_a_prefix_is_for_generators() -> None:
    """Decision: a forgotten call is noticed where it is made."""
    not_called: Any = len
    with pytest.raises(TypeError, match="prefixed wants"):
        prefixed("x.", not_called)


@pytest.mark.parametrize("level", ["warn", "INFO", None, 5])
def test_a_log_level_is_one_of_the_protocol(level: Any) -> None:
    """Spec: server/utilities/logging §Log Levels."""
    with pytest.raises(ValueError, match="debug, info, notice"):
        log(level, "x")


@pytest.mark.parametrize(("done", "total"), [("1", None), (1, "2"), (True, None), (None, None)])
def test_progress_is_counted_in_numbers(done: Any, total: Any) -> None:
    """Spec: basic/patterns/progress: progress and total are numbers."""
    with pytest.raises(TypeError, match="numbers"):
        progress(done, total)


def test_the_others_are_plain_data() -> None:
    """Decision: sentinels compare by what they say."""
    flow = nothing()
    assert prefixed("x.", flow) == Prefixed("x.", flow)
    assert not_yet() == NotYet()
    assert step("x", len, "a", b=1) == Step("x", len, ("a",), {"b": 1})
    assert progress(1, 2, "m") == Progress(1, 2, "m")
    assert log("info", 1, "me") == Log("info", 1, "me")


@pytest.mark.parametrize("use", [bool, str, format, "Seat {}".format, "Seat {:>9}".format])
@pytest.mark.parametrize(
    ("sentinel", "says"),
    [
        (
            need_input("seat", "?", str),
            "need_input('seat') was not yielded: write `answer = yield need_input(...)`",
        ),
        (
            step("pay", len, ""),
            "step('pay') was not yielded: write `result = yield step(...)`",
        ),
        (progress(1), "progress(...) was not yielded: write `yield progress(...)`"),
        (not_yet(), "not_yet(...) was not yielded: write `yield not_yet(...)`"),
        (
            prefixed("x.", nothing()),
            "prefixed(...) was not yielded: write `result = yield prefixed(...)`",
        ),
    ],
)
def test_what_was_not_yielded_is_neither_true_nor_text(use: Any, sentinel: Any, says: str) -> None:
    """User report: `ok = need_input(...)` was true, and in an f-string went out as a result."""
    with pytest.raises(TypeError) as raised:
        use(sentinel)
    assert str(raised.value) == says
