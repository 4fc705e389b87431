"""What endpoints and handlers ask FastAPI for. A client can neither see nor set any of it."""

from typing import Annotated

from fastapi import Depends, Request

from .desk import Desk
from .miles import Miles
from .payments import Payments
from .settings import Settings


def get_desk(request: Request) -> Desk:
    desk: Desk = request.app.state.desk
    return desk


def get_payments(request: Request) -> Payments:
    payments: Payments = request.app.state.payments
    return payments


def get_miles(request: Request) -> Miles:
    miles: Miles = request.app.state.miles
    return miles


def get_settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


DeskDep = Annotated[Desk, Depends(get_desk)]
PaymentsDep = Annotated[Payments, Depends(get_payments)]
MilesDep = Annotated[Miles, Depends(get_miles)]
SettingsDep = Annotated[Settings, Depends(get_settings)]


class Links:
    """Addresses of this app's own pages, as a browser reaches them."""

    def __init__(self, request: Request, settings: SettingsDep) -> None:
        self._request = request
        self._public_url = settings.public_url

    def payment_page(self, payment_id: str) -> str:
        """Names the payment and nobody's person: whoever opens it must sign in."""
        return self._page("payment_page", payment_id=payment_id)

    def connect_page(self, connection_id: str) -> str:
        """The same for a connection. No link to Nimbus Miles: that one could be passed on."""
        return self._page("connect_page", connection_id=connection_id)

    def _page(self, name: str, **parts: str) -> str:
        if self._public_url is None:
            return str(self._request.url_for(name, **parts))
        path = self._request.app.url_path_for(name, **parts)
        return f"{self._public_url.rstrip('/')}{path}"


LinksDep = Annotated[Links, Depends(Links)]
