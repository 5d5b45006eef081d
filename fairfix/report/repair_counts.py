"""The section of a repair from counts: which counts these are, and what of the repair is certain without a row."""

from __future__ import annotations

from collections.abc import Callable

from fairfix.auditing.metrics import METRICS
from fairfix.report.layout import CHANGES_MOST, Columns, Grid, Interval, Json, Section, first_groups
from fairfix.report.percent_format import CERTAIN


def of_counts(counts: Json, rank: Callable[[Json], float]) -> Section:
    """Return of what counts a repair is, and what of it is certain without a row."""
    lines = [
        f"{part}: {_counted(counts[key])}"
        for part, key in (("fit", "fit"), ("proof", "proof"))
        if key in counts
    ]
    if "no_proof" in counts:
        lines.append(f"evaluation: none; {counts['no_proof']}")
    certified = counts["certified"]
    valued = any("distance" in one for one in certified)
    what = "the same values with the same probabilities" if valued else "the same probability of yes"
    lines.append(
        f"scores are known by {counts['bins']:,} bins, {counts['width']:.3g} wide or less; all rows of a group "
        "whose scores "
        f"are in one bin have {what}"
    )
    numbers = [number for one in certified for number in (*one["rates"].values(), one.get("distance", {}))]
    apart = max((one["high"] - one["low"] for one in numbers if "low" in one), default=0.0)
    where = "held-out rows" if "proof" in counts else "the training rows"
    names = list(certified[0]["rates"])
    rates = " and ".join(
        [*(["rates"] if names or not valued else []), *(["distances to all rows"] if valued else [])]
    )
    draws = ", expected over the draws," if valued else ""
    what = "those in the table" if apart < CERTAIN else "within the ranges in the table"
    lines.append(f"certain: wherever the scores lie in their bins, {rates} on {where}{draws} are {what}")
    for name, loss in counts.get("losses", {}).items():
        of = f"the {METRICS[name].title} of the values over all rows, on {where}{draws or ','}"
        if "reason" in loss:
            lines.append(f"{of} is not known exactly: {loss['reason']}")
        elif loss["high"] - loss["low"] <= CERTAIN * loss["high"]:
            lines.append(f"certain: {of} is {loss['low']:.4g}")
        else:
            lines.append(f"certain: {of} is from {loss['low']:.4g} to {loss['high']:.4g}")
    best = counts["optimum"]
    if "bound" in best:
        lines.append(
            f"certain: on the training rows, a rule of exact scores can be better by {best['bound']:.2g} at "
            f"most, in the {best['of']}; among {best['among']}"
        )
    else:
        lines.append(best["reason"])
    columns: Columns = {
        "group": lambda one: f"{one['group']} ({one['attribute']})",
        "rows": lambda one: f"{one['rows']:,}",
        **{METRICS[name].title: _rate_of(name) for name in names},
        **({"KS, to all rows": lambda one: _ends(one["distance"])} if valued else {}),
    }
    groups, more = first_groups(certified, rank, CHANGES_MOST)
    return Section(
        "Repaired from counts", (*lines, *more), (Grid.of(columns, groups, 1, "Certain rates"),), "counts"
    )


def _counted(part: Json) -> str:
    share = f", share {part['share']}" if "share" in part else ""
    gone = f"; up to {part['left_out']:,} rows of small groups are hidden" if "left_out" in part else ""
    return f"{part['rows']:,} rows of {part['source']}{share}{gone}"


def _rate_of(name: str) -> Callable[[Json], str]:
    return lambda one: _ends(one["rates"][name])


def _ends(share: Json) -> str:
    """Return the ends between which a share lies, or the share where they are one."""
    if "reason" in share:
        return "–"
    low, high = (f"{share[end]:.4f}" for end in ("low", "high"))
    return low if share["high"] - share["low"] < CERTAIN else Interval(f"{low} to {high}")
