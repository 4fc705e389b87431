"""operations, messages: each handler in the app's OpenAPI document, and callable from it."""

import json
from collections.abc import Iterator
from enum import Enum
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from fastapi import APIRouter, Depends, FastAPI, Header, Security
from fastapi.security import APIKeyHeader, OAuth2PasswordBearer, SecurityScopes
from openapi_spec_validator import validate
from pydantic import BaseModel, Field

from fastapi_mcp_mrtr import (
    HandlerGroup,
    MCPHeader,
    MCPRouter,
    Rounds,
    SyncRounds,
    need_input,
    need_roots,
)
from tests import wire

from .documented import Json, body_of, document, headers_of, operations, try_out


class Seat(BaseModel):
    row: int = Field(ge=1, le=40)
    letter: Literal["A", "B", "C"]


class Passenger(BaseModel):
    name: str
    companions: list["Passenger"] = []


class Booking(BaseModel):
    flight: str
    seat: Seat | None = None


class Region(Enum):
    EU = "eu"
    US = "us"


def served(mcp: MCPRouter, **options: Any) -> FastAPI:
    app = FastAPI()
    app.include_router(mcp, **options)
    return app


def desk(**options: Any) -> MCPRouter:
    """A router with a handler of each kind."""
    mcp = MCPRouter("desk", version="1", **options)

    @mcp.tool(title="Book a seat")
    async def book_seat(
        flight: Annotated[str, Field(examples=["LX318"])], passenger: Passenger
    ) -> Rounds[Booking]:
        """Book a seat, asking for whatever is *missing*."""
        seat: Seat = yield need_input("seat", f"Which seat on {flight}?", Seat)
        ok: bool = yield need_input("confirm", "Sure?", bool)
        yield Booking(flight=flight, seat=seat if ok else None)

    @mcp.tool()
    async def status(flight: str) -> str:
        return f"{flight} is on time"

    @mcp.prompt()
    async def itinerary(
        origin: Annotated[str, Field(description="Where from")], days: int = 3
    ) -> str:
        return f"{days} days from {origin}"

    @mcp.resource("desk://about", title="About the desk")
    async def about() -> str:
        return "We sell seats."

    @mcp.resource("seats://{flight}/{row}")
    async def seat_map(flight: str, row: int = 7) -> str:
        return f"{flight} {row}"

    return mcp


def only(app: FastAPI, path: str = "/mcp#tool=tool") -> Json:
    """The operation at a path, in a document that is valid."""
    validate(document(app))
    return operations(app)[path]


def parameter(operation: Json, name: str) -> Json:
    (found,) = (each for each in operation["parameters"] if each["name"] == name)
    return dict(found)


def resolved(app: FastAPI, schema: Json) -> Json:
    """The schema behind a reference to a component."""
    if "$ref" not in schema:
        return schema
    found: Json = document(app)["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return found


def request_schema(app: FastAPI, operation: Json) -> Json:
    """A schema that a validator takes on its own: references lead into the same document."""
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    return {**schema, "components": document(app)["components"]}


def params_of(app: FastAPI, operation: Json) -> Json:
    schema = resolved(app, operation["requestBody"]["content"]["application/json"]["schema"])
    found: Json = schema["properties"]["params"]["properties"]
    return found


# ------------------------------------------------------------------------------ what is shown


def test_each_handler_is_an_operation_of_its_own() -> None:
    """User report: tools were missing from /docs."""
    found = operations(served(desk()))
    assert {path: each["summary"] for path, each in found.items()} == {
        "/mcp#tool=book_seat": "Book a seat",
        "/mcp#tool=status": "status",
        "/mcp#prompt=itinerary": "itinerary",
        "/mcp#resource=about": "About the desk",
        "/mcp#template=seat_map": "seat_map",
    }


def test_operations_are_grouped_by_kind() -> None:
    """Decision: one tag each, for an operation with two is shown twice."""
    tags = {path: each["tags"] for path, each in operations(served(desk())).items()}
    assert tags["/mcp#tool=book_seat"] == ["mcp tools"]
    assert tags["/mcp#prompt=itinerary"] == ["mcp prompts"]
    assert tags["/mcp#resource=about"] == tags["/mcp#template=seat_map"] == ["mcp resources"]


@pytest.mark.parametrize(
    ("tags", "shown"), [(["Travel", "more"], "Travel tools"), ([], "desk tools")]
)
def test_the_tags_follow_those_of_the_router(tags: list[str], shown: str) -> None:
    """Decision: the first tag, or the server's name."""
    app = served(desk(tags=tags))
    assert operations(app)["/mcp#tool=status"]["tags"] == [shown]
    assert document(app)["paths"]["/mcp"]["post"].get("tags", []) == tags


def test_a_tag_of_the_inclusion_is_added() -> None:
    """Decision: what `include_router(tags=...)` says holds for all of it."""
    app = served(desk(), tags=["all"])
    assert operations(app)["/mcp#tool=status"]["tags"] == ["all", "mcp tools"]


def test_the_description_says_what_is_asked_and_needed() -> None:
    """Decision: for the reader of /redoc; the schemas say it to programs."""
    mcp = MCPRouter("desk", version="1", scopes_of=lambda _: [])

    @mcp.tool(scopes=["book", "pay"])
    async def tool(keys: list[str]) -> Rounds[str]:
        """Book."""
        yield need_input("seat", "Which?", Seat)
        for key in keys:
            yield need_input(key, "Which?", str)
        yield "booked"

    assert only(served(mcp))["description"].split("\n\n") == [
        "Book.",
        "**Asks** in further rounds:",
        "- `seat`: row (integer), letter (string)\n- `…`: value (string)",
        "**Scopes**: `book`, `pay`",
    ]


def test_arguments_and_results_share_components_with_routes() -> None:
    """Decision: one `Booking` in the document, however many routes and tools have it."""
    app = served(desk())

    @app.get("/bookings")
    async def bookings() -> list[Booking]:
        return []

    schemas = document(app)["components"]["schemas"]
    assert {"Booking", "Seat", "Passenger", "book_seat_arguments"} <= set(schemas)
    assert not any(name.startswith("tests__") for name in schemas)
    result = schemas["tool_book_seat_result"]["properties"]["result"]["properties"]
    assert result["structuredContent"] == {"$ref": "#/components/schemas/Booking"}
    params = schemas["tool_book_seat_request"]["properties"]["params"]
    assert params["properties"]["arguments"] == {"$ref": "#/components/schemas/book_seat_arguments"}
    assert params["required"] == ["name", "_meta", "arguments"]


def test_a_tool_without_a_declared_result_shows_no_structured_content() -> None:
    """spec: structuredContent goes with outputSchema (server/tools §Structured Content)."""
    schemas = document(served(desk()))["components"]["schemas"]
    result = schemas["tool_status_result"]["properties"]["result"]["properties"]
    assert set(result) == {"resultType", "content", "isError"}


def test_what_a_handler_asks_is_in_the_schemas() -> None:
    """Decision: its answers in the request, its questions among the responses."""
    app = served(desk())
    operation = operations(app)["/mcp#tool=book_seat"]
    answers = params_of(app, operation)["inputResponses"]["properties"]
    assert set(answers) == {"seat", "confirm"}
    assert answers["seat"]["properties"]["content"]["required"] == ["row", "letter"]
    asked = document(app)["components"]["schemas"]["tool_book_seat_input_required"]
    assert set(asked["properties"]["result"]["properties"]["inputRequests"]["properties"]) == {
        "seat",
        "confirm",
    }


def test_a_handler_that_cannot_ask_shows_no_rounds() -> None:
    """Decision: a plain function has one round."""
    app = served(desk())
    operation = operations(app)["/mcp#tool=status"]
    content = operation["requestBody"]["content"]["application/json"]
    assert set(content["examples"]) == {"first"}
    assert set(params_of(app, operation)) == {"name", "arguments", "_meta"}
    response = resolved(app, operation["responses"]["200"]["content"]["application/json"]["schema"])
    assert [each["$ref"].rpartition("/")[2] for each in response["anyOf"]] == [
        "tool_status_result",
        "MCPErrorResponse",
    ]


def test_an_argument_may_have_any_name() -> None:
    """Decision: those that JSON Schema has keywords for, too."""
    mcp = MCPRouter("desk", version="1")

    @mcp.prompt()
    async def prompt(title: str, required: str, properties: str) -> str:
        return title + required + properties

    app = served(mcp)
    operation = only(app, "/mcp#prompt=prompt")
    arguments = params_of(app, operation)["arguments"]
    assert set(arguments["properties"]) == {"title", "required", "properties"}
    assert wire.result_of(try_out(app, "/mcp", operation))


def test_prompt_arguments_are_text_and_described() -> None:
    """spec: prompt arguments are strings (server/prompts §Getting a Prompt)."""
    app = served(desk())
    operation = operations(app)["/mcp#prompt=itinerary"]
    arguments = params_of(app, operation)["arguments"]
    assert arguments["properties"] == {
        "origin": {"type": "string", "description": "Where from"},
        "days": {"type": "string"},
    }
    assert arguments["required"] == ["origin"]


def test_a_schema_that_replaces_the_tools_own_is_shown() -> None:
    """Decision: OpenAPI says what tools/list says; its references would lead nowhere here."""
    mcp = MCPRouter("desk", version="1")
    tree: Json = {
        "type": "object",
        "properties": {"root": {"$ref": "#/$defs/Node", "description": "The first"}},
        "$defs": {
            "Node": {
                "type": "object",
                "required": ["label"],
                "properties": {
                    "label": {"enum": ["a", 1, None]},
                    "next": {"$ref": "#/$defs/Node"},
                },
            }
        },
    }

    @mcp.tool(input_schema=tree)
    async def tool(root: dict[str, Any] | None = None) -> str:
        return json.dumps(root)

    app = served(mcp)
    operation = only(app)
    shown = params_of(app, operation)["arguments"]["properties"]["root"]
    assert shown["description"] == "The first"
    assert shown["properties"]["next"]["properties"]["label"]["enum"] == ["a", 1, None]
    assert "$defs" not in json.dumps(document(app))
    assert wire.result_of(try_out(app, "/mcp", operation))


# ------------------------------------------------------------------------------ trying it out


def test_every_example_gets_a_result() -> None:
    """Decision: "Try it out" performs a real call, with nothing to fill in."""
    app = served(desk())
    for path, operation in operations(app).items():
        jsonschema.validate(body_of(operation), request_schema(app, operation))
        assert wire.result_of(try_out(app, path, operation)), path


def test_a_second_round_needs_only_the_state() -> None:
    """Decision: the answers are in the example, the state is pasted."""
    app = served(desk())
    path = "/mcp#tool=book_seat"
    operation = operations(app)[path]
    result = wire.result_of(try_out(app, path, operation))
    again = body_of(operation, "next")
    jsonschema.validate(again, request_schema(app, operation))
    for asked in ("seat", "confirm"):
        assert set(result["inputRequests"]) == {asked}
        again["params"]["requestState"] = result["requestState"]
        result = wire.result_of(try_out(app, path, operation, again))
    assert result["structuredContent"] == {"flight": "LX318", "seat": {"row": 1, "letter": "A"}}


def test_responses_fit_what_is_documented() -> None:
    """Decision: what an operation answers is one of its responses."""
    app = served(desk())
    components = document(app)["components"]
    for path, operation in operations(app).items():
        schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
        answer = json.loads(try_out(app, path, operation).text)
        jsonschema.validate(answer, {**schema, "components": components})


def test_refusals_fit_what_is_documented() -> None:
    """Decision: 400 carries a JSON-RPC error."""
    app = served(desk())
    components = document(app)["components"]
    operation = operations(app)["/mcp#tool=status"]
    refused = try_out(app, "/mcp", operation, headers={"Mcp-Name": "another"})
    schema = operation["responses"]["400"]["content"]["application/json"]["schema"]
    assert refused.status_code == 400
    jsonschema.validate(json.loads(refused.text), {**schema, "components": components})


def test_asks_that_the_source_does_not_show_have_a_second_round_too() -> None:
    """Decision: a generator may ask; which answers it wants is for the reader to see."""
    mcp = MCPRouter("desk", version="1")

    @mcp.tool()
    def tool() -> SyncRounds[str]:
        roots = yield need_roots("roots")
        return str(len(roots))

    operation = only(served(mcp))
    assert operation["description"] == "**Asks** in further rounds."
    assert body_of(operation, "next")["params"]["inputResponses"] == {}


def test_parameters_that_are_mirrored_have_their_headers() -> None:
    """spec: Mcp-Param-* mirror arguments (streamable-http §Custom Headers)."""
    mcp = MCPRouter("desk", version="1")

    @mcp.tool()
    async def tool(
        region: Annotated[Region, MCPHeader("Region")],
        limit: Annotated[int, MCPHeader("Limit")] = 5,
        city: Annotated[str | None, MCPHeader("City")] = None,
    ) -> str:
        return f"{region} {limit} {city}"

    app = served(mcp)
    operation = only(app)
    assert headers_of(operation)["Mcp-Param-Region"] == "eu"
    assert headers_of(operation)["Mcp-Param-Limit"] == "5"
    city = parameter(operation, "Mcp-Param-City")
    assert (city["required"], city["schema"]) == (False, {"type": "string"})
    assert wire.result_of(try_out(app, "/mcp", operation))


def test_a_name_that_is_no_ascii_travels_encoded() -> None:
    """spec: Mcp-Name carries Base64 for what headers cannot (streamable-http §Value Encoding)."""
    mcp = MCPRouter("desk", version="1")

    @mcp.resource("menu://{dish}")
    async def menu(dish: Annotated[Literal["Müsli"], Field()]) -> str:
        return dish

    @mcp.tool()
    async def tool(dish: Annotated[str, MCPHeader("Dish"), Field(examples=["Müsli "])]) -> str:
        return dish

    app = served(mcp)
    found = operations(app)
    assert headers_of(found["/mcp#template=menu"])["Mcp-Name"] == "menu://M%C3%BCsli"
    assert headers_of(found["/mcp#tool=tool"])["Mcp-Param-Dish"] == "=?base64?TcO8c2xpIA==?="
    for path, operation in found.items():
        assert wire.result_of(try_out(app, path, operation)), path


# ------------------------------------------------------------------------- who may, and where


def test_the_scopes_of_a_handler_are_in_its_security_requirement() -> None:
    """Decision: beside those of the principal, and only there."""
    oauth = OAuth2PasswordBearer("token", auto_error=False, scopes={"read": "", "book": ""})

    async def user(scopes: SecurityScopes, token: Annotated[str | None, Depends(oauth)]) -> str:
        return str(token)

    mcp = MCPRouter(
        "desk", version="1", principal=Security(user, scopes=["read"]), scopes_of=lambda _: ["book"]
    )

    @mcp.tool(scopes=["book"])
    async def tool() -> str:
        return "booked"

    @mcp.tool()
    async def look() -> str:
        return "looked"

    app = served(mcp)
    assert only(app)["security"] == [{"OAuth2PasswordBearer": ["read", "book"]}]
    assert operations(app)["/mcp#tool=look"]["security"] == [{"OAuth2PasswordBearer": ["read"]}]
    assert "401" in only(app)["responses"]
    assert wire.result_of(try_out(app, "/mcp", only(app)))


def test_what_a_handlers_own_dependencies_read_is_shown() -> None:
    """Decision: FastAPI documents them as it does for a route."""

    async def session(
        tenant: Annotated[str, Header()],
        key: Annotated[str, Security(APIKeyHeader(name="X-Key"))],
    ) -> str:
        return f"{tenant} {key}"

    mcp = MCPRouter("desk", version="1")

    @mcp.tool()
    async def tool(session: Annotated[str, Depends(session)]) -> str:
        return session

    app = served(mcp)
    operation = only(app)
    assert parameter(operation, "tenant")["required"] is True
    assert operation["security"] == [{"APIKeyHeader": []}]
    response = try_out(app, "/mcp", operation, headers={"tenant": "acme", "X-Key": "k"})
    assert wire.result_of(response)["content"][0]["text"] == "acme k"


def test_hidden_handlers_stay_hidden() -> None:
    """Decision: what does not exist for some callers is not shown to everybody."""
    mcp = MCPRouter("desk", version="1", scopes_of=lambda _: [])

    @mcp.tool(scopes=["admin"], visibility="authorized")
    async def reset_everything() -> str:
        return "done"

    assert "reset_everything" not in json.dumps(document(served(mcp)))


def test_it_can_be_turned_off() -> None:
    """Decision: the endpoint alone."""
    assert list(document(served(desk(openapi_tools=False)))["paths"]) == ["/mcp"]


def test_it_is_left_out_with_the_router() -> None:
    """Decision: `include_in_schema=False` means all of it."""
    assert document(served(desk(), include_in_schema=False))["paths"] == {}
    assert document(served(desk(include_in_schema=False)))["paths"] == {}


# ------------------------------------------------------------------------------ late and often


def test_what_is_registered_late_appears() -> None:
    """User report: tools added after mounting were missing. FastAPI keeps the document."""
    mcp = desk()
    app = served(mcp)
    client = wire.client_of(app)
    assert "/mcp#tool=late" not in operations(client)

    @mcp.tool()
    async def late() -> str:
        return "better than never"

    assert wire.result_of(try_out(client, "/mcp", operations(client)["/mcp#tool=late"]))
    mcp.remove_tool("late")
    assert "/mcp#tool=late" not in operations(client)


def test_what_a_group_gets_late_appears_under_its_prefix() -> None:
    """Decision: the registry says what there is, wherever it came from."""
    mcp, group = MCPRouter("desk", version="1"), HandlerGroup()
    mcp.include(group, prefix="flights.")
    app = served(mcp)
    assert operations(app) == {}

    @group.tool()
    async def find() -> str:
        return "found"

    assert wire.result_of(try_out(app, "/mcp", operations(app)["/mcp#tool=flights.find"]))


def test_a_document_is_made_once() -> None:
    """Decision: FastAPI's own cache stays in force while nothing changes."""
    app = served(desk())
    assert app.openapi() is app.openapi()


def test_including_makes_no_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decision: an app that shows no document starts, and serves, without the cost of one."""
    from fastapi_mcp_mrtr.http.operations import HandlerOperations

    built: list[int] = []

    def build(self: HandlerOperations) -> Iterator[Any]:
        built.append(1)
        return iter(())

    monkeypatch.setattr(HandlerOperations, "_build", build)
    app = served(desk())
    assert wire.result_of(wire.post(app, wire.call("status", {"flight": "LX318"})))
    assert built == []
    app.openapi()
    assert built == [1]


@pytest.mark.parametrize("path", ["/mcp%23tool=status", "/mcp#tool=status", "/mcp/%23tool=status"])
def test_a_fragment_is_no_path(path: str) -> None:
    """Decision: there is one endpoint, and a client that sends a fragment does not reach it."""
    app = served(desk())
    body = wire.call("status", {"flight": "LX318"})
    app.openapi()
    status = 200 if "#" in path else 404
    response = wire.client_of(app).post(path, json=body, headers=wire.headers(body))
    assert response.status_code == status


# ------------------------------------------------------------------------------ where it is


def nested(mcp: MCPRouter) -> FastAPI:
    outer = APIRouter(prefix="/v1")
    outer.include_router(mcp, prefix="/ai")
    return served(outer, prefix="/api")  # type: ignore[arg-type]


def test_paths_are_whole_under_prefixes() -> None:
    """User report: a prefix given to include_router was ignored."""
    app = nested(desk(prefix="/desk"))
    found = operations(app)
    assert len(found) == 5
    for path, operation in found.items():
        assert path.startswith("/api/v1/ai/desk/mcp#")
        assert wire.result_of(try_out(app, path, operation))


def test_a_sub_app_shows_its_own() -> None:
    """Decision: in its own document, whose paths are below where it is mounted."""
    app = FastAPI()
    app.mount("/sub", served(desk()))
    client = wire.client_of(app)
    assert document(app)["paths"] == {}
    inner = client.get("/sub/openapi.json").json()
    assert inner["servers"] == [{"url": "/sub"}]
    operation = inner["paths"]["/mcp#tool=status"]["post"]
    assert wire.result_of(try_out(client, "/sub/mcp", operation))


def test_a_root_path_is_the_servers() -> None:
    """User report: root_path doubled or lost in generated URLs."""
    found = document(wire.client_of(served(desk()), root_path="/proxy"))
    assert found["servers"] == [{"url": "/proxy"}]
    assert "/mcp#tool=status" in found["paths"]


def test_one_router_at_two_places_is_shown_twice() -> None:
    """spec: operationId MUST be unique (OpenAPI §Operation Object)."""
    app, mcp = FastAPI(), desk()
    app.include_router(mcp, prefix="/one")
    app.include_router(mcp, prefix="/two")
    validate(document(app))
    assert len(operations(app)) == 10


def test_two_routers_in_one_app_are_apart() -> None:
    """Decision: their tools may have one name."""
    app = FastAPI()
    for name in ("one", "two"):
        app.include_router(desk(tags=[name]), prefix=f"/{name}")
    validate(document(app))
    tags = {each["tags"][0] for each in operations(app).values()}
    assert {"one tools", "two tools"} <= tags


def test_names_that_make_one_identifier_are_numbered() -> None:
    """spec: operationId MUST be unique (OpenAPI §Operation Object)."""
    mcp = MCPRouter("desk", version="1")
    for name in ("a.b", "a-b", "a_b"):

        @mcp.tool(name)
        async def tool() -> str:
            return "done"

    @mcp.resource("desk://one", name="über uns/heute")
    async def one() -> str:
        return "1"

    @mcp.resource("desk://two", name="über uns/heute")
    async def two() -> str:
        return "2"

    app = served(mcp)
    validate(document(app))
    assert list(operations(app)) == [
        "/mcp#tool=a.b",
        "/mcp#tool=a-b-2",
        "/mcp#tool=a_b-3",
        "/mcp#resource=%C3%BCber%20uns%2Fheute",
        "/mcp#resource=%C3%BCber%20uns%2Fheute-2",
    ]
    for path, operation in operations(app).items():
        assert wire.result_of(try_out(app, path, operation)), path


def test_late_registration_repeats_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Decision: FastAPI builds the routes anew, and what it said at the start was enough."""
    from fastapi_mcp_mrtr import ProtectedResource, VerifiedToken

    class Never:
        async def verify(self, token: str) -> VerifiedToken:
            raise NotImplementedError

    resource = ProtectedResource(
        resource="https://api.example.com/elsewhere",
        authorization_servers=["https://login.example.com"],
        verifier=Never(),
    )
    mcp = MCPRouter("desk", version="1", principal=resource)
    app = served(mcp)
    app.openapi()

    @mcp.tool()
    async def late() -> str:
        return "late"

    app.openapi()
    assert [r.message for r in caplog.records if "does not end in that" in r.message] != []
    assert len([r for r in caplog.records if "does not end in that" in r.message]) == 1
