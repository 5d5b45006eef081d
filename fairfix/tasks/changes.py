"""Changes since a baseline, which is a saved result, data, or a column of the data, and the checks of them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fairfix.auditing.as_json import audit_dict
from fairfix.auditing.audit import audit as audit_data
from fairfix.auditing.audit import require_two_groups
from fairfix.auditing.baseline import Allowance, changed, compare, require_comparable
from fairfix.auditing.checks import worst
from fairfix.auditing.results import Settings
from fairfix.data.codec import json_of, shown
from fairfix.data.files import Source, file_hash, head_of, read_json
from fairfix.data.names import did_you_mean
from fairfix.data.reading import Reading
from fairfix.data.scan import read_table
from fairfix.data.storage import MAGIC, SCHEMES, Place, find, local
from fairfix.data.streams import is_stream, stream_place
from fairfix.data.table import Table
from fairfix.data.urls import scheme_of
from fairfix.errors import MALFORMED, DataError, UsageError
from fairfix.models.scored_source import ScoredSource
from fairfix.models.trace import Caution, Note
from fairfix.report.layout import HEADLINES
from fairfix.tasks.dataset import Dataset, log, opened
from fairfix.tasks.messages import add_messages, message_dict
from fairfix.tasks.request import AuditRequest, CompareRequest, GateRequest
from fairfix.tasks.result import Result

if TYPE_CHECKING:
    from fairfix.auditing.paired_differences import Matched


@dataclass(frozen=True)
class Baseline:
    """An earlier model: the JSON form of its audit, its rows, or a column of the data."""

    name: str
    result: Any = None
    data: Any = None
    column: str = ""

    def among(self, columns: Sequence[str]) -> Baseline:
        """Return the baseline as a column where its text names one of these, and no file."""
        text = self.name
        if self.data is not None and not isinstance(self.data, str):
            return self
        is_file = bool(scheme_of(text) or MAGIC & set(text)) or os.path.exists(_file_of(text))  # noqa: PTH110  any text
        if text in columns and not is_file:
            return Baseline(text, column=text)
        if text in columns:
            raise UsageError(
                f"`baseline={text}` is a column of the data and a file; write ./{text} for the file, or rename one"
            )
        if self.data is not None and not is_file:
            raise DataError(
                f"`baseline`: {text} does not exist, neither as a file nor as a column of the data"
                f"{did_you_mean(text, columns)}"
            )
        return self


def baseline_of(baseline: Any) -> Baseline | None:
    """Return what a baseline is, by its content; whether a text names a column, :meth:`Baseline.among` finds out."""
    if baseline is None:
        return None
    if isinstance(baseline, Result):
        return Baseline("given", baseline.to_dict())
    if isinstance(baseline, Mapping):
        return Baseline("given", baseline)
    if not isinstance(baseline, str):
        return Baseline("given", data=baseline)
    place = stream_place(baseline) if is_stream(baseline) else baseline  # which can be read once
    if _is_result(place):
        return Baseline(baseline, read_json(place, "`baseline`: "))
    return Baseline(baseline, data=place)


def _file_of(text: str) -> str:
    """Return the file that a text names, without the table behind ``#``."""
    return text if os.path.exists(text) else text.rpartition("#")[0] or text  # noqa: PTH110  any text


def _is_result(named: str | Place) -> bool:
    """Tell whether a file holds a JSON object that is no row of JSON lines: a saved result, sound or not."""
    if isinstance(named, Place):
        places = [named]
    elif scheme_of(named) in SCHEMES and "#" not in named:
        places = find(named, lambda _: True)
    else:
        places = [local(named)] if os.path.isfile(named) else []  # noqa: PTH113  any text
    first, _, more = head_of(places[0], HEAD).lstrip(SPACE).partition(b"\n") if places else (b"", b"", b"")
    if len(places) > 1 or not first.startswith(b"{"):
        return False
    try:
        row = json_of(first)
    except ValueError:  # it goes on behind the line
        return True
    return str(row.get("schema")).startswith("fairfix.") or not (row or more.strip())


HEAD, SPACE = 1 << 16, b"\xef\xbb\xbf \t\r\n"
"""A row of JSON lines is shorter than this; what may stand before JSON."""


def not_checked(request: GateRequest, allowances: Sequence[Allowance], why: str) -> list[Note]:
    """Return that checks of changes are not checked, as those of a configuration may be for other runs.

    A UsageError where they were asked for here and now.
    """
    if not allowances:
        return []
    if "check" not in request.configured:
        raise UsageError(f"check {allowances[0].text!r} limits a change, and {why}")
    note = Note(f"not checked: {', '.join(one.text for one in allowances)} ({why})", "not_checked")
    log.info("%s", note.line)
    return [note]


def compare_results(
    content: dict[str, Any],
    base: Baseline,
    allowances: Sequence[Allowance],
    request: AuditRequest,
    settings: Settings,
    data: Dataset | None,
    require: Callable[[Any, Mapping[str, Any], str], None] = require_comparable,
    compared: Callable[..., tuple[dict[str, Any], list[dict[str, Any]]]] = compare,
) -> None:
    """Add to a result what has changed since an earlier one, and the checks of changes."""
    name, old = base.name, base.result
    try:
        require(old, content, name)
        _require_suppressed(old, settings.suppress_below, name)
        both = None if data is None else _of_same_file(old, content, settings, request, data)
        more: tuple[Any, ...] = ()
        if both is not None:
            from fairfix.auditing.paired_differences import Changes

            more = (Changes(both, settings.confidence, settings.reference).limits,)
        section, checks = compared(old, content, allowances, list(HEADLINES), request.gate_on, *more)
    except MALFORMED as error:
        raise changed(name, shown(error)) from error
    if both is not None:
        section["same_file"] = True
    elif data is not None:
        _propose_pairs(content, checks, base, request, data)
    rows = [one["settings"].get("where") or "all rows" for one in (old, content)]
    if rows[0] != rows[1]:
        text = f"the baseline {name} covers {rows[0]}, and this audit covers {rows[1]}; use the same `where` for both"
        add_messages(content, [Caution(text, "other_rows")])
    _add_changes(content, section, checks, allowances, f"the baseline {name}")


def _require_suppressed(old: Mapping[str, Any], least: int, name: str) -> None:
    """Raise a DataError where a baseline shows groups that this audit has to leave out."""
    if old["settings"].get("suppress_below", 0) < least:
        raise DataError(
            f"`suppress_below={least}`: the baseline {name} was audited with "
            f"{old['settings'].get('suppress_below', 0)}, so it may name smaller groups; audit it again with {least}"
        ).without_values()


def _of_same_file(
    old: Mapping[str, Any], new: Mapping[str, Any], settings: Settings, request: AuditRequest, data: Dataset
) -> Matched | None:
    """Return the rows with old and with new decisions where a baseline is of the very same file; else None.

    The baseline must have the hash of the file, name the columns of its decisions, and have their numbers.
    """
    from fairfix.auditing.paired_differences import Matched

    hashed = old.get("record", {}).get("data_sha256")
    where = request.data
    scored = old["data"]["model"] or data.model is not None or settings.suppress_below or new.get("noise")
    if hashed is None or scored or not (isinstance(where, str) and Path(where).is_file()):
        return None
    if file_hash(where) != hashed:
        return None
    data.source.require_unchanged()
    columns = old["data"]["columns"], new["data"]["columns"]
    decided: dict[str, Any] = {part: columns[0].get(part) for part in ("score", "prediction", "probability")}
    rest = ({part: names for part, names in one.items() if part not in decided} for one in columns)
    if not _alike(*rest) or not set(filter(None, decided.values())) <= set(data.source.columns):
        return None
    reading = data.reading
    cut = old["settings"]["threshold"]
    before = replace(
        reading, columns=replace(reading.columns, **decided), thresholds=() if cut is None else (float(cut),)
    )
    was, now = (read_table(data.source, one, ()) for one in (before, reading))
    same = [np.array_equal(getattr(was.rows, part), getattr(now.rows, part)) for part in ("cell", "label")]
    if not all(same) or was.rows.cells != now.rows.cells:
        return None
    again = audit_dict(audit_data(was, before, replace(settings, checks=())))
    return Matched(was, now, 0, 0, 0) if _alike(old["attributes"], as_saved(again)["attributes"]) else None


def _alike(one: Any, two: Any) -> bool:
    """Return whether two JSON forms are the same."""
    return json.dumps(one, sort_keys=True) == json.dumps(two, sort_keys=True)


def _propose_pairs(
    content: dict[str, Any],
    checks: Sequence[dict[str, Any]],
    base: Baseline,
    request: AuditRequest,
    data: Dataset,
) -> None:
    """Say with undecided checks of changes that samples were taken as independent, and how to pair them."""
    from fairfix.tasks.column_suggestions import paired_instead

    undecided = [check for check in checks if check["code"] == "limit_inside"]
    for check in undecided:
        check["reason"] += (
            "; the baseline's rows are not matched, so old and new are treated as independent samples"
        )
    source = data.source.unscored if isinstance(data.source, ScoredSource) else data.source
    command = paired_instead(
        request, source, base.result["data"]["source"] if base.data is None else base.name
    )
    if undecided and command is not None:
        note = Note(
            f"{len(undecided)} of {len(checks)} checks of changes are undecided, because old and new are treated as "
            "independent samples. If both contain the same people, compare them row by row, which decides more: give "
            f"the earlier data as `baseline`, and `id`{f': {command}' if command else ''}",
            "unpaired",
        )
        content.setdefault("messages", []).append(message_dict(note))
        log.info("%s", note.line)


def compare_rows(
    content: dict[str, Any],
    settings: Settings,
    allowances: Sequence[Allowance],
    request: AuditRequest,
    both: BothModels,
) -> None:
    """Add to a result what has changed on the rows that both models scored, and the checks of changes."""
    from fairfix.auditing.paired_differences import Changes, doubt

    matched, after = both.matched()
    plain = replace(settings, checks=())
    reports = [
        replace(audit_data(table, both.readings[1], plain), source=source)
        for table, source in zip((matched.old, matched.new), both.names, strict=True)
    ]
    require_two_groups(reports[1])
    old, new = map(audit_dict, reports)
    limits = Changes(matched, settings.confidence, settings.reference).limits
    judged = {**new, "checks": content["checks"]}
    section, checks = compare(old, judged, allowances, list(HEADLINES), request.gate_on, limits)
    doubt(checks, matched)
    if matched.share < 1:
        common, every = f"{len(matched.new):,}", f"{len(after):,}"
        log.info("%s of %s rows are in the baseline too, in the same group", common, every)
    section |= {"paired": matched.to_dict(both.id)} if both.id else {"same_file": True}
    _add_changes(content, section, checks, allowances, "the baseline")


def _add_changes(
    content: dict[str, Any],
    section: Mapping[str, Any],
    checks: list[dict[str, Any]],
    allowances: Sequence[Allowance],
    name: str,
) -> None:
    if allowances and not checks:
        why = "; ".join(dict.fromkeys(one["reason"] for one in section["not_comparable"]))
        raise DataError(
            f"check {allowances[0].text!r}: nothing in {name} can be compared with this audit"
            + (f": {why}" if why else "")
        )
    content["baseline"] = section
    content["checks"] += checks
    content["verdict"] = worst(check["verdict"] for check in content["checks"])


@dataclass(frozen=True)
class BothModels:
    """Rows of an earlier and of a new model: matched by id, or both scores in one row where there is no id."""

    sources: tuple[Source, Source]
    readings: tuple[Reading, Reading]
    id: str
    decided: str
    """The role in which the column of the one stands for that of the other."""

    @property
    def steps(self) -> tuple[Callable[[], Table], Callable[[], Table]]:
        """Return what reads the rows of the one, and of the other."""
        old, new = (
            partial(with_ids, *both, self.id) for both in zip(self.sources, self.readings, strict=True)
        )
        return old, new

    @property
    def columns(self) -> tuple[str, str]:
        """The columns with the score or the decision of each model."""
        old, new = (getattr(reading.columns, self.decided) for reading in self.readings)
        return old, new

    @property
    def names(self) -> tuple[str, str]:
        """What the rows of each model are called."""
        old, new = (source.name for source in self.sources)
        return (old if self.id else self.columns[0]), new

    def matched(self) -> tuple[Matched, Table]:
        """Return the rows with both models, and all those of the new one."""
        from fairfix.auditing.paired_differences import Matched, match

        old, new = (step() for step in self.steps)
        if self.id:
            return match(old, new, self.id), new
        if any(f"missing {self.decided}" in table.rows.excluded for table in (old, new)):
            raise DataError(
                f"a row has a {self.decided} from one model and none from the other; remove such rows, so that both "
                "models are compared on the same people"
            )
        return Matched(replace(old, reading=new.reading), new, 0, 0, 0), new


def both_models(request: AuditRequest | CompareRequest, data: Dataset, base: Baseline) -> BothModels:
    """Return how the rows of a baseline and of data are read; an error where they cannot be compared one by one."""
    new = data.reading
    parts = [one for one in ("prediction", "probability", "score") if getattr(new.columns, one)]
    if base.column and len(parts) > 1:
        names = " and ".join(f"`{one}={getattr(new.columns, one)}`" for one in parts)
        raise UsageError(
            f"`baseline={base.column}` is one column, and the new model has {names}; give the earlier model as data, "
            "or name one column of the new model in a file without the other"
        )
    if base.column == getattr(new.columns, parts[0]):
        raise UsageError(
            f"`baseline={base.column}` is the {parts[0]} itself; name the column of the other model"
        )
    if base.column:
        old = replace(new, columns=replace(new.columns, **{parts[0]: base.column}))  # type: ignore[arg-type]  # a part of one name
        return BothModels((data.source, data.source), (old, new), "", parts[0])
    if not request.id:
        raise UsageError("`baseline` needs `id` here: rows of two files are matched by their ids")
    return BothModels((opened(request, base.data), data.source), (new, new), request.id, parts[-1])


def with_ids(source: Source, reading: Reading, name: str) -> Table:
    """Return the rows of a source with their ids, if any; they stay texts where the format is one of text."""
    source.require((name,) if name else ())
    kinds = {name: pa.string() if source.text else source.schema.field(name).type} if name else {}
    return read_table(source, reading, (), kinds)


def as_saved(content: Mapping[str, Any]) -> Any:
    """Return a result as its JSON form has it."""
    return json.loads(json.dumps(content))
