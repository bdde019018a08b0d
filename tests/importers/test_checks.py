"""A copy of the seed in which one thing is broken has a problem, whose sentence names the row."""

from pathlib import Path

import pytest

from service.cli.main import main
from service.db.engine import connect
from service.db.read_history import read_history
from service.domain.catalog.reference import RUN_UNITS
from service.files import SEED
from service.importers.checks import check_seed
from service.importers.seed import read_seed
from tests.importers.broken_seed import SeedCopy

P4D = {"provider": "aws", "name": "p4d.24xlarge"}
A100 = {"id": "a100-sxm4-40gb"}
SLICE = {"id": "l4-24gb-1of8"}
A100_FP16 = {"gpu": "a100-sxm4-40gb", "precision": "fp16"}
TRN1 = {"provider": "aws", "family": "trn1", "state": "preview"}
PRICE = {**P4D, "region": "us-east-1", "observed_on": "2022-08-23"}
ONE_FACT = {"id": "f-025"}
MPT_RUN = {"id": "train-gpu-hours-mpt-7b-a100-sxm4-40gb-440-1"}
G5_FEE = {"service": "sagemaker-training", "family": "g5.xlarge"}
EC2_RULE = {"provider": "aws", "operating_system": "linux"}
GP3 = {"region": "us-east-1", "storage_class": "gp3"}
TIER = {"from_region": "us-east-1", "destination": "internet", "tier_from_gb": "0", "valid_from": "2021-12-01"}
PRIOR = {"market": "spot", "provider": "", "gpu": ""}


@pytest.fixture
def seed(tmp_path: Path) -> SeedCopy:
    return SeedCopy(tmp_path / "seed")


def test_the_seed_is_sound() -> None:
    assert check_seed(read_seed(SEED), SEED) == []


CHANGES = {
    # constraints of the tables
    "gpu": ("instance_types", P4D, {"gpu": "a100"}, "instance_types.csv, aws/p4d.24xlarge: gpus.csv has no a100."),
    "provider": (
        "regions",
        {"provider": "autodl", "id": "beijing-a"},
        {"provider": "autodel"},
        "regions.csv, autodel/beijing-a: providers.csv has no autodel.",
    ),
    "source": ("gpus", A100, {"source": "hearsay"}, "gpus.csv, a100-sxm4-40gb: sources.csv has no hearsay."),
    "card of a part": (
        "gpus",
        SLICE,
        {"partition_of": "l5-24gb"},
        "gpus.csv, l4-24gb-1of8: gpus.csv has no l5-24gb.",
    ),
    "precision": (
        "gpu_precisions",
        A100_FP16,
        {"precision": "fp17"},
        "gpu_precisions.csv, a100-sxm4-40gb/fp17: precisions.csv has no fp17.",
    ),
    "alias": (
        "gpu_aliases",
        {"alias": "a100", "gpu": "a100-sxm4-40gb"},
        {"gpu": "a100"},
        "gpu_aliases.csv, a100/a100: gpus.csv has no a100.",
    ),
    "twin": (
        "instance_types",
        {"name": "ml.p4d.24xlarge"},
        {"twin_of": "p4e.24xlarge"},
        "instance_types.csv, aws/ml.p4d.24xlarge: instance_types.csv has no aws p4e.24xlarge.",
    ),
    "region of a CPU": (
        "region_cpus",
        {"region": "shenzhen-a"},
        {"region": "shenzhen-z"},
        "regions.csv has no autodl shenzhen-z.",
    ),
    "word": (
        "gpu_precisions",
        A100_FP16,
        {"support": "fast"},
        "a100-sxm4-40gb/fp16: no support is called 'fast'. Known: accelerated, native, reduced, none.",
    ),
    "zero for unknown": (
        "gpus",
        A100,
        {"memory_gb": "0"},
        "gpus.csv, a100-sxm4-40gb: memory_gb is 0.0; an unknown figure is an empty cell.",
    ),
    "no name": ("gpus", A100, {"name": ""}, "gpus.csv, a100-sxm4-40gb has no name."),
    # hardware
    "sparse below dense": (
        "gpu_precisions",
        A100_FP16,
        {"sparse_tflops": "311"},
        "gpu_precisions.csv, a100-sxm4-40gb/fp16: the sparse rate is below the dense one.",
    ),
    "a rate without support": (
        "gpu_precisions",
        A100_FP16,
        {"support": "none"},
        "gpu_precisions.csv, a100-sxm4-40gb/fp16 has a rate, and no support.",
    ),
    "part above its card": (
        "gpus",
        SLICE,
        {"memory_gb": "25"},
        "gpus.csv, l4-24gb-1of8 has more memory_gb than its card, l4-24gb.",
    ),
    "part below its share": (
        "gpus",
        SLICE,
        {"memory_gb": "2"},
        "gpus.csv, l4-24gb-1of8 has 2 GB, and 0.125 of its card has 3.",
    ),
    "part faster than its card": (
        "gpu_precisions",
        {"gpu": "a100-pcie-40gb-mig-1g-10gb", "precision": "fp16"},
        {"dense_tflops": "313", "sparse_tflops": "626"},
        "gpu_precisions.csv, a100-pcie-40gb-mig-1g-10gb/fp16 is faster than its card, a100-pcie-40gb.",
    ),
    "part of nothing": (
        "gpus",
        SLICE,
        {"partition_of": ""},
        "gpus.csv, l4-24gb-1of8: a part of a card has both a fraction below 1 and a card that it is a part of.",
    ),
    "usable above label": (
        "gpus",
        A100,
        {"usable_memory_gib": "41"},
        "gpus.csv, a100-sxm4-40gb has more usable_memory_gib than memory_gb.",
    ),
    "GPUs without a count": (
        "instance_types",
        P4D,
        {"gpu_count": "0"},
        "instance_types.csv, aws/p4d.24xlarge: a100-sxm4-40gb and a gpu_count of 0 do not go together.",
    ),
    "link of a single GPU": (
        "instance_types",
        {"provider": "aws", "name": "p3.2xlarge"},
        {"interconnect": "nvlink"},
        "instance_types.csv, aws/p3.2xlarge: 1 GPUs and the interconnect 'nvlink' do not go together.",
    ),
    "no link between eight": (
        "instance_types",
        P4D,
        {"interconnect": "none"},
        "instance_types.csv, aws/p4d.24xlarge: 8 GPUs and the interconnect 'none' do not go together.",
    ),
    "unlike its twin": (
        "instance_types",
        {"name": "ml.p4d.24xlarge"},
        {"gpu_count": "4"},
        "instance_types.csv, aws/ml.p4d.24xlarge does not have the GPUs of its twin, p4d.24xlarge.",
    ),
    # time
    "life backwards": (
        "lifecycle",
        TRN1,
        {"starts_on": "2022-10-11"},
        "instance_types.csv, aws/trn1.2xlarge is available on 2022-10-10, before it is preview on 2022-10-11.",
    ),
    "service's life backwards": (
        "service_lifecycle",
        {"service": "elastic-inference", "state": "closed_to_new"},
        {"starts_on": "2018-11-27"},
        "aws/elastic-inference is closed_to_new on 2018-11-27, before it is available on 2018-11-28.",
    ),
    # models
    "dimensions that cannot be": (
        "models",
        {"id": "llama-3-8b"},
        {"kv_heads": "7"},
        ": 32 heads cannot share 7 kv_heads evenly: the number of heads must be a multiple of kv_heads.",
    ),
    "an incomplete transformer": (
        "models",
        {"id": "llama-3-8b"},
        {"heads": ""},
        "is an incomplete transformer: it has layers and no heads.",
    ),
    "dimensions of another model": (
        "models",
        {"id": "llama-3-8b"},
        {"layers": "33"},
        "models.csv, llama-3-8b has 8.03026e+09 parameters, and its dimensions give 8.24837e+09.",
    ),
    "name of two models": (
        "models",
        {"id": "llama-3-8b"},
        {"aliases": "Llama 2-7B"},
        "models.csv, llama-3-8b: the name 'llama-2-7b' also means llama-2-7b.",
    ),
    "source of a model": ("models", {"id": "llama-3-8b"}, {"source": "hearsay"}, ": sources.csv has no hearsay."),
    "rule for nothing": (
        "software_support",
        {"software": "custom-cuda-kernels", "scope": "kind", "scope_value": "tpu"},
        {"scope_value": "abacus"},
        "software_support.csv, custom-cuda-kernels/kind/abacus: the catalog has no kind called 'abacus'.",
    ),
    "versions": (
        "software_support",
        {"software": "cuda", "scope": "gpu", "scope_value": "a40-48gb"},
        {"versions": "11.1 or so"},
        "software_support.csv, cuda/gpu/a40-48gb: '11.1 or so' is not a PEP 440 specifier.",
    ),
    "builds": (
        "software_support",
        {"software": "cuda", "scope": "gpu", "scope_value": "a40-48gb"},
        {"cuda": "the newest"},
        "software_support.csv, cuda/gpu/a40-48gb: 'the newest' is not a PEP 440 specifier.",
    ),
    "families": (
        "software_support",
        {"software": "cuda", "scope": "gpu", "scope_value": "a40-48gb"},
        {"families": "cnn,abacus"},
        "software_support.csv, cuda/gpu/a40-48gb: the catalog has no abacus, which families names.",
    ),
    "rule that ends first": (
        "software_support",
        {"software": "custom-cuda-kernels", "scope": "kind", "scope_value": "tpu"},
        {"valid_from": "2023-01-02", "valid_to": "2023-01-01"},
        "software_support.csv, custom-cuda-kernels/kind/tpu ends on 2023-01-01, before it begins.",
    ),
    "machine measured": (
        "measurements",
        {"id": "alexnet-g3-4xlarge-2017"},
        {"name": "g3.5xlarge"},
        "measurements.csv, alexnet-g3-4xlarge-2017: instance_types.csv has no aws/g3.5xlarge.",
    ),
    # published runs
    "model of a run": (
        "published_runs",
        MPT_RUN,
        {"model_id": "mpt-8b"},
        f"published_runs.csv, {MPT_RUN['id']}: models.csv has no mpt-8b.",
    ),
    "another model than a run names": (
        "published_runs",
        MPT_RUN,
        {"model_id": "llama-2-7b"},
        ": the model 'MPT-7B' is mpt-7b of models.csv, not llama-2-7b.",
    ),
    "card of a run": ("published_runs", MPT_RUN, {"gpu_id": "a100"}, ": gpus.csv has no a100."),
    "source of a run": ("published_runs", MPT_RUN, {"source_id": "hearsay"}, ": sources.csv has no hearsay."),
    "run of nothing": ("published_runs", MPT_RUN, {"value": "0"}, ": 0 is no figure in gpu_hours."),
    "half a fit": (
        "published_runs",
        MPT_RUN,
        {"unit": "fits(1)/oom(0)", "value": "0.5"},
        ": 0.5 is no figure in fits.",
    ),
    "unit of a run": (
        "published_runs",
        MPT_RUN,
        {"unit": "fortnights"},
        f": no unit is called 'fortnights'. Known: {', '.join(RUN_UNITS)}.",
    ),
    "quality of a run": ("published_runs", MPT_RUN, {"quality": "C"}, ": no quality is called 'C'. Known: A, B."),
    "machine of a run": (
        "published_runs",
        MPT_RUN,
        {"instance_type": "aws/p4e.24xlarge"},
        ": instance_types.csv has no aws/p4e.24xlarge.",
    ),
    "machine with another card": (
        "published_runs",
        MPT_RUN,
        {"instance_type": "aws/p4de.24xlarge"},
        ": aws/p4de.24xlarge has a100-sxm4-80gb, not a100-sxm4-40gb.",
    ),
    # prices
    "price of nothing": (
        "prices",
        PRICE,
        {"per_hour": "0"},
        ": a price must be above 0; an unknown price is an empty cell.",
    ),
    "price below nothing": (
        "prices",
        PRICE,
        {"per_hour": "-1"},
        ": a price must be above 0; an unknown price is an empty cell.",
    ),
    "no price, no reason": ("prices", PRICE, {"per_hour": ""}, " has no price, and its note does not say why."),
    "region of a price": ("prices", PRICE, {"region": "us-east-9"}, ": regions.csv has no aws us-east-9."),
    "source of a price": ("prices", PRICE, {"source": "hearsay"}, ": sources.csv has no hearsay."),
    "market": (
        "prices",
        PRICE,
        {"market": "black"},
        ": no market is called 'black'. Known: on_demand, spot, reserved.",
    ),
    "zone without a region": (
        "prices",
        {"provider": "oci", "name": "BM.GPU2.2"},
        {"zone": "AF-CASABLANCA-1-AD-1"},
        ": a price of the zone AF-CASABLANCA-1-AD-1 names its region; one that holds everywhere has no zone.",
    ),
    "term of an hour": (
        "prices",
        PRICE,
        {"term": "1y_reserved_no_upfront"},
        ": a reserved price has a term, such as '1y_reserved_no_upfront', and no other price has one.",
    ),
    "no term": (
        "prices",
        {**P4D, "term": "3y_reserved"},
        {"term": "long"},
        ": a reserved price has a term, such as '1y_reserved_no_upfront', and no other price has one.",
    ),
    "day of a price": (
        "prices",
        PRICE,
        {"dated": "unknown"},
        ": a price without a day is dated 'unknown', and no other price is.",
    ),
    "currency": (
        "prices",
        PRICE,
        {"currency": "GBP"},
        "prices.csv, aws p4d.24xlarge us-east-1 on_demand linux GBP: exchange_rates.csv has no rate for 2022-08-23.",
    ),
    # charges
    "rule of a service that does not exist": (
        "billing_rules",
        EC2_RULE,
        {"service": "ec3"},
        "billing_rules.csv, aws/ec3///linux/2017-10-02: instance_types.csv has no aws ec3.",
    ),
    "surcharge of a machine that does not exist": (
        "fees",
        G5_FEE,
        {"family": "g5.nano"},
        "g5.nano/2021-11-11: instance_types.csv has no aws g5.nano.",
    ),
    "minimum below an increment": (
        "billing_rules",
        EC2_RULE,
        {"increment_seconds": "61"},
        "billing_rules.csv, aws/ec2///linux/2017-10-02: the minimum is shorter than one increment.",
    ),
    "increment of nothing": (
        "billing_rules",
        EC2_RULE,
        {"increment_seconds": "0"},
        ": increment_seconds is 0; an unknown figure is an empty cell.",
    ),
    "storage without a price": (
        "storage_prices",
        GP3,
        {"usd_per_gib_month": ""},
        "aws/us-east-1/gp3/2020-12-01: storage without a price comes with the machine, and no other storage does.",
    ),
    "storage of two kinds": (
        "storage_prices",
        GP3,
        {"kind": "file"},
        "storage_prices.csv, aws/us-east-1/gp3/2020-12-01 is file here and block elsewhere.",
    ),
    "region of storage": (
        "storage_prices",
        GP3,
        {"region": "us-east-9"},
        "storage_prices.csv, aws/us-east-9/gp3/2020-12-01: regions.csv has no aws us-east-9.",
    ),
    "gap between tiers": (
        "transfer_prices",
        TIER,
        {"tier_to_gb": "99"},
        "transfer_prices.csv, aws/us-east-1/internet/100/2021-12-01 does not begin where the tier before it ends.",
    ),
    "no first tier": (
        "transfer_prices",
        TIER,
        {"tier_from_gb": "1"},
        "transfer_prices.csv, aws/us-east-1/internet/1/2021-12-01: no tier begins at 0.",
    ),
    "paid to send": (
        "transfer_prices",
        TIER,
        {"usd_per_gb": "-0.01"},
        "transfer_prices.csv, aws/us-east-1/internet/0/2021-12-01 has a price below 0.",
    ),
    "destination": (
        "transfer_prices",
        TIER,
        {"destination": "moon"},
        ": no destination is called 'moon'. Known: internet, region, zone.",
    ),
    "rates out of order": (
        "interruption_priors",
        PRIOR,
        {"per_hour_likely": "0.6"},
        "interruption_priors.csv, spot///2023-08-31: the rates are not in order, low, likely and high.",
    ),
    "share above all": (
        "interruption_priors",
        PRIOR,
        {"lost_together": "1.1"},
        ": lost_together is a share, from 0 to 1.",
    ),
    "never available": (
        "interruption_priors",
        PRIOR,
        {"available_share": "0"},
        ": available_share is a share, above 0 and up to 1.",
    ),
    "GPU of a prior": ("interruption_priors", PRIOR, {"gpu": "a100"}, "gpus.csv has no a100."),
    "provider of a prior": (
        "interruption_priors",
        PRIOR,
        {"provider": "unheard-of"},
        "providers.csv has no unheard-of.",
    ),
    # stated facts
    "fact": (
        "stated_facts",
        ONE_FACT,
        {"value": "97"},
        ": aws/p4d.24xlarge should have the vcpus 97; instance_types.csv has 96.0.",
    ),
    "fact of no row": (
        "stated_facts",
        ONE_FACT,
        {"key": "aws/p4f.24xlarge"},
        ": aws/p4f.24xlarge should have the vcpus 96; instance_types.csv has no such row.",
    ),
    "fact of no table": (
        "stated_facts",
        ONE_FACT,
        {"table": "machines"},
        ": aws/p4d.24xlarge should have the vcpus 96; machines.csv has no such row.",
    ),
    "fact before its price": (
        "stated_facts",
        {"id": "f-179"},
        {"as_of": "2010-01-01"},
        "/us-east-1//on_demand should have the per_hour 0.65 on 2010-01-01; prices.csv has no such row.",
    ),
    "figure behind a fact": (
        "instance_types",
        P4D,
        {"vcpus": "95"},
        "stated_facts.csv line 5: aws/p4d.24xlarge should have the vcpus 96; instance_types.csv has 95.0.",
    ),
}


@pytest.mark.parametrize("broken", CHANGES)
def test_a_broken_cell_is_reported(seed: SeedCopy, broken: str) -> None:
    file, where, cells, sentence = CHANGES[broken]
    seed.change(file, where, **cells)
    assert [problem for problem in seed.problems() if problem.endswith(sentence)]


def test_a_repeated_row_is_reported(seed: SeedCopy) -> None:
    seed.add("lifecycle", TRN1, starts_on="2021-12-01")
    assert "lifecycle.csv, aws/trn1//preview appears more than once." in seed.problems()


def test_a_type_without_a_dated_lifecycle_is_reported(seed: SeedCopy) -> None:
    seed.remove("lifecycle", provider="aws", family="p5")
    assert (
        "instance_types.csv, aws/p5.48xlarge has no dated lifecycle, neither of its own nor of its family."
        in seed.problems()
    )


def test_a_gap_in_the_exchange_rates_is_reported(seed: SeedCopy) -> None:
    seed.remove("exchange_rates", currency="EUR")
    problems = seed.problems()
    assert problems
    assert all("exchange_rates.csv has no rate for" in problem for problem in problems)


def test_too_many_quarantined_prices_are_reported(seed: SeedCopy) -> None:
    seed.remove("instance_types", provider="azure")
    assert [problem for problem in seed.problems() if "rows cannot enter the catalog" in problem]


def test_one_fault_is_reported_once(seed: SeedCopy) -> None:
    seed.change("gpus", A100, source="hearsay")
    assert len(seed.problems()) == 1


def test_a_check_on_the_command_line_prints_every_problem(seed: SeedCopy, capsys: pytest.CaptureFixture[str]) -> None:
    seed.change("gpus", A100, source="hearsay")
    seed.change("instance_types", P4D, gpu="a100")
    assert main(["seed", "--check", "--folder", str(seed.folder)]) == 1
    out, err = capsys.readouterr()
    assert "gpus.csv, a100-sxm4-40gb: sources.csv has no hearsay.\n" in err
    assert "instance_types.csv, aws/p4d.24xlarge: gpus.csv has no a100.\n" in err
    assert out.endswith(f" rows, {err.count(chr(10))} problems.\n")


@pytest.mark.parametrize(
    ("cells", "sentence"),
    [
        ({"source": "hearsay"}, "gpus.csv, a100-sxm4-40gb: sources.csv has no hearsay.\n"),
        ({"memory_gb": "much"}, "'much' cannot be read as memory_gb.\n"),
    ],
)
def test_a_broken_seed_leaves_the_last_good_catalog(
    seed: SeedCopy,
    seeded_copy: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    cells: dict[str, str],
    sentence: str,
) -> None:
    seed.change("gpus", A100, **cells)
    monkeypatch.setenv("SELECTOR_DATABASE_URL", seeded_copy)
    assert main(["seed", "--folder", str(seed.folder)]) == 1
    assert capsys.readouterr().err.endswith(sentence)
    engine = connect(seeded_copy)
    history = read_history(engine)
    assert history.version == 1
    assert "a100-sxm4-40gb" in history.reference.gpus
    engine.dispose()
