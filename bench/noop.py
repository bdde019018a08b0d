"""The no-ops to which the service is compared: frameworks that answer without doing anything."""

from importlib import import_module
from typing import Annotated

from fastapi import FastAPI
from fastapi import Response as Answer
from pydantic import BaseModel, ConfigDict, Field
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

NOTHING = b'{"ok":true}'
CANNED = b'{"choices":[%b]}' % b",".join([b'{"rank":1,"instance":"p4d.24xlarge","usd_per_hour":32.77}'] * 90)
"""A ready encoded answer of about 5 KB."""

DEPENDENCIES = (
    "alembic.command",
    "fastapi_swagger",
    "numpy",
    "packaging.version",
    "psycopg",
    "pydantic_settings",
    "sqlalchemy.dialects.sqlite",
    "starlette.staticfiles",
)
"""Libraries that the service imports; the memory of a catalog is counted on top of these."""


class Part(BaseModel):
    """A part of a body, which refuses unknown fields."""

    model_config = ConfigDict(extra="forbid")


class Work(Part):
    """The workload."""

    task: str
    precision: Annotated[list[str], Field(max_length=100)] = []
    fault_tolerant: bool = False


class Limits(Part):
    """The constraints."""

    gpu: Annotated[list[str], Field(max_length=100)] = []
    min_memory_gib: Annotated[float | None, Field(ge=0)] = None
    max_usd_per_hour: Annotated[float | None, Field(ge=0)] = None


class Body(Part):
    """The fields that the requests of the benchmark have."""

    workload: Work
    constraints: Limits = Limits()
    objective: str = "cheapest"
    limit: Annotated[int, Field(ge=1, le=100)] = 5


def fastapi() -> FastAPI:
    """Bare FastAPI: `GET /` and `POST /` with a validated body."""
    app = FastAPI()

    @app.get("/")
    async def get() -> Answer:
        return Answer(NOTHING, media_type="application/json")

    @app.post("/")
    async def post(_body: Body) -> Answer:
        return Answer(CANNED, media_type="application/json")

    return app


def fastapi_with_dependencies() -> FastAPI:
    """Bare FastAPI in a process that has imported what the service imports."""
    for name in DEPENDENCIES:
        import_module(name)
    return fastapi()


def starlette() -> Starlette:
    async def get(_request: Request) -> Response:
        return Response(NOTHING, media_type="application/json")

    return Starlette(routes=[Route("/", get)])
