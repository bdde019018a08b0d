"""Builds the application: settings, database, routes and middleware."""

import sys
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from datetime import date
from importlib.resources import files
from itertools import chain

from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse
from fastapi.routing import APIRoute
from starlette.staticfiles import StaticFiles

from service.api.access.callers import Callers
from service.api.access.edge import Edge
from service.api.access.rate_limits import RateLimits
from service.api.catalog import compare, feeds, gpus, health, instances, measurements, models, prices, vocabulary
from service.api.catalog import measurements_post as measurements_sent
from service.api.catalog import status as catalog
from service.api.estimate import batch as estimate_batch
from service.api.estimate import estimate, price_changes
from service.api.http.batch import Batches, BatchLimits
from service.api.http.document import complete_document
from service.api.http.observe import LEADS
from service.api.http.problems import answer_problems
from service.api.http.protect import Hosts, page_policy
from service.api.recommend import codes, recommend
from service.db.engine import connect
from service.db.live_catalog import LiveCatalog, today
from service.db.migrate import require_usable
from service.domain.catalog.names import resolve
from service.domain.errors import UnknownName
from service.feeds.refresh import Refresher, Upstream
from service.feeds.registry import SOURCES
from service.settings import PREFIX, Settings, SettingsWrong, read_settings
from service.version import VERSION

# In the order of the documentation.
ROUTERS = (
    recommend.router, instances.list_router, instances.router, recommend.batch_router, estimate.router,
    estimate_batch.router, codes.router, gpus.router, models.router, price_changes.router, prices.router,
    compare.router, measurements.router, measurements_sent.router, vocabulary.router, catalog.router, feeds.router,
    health.router,
)  # fmt: skip

DESCRIPTION = """
Which machine should run this deep-learning job, and what will it cost?

`POST /recommend` ranks machines for a workload and says why the others were rejected. `POST /estimate` returns the
memory, time and cost of a workload on one machine. `GET /instances` and the other lists show the catalog on any day
(`as_of`): instance types, GPUs, precisions and prices of many providers, each figure with its source.

Field names contain the units. An unknown figure is `null`, never 0. Errors are RFC 9457 problems with the field and
near names.
"""


def create_app(settings: Settings | None = None, *, today: Callable[[], date] = today) -> FastAPI:
    """Returns the service on the database of the settings. Raises `DatabaseUnusable` if that cannot be used."""
    settings = settings or read_settings()
    engine = connect(settings.database_url)
    require_usable(engine)
    live = LiveCatalog(engine, today=today, poll_seconds=settings.poll_seconds)

    refresher = Refresher(engine, upstream_of(settings), LEADS.set)

    @asynccontextmanager
    async def watching(_app: FastAPI) -> AsyncIterator[None]:
        # A thread that answers a batch takes turns with the event loop more often than by default, every 5 ms. In the
        # benchmark, the p99 of GET /healthz during a batch is then 2 to 4 times its value alone, not 5 times.
        sys.setswitchinterval(0.0005)
        live.start_watching()
        if settings.feeds != "off":
            refresher.start()
        yield
        refresher.stop()
        live.stop_watching()
        engine.dispose()
        await run_in_threadpool(stop_tracing)

    app = build_app(lifespan=watching)
    app.state.live_catalog = live
    app.state.measurements_per_key = settings.measurements_per_key
    app.state.batches = Batches(
        BatchLimits(settings.batches_at_once, settings.batch_cpu_seconds, settings.batch_answer_bytes)
    )
    rate_limits = RateLimits(
        per_key=settings.requests_per_minute_and_key,
        per_address=settings.requests_per_minute_and_address,
        storage_url=settings.rate_limit_storage_url,
    )
    app.add_middleware(
        Edge,
        hosts=Hosts([host.strip() for host in settings.allowed_hosts.split(",") if host.strip()]),
        callers=Callers(keys=live.keys, limits=rate_limits, open_reads=settings.open_reads),
        max_body_bytes=settings.max_body_bytes,
        access_log=settings.access_log,
    )
    # The middleware that is added last runs first, so a trace covers the whole request.
    stop_tracing = add_tracing(app, settings.trace_url) if settings.trace_url else lambda: None
    return app


def add_tracing(app: FastAPI, url: str) -> Callable[[], None]:
    """Sends a trace of each request to a collector. Returns a function that sends the last ones."""
    from service.server.tracing import Trace, provider_for  # the packages that it needs are an extra

    provider = provider_for(url)
    app.add_middleware(Trace, provider=provider)
    return provider.shutdown


def upstream_of(settings: Settings) -> Upstream:
    """Returns which feeds are on, their mirrors, and their keys. Raises `SettingsWrong` for the name of no feed."""
    named = {name.strip() for name in settings.feeds.split(",")}
    all_or_none = named & {"on", "off"}
    # The name of a variable has no dashes.
    keys = {feed.replace("_", "-"): key.get_secret_value() for feed, key in settings.feed_keys.items()}
    urls = {feed.replace("_", "-"): url for feed, url in settings.feed_urls.items()}
    with_key = {id_ for id_, feed in SOURCES.items() if feed.key_header or feed.by_aws_account}
    _require_feeds("feeds", () if all_or_none else named, SOURCES)
    _require_feeds("feed_urls", urls, SOURCES)
    _require_feeds("feed_keys", keys, with_key)
    return Upstream(() if all_or_none else SOURCES.keys() - named, urls, keys=keys)


def _require_feeds(setting: str, names: Collection[str], known: Collection[str]) -> None:
    try:
        resolve("feed", names, known, setting)
    except UnknownName as error:
        raise SettingsWrong(f"{PREFIX}{setting.upper()}: {error.sentence}") from None


def build_app(**options: object) -> FastAPI:
    """Returns routes, documents and problem answers without a catalog, which is enough for the OpenAPI document."""
    app = FastAPI(
        title="Instance Selector",
        version=VERSION,
        description=DESCRIPTION.strip(),
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        # The service counts, logs and traces requests itself. Asking FastAPI's telemetry takes a twentieth of a no-op.
        telemetry={"tracing": False, "metrics": False, "logs": False},
        # A redirect would hide a wrong address, and some clients drop the body of a POST on it.
        redirect_slashes=False,
        **options,  # type: ignore[arg-type]
    )
    # Each `include_router` would match the address of a request twice: up to 45 µs, as long as a bare FastAPI takes.
    for route in chain.from_iterable(router.routes for router in ROUTERS):
        assert isinstance(route, APIRoute)
        route.operation_id = route.name
        app.router.routes.append(route)
    _serve_docs(app)
    answer_problems(app)
    complete_document(app)
    return app


def _serve_docs(app: FastAPI) -> None:
    """Serves the OpenAPI document, and Swagger UI from installed files, so that it loads without the internet."""

    @app.get("/openapi.json", include_in_schema=False)
    def document() -> JSONResponse:  # in a thread: the first time takes half a second
        return JSONResponse(app.openapi())

    app.mount("/docs/files", StaticFiles(directory=str(files("fastapi_swagger") / "resources")), name="docs_files")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        page = get_swagger_ui_html(
            openapi_url="/openapi.json",
            title="Instance Selector",
            swagger_js_url="/docs/files/swagger-ui-bundle.js",
            swagger_css_url="/docs/files/swagger-ui.css",
            swagger_favicon_url="/docs/files/favicon-32x32.png",
        )
        page.headers["Content-Security-Policy"] = page_policy(bytes(page.body).decode())
        return page

    @app.get("/", include_in_schema=False)
    async def home() -> RedirectResponse:
        return RedirectResponse("/docs")
