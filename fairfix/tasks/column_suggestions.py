"""Guide: the columns of the data, what each may be by its name, and the command to copy; the end of a first error.

Nothing is decided by it: which groups matter is for people to say. A command is proposed only if it has run on the
first rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from fairfix.auditing.grammar import of_numbers
from fairfix.data.choices import VALUED
from fairfix.data.column_summary import survey
from fairfix.data.data_spec import LABELS, SCORES, part_of_output, usual_name
from fairfix.data.domain import parameters_of
from fairfix.data.encoder import truth
from fairfix.data.files import Source, open_source
from fairfix.data.names import ValuedColumn, joined_names, key_and_rest, nearest, quoted_name, with_values
from fairfix.data.urls import is_dry
from fairfix.errors import FairfixError
from fairfix.report.words import plain
from fairfix.tasks.command import Name, to_copy
from fairfix.tasks.request import WRITTEN, AuditRequest, DataRequest

GROUPS = frozenset(
    (
        *("race", "ethnicity", "ethnic", "sex", "gender", "age", "religion", "disability", "disabled"),
        *(
            "nationality",
            "citizenship",
            "marital",
            "veteran",
            "orientation",
            "pregnancy",
            "foreign",
            "origin",
        ),
    )
)
OUTCOMES = frozenset(
    (
        *("label", "outcome", "target", "class", "default", "defaulted", "approved", "hired", "repaid"),
        *("paid", "churn", "truth", "recid", "readmitted", "y", "income", "admitted", "denied", "granted"),
        *("recidivism", "readmission", "attrition", "fraud", "diagnosis", "mortality"),
    )
)
OUTPUTS = frozenset(("score", "scores", "prob", "proba", "probability", "risk", "yhat", "pred", "predicted"))
"""Words in the names of protected columns, of labels and of a model's outputs."""

DECISION = re.compile(r"(decisions?|decided)$", re.IGNORECASE)

NEGATIVE = frozenset(("0", "no", "neg", "negative", "false"))
"""Words in the name of a probability that is not of a positive label."""

OUTCOME_NAMES = frozenset(
    ("loan_status", "action_taken", "credit_risk", "pass_bar", "final_result", "risk_flag", "heart_disease")
)
"""Whole names of outcomes, as :func:`~fairfix.data.data_spec.usual_name` has them; none of their words is enough."""

IDENTITY = re.compile(r"(^|_)(id|uuid|key)$")
SHOWN, SHOWN_LINES = 40, 6
"""Columns of a list, and commands to choose from."""

TRIED = 1000
"""Rows that a command is tried on."""

ROLES = ("protected", "label", "score", "prediction", "probability", "weight", "strata", "id")


def guide(
    request: DataRequest, source: Source, attempt: Callable[[DataRequest], object], *, listed: bool = True
) -> str:
    """Return the lines that follow an error about columns; ``attempt`` raises where a request does not run.

    Where the columns are not ``listed``, these are the commands alone.
    """
    given = _given(request, source)
    named = [name for names in given.values() for name in names]
    free = [name for name in source.columns if name not in named]
    made = request.model is not None or any(role in given for role in ("score", "prediction", "probability"))
    roles = {**guessed(source, free, made=made), **given}
    settings = _settings(request, source, given, roles)
    lost = (
        getattr(request, "label", None) is not None and "label" not in given
    )  # another label is another question
    command = "" if lost else _command(request, source, settings, attempt)
    commands = [command] if command else list(_open_commands(request, source, settings, roles, attempt, lost))
    return listing(source, given, roles, commands) if listed else "".join(f"\n  {one}" for one in commands)


def _open_commands(
    request: DataRequest,
    source: Source,
    settings: Mapping[str, Any],
    roles: Mapping[str, list[str]],
    attempt: Callable[[DataRequest], object],
    lost: bool,
) -> Iterator[str]:
    """Yield a command for each column that may be the score or the label, of those that run; a few at most.

    A label that was given and cannot be read as it was, or is ``lost``, is never left out.
    """
    real = {field.name for field in source.schema if pa.types.is_floating(field.type)}
    scores = [] if {"score", "prediction"} & {*settings} else roles["score"]
    scores = [name for name in scores if usual_name(name) in SCORES or name in real]
    outputs = [{part_of_output(name, source.schema): name} for name in scores]
    outputs = outputs or [*_valued(source, "prediction", roles.get("prediction", ()))] or [{}]
    labels: list[dict[str, str]] = [] if lost else [{}]
    if "label" not in settings or settings["label"] in source.columns:
        labels += _valued(source, "label", [settings["label"]] if "label" in settings else roles["label"])
    shown = 0
    for label in labels:
        if not shown or shown < SHOWN_LINES:
            # a score that is named after a class belongs to the label of that class
            ending = f"_{usual_name(label.get('label', '').rpartition('=')[2])}"
            own = [output for output in outputs if usual_name("".join(output.values())).endswith(ending)]
            for output in (own or outputs)[: SHOWN_LINES - shown]:
                if command := _command(request, source, {**settings, **label, **output}, attempt):
                    shown += 1
                    yield command
        if shown and not label:
            return  # no label is needed


def _valued(source: Source, role: str, names: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yield columns that may be the label or decisions, each with its positive value where its two do not tell."""
    for name in names[:SHOWN_LINES]:
        if name not in source.usable:
            continue
        rows = first_rows(source)
        held = [] if rows is None else survey(open_source(rows), [name])[name].common
        plain = all(truth(value) is not None for value, _ in held)
        yield from [{role: name}] if plain else [{role: with_values(name, [value])} for value, _ in held[:2]]


def listing(
    source: Source, given: Mapping[str, list[str]], roles: Mapping[str, list[str]], commands: Sequence[str]
) -> str:
    """Return what the columns are or may be, a line each, and the commands to choose from, if there are any."""
    shown = {role: names for role, names in roles.items() if names}
    listed = {name for names in shown.values() for name in names}
    others = [name for name in source.columns if name not in listed]
    lines = [f"{source.name} has {len(source.columns)} columns:"]
    for role, names in shown.items():
        lines.append(f"  {'' if role in given else 'perhaps '}{role}: {_some(names, source)}")
    if others:
        lines.append(f"  others: {_some(others, source)}")
    if len(commands) == 1:
        lines.append(f"to copy: {commands[0]}")
    elif commands:
        lines += ["to copy, one of:", *(f"  {command}" for command in commands)]
    return "\n".join(lines)


def _some(names: Sequence[str], source: Source) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    entries = source.examples
    shown = (f"{name} ({entries[name]})" if name in entries else quoted_name(name) for name in names[:SHOWN])
    return ", ".join(map(plain, shown)) + more


def _given(request: DataRequest, source: Source) -> dict[str, list[str]]:
    """Return role -> the columns that are given to it; without roles that have none."""
    return {role: names for role in ROLES if (names := _named(request, role, source.columns))}


def _named(request: DataRequest, role: str, columns: Sequence[str]) -> list[str]:
    """Return the columns that are given to a role, with the nearest for a name that is not there."""
    value = getattr(request, role, None) or ()
    names = [value] if isinstance(value, str) else list(value)
    if role in VALUED:
        names = [ValuedColumn.parse(name, columns, role).column for name in names]
    near = [[name] if name in columns else nearest(name, columns) for name in names]
    return list(dict.fromkeys(chain.from_iterable(near)))


def _words(name: str) -> set[str]:
    """Return the words of a name: ``ageBand`` and ``age_band`` have two, ``proba_1`` has a number."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", name)}


def _numbers(source: Source) -> set[str]:
    """Return the columns of numbers."""
    return {f.name for f in source.schema if pa.types.is_integer(f.type) or pa.types.is_floating(f.type)}


def guessed(source: Source, free: Sequence[str], *, made: bool = False) -> dict[str, list[str]]:
    """Return what the free columns may be by their names; no score where there is one, or one is ``made``.

    There are decisions only where there is no score.
    """
    numbers = _numbers(source)
    label = [name for name in free if usual_name(name) in LABELS]
    label = label or [name for name in free if _words(name) & OUTCOMES or usual_name(name) in OUTCOME_NAMES]
    score = [name for name in free if usual_name(name) in SCORES]
    score = score or [name for name in free if name in numbers and _words(name) & OUTPUTS]
    decided = [name for name in free if DECISION.search(name) and name not in label and not score]
    groups = [name for name in free if _words(name) & GROUPS and name not in (*label, *score, *decided)]
    groups.sort(key=lambda name: name in numbers)  # numbers make many groups, so they come last
    ids = [name for name in free if IDENTITY.search(name.lower()) and name not in (*label, *score, *groups)]
    outputs = {} if made else {"score": score, "prediction": decided}
    return {"protected": groups, "label": label, "score": [], **outputs, "id": ids}


def decided_by(source: Source, names: Sequence[str]) -> dict[str, str]:
    """Return the part that one of several columns of a model's output plays, and which; empty where it is open.

    A usual name comes first. A word in a name is enough where a single column of fractional numbers has one, other than
    those of the negative class.
    """
    usual = sorted((name for name in names if usual_name(name) in SCORES), key=_rank)
    kinds = {field.name: field.type for field in source.schema}
    real = [name for name in names if pa.types.is_floating(kinds[name])]
    fitting = usual or [name for name in real if not _words(name) & NEGATIVE]
    if not fitting or (len(fitting) > 1 and not usual):
        return {}
    return {part_of_output(fitting[0], source.schema): fitting[0]}


def _rank(name: str) -> int:
    return SCORES.index(usual_name(name))


def _settings(
    request: DataRequest, source: Source, given: Mapping[str, list[str]], roles: Mapping[str, list[str]]
) -> dict[str, Any]:
    """Return what was asked for and what is guessed, by parameter, as the command line takes it."""
    domains = parameters_of(type(request))
    settings: dict[str, Any] = {
        role: names if domains[role].listed else names[0] for role, names in given.items()
    }
    for role in VALUED:
        if role in given:
            asked = ValuedColumn.parse(getattr(request, role), source.columns, role)
            settings[role] = str(asked._replace(column=given[role][0]))
    if "protected" not in given and not _of_numbers(request):
        texts = [name for name in roles["protected"] if name not in _numbers(source)]
        if guessed_names := texts or roles["protected"][:1]:
            settings["protected"] = guessed_names
    labels = () if "label" in given else [name for name in roles["label"] if usual_name(name) in LABELS]
    if len(labels) > 1:  # a word in a name makes no label: it may be a feature
        settings["label"] = labels[0]
    scores = () if "score" in given else roles["score"]
    if sum(usual_name(name) in SCORES for name in scores) != 1:
        settings |= decided_by(source, scores)
    if len(decided := roles.get("prediction", [])) == 1 and "prediction" not in given:
        settings["prediction"] = decided[0]
    for name, domain in domains.items():
        value = getattr(request, name)
        if name in request.explicit and name not in ROLES and not domain.positional and request.has(name):
            if name in OF_COLUMNS and isinstance(request.data, str):
                value = [_with_near(str(one), source.columns) for one in value]
            value = list(value) if isinstance(value, tuple) else value
            settings[name] = value if isinstance(value, (str, int, float, list)) else Name(name)
    defaults = _usual(getattr(request, "method", None))
    for name, value in getattr(request, "parameters", {}).items():
        if value is not None and str(value) != defaults.get(name):
            joined = isinstance(value, (list, tuple)) and isinstance(request.data, str)
            settings[name] = joined_names(map(str, value)) if joined else value
    return settings


def _of_numbers(request: DataRequest) -> bool:
    """Tell whether a repair takes numbers in place of groups, as ``covariance[age]`` does."""
    return of_numbers(str(getattr(request, "parameters", {}).get("constraint") or ""))


def _command(
    request: DataRequest,
    source: Source,
    settings: Mapping[str, Any],
    attempt: Callable[[DataRequest], object],
) -> str:
    """Return the command, or the call for data in memory; empty where it does not run, or cannot be copied."""
    asked: dict[str, Any] = {one.name: settings.get(one.name) for one in fields(request) if one.name in ROLES}
    asked |= {name: settings[name] for name in {*OF_COLUMNS} & {*settings}}
    asked |= {role: settings.get(role, ()) for role in ("protected", "strata")}
    if (rows := first_rows(source)) is None:
        return ""
    try:
        attempt(replace(request, **asked, **UNREAD, data=rows))
    except FairfixError:
        return ""
    return _line(request, settings)


def _line(request: DataRequest, settings: Mapping[str, Any]) -> str:
    """Return a command with its parameters, or the call for data in memory; empty where it cannot be copied."""
    task = type(request).__name__.removesuffix("Request").lower()
    return to_copy(task, request.data, settings, request.other_words)


UNREAD: dict[str, Any] = dict.fromkeys(("sql", "count", *WRITTEN))
"""Parameters that say how files are read and repeated, which first rows in memory are already."""


def first_rows(source: Source) -> pa.Table | None:
    """Return the first rows of a source, with the columns that can be read; None where nothing is read."""
    if is_dry():
        return None
    try:
        part = next(iter(source.parts(source.usable, dict.fromkeys(source.doubtful, pa.string()))))
        batches = [batch.slice(0, TRIED) for batch in islice(part.batches(), 1)]
        return pa.Table.from_batches(batches)
    except (FairfixError, StopIteration, ValueError):  # ValueError: no batch
        return None


def alternatives(request: DataRequest, source: Source, choices: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the command of a request with each of some settings; none that cannot be copied."""
    given = _given(request, source)
    settings = _settings(request, source, given, {role: [] for role in ROLES} | given)
    lines = (_line(request, {**settings, **choice}) for choice in choices)
    return [line for line in lines if line]


def paired_instead(request: AuditRequest, source: Source, old: str) -> str | None:
    """Return the command that compares the same rows instead of a saved result; None where rows cannot be paired.

    It is empty where there is no file of the old rows, or no column of ids. ``old`` names the data of the result. A
    column of ids that nobody names is the first one with a usual name.
    """
    if request.suppress_below or request.model is not None:
        return None
    ids = [name for name in source.columns if IDENTITY.search(name.lower())]
    identity = request.id or next(iter(ids), "id")
    paired = replace(request, baseline=old, id=identity, other_words=())
    if identity not in source.columns or not Path(old).is_file():
        return ""
    given = {**_given(paired, source), "id": [identity]}
    return _line(paired, _settings(paired, source, given, {role: [] for role in ROLES} | given))


OF_COLUMNS = ("bands", "merge", "features", "exclude", "reference")
"""Parameters other than roles whose texts begin with the name of a column."""


def _with_near(text: str, columns: Sequence[str]) -> str:
    """Return ``COLUMN`` or ``COLUMN=...`` with the nearest column in place of one that is not there."""
    name, sign, rest = key_and_rest(text)
    near = [] if text in columns or name in columns else nearest(name, columns)
    return f"{quoted_name(near[0], '=')}{sign}{rest}" if near else text


def _usual(method: str | None) -> dict[str, str]:
    """Return the parameters of a method with their defaults as texts, which the command line gives too."""
    from fairfix.methods import available  # an audit does without

    return {name: str(spec.default) for name, spec in available()[method].domains().items()} if method else {}
