"""The sentence of a verdict says how far a cost is from its limits, and that of memory how likely it suffices."""

from datetime import date
from statistics import NormalDist

from service.api.estimate.bill_sentences import verdict_text
from service.api.estimate.sentences import fit_change_text, rate_text, warning_text
from service.api.http.figures import readable
from service.domain.band import Band
from service.domain.bill.verdict import Gate, verdict
from service.domain.codes import WarningCode
from service.domain.evidence.named import NamedRate
from service.domain.layouts.would_fit import FitChange
from service.domain.physics.estimate import MemoryNeed
from service.domain.statement import statement
from service.domain.units import GIB
from tests.builders.bills import usd
from tests.builders.catalogs import measurement


def test_the_sentence_says_how_far_and_how_far_is_allowed() -> None:
    text = verdict_text(verdict(usd(150.0), Gate(120.0, 10)), None)
    assert text == "The run costs $150.00, 25 % above the baseline of $120.00 (allowed: up to 10 % above)."
    below = verdict_text(verdict(usd(66.0), Gate(120.0)), None)
    assert below == "The run costs $66.00, 45 % below the baseline of $120.00."


def test_both_limits_stand_in_one_sentence() -> None:
    assert verdict_text(verdict(usd(120.0), Gate(120.0, budget_usd=100.0)), None) == (
        "The run costs $120.00, exactly the baseline of $120.00; it is over the budget of $100.00."
    )


def test_an_unknown_cost_says_why() -> None:
    found = verdict(None, Gate(budget_usd=100.0), ("No price.",))
    assert verdict_text(found, None) == "The cost is not known. No price."


def test_a_lower_bound_says_what_it_leaves_out() -> None:
    found = verdict(usd(0.004), Gate(budget_usd=100.0), ("No price of storage.",), lower_bound=True)
    assert verdict_text(found, None) == (
        "The run costs at least $0.004000, which is within the budget of $100.00, but the whole cost is not known. "
        "No price of storage."
    )


def test_a_change_is_enough_in_the_memory_that_it_takes_in_its_fastest_layout() -> None:
    """QLoRA without recomputation takes more memory than LoRA with it, and does not need it."""
    assert fit_change_text(FitChange("method", "qlora", 59 * GIB)) == "With method qlora it fits in 59.0 GiB per GPU."


def test_a_confidence_that_admits_a_job_comes_with_the_memory_of_a_gpu_or_of_a_machine() -> None:
    change = FitChange("memory_confidence", 0.62, 59 * GIB)
    admits = "A memory_confidence of 0.62 admits it: it likely needs 59.0 GiB per "
    assert fit_change_text(change) == f"{admits}GPU."
    assert fit_change_text(change, of_cpus=True) == f"{admits}machine."


def test_a_cost_without_limits_is_stated() -> None:
    assert verdict_text(verdict(usd(7.0), Gate()), None) == "The run costs $7.00."


def test_the_month_of_a_load_is_named() -> None:
    text = verdict_text(verdict(usd(7.0), Gate(budget_usd=8.0)), "2 replicas for 730 h.")
    assert text == "A month of the load (2 replicas for 730 h) costs $7.00, which is within the budget of $8.00."


def test_large_figures_have_no_exponent() -> None:
    figures = [(0.0123456, 4), (55.04, 4), (9999.6, 4), (124_459_597.5, 4), (2261.4, 3), (24.0, 6), (8760.0, 4)]
    texts = [readable(value, digits) for value, digits in figures]
    assert texts == ["0.01235", "55.04", "10,000", "124,459,598", "2,261", "24", "8,760"]


def test_a_probability_just_below_the_one_asked_for_is_not_shown_as_that_one() -> None:
    band = Band(10.0 * GIB, 20.0 * GIB, 40.0 * GIB)
    # The ends of a band are the quantiles of 10 and 90 %.
    usable = 20.0 * 2 ** (NormalDist().inv_cdf(0.89996) / NormalDist().inv_cdf(0.9)) * GIB
    memory = MemoryNeed(band.likely, usable, {"weights": band.likely}, band, band.likely, confidence=0.9)
    text = warning_text(statement(WarningCode.GPU_MEMORY, memory=memory, of_cpus=False, faster=None))
    assert text.startswith("The job fits with a probability of 89.9% and not of 90% as asked: in eight of ten runs")


def test_a_measured_or_scaled_rate_says_where_it_is_from() -> None:
    run, band = measurement("aws/b", on=date(2024, 4, 27)), Band(90.0, 100.0, 110.0)
    assert [
        rate_text(NamedRate("measured", band, run, 31)),
        rate_text(NamedRate("measured", band, run, 400)),
        rate_text(NamedRate("scaled", band, run, 31, 10 / 9, "memory_bandwidth")),
        rate_text(NamedRate("scaled", band, run, 400, 1.25)),
        rate_text(NamedRate("measured", Band(1e4, 12345.6, 2e4), run, 31)),
    ] == [
        "Measured on aws/b on 2024-04-27: 100 samples per second.",
        "Measured on aws/b on 2024-04-27, 400 days ago: 100 samples per second.",
        "Scaled by memory bandwidth (1.11 times) from aws/b, measured on 2024-04-27.",
        (
            "The estimate is scaled by 1.25, the measured over the estimated rate of aws/b with the same GPU, measured "
            "on 2024-04-27, 400 days ago."
        ),
        "Measured on aws/b on 2024-04-27: 12,346 samples per second.",
    ]
