"""The REST endpoints, and that they share one database with the MCP tools."""

from typing import Any

import httpx2
import pytest

from fastapi_mcp_mrtr.testing import MCPTestClient

from .helpers import AMELIE, BRUNO, CHEN, Clock


def as_customer(key: str) -> dict[str, str]:
    return {"X-API-Key": key}


def hold(http: httpx2.Client, *seats: str, key: str = AMELIE, **headers: str) -> httpx2.Response:
    passengers = [{"name": f"Passenger in {seat}", "seat": seat} for seat in seats]
    return http.post(
        "/bookings",
        json={"flight": "TD101", "passengers": passengers},
        headers={**as_customer(key), **headers},
    )


@pytest.mark.parametrize("key", [None, "", "no-such-key"])
def test_a_stranger_is_refused(http: httpx2.Client, key: str | None) -> None:
    """Decision: 401 with a challenge, without saying what was wrong with the key."""
    response = http.get("/bookings", headers={} if key is None else as_customer(key))
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == "ApiKey"


def test_flights_can_be_searched_without_a_key(http: httpx2.Client) -> None:
    """Decision: looking costs nothing."""
    found = http.get("/flights", params={"origin": "AMS", "destination": "LIS"}).json()
    assert [flight["number"] for flight in found] == ["TD101", "TD103"]


def test_departed_flights_are_not_offered(http: httpx2.Client, clock: Clock) -> None:
    """Decision: a search lists what can be booked."""
    clock.advance(365 * 86400)
    assert http.get("/flights").json() == []


def test_a_held_seat_is_not_free(http: httpx2.Client) -> None:
    """Decision: a hold counts like a booking."""
    assert "14A" in http.get("/flights/TD101/seats").json()["free"]
    assert hold(http, "14A").status_code == 201
    assert "14A" not in http.get("/flights/TD101/seats").json()["free"]


def test_a_seat_is_held_once(http: httpx2.Client) -> None:
    """Decision: all seats of a booking or none."""
    hold(http, "14A")
    refused = hold(http, "14B", "14A", key=BRUNO)
    assert (refused.status_code, refused.json()["detail"]) == (409, "Taken by somebody else: 14A.")
    assert "14B" in http.get("/flights/TD101/seats").json()["free"]


def test_two_passengers_cannot_share_a_seat(http: httpx2.Client) -> None:
    """Decision: a conflict within one request is one, too."""
    assert hold(http, "14A", "14A").status_code == 409


def test_a_lapsed_hold_frees_its_seats(http: httpx2.Client, clock: Clock) -> None:
    """Decision: a hold ends by itself, also before anybody asks for the seat again."""
    reference = hold(http, "14A").json()["reference"]
    clock.advance(15 * 60)
    booking = http.get(f"/bookings/{reference}", headers=as_customer(AMELIE)).json()
    assert (booking["status"], booking["passengers"][0]["seat"]) == ("expired", None)
    assert "14A" in http.get("/flights/TD101/seats").json()["free"]
    assert hold(http, "14A", key=BRUNO).status_code == 201


def test_an_idempotency_key_makes_a_repeat_harmless(http: httpx2.Client) -> None:
    """User report: a lost response is followed by the same request."""
    first = hold(http, "14A", **{"Idempotency-Key": "once"}).json()
    again = hold(http, "14A", **{"Idempotency-Key": "once"}).json()
    assert first["reference"] == again["reference"]
    other = hold(http, "15A", "15B", **{"Idempotency-Key": "once"})
    assert other.status_code == 409


def test_idempotency_keys_belong_to_a_customer(http: httpx2.Client) -> None:
    """Decision: nobody reads another's booking by guessing a key."""
    first = hold(http, "14A", **{"Idempotency-Key": "once"}).json()
    other = hold(http, "15A", key=BRUNO, **{"Idempotency-Key": "once"}).json()
    assert first["reference"] != other["reference"]


def test_paying_twice_takes_the_money_once(http: httpx2.Client) -> None:
    """Decision: an effect that is there already stays as it is."""
    path = f"/bookings/{hold(http, '14A').json()['reference']}/payment"
    for _ in range(2):
        assert http.post(path, headers=as_customer(AMELIE)).json()["status"] == "paid"
    balance = http.get("/me", headers=as_customer(AMELIE)).json()["balance_cents"]
    assert balance == 250_000 - 12_900


def test_an_account_cannot_be_overdrawn(http: httpx2.Client) -> None:
    """Decision: 409, and the seats stay held."""
    reference = hold(http, "14A", key=CHEN).json()["reference"]
    refused = http.post(f"/bookings/{reference}/payment", headers=as_customer(CHEN))
    assert (refused.status_code, refused.json()["detail"]) == (
        409,
        "There is not enough money on the account.",
    )


def test_a_lapsed_hold_cannot_be_paid(http: httpx2.Client, clock: Clock) -> None:
    """Decision: somebody else may have the seat."""
    reference = hold(http, "14A").json()["reference"]
    clock.advance(15 * 60)
    refused = http.post(f"/bookings/{reference}/payment", headers=as_customer(AMELIE))
    assert refused.status_code == 409
    assert "expired" in refused.json()["detail"]


def test_cancelling_refunds_and_frees(http: httpx2.Client) -> None:
    """Decision: once, however often it is asked for."""
    reference = hold(http, "14A").json()["reference"]
    http.post(f"/bookings/{reference}/payment", headers=as_customer(AMELIE))
    for _ in range(2):
        cancelled = http.delete(f"/bookings/{reference}", headers=as_customer(AMELIE)).json()
        assert cancelled["status"] == "cancelled"
    assert http.get("/me", headers=as_customer(AMELIE)).json()["balance_cents"] == 250_000
    assert "14A" in http.get("/flights/TD101/seats").json()["free"]


def test_passengers_can_be_renamed(http: httpx2.Client) -> None:
    """Decision: every passenger at once, in order."""
    path = f"/bookings/{hold(http, '14A', '14B').json()['reference']}"
    changed = http.patch(path, json={"names": ["Ada", "Bo"]}, headers=as_customer(AMELIE)).json()
    assert [passenger["name"] for passenger in changed["passengers"]] == ["Ada", "Bo"]
    too_few = http.patch(path, json={"names": ["Ada"]}, headers=as_customer(AMELIE))
    assert too_few.status_code == 409


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/payment")],
)
def test_somebody_elses_booking_does_not_exist(http: httpx2.Client, method: str, path: str) -> None:
    """Decision: 404, so that references cannot be probed."""
    reference = hold(http, "14A").json()["reference"]
    body: dict[str, Any] | None = {"names": ["Eve"]} if method == "PATCH" else None
    response = http.request(
        method, f"/bookings/{reference}{path}", json=body, headers=as_customer(BRUNO)
    )
    assert response.status_code == 404


def test_both_faces_show_the_same_bookings(http: httpx2.Client, client: MCPTestClient) -> None:
    """Decision: one database behind REST and MCP."""
    reference = hold(http, "14A").json()["reference"]
    over_mcp = client.call_tool("list_bookings").structured_content
    assert over_mcp is not None
    over_rest = http.get("/bookings", headers=as_customer(AMELIE)).json()
    assert over_mcp["bookings"] == over_rest
    assert [booking["reference"] for booking in over_rest] == [reference]


def test_the_documentation_lists_both_faces(http: httpx2.Client) -> None:
    """User report: the endpoint was missing from /openapi.json."""
    paths = http.get("/openapi.json").json()["paths"]
    assert {"/flights", "/bookings/{reference}", "/mcp"} <= paths.keys()
    assert not any(path.startswith(("/pay", "/static")) for path in paths)
