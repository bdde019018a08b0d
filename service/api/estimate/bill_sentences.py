"""The sentences of a bill and its verdict in POST /estimate, which put figures of the domain into words."""

from math import ceil, inf

from service.api.http.figures import dollars, plural, readable
from service.domain.bill.bill import MachineTime, Part, PartName, StoredVolume
from service.domain.bill.commitments import CommittedCost
from service.domain.bill.market_bills import BreakEven, MarketBill
from service.domain.bill.run import TransferredData
from service.domain.bill.verdict import Outcome, Verdict
from service.domain.catalog.reference import Fee
from service.domain.jobs.serving import MOST_INSTANCES
from service.domain.money import Micros, number
from service.domain.physics.generation import ServedLoad
from service.domain.units import HOURS_A_MONTH, SECONDS_AN_HOUR

MARKET_WORDS = {"on_demand": "on demand", "spot": "at spot", "reserved": "reserved"}
DESTINATION_WORDS = {"internet": "the internet", "region": "another region", "zone": "another zone"}


def market_text(bill: MarketBill, instance: str | None) -> str:
    """Returns the machine, its market and its region."""
    if bill.option is None:
        return "the described machine"
    offer, service = bill.option.offer, bill.option.service
    market = MARKET_WORDS[offer.market] if offer.term is None else f"under {offer.term}"
    region = f" in {offer.region}" if offer.region else ""
    return f"{instance} {market}{region}{f' through {service}' if service else ''}"


def cost_text(bill: MarketBill, instance: str | None) -> str:
    """Returns the cost of a run in one market, or of a month of a load."""
    where, usd, missing = market_text(bill, instance), bill.usd, bill.missing
    if bill.priced.served is not None and (bill.month is not None or bill.priced.served.missed):
        return _load_cost_text(bill, where)
    if usd is None or bill.bill is None:
        work = "run" if bill.priced.served is None else "load"
        return f"The cost of the {work} on {where} is not known. {' '.join(missing)}".strip()
    hours = f"{readable(bill.bill.hours.likely, 4)} h on {'' if bill.machines == 1 else f'{bill.machines:,} x '}{where}"
    unknown = f" {missing[0]}" if missing else ""
    return f"{hours} cost {'at least ' if missing else ''}{_dollar_band(usd)}.{unknown}"


def _load_cost_text(bill: MarketBill, where: str) -> str:
    """Returns the cost of a month of a load, or the limits that are not kept, which have no cost."""
    instances = month_text(bill)
    if bill.month is None:
        return instances
    return f"A month of the load on {where} ({instances.rstrip('.')}) costs {_dollar_band(bill.month)}."


def _dollar_band(usd: Micros) -> str:
    """Returns likely dollars, and low to high where they differ."""
    span = "" if usd.low == usd.high else f" ({_dollars(usd.low)} to {_dollars(usd.high)})"
    return f"{_dollars(usd.likely)}{span}"


def _dollars(micros: int) -> str:
    return f"${dollars(number(micros))}"


def part_text(part: Part) -> str:
    """Returns how a part of a bill was computed."""
    match part.calculation:
        case MachineTime(hours, machines, price):
            per_hour = number(price.micros_per_hour)
            return f"{_time(hours)} x {plural(machines, 'machine')} at {per_hour:.10g} {price.currency} an hour"
        case Fee(percent_of_compute=percent, service=service):
            return f"{percent:g} % of the machines' price, for {service}"
        case StoredVolume() as volume:
            return _storage_text(volume)
        case TransferredData() as data:
            text = f"{readable(data.gb, 6)} GB to {DESTINATION_WORDS.get(data.destination, data.destination)}"
            return (
                text
                if part.basis != "published"
                else f"{text}, after {readable(data.already_gb, 6)} GB in the same month"
            )
    if part.name == PartName.ROUNDING:
        return "the difference between the rounded total and the rounded parts"
    return {"none": "none", "contained": "contained in the price of the machine"}.get(part.basis, "not known")


def _storage_text(volume: StoredVolume) -> str:
    data, price = volume.data, volume.price
    if price is None:
        return data.what
    machines = f" x {plural(volume.machines, 'machine')}" if price.kind == "block" else ""
    per_month = "included in the price of the machine"
    if price.micros_per_gib_month is not None:
        per_month = f"at {number(price.micros_per_gib_month):.10g} USD a GiB-month of {HOURS_A_MONTH} hours"
    stored = f"{data.what}: {readable(data.gib, 6)} GiB of {price.storage_class}"
    return f"{stored} for {readable(volume.hours, 4)} h{machines}, {per_month}"


def _time(hours: float) -> str:
    """Returns hours; less than a minute in seconds, since the rounding of time is often a part of one."""
    seconds = hours * SECONDS_AN_HOUR
    return f"{readable(hours, 4)} h" if seconds >= 60 else f"{readable(seconds, 4)} s"


def commitment_text(cost: CommittedCost) -> str:
    """Returns how much of a commitment a run uses and pays, and from which hours on the commitment pays off."""
    used, hours = "The hours of the run are not known", cost.committed_hours.likely
    if cost.used_share is not None:
        paid = "pays only these, since the term is held" if cost.held else "pays all of them"
        used = f"The run uses {readable(cost.used_share * hours, 4)} of {readable(hours, 6)} committed hours and {paid}"
    share = cost.break_even_utilisation
    if share is None:
        return f"{used}."
    if share > 1:
        return f"{used}. The term costs more than on demand, however much of it is used."
    hours_used = "" if cost.break_even_hours is None else f" ({cost.break_even_hours:,.0f} hours)"
    return f"{used}. The term pays off once {100 * share:.3g} % of it is used{hours_used}."


def break_even_text(break_even: BreakEven, *, spot: bool) -> str:
    """Returns the saving over on demand, and how often spot may be interrupted until it costs as much."""
    text, often = _saving_text(break_even), break_even.interruptions_per_hour
    if not spot:
        return text
    if often is None:
        return f"{text} Spot is no cheaper even without interruptions."
    return f"{text} With {readable(often, 3)} interruptions an hour it would cost as much."


def _saving_text(break_even: BreakEven) -> str:
    saves = break_even.saves_percent
    if saves is None:
        return "Whether it costs less than on demand is not known."
    least, most = ("at least ", "at most ") if break_even.is_most else ("", "")
    if saves < -100:
        return f"Costs {least}{readable(1 - saves / 100, 3)} times as much as on demand."
    share = round(abs(saves), 2)
    return f"Costs {f'{most}{share:g} % less' if saves >= 0 else f'{least}{share:g} % more'} than on demand."


def month_text(bill: MarketBill) -> str:
    """Returns the instances that serve a load for a month, or why none do."""
    served, nodes = bill.priced.served, bill.priced.run.nodes
    assert served is not None
    if served.missed:
        return missed_text(served)
    count = round(served.instances.likely)
    gang = f"{count} x {nodes} machines" if nodes > 1 else plural(count, "machine")
    if readers := served.prefill_instances * nodes:
        gang += f" ({readers} to read prompts and {count * nodes - readers} to write answers)"
    return (
        f"{gang}; the price of an hour is not known."
        if bill.month is None
        else f"{gang} for {bill.hours_a_month:.4g} h."
    )


def missed_text(served: ServedLoad) -> str:
    """Returns the limits of a load that no allowed number of instances keeps, with what would be possible."""
    serving, reached = served.serving, {name: least for name, least in served.missed.items() if least < inf}
    if not reached:
        return "The load is not served within its limits, and no change of a single limit is enough."
    faults = (_missed_limit(name, serving.limits[name], least) for name, least in reached.items())
    return f"The load is not served within its limits: {'; '.join(faults)}."


def _missed_limit(name: str, limit: float, least: float) -> str:
    if name != "max_instances":
        return f"{name} is {readable(limit, 6)}, and the least is {readable(least, 4)}"
    allowed = f"{limit:,} {'is' if limit == 1 else 'are'} allowed"
    if limit == MOST_INSTANCES:
        allowed = f"at most {limit:,} are tried"
    return f"it takes {ceil(least):,} instances, and {allowed}"


# The verdict


def verdict_text(verdict: Verdict, month: str | None) -> str:
    """Returns the reason of a verdict; `month` describes the load where its month was judged, not a run."""
    gate, usd, missing = verdict.gate, verdict.usd, verdict.missing
    if usd is None:
        return f"The cost is not known. {' '.join(missing)}".strip()
    subject = "The run" if month is None else f"A month of the load ({month.rstrip('.')})"
    text = f"{subject} costs {'at least ' if missing else ''}${dollars(number(usd.likely))}"
    if gate.baseline_usd is not None:
        text += f", {_compared(verdict.change_percent)} the baseline of ${dollars(gate.baseline_usd)}"
        if verdict.change_percent and verdict.change_percent > 0:
            text += f" (allowed: up to {gate.fail_above_percent:g} % above)"
    if gate.budget_usd is not None:
        text += ", which is" if gate.baseline_usd is None else "; it is"
        text += f" {'over' if verdict.over_budget else 'within'} the budget of ${dollars(gate.budget_usd)}"
    if verdict.outcome == Outcome.UNKNOWN:
        text += ", but the whole cost is not known"
    return " ".join((f"{text}.", *missing))


def _compared(change_percent: float | None) -> str:
    if not change_percent:
        return "exactly"
    return f"{readable(abs(change_percent), 3)} % {'above' if change_percent > 0 else 'below'}"
