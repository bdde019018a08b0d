"""Where the made-up facts of the tests come from, and the day on which they are true."""

from dataclasses import replace
from datetime import date
from typing import Any

from service.domain.catalog.reference import Source

DAY = date(2024, 6, 1)
SOURCE = "a-test"


def source(id: str = SOURCE, **given: Any) -> Source:  # noqa: A002 - the field is called id
    plain = Source(id=id, title="A test", version=None, published_on=None, retrieved_on=DAY, licence=None, note=None)
    return replace(plain, **given)
