"""What a report says, in what order: sections of lines and tables, made from the JSON form.

The text and Markdown formats draw the same layout, so they cannot say different things.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fairfix.auditing.comparisons import Comparison
from fairfix.auditing.metrics import METRICS

GROUP_METRICS = (
    "base_rate",
    "selection_rate",
    "true_positive_rate",
    "false_positive_rate",
    "positive_predictive_value",
    "accuracy",
    "auc",
    "log_loss",
    "calibration_gap",
    "scoring_rate",
    "mean_label",
    "mean_score",
    "mean_error",
    "square_loss",
    "absolute_loss",
)
"""Columns of the group table."""

CLASSIFICATION_ONLY_LOSSES = ("mean_score", "square_loss")
"""Left to the JSON form when probabilities are audited: log loss and calibration gap say the same."""

HEADLINES = {
    name: Comparison.parse(name).title
    for name in (
        "selection_rate.difference.between_groups",
        "selection_rate.ratio.between_groups",
        "selection_rate.difference.to_overall",
        "selection_rate.difference.to_reference",
        "selection_rate.ratio.to_reference",
        "selection_rate.difference.within_strata",
        "true_positive_rate.difference.between_groups",
        "true_positive_rate.ratio.between_groups",
        "equalized_odds.difference.between_groups",
        "equalized_odds.ratio.between_groups",
        "true_positive_rate.difference.within_strata",
        "equalized_odds.difference.within_strata",
        "selection_rate.difference.true_groups",
        "selection_rate.ratio.true_groups",
        "true_positive_rate.difference.true_groups",
        "equalized_odds.difference.true_groups",
        "selection_rate.difference.true_groups.worst_case",
        "true_positive_rate.difference.true_groups.worst_case",
        "equalized_odds.difference.true_groups.worst_case",
        "decision_flips.under_flips",
        "score_change.under_flips",
        "score_effect.under_flips",
        "decision_flips.under_comparable",
        "decision_flips.under_everybody",
        "matched_effect.difference.between_groups",
        "residual_effect.difference.between_groups",
        "accuracy.difference.between_groups",
        "auc.difference.between_groups",
        "mean_score.difference.between_groups",
        "mean_error.difference.between_groups",
        "log_loss.max",
        "square_loss.max",
        "scoring_rate.ratio.between_groups",
        "ks.between_groups",
        "ks.to_overall",
        "ks.within_strata",
    )
}
"""Comparisons of the short report, with their titles; ``--detail`` shows all."""

MARKS = {"pass": "PASS", "fail": "FAIL", "undecided": "UNDECIDED", "waived": "WAIVED"}


@dataclass(frozen=True)
class Grid:
    """A table: headings, rows of text, and how many leading columns are text (the others are numbers).

    ``caption`` and ``named_by``, the column that names a row, are for formats that can tell.
    """

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    text_columns: int = 1
    caption: str = ""
    named_by: int = 0

    def without_empty(self) -> Grid:
        """Return the table without the columns of numbers in which no row has anything."""
        kept = [
            i for i in range(len(self.headings)) if i < self.text_columns or any(row[i] for row in self.rows)
        ]
        return replace(
            self,
            headings=tuple(self.headings[i] for i in kept),
            rows=tuple(tuple(row[i] for i in kept) for row in self.rows),
        )


@dataclass(frozen=True)
class Section:
    """A part of a report: a title, lines of prose, tables; ``about`` is the part of the result it shows."""

    title: str
    lines: tuple[str, ...] = ()
    grids: tuple[Grid, ...] = field(default_factory=tuple)
    about: Mapping[str, Any] = field(default_factory=dict)


def show(number: float | None, digits: int = 4) -> str:
    """Return a number for reading; an undefined one as a dash."""
    if number is None:
        return "–"
    if abs(number) < 1e-12:  # rounding, not a value
        number = 0.0
    if number and (abs(number) < 10.0**-digits or abs(number) >= 1e6):
        return f"{number:.{digits - 1}g}"
    return f"{number:.{digits}f}"


def interval(value: Mapping[str, Any]) -> str:
    """Return ``value [low, high]``; open ends show as a dash, undefined values as ``undefined``."""
    if value["value"] is None:
        return "undefined"
    about = "±" + f"{value['bound']:.1g} " if value.get("bound") else ""
    return f"{show(value['value'])} {about}[{show(value['low'], 3)}, {show(value['high'], 3)}]"


def layout(result: Mapping[str, Any], *, detail: bool = False) -> Iterator[Section]:
    """Yield the sections of a result's JSON form."""
    kind = str(result["schema"]).rpartition("/")[0]
    if kind == "fairfix.repair":
        yield from _repair(result, detail=detail)
    elif kind == "fairfix.compare":
        yield from _compare(result)
    else:
        yield from _audit(result, detail=detail)


# ---------------------------------------------------------------------- audit


def _audit(result: Mapping[str, Any], *, detail: bool) -> Iterator[Section]:
    yield Section(f"fairfix audit of {result['data']['source']}", tuple(_facts(result)))
    if result["checks"]:
        yield _checks(result["checks"], result["verdict"])
    if "waivers" in result:
        yield _waivers(result["waivers"])
    if "baseline" in result:
        yield _baseline(result["baseline"])
    if "profile" in result:
        yield from _profile(result["profile"])
    for block in result["attributes"]:
        if block["groups"]:  # else the attribute is known by chances alone
            yield from _block(block, result, detail=detail)
        if result.get("noise", {}).get("attribute") == block["attribute"]:
            yield from _true_groups(result["noise"], detail=detail)
    for block in result["strata"]:
        yield from _block(block, result, detail=False)
    if result["not_computed"]:
        lines = tuple(f"{item['metric']}: {item['reason']}" for item in result["not_computed"])
        yield Section("Not computed", lines)


def _facts(result: Mapping[str, Any]) -> Iterator[str]:
    data, settings = result["data"], result["settings"]
    rows = data["rows"]
    excluded = "".join(f"; {e['rows']:,} left out: {e['reason']}" for e in rows["excluded"] if e["rows"])
    yield f"{rows['read']:,} rows read, {rows['used']:,} used{excluded}"
    inferred = data["inferred"]
    named = [
        f"{part} {', '.join(name) if isinstance(name, list) else name}"
        + (" (inferred)" if part in inferred else "")
        for part, name in data["columns"].items()
    ]
    yield "columns: " + "; ".join(named)
    if data["model"]:
        yield f"scores from the model {data['model']['file']} ({data['model']['sha256']})"
    if settings["threshold"] is not None:
        yield f"a decision is positive at score >= {settings['threshold']:g} (scale: {settings['score_scale']})"
    elif "probability" in data["columns"]:
        yield "decisions are random; every rate is its expectation over the randomisation"
    yield (
        f"{settings['confidence']:.0%} intervals, simultaneous over the groups compared; "
        "an undefined value is never counted as 0"
    )
    if "suppressed" in result:
        found = result["suppressed"]
        yield (
            f"groups with fewer than {found['below']:,} rows are hidden, and others so that these cannot be computed: "
            f"{found['groups']:,} groups in all tables together"
        )
        for name in found["left_out"]:
            yield f"{name} is left out: too few of its groups can be shown"


def _checks(checks: Sequence[Mapping[str, Any]], verdict: str | None) -> Section:
    rows = tuple(
        (MARKS[c["verdict"]], c["check"], c["attribute"], interval(c), ", ".join(c["groups"]), c["reason"])
        for c in checks
    )
    title = f"Checks: {MARKS[verdict or 'pass']}"
    return Section(
        title,
        (),
        (Grid(("verdict", "fails if", "attribute", "value", "groups", "why"), rows, 6, "Checks", 1),),
        {"checks": checks},
    )


def _waivers(found: Mapping[str, Any]) -> Section:
    rows = tuple(
        (
            one["check"] + (f" up to {one['limit']:g}" if "limit" in one else ""),
            one["expires"],
            STATES[one["state"]],
            one["reason"],
        )
        for one in found["waivers"]
    )
    return Section(
        "Waivers",
        (f"judged on {found['today']}",),
        (Grid(("waiver of", "until", "what it does", "reason"), rows, 4, "Waivers"),),
    )


STATES = {
    "used": "waives a check",
    "not needed": "is not needed: the check passes without it",
    "expired": "has expired and waives nothing",
    "exceeded": "waives nothing: a check is not within its limit",
    "matches nothing": "matches no check",
}
"""What a waiver does, in words."""


def _baseline(found: Mapping[str, Any]) -> Section:
    rows = []
    for one in found["changes"]:
        name, where = one["comparison"], one["attribute"]
        if "group" in one:
            where = f"{where}={one['group']}"
        told = "undefined" if one["value"] is None else _signed(one)
        rows.append(
            (HEADLINES.get(name, name), where, interval(one["old"]), interval(one["new"]), told, _worse(one))
        )
    lines = [
        *_compared(found),
        *(f"not comparable: {one['id']}: {one['reason']}" for one in found["not_comparable"]),
    ]
    headings = ("comparison", "attribute", "baseline", "now", "change [interval]", "is")
    grids = (Grid(headings, tuple(rows), 6, "Changes since the baseline"),) if rows else ()
    return Section("Change since the baseline", tuple(lines), grids)


def _compared(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield which rows are compared, and what is not paired."""
    about = f"{found['source']}, {found['rows']:,} rows"
    if "paired" not in found:
        yield f"{about}; the two audits are taken as independent samples"
        return
    match = found["paired"]
    yield f"{about} that are in both, matched by {match['id']}; both columns and the change are of these rows"
    yield (
        f"left aside: {match['only_in_baseline']:,} rows only in the baseline, {match['only_now']:,} only now, "
        f"{match['other_group']:,} with another group in each"
    )
    apart: dict[str, list[str]] = {}
    for one in found["changes"]:
        if "not_paired" in one:
            apart.setdefault(one["not_paired"], []).append(one["id"])
    for reason, names in apart.items():
        yield f"not paired, so with the interval of independent samples: {', '.join(names)} ({reason})"


def _signed(one: Mapping[str, Any], digits: int = 3) -> str:
    """Return a change with its interval, each with its sign; ``digits`` are those of the interval."""
    low, high = ("–" if one[end] is None else f"{one[end] + 0.0:+.{digits}f}" for end in ("low", "high"))
    return f"{one['value'] + 0.0:+.4f} [{low}, {high}]"


def _worse(one: Mapping[str, Any]) -> str:
    """Return whether a change is for the worse, beyond chance."""
    if one["worse"] is None or one["value"] is None:
        return ""
    low, high = one["low"], one["high"]
    up, down = low is not None and low > 0, high is not None and high < 0
    if not (up or down):
        return "not certain"
    return "worse" if up == (one["worse"] == "larger") else "better"


def _profile(found: Mapping[str, Any]) -> Iterator[Section]:
    yield Section(found["title"], tuple(found["lines"]))
    for table in found["tables"]:
        columns = table["columns"]
        rows = tuple(tuple(_told(row[c["name"]], c["kind"]) for c in columns) for row in table["rows"])
        if columns[-1]["name"] == "note":  # numbers first, words at the ends
            rows = tuple((row[0], row[-1], *row[1:-1]) for row in rows)
            columns = [columns[0], columns[-1], *columns[1:-1]]
        texts = sum(c["kind"] == "text" for c in columns)
        grid = Grid(tuple(c["title"] for c in columns), rows, texts, table["title"])
        yield Section(f"{found['name']}: {table['title']}", (), (grid,))


def _told(value: Any, kind: str) -> str:
    """Return a cell of a profile's table."""
    if kind == "text":
        return str(value or "")
    if value is None:
        return "–"
    if kind == "value":
        return interval(value)
    if kind == "count":
        return f"{value:,.0f}"
    if kind == "p" and value < LEAST_P:
        return f"<{LEAST_P:g}"
    return f"{value:.1%}" if kind == "rate" else show(value, 3 if kind == "ratio" else 4)


LEAST_P = 1e-12
"""Below, a probability of chance is told as smaller: it is none that is 0."""


def _block(block: Mapping[str, Any], result: Mapping[str, Any], *, detail: bool) -> Iterator[Section]:
    lines = tuple(
        f"{group['group']}: {name} is undefined: {value['reason']}"
        for group in block["groups"]
        for name, value in group["metrics"].items()
        if value["value"] is None and value.get("reason")
    )
    if block.get("hidden"):
        many = "1 group is" if block["hidden"] == 1 else f"{block['hidden']:,} groups are"
        lines = (f"{many} hidden; comparisons are among the groups shown, also those to overall", *lines)
    yield Section(_where(block), lines, (_groups(block, result), _comparisons(block, detail=detail)), block)


def _where(block: Mapping[str, Any]) -> str:
    attribute = str(block["attribute"])
    return f"{attribute} within {block['stratum']}" if "stratum" in block else attribute


def group_metrics(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the metrics of the group table, with their headings."""
    regression = result["settings"]["task"] == "regression"
    present = set(result["overall"]["metrics"])
    return [
        (name, METRICS[name].title)
        for name in GROUP_METRICS
        if name in present
        and (regression or name not in CLASSIFICATION_ONLY_LOSSES or "log_loss" not in present)
    ]


def _groups(block: Mapping[str, Any], result: Mapping[str, Any]) -> Grid:
    chosen = group_metrics(result)
    everybody = [] if "stratum" in block else [result["overall"]]
    rows = tuple(
        (
            group["group"],
            f"{group['rows']:,}",
            f"{group['share']:.1%}",
            *(show(group["metrics"][name]["value"]) for name, _ in chosen),
        )
        for group in (*block["groups"], *everybody)
    )
    return Grid(
        ("group", "rows", "share", *(title for _, title in chosen)),
        rows,
        caption=f"Groups of {_where(block)}",
    )


def _comparisons(block: Mapping[str, Any], *, detail: bool) -> Grid:
    found = {c["id"]: c for c in block["comparisons"]}
    chosen = (
        [(c, c) for c in found]
        if detail
        else [(name, title) for name, title in HEADLINES.items() if name in found]
    )
    rows = tuple((title, interval(found[name]), _who(found[name])) for name, title in chosen)
    return Grid(("comparison", "value [interval]", "between"), rows, 3, f"Comparisons of {_where(block)}")


def _who(found: Mapping[str, Any]) -> str:
    if found["value"] is None:
        return str(found.get("reason", ""))
    text = " / ".join(found["groups"])
    if found.get("stratum"):
        text += f" in {found['stratum']}"
    if found.get("at_score") is not None:
        text += f", at score {found['at_score']:.4g}"
    return text + (f" ({found['reason']})" if found.get("reason") else "")


# ---------------------------------------------------------------------- true groups

TITLES = {
    name: Comparison.parse(name).title
    for name in (
        *GROUP_METRICS,
        "selection_rate.difference",
        "selection_rate.ratio",
        "true_positive_rate.difference",
        "false_positive_rate.difference",
        "equalized_odds.difference",
        "accuracy.difference",
        "positive_predictive_value.difference",
    )
}
"""Figures of true groups that the short report shows, with their titles."""

OUTNUMBERED = {"true_positive_rate": "y = 0", "false_positive_rate": "y = 1"}
"""Rates of which noise may say nothing, and the rows that then outnumber those they are of."""

TABLE_WORDS = {
    "count": "{rows:,} rows counted",
    "joint": "joint probabilities",
    "true-given-noisy": "P(true | noisy)",
    "noisy-given-true": "P(noisy | true)",
}


def _true_groups(noise: Mapping[str, Any], *, detail: bool) -> Iterator[Section]:
    """Yield what is told of the groups behind noisy ones."""
    figures = [(g["group"], f) for g in noise["groups"] for f in g["figures"]]
    figures += [("", f) for f in noise["comparisons"] if detail or f["name"] in TITLES]
    figures.sort(key=lambda pair: pair[0] != "")
    levels = sorted({level for _, f in figures for level in f["bounds"]} - {"N4"})
    stated = "N4" in noise["assumptions"]
    rows = tuple(_true_row(group, f, noise["rests_on"], levels, stated=stated) for group, f in figures)
    headings = ("figure", "true group", "recorded", "weighted", *(("N4 (se)",) if stated else ()))
    worst = tuple(f"worst case {level}" for level in levels)
    headings = (*headings, "naive", *worst, f"{noise['rests_on']} with sampling error")
    title = f"True groups behind {noise['attribute']}"
    if "membership" in noise:  # nothing was recorded
        title = "True groups by probabilities of membership"
        leave = [i for i, name in enumerate(headings) if name not in ("recorded", "naive", "N4 (se)")]
        headings, rows = (tuple(headings[i] for i in leave), tuple(tuple(r[i] for i in leave) for r in rows))
    grids = [Grid(headings, rows, 2, title)]
    curves = [(group, f) for group, f in figures if f.get("curve") and (detail or not group)]
    if curves:
        eps = [point["eps"] for point in curves[0][1]["curve"]]
        table = tuple(
            (
                TITLES.get(f["name"], f["name"]),
                group or "all",
                *(between(p["low"], p["high"], "refuted") for p in f["curve"]),
                _up_to(f.get("certain_up_to"), "never") if "certain_up_to" in f else "",
            )
            for group, f in curves
        )
        headings = ("figure", "true group", *(f"eps {e:g}" for e in eps), "a gap is certain up to eps")
        grids.append(Grid(headings, table, 2, "If noise depends on outcomes by at most eps (N3)"))
    if noise["breakdown"]:
        table = tuple(
            (
                b["check"],
                _up_to(b["holds_up_to"], "not certain at any"),
                _up_to(b["fails_up_to"], "not certain at any"),
            )
            for b in noise["breakdown"]
        )
        headings = ("fails if", "kept by true groups up to eps", "broken by true groups up to eps")
        grids.append(Grid(headings, table, 1, "Breakdown points of the limits"))
    yield Section(title, tuple(_noise_facts(noise)), tuple(grids), {"true_groups": noise})


def _true_row(
    group: str, figure: Mapping[str, Any], rests_on: str, levels: Sequence[str], *, stated: bool
) -> tuple[str, ...]:
    bounds, name = figure["bounds"], figure["name"]
    outer = bounds.get(rests_on)
    told = []
    if stated:
        error = f" ({show(figure['standard_error'], 3)})" if figure.get("standard_error") is not None else ""
        told.append(show(figure.get("identified")) + error)
    return (
        TITLES.get(name, name),
        group or "all",
        show(figure["recorded"]),
        show(figure["weighted"]),
        *told,
        between(*figure["naive"]) if "naive" in figure else "–",
        *(between(bounds[v]["low"], bounds[v]["high"]) if v in bounds else "–" for v in levels),
        "–" if outer is None else between(outer["outer_low"], outer["outer_high"]),
    )


def between(low: float | None, high: float | None, without: str = "undefined") -> str:
    """Return a range for reading."""
    return without if low is None else f"[{show(low, 3)}, {show(high, 3)}]"


def _up_to(eps: float | None, never: str) -> str:
    return never if eps is None else "1 (whatever the noise)" if eps >= 1 else show(eps)


def _noise_facts(noise: Mapping[str, Any]) -> Iterator[str]:
    rests = noise["rests_on"]
    yield f"what is gated rests on {rests}: {noise['assumptions'][rests]}"
    yield from (f"{name}: {told}" for name, told in noise["assumptions"].items() if name != rests)
    yield from (_membership_facts if "membership" in noise else _table_facts)(noise)
    drawn = noise["resampling"]
    if drawn["replicates"]:
        yield f"sampling error by {drawn['replicates']:,} draws (seed {drawn['seed']}), each figure by itself"
    else:
        yield "sampling error by limits for means, each figure by itself"
    yield from noise["notes"]


def _carried(kept: str) -> str:
    """Return in words what of a noise table holds for the data."""
    if kept == "either":
        return "carried over with P(true | noisy) or with P(noisy | true) as it is, whichever is worse"
    return f"carried over with P({kept.replace('-given-', ' | ')}) as it is"


def _table_facts(noise: Mapping[str, Any]) -> Iterator[str]:
    table = noise["table"]
    if table["values"]:
        kind = TABLE_WORDS[table["values"]].format(rows=table["rows"] or 0)
        yield f"noise by {noise['source']}: {kind}{', by label' if table['by_label'] else ''}"
    if table["shift"] is not None:
        yield f"recorded groups of table and data: total variation {show(table['shift'])}; {_carried(table['kept'])}"
    elif table["values"]:
        yield _carried(table["kept"])
    if table["transport_difference"] and table["kept"] != "either":
        other = {"true-given-noisy": "P(noisy | true)", "noisy-given-true": "P(true | noisy)"}[table["kept"]]
        by = "N2" if table["by_label"] else "N1"
        yield f"the other way, with {other} as it is, {by} would say: " + "; ".join(
            f"{TITLES[f['name']]} {between(*f['other_transport'])}"
            for f in noise["comparisons"]
            if f["name"] in TITLES and "other_transport" in f
        )
    if noise["radii"]:
        yield "radii of N0: " + ", ".join(f"{r['group']} {show(r['radius'])}" for r in noise["radii"])
    for item in noise["vacuous"]:
        name, other = TITLES[item["metric"]], OUTNUMBERED[item["metric"]]
        yield (
            f"the table without labels says nothing of the {name} of {item['group']}, whatever the decisions are: in "
            f"every recorded group there are at least as many rows with {other} as rows of {item['group']}"
        )
    yield (
        "recorded: of the recorded groups; weighted: each row counted by its chance to be in the true group; naive: "
        "recorded give or take the share recorded wrongly, which is no bound"
    )


def _membership_facts(noise: Mapping[str, Any]) -> Iterator[str]:
    found = noise["membership"]
    yield "probabilities of membership: " + ", ".join(
        (group["group"] if group["group"] == group["column"] else f"{group['group']} in {group['column']}")
        + f" ({group['share']:.1%} of the data)"
        for group in found["groups"]
    )
    for item in noise["vacuous"]:
        name, other = TITLES[item["metric"]], OUTNUMBERED[item["metric"]]
        yield (
            f"the probabilities say nothing of the {name} of {item['group']}, whatever the decisions are: in every bin "
            f"there are at least as many rows with {other} as rows of {item['group']}"
        )
    yield (
        "weighted: each row counted in each group by its probability, which is the rate if N4 holds; worst case: among "
        "rows with the same probabilities, who is of which group can be anything"
    )


# ---------------------------------------------------------------------- repair


def _repair(result: Mapping[str, Any], *, detail: bool) -> Iterator[Section]:
    yield Section(
        f"fairfix repair of {result['data']['source']} by {result['method']}", tuple(_repair_facts(result))
    )
    if result["checks"]:
        yield _checks(result["checks"], result["verdict"])
    if "waivers" in result:
        yield _waivers(result["waivers"])
    for part, title in (("holdout", "Proof on held-out rows"), ("fit", "On the rows it was fitted on")):
        proof = result["proof"].get(part)
        if proof:
            notes = [
                f"{r['name']}: {r['after']['reason']}" for r in proof["table"] if r["after"].get("reason")
            ]
            head = f"{proof['rows']:,} rows; {proof['randomized']:.2%} of the results hang on chance"
            reading = f": {READINGS[proof['reading']]}" if "other" in proof else ""
            yield Section(
                title + reading,
                (head, *_noise(proof), *notes),
                (_before_and_after(proof["table"]),),
                proof,
            )
        if proof and "other" in proof:
            other = "rounded" if proof["reading"] == "drawn" else "drawn"
            yield Section(f"{title}: {READINGS[other]} instead", (), (_before_and_after(proof["other"]),))
    if detail and "solution" in result:
        yield _solution(result["solution"])
    if result["selection"]:
        tried = tuple(
            (s["parameters"], show(s["score"]), "chosen" if s["chosen"] else "") for s in result["selection"]
        )
        yield Section(
            "Selection on the validation part",
            (),
            (Grid(("parameters", "score", ""), tried, caption="Candidates"),),
        )


def _solution(found: Mapping[str, Any]) -> Section:
    """Return how the fit went: what is proven of it, and what the solver found."""
    rows = tuple(
        (one.get("group", ""), one["name"], exact(one["value"]), one["meaning"])
        for one in found["quantities"]
    )
    grids = (Grid(("group", "number", "value", "what it is"), rows, 4, "Numbers of the fit", 1),)
    return Section("How the fit went", tuple(solution_facts(found)), grids if rows else ())


def solution_facts(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield how a solver stopped, and what is proven of what it left."""
    how = "reached its tolerance" if found["converged"] else "stopped before its tolerance"
    yield f"the solver {how} ({found['iterations']:,} steps); objective {exact(found['objective'])}"
    if found["certificates"]:
        yield from (f"certified: {one['says']}" for one in found["certificates"])
    elif found["gap"] is not None:
        yield f"gap of the objective, as the solver has it: {exact(found['gap'])}"
    else:
        yield "no bound on the least objective is known, so nothing is certified"


def exact(number: float | None) -> str:
    """Return a number of a solver for reading, to six digits whatever its size; an unknown one as a dash."""
    return "–" if number is None else f"{number:.6g}"


READINGS = {
    "drawn": "decisions drawn with the probability, as expected",
    "rounded": "decisions rounded at the threshold",
}
"""The two ways to decide with a probability."""


def _before_and_after(table: Sequence[Mapping[str, Any]]) -> Grid:
    also = [(key, title) for key, title in BESIDE.items() if any(key in r for r in table)]
    rows = tuple(
        (
            r["name"],
            interval(r["before"]),
            interval(r["after"]),
            _change(r),
            *(f"{r[key]:.4f}" if key in r else "–" for key, _ in also),
        )
        for r in table
    )
    titles = ("metric", "before", "after", "change", *(title for _, title in also))
    return Grid(titles, rows, caption="Before and after")


BESIDE = {"delivered": "as drawn", "expected": "expected"}
"""What stands beside numbers of drawn results: decisions as they are drawn, or what is expected of drawn values."""


def _noise(proof: Mapping[str, Any]) -> Iterator[str]:
    """Yield what chance alone makes of the distance to everybody, which no repair can go below on so many rows."""
    for one in proof.get("noise", ()):
        yield (
            f"ks.to_overall [{one['attribute']}]: {show(one['mean'])} on average, up to {show(one['upper'])} in 19 of "
            "20 samples of so many rows, if the groups were exactly alike"
        )


def _change(row: Mapping[str, Any]) -> str:
    before, after = row["before"]["value"], row["after"]["value"]
    if before is None or after is None:
        return "–"
    change = row.get("change")
    if change is None or (change["low"] is None and change["high"] is None):
        return f"{after - before:+.4f}"
    return _signed(change, 4)


def _repair_facts(result: Mapping[str, Any]) -> Iterator[str]:
    rows = result["data"]["rows"]
    split = result["split"]
    yield (
        f"{rows['read']:,} rows read, {rows['used']:,} used: {split['fit']:,} to fit, "
        f"{split['validation']:,} to select, {split['holdout']:,} held out (seed {result['seed']})"
    )
    set_ = ((name, value) for name, value in result["parameters"].items() if value != "")
    yield "parameters: " + ", ".join(f"{name} {value}" for name, value in set_)
    if result.get("does_not_count"):
        yield f"what does not count: {result['does_not_count']}"
    columns = result["requires"]["columns"]
    yield "needed at predict time: " + ", ".join(columns)
    if result["requires"]["protected_at_predict"]:
        yield "the protected attribute is needed at predict time; whether the law allows that is for you to find out"
    if result.get("artifact"):
        yield f"written to {result['artifact']['file']} ({result['artifact']['sha256']})"
    for warning in result["warnings"]:
        yield f"warning: {warning}"
    yield from (f"note: {note}" for note in result.get("notes", ()))


# ---------------------------------------------------------------------- comparison


def _compare(result: Mapping[str, Any]) -> Iterator[Section]:
    rows, split = result["data"]["rows"], result["split"]
    seed = result["settings"]["seed"]
    used = f"{rows['read']:,} rows read, {rows['used']:,} used"
    facts = [
        f"{used}: {split['fit']:,} to fit, {split['holdout']:,} held out (seed {seed})",
        "all numbers are of held-out rows; * marks the frontier: no other point has a smaller gap and better quality",
    ]
    for contender in result["contenders"]:
        told = ", ".join(f"{name} {value}" for name, value in contender["parameters"].items() if value != "")
        facts.append(f"{contender['title']}: {told}")
    noise = result["settings"].get("noise")
    if noise:
        facts.append(
            f"worst cases of true groups are over any noise that fits {noise['table']} ({noise['assumption']}), with "
            "an upper limit; all else is by recorded group"
        )
    yield Section(f"fairfix comparison on {result['data']['source']}", tuple(facts))
    points = [point for point in result["points"] if "failure" not in point]
    gaps = list(dict.fromkeys(name for point in points for name in point["gaps"]))
    qualities = list(dict.fromkeys(name for point in points for name in point["qualities"]))
    for gap in gaps:
        chosen = [point for point in points if gap in point["gaps"]]
        shown = [name for name in qualities if any(name in point["qualities"] for point in chosen)]
        table = tuple(_point_row(point, gap, shown) for point in chosen)
        yield Section(
            gap, (), (Grid(("method", "slack", "gap", *shown, "random", "uses group"), table, 2, gap),)
        )
    failed = [f"{p['title']}, slack {p['slack']}: {p['failure']}" for p in result["points"] if "failure" in p]
    said = [f"{p['title']}, slack {p['slack']}: {note}" for p in points for note in p["notes"]]
    if failed or said:
        yield Section("Notes", tuple(dict.fromkeys((*failed, *said))))


def _point_row(point: Mapping[str, Any], gap: str, qualities: Sequence[str]) -> tuple[str, ...]:
    values = []
    for name in qualities:
        value = point["qualities"].get(name)
        mark = "*" if f"{gap}|{name}" in point["front"] else ""
        values.append("" if value is None else interval(value) + mark)
    slack = "" if point["slack"] is None else str(point["slack"])
    return (
        point["title"],
        slack,
        interval(point["gaps"][gap]),
        *values,
        f"{point['randomized']:.1%}",
        "yes" if point["protected_at_predict"] else "no",
    )
