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
from typing import Any, Literal

from msgspec.structs import replace

from fairfix.auditing.metrics import MEANS, METRICS, RATES
from fairfix.auditing.results import in_percent
from fairfix.data.domain import domain
from fairfix.data.merging import MISSING
from fairfix.data.spec import Form, Spec, parse_spec
from fairfix.errors import UsageError
from fairfix.schema.audit import Audit, Template, TemplateColumn, TemplateName, TemplateTable
from fairfix.schema.common import Block, Estimate, Group

NO_LAW = "fairfix computes numbers; it does not determine compliance with any law."
SMALL = 0.02
"""Share of the data below which Local Law 144 lets a category be left out of impact ratios."""

Row = dict[str, Any]
Kind = Literal["text", "count", "rate", "value", "ratio", "number", "p"]

COLUMNS: Mapping[str, tuple[str, Kind]] = {
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
    "standardised_difference": ("standardized mean difference", "number"),
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

ENTRIES: Mapping[str, str] = {
    **dict.fromkeys(("selected", "approved", "above_median"), "many"),
    **dict.fromkeys(("selection_rate", "approval_rate", "scoring_rate"), "rate"),
    **dict.fromkeys(("impact_ratio", "adverse_impact_ratio"), "ratio"),
}
"""Column -> entry of :func:`_against` that it shows, where it has another name."""

TITLES: Mapping[str, str] = {
    "ll144": "Profile ll144: tables of New York City's Local Law 144",
    "ugesp": "Profile ugesp: tables of the Uniform Guidelines, 29 CFR 1607.4(D)",
    "lending": "Profile lending: approvals against a control group",
    "eu": "Profile eu: data and performance per group, EU AI Act, Articles 10, 13 and 15",
}

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


FORMS: Mapping[str, Form] = {
    **{name: Form(title, {}) for name, title in TITLES.items()},
    "ll144": Form(
        TITLES["ll144"],
        {
            "exclude_small": domain(
                0.0,
                "Leave categories below this fraction of the data out of impact ratios.",
                at_least=0.0,
                at_most=SMALL,
            ),
            "reason": domain("", "Reason for leaving them out, which is printed."),
        },
    ),
}
"""Name of a profile -> the keys that it has: ``ll144(exclude_small=0.02)``."""


def read_profile(text: str) -> Spec:
    """Return the profile that a text names; a UsageError where it is none, or a reason has nothing to explain."""
    spec = parse_spec("profile", text, FORMS)
    if "reason" in spec.given and not spec["exclude_small"]:
        raise UsageError(f"`profile={text}`: a reason needs `exclude_small`, such as exclude_small={SMALL:g}")
    return spec


def with_template(spec: Spec, result: Audit) -> Audit:
    """Return an audit with its report template, filled in; ``UsageError`` where it has not what is needed."""
    name, make = MAKERS[spec.name]
    lines, tables = make(result, spec)
    template = Template(
        name=name,
        title=TITLES[spec.name],
        lines=(NO_LAW, "A profile sets no limits.", *lines),
        tables=tuple(tables),
    )
    return replace(result, profile=template)


# ---------------------------------------------------------------------- parts


def _table(title: str, attribute: str, columns: Sequence[str], rows: Sequence[Row]) -> TemplateTable:
    """Return a table; a column that is empty in every row is left out, but not the groups."""
    table = [{name: row.get(name, row.get(ENTRIES.get(name, ""))) for name in columns} for row in rows]
    shown = [name for name in columns if name == "group" or any(row[name] not in (None, "") for row in table)]
    usual: Kind = "value"
    heads = [(name, *COLUMNS.get(name, (name.replace("_", " "), usual))) for name in shown]
    return TemplateTable(
        title=title,
        attribute=attribute,
        columns=tuple(TemplateColumn(name=name, title=head, kind=kind) for name, head, kind in heads),
        rows=tuple({name: row[name] for name in shown} for row in table),
    )


def _estimate_of(group: Group, metric: str) -> Estimate | None:
    """Return the value of a metric with its interval alone."""
    value = group.metrics.get(metric)
    return value and replace(value, bound=None, given_scores=None)


def _unknown(group: Group) -> bool:
    """Return whether rows of a group miss the value that would tell their group."""
    return MISSING in group.levels


def _counted(result: Audit) -> bool:
    """Return whether rates are shares of whole people, which tests of counts need."""
    return not (result.data.columns.weight or result.data.columns.probability)


def _many(group: Group, metric: str, result: Audit) -> float | None:
    """Return how many people a rate stands for; a sum of weights where rows have weights."""
    rate = group.value(metric)
    if rate is None:
        return None
    many = rate * float(group.weight)
    return round(many) if _counted(result) else many


def _highest(groups: Sequence[Group], metric: str) -> Group | None:
    """Return the group with the highest rate, the first of several."""
    rated = [group for group in groups if group.value(metric) is not None]
    return max(rated, key=lambda group: group.value(metric) or 0.0, default=None)


def _quotient(above: float, below: float | None) -> float | None:
    return above / below if below else None


def _against(
    block: Block,
    result: Audit,
    metric: str,
    reference: Group | None,
    compared: Sequence[Group],
    note: Callable[[Group], str],
    *,
    tests: bool = True,
) -> list[Row]:
    """Return a row per group: its rate and, of those compared, how it stands to the rate of the reference."""
    spread, rows = result.overall.score_deviation, []
    for group in block.groups:
        row: Row = {
            "group": group.group,
            "rows": group.rows,
            "share": group.rows / result.data.rows.used,
            "many": _many(group, metric, result),
            "rate": _estimate_of(group, metric),
            "note": note(group),
        }
        rows.append(row)
        rate, base = group.value(metric), None if reference is None else reference.value(metric)
        if reference is None or rate is None or base is None or group not in compared:
            continue
        row |= {"ratio": _quotient(rate, base), "denial_ratio": _quotient(1 - rate, 1 - base)}
        row |= {
            "difference": rate - base,
            "shortfall": shortfall(rate * group.weight, group.weight, base),
        }
        score, usual = (one.value("mean_score") for one in (group, reference))
        if score is not None and usual is not None:
            row["mean_score_difference"] = score - usual
            row["standardised_difference"] = _quotient(score - usual, spread)
        if tests and _counted(result) and group is not reference:
            row |= _tests(row["many"], group.rows, _many(reference, metric, result) or 0.0, reference.rows)
    return rows


def _need(result: Audit, metrics: Sequence[str], name: str) -> None:
    if not any(metric in result.overall.metrics for metric in metrics):
        raise UsageError(
            f"`profile={name}` needs decisions; name them with `prediction`, or a score with `score` and `threshold`"
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
    return max(0, math.ceil(n * rate - s - 1e-9))  # a product of floats may lie above a whole number


def _tests(s: float, n: float, t: float, m: float) -> Row:
    """Return the tests of ``s`` selections of ``n`` against ``t`` of ``m``."""
    import numpy as np
    from scipy.stats import fisher_exact

    z, p = two_rates(s, n, t, m)
    return {"z": z, "p": p, "fisher_p": float(fisher_exact(np.array([[s, n - s], [t, m - t]]))[1])}


def _not_counted(result: Audit) -> Iterator[str]:
    if not _counted(result):
        yield "rows are weighted or decisions are randomized: counts are sums, and tests of counts are left out"


# ---------------------------------------------------------------------- Local Law 144


def _ll144(result: Audit, spec: Spec) -> tuple[list[str], list[TemplateTable]]:
    _need(result, ("selection_rate", "scoring_rate"), "ll144")
    used, median = result.data.rows.used, result.pooled_median
    lines = [
        "impact ratio: the rate of a category divided by the highest rate of a category",
        "people of unknown category are counted in a row of their own and not compared",
        (
            "state with these tables: source and explanation of the data, historical or test data and why, "
            "date of the audit, distribution date of the tool, auditor"
        ),
        *_not_counted(result),
    ]
    if median is not None:
        lines.append(
            f"scoring rate: the fraction of a category with a score above {median:.6g}, the overall median; one "
            "point of the score distributions, which the KS distance compares at every score"
        )
    least: float = spec["exclude_small"]
    if least:
        why = spec["reason"] or "no reason is given, and the rule asks for one"
        lines.append(f"categories below {in_percent(least)} of the data are left out of impact ratios: {why}")
    lines += [
        f"{one.rows:,} rows are not in these tables: {one.reason}"
        for one in result.data.rows.excluded
        if one.rows
    ]
    tables = []
    for metric, many, title in (
        ("selection_rate", "selected", "selection rates"),
        ("scoring_rate", "above_median", "scoring rates"),
    ):
        columns = ("group", "rows", "share", many, metric, "impact_ratio", "note")
        for block in result.attributes if metric in result.overall.metrics else ():
            rows = _impact(block, result, metric, least, used)
            tables.append(_table(f"{block.attribute}: {title}", block.attribute, columns, rows))
    return lines, tables


def _impact(block: Block, result: Audit, metric: str, least: float, used: int) -> list[Row]:
    """Return the rows of one table of impact ratios; categories below a fraction of the data are left out."""
    compared = [g for g in block.groups if not _unknown(g) and g.rows >= least * used]
    highest = _highest(compared, metric)

    def note(group: Group) -> str:
        notes = ["unknown category"] if _unknown(group) else []
        if group.rows < SMALL * used and not _unknown(group):
            left_out = "" if group in compared else ", left out of impact ratios"
            notes.append(f"below {SMALL:.0%} of the data{left_out}")
        return "; ".join(notes + ["highest rate"] * (group is highest))

    return _against(block, result, metric, highest, compared, note, tests=False)


# ---------------------------------------------------------------------- Uniform Guidelines


def _ugesp(result: Audit, spec: Spec) -> tuple[list[str], list[TemplateTable]]:
    _need(result, ("selection_rate",), "ugesp")
    lines = [
        "reference: the group with the highest selection rate",
        (
            "impact ratio: the rate of a group divided by the highest rate; the guidelines mention four fifths, "
            "tests, and numbers too small for either; no group is marked here"
        ),
        "shortfall: the number of additional people of the group to select to reach the highest rate",
        *_not_counted(result),
    ]
    tables = []
    columns = (
        *("group", "rows", "selected", "selection_rate", "impact_ratio", "difference"),
        *("z", "p", "fisher_p", "shortfall", "note"),
    )
    for block in result.attributes:
        compared = [group for group in block.groups if not _unknown(group)]
        highest = _highest(compared, "selection_rate")

        def note(group: Group, highest: Group | None = highest) -> str:
            return "unknown group, not compared" if _unknown(group) else "highest rate" * (group is highest)

        rows = _against(block, result, "selection_rate", highest, compared, note)
        tables.append(_table(f"{block.attribute}: selections", block.attribute, columns, rows))
        if highest is not None and _counted(result):
            tables += _pooled(block, highest, result)
    return lines, tables


def _pooled(block: Block, reference: Group, result: Audit) -> Iterator[TemplateTable]:
    """Yield the comparison with the reference over the strata, where there are any."""
    strata = [one for one in result.strata if one.attribute == block.attribute]
    rows = []
    for group in block.groups:
        if group is reference or _unknown(group):
            continue
        cells = []
        for stratum in strata:
            inside = {g.group: g for g in stratum.groups}
            if group.group in inside and reference.group in inside:
                one, other = inside[group.group], inside[reference.group]
                s, t = (_many(g, "selection_rate", result) or 0.0 for g in (one, other))
                cells.append((s, one.rows - s, t, other.rows - t))
        odds, z, p = mantel_haenszel(cells)
        rows.append({"group": group.group, "strata": len(cells), "odds_ratio": odds, "z": z, "p": p})
    if strata and rows:
        title = f"{block.attribute}: against {reference.group} within strata (Mantel-Haenszel)"
        yield _table(title, block.attribute, ("group", "strata", "odds_ratio", "z", "p"), rows)


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


def _lending(result: Audit, spec: Spec) -> tuple[list[str], list[TemplateTable]]:
    _need(result, ("selection_rate",), "lending")
    references = result.settings.reference
    blocks = [block for block in result.attributes if block.attribute in references]
    if not blocks:
        names = " ".join(f"`reference={name}=GROUP`" for name in result.data.columns.protected)
        raise UsageError(f"`profile=lending` compares with a control group; name it with {names}")
    lines = [
        *(f"control group of {block.attribute}: {references[block.attribute]}" for block in blocks),
        "adverse impact ratio: the approval rate of a group divided by that of the control group",
        "denial rate ratio: the denial rate of a group divided by that of the control group",
        "a positive decision is an approval",
        *_not_counted(result),
    ]
    columns = (
        *("group", "rows", "approved", "approval_rate", "adverse_impact_ratio", "denial_ratio", "difference"),
        *("z", "p", "fisher_p", "mean_score_difference", "standardised_difference", "note"),
    )
    spread = result.overall.score_deviation
    if spread:
        lines.append(
            f"standardized mean difference: the mean score of a group minus that of the control group, in standard "
            f"deviations of the overall score ({spread:.4g})"
        )
    tables = []
    for block in blocks:
        control = next(g for g in block.groups if g.group == references[block.attribute])

        def note(group: Group, control: Group = control) -> str:
            return "control group" if group is control else "unknown group" * _unknown(group)

        rows = _against(block, result, "selection_rate", control, block.groups, note)
        tables.append(_table(f"{block.attribute}: approvals", block.attribute, columns, rows))
    return lines, tables


# ---------------------------------------------------------------------- EU AI Act


def _eu(result: Audit, spec: Spec) -> tuple[list[str], list[TemplateTable]]:
    present = [name for name in EU_METRICS if name in result.overall.metrics]
    lines = [
        f"intervals hold with {in_percent(result.settings.confidence)} for all groups of a table at once",
        "y is the label, p the score as a probability: "
        + "; ".join(f"{name} = {METRICS[name].formula}" for name in present if name in (*RATES, *MEANS)),
        "state with these tables: purpose, origin of the data, known gaps, measures taken, remaining risks",
    ]
    data = result.data.rows
    rows: list[Row] = [{"what": "read", "number": data.read}, {"what": "used", "number": data.used}]
    rows += [{"what": f"left out: {one.reason}", "number": one.rows} for one in data.excluded]
    tables = [_table("rows of the data", "", ("what", "number"), rows)]
    for block in result.attributes:
        groups = [*block.groups, replace(result.overall, group="overall")]
        rows = [
            {
                "group": group.group,
                "rows": group.rows,
                "share": group.share,
                **{name: _estimate_of(group, name) for name in present},
                "note": "unknown group" if _unknown(group) else "",
            }
            for group in groups
        ]
        columns = ("group", "rows", "share", *present, "note")
        tables.append(_table(f"{block.attribute}: performance", block.attribute, columns, rows))
    return lines, tables


Maker = Callable[[Audit, Spec], tuple[list[str], list[TemplateTable]]]
MAKERS: Mapping[str, tuple[TemplateName, Maker]] = {
    "ll144": ("ll144", _ll144),
    "ugesp": ("ugesp", _ugesp),
    "lending": ("lending", _lending),
    "eu": ("eu", _eu),
}
