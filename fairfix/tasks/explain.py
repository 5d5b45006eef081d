"""Explain: what a metric, a comparison, a check, a method, an option or a word of the glossary is.

Metrics are explained from their entries in :mod:`fairfix.auditing.metrics`, comparisons from
:mod:`fairfix.auditing.comparisons`. How intervals are made stands here, and the docs are made from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairfix.auditing.checks import Check, named
from fairfix.auditing.comparisons import CLASS_SCOPES, KINDS, MEANINGS, Comparison
from fairfix.auditing.grammar import read_one, read_or_meant
from fairfix.auditing.metrics import (
    ALIASES,
    EQUALIZED_ODDS,
    FLIP_SCOPES,
    METRICS,
    NEEDS,
    RATES,
    SCOPES,
    Metric,
)
from fairfix.data.domain import parameters_of
from fairfix.data.names import did_you_mean
from fairfix.errors import CODES, UsageError
from fairfix.report.words import SETTINGS
from fairfix.tasks.glossary import GLOSSARY, STATUSES, key_of, keys_of
from fairfix.tasks.request import MULTICLASS, AuditRequest, CompareRequest, PredictRequest, RepairRequest
from fairfix.tasks.synonyms import METHODS, PARAMETERS, TERMS, ours

LABELS_OF: Mapping[str, str] = {
    "classification": "0/1",
    "regression": "real numbers",
    MULTICLASS: f"classes (`task={MULTICLASS}`)",
}
"""Task -> its labels."""

INTERVALS: Mapping[str, str] = {
    "rates": "Clopper-Pearson, with a Šidák correction for the groups of a table",
    "weighted rates": "the same, with the effective sample size of Korn and Graubard, at most Kish's `(Σw)² / Σw²`",
    "weighted means": "the same as means, with the effective sample size of the linearized variance, at most Kish's",
    "difference, ratio of two groups": "Newcombe's hybrid (MOVER) on those limits; ratios on the log scale",
    "largest difference": "lower end: Bonferroni over the ordered pairs; upper end: no correction needed",
    "to overall": "the group against all other rows, scaled by the fraction of rows outside the group, which is "
    "taken as fixed",
    "means, losses": "Student t, with one imagined row at the end of the scale, or far out where the scale has "
    "no end (see below)",
    "log loss given scores": "in addition to unbounded means: Chernoff's bound for rows of two known values, at its "
    "worst over their probabilities",
    "F1": "Clopper-Pearson for the fraction of true positives among rows with label 1 or a positive decision, on the "
    "scale of F1",
    "balanced accuracy": "the means of Clopper-Pearson limits of TPR and TNR, which hold together (Šidák)",
    "MCC": "smallest and largest value within Clopper-Pearson limits of base rate, TPR and TNR, which hold together "
    "(Šidák)",
    "ratios of products": "smallest and largest value within the same limits of three rates, by Bernstein coefficients",
    "AUC": "Newcombe's method 5, widened where DeLong's variance is larger",
    "KS": "lower end: Kolmogorov's quantile; upper end: a normal margin, at most Hoeffding's",
    "calibration error": "Clopper-Pearson in every bin, combined",
    "covariance with a number": "as for means, of the products of both distances from their means",
    "equalized odds": "each of its two gaps at half the miscoverage",
    "strata": "each stratum at the miscoverage divided by the number of strata",
}
"""Construction of the interval of each kind of number."""


@dataclass(frozen=True)
class Explanation:
    """Explanation: a heading and (word, text) lines."""

    name: str
    lines: tuple[tuple[str, str], ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form; a word that is there more than once becomes a list."""
        out: dict[str, Any] = {"name": self.name}
        for word, _ in self.lines:
            texts = [text for other, text in self.lines if other == word]
            out[word.replace(" ", "_")] = texts if len(texts) > 1 else texts[0]
        return out


WORDS: Mapping[str, str] = {
    key: text for entries in GLOSSARY.values() for words, text in entries.items() for key in keys_of(words)
}
"""Word of the glossary, as it is looked up -> what it means."""

OTHERS: Mapping[str, tuple[str, str]] = {key: to for words, to in TERMS.items() for key in keys_of(words)}
"""Other word for a term, as it is looked up -> our term, and a remark."""


def code_names() -> tuple[str, ...]:
    """Return the codes of all messages."""
    return tuple(code for codes in CODES.values() for code in codes)


def names() -> tuple[str, ...]:
    """Return everything that can be explained by a name of its own, but for methods and options."""
    return tuple(
        dict.fromkeys(
            (*METRICS, *ALIASES, *KINDS, *SCOPES, *FLIP_SCOPES, *CLASS_SCOPES, *WORDS, *OTHERS, "exit_status")
        )
    )


def check_meant(text: str, protected: Sequence[str] = ()) -> str:
    """Return ``dp.ratio>=0.8`` for ``disparate_impact>=0.8``; empty where no other tool calls a metric so.

    A name whose metric is another one here, as its remark says, has no such check; nor has one of a name that is none
    of the ``protected`` columns, where these are known.
    """
    one = read_one(text)
    name, remark = OTHERS.get(key_of(one.metric), ("", "")) if one and one.operator else ("", "")
    if one is None or not name or remark.startswith(("1 minus", "the nearest")):
        return ""
    if protected and one.attribute not in (None, *protected):
        return ""
    return read_or_meant(text.replace(one.metric, name, 1), Check.parse)


def explain(text: str) -> Explanation:
    """Return what a name or a check is.

    Parameters
    ----------
    text
        A metric (``dp``), a comparison (``dp.ratio.to_overall``), a kind (``ratio``), a scope (``to_overall``), a
        check (``dp.ratio[race]>=0.9``), a word of the glossary (``slack``), a name that others have for something
        (``disparate impact``), a method (``ramp``), an option (``gamma``), an exit status (``3``), or the code
        of a message (``limit_inside``).

    Raises
    ------
    UsageError
        It is none; names what is close.
    """
    name = key_of(text.removeprefix("--"))
    if re.search(r"[<>=\[]", text):
        return _check(text)
    word = [("means", WORDS[name])] if name in WORDS else []
    first, dot, rest = name.partition(".")
    metric = METRICS.get(ALIASES.get(first, first))
    if metric is not None and bool(dot) == bool(rest):
        return _comparison(name) if rest else _metric(metric)
    if name in (*KINDS, *SCOPES, *FLIP_SCOPES, *CLASS_SCOPES, *MEANINGS):
        return _part(name)
    if codes := [(f"{kind} code", texts[name]) for kind, texts in CODES.items() if name in texts]:
        return Explanation(name, (*word, *codes, *_of_options(name)))
    if name in OTHERS:
        return _other(text, *OTHERS[name])
    metric_name, _, kind = name.rpartition("_")
    if kind in KINDS and ALIASES.get(metric_name, metric_name) in METRICS:  # as in Fairlearn
        return _other(text, f"{metric_name}.{kind}", "")
    if name.removeprefix("exit_").removeprefix("status_") in STATUSES or name in ("exit", "exit_status"):
        code = name.removeprefix("exit_").removeprefix("status_")
        lines = [(code, STATUSES[code])] if code in STATUSES else STATUSES.items()
        return Explanation("exit status", tuple(lines))
    if lines := [*word, *_of_options(name)]:
        return Explanation(text.strip(), tuple(lines))
    return _method(name, text)


def _other(text: str, to: str, remark: str) -> Explanation:
    """Explain what something is called here, under the name that others have for it."""
    of = explain(to)
    return Explanation(of.name, (("for", text.strip()), *([("note", remark)] if remark else []), *of.lines))


def _of_options(name: str) -> Iterator[tuple[str, str]]:
    """Yield the helps of the options of a name, of commands and of methods."""
    helps = {
        domain.help: None
        for kind in (AuditRequest, RepairRequest, CompareRequest, PredictRequest)
        for one, domain in parameters_of(kind).items()
        if one == name
    }
    from fairfix.methods import available

    for method in available().values():
        if (spec := method.domains().get(name)) is not None:
            helps[f"{method.name}: {spec.help}"] = None
    for text in helps:
        yield "option", f"`{name}`: {text}"


def _method(name: str, text: str) -> Explanation:
    """Explain a method; UsageError with what is close where there is none of this name."""
    from fairfix.methods import available

    methods = {key_of(one): method for one, method in available().items()}
    others = {key_of(other): own.partition("=")[0] for other, own in ours(PARAMETERS).items()}
    if to := ours(METHODS).get(name.replace("_", "")) or others.get(name):
        return _other(text, to, "")
    if name not in methods:
        options = {one for method in methods.values() for one in method.domains()}
        hint = did_you_mean(name, sorted({*names(), *MEANINGS, *methods, *options}), 3)
        raise UsageError(
            f"no metric, option or term named {text!r}" + (hint or "; 'fairfix explain' lists them all")
        )
    method = methods[name]
    own = method.domains()
    needs = ["a score, or features to learn from (`features`)" if "features" in method.uses else "a score"]
    needs += ["labels"] * method().uses_labels + ["a description of noise (`noise`)"] * (
        "noise" in method.uses
    )
    lines = [
        ("is", method.summary),
        ("needs", "; ".join(needs)),
        ("labels", " or ".join(LABELS_OF[task] for task in method.tasks)),
        ("slack bounds", f"{method.criterion}, by default: {Comparison.parse(method.criterion).definition}"),
        ("strata", "each stratum is repaired separately" if "strata" in method.uses else "not supported"),
    ]
    if method.solvers:
        lines.append(("solvers", ", ".join(own["solver"].choices)))
    lines.append(("options", ", ".join(f"`{one}`" for one in own if one not in SETTINGS)))
    if "learner" in own:
        lines += [
            ("learner", f"`learner={title}({one}={of.default})`: {of.help}")
            for title, form in own["learner"].forms.items()  # type: ignore[attr-defined]  # of its own kind
            for one, of in form.keys.items()
        ]
    if "similar" in own:
        from fairfix.individual.similar import FILE, FORMS

        lines += [
            ("similar", f"`similar={title}({one}={of.default or 'NUMBER'})`: {of.help}")
            for title, form in {**FORMS, "pairs.csv": FILE}.items()
            for one, of in form.keys.items()
        ]
    lines += [("set", f"`{one}={part.default}`: {part.help}") for one, part in own.items() if one in SETTINGS]
    lines.append(("try", f"fairfix repair DATA --method {method.name} --protected COLUMN"))
    return Explanation(method.name, tuple(lines))


def needs_of(metric: Metric) -> str:
    """Return what data must have for a metric, in words."""
    return NEEDS["copies"] if "copies" in metric.needs else "; ".join(NEEDS[need] for need in metric.needs)


def _metric(metric: Metric) -> Explanation:
    words = [("means", WORDS[one]) for one in (metric.name, *metric.aliases) if one in WORDS]
    lines = [*words, *_of_metric(metric), ("comparisons", ", ".join(metric.comparisons))]
    lines.append(("check", example(metric, metric.comparisons[0])))
    if metric.of_groups:
        lines.append(("check", f"{metric.name}[race=GROUP]{'<=' if metric.better == 'smaller' else '>='}0.5"))
    return Explanation(metric.name, tuple(lines))


def _of_metric(metric: Metric) -> Iterator[tuple[str, str]]:
    """Yield what is to be said of a metric, alone or in a comparison."""
    yield "is", metric.formula
    if metric.aliases:
        yield "also called", ", ".join(metric.aliases)
    if metric.name == "equalized_odds":
        yield "made of", ", ".join(EQUALIZED_ODDS)
    yield "needs", needs_of(metric)
    if metric.undefined:
        yield "undefined", f"{metric.undefined}; the value is then null, and a check of it cannot pass"
    if metric.interval:
        yield "interval", INTERVALS[metric.interval]
    if metric.name in RATES or metric.interval in ("F1", "balanced accuracy", "MCC", "ratios of products"):
        yield "with weights", INTERVALS["weighted rates"].replace("`", "")
    elif metric.interval == "means, losses":
        yield "with weights", INTERVALS["weighted means"]


def _comparison(name: str) -> Explanation:
    of = named(name)
    metric, check = of.entry, ("check", example(of.entry, of.part))
    if of.of_true_groups:
        return Explanation(of.id, (("is", of.definition), ("ask with", "`noise=FILE`"), check))
    if not of.exists:
        raise UsageError(
            f"{name}: a report has no {of.part} of {of.metric}; it has {', '.join(metric.comparisons)}"
        )
    lines = [("is", of.meaning), ("of", f"{of.metric} = {metric.formula}")]
    lines += [line for line in _of_metric(metric) if line[0] not in ("is", "also called")]
    lines += [("interval", text) for text in _comparing(of)]
    return Explanation(of.id, (*lines, *_asked_by(of.scope), check))


def _comparing(of: Comparison) -> Iterator[str]:
    """Yield how the interval of a comparison is made of those of the groups."""
    if not of.entry.of_groups:
        return
    if of.kind in ("difference", "ratio"):
        yield INTERVALS["difference, ratio of two groups"]
        yield INTERVALS["largest difference"]
    if of.scope == "to_overall":
        yield INTERVALS["to overall"]
    if of.scope == "within_strata":
        yield INTERVALS["strata"]


ASKED_BY: Mapping[str, str] = {
    "to_reference": "`reference=race=GROUP`",
    "within_strata": "`strata=COLUMN`",
    "under_flips": "`similar=flips` `model=FILE`",
    "under_comparable": "`similar=COLUMN=VALUE,VALUE` `model=FILE`",
    "under_everybody": "`similar=COLUMN=VALUE,VALUE` `model=FILE`",
    "under_counterfactuals": "`similar=FILE` `id=COLUMN` `model=FILE`",
    "within_radius": "`similar=near(radius=NUMBER)` `model=FILE`",
    **dict.fromkeys(CLASS_SCOPES, "`task=multiclass` `prediction=COLUMN`"),
}
"""Parameters by which comparisons of a scope are asked for."""


def _asked_by(scope: str) -> Iterator[tuple[str, str]]:
    if scope in ASKED_BY:
        yield "ask with", ASKED_BY[scope]


def _of_classes(metric: str) -> Iterator[str]:
    """Yield what there is of a metric over all classes of a label."""
    for scope in CLASS_SCOPES:
        of = Comparison(metric, "difference", scope)
        if of.exists:
            yield of.part


def _part(name: str) -> Explanation:
    """Explain a kind or a scope by the meaning of each comparison that has it."""
    keys = [name] if name in MEANINGS and "." in name else [k for k in MEANINGS if name in k.split(".")]
    lines = [("is", MEANINGS[key] if key == name else f"{key}: {MEANINGS[key]}") for key in keys]
    made = {name: {*metric.comparisons, *_of_classes(name)} for name, metric in METRICS.items()}
    of = [METRICS[name] for name, there in made.items() if not there.isdisjoint(keys)]
    lines.append(("of", ", ".join(metric.name for metric in of)))
    first = next(key for key in keys if key in made[of[0].name])
    return Explanation(name, (*lines, *_asked_by(name.rpartition(".")[2]), ("check", example(of[0], first))))


def _check(text: str) -> Explanation:
    check = Check.parse(text)
    of = check.comparison
    group = f"the {'true ' if of.of_true_groups else ''}group {of.group!r} of " if of.group else ""
    meaning = of.definition if of.part in MEANINGS else f"{of.metric} = {of.entry.formula}"
    return Explanation(
        check.text,
        (
            ("looks at", f"{of.id}, {group}{of.attribute or 'every audited attribute'}"),
            ("is", meaning),
            ("passes", f"the whole interval is {check.operator} {check.limit:g}, and no group is undefined"),
            ("fails", f"no part of the interval is {check.operator} {check.limit:g}"),
            ("undecided", "otherwise; with `gate_on=point` the value alone decides"),
        ),
    )


def example(metric: Metric, comparison: str) -> str:
    """Return a check as it is written; its limit is an example, fairfix has none of its own."""
    short = next(iter(metric.aliases), metric.name)
    of = Comparison.parse(f"{metric.name}.{comparison}")
    smaller = of.worse == "smaller" if of.worse else of.kind == "min"
    limit = ">=0.9" if of.kind == "ratio" else ">=0.7" if smaller else "<=0.1"
    whole = (short, of.part) == ("ks", "between_groups")
    return f"ks{limit}" if whole else f"{short}.{of.short_part}{limit}"


def overview() -> list[tuple[str, list[tuple[str, str]]]]:
    """Return (heading, (name, what it is)) of everything there is."""
    out: dict[str, list[tuple[str, str]]] = {
        "Metrics": [],
        "Metrics of single persons (`similar=flips`)": [],
        "Comparisons": [],
        "Comparisons of distances and flips": [],
    }
    groups, persons, comparisons, others = out.values()
    for metric in METRICS.values():
        aliases = f" (also {', '.join(metric.aliases)})" if metric.aliases else ""
        (persons if "individual" in metric.needs else groups).append((metric.name, metric.formula + aliases))
    for name, text in MEANINGS.items():
        (comparisons if "." in name or name in KINDS else others).append((name, text))
    from fairfix.methods import available

    out["Methods"] = [(name, method.summary) for name, method in available().items()]
    out["Words"] = [pair for entries in GLOSSARY.values() for pair in entries.items()]
    out["Other names"] = [(words, to) for words, (to, _) in TERMS.items()]
    out["Exit status"] = list(STATUSES.items())
    return list(out.items())
