"""uri_template: which URI a template serves, with which values, and how long that takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastapi_mcp_mrtr.server.uri_template import TemplateIndex, UriTemplate


def match(template: str, uri: str) -> dict[str, str] | None:
    return UriTemplate.parse(template).match(uri)


# ------------------------------------------------------------------------------------ templates


def test_a_template_knows_its_parts() -> None:
    """decision: what the registry needs to compare a template with a handler's arguments."""
    template = UriTemplate.parse("file:///{project}/{+path}.md")
    assert template.text == "file:///{project}/{+path}.md"
    assert template.variables == ("project", "path")
    assert template.literal_prefix == "file:///"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a://{}", "has no name"),
        ("a://{+}", "not supported"),
        ("a://{#x}", "not supported"),
        ("a://{.x}", "not supported"),
        ("a://{/x}", "not supported"),
        ("a://{;x}", "not supported"),
        ("a://{?x}", "not supported"),
        ("a://{&x}", "not supported"),
        ("a://{=x}", "not supported"),
        ("a://{++x}", "not supported"),
        ("a://{x*}", "not supported"),
        ("a://{x:3}", "not supported"),
        ("a://{x,y}", "not supported"),
        ("a://{x.y}", "not supported"),
        ("a://{ x }", "not supported"),
        ("a://{1x}", "not supported"),
        ("a://{größe}", "not supported"),
        ("a://{x}/{x}", "'x' is used twice"),
        ("a://{x}/{+x}", "'x' is used twice"),
        ("a://{x}{y}", "nothing separates the variables 'x' and 'y'"),
        ("a://{+x}{y}/{z}", "nothing separates the variables 'x' and 'y'"),
        ("a://{+x}/{+y}", "more than one"),
        ("a://{x", "brace"),
        ("a://x}", "brace"),
        ("a://{{x}}", "brace"),
        ("a://{x}}", "brace"),
        ("a://größe/{x}", "'ö' is no URI character"),
        ("a://b c/{x}", "' ' is no URI character"),
        ("a://%zz/{x}", "hexadecimal"),
        ("a://50%/{x}", "hexadecimal"),
    ],
)
def test_what_is_wrong_is_said_at_registration(text: str, says: str) -> None:
    """decision: a template that cannot work stops the import, and names the reason."""
    with pytest.raises(ValueError, match=says) as caught:
        UriTemplate.parse(text)
    assert repr(text) in str(caught.value)


# ------------------------------------------------------------------------------------- matching


@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("a://{id}", "a://7", {"id": "7"}),
        ("a://{id}/x", "a://7/x", {"id": "7"}),
        ("a://{x}/{y}", "a://1/2", {"x": "1", "y": "2"}),
        ("a://x?q={q}", "a://x?q=1&r=2", {"q": "1&r=2"}),
        ("a://{id}", "a://b:c@d,e;f=g", {"id": "b:c@d,e;f=g"}),
        ("a://{id}", "a://größe", {"id": "größe"}),
        ("file:///{+path}", "file:///a/b/c.txt", {"path": "a/b/c.txt"}),
        ("file:///{+path}", "file:///a?b#c", {"path": "a?b#c"}),
        ("a://{x}/{+p}", "a://1/2/3", {"x": "1", "p": "2/3"}),
        ("a://{+p}/{x}", "a://1/2/3", {"p": "1/2", "x": "3"}),
        ("a://{x}/{+p}/{y}", "a://1/2/3/4", {"x": "1", "p": "2/3", "y": "4"}),
        ("a://{+p}/{x}/{y}/end", "a://1/2/3/4/end", {"p": "1/2", "x": "3", "y": "4"}),
        ("{x}:y", "a:y", {"x": "a"}),
        ("a://b", "a://b", {}),
    ],
)
def test_a_uri_that_is_served(template: str, uri: str, values: dict[str, str]) -> None:
    """spec: RFC 6570 level 1 and reserved expansion, read backwards."""
    assert match(template, uri) == values


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("a://{id}", "a://"),
        ("a://{id}", "a://1/2"),
        ("a://{id}", "a://1?q"),
        ("a://{id}", "a://1#f"),
        ("a://{id}", "b://1"),
        ("a://{id}", "A://1"),
        ("a://{id}", ""),
        ("a://{id}/x", "a:///x"),
        ("a://{id}/x", "a://1/y"),
        ("a://{x}/{y}", "a://1"),
        ("a://{x}/{y}", "a:///2"),
        ("a://{x}/{y}", "a://1/"),
        ("a://{x}/{y}", "a://1/2/3"),
        ("file:///{+path}", "file:///"),
        ("a://{x}/{+p}", "a://1/"),
        ("a://{x}/{+p}", "a://1"),
        ("a://{+p}/{x}", "a:///1"),
        ("a://{+p}/{x}", "a://1/"),
        ("a://{+p}/{x}", "a://1"),
        ("a://{x}/{+p}/{y}", "a://1/2"),
        ("a://{x}/{+p}/{y}", "a://1//2"),
        ("a://b", "a://b/"),
    ],
)
def test_a_uri_that_is_not_served(template: str, uri: str) -> None:
    """decision: a variable has at least one character; literals match exactly."""
    assert match(template, uri) is None


@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("a://{x}-{y}", "a://1-2-3", {"x": "1", "y": "2-3"}),
        ("a://{x}--{y}", "a://1---2", {"x": "1", "y": "-2"}),
        ("a://{+p}.{ext}", "a://b/c.tar.gz", {"p": "b/c.tar", "ext": "gz"}),
        ("a://{+p}/{x}-{y}", "a://b/1-2-3", {"p": "b", "x": "1-2", "y": "3"}),
        ("a://{x}-{+p}", "a://1-2-3", {"x": "1", "p": "2-3"}),
    ],
)
def test_the_reading_of_what_is_ambiguous(template: str, uri: str, values: dict[str, str]) -> None:
    """decision: documented in the module, so that it stays what it is."""
    assert match(template, uri) == values


@pytest.mark.parametrize("form", ["{x}", "{+x}"])
@pytest.mark.parametrize(
    ("raw", "value"),
    [("a%20b", "a b"), ("%C3%B6", "ö"), ("a%2Fb", "a/b"), ("%252F", "%2F"), ("%2e%2E", "..")],
)
def test_values_are_decoded_once(form: str, raw: str, value: str) -> None:
    """decision: an encoded slash is part of a value; what a path may contain is the author's."""
    assert match(f"a://{form}", f"a://{raw}") == {"x": value}


@pytest.mark.parametrize("form", ["{x}", "{+x}"])
@pytest.mark.parametrize("raw", ["%", "%2", "%zz", "a%2", "%%20", "%FF", "%C3", "%ED%A0%80"])
def test_broken_encoding_is_served_by_no_template(form: str, raw: str) -> None:
    """spec: servers MUST validate all resource URIs (§Security Considerations 1)."""
    assert match(f"a://{form}", f"a://{raw}") is None


@pytest.mark.parametrize("end", ["/x", "/y", "?"])
@pytest.mark.parametrize("widest", ["{d}", "{+d}"])
def test_matching_does_not_backtrack(widest: str, end: str) -> None:
    """decision: time grows like the URI; with six variables this would never end otherwise."""
    template = UriTemplate.parse(f"a://{{a}}-{{b}}-{{c}}-{widest}-{{e}}-{{f}}/x")
    assert (template.match("a://" + "-" * 1_000_000 + end) is None) == (end != "/x")


# ------------------------------------------------------------------------------------- expanding


@pytest.mark.parametrize(
    ("template", "values", "uri"),
    [
        ("a://{id}", {"id": "a b/c"}, "a://a%20b%2Fc"),
        ("a://{id}", {"id": "ö"}, "a://%C3%B6"),
        ("file:///{+path}", {"path": "a/b c?d"}, "file:///a/b%20c?d"),
        ("a://{+x}", {"x": "50%25"}, "a://50%2525"),
        ("a://{x}/{y}!", {"x": "1", "y": "2", "z": "3"}, "a://1/2!"),
        ("a://b", {}, "a://b"),
    ],
)
def test_expansion(template: str, values: dict[str, str], uri: str) -> None:
    """spec: RFC 6570 §3.2.2 and §3.2.3, but a % is always encoded."""
    assert UriTemplate.parse(template).expand(values) == uri


@pytest.mark.parametrize("values", [{}, {"x": ""}])
def test_a_variable_without_a_value_cannot_be_expanded(values: dict[str, str]) -> None:
    """decision: the result would be a URI that the template does not serve."""
    with pytest.raises(ValueError, match="'x' needs a value"):
        UriTemplate.parse("a://{x}").expand(values)


@given(st.text(min_size=1), st.text(min_size=1))
def test_what_is_expanded_is_matched(segment: str, path: str) -> None:
    """decision: `match` undoes `expand`."""
    template = UriTemplate.parse("a://{segment}/{+path}")
    values = {"segment": segment, "path": path}
    assert template.match(template.expand(values)) == values


def naive(template: str, uri: str) -> bool:
    """Whether any reading of the template is the URI: all of them tried."""
    if not template:
        return not uri
    if template[0] != "{":
        return uri[:1] == template[0] and naive(template[1:], uri[1:])
    expression, _, rest = template[1:].partition("}")
    for end in range(1, len(uri) + 1):
        if "/" in uri[:end] and expression[0] != "+":
            return False
        if naive(rest, uri[end:]):
            return True
    return False


@given(
    st.lists(st.sampled_from(["-", "/", "a", "-/", "--"]), min_size=1, max_size=5),
    st.lists(st.sampled_from(["", "{}"]), min_size=6, max_size=6),
    st.integers(-1, 5),
    st.text("-/ab", max_size=12),
)
def test_a_uri_is_served_exactly_if_some_reading_fits(
    literals: list[str], slots: list[str], reserved: int, uri: str
) -> None:
    """decision: not backtracking loses nothing, as at most one variable takes slashes."""
    text, count = "", 0
    for slot, literal in zip(slots, [*literals, ""], strict=False):
        if slot:
            text += f"{{+v{count}}}" if count == reserved else f"{{v{count}}}"
            count += 1
        text += literal
    template = UriTemplate.parse(text)
    values = template.match(uri)
    assert (values is not None) == naive(text, uri)
    for name, value in (values or {}).items():
        text = text.replace(f"{{+{name}}}", value).replace(f"{{{name}}}", value)
    if values is not None:
        assert text == uri


# ------------------------------------------------------------------------------------------ index


def index_of(*templates: str) -> TemplateIndex[str]:
    index: TemplateIndex[str] = TemplateIndex()
    for template in templates:
        index.add(UriTemplate.parse(template), template)
    return index


def found(index: TemplateIndex[str], uri: str) -> str | None:
    match index.match(uri):
        case (template, _):
            return template
        case _:
            return None


def test_the_index_gives_the_value_and_the_variables() -> None:
    """decision: one lookup is all a read needs."""
    assert index_of("a://{x}", "b://{y}").match("b://1") == ("b://{y}", {"y": "1"})
    assert index_of("a://{x}").match("b://1") is None


@pytest.mark.parametrize(
    ("templates", "uri", "winner"),
    [
        (["a://{+x}", "a://b/{y}"], "a://b/c", "a://b/{y}"),
        (["a://{+x}", "a://b/{y}"], "a://c/c", "a://{+x}"),
        (["a://{+x}", "a://{x}"], "a://b", "a://{x}"),
        (["a://{x}", "a://{x}.md"], "a://b.md", "a://{x}.md"),
        (["a://{x}", "a://{y}"], "a://b", "a://{x}"),
        (["a://{y}", "a://{x}"], "a://b", "a://{y}"),
        (["a://b/{x}", "a://{x}/{y}"], "a://b/%", None),
    ],
)
def test_the_most_specific_template_wins(
    templates: list[str], uri: str, winner: str | None
) -> None:
    """decision: longest beginning, more literal text, no slashes taken, registered first."""
    assert found(index_of(*templates), uri) == winner


def test_a_template_can_be_taken_back() -> None:
    """decision: what served before it serves again."""
    index = index_of("a://{+x}", "a://b/{y}", "a://b/{z}")
    index.remove(UriTemplate.parse("a://b/{y}"))
    assert found(index, "a://b/c") == "a://b/{z}"
    index.remove(UriTemplate.parse("a://b/{z}"))
    assert found(index, "a://b/c") == "a://{+x}"


@pytest.mark.parametrize("template", ["a://{y}", "b://{x}"])
def test_taking_back_what_is_not_there_is_an_error(template: str) -> None:
    """decision: the caller's tables are out of step."""
    with pytest.raises(KeyError):
        index_of("a://{x}").remove(UriTemplate.parse(template))


def test_a_lookup_looks_at_one_template_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """decision: a thousand templates cost a lookup no more than ten."""
    index = index_of(*(f"a://kind-{i:04}/{{x}}" for i in range(1000)), "a://{+x}")
    tried: list[str] = []
    original = UriTemplate.match

    def spy(template: UriTemplate, uri: str) -> dict[str, str] | None:
        tried.append(template.text)
        return original(template, uri)

    monkeypatch.setattr(UriTemplate, "match", spy)
    assert found(index, "a://kind-0777/7") == "a://kind-0777/{x}"
    assert tried == ["a://kind-0777/{x}"]
