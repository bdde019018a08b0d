"""Routes that write need a key with a scope, which they declare in the OpenAPI document."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute

from service.api.access.callers import missing_key
from service.api.http.body import JsonItemsRoute
from service.api.http.current import caller_of
from service.api.http.document import SCHEME
from service.domain.keys import ApiKey


def needs(scope: str) -> dict[str, Any]:
    """Declares the scope of a `KeyedRoute`, as its `openapi_extra`."""
    return {"security": [{SCHEME: [scope]}]}


class KeyedRoute(APIRoute):
    """A route that refuses, before it reads the body, a caller without the scope that `needs` declares."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Returns the handler, which first checks the scopes of the caller's key."""
        handler = super().get_route_handler()
        (scope,) = (self.openapi_extra or {})["security"][0][SCHEME]

        async def handle(request: Request) -> Response:
            caller = caller_of(request)
            if caller is None:
                return missing_key()
            require_scope(caller, scope)
            return await handler(request)

        return handle


class KeyedItemsRoute(KeyedRoute, JsonItemsRoute):
    """A `KeyedRoute` whose JSON body is a list of many items."""


def require_scope(caller: ApiKey, scope: str) -> None:
    """Raises `HTTPException` with status 403 if the caller's key lacks the scope."""
    if scope not in caller.scopes:
        scopes = ", ".join(caller.scopes) or "none"
        sentence = f"The API key {caller.id} lacks the scope '{scope}'; it has: {scopes}."
        challenge = f'Bearer error="insufficient_scope", scope="{scope}"'
        raise HTTPException(403, sentence, {"WWW-Authenticate": challenge})
