"""The routes of RFC 9728: where clients learn which authorization server a resource trusts."""

from typing import Final

from fastapi import APIRouter, Response, params

from fastapi_mcp_mrtr.auth.resource import ProtectedResource
from fastapi_mcp_mrtr.server.injection import callables_below

# Browser clients name the protocol's version in a header, and so ask before they fetch.
_PREFLIGHT: Final = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "GET",
    "Access-Control-Allow-Headers": "*",
    "Access-Control-Max-Age": "3600",
}


def protected_resource(principal: params.Depends | None) -> ProtectedResource | None:
    """The protected resource that is the principal, or that it depends on."""
    if principal is None:
        return None
    for call in callables_below(principal):
        if isinstance(call, ProtectedResource):
            return call
    return None


def well_known_router(resource: ProtectedResource) -> APIRouter:
    """The metadata at the path form of its URL and at the root. No token is needed to read it."""
    router = APIRouter(include_in_schema=False)

    async def metadata() -> Response:
        return resource.metadata_response()

    async def preflight() -> Response:
        return Response(status_code=204, headers=_PREFLIGHT)

    for path in dict.fromkeys([resource.metadata_path, resource.root_metadata_path]):
        router.add_api_route(path, metadata, methods=["GET", "HEAD"])
        router.add_api_route(path, preflight, methods=["OPTIONS"])
    return router
