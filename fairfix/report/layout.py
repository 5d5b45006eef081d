"""What a report says, in what order: sections of lines and tables, made from the JSON form.

Text, Markdown and HTML draw one layout, so they cannot say different things. Here are the parts that all results share,
repairs and comparisons; :mod:`fairfix.report.audits` has the sections of an audit,
:mod:`fairfix.report.true_groups` those of noisy groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from fairfix.auditing.comparisons import Comparison
from fairfix.auditing.metrics import ADDED, METRICS

Json = Mapping[str, Any]
Columns = Mapping[str, str | Callable[[Any], str]]
"""Heading -> the key of an item's cell, or a function of the item."""

GROUP_METRICS = (
    *(
        "base_rate",
        "selection_rate",
        "true_positive_rate",
        "false_positive_rate",
        "positive_predictive_value",
    ),
    *(
        "accuracy",
        "auc",
        "log_loss",
        "calibration_gap",
        "scoring_rate",
        "mean_label",
        "mean_score",
        "mean_error",
    ),
    *("square_loss", "absolute_loss"),
)
"""Columns of the group table."""

_USUAL = """
selection_rate.difference.between_groups selection_rate.ratio.between_groups
selection_rate.difference.to_overall
selection_rate.difference.to_reference selection_rate.ratio.to_reference
selection_rate.difference.within_strata
true_positive_rate.difference.between_groups true_positive_rate.ratio.between_groups
equalized_odds.difference.between_groups equalized_odds.ratio.between_groups
true_positive_rate.difference.within_strata equalized_odds.difference.within_strata
selection_rate.difference.true_groups selection_rate.ratio.true_groups
true_positive_rate.difference.true_groups equalized_odds.difference.true_groups
selection_rate.difference.true_groups.worst_case true_positive_rate.difference.true_groups.worst_case
equalized_odds.difference.true_groups.worst_case
decision_flips.under_flips score_change.under_flips score_effect.under_flips
decision_flips.under_comparable decision_flips.under_everybody
matched_effect.difference.between_groups residual_effect.difference.between_groups
accuracy.difference.between_groups auc.difference.between_groups
mean_score.difference.between_groups mean_error.difference.between_groups
log_loss.max square_loss.max scoring_rate.ratio.between_groups
ks.between_groups ks.to_overall ks.within_strata
"""


class Headlines(Mapping[str, str]):
    """Comparison of the short tables -> its title; metrics of one's own have one by how far groups are apart."""

    def __init__(self, names: Sequence[str]) -> None:
        self._titles = {name: Comparison.parse(name).title for name in names}

    def __getitem__(self, name: str) -> str:
        return self._titles[name] if name in self._titles else self._own()[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._titles
        yield from self._own()

    def __len__(self) -> int:
        return len(self._titles) + len(self._own())

    def _own(self) -> dict[str, str]:
        own = (Comparison(name, "difference", "between_groups") for name in ADDED.get())
        return {one.id: one.title for one in own}


HEADLINES = Headlines(_USUAL.split())
"""Comparisons of the short report, with their titles; ``--detail`` shows all."""

MARKS = {"pass": "PASS", "fail": "FAIL", "undecided": "UNDECIDED", "waived": "WAIVED"}
"""Verdicts as all formats write them."""

STATES = {
    "used": "waives a check",
    "not needed": "is not needed: the check passes without it",
    "expired": "has expired and waives nothing",
    "exceeded": "waives nothing: a check is not within its limit",
    "matches nothing": "matches no check",
}
"""What a waiver does, in words."""


class Verdict(str):
    """A cell that holds a verdict; ``code`` is the verdict in the JSON form."""

    __slots__ = ("code",)
    code: str

    def __new__(cls, code: str) -> Verdict:
        """Return the verdict as it is written."""
        cell = super().__new__(cls, MARKS[code])
        cell.code = code
        return cell


class Interval(str):
    """A cell that holds a number with its interval, which stay in one line."""

    __slots__ = ()


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

    @classmethod
    def of(
        cls, columns: Columns, items: Iterable[Any], text_columns: int, caption: str, named_by: int = 0
    ) -> Grid:
        """Return the table with a row per item."""
        cells = [itemgetter(cell) if isinstance(cell, str) else cell for cell in columns.values()]
        rows = tuple(tuple(cell(item) for cell in cells) for item in items)
        return cls(tuple(columns), rows, text_columns, caption, named_by)


@dataclass(frozen=True)
class Section:
    """A part of a report: a title, lines of prose, tables; ``about`` is the part of the result it shows, of a kind."""

    title: str
    lines: tuple[str, ...] = ()
    grids: tuple[Grid, ...] = ()
    kind: str = ""
    about: Json = field(default_factory=dict)


# ---------------------------------------------------------------------- numbers and names


def show(number: float | None, digits: int = 4) -> str:
    """Return a number for reading; an undefined one as a dash."""
    if number is None:
        return "–"
    if abs(number) < 1e-12:  # rounding, not a value
        number = 0.0
    if number and (abs(number) < 10.0**-digits or abs(number) >= 1e6):
        return f"{number:.{digits - 1}g}"
    return f"{number:.{digits}f}"


def interval(value: Json) -> str:
    """Return ``value [low, high]``; open ends show as a dash, undefined values as ``undefined``."""
    if value["value"] is None:
        return "undefined"
    about = "±" + f"{value['bound']:.1g} " if value.get("bound") else ""
    return Interval(f"{show(value['value'])} {about}[{show(value['low'], 3)}, {show(value['high'], 3)}]")


def between(low: float | None, high: float | None, without: str = "undefined") -> str:
    """Return a range for reading."""
    return without if low is None else f"[{show(low, 3)}, {show(high, 3)}]"


def signed(change: Json, digits: int = 3) -> str:
    """Return a change with its interval, each with its sign; ``digits`` are those of the interval."""
    low, high = (
        "–" if change[end] is None else f"{change[end] + 0.0:+.{digits}f}" for end in ("low", "high")
    )
    return Interval(f"{change['value'] + 0.0:+.4f} [{low}, {high}]")


def exact(number: float | None) -> str:
    """Return a number of a solver for reading, to six digits whatever its size; an unknown one as a dash."""
    return "–" if number is None else f"{number:.6g}"


def parted(name: str) -> tuple[str, str]:
    """Return identifier and attribute of a key such as ``ks.to_overall [race]``; an attribute keeps its brackets."""
    identifier, _, attribute = name.partition(" ")
    return identifier, attribute


def titled(name: str) -> str:
    """Return the words for a metric or a usual comparison, with its attribute where the name has one."""
    identifier, attribute = parted(name)
    title = (
        METRICS[identifier].title if identifier in GROUP_METRICS else HEADLINES.get(identifier, identifier)
    )
    return f"{title} {attribute}" if attribute else title


# ---------------------------------------------------------------------- sections


def kind_of(result: Json) -> str:
    """Return ``audit``, ``repair`` or ``compare``."""
    return str(result["schema"]).rpartition("/")[0].removeprefix("fairfix.")


def layout(result: Json, *, detail: bool = False) -> Iterator[Section]:
    """Yield the sections of a result's JSON form."""
    from fairfix.report.audits import sections  # made of the parts of this module

    return {"audit": sections, "repair": _repair, "compare": _compare}[kind_of(result)](result, detail=detail)


CHECKS: Columns = {
    "verdict": lambda check: Verdict(check["verdict"]),
    "fails if": "check",
    "attribute": "attribute",
    "value": interval,
    "groups": lambda check: ", ".join(check["groups"]),
    "why": "reason",
}

WAIVERS: Columns = {
    "waiver of": lambda waiver: (
        waiver["check"] + (f" up to {waiver['limit']:g}" if "limit" in waiver else "")
    ),
    "until": "expires",
    "what it does": lambda waiver: STATES[waiver["state"]],
    "reason": "reason",
}


def judgements(result: Json) -> Iterator[Section]:
    """Yield the sections of checks and of waivers."""
    checks = result["checks"]
    if checks:
        title = f"Checks: {MARKS[result['verdict'] or 'pass']}"
        yield Section(title, (), (Grid.of(CHECKS, checks, 6, "Checks", 1),), "checks", {"checks": checks})
    if "waivers" in result:
        grid = Grid.of(WAIVERS, result["waivers"]["waivers"], 4, "Waivers")
        yield Section("Waivers", (f"judged on {result['waivers']['today']}",), (grid,))


def read_and_used(result: Json) -> str:
    """Return the numbers of rows that were read and used."""
    rows = result["data"]["rows"]
    return f"{rows['read']:,} rows read, {rows['used']:,} used"


def _pairs(parameters: Json) -> str:
    return ", ".join(f"{name} {value}" for name, value in parameters.items() if value != "")


# ---------------------------------------------------------------------- repair

READINGS = {
    "drawn": "decisions drawn with the probability, as expected",
    "rounded": "decisions rounded at the threshold",
}
"""The two ways to decide with a probability."""

BESIDE = {"delivered": "as drawn", "expected": "expected"}
"""What stands beside numbers of drawn results: decisions as they are drawn, or what is expected of drawn values."""


QUANTITIES: Columns = {
    "group": lambda one: one.get("group", ""),
    "number": "name",
    "value": lambda one: exact(one["value"]),
    "what it is": "meaning",
}

CANDIDATES: Columns = {
    "parameters": "parameters",
    "score": lambda one: show(one["score"]),
    "": lambda one: "chosen" if one["chosen"] else "",
}


def _repair(result: Json, *, detail: bool) -> Iterator[Section]:
    facts = tuple(_repair_facts(result))
    yield Section(f"fairfix repair of {result['data']['source']} by {result['method']}", facts)
    yield from judgements(result)
    for part, title in (("holdout", "Proof on held-out rows"), ("fit", "On the rows it was fitted on")):
        if result["proof"].get(part):
            yield from _proof(result["proof"][part], title)
    if detail and "solution" in result:
        quantities = result["solution"]["quantities"]
        grids = (Grid.of(QUANTITIES, quantities, 4, "Numbers of the fit", 1),) if quantities else ()
        yield Section("How the fit went", tuple(solution_facts(result["solution"])), grids)
    if result["selection"]:
        grid = Grid.of(CANDIDATES, result["selection"], 1, "Candidates")
        yield Section("Selection on the validation part", (), (grid,))


def _repair_facts(result: Json) -> Iterator[str]:
    split, requires = result["split"], result["requires"]
    yield (
        f"{read_and_used(result)}: {split['fit']:,} to fit, "
        f"{split['validation']:,} to select, {split['holdout']:,} held out (seed {result['seed']})"
    )
    yield f"parameters: {_pairs(result['parameters'])}"
    if result.get("does_not_count"):
        yield f"what does not count: {result['does_not_count']}"
    yield "needed at predict time: " + ", ".join(requires["columns"])
    if requires["protected_at_predict"]:
        yield "the protected attribute is needed at predict time; whether the law allows that is for you to find out"
    if result.get("artifact"):
        yield f"written to {result['artifact']['file']} ({result['artifact']['sha256']})"
    yield from (f"warning: {warning}" for warning in result["warnings"])
    yield from (f"note: {note}" for note in result.get("notes", ()))


def _proof(proof: Json, title: str) -> Iterator[Section]:
    """Yield numbers before and after, and those of the other way to decide with a probability."""
    lines = [f"{proof['rows']:,} rows; {proof['randomized']:.2%} of the results hang on chance"]
    lines += [  # chance alone makes so much, and no repair can go below it on so many rows
        f"ks.to_overall [{one['attribute']}]: {show(one['mean'])} on average, up to {show(one['upper'])} in 19 of "
        "20 samples of so many rows, if the groups were exactly alike"
        for one in proof.get("noise", ())
    ]
    lines += [
        f"{row['name']}: {row['after']['reason']}" for row in proof["table"] if row["after"].get("reason")
    ]
    reading = f": {READINGS[proof['reading']]}" if "other" in proof else ""
    yield Section(title + reading, tuple(lines), (_before_and_after(proof["table"]),), "proof", proof)
    if "other" in proof:
        other = "rounded" if proof["reading"] == "drawn" else "drawn"
        yield Section(f"{title}: {READINGS[other]} instead", (), (_before_and_after(proof["other"]),))


def _before_and_after(table: Sequence[Json]) -> Grid:
    def beside(key: str) -> Callable[[Json], str]:
        return lambda row: f"{row[key]:.4f}" if key in row else "–"

    columns: Columns = {
        "metric": "name",
        "before": lambda row: interval(row["before"]),
        "after": lambda row: interval(row["after"]),
        "change": _change,
        **{title: beside(key) for key, title in BESIDE.items() if any(key in row for row in table)},
    }
    return Grid.of(columns, table, 1, "Before and after")


def _change(row: Json) -> str:
    before, after, change = row["before"]["value"], row["after"]["value"], row.get("change")
    if before is None or after is None:
        return "–"
    if change is None or (change["low"] is None and change["high"] is None):
        return f"{after - before:+.4f}"
    return signed(change, 4)


def solution_facts(solution: Json) -> Iterator[str]:
    """Yield how a solver stopped, and what is proven of what it left."""
    how = "reached its tolerance" if solution["converged"] else "stopped before its tolerance"
    yield f"the solver {how} ({solution['iterations']:,} steps); objective {exact(solution['objective'])}"
    if solution["certificates"]:
        yield from (f"certified: {one['says']}" for one in solution["certificates"])
    elif solution["gap"] is not None:
        yield f"gap of the objective, as the solver has it: {exact(solution['gap'])}"
    else:
        yield "no bound on the least objective is known, so nothing is certified"


# ---------------------------------------------------------------------- comparison


def _compare(result: Json, *, detail: bool) -> Iterator[Section]:
    yield Section(f"fairfix comparison on {result['data']['source']}", tuple(_compare_facts(result)))
    points = [point for point in result["points"] if "failure" not in point]
    qualities = dict.fromkeys(name for point in points for name in point["qualities"])
    for gap in dict.fromkeys(name for point in points for name in point["gaps"]):
        chosen = [point for point in points if gap in point["gaps"]]
        shown = [name for name in qualities if any(name in point["qualities"] for point in chosen)]
        columns: Columns = {
            "method": "title",
            "slack": slack_of,
            "gap": _gap_of(gap),
            **{name: _quality_of(gap, name) for name in shown},
            "random": lambda point: f"{point['randomized']:.1%}",
            "uses group": lambda point: "yes" if point["protected_at_predict"] else "no",
        }
        yield Section(gap, (), (Grid.of(columns, chosen, 2, gap),), "gap")
    failures = [(point, point["failure"]) for point in result["points"] if "failure" in point]
    notes = [(point, note) for point in points for note in point["notes"]]
    lines = [f"{point['title']}, slack {point['slack']}: {text}" for point, text in (*failures, *notes)]
    if lines:
        yield Section("Notes", tuple(dict.fromkeys(lines)))


def _compare_facts(result: Json) -> Iterator[str]:
    split, settings = result["split"], result["settings"]
    yield (
        f"{read_and_used(result)}: {split['fit']:,} to fit, {split['holdout']:,} held out (seed {settings['seed']})"
    )
    yield "all numbers are of held-out rows; * marks the frontier: no other point has a smaller gap and better quality"
    for contender in result["contenders"]:
        yield f"{contender['title']}: {_pairs(contender['parameters'])}"
    noise = settings.get("noise")
    if noise:
        yield (
            f"worst cases of true groups are over any noise that fits {noise['table']} ({noise['assumption']}), with "
            "an upper limit; all else is by recorded group"
        )


def slack_of(point: Json) -> str:
    """Return the slack of a point of a comparison; a model as it is has none."""
    return "" if point["slack"] is None else str(point["slack"])


def _gap_of(gap: str) -> Callable[[Json], str]:
    return lambda point: interval(point["gaps"][gap])


def _quality_of(gap: str, name: str) -> Callable[[Json], str]:
    """Return the cell of a quality, with a star where the point is on the frontier."""

    def cell(point: Json) -> str:
        mark = "*" if f"{gap}|{name}" in point["front"] else ""
        return Interval(interval(point["qualities"][name]) + mark) if name in point["qualities"] else ""

    return cell
