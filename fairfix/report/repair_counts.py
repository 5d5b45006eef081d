"""The section of a repair from counts: which counts these are, and what of the repair is certain without a row."""

from __future__ import annotations

from collections.abc import Callable

from fairfix.auditing.metrics import METRICS
from fairfix.report.layout import CERTAIN, CHANGES_MOST, Columns, Interval, Section, TextTable, first_groups
from fairfix.schema.repair import CountedRows, Ends, FromCounts, GroupEnds


def of_counts(counts: FromCounts, rank: Callable[[GroupEnds], float]) -> Section:
    """Return of what counts a repair is, and what of it is certain without a row."""
    lines = [f"fit: {_counted(counts.fit)}"]
    if counts.proof is not None:
        lines.append(f"proof: {_counted(counts.proof)}")
    if counts.no_proof:
        lines.append(f"evaluation: none; {counts.no_proof}")
    certified = counts.certified
    valued = any(one.distance is not None for one in certified)
    what = "the same values with the same probabilities" if valued else "the same probability of yes"
    lines.append(
        f"scores are known by {counts.bins:,} bins, {counts.width:.3g} wide or less; all rows of a group "
        "whose scores "
        f"are in one bin have {what}"
    )
    numbers = [number for one in certified for number in (*one.rates.values(), one.distance) if number]
    apart = max(map(_width, numbers), default=0.0)
    where = "held-out rows" if counts.proof is not None else "the training rows"
    names = list(certified[0].rates)
    rates = " and ".join(
        [*(["rates"] if names or not valued else []), *(["distances to all rows"] if valued else [])]
    )
    draws = ", expected over the draws," if valued else ""
    what = "those in the table" if apart < CERTAIN else "within the ranges in the table"
    lines.append(f"certain: wherever the scores lie in their bins, {rates} on {where}{draws} are {what}")
    for name, loss in counts.losses.items():
        of = f"the {METRICS[name].title} of the values over all rows, on {where}{draws or ','}"
        if loss.reason:
            lines.append(f"{of} is not known exactly: {loss.reason}")
        elif _width(loss) <= CERTAIN * (loss.high or 0.0):
            lines.append(f"certain: {of} is {loss.low:.4g}")
        else:
            lines.append(f"certain: {of} is from {loss.low:.4g} to {loss.high:.4g}")
    best = counts.optimum
    if best.bound is not None:
        lines.append(
            f"certain: on the training rows, a rule of exact scores can be better by {best.bound:.2g} at "
            f"most, in the {best.of}; among {best.among}"
        )
    else:
        lines.append(best.reason)
    columns: Columns = {
        "group": lambda one: f"{one.group} ({one.attribute})",
        "rows": lambda one: f"{one.rows:,}",
        **{METRICS[name].title: _rate_of(name) for name in names},
        **({"KS, to all rows": lambda one: _ends(one.distance)} if valued else {}),
    }
    groups, more = first_groups(certified, rank, CHANGES_MOST)
    return Section(
        "Repaired from counts",
        (*lines, *more),
        (TextTable.of(columns, groups, 1, "Certain rates"),),
        "counts",
    )


def _counted(part: CountedRows) -> str:
    share = f", share {part.share}" if part.share else ""
    gone = f"; up to {part.left_out:,} rows of small groups are hidden" if part.left_out is not None else ""
    return f"{part.rows:,} rows of {part.source}{share}{gone}"


def _rate_of(name: str) -> Callable[[GroupEnds], str]:
    return lambda one: _ends(one.rates[name])


def _width(ends: Ends) -> float:
    """Return how wide a range is; 0 where there is none."""
    return 0.0 if ends.low is None or ends.high is None else ends.high - ends.low


def _ends(share: Ends) -> str:
    """Return the ends between which a share lies, or the share where they are one."""
    if share.low is None:
        return "–"
    low, high = f"{share.low:.4f}", f"{share.high:.4f}"
    return low if _width(share) < CERTAIN else Interval(f"{low} to {high}")
