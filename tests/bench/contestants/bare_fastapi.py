"""FastAPI by itself: a route with a body model and one dependency, which reads who calls.

It is on a router that the app includes, as the library is, and as the routes of most apps are.
`/least` is the least that such a route can be: on the app itself, its dependency reading nothing.
"""

from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI

from .shared import Echo, current_user, settings

router = APIRouter()


@router.post("/echo")
async def echo(body: Echo, user: Annotated[str, Depends(current_user)]) -> Echo:
    return body


app = FastAPI()
app.include_router(router)
least = FastAPI()


@least.post("/echo")
async def echo_for_nobody(body: Echo, value: Annotated[str, Depends(settings)]) -> Echo:
    return body
