"""Files that cannot be read as what they claim to be."""

from datetime import date
from pathlib import Path

import pytest

from service.files import SEED
from service.importers.seed import SeedBroken, read_seed
from tests.importers.broken_seed import SeedCopy

P4D = {"provider": "aws", "name": "p4d.24xlarge"}
PRICE = {**P4D, "region": "us-east-1", "observed_on": "2022-08-23"}
RUN = {"id": "train-gpu-hours-mpt-7b-a100-sxm4-40gb-440-1"}
ALL_WHERE_EMPTY = {
    "family", "from_region", "gpu", "machine", "market", "name", "operating_system", "provider", "region", "scope",
    "service",
}  # fmt: skip
"""Parts of keys that are empty where a row speaks of all."""
TIER = {"provider": "coreweave", "destination": "internet"}
GP3 = {"region": "us-east-1", "storage_class": "gp3"}
RATE = {"currency": "CNY", "on": "2013-01-02"}


@pytest.fixture
def seed(tmp_path: Path) -> SeedCopy:
    return SeedCopy(tmp_path / "seed")


def test_cells_become_what_their_columns_say() -> None:
    tables = read_seed(SEED).tables
    p4d = next(kind for kind in tables["instance_type"] if kind["name"] == "p4d.24xlarge")
    assert (p4d["gpu_count"], p4d["vcpus"], p4d["rdma"], p4d["twin_of"]) == (8, 96.0, True, None)
    part = next(gpu for gpu in tables["gpu"] if gpu["id"] == "l4-24gb-1of8")
    assert (part["fraction"], part["partition_of"]) == (0.125, "l4-24gb")
    yuan = next(rate for rate in tables["exchange_rate"] if rate["currency"] == "CNY")
    assert (yuan["on"], yuan["usd_per_unit_nanos"]) == (date(2013, 1, 2), 160_435_000)
    seen = next(each for each in tables["measurement"] if each["id"] == "alexnet-g2-2xlarge-2017")
    assert (seen["machine"], seen["usd_per_hour_micros"]) == ("aws/g2.2xlarge", 650_000)
    run = next(each for each in tables["published_run"] if each["id"] == "train-gpu-hours-mpt-7b-a100-sxm4-40gb-440-1")
    assert (run["gpu_count"], run["nodes"], run["tokens"], run["unit"]) == (8, 55, 1e12, "gpu_hours")
    volume = next(price for price in tables["storage_price"] if price["storage_class"] == "gp3")
    assert (volume["micros_per_gib_month"], volume["included"]) == (95_200, False)
    local = next(price for price in tables["storage_price"] if price["storage_class"] == "instance-store")
    assert (local["micros_per_gib_month"], local["included"]) == (None, True)
    free = next(tier for tier in tables["transfer_price"] if tier["provider"] == "coreweave")
    assert (free["tier_to_gb"], free["micros_per_gb"]) == (None, 0)


def test_no_number_is_made_up_for_an_empty_cell() -> None:
    for records in read_seed(SEED).tables.values():
        for record in records:
            assert not [name for name, value in record.items() if value == "" and name not in ALL_WHERE_EMPTY]


def test_the_same_files_have_the_same_hash(seed: SeedCopy) -> None:
    assert read_seed(SEED).content_hash == read_seed(seed.folder).content_hash
    seed.change("instance_types", P4D, note="changed")
    assert read_seed(SEED).content_hash != read_seed(seed.folder).content_hash


CELLS = {
    "no number": ("instance_types", P4D, {"vcpus": "many"}, "'many' cannot be read as vcpus."),
    "no finite number": ("instance_types", P4D, {"vcpus": "nan"}, "'nan' cannot be read as vcpus."),
    "no whole number": ("instance_types", P4D, {"gpu_count": "7.5"}, "'7.5' cannot be read as gpu_count."),
    "empty count": ("instance_types", P4D, {"gpu_count": ""}, "'' cannot be read as gpu_count."),
    "no flag": ("instance_types", P4D, {"rdma": "yes"}, "'yes' cannot be read as rdma."),
    "no day": ("lifecycle", {"family": "p4d", "provider": "aws"}, {"starts_on": "2020-11-31"}, "starts_on."),
    "no rate": ("exchange_rates", RATE, {"usd_per_unit": "x"}, "'x' cannot be read as usd_per_unit_nanos."),
    "no price of a tier": ("transfer_prices", TIER, {"usd_per_gb": ""}, "'' cannot be read as micros_per_gb."),
    "no price of storage": (
        "storage_prices",
        GP3,
        {"usd_per_gib_month": "x"},
        "cannot be read as micros_per_gib_month.",
    ),
    "no price": ("prices", PRICE, {"per_hour": "cheap"}, "is not an observation of a price"),
    "no finite price": ("prices", PRICE, {"per_hour": "NaN"}, "NaN is not a price."),
    "no day of a price": ("prices", PRICE, {"observed_on": "soon"}, "is not an observation of a price"),
    "no amount": ("published_runs", RUN, {"train_tokens_b": "many"}, "'many' cannot be read as tokens."),
    "no length": ("published_runs", RUN, {"seq_len": "2048.5"}, "'2048.5' cannot be read as sequence_length."),
    "no kind of a price": ("prices", PRICE, {"kind": "rumour"}, "'rumour' cannot be read as kind."),
}


@pytest.mark.parametrize("wrong", CELLS)
def test_a_cell_that_cannot_be_read_is_reported_with_its_file_and_line(seed: SeedCopy, wrong: str) -> None:
    file, where, cells, words = CELLS[wrong]
    seed.change(file, where, **cells)
    with pytest.raises(SeedBroken) as answer:
        read_seed(seed.folder)
    assert words in str(answer.value)
    assert str(answer.value).startswith(f"{file}.csv line ")


def test_a_file_that_is_missing_is_reported(seed: SeedCopy) -> None:
    (seed.folder / "gpus.csv").unlink()
    with pytest.raises(SeedBroken, match=r"gpus\.csv cannot be read: .*No such file"):
        read_seed(seed.folder)


def test_a_file_that_is_not_utf8_is_reported(seed: SeedCopy) -> None:
    (seed.folder / "gpus.csv").write_bytes(b"id,name\na,\xff\n")
    with pytest.raises(SeedBroken, match=r"gpus\.csv cannot be read: .*utf-8"):
        read_seed(seed.folder)


def test_a_line_with_a_cell_too_many_is_reported(seed: SeedCopy) -> None:
    seed.write_text("gpu_aliases", "alias,gpu\na100,a100-sxm4-40gb,surplus\n")
    with pytest.raises(SeedBroken, match=r"^gpu_aliases\.csv line 2 has 3 cells, and its header 2\.$"):
        read_seed(seed.folder)


def test_a_column_that_the_table_does_not_have_is_reported(seed: SeedCopy) -> None:
    seed.write_text("gpu_aliases", "alias,gpu,colour\na100,a100-sxm4-40gb,green\n")
    with pytest.raises(SeedBroken, match=r"do not have the same columns: colour\.$"):
        read_seed(seed.folder)


def test_a_column_that_no_run_has_is_reported(seed: SeedCopy) -> None:
    seed.write_text("published_runs", "id,colour\na,green\n")
    with pytest.raises(SeedBroken, match=r"do not have the same columns: colour, "):
        read_seed(seed.folder)


def test_a_column_that_is_missing_is_reported(seed: SeedCopy) -> None:
    seed.write_text("exchange_rates", "currency,on,source\nCNY,2013-01-02,ecb-reference-rates\n")
    with pytest.raises(SeedBroken, match=r"exchange_rates\.csv line 2: '' cannot be read as usd_per_unit_nanos\."):
        read_seed(seed.folder)
