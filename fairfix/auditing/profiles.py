"""Profiles: the tables that a rule or a regulator's guidance asks for, filled in from an audit.

A profile is a template of tables and words over the result of an audit. It switches on no limit and says nothing about
the law: it chooses a reference, names the columns as the rule names them, and adds the tests that such reports have.

========== ==========================================================================================================
``ll144``   New York City, Local Law 144 (6 RCNY 5-300 on): selection, scoring rates, ratios
``ugesp``   Uniform Guidelines, 29 CFR 1607.4(D): ratios to the highest rate, tests, the shortfall in people
``lending`` ratios to a named control group, of approvals and of denials
``eu``      EU AI Act, Articles 10, 13, 15: the data, and performance per group with its uncertainty
========== ==========================================================================================================

Tests compare a group with the reference: ``z`` is the difference of two rates in standard errors of the pooled
rate, with a two-sided normal probability; Fisher's exact test conditions on the margins. Over strata, the Mantel-
Haenszel odds ratio and its test compare like with like. None of them is corrected for the number of groups;
intervals are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fairfix.auditing.metrics import MEANS, METRICS, RATES
from fairfix.data.encoder import MISSING
from fairfix.errors import UsageError

NO_LAW = "fairfix computes numbers; it does not determine compliance with any law."
SMALL = 0.02
"""Share of the data below which Local Law 144 lets a category be left out of impact ratios."""

Json = Mapping[str, Any]
Row = dict[str, Any]

COLUMNS: Mapping[str, tuple[str, str]] = {
    "group": ("group", "text"),
    "rows": ("people", "count"),
    "share": ("share", "rate"),
    "selected": ("selected", "count"),
    "approved": ("approved", "count"),
    "above_median": ("above the median", "count"),
    "selection_rate": ("selection rate", "value"),
    "approval_rate": ("approval rate", "value"),
    "scoring_rate": ("scoring rate", "value"),
    "impact_ratio": ("impact ratio", "ratio"),
    "adverse_impact_ratio": ("adverse impact ratio", "ratio"),
    "denial_ratio": ("denial rate ratio", "ratio"),
    "difference": ("difference", "number"),
    "mean_score_difference": ("mean score difference", "number"),
    "standardised_difference": ("standardised mean difference", "number"),
    "z": ("z", "number"),
    "p": ("p of z", "p"),
    "fisher_p": ("Fisher's exact p", "p"),
    "shortfall": ("shortfall in people", "count"),
    "strata": ("strata", "count"),
    "odds_ratio": ("odds ratio", "ratio"),
    "what": ("rows", "text"),
    "number": ("number", "count"),
    "note": ("note", "text"),
}
"""Every column of a profile's tables: its heading and what it holds; metrics have their own names."""

TITLES: Mapping[str, str] = {
    "ll144": "Profile ll144: tables of New York City's Local Law 144",
    "ugesp": "Profile ugesp: tables of the Uniform Guidelines, 29 CFR 1607.4(D)",
    "lending": "Profile lending: approvals against a control group",
    "eu": "Profile eu: data and performance per group, EU AI Act, Articles 10, 13 and 15",
}
PROFILES = tuple(TITLES)

EU_METRICS = (
    "base_rate",
    "selection_rate",
    "true_positive_rate",
    "false_positive_rate",
    "positive_predictive_value",
    "accuracy",
    "auc",
    "calibration_gap",
    "log_loss",
    "mean_label",
    "mean_error",
    "absolute_loss",
)


def profile(name: str, result: Json, small: str = "") -> dict[str, Any]:
    """Return the ``profile`` section of an audit in JSON form; ``UsageError`` where it has not what is needed.

    ``small`` says why categories below 2 % of the data are left out of impact ratios (``ll144``); empty leaves them in.
    """
    lines, tables = MAKERS[name](result, small)
    return {
        "name": name,
        "title": TITLES[name],
        "lines": [NO_LAW, "No limit is switched on by a profile.", *lines],
        "tables": tables,
    }


# ---------------------------------------------------------------------- parts


def _table(title: str, attribute: str, columns: Sequence[str], rows: Sequence[Row]) -> dict[str, Any]:
    """Return a table; a column that is empty in every row is left out, unless it is a note."""
    shown = [
        name for name in columns if name == "group" or any(row.get(name) not in (None, "") for row in rows)
    ]
    heads = [
        {"name": name, "title": COLUMNS.get(name, (name.replace("_", " "), "value"))[0]}
        | {"kind": COLUMNS.get(name, ("", "value"))[1]}
        for name in shown
    ]
    return {
        "title": title,
        "attribute": attribute,
        "columns": heads,
        "rows": [{name: row.get(name) for name in shown} for row in rows],
    }


def _value(group: Json, metric: str) -> dict[str, Any] | None:
    """Return the value of a metric with its interval."""
    found = group["metrics"].get(metric)
    return (
        None
        if found is None
        else {key: found[key] for key in ("value", "low", "high", "reason") if key in found}
    )


def _rate(group: Json, metric: str) -> float | None:
    found = group["metrics"].get(metric)
    return None if found is None or found["value"] is None else float(found["value"])


def _unknown(group: Json) -> bool:
    """Return whether rows of a group miss the value that would tell their group."""
    return MISSING in group["levels"]


def _counted(result: Json) -> bool:
    """Return whether rates are shares of whole people, which tests of counts need."""
    columns = result["data"]["columns"]
    return "weight" not in columns and "probability" not in columns


def _many(group: Json, metric: str, result: Json) -> float | None:
    """Return how many people a rate stands for; a sum of weights where rows have weights."""
    rate = _rate(group, metric)
    if rate is None:
        return None
    many = rate * float(group["weight"])
    return round(many) if _counted(result) else many


def _highest(groups: Sequence[Json], metric: str) -> Json | None:
    """Return the group with the highest rate, the first of several."""
    rated = [group for group in groups if _rate(group, metric) is not None]
    return max(rated, key=lambda group: float(_rate(group, metric) or 0.0), default=None)


def _quotient(above: float | None, below: float | None) -> float | None:
    return None if above is None or not below else above / below


def _need(result: Json, metrics: Sequence[str], name: str) -> None:
    if not any(metric in result["overall"]["metrics"] for metric in metrics):
        raise UsageError(
            f"--profile {name} is about decisions; name them with --prediction, or a score with --score and --threshold"
        )


def two_rates(s: float, n: float, t: float, m: float) -> tuple[float | None, float | None]:
    """Return z of ``s/n - t/m`` with the pooled rate, and its two-sided normal probability."""
    if not n or not m:
        return None, None
    pooled = (s + t) / (n + m)
    error = math.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
    if not error:
        return None, None
    z = (s / n - t / m) / error
    return z, math.erfc(abs(z) / math.sqrt(2))


def shortfall(s: float, n: float, rate: float) -> int:
    """Return how many more of a group have to be selected for its rate to reach another."""
    return max(0, math.ceil(n * rate - s - 1e-9))


def _tests(group: Json, reference: Json, result: Json) -> Row:
    """Return the tests of a group's selections against the reference's."""
    if not _counted(result) or group is reference:
        return {}
    import numpy as np
    from scipy.stats import fisher_exact

    s, t = (_many(one, "selection_rate", result) for one in (group, reference))
    if s is None or t is None:
        return {}
    n, m = group["rows"], reference["rows"]
    z, p = two_rates(s, n, t, m)
    return {"z": z, "p": p, "fisher_p": float(fisher_exact(np.array([[s, n - s], [t, m - t]]))[1])}


def _not_counted(result: Json) -> Iterator[str]:
    if not _counted(result):
        yield "rows are weighted or decisions are random: counts are sums, and tests of counts are left out"


# ---------------------------------------------------------------------- Local Law 144


def _ll144(result: Json, small: str) -> tuple[list[str], list[dict[str, Any]]]:
    _need(result, ("selection_rate", "scoring_rate"), "ll144")
    used, median = result["data"]["rows"]["used"], result["pooled_median"]
    lines = [
        "impact ratio: the rate of a category divided by the highest rate of a category",
        "people of unknown category are counted in a row of their own and not compared",
        (
            "to be stated beside these tables: source and explanation of the data, historical or test data and why, "
            "date of the audit, distribution date of the tool, auditor"
        ),
        *_not_counted(result),
    ]
    if median is not None:
        lines.append(
            f"scoring rate: the share of a category with a score above {median:.6g}, the median of everybody; one "
            "point of the score distributions, which the KS distance compares at every score"
        )
    if small:
        lines.append(f"categories below {SMALL:.0%} of the data are left out of impact ratios: {small}")
    lines += [
        f"{one['rows']:,} rows are not in these tables: {one['reason']}"
        for one in result["data"]["rows"]["excluded"]
        if one["rows"]
    ]
    tables = []
    for metric, many, title in (
        ("selection_rate", "selected", "selection rates"),
        ("scoring_rate", "above_median", "scoring rates"),
    ):
        if metric not in result["overall"]["metrics"]:
            continue
        for block in result["attributes"]:
            columns = ("group", "rows", "share", many, metric, "impact_ratio", "note")
            rows = _impact(block, result, metric, many, small, used)
            tables.append(_table(f"{block['attribute']}: {title}", block["attribute"], columns, rows))
    return lines, tables


def _impact(block: Json, result: Json, metric: str, many: str, small: str, used: int) -> list[Row]:
    """Return the rows of one table of impact ratios."""
    tiny = {group["group"] for group in block["groups"] if group["rows"] < SMALL * used}
    compared = [g for g in block["groups"] if not _unknown(g) and not (small and g["group"] in tiny)]
    highest = _highest(compared, metric)
    rows = []
    for group in block["groups"]:
        inside = any(group is one for one in compared)
        notes = ["unknown category"] if _unknown(group) else []
        if group["group"] in tiny and not _unknown(group):
            notes.append(f"below {SMALL:.0%} of the data" + (", left out of impact ratios" if small else ""))
        if group is highest:
            notes.append("highest rate")
        top = None if highest is None else _rate(highest, metric)
        rows.append(
            {
                "group": group["group"],
                "rows": group["rows"],
                "share": group["rows"] / used,
                many: _many(group, metric, result),
                metric: _value(group, metric),
                "impact_ratio": _quotient(_rate(group, metric), top) if inside else None,
                "note": "; ".join(notes),
            }
        )
    return rows


# ---------------------------------------------------------------------- Uniform Guidelines


def _ugesp(result: Json, small: str) -> tuple[list[str], list[dict[str, Any]]]:
    _need(result, ("selection_rate",), "ugesp")
    lines = [
        "reference: the group with the highest selection rate",
        (
            "impact ratio: the rate of a group divided by the highest rate; the guidelines speak of four fifths, of "
            "tests, and of numbers too small for either; nothing is marked here"
        ),
        "shortfall: how many more people of the group would have to be selected to reach the highest rate",
        *_not_counted(result),
    ]
    tables = []
    columns = (
        *("group", "rows", "selected", "selection_rate", "impact_ratio", "difference"),
        *("z", "p", "fisher_p", "shortfall", "note"),
    )
    for block in result["attributes"]:
        known = [group for group in block["groups"] if not _unknown(group)]
        highest = _highest(known, "selection_rate")
        rows = []
        for group in block["groups"]:
            row: Row = {
                "group": group["group"],
                "rows": group["rows"],
                "selected": _many(group, "selection_rate", result),
                "selection_rate": _value(group, "selection_rate"),
                "note": "unknown group, not compared" if _unknown(group) else "",
            }
            rate = _rate(group, "selection_rate")
            if highest is not None and rate is not None and not _unknown(group):
                top = _rate(highest, "selection_rate") or 0.0
                row |= {"impact_ratio": _quotient(rate, top), "difference": rate - top}
                row |= {"shortfall": shortfall(rate * group["weight"], group["weight"], top)}
                row |= _tests(group, highest, result)
                row["note"] = "highest rate" if group is highest else ""
            rows.append(row)
        tables.append(_table(f"{block['attribute']}: selections", block["attribute"], columns, rows))
        if highest is not None and _counted(result):
            tables += _pooled(block, highest, result)
    return lines, tables


def _pooled(block: Json, reference: Json, result: Json) -> Iterator[dict[str, Any]]:
    """Yield the comparison with the reference over the strata, where there are any."""
    strata = [one for one in result["strata"] if one["attribute"] == block["attribute"]]
    rows = []
    for group in block["groups"]:
        if group is reference or _unknown(group):
            continue
        cells = []
        for stratum in strata:
            found = {g["group"]: g for g in stratum["groups"]}
            if group["group"] in found and reference["group"] in found:
                one, other = found[group["group"]], found[reference["group"]]
                s, t = (_many(g, "selection_rate", result) or 0.0 for g in (one, other))
                cells.append((s, one["rows"] - s, t, other["rows"] - t))
        odds, z, p = mantel_haenszel(cells)
        rows.append({"group": group["group"], "strata": len(cells), "odds_ratio": odds, "z": z, "p": p})
    if strata and rows:
        title = f"{block['attribute']}: against {reference['group']} within strata (Mantel-Haenszel)"
        yield _table(title, block["attribute"], ("group", "strata", "odds_ratio", "z", "p"), rows)


def mantel_haenszel(
    cells: Sequence[tuple[float, float, float, float]],
) -> tuple[float | None, float | None, float | None]:
    """Return the common odds ratio of 2 x 2 tables (selected, not; reference selected, not), its z and probability."""
    above = below = excess = variance = 0.0
    for a, b, c, d in cells:
        n = a + b + c + d
        if n > 1:
            above, below = above + a * d / n, below + b * c / n
            excess += a - (a + b) * (a + c) / n
            variance += (a + b) * (c + d) * (a + c) * (b + d) / (n * n * (n - 1))
    z = excess / math.sqrt(variance) if variance else None
    return _quotient(above, below), z, None if z is None else math.erfc(abs(z) / math.sqrt(2))


# ---------------------------------------------------------------------- lending


def _lending(result: Json, small: str) -> tuple[list[str], list[dict[str, Any]]]:
    _need(result, ("selection_rate",), "lending")
    references = result["settings"]["reference"]
    blocks = [block for block in result["attributes"] if block["attribute"] in references]
    if not blocks:
        names = " ".join(f"--reference {name}=GROUP" for name in result["data"]["columns"]["protected"])
        raise UsageError(f"--profile lending compares with a control group; name it with {names}")
    lines = [
        *(f"control group of {block['attribute']}: {references[block['attribute']]}" for block in blocks),
        "adverse impact ratio: the approval rate of a group divided by that of the control group",
        "denial rate ratio: the share denied of a group divided by that of the control group",
        "a positive decision is read as an approval",
        *_not_counted(result),
    ]
    columns = (
        *("group", "rows", "approved", "approval_rate", "adverse_impact_ratio", "denial_ratio", "difference"),
        *("z", "p", "fisher_p", "mean_score_difference", "standardised_difference", "note"),
    )
    spread = result["overall"].get("score_deviation")
    if spread:
        lines.append(
            f"standardised mean difference: the mean score of a group minus that of the control group, in standard "
            f"deviations of everybody's score ({spread:.4g})"
        )
    tables = []
    for block in blocks:
        control = next(g for g in block["groups"] if g["group"] == references[block["attribute"]])
        base = _rate(control, "selection_rate")
        rows = []
        for group in block["groups"]:
            rate, scores = _rate(group, "selection_rate"), [_rate(g, "mean_score") for g in (group, control)]
            row: Row = {
                "group": group["group"],
                "rows": group["rows"],
                "approved": _many(group, "selection_rate", result),
                "approval_rate": _value(group, "selection_rate"),
                "note": "control group" if group is control else ("unknown group" if _unknown(group) else ""),
            }
            if rate is not None and base is not None:
                row |= {"adverse_impact_ratio": _quotient(rate, base), "difference": rate - base}
                row |= {"denial_ratio": _quotient(1 - rate, 1 - base), **_tests(group, control, result)}
            if scores[0] is not None and scores[1] is not None:
                row["mean_score_difference"] = scores[0] - scores[1]
                row["standardised_difference"] = _quotient(scores[0] - scores[1], spread) if spread else None
            rows.append(row)
        tables.append(_table(f"{block['attribute']}: approvals", block["attribute"], columns, rows))
    return lines, tables


# ---------------------------------------------------------------------- EU AI Act


def _eu(result: Json, small: str) -> tuple[list[str], list[dict[str, Any]]]:
    present = [name for name in EU_METRICS if name in result["overall"]["metrics"]]
    settings = result["settings"]
    lines = [
        f"intervals hold with {settings['confidence']:.0%} for all groups of a table at once",
        "y is the label, p the score as a probability: "
        + "; ".join(f"{name} = {METRICS[name].formula}" for name in present if name in (*RATES, *MEANS)),
        "to be stated beside these tables: purpose, origin of the data, known gaps, measures taken, what remains",
    ]
    rows = result["data"]["rows"]
    sheet = [{"what": "read", "number": rows["read"]}, {"what": "used", "number": rows["used"]}]
    sheet += [{"what": f"left out: {one['reason']}", "number": one["rows"]} for one in rows["excluded"]]
    tables = [{**_table("rows of the data", "", ("what", "number"), sheet)}]
    for block in result["attributes"]:
        groups = [*block["groups"], {**result["overall"], "group": "everybody"}]
        told = [
            {
                "group": group["group"],
                "rows": group["rows"],
                "share": group["share"],
                **{name: _value(group, name) for name in present},
                "note": "unknown group" if _unknown(group) else "",
            }
            for group in groups
        ]
        columns = ("group", "rows", "share", *present, "note")
        tables.append(_table(f"{block['attribute']}: performance", block["attribute"], columns, told))
    return lines, tables


Maker = Callable[[Json, str], tuple[list[str], list[dict[str, Any]]]]
MAKERS: Mapping[str, Maker] = {"ll144": _ll144, "ugesp": _ugesp, "lending": _lending, "eu": _eu}
