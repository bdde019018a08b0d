"""A capture is dated to the publication of its content, and follows what its part published before."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine, select

from service.db.feeds.documents import Origin
from service.db.feeds.write_capture import confirm_capture
from service.db.tables import DOCUMENT, OFFER, PRICE
from service.feeds.folder import documents_in
from service.feeds.importing import Documents, import_documents
from service.feeds.registry import SOURCES
from tests.builders.captures import feed_row, with_feeds

NOW = datetime(2026, 11, 27, tzinfo=UTC)


@pytest.fixture
def engine(sqlite_tables: str) -> Iterator[Engine]:
    """A database with a p4d.24xlarge without prices, and the feeds of these tests."""
    engine = with_feeds(
        sqlite_tables, feed_row("gpuhunt"), feed_row("aws-on-demand"), written_at=datetime(2026, 11, 1, tzinfo=UTC)
    )
    yield engine
    engine.dispose()


def at(day: int, hour: int, minute: int = 0) -> datetime:
    """An instant of November 2026."""
    return datetime(2026, 11, day, hour, minute, tzinfo=UTC)


def gpuhunt_table(dollars: float) -> str:
    header = "instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot"
    return f"{header}\np4d.24xlarge,us-east-1,{dollars},96,1152,8,A100,24,False\n"


def read_gpuhunt(engine: Engine, version: str, dollars: float, fetched: datetime) -> None:
    read(engine, "gpuhunt", "aws", [version.encode(), gpuhunt_table(dollars).encode()], fetched)


def read_map(engine: Engine, published: str, dollars: float, fetched: datetime, *, shown: bool = False) -> None:
    entry = {"Instance Type": "p4d.24xlarge", "Operating System": "Linux", "price": str(dollars)}
    regions = {"US East (N. Virginia)": {"one": {**entry, "vCPU": "96", "Memory": "1152 GiB"}}}
    document = {"manifest": {"hawkFilePublicationDate": published}, "regions": regions}
    read(engine, "aws-on-demand", "", [json.dumps(document).encode()], fetched, shown=shown)


def read(engine: Engine, feed: str, part: str, bodies: list[bytes], fetched: datetime, *, shown: bool = False) -> None:
    origin = Origin(url="https://feed.example", fetched_at=fetched)
    documents = Documents(part=part, origin=origin, bodies=bodies, shown_when_fetched=shown)
    assert import_documents(engine, SOURCES[feed], documents, NOW).counts == {"kept": 1}


def captures(engine: Engine, feed: str) -> list[datetime]:
    query = select(DOCUMENT.c.fetched_at).where(DOCUMENT.c.feed == feed).order_by(DOCUMENT.c.id)
    with engine.connect() as connection:
        return list(connection.execute(query).scalars())


def dollars_in_force(engine: Engine) -> float:
    query = select(PRICE.c.per_hour_micros).join(OFFER).where(PRICE.c.valid_to.is_(None))
    with engine.connect() as connection:
        return float(connection.execute(query).scalar_one()) / 1e6


def test_a_version_that_is_fetched_after_midnight_follows_those_of_its_day(engine: Engine) -> None:
    read_gpuhunt(engine, "20261120-1", 30.0, at(20, 10))
    read_gpuhunt(engine, "20261120-2", 31.0, at(21, 0, 30))
    assert captures(engine, "gpuhunt") == [at(20, 10), at(20, 23, 59)]
    assert dollars_in_force(engine) == 31


def test_versions_of_a_day_may_be_read_in_any_order(engine: Engine) -> None:
    read_gpuhunt(engine, "20261120-2", 31.0, at(21, 0, 30))
    read_gpuhunt(engine, "20261120-1", 30.0, at(20, 10))
    assert captures(engine, "gpuhunt") == [at(20, 23, 59), at(20, 10)]
    assert dollars_in_force(engine) == 31


def test_files_with_versions_of_one_day_are_captures_of_their_own(engine: Engine, tmp_path: Path) -> None:
    files = []
    for number, dollars in ((1, 30), (2, 31)):
        folder = tmp_path / "gpuhunt" / "aws" / str(number)
        folder.mkdir(parents=True)
        (folder.parent / "version").write_text(f"20261120-{number}")
        (folder / "aws.csv").write_text(gpuhunt_table(dollars))
        (file,) = [each for each in documents_in(tmp_path, at(26, 9)) if f"/{number}/" in each.name]
        assert file.source
        assert file.documents
        assert import_documents(engine, file.source, file.documents, NOW).counts == {"kept": 1}
        files.append((file.source, file.documents))
    assert captures(engine, "gpuhunt") == [at(20, 23, 59), at(20, 23, 59).replace(second=1)]
    assert dollars_in_force(engine) == 31
    for source, documents in files:  # again, which changes nothing
        import_documents(engine, source, documents, NOW)
    assert len(captures(engine, "gpuhunt")) == 2
    assert dollars_in_force(engine) == 31


def test_content_is_captured_at_the_instant_of_its_publication(engine: Engine) -> None:
    read_map(engine, "2026-11-20T03:04:00Z", 30.0, at(20, 9))
    read_map(engine, "2026-11-21T22:00:00Z", 31.0, at(22, 9))
    assert captures(engine, "aws-on-demand") == [at(20, 3, 4), at(21, 22)]
    read_map(engine, "2026-11-20T03:04:00Z", 30.0, at(22, 10))  # again the first, which changes nothing
    assert captures(engine, "aws-on-demand") == [at(20, 3, 4), at(21, 22)]


def test_content_follows_a_confirmation_of_the_former_content_after_its_publication(engine: Engine) -> None:
    read_map(engine, "2026-11-20T03:00:00Z", 30.0, at(20, 9))
    confirm_capture(engine, "aws-on-demand", "", at(21, 9))
    read_map(engine, "2026-11-21T08:00:00Z", 31.0, at(22, 9))  # published before, and shown after the confirmation
    assert captures(engine, "aws-on-demand") == [at(20, 3), at(21, 9), at(21, 9).replace(second=1)]
    assert dollars_in_force(engine) == 31


def test_content_that_is_fetched_again_is_as_new_as_its_last_fetch(engine: Engine) -> None:
    read_map(engine, "2026-11-02T03:00:00Z", 30.0, at(2, 9))
    read_map(engine, "2026-11-02T03:00:00Z", 30.0, at(22, 9), shown=True)
    assert captures(engine, "aws-on-demand") == [at(2, 3), at(22, 9)]
    with engine.connect() as connection:
        assert connection.execute(select(PRICE.c.observed_on)).scalar_one() == at(22, 9).date()
