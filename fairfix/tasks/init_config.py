"""A first configuration, from what a data file looks like: written to be read and changed by a person.

What columns are is inferred by their names and values and said in comments. Which groups matter and which limits hold
is nobody's to infer: candidates are listed, and no limit is ever written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from fairfix.data.column_summary import MANY, SHOWN, Survey
from fairfix.data.files import Source, open_source
from fairfix.data.names import quoted_name, with_values
from fairfix.data.reading import SCORE_RANGE, Columns, Reading, infer_columns
from fairfix.data.scan import scan
from fairfix.errors import ColumnError, UsageError

USUAL = (
    *("race", "ethnicity", "sex", "gender", "age_group", "age_band", "religion", "disability"),
    *("nationality", "national_origin", "marital_status", "veteran_status", "sexual_orientation"),
)
"""Usual names of protected columns, without capitals, blanks and hyphens."""

FEW = 20
"""Largest number of values that look like groups."""

TRUTHS = frozenset({"0", "1", "0.0", "1.0", "true", "false"})
INDEX = re.compile(r"(^|_)(id|uuid|key)$")


@dataclass(frozen=True)
class Draft:
    """Content of the file, with reasons: candidates for groups by name and by values, and the column of ids."""

    reading: Reading
    usual: tuple[str, ...]
    others: tuple[str, ...]
    identity: str
    seen: Mapping[str, Survey]
    guessed: bool


PAIR = re.compile(r"\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}", re.IGNORECASE)
"""The two escapes that JSON has for a character beyond 16 bits."""


def first_configuration(
    source: Source,
    data: str,
    columns: Columns,
    *,
    positive_label: tuple[str, ...] = (),
    label_threshold: str = "",
    line: str = "fairfix audit",
    typed: str = "",
) -> str:
    """Return the text of a configuration with which an audit of the data runs; ``data`` is how it names the source.

    ``line`` is what is typed to run it, ``typed`` how the source was named. Columns that are not named are inferred.

    Raises
    ------
    UsageError, DataError
        Something that has to be known cannot be inferred, or an audit would not run; names the parameter.
    """
    try:
        columns, _ = infer_columns(columns, source.schema, repaired=True)
    except ColumnError as error:
        if not typed:
            raise
        raise ColumnError(
            error.text, f"\n{_guide(source, typed, columns, positive_label, label_threshold)}"
        ) from error
    source.require(columns.roles)
    seen, rows = _surveyed(source)
    usual, others = _candidates(source, columns, seen)
    chosen = columns.protected or usual or others[:1]
    if not chosen:
        raise UsageError(
            f"no column of {source.name} looks like a group (2 to {FEW} values); name one with `protected=COLUMN`"
        )
    reading = _reading(replace(columns, protected=chosen), seen, positive_label, label_threshold)
    counts = scan(source, reading, exact=False, losses=False).counts
    for i, name in enumerate(chosen):
        levels = {cell[i] for cell in counts.cells}
        if len(levels) < 2:
            raise ColumnError(
                f"column {name!r} has only the group {min(levels)!r}; an audit compares at least two"
            )
    ids = [name for name in source.columns if INDEX.search(name.lower()) and name not in columns.roles]
    draft = Draft(reading, usual, others, [*ids, "COLUMN"][0], seen, not columns.protected and not usual)
    many = f"{rows:,} people" if columns.count else f"{rows:,} rows"
    return _text(draft, f"{_plain(source.name)} ({many})", data, line)


def _guide(source: Source, typed: str, columns: Columns, positive: tuple[str, ...], threshold: str) -> str:
    """Return what columns may be, and the command with the guesses if it runs on the first rows."""
    from fairfix.tasks.column_suggestions import decided_by, guessed, listing, runs
    from fairfix.tasks.command import to_copy

    parts: dict[str, Any] = {
        name: getattr(columns, name) for name in ("protected", "label", "score", "prediction")
    }
    given = {
        part: [names] if isinstance(names, str) else list(names) for part, names in parts.items() if names
    }
    taken = {name for names in given.values() for name in names}
    free = [name for name in source.columns if name not in taken]
    roles = {**guessed(source, free, made=bool(columns.score or columns.prediction)), **given}
    own: dict[str, Any] = {} if "score" in given else decided_by(source, roles["score"])
    filled = replace(columns, **own)
    settings: dict[str, Any] = {
        part: names if part == "protected" else names[0] for part, names in given.items()
    }
    settings |= own
    if positive:
        settings["label"] = with_values(given["label"][0], positive)
    elif threshold:
        settings["label"] += threshold

    def attempt(rows: pa.Table) -> None:
        first_configuration(open_source(rows), "", filled, positive_label=positive, label_threshold=threshold)

    command = to_copy("init", typed, settings) if runs(source, attempt) else ""
    return listing(source, given, roles, [command] if command else [])


def _surveyed(source: Source) -> tuple[dict[str, Survey], int]:
    """Return what is seen of each column, and the number of rows."""
    seen = {name: Survey() for name in source.usable}
    rows = 0
    for part in source.parts(list(seen), dict.fromkeys(source.doubtful, pa.string())):
        for batch in part.batches():
            rows += batch.num_rows
            for name in seen:
                seen[name].add(batch.column(batch.schema.get_field_index(name)))
    return seen, rows


def _candidates(
    source: Source, columns: Columns, seen: Mapping[str, Survey]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the columns that look like groups: by a usual name, and by few values of text alone."""
    usual, others, taken = [], [], replace(columns, protected=()).roles
    for column in source.schema:
        counts = seen[column.name].counts if column.name in seen else None
        if column.name in taken or counts is None or not 2 <= len(counts) <= FEW:
            continue
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if re.sub(r"[\s-]+", "_", column.name.strip().lower()) in USUAL:
            usual.append(column.name)
        elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_boolean(kind):
            others.append(column.name)
    return tuple(usual), tuple(others)


def _reading(
    columns: Columns, seen: Mapping[str, Survey], positive_label: tuple[str, ...], label_threshold: str
) -> Reading:
    """Return how the data has to be read for an audit to run."""
    label = seen[columns.label] if columns.label else None
    task: Any = "classification"
    few = None if label is None else label.counts
    binary = few is not None and {text.strip().lower() for text in few} <= TRUTHS
    if label is not None and not (positive_label or label_threshold or binary):
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
    return Reading(
        columns,
        task=task,
        score_scale=scale,
        positive_label=positive_label,
        label_threshold=label_threshold,
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
    several = len(draft.reading.columns.protected) > 1
    return TEXT.format(
        source=source,
        line=line,
        data=_toml(data),
        groups="\n".join(_of_groups(draft)),
        label="\n".join(_of_label(draft)),
        scores="\n".join((*_of_scores(draft), *_of_gaps(draft))),
        check="ks" if draft.reading.task == "regression" else "dp.difference",
        crossed="# intersect = true   # also the intersections of all protected columns\n" if several else "",
        identity=_toml(draft.identity),
    )


def _of_groups(draft: Draft) -> Iterator[str]:
    chosen = draft.reading.columns.protected
    yield "# Columns whose groups are compared. Check this list: names and values do not show which columns matter."
    if draft.guessed:
        yield "# No column has a usual name, so this is the first text column with few values: CHECK IT."
    for title, names in (("By their names", draft.usual), ("Others with few values", draft.others)):
        if names:
            yield f"# {title}:"
            yield from (f"#   {_plain(name)}: {_content(draft.seen[name])}" for name in names)
    yield f"protected = [{', '.join(_toml(quoted_name(name)) for name in chosen)}]"
    if count := draft.reading.columns.count:
        yield f"\n# The number of people in a row.\ncount = {_toml(count)}"


def _of_label(draft: Draft) -> Iterator[str]:
    reading = draft.reading
    label = reading.columns.label
    if label is None:
        yield "# No column has a usual label name, so only metrics without a label are computed."
        yield '# label = "COLUMN"   # the observed outcome, 0/1'
        return
    yield f"# The observed outcome: {_content(draft.seen[label])}."
    positive = reading.positive_label
    yield f"label = {_toml(with_values(label, positive) if positive else label + reading.label_threshold)}"
    if reading.task == "regression":
        yield 'task = "regression"   # the label is a number, not 0/1'


def _of_scores(draft: Draft) -> Iterator[str]:
    reading, columns = draft.reading, draft.reading.columns
    if columns.score is None:
        yield "# The decisions, 0/1."
        yield f"prediction = {_toml(str(columns.prediction))}"
        yield '# score = "COLUMN"   # the model\'s score, for distances between score distributions'
        return
    seen = draft.seen[columns.score]
    yield f"# The model's score, from {seen.low:g} to {seen.high:g}."
    yield f"score = {_toml(columns.score)}"
    if reading.task == "regression":
        return
    if reading.score_scale == "raw":
        yield "# These are not probabilities. For 100p, 2p-1 or log-odds, write percent, margin or logit; a raw"
        yield "# score needs a threshold for decisions."
        yield 'score-scale = "raw"'
    default = "; 0.5 if left out" if reading.score_scale == "probability" else ""
    yield f"# threshold = SCORE   # a score at or above it is a positive decision{default}"


def _of_gaps(draft: Draft) -> Iterator[str]:
    reading = draft.reading
    texts = ["drop"] if reading.missing_rows == "drop" else []
    texts += [f"{quoted_name(name, '=')}={policy}" for name, policy in reading.missing_of.items()]
    if texts:
        yield "# Some entries are missing. Such rows are left out and counted (drop), or form a group of their own."
        yield f"missing = [{', '.join(map(_toml, texts))}]"


def _content(survey: Survey) -> str:
    """Return what a column holds: its most frequent values, or its ends."""
    missing = f", {survey.missing:,} missing" if survey.missing else ""
    if survey.counts is None:
        numbers = f"numbers from {survey.low:g} to {survey.high:g}"
        return (numbers if np.isfinite(survey.low) else f"more than {MANY} values") + missing
    common = survey.common
    shown = ", ".join(f"{_plain(text)} {many:,}" for text, many in common[:SHOWN])
    return shown + (f" and {len(common) - SHOWN} more" if len(common) > SHOWN else "") + missing


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
