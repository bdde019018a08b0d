"""Offers that an operator enters by hand."""

from pathlib import Path

import pytest
from sqlalchemy import select

from service.cli.main import main
from service.db.engine import connect
from service.db.tables import PRICE

HEADER = "provider,name,region,market,term,per_hour,observed_on,note\n"


@pytest.fixture
def file(seeded_copy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SELECTOR_DATABASE_URL", seeded_copy)
    return tmp_path / "offers.csv"


def own_prices(url: str) -> set[tuple[int | None, str]]:
    engine = connect(url)
    with engine.connect() as connection:
        query = select(PRICE.c.per_hour_micros, PRICE.c.observed_on).where(PRICE.c.source == "feed-own")
        prices = {(row.per_hour_micros, row.observed_on.isoformat()) for row in connection.execute(query)}
    engine.dispose()
    return prices


def test_own_offers_count_before_all_others_from_their_day_on(
    file: Path, seeded_copy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (
        "aws,p5.48xlarge,us-east-1,on_demand,,40.5,2026-10-01,our contract\n"
        "aws,p5.48xlarge,us-east-1,reserved,1y_reserved,30,2026-11-01,\n"
        "aws,p9.48xlarge,us-east-1,on_demand,,99,2026-11-01,\n"
    )
    file.write_text(HEADER + lines)
    assert main(["offers", "import", str(file)]) == 0
    assert own_prices(seeded_copy) == {(40_500_000, "2026-10-01"), (30_000_000, "2026-11-01")}
    assert "kept until the instance type is known" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("aws,p5.48xlarge,us-east-1,on_demand,,free,2026-10-01,\n", "price_unreadable"),
        ("aws,p5.48xlarge,us-east-1,hourly,,1,2026-10-01,\n", "row_unreadable"),
        ("aws,p5.48xlarge,us-east-1,reserved,forever,1,2026-10-01,\n", "row_unreadable"),
        ("aws,p5.48xlarge,,on_demand,,1,2026-10-01,\n", "region_missing"),
    ],
)
def test_lines_with_errors_are_named_with_their_reason(
    file: Path, seeded_copy: str, capsys: pytest.CaptureFixture[str], line: str, sentence: str
) -> None:
    file.write_text(HEADER + line)
    assert main(["offers", "import", str(file)]) == 1
    assert sentence in capsys.readouterr().out
    assert own_prices(seeded_copy) == set()


def test_a_file_without_days_is_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("provider,name,market,per_hour\naws,p5.48xlarge,on_demand,1\n")
    assert main(["offers", "import", str(file)]) == 1
    assert "observed_on" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("day", "sentence"),
    [
        ("20261002", "'20261002' is not written as YYYY-MM-DD"),
        ("2026-W40-5", "'2026-W40-5' is not written as YYYY-MM-DD"),
        ("9999-01-01", "has prices of 9999-01-01, which is after today"),
    ],
)
def test_a_day_in_another_form_or_in_the_future_refuses_the_file(
    file: Path, seeded_copy: str, capsys: pytest.CaptureFixture[str], day: str, sentence: str
) -> None:
    line = "aws,p5.48xlarge,us-east-1,on_demand,,40.5,{},\n"
    file.write_text(HEADER + line.format("2026-10-01") + line.format(day))
    assert main(["offers", "import", str(file)]) == 1
    assert sentence in capsys.readouterr().err
    assert own_prices(seeded_copy) == set()
