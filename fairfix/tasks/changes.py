"""Changes since a baseline, which is a saved result, data, or a column of the data, and the checks of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from msgspec.structs import replace as fields_replaced

from fairfix.auditing.audit import audit as audit_data
from fairfix.auditing.audit import require_two_groups
from fairfix.auditing.baseline import Allowance, Limits, compare, read_checks, require_comparable
from fairfix.auditing.checks import Check
from fairfix.auditing.results import Settings, with_checks, with_data
from fairfix.data.codec import json_of
from fairfix.data.data_spec import DataSpec
from fairfix.data.files import Source, file_hash, head_of, read_json
from fairfix.data.names import did_you_mean
from fairfix.data.scan import read_table
from fairfix.data.storage import MAGIC, SCHEMES, FileLocation, find, local
from fairfix.data.streams import is_stream, stream_place
from fairfix.data.table import Table
from fairfix.data.urls import scheme_of
from fairfix.errors import DataError, UsageError
from fairfix.models.trace import Caution, Note
from fairfix.report.layout import HEADLINES
from fairfix.schema import common
from fairfix.schema.audit import Audit
from fairfix.tasks.dataset import Dataset, log, opened
from fairfix.tasks.messages import message, with_messages
from fairfix.tasks.request import AuditRequest, CompareRequest, GateRequest
from fairfix.tasks.result import Result

if TYPE_CHECKING:
    from fairfix.auditing.paired_differences import Matched


@dataclass(frozen=True)
class EarlierModel:
    """An earlier model: its audit, also in JSON form, its rows, or a column of the data."""

    name: str
    result: Any = None
    data: Any = None
    column: str = ""

    def among(self, columns: Sequence[str]) -> EarlierModel:
        """Return the baseline as a column where its text names one of these, and no file."""
        text = self.name
        if self.data is not None and not isinstance(self.data, str):
            return self
        is_file = bool(scheme_of(text) or MAGIC & set(text)) or os.path.exists(_file_of(text))  # noqa: PTH110  any text
        if text in columns and not is_file:
            return EarlierModel(text, column=text)
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


def baseline_of(baseline: Any) -> EarlierModel | None:
    """Return what a baseline is, by its content; whether a text names a column, :meth:`Baseline.among` finds out."""
    if baseline is None:
        return None
    if isinstance(baseline, Result):
        return EarlierModel("given", baseline.content)
    if isinstance(baseline, Mapping):
        return EarlierModel("given", baseline)
    if not isinstance(baseline, str):
        return EarlierModel("given", data=baseline)
    place = stream_place(baseline) if is_stream(baseline) else baseline  # which can be read once
    if _is_result(place):
        return EarlierModel(baseline, read_json(place, "`baseline`: "))
    return EarlierModel(baseline, data=place)


def _file_of(text: str) -> str:
    """Return the file that a text names, without the table behind ``#``."""
    return text if os.path.exists(text) else text.rpartition("#")[0] or text  # noqa: PTH110  any text


def _is_result(named: str | FileLocation) -> bool:
    """Tell whether a file holds a JSON object that is no row of JSON lines: a saved result, sound or not."""
    if isinstance(named, FileLocation):
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


def checks_of(request: GateRequest) -> tuple[tuple[Check, ...], tuple[Allowance, ...]]:
    """Return the checks of values, and those of changes; an error proposes ours for a metric of other tools."""
    try:
        return read_checks(request.check, request.protected)
    except UsageError as error:
        if not error.instead:
            from fairfix.tasks.explain import check_meant

            meant = ((text, check_meant(text, request.protected)) for text in request.check)
            error.proposing(*((text, right) for text, right in meant if right))
        raise


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


def with_changes(
    result: Audit,
    base: EarlierModel,
    allowances: Sequence[Allowance],
    request: AuditRequest,
    settings: Settings,
    data: Dataset | None,
) -> Audit:
    """Return a result with what has changed since an earlier one, and the checks of changes."""
    name = base.name
    old = require_comparable(base.result, result, name)
    require_suppressed(old, settings.suppress_below, name)
    if any(one.code == "private_counts" for one in old.messages):
        raise DataError(
            f"the baseline {name} is of private counts, and changes take counts as exact; name a result of exact "
            "counts or of rows"
        )
    both = None if data is None else _of_same_file(old, result, settings, request, data)
    limits = None
    if both is not None:
        from fairfix.auditing.paired_differences import Changes

        limits = Changes(both, settings.confidence, settings.reference).limits
    if result.classes:
        from fairfix.auditing.multiclass import compare_classes

        section, checks = compare_classes(old, result, allowances, list(HEADLINES), request.gate_on)
    else:
        section, checks = compare(old, result, allowances, list(HEADLINES), request.gate_on, limits)
    if both is not None:
        section = fields_replaced(section, same_file=True)
    elif data is not None:
        result, checks = _proposing_pairs(result, checks, base, old, request, data)
    return with_section(of_other_rows(result, old, name), section, checks, allowances, f"the baseline {name}")


def of_other_rows(result: Audit, old: Audit, name: str) -> Audit:
    """Return a result with a warning where its rows meet another condition than those of the baseline."""
    then, now = (one.settings.where or "all rows" for one in (old, result))
    if then == now:
        return result
    text = f"the baseline {name} covers {then}, and this audit covers {now}; use the same `where` for both"
    return with_messages(result, [Caution(text, "other_rows")])


def require_suppressed(old: Audit, least: int, name: str) -> None:
    """Raise a DataError where a baseline shows groups that this audit has to leave out."""
    shown_from = old.settings.suppress_below or 0
    if shown_from < least:
        raise DataError(
            f"`suppress_below={least}`: the baseline {name} was audited with {shown_from}, so it may name smaller "
            f"groups; audit it again with {least}"
        ).without_values()


def _of_same_file(
    old: Audit, new: Audit, settings: Settings, request: AuditRequest, data: Dataset
) -> Matched | None:
    """Return the rows with old and with new decisions where a baseline is of the very same file; else None.

    The baseline must have the hash of the file, name the columns of its decisions, and have their numbers.
    """
    from fairfix.auditing.paired_differences import Matched

    hashed = old.record.data_sha256 if old.record else ""
    where = request.data
    scored = old.data.model or data.model is not None or settings.suppress_below or new.noise
    if not hashed or scored or not (isinstance(where, str) and Path(where).is_file()):
        return None
    if file_hash(where) != hashed:
        return None
    data.source.require_unchanged()
    columns = old.data.columns, new.data.columns
    decided = {"score": columns[0].score, "prediction": columns[0].prediction}
    decided["probability"] = columns[0].probability
    rest = (fields_replaced(one, **dict.fromkeys(decided, "")) for one in columns)
    if len({*rest}) > 1 or not set(filter(None, decided.values())) <= set(data.source.columns):
        return None
    data_spec = data.data_spec
    cut = old.settings.threshold
    named: dict[str, Any] = {part: name or None for part, name in decided.items()}
    before = replace(
        data_spec, columns=replace(data_spec.columns, **named), thresholds=() if cut is None else (cut,)
    )
    was, now = (read_table(data.source, one, ()) for one in (before, data_spec))
    same = [np.array_equal(getattr(was.rows, part), getattr(now.rows, part)) for part in ("cell", "label")]
    if not all(same) or was.rows.cells != now.rows.cells:
        return None
    again = audit_data(was, before, replace(settings, checks=()))
    return Matched(was, now) if old.attributes == again.attributes else None


def _proposing_pairs(
    result: Audit,
    checks: tuple[common.SavedCheck, ...],
    base: EarlierModel,
    old: Audit,
    request: AuditRequest,
    data: Dataset,
) -> tuple[Audit, tuple[common.SavedCheck, ...]]:
    """Say with undecided checks of changes that samples were taken as independent, and how to pair them."""
    from fairfix.tasks.column_suggestions import paired_instead

    why = "; the baseline's rows are not matched, so old and new are treated as independent samples"
    undecided = sum(check.code == "limit_inside" for check in checks)
    checks = tuple(
        fields_replaced(check, reason=check.reason + why) if check.code == "limit_inside" else check
        for check in checks
    )
    source = data.unscored
    command = paired_instead(request, source, old.data.source if base.data is None else base.name)
    if undecided and command is not None:
        note = Note(
            f"{undecided} of {len(checks)} checks of changes are undecided, because old and new are treated as "
            "independent samples. If both contain the same people, compare them row by row, which decides more: give "
            f"the earlier data as `baseline`, and `id`{f': {command}' if command else ''}",
            "unpaired",
        )
        result = fields_replaced(result, messages=(*result.messages, message(note)))
        log.info("%s", note.line)
    return result, checks


def with_paired_changes(
    result: Audit,
    settings: Settings,
    allowances: Sequence[Allowance],
    request: AuditRequest,
    both: BothModels,
) -> Audit:
    """Return a result with what has changed on the rows that both models scored, and the checks of changes."""
    from fairfix.auditing.paired_differences import doubted

    matched, after = both.matched()
    (old, new), limits = audited_pair(matched, replace(settings, checks=()))
    old, judged = with_data(old, source=both.names[0]), fields_replaced(new, checks=result.checks)
    section, checks = compare(old, judged, allowances, list(HEADLINES), request.gate_on, limits)
    if matched.share < 1:
        common_rows, every = f"{len(matched.new):,}", f"{len(after):,}"
        log.info("%s of %s rows are in the baseline too, in the same group", common_rows, every)
    section = fields_replaced(
        section, paired=matched.paired(both.id) if both.id else None, same_file=not both.id
    )
    return with_section(result, section, doubted(checks, matched), allowances, "the baseline")


def audited_pair(matched: Matched, settings: Settings) -> tuple[tuple[Audit, Audit], Limits]:
    """Return the audits of the rows that both models scored, and what limits a change between them."""
    from fairfix.auditing.paired_differences import Changes

    old, new = (audit_data(table, table.data_spec, settings) for table in (matched.old, matched.new))
    require_two_groups(new)
    return (old, new), Changes(matched, settings.confidence, settings.reference).limits


def with_section(
    result: Audit,
    section: common.Baseline,
    checks: Sequence[common.SavedCheck],
    allowances: Sequence[Allowance],
    name: str,
) -> Audit:
    """Return a result with the changes since a baseline, and with the checks of these."""
    if allowances and not checks:
        why = "; ".join(dict.fromkeys(one.reason for one in section.not_comparable))
        raise DataError(
            f"check {allowances[0].text!r}: nothing in {name} can be compared with this audit"
            + (f": {why}" if why else "")
        )
    return with_checks(fields_replaced(result, baseline=section), (*result.checks, *checks))


@dataclass(frozen=True)
class BothModels:
    """Rows of an earlier and of a new model: matched by id, or both scores in one row where there is no id."""

    sources: tuple[Source, Source]
    data_specs: tuple[DataSpec, DataSpec]
    id: str
    decided: str
    """The role in which the column of the one stands for that of the other."""

    @property
    def steps(self) -> tuple[Callable[[], Table], Callable[[], Table]]:
        """Return what reads the rows of the one, and of the other."""
        old, new = (
            partial(with_ids, *both, self.id) for both in zip(self.sources, self.data_specs, strict=True)
        )
        return old, new

    @property
    def columns(self) -> tuple[str, str]:
        """The columns with the score or the decision of each model."""
        old, new = (getattr(data_spec.columns, self.decided) for data_spec in self.data_specs)
        return old, new

    @property
    def names(self) -> tuple[str, str]:
        """Names of the rows of each model."""
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
        return Matched(replace(old, data_spec=new.data_spec), new), new


def both_models(request: AuditRequest | CompareRequest, data: Dataset, base: EarlierModel) -> BothModels:
    """Return how the rows of a baseline and of data are read; an error where they cannot be compared one by one."""
    new = data.data_spec
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


def with_ids(source: Source, data_spec: DataSpec, name: str) -> Table:
    """Return the rows of a source with their ids, if any; they stay texts where the format is one of text."""
    source.require((name,) if name else ())
    kinds = {name: pa.string() if source.text else source.schema.field(name).type} if name else {}
    return read_table(source, data_spec, (), kinds)
