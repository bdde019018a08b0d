"""The facts for the check of a feed are those of the catalog, and are read without its prices."""

from pathlib import Path
from typing import Any

from sqlalchemy import event

from service.db.engine import connect
from service.db.feeds.read_facts import read_facts
from service.db.read_history import read_history
from service.domain.catalog.offer import UNKNOWN


def test_facts_are_those_of_the_catalog_and_no_price_is_read(seeded_file: Path) -> None:
    engine = connect(f"sqlite:///{seeded_file}")
    history = read_history(engine)
    statements: list[str] = []

    @event.listens_for(engine, "before_cursor_execute")
    def _note(_connection: Any, _cursor: Any, sql: str, *_rest: Any) -> None:
        statements.append(sql)

    facts = read_facts(engine)
    engine.dispose()
    assert statements
    assert not [sql for sql in statements if "FROM price" in sql or "measurement" in sql]
    types, offers, reference = history.instance_types, history.offers, history.reference
    assert facts.instance_types == {(type_.provider, type_.name): type_ for type_ in types}
    assert (facts.providers, facts.gpus) == (reference.providers, reference.gpus)
    assert facts.sold == {
        (types[index].provider, types[index].name, offers.places[place])
        for index, place in zip(offers.instance_type.tolist(), offers.region.tolist(), strict=True)
        if place != UNKNOWN
    }
    assert facts.region_ids["aws"]["US East (N. Virginia)"] == facts.region_ids["aws"]["us-east-1"] == "us-east-1"
    assert facts.gpu_spellings["h100"]
