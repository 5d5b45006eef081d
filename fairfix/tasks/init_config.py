"""A first configuration, from what a data file looks like: written to be read and changed by a person.

What columns are is inferred by their names and values and said in comments. Which groups matter and which limits hold
is nobody's to infer: candidates are listed, and no limit is ever written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from fairfix.data.column_summary import SHOWN, Survey, survey
from fairfix.data.data_spec import SCORE_RANGE, ColumnRoles, DataSpec, usual_name
from fairfix.data.encoder import truth
from fairfix.data.files import Source
from fairfix.data.names import ValuedColumn, quoted_name, with_values
from fairfix.data.scan import scan
from fairfix.errors import ColumnError, UsageError
from fairfix.tasks.column_suggestions import IDENTITY
from fairfix.tasks.dataset import assigned
from fairfix.tasks.request import AuditRequest

USUAL = (
    *("race", "ethnicity", "sex", "gender", "age_group", "age_band", "religion", "disability"),
    *("nationality", "national_origin", "marital_status", "veteran_status", "sexual_orientation"),
)
"""Usual names of protected columns, without capitals, blanks and hyphens."""

FEW = 20
"""Largest number of values that look like groups."""


@dataclass(frozen=True)
class Draft:
    """Content of the file, with reasons: candidates for groups by name and by values, and the column of ids."""

    data_spec: DataSpec
    usual: tuple[str, ...]
    others: tuple[str, ...]
    identity: str
    seen: Mapping[str, Survey]
    guessed: bool
    count: str | None


PAIR = re.compile(r"\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}", re.IGNORECASE)
"""The two escapes that JSON has for a character beyond 16 bits."""


@dataclass(frozen=True, kw_only=True)
class InitRequest(AuditRequest):
    """The parameters of ``init``: the columns of an audit that are known."""


def first_configuration(
    request: InitRequest, data: str, line: str = "fairfix audit", *, guides: bool = True
) -> str:
    """Return the text of a configuration with which an audit runs that is typed as ``line``.

    ``data`` is how it names the data of the request. Columns that are not named are inferred; an error about them
    ``guides`` to a command that runs.

    Raises
    ------
    UsageError, DataError
        Something that has to be known cannot be inferred, or an audit would not run; names the parameter.
    """
    attempt = partial(first_configuration, data=data, guides=False) if guides else None
    whole = assigned(request, protected_needed=False, attempt=attempt)
    source, columns = whole.source, replace(whole.columns, count=None)
    seen = survey(source, source.usable, dict.fromkeys(source.doubtful, pa.string()))
    usual, others = _candidates(source, columns, seen)
    chosen = columns.protected or usual or others[:1]
    if not chosen:
        raise UsageError(
            f"no column of {source.name} looks like a group (2 to {FEW} values); name one with `protected=COLUMN`"
        )
    data_spec = _data_spec(replace(columns, protected=chosen), seen, whole.valued.get("label"))
    counts = scan(source, data_spec, exact=False, losses=False).counts
    for i, name in enumerate(chosen):
        levels = {cell[i] for cell in counts.cells}
        if len(levels) < 2:
            raise ColumnError(
                f"column {name!r} has only the group {min(levels)!r}; an audit compares at least two"
            )
    ids = [name for name in source.columns if IDENTITY.search(name.lower()) and name not in columns.roles]
    guessed = not columns.protected and not usual
    draft = Draft(data_spec, usual, others, [*ids, "COLUMN"][0], seen, guessed, request.count)
    rows = max((one.rows for one in seen.values()), default=0)
    many = f"{rows:,} people" if request.count else f"{rows:,} rows"
    return _text(draft, f"{_plain(source.name)} ({many})", data, line)


def _candidates(
    source: Source, columns: ColumnRoles, seen: Mapping[str, Survey]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the columns that look like groups: by a usual name, and by few values of text alone."""
    usual, others, taken = [], [], replace(columns, protected=()).roles
    for column in source.schema:
        counts = seen[column.name].counts if column.name in seen else None
        if column.name in taken or counts is None or not 2 <= len(counts) <= FEW:
            continue
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if usual_name(column.name) in USUAL:
            usual.append(column.name)
        elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_boolean(kind):
            others.append(column.name)
    return tuple(usual), tuple(others)


def _data_spec(columns: ColumnRoles, seen: Mapping[str, Survey], asked: ValuedColumn | None) -> DataSpec:
    """Return how the data has to be read for an audit to run."""
    label = seen[columns.label] if columns.label else None
    task: Any = "classification"
    few = None if label is None else label.counts
    positive, threshold = (asked.positive, asked.threshold) if asked else ((), "")
    binary = few is not None and all(truth(text) is not None for text in few)
    if label is not None and not (positive or threshold or binary):
        if not np.isfinite(label.low):
            shown = ", ".join(map(repr, sorted(few)[:SHOWN])) if few else "many values"
            raise UsageError(
                f"the label {columns.label!r} contains {shown}; name the positive value with "
                f"`label={with_values(str(columns.label), ['VALUE'])}`, or another column with `label`"
            )
        task = "regression"
    scale: Any = "probability"
    if columns.score and task == "classification":
        low, high = SCORE_RANGE["probability"]
        if seen[columns.score].low < low or seen[columns.score].high > high:
            scale = "raw"
    gaps = any(seen[name].missing for name in (columns.label, columns.score, columns.prediction) if name)
    groups = [name for name in columns.protected if seen[name].missing]
    return DataSpec(
        columns,
        task=task,
        score_scale=scale,
        positive_label=positive,
        label_threshold=threshold,
        missing_rows="drop" if gaps else "error",
        missing_of=dict.fromkeys(groups, "group"),
    )


TEXT = """\
# fairfix settings for this folder, written by 'fairfix init' from {source}.
# '{line}' now needs no options. Keys are the long options of the commands; a flag overrides an
# environment variable (FAIRFIX_LABEL), which overrides this file. 'fairfix audit --dry-run' prints the
# settings in effect.

data = {data}

{groups}

{label}

{scores}

[audit]
# If a check fails, the audit ends with exit status 1. You choose the limits.
# 'fairfix explain' lists the metrics and comparisons that a check can limit.
# check = ["{check}<=LIMIT"]
{crossed}# strata = ["COLUMN"]   # also compare within each level of this column

[repair]
# id = {identity}   # identifies a row; seeds randomized decisions
# output = "repaired.fairfix"
"""


def _text(draft: Draft, source: str, data: str, line: str) -> str:
    several = len(draft.data_spec.columns.protected) > 1
    return TEXT.format(
        source=source,
        line=line,
        data=_toml(data),
        groups="\n".join(_of_groups(draft)),
        label="\n".join(_of_label(draft)),
        scores="\n".join((*_of_scores(draft), *_of_gaps(draft))),
        check="ks" if draft.data_spec.task == "regression" else "dp.difference",
        crossed="# intersect = true   # also the intersections of all protected columns\n" if several else "",
        identity=_toml(draft.identity),
    )


def _of_groups(draft: Draft) -> Iterator[str]:
    chosen = draft.data_spec.columns.protected
    yield "# Columns whose groups are compared. Check this list: names and values do not show which columns matter."
    if draft.guessed:
        yield "# No column has a usual name, so this is the first text column with few values: CHECK IT."
    for title, names in (("By their names", draft.usual), ("Others with few values", draft.others)):
        if names:
            yield f"# {title}:"
            yield from (f"#   {_plain(name)}: {draft.seen[name].shown(_plain)}" for name in names)
    yield f"protected = [{', '.join(_toml(quoted_name(name)) for name in chosen)}]"
    if draft.count:
        yield f"\n# The number of people in a row.\ncount = {_toml(draft.count)}"


def _of_label(draft: Draft) -> Iterator[str]:
    data_spec = draft.data_spec
    label = data_spec.columns.label
    if label is None:
        yield "# No column has a usual label name, so only metrics without a label are computed."
        yield '# label = "COLUMN"   # the observed outcome, 0/1'
        return
    yield f"# The observed outcome: {draft.seen[label].shown(_plain)}."
    yield f"label = {_toml(str(ValuedColumn(label, data_spec.positive_label, data_spec.label_threshold)))}"
    if data_spec.task == "regression":
        yield 'task = "regression"   # the label is a number, not 0/1'


def _of_scores(draft: Draft) -> Iterator[str]:
    data_spec, columns = draft.data_spec, draft.data_spec.columns
    if columns.score is None:
        yield "# The decisions, 0/1."
        yield f"prediction = {_toml(str(columns.prediction))}"
        yield '# score = "COLUMN"   # the model\'s score, for distances between score distributions'
        return
    seen = draft.seen[columns.score]
    yield f"# The model's score, from {seen.low:g} to {seen.high:g}."
    yield f"score = {_toml(columns.score)}"
    if data_spec.task == "regression":
        return
    if data_spec.score_scale == "raw":
        yield "# These are not probabilities. For 100p, 2p-1 or log-odds, write percent, margin or logit; a raw"
        yield "# score needs a threshold for decisions."
        yield 'score-scale = "raw"'
    default = "; 0.5 if left out" if data_spec.score_scale == "probability" else ""
    yield f"# threshold = SCORE   # a score at or above it is a positive decision{default}"


def _of_gaps(draft: Draft) -> Iterator[str]:
    data_spec = draft.data_spec
    texts = ["drop"] if data_spec.missing_rows == "drop" else []
    texts += [f"{quoted_name(name, '=')}={policy}" for name, policy in data_spec.missing_of.items()]
    if texts:
        yield "# Some entries are missing. Such rows are left out and counted (drop), or form a group of their own."
        yield f"missing = [{', '.join(map(_toml, texts))}]"


def _plain(text: str) -> str:
    """Return a text that cannot leave the line of a comment."""
    return _toml(text[:40])[1:-1]


def _toml(text: str) -> str:
    """Return a TOML string."""
    return as_toml(json.dumps(text, ensure_ascii=not text.isprintable()))


def as_toml(quoted: str) -> str:
    """Return a JSON text as TOML has it: a character beyond 16 bits is one escape, not two."""
    return PAIR.sub(_one_escape, quoted)


def _one_escape(match: re.Match[str]) -> str:
    character = json.loads('"' + match[0] + '"')
    return f"\\U{ord(character):08x}"
