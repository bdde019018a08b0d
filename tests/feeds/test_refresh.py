"""Feeds are fetched from a real server; whatever goes wrong there, the last good prices stay."""

import gzip
import json
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler
from io import BytesIO
from pathlib import Path

import pytest
from sqlalchemy import Engine, select, text

from service.db.engine import connect
from service.db.feeds.read_feeds import FeedStatus, feed_statuses
from service.db.tables import DOCUMENT, OFFER, PRICE
from service.feeds.fetch import Fetcher, FetchFailed, FetchLimits
from service.feeds.fetching import utc_now
from service.feeds.folder import documents_in
from service.feeds.importing import Imported, import_documents
from service.feeds.listing import DocumentRefused
from service.feeds.refresh import Refresher, Upstream, fetch_to, refresh
from service.feeds.registry import SOURCES
from tests.feeds.feed_server import FeedServer, Reply, reply

QUICK = FetchLimits(bytes=100_000, read_seconds=2, total_seconds=1, tries=3, first_wait_seconds=0, last_wait_seconds=0)
SPOT = "/spot.json"


def spot_file(dollars: str) -> bytes:
    column = [{"name": "linux", "prices": {"USD": dollars}}]
    region = {"region": "us-east", "instanceTypes": [{"sizes": [{"size": "g5.xlarge", "valueColumns": column}]}]}
    return json.dumps({"config": {"rate": "perhr", "regions": [region]}}).encode()


GOOD = reply(200, spot_file("0.5"), ETag='"one"')


def status_of(engine: Engine, feed: str = "aws-spot") -> FeedStatus:
    return next(each for each in feed_statuses(engine) if each.feed.id == feed)


def upstream(feeds: FeedServer, feed: str = "aws-spot") -> Upstream:
    return Upstream(urls={feed: feeds.url}, limits=QUICK)


def refreshed(engine: Engine, feeds: FeedServer, feed: str = "aws-spot") -> Imported:
    (imported,) = refresh(engine, status_of(engine, feed).feed, upstream(feeds, feed))
    return imported


def spot_price(engine: Engine) -> int | None:
    """The spot price of the feed in force, in microdollars."""
    query = select(PRICE.c.per_hour_micros).join(OFFER)
    with engine.connect() as connection:
        return connection.execute(query.where(PRICE.c.source == "feed-aws-spot", PRICE.c.valid_to.is_(None))).scalar()


def test_a_feed_is_fetched_parsed_and_priced(engine: Engine, feeds: FeedServer) -> None:
    feeds.replies[SPOT] = [GOOD]
    assert refreshed(engine, feeds).state == "done"
    assert spot_price(engine) == 500_000
    assert "instance-selector" in feeds.requests[0][1]["User-Agent"]
    status = status_of(engine)
    assert (status.last_state, status.kept, status.problem) == ("done", 1, None)


def test_an_unchanged_document_is_not_sent_again_and_renews_its_prices(engine: Engine, feeds: FeedServer) -> None:
    feeds.replies[SPOT] = [GOOD, reply(304)]
    refreshed(engine, feeds)
    with engine.begin() as connection:
        connection.execute(text("UPDATE document SET fetched_at = '2026-01-01 00:00:00' WHERE feed = 'aws-spot'"))
    assert refreshed(engine, feeds).state == "unchanged"
    assert feeds.requests[1][1]["If-None-Match"] == '"one"'
    with engine.connect() as connection:
        observed = connection.execute(select(PRICE.c.observed_on).where(PRICE.c.source == "feed-aws-spot")).scalars()
        assert utc_now().date() in observed.all()
        assert len(connection.execute(select(DOCUMENT.c.id).where(DOCUMENT.c.feed == "aws-spot")).all()) == 2


def unless_known(body: bytes, etag: str) -> Reply:
    """An answer with a body, or with status 304 to a client that has it."""

    def send(handler: BaseHTTPRequestHandler) -> None:
        known = handler.headers["If-None-Match"] == etag
        (reply(304) if known else reply(200, body, ETag=etag))(handler)

    return send


def test_a_change_of_the_first_of_two_documents_is_read_while_the_last_one_stays(
    engine: Engine, feeds: FeedServer
) -> None:
    flavor = {"name": "n3-H100x2", "region_name": "NORWAY-1", "cpu": 60, "ram": 360, "gpu": "H100", "gpu_count": 2}
    flavors = json.dumps({"data": [{"flavors": [flavor]}]}).encode()
    books = [json.dumps([{"name": "H100", "original_value": dollars}]).encode() for dollars in ("2.5", "2.6")]
    feeds.replies["/v1/pricebook"] = [unless_known(book, f'"{number}"') for number, book in enumerate(books)]
    feeds.replies["/v1/core/flavors"] = [unless_known(flavors, '"same"')]
    assert refreshed(engine, feeds, "hyperstack").state == "done"
    changed = refreshed(engine, feeds, "hyperstack")
    assert changed.state == "done"
    assert [str(listing.per_hour) for listing, _ in changed.outcomes] == ["5.20"]


def test_a_zip_that_names_its_version_is_not_sent_again(engine: Engine, feeds: FeedServer) -> None:
    table = (
        "instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot\n"
        "g5.xlarge,us-east-1,1.006,4,16,1,A10G,24,False\n"
    )
    archive = BytesIO()
    with zipfile.ZipFile(archive, "w") as catalog:
        catalog.writestr("aws.csv", table)
    today = utc_now().strftime("%Y%m%d")
    feeds.replies["/v3/aws/version"] = [reply(200, f"{today}-1".encode())]
    feeds.replies[f"/v3/aws/{today}-1/catalog.zip"] = [unless_known(archive.getvalue(), '"one"')]
    feed, source = status_of(engine, "gpuhunt").feed, upstream(feeds, "gpuhunt")
    assert [next(refresh(engine, feed, source)).state for _ in range(2)] == ["done", "unchanged"]


def test_the_same_content_again_is_captured_at_its_last_fetch(engine: Engine, feeds: FeedServer) -> None:
    prices = b"{a2-highgpu-1g: {cpu: 12, ram: 85, cost: {us-central1: {hour: 3.67}}}}"
    feeds.replies["/pricing.yml"] = [reply(200, b"about: {timestamp: 1704070800}\ncompute: {instance: %s}" % prices)]
    captured = []
    for _ in range(2):
        refreshed(engine, feeds, "cyclenerd")
        captured.append(status_of(engine, "cyclenerd").captured_at)
    assert captured[0] == datetime.fromtimestamp(1704070800, UTC)
    assert captured[1] is not None
    assert captured[1].date() == utc_now().date()


def test_a_server_that_calls_a_document_unchanged_that_was_never_sent_has_failed(
    engine: Engine, feeds: FeedServer
) -> None:
    feeds.replies[SPOT] = [reply(304)]
    imported = refreshed(engine, feeds)
    assert (imported.state, imported.problem) == ("failed", f"{feeds.url}{SPOT} answers with status 304.")


def cut(handler: BaseHTTPRequestHandler) -> None:
    reply(200, spot_file("9")[:40], Content_Length="4000")(handler)
    handler.close_connection = True


def trickle(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    for _ in range(40):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.1)


def endless(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    for _ in range(2_000):
        handler.wfile.write(b" " * 1_000_000)


FAULTS: dict[str, tuple[Reply, str]] = {
    "server error": (reply(503), "failed"),
    "not there": (reply(404), "failed"),
    "too many requests": (reply(429, Retry_After="0"), "failed"),
    "cut body": (cut, "failed"),
    "slow trickle": (trickle, "failed"),
    "body without end": (endless, "refused"),
    "wrong gzip": (reply(200, b"not gzip", Content_Encoding="gzip"), "failed"),
    "broken gzip without a header": (reply(200, gzip.compress(spot_file("9"))[:-9]), "refused"),
    "page of a proxy": (reply(200, b"<!DOCTYPE html><html>Sign in</html>"), "refused"),
    "other prices": (reply(200, b'{"config": {"rate": "permonth", "regions": []}}'), "refused"),
    "private address": (reply(302, Location="https://127.0.0.1/spot.json"), "failed"),
    "metadata of the cloud": (reply(302, Location="http://169.254.169.254/latest"), "failed"),
    "half of the price": (reply(200, spot_file("0.01")), "done"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_last_good_price_survives_every_fault(fault: str, engine: Engine, feeds: FeedServer) -> None:
    answer, state = FAULTS[fault]
    feeds.replies[SPOT] = [GOOD, answer]
    refreshed(engine, feeds)
    imported = refreshed(engine, feeds)
    assert imported.state == state
    assert spot_price(engine) == 500_000
    assert status_of(engine).last_state == state
    if state != "done":
        assert (status_of(engine).problem or "").startswith("aws-spot: ")


def test_a_redirect_to_a_private_address_is_refused_for_that_reason(engine: Engine, feeds: FeedServer) -> None:
    feeds.replies[SPOT] = [reply(302, Location="https://127.0.0.1/spot.json")]
    assert "is not a public address" in (refreshed(engine, feeds).problem or "")


def test_a_server_that_recovers_is_asked_again(engine: Engine, feeds: FeedServer) -> None:
    feeds.replies[SPOT] = [reply(503), reply(429, Retry_After="0"), GOOD]
    assert refreshed(engine, feeds).state == "done"
    assert len(feeds.requests) == 3


def test_retry_after_is_waited_for(feeds: FeedServer) -> None:
    feeds.replies["/x"] = [reply(429, Retry_After="65"), reply(200, b"ok")]
    waits: list[float] = []
    assert Fetcher(feeds.url, limits=QUICK, sleep=waits.append)("/x") == b"ok"
    assert waits == [65]


def test_plain_http_is_fetched_only_from_a_mirror(feeds: FeedServer) -> None:
    feeds.replies["/x"] = [reply(200, b"ok")]
    with pytest.raises(FetchFailed, match="not HTTPS"):
        Fetcher("https://feed.example", limits=QUICK)("/x", server=feeds.url)
    assert Fetcher(feeds.url, is_mirror=True, limits=QUICK)("/x", server="https://feed.example") == b"ok"


@pytest.mark.parametrize("path", ["@127.0.0.1/x", ".example.org/x", "https://127.0.0.1/x", ""])
def test_a_document_cannot_name_another_server(path: str) -> None:
    with pytest.raises(FetchFailed, match="is not a path"):
        Fetcher("https://feed.example", limits=QUICK)(path)


def test_a_mirror_of_oracle_has_the_documents_of_both_of_its_servers(engine: Engine, feeds: FeedServer) -> None:
    price = {"currencyCode": "USD", "prices": [{"model": "PAY_AS_YOU_GO", "value": 10}]}
    prices = {"items": [{"partNumber": "B1", "metricName": "GPU Per Hour", "currencyCodeLocalizations": [price]}]}
    shape = {"name": "BM.GPU.X.4", "gpuQty": 4, "products": [{"type": {"value": "ocpu"}, "partNumber": "B1"}]}
    feeds.replies["/pls/apex/cetools/api/v1/products/"] = [reply(200, json.dumps(prices).encode())]
    shapes = reply(200, json.dumps({"items": [shape]}).encode())
    feeds.replies["/a/ocom/docs/cloudestimator2/data/shapes.json"] = [shapes]
    imported = refreshed(engine, feeds, "oci")
    assert [(listing.name, str(listing.per_hour)) for listing, _ in imported.outcomes] == [("BM.GPU.X.4", "40.0")]


def test_the_index_of_aws_names_a_path_whatever_server_stands_before_it(engine: Engine, feeds: FeedServer) -> None:
    index = {"regions": {"us-east-1": {"currentVersionUrl": "https://10.0.0.1/offers/20261120/us-east-1/index.json"}}}
    feeds.replies["/offers/v1.0/aws/AmazonEC2/current/region_index.json"] = [reply(200, json.dumps(index).encode())]
    next(refresh(engine, status_of(engine, "aws-bulk").feed, upstream(feeds, "aws-bulk")))
    assert [path for path, _ in feeds.requests][1:] == ["/offers/20261120/us-east-1/index.csv"]


def test_pages_that_lead_back_are_refused(engine: Engine, feeds: FeedServer) -> None:
    page = {
        "BillingCurrency": "USD",
        "Items": [],
        "NextPageLink": "https://prices.example:443/api/retail/prices?page=2",
    }
    feeds.replies["/api/retail/prices"] = [reply(200, json.dumps(page).encode())]
    imported = refreshed(engine, feeds, "azure")
    assert (imported.state, len(feeds.requests)) == ("refused", 2)
    assert "do not end" in (imported.problem or "")


def test_a_feed_without_an_answer_is_left_after_two_parts(engine: Engine, feeds: FeedServer) -> None:
    imports = list(refresh(engine, status_of(engine, "gpuhunt").feed, upstream(feeds, "gpuhunt")))
    assert [each.state for each in imports] == ["failed", "failed"]


def test_a_folder_carries_documents_to_a_machine_without_internet(
    engine: Engine, feeds: FeedServer, tmp_path: Path
) -> None:
    feeds.replies[SPOT] = [GOOD]
    feed = status_of(engine).feed
    assert list(fetch_to(tmp_path, [feed], upstream(feeds))) == [f"aws-spot: {len(spot_file('0.5'))} bytes"]
    (file,) = documents_in(tmp_path, utc_now())
    assert file.source
    assert file.documents
    assert import_documents(engine, file.source, file.documents, utc_now()).state == "done"
    assert spot_price(engine) == 500_000
    document = next(path for path in (tmp_path / "aws-spot").iterdir())
    document.write_bytes(document.read_bytes().replace(b"0.5", b"0.4"))
    (file,) = documents_in(tmp_path, utc_now())
    assert "SHA-256 differs" in (file.problem or "")


def test_a_document_of_another_shape_does_not_keep_the_others_from_a_folder(
    engine: Engine, feeds: FeedServer, tmp_path: Path
) -> None:
    feeds.replies[SPOT] = [GOOD]
    feeds.replies["/v2/sizes"] = [reply(200, b'{"sizes": [], "links": "none"}')]
    wanted = [status_of(engine, feed).feed for feed in ("digitalocean", "aws-spot")]
    lines = list(fetch_to(tmp_path, wanted, Upstream(urls={feed.id: feeds.url for feed in wanted}, limits=QUICK)))
    assert lines == [
        "digitalocean: failed. The document does not have the structure of its feed (AttributeError).",
        f"aws-spot: {len(spot_file('0.5'))} bytes",
    ]
    assert [file.name for file in documents_in(tmp_path, utc_now())] == ["aws-spot"]


def test_a_folder_that_is_filled_in_part_has_a_manifest(engine: Engine, feeds: FeedServer, tmp_path: Path) -> None:
    feeds.replies[SPOT] = [GOOD]
    feed = status_of(engine).feed
    with pytest.raises(KeyError):
        list(fetch_to(tmp_path, [feed, replace(feed, id="no such feed")], upstream(feeds)))
    assert [file.name for file in documents_in(tmp_path, utc_now())] == ["aws-spot"]


def test_one_process_refreshes_at_a_time(tables_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.feeds.refresh.LEAD_SECONDS", 0.05)
    engines = [connect(tables_url) for _ in range(2)]
    leads = [0, 0]
    first, second = (
        Refresher(engine, Upstream(off=SOURCES), partial(leads.__setitem__, index))
        for index, engine in enumerate(engines)
    )
    first.start()
    wait_until(lambda: leads == [1, 0])
    second.start()
    time.sleep(1)
    assert leads == [1, 0]
    first.stop()
    wait_until(lambda: leads == [0, 1])
    second.stop()
    assert leads == [0, 0]
    for engine in engines:
        engine.dispose()


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def read_in_the_background(engine: Engine, feeds: FeedServer) -> None:
    """Reads the spot prices of AWS alone, until one is stored."""
    others = {each.feed.id for each in feed_statuses(engine)} - {"aws-spot"}
    refresher = Refresher(engine, Upstream(off=others, urls={"aws-spot": feeds.url}, limits=QUICK))
    refresher.start()
    wait_until(lambda: spot_price(engine) is not None)
    refresher.stop()


def test_the_background_thread_reads_what_is_due_and_stops(engine: Engine, feeds: FeedServer) -> None:
    feeds.replies[SPOT] = [GOOD]
    read_in_the_background(engine, feeds)
    assert spot_price(engine) == 500_000
    assert len(feeds.requests) == 1


def test_the_background_thread_tries_again_after_a_failure(
    engine: Engine, feeds: FeedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.db.feeds.read_feeds.FIRST_RETRY", timedelta(0))
    monkeypatch.setattr("service.feeds.refresh.LOOK_SECONDS", 0.05)
    monkeypatch.setattr("service.feeds.refresh.LEAD_SECONDS", 0.05)
    feeds.replies[SPOT] = [reply(404), GOOD]
    read_in_the_background(engine, feeds)
    assert spot_price(engine) == 500_000


def test_a_document_larger_than_the_limit_is_refused(feeds: FeedServer) -> None:
    feeds.replies["/x"] = [reply(200, b"x" * 100_001)]
    with pytest.raises(DocumentRefused, match="more than 100,000 bytes"):
        Fetcher(feeds.url, limits=QUICK)("/x")
