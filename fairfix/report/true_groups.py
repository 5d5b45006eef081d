"""The section of an audit on the groups behind noisy ones: estimates, worst cases and breakdown points."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fairfix.auditing.comparisons import Comparison
from fairfix.report.layout import GROUP_METRICS, Grid, Json, Section, between, show

_COMPARISONS = (
    *("selection_rate.difference", "selection_rate.ratio", "true_positive_rate.difference"),
    *("false_positive_rate.difference", "equalized_odds.difference", "accuracy.difference"),
    "positive_predictive_value.difference",
)
TITLES = {name: Comparison.parse(name).title for name in (*GROUP_METRICS, *_COMPARISONS)}
"""Figures of true groups that the short report shows, with their titles."""

OUTNUMBERED = {"true_positive_rate": "y = 0", "false_positive_rate": "y = 1"}
"""Rates of which noise may say nothing, and the rows that then outnumber those they are of."""

TABLE_WORDS = {
    "count": "{rows:,} rows counted",
    "joint": "joint probabilities",
    "true-given-noisy": "P(true | noisy)",
    "noisy-given-true": "P(noisy | true)",
}

Column = tuple[str, Callable[[str, Json], str]]
"""A heading, and the cell for a true group and a figure of it."""


def true_groups(noise: Json, *, detail: bool) -> Section:
    """Return the section: figures, what outcome-dependent noise does to them, and breakdown points of the limits."""
    figures = [("", f) for f in noise["comparisons"] if detail or f["name"] in TITLES]
    figures += [(g["group"], f) for g in noise["groups"] for f in g["figures"]]
    recorded = "membership" not in noise
    title = (
        f"True groups behind {noise['attribute']}"
        if recorded
        else "True groups by probabilities of membership"
    )
    grids = [_grid(_columns(noise, figures, recorded=recorded), figures, title)]
    curves = [(group, f) for group, f in figures if f.get("curve") and (detail or not group)]
    if curves:
        grids.append(
            _grid(_curve_columns(curves[0][1]), curves, "If noise depends on outcomes by at most eps (N3)")
        )
    if noise["breakdown"]:
        rows = tuple(
            (b["check"], *(_up_to(b[end], "not certain at any") for end in ("holds_up_to", "fails_up_to")))
            for b in noise["breakdown"]
        )
        headings = ("fails if", "kept by true groups up to eps", "broken by true groups up to eps")
        grids.append(Grid(headings, rows, 1, "Breakdown points of the limits"))
    return Section(title, tuple(_facts(noise)), tuple(grids), "true groups", noise)


def _grid(columns: list[Column], figures: list[tuple[str, Json]], caption: str) -> Grid:
    columns = [
        ("figure", lambda _, f: str(TITLES.get(f["name"], f["name"]))),
        ("true group", lambda group, _: group or "all"),
        *columns,
    ]
    rows = tuple(tuple(cell(group, f) for _, cell in columns) for group, f in figures)
    return Grid(tuple(heading for heading, _ in columns), rows, 2, caption)


def _columns(noise: Json, figures: list[tuple[str, Json]], *, recorded: bool) -> list[Column]:
    """Return the columns of figures; where nothing was recorded, no number hangs on what was."""
    rests_on = noise["rests_on"]

    def worst(level: str) -> Column:
        return f"worst case {level}", lambda _, f: _range(f, level, "low", "high")

    columns: list[Column] = [("weighted", lambda _, f: show(f["weighted"]))]
    if recorded:
        columns.insert(0, ("recorded", lambda _, f: show(f["recorded"])))
        columns += [("N4 (se)", _identified)] if "N4" in noise["assumptions"] else []
        columns.append(("naive", lambda _, f: between(*f["naive"]) if "naive" in f else "–"))
    columns += [worst(level) for level in sorted({v for _, f in figures for v in f["bounds"]} - {"N4"})]
    outer: Column = (
        f"{rests_on} with sampling error",
        lambda _, f: _range(f, rests_on, "outer_low", "outer_high"),
    )
    return [*columns, outer]


def _identified(_: str, figure: Json) -> str:
    error = figure.get("standard_error")
    return show(figure.get("identified")) + ("" if error is None else f" ({show(error, 3)})")


def _range(figure: Json, level: str, low: str, high: str) -> str:
    bound = figure["bounds"].get(level)
    return "–" if bound is None else between(bound[low], bound[high])


def _curve_columns(first: Json) -> list[Column]:
    """Return a column per eps, and up to which the sign of a gap is certain."""

    def at(i: int, eps: float) -> Column:
        return f"eps {eps:g}", lambda _, f: between(f["curve"][i]["low"], f["curve"][i]["high"], "refuted")

    def certain(_: str, figure: Json) -> str:
        return _up_to(figure["certain_up_to"], "never") if "certain_up_to" in figure else ""

    columns: list[Column] = [at(i, point["eps"]) for i, point in enumerate(first["curve"])]
    return [*columns, ("a gap is certain up to eps", certain)]


def _up_to(eps: float | None, never: str) -> str:
    return never if eps is None else "1 (whatever the noise)" if eps >= 1 else show(eps)


# ---------------------------------------------------------------------- facts


def _facts(noise: Json) -> Iterator[str]:
    rests = noise["rests_on"]
    yield f"what is gated rests on {rests}: {noise['assumptions'][rests]}"
    yield from (f"{name}: {text}" for name, text in noise["assumptions"].items() if name != rests)
    yield from (_membership_facts if "membership" in noise else _table_facts)(noise)
    drawn = noise["resampling"]
    if drawn["replicates"]:
        yield f"sampling error by {drawn['replicates']:,} draws (seed {drawn['seed']}), each figure by itself"
    else:
        yield "sampling error by limits for means, each figure by itself"
    yield from noise["notes"]


def _table_facts(noise: Json) -> Iterator[str]:
    table = noise["table"]
    if table["values"]:
        kind = TABLE_WORDS[table["values"]].format(rows=table["rows"] or 0)
        yield f"noise by {noise['source']}: {kind}{', by label' if table['by_label'] else ''}"
    if table["shift"] is not None:
        yield f"recorded groups of table and data: total variation {show(table['shift'])}; {_carried(table['kept'])}"
    elif table["values"]:
        yield _carried(table["kept"])
    if table["transport_difference"] and table["kept"] != "either":
        (other,) = {"true-given-noisy", "noisy-given-true"} - {table["kept"]}
        by = "N2" if table["by_label"] else "N1"
        yield f"the other way, with {TABLE_WORDS[other]} as it is, {by} would say: " + "; ".join(
            f"{TITLES[f['name']]} {between(*f['other_transport'])}"
            for f in noise["comparisons"]
            if f["name"] in TITLES and "other_transport" in f
        )
    if noise["radii"]:
        yield "radii of N0: " + ", ".join(f"{r['group']} {show(r['radius'])}" for r in noise["radii"])
    yield from _vacuous(noise, "the table without labels says nothing", "recorded group")
    yield (
        "recorded: of the recorded groups; weighted: each row counted by its chance to be in the true group; naive: "
        "recorded give or take the share recorded wrongly, which is no bound"
    )


def _carried(kept: str) -> str:
    """Return in words what of a noise table holds for the data."""
    if kept == "either":
        return "carried over with P(true | noisy) or with P(noisy | true) as it is, whichever is worse"
    return f"carried over with {TABLE_WORDS[kept]} as it is"


def _membership_facts(noise: Json) -> Iterator[str]:
    yield "probabilities of membership: " + ", ".join(
        (group["group"] if group["group"] == group["column"] else f"{group['group']} in {group['column']}")
        + f" ({group['share']:.1%} of the data)"
        for group in noise["membership"]["groups"]
    )
    yield from _vacuous(noise, "the probabilities say nothing", "bin")
    yield (
        "weighted: each row counted in each group by its probability, which is the rate if N4 holds; worst case: among "
        "rows with the same probabilities, who is of which group can be anything"
    )


def _vacuous(noise: Json, nothing: str, part: str) -> Iterator[str]:
    """Yield which rates the noise leaves open, and why."""
    for item in noise["vacuous"]:
        name, other = TITLES[item["metric"]], OUTNUMBERED[item["metric"]]
        yield (
            f"{nothing} of the {name} of {item['group']}, whatever the decisions are: in every {part} there are at "
            f"least as many rows with {other} as rows of {item['group']}"
        )
