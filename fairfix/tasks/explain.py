"""Explain: what a metric, a comparison, a kind, a scope or a check is, in words.

Everything said here is looked up where it is computed or checked: formulas, needs and reasons in
:mod:`fairfix.auditing.metrics`, names and limits in :mod:`fairfix.auditing.checks`, scopes in the JSON report. Only
how intervals are made, and what the metrics without a formula of counts need, stands here, and the docs are made from
it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from fairfix.auditing.as_json import SCOPES, definition, formula
from fairfix.auditing.checks import EFFECTS, FLIP_SCOPES, FLIPS, GAPS, KINDS, METRICS, Check
from fairfix.auditing.checks import SCOPES as CHECK_SCOPES
from fairfix.auditing.metrics import ALIASES, EQUALIZED_ODDS, MEANS, RATES, Metric
from fairfix.errors import UsageError

INTERVALS: Mapping[str, str] = {
    "rates": "Clopper-Pearson; Šidák over the groups of a table",
    "weighted rates": "the same with the effective number of rows: Korn and Graubard's, at most Kish's `(Σw)² / Σw²`",
    "difference, ratio of two groups": "Newcombe's hybrid (MOVER) on those limits; ratios on the log scale",
    "largest difference": "lower end: Bonferroni over the ordered pairs; upper end: no correction needed",
    "to overall": "the group against everybody else, shrunk by the group's share, which is taken as fixed",
    "means, losses": "Student t, with one imagined row at the end of the scale; far out where it has none (see below)",
    "AUC": "Newcombe's method 5, widened where DeLong's variance is larger",
    "KS": "lower end: Kolmogorov's quantile; upper end: a normal margin, at most Hoeffding's",
    "calibration error": "Clopper-Pearson in every bin, put together",
    "equalized odds": "each of its two gaps at half the miscoverage",
    "strata": "each stratum at the miscoverage divided by the number of strata",
}
"""How the interval of what is made."""

NEEDS: Mapping[str, str] = {
    "label": "0/1 labels (--label)",
    "real label": "real-valued labels (--task regression with --label)",
    "score": "a score (--score or --model)",
    "probability": "a score that is a probability (--score-scale probability, margin or logit)",
    "decision": "decisions (--prediction, --probability, or a score with a threshold)",
    "bins": "a score in a known range (--score-scale probability or margin)",
    "second pass": "all rows, not only counts (no --one-pass)",
    "individual": "--individual",
    "model": "a model file (--model), which scores changed rows",
}
"""What data must have, in words."""

OTHERS: Mapping[str, tuple[tuple[str, ...], str, str]] = {
    "auc": (("label", "score"), "no positives or no negatives", "AUC"),
    "calibration_error": (("label", "bins"), "no rows", "calibration error"),
    "scoring_rate": (("score", "second pass"), "no rows", "rates"),
    "equalized_odds": (("decision", "label"), "no positives or no negatives", "equalized odds"),
    "ks": (("score",), "fewer than two groups", "KS"),
    **dict.fromkeys(FLIPS, (("individual", "model"), "", "")),
    **dict.fromkeys(EFFECTS, (("individual", "score"), "", "")),
}
"""Metric without a row in the tables of :mod:`fairfix.auditing.metrics` -> (needs, undefined when, its row of
``INTERVALS``)."""

NOT_TO_OVERALL = ("auc", "calibration_error")
"""Metrics whose value for everybody is no mean of those of the groups."""


@dataclass(frozen=True)
class Explanation:
    """What something is: a heading and (word, text) lines."""

    name: str
    lines: tuple[tuple[str, str], ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form; a word that is there more than once becomes a list."""
        out: dict[str, Any] = {"name": self.name}
        for word, _ in self.lines:
            texts = [text for other, text in self.lines if other == word]
            out[word.replace(" ", "_")] = texts if len(texts) > 1 else texts[0]
        return out


def names() -> tuple[str, ...]:
    """Return everything that can be explained by a name of its own, aliases included."""
    return tuple(dict.fromkeys((*METRICS, *ALIASES, *KINDS, *CHECK_SCOPES, *FLIP_SCOPES)))


def explain(text: str) -> Explanation:
    """Return what a name or a check is.

    Parameters
    ----------
    text
        A metric (``dp``), a comparison (``dp.ratio.to_overall``), a kind (``ratio``), a scope (``to_overall``), or a
        check (``dp.ratio[race]<0.9``).

    Raises
    ------
    UsageError
        It is none; names what is close.
    """
    name = text.strip().lower().replace("-", "_").replace(" ", "_")
    if re.search(r"[<>=\[]", text):
        return _check(text)
    if ALIASES.get(name, name) in METRICS:
        return _metric(name)
    first, _, rest = name.partition(".")
    if rest and ALIASES.get(first, first) in METRICS:
        return _comparison(name)
    if name in KINDS or name in (*CHECK_SCOPES, *FLIP_SCOPES) or name in SCOPES:
        return _part(name)
    near = get_close_matches(name, [*names(), *SCOPES], 3)
    hint = (
        f"did you mean {' or '.join(map(repr, near))}?" if near else "'fairfix explain' lists what there is"
    )
    raise UsageError(f"nothing is called {text!r}; {hint}")


# ---------------------------------------------------------------------- what there is


def comparisons_of(metric: str) -> tuple[str, ...]:
    """Return the identifiers of all comparisons that a report can have of a metric, without its name."""
    if metric in FLIPS:
        return FLIP_SCOPES
    if metric in EFFECTS:
        return ("difference.between_groups",)
    if metric == "ks":
        return ("between_groups", "to_overall", "within_strata")
    kinds = ("difference", "ratio") if _can_have_ratios(metric) else ("difference",)
    scopes = [scope for scope in CHECK_SCOPES if not (scope == "to_overall" and metric in NOT_TO_OVERALL)]
    out = [f"{kind}.{scope}" for kind in kinds for scope in scopes]
    if metric == "selection_rate":
        out += ["covariance.to_overall", "covariance.within_strata"]
    return tuple(out) if metric in GAPS else (*out, "min", "max")


def _can_have_ratios(metric: str) -> bool:
    """Tell whether values cannot be negative; a mean score can be, but not where it is a probability."""
    return metric not in MEANS or metric == "mean_score" or MEANS[metric].support[0] >= 0


def needs_of(metric: str) -> tuple[str, ...]:
    """Return what data must have for a metric, in words."""
    own = _own(metric)
    keys = sorted(own.needs) if own else OTHERS.get(metric, ((), "", ""))[0]
    return tuple(NEEDS.get(key, key) for key in keys)


def undefined_of(metric: str) -> str:
    """Return when the value of a group, or the comparison, is undefined; empty where a report says it case by case."""
    own = _own(metric)
    return own.undefined if own else OTHERS.get(metric, ((), "", ""))[1]


def interval_of(metric: str) -> str:
    """Return how the interval of a group's value is made; of a gap's, where groups have none."""
    if metric in RATES:
        return INTERVALS["rates"]
    if metric in MEANS:
        return INTERVALS["means, losses"]
    return INTERVALS.get(OTHERS.get(metric, ((), "", ""))[2], "")


def _own(metric: str) -> Metric | None:
    return RATES.get(metric) or MEANS.get(metric)


def _aliases(metric: str) -> list[str]:
    return [alias for alias, target in ALIASES.items() if target == metric]


# ---------------------------------------------------------------------- explanations


def _metric(name: str) -> Explanation:
    metric = ALIASES.get(name, name)
    lines = list(_of_metric(metric))
    own = comparisons_of(metric)
    lines.append(("comparisons", ", ".join(own)))
    lines += [("check", example(metric, comparison)) for comparison in own[:1]]
    if metric not in GAPS:
        lines.append(("check", f"{metric}[race=GROUP]<0.5"))
    return Explanation(metric, tuple(lines))


def _of_metric(metric: str) -> Iterator[tuple[str, str]]:
    """Yield what is to be said of a metric, alone or in a comparison."""
    yield "is", formula(metric)
    if aliases := _aliases(metric):
        yield "also called", ", ".join(aliases)
    if metric == "equalized_odds":
        yield "made of", ", ".join(EQUALIZED_ODDS)
    yield "needs", "; ".join(needs_of(metric)) or "see the docs"
    if undefined := undefined_of(metric):
        yield "undefined", f"{undefined}; the value is null then, and no check passes over it"
    if interval := interval_of(metric):
        yield "interval", interval
    if metric in RATES:
        yield "with weights", INTERVALS["weighted rates"].replace("`", "")


def _comparison(name: str) -> Explanation:
    check = Check.parse(f"{name}>0")
    metric, _, rest = check.comparison.partition(".")
    if check.of_true_groups:
        lines = [("is", definition(check.comparison)), ("ask with", "--noise FILE")]
        return Explanation(check.comparison, (*lines, ("check", example(metric, rest))))
    if rest not in comparisons_of(metric):
        raise UsageError(
            f"{name}: a report has no {rest} of {metric}; it has {', '.join(comparisons_of(metric))}"
        )
    lines = [("is", SCOPES[rest]), ("of", f"{metric} = {formula(metric)}")]
    lines += [line for line in _of_metric(metric) if line[0] not in ("is", "also called")]
    lines += [("interval", text) for text in _comparing(rest, metric)]
    if needed := _asked_by(rest):
        lines.append(("ask with", needed))
    return Explanation(check.comparison, (*lines, ("check", example(metric, rest))))


def _comparing(comparison: str, metric: str) -> Iterator[str]:
    """Yield how the interval of a comparison is made of those of the groups."""
    if metric in OTHERS and metric not in ("auc", "calibration_error", "scoring_rate"):
        return
    if comparison.startswith(("difference", "ratio")):
        yield INTERVALS["difference, ratio of two groups"]
        yield INTERVALS["largest difference"]
    if "to_overall" in comparison:
        yield INTERVALS["to overall"]
    if "within_strata" in comparison:
        yield INTERVALS["strata"]


def _asked_by(comparison: str) -> str:
    """Return the option that a comparison is asked for with."""
    scope = comparison.rpartition(".")[2]
    return {
        "to_reference": "--reference race=GROUP",
        "within_strata": "--strata COLUMN",
        "under_flips": "--individual --model FILE",
        "under_comparable": "--individual --model FILE --comparable COLUMN=VALUE,VALUE",
        "under_everybody": "--individual --model FILE --comparable COLUMN=VALUE,VALUE",
    }.get(scope, "")


def _part(name: str) -> Explanation:
    """Explain a kind or a scope by what the report says of each comparison that has it."""
    lines = [("is", SCOPES[name])] if name in SCOPES and "." in name else []
    keys = [key for key in SCOPES if name == key or name in key.split(".")]
    if not lines:
        lines = [("is", f"{key}: {SCOPES[key]}" if key != name else SCOPES[key]) for key in keys]
    of = [metric for metric in METRICS if any(key in comparisons_of(metric) for key in keys)]
    lines.append(("of", ", ".join(of)))
    if needed := _asked_by(name):
        lines.append(("ask with", needed))
    first = next(key for key in keys if key in comparisons_of(of[0]))
    return Explanation(name, (*lines, ("check", example(of[0], first))))


def _check(text: str) -> Explanation:
    check = Check.parse(text)
    metric, _, rest = check.comparison.partition(".")
    meaning = (
        f"{SCOPES[rest]}; {metric} = {formula(metric)}" if rest in SCOPES else f"{metric} = {formula(metric)}"
    )
    group = f"the {'true ' if check.of_true_groups else ''}group {check.group!r} of " if check.group else ""
    return Explanation(
        check.text,
        (
            (
                "looks at",
                f"{check.comparison}, {group}{check.attribute or 'every attribute that is audited'}",
            ),
            ("is", meaning),
            ("fails", f"the whole interval is {check.operator} {check.limit:g}"),
            ("passes", "no part of the interval is, and no group is undefined"),
            ("undecided", "otherwise; with --gate-on point the value alone decides"),
        ),
    )


def example(metric: str, comparison: str) -> str:
    """Return a check as it is written; its limit is an example, fairfix has none of its own."""
    short = next(iter(_aliases(metric)), metric)
    worse = "<0.9" if comparison.startswith("ratio") else "<0.7" if comparison.startswith("min") else ">0.1"
    plain = comparison.removesuffix(".between_groups") if comparison.count(".") else comparison
    if metric == "ks" and comparison == "between_groups":
        return f"ks{worse}"
    return f"{short}.{plain}{worse}"


def overview() -> list[tuple[str, list[tuple[str, str]]]]:
    """Return (heading, (name, what it is)) of everything there is."""
    metrics = [(name, formula(name) + _in_brackets(_aliases(name))) for name in METRICS]
    return [
        ("Metrics", [one for one in metrics if one[0] not in (*FLIPS, *EFFECTS)]),
        ("Of single persons (--individual)", [one for one in metrics if one[0] in (*FLIPS, *EFFECTS)]),
        ("Comparisons", [(name, text) for name, text in SCOPES.items() if "." in name or name in KINDS]),
        (
            "Of distances and flips",
            [(name, text) for name, text in SCOPES.items() if "." not in name and name not in KINDS],
        ),
    ]


def _in_brackets(texts: list[str]) -> str:
    return f" (also {', '.join(texts)})" if texts else ""
