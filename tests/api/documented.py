"""The service whose OpenAPI document tests read: made once in each process, because its document takes seconds."""

from functools import cache

from fastapi import FastAPI

from service.app import build_app


@cache
def documented_app() -> FastAPI:
    """The service without a database. It keeps its document; a test that changes the document copies it first."""
    return build_app()
