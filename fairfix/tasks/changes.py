"""Changes: what an audit says of an earlier one, by its saved result or by its rows, and the checks of that."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
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
from fairfix.data.codec import shown
from fairfix.data.files import Source, file_hash, read_json
from fairfix.data.reading import Reading
from fairfix.data.scan import read_table
from fairfix.data.table import Table
from fairfix.errors import MALFORMED, DataError
from fairfix.models.scoring import ScoredSource
from fairfix.models.trace import Caution, Note
from fairfix.report.layout import HEADLINES
from fairfix.tasks.dataset import Dataset, log, opened
from fairfix.tasks.messages import add_messages, message_dict
from fairfix.tasks.request import AuditRequest
from fairfix.tasks.result import Result

if TYPE_CHECKING:
    from fairfix.auditing.paired import Matched


def baseline_of(baseline: Any) -> Any:
    """Return the JSON form of an earlier audit."""
    if isinstance(baseline, Result):
        return baseline.to_dict()
    return read_json(baseline, "`baseline`: ") if isinstance(baseline, str) else baseline


def compare_results(
    content: dict[str, Any],
    old: Mapping[str, Any],
    allowances: Sequence[Allowance],
    request: AuditRequest,
    settings: Settings,
    data: Dataset | None,
    require: Callable[[Any, Mapping[str, Any], str], None] = require_comparable,
    compared: Callable[..., tuple[dict[str, Any], list[dict[str, Any]]]] = compare,
) -> None:
    """Add to a result what has changed since an earlier one, and the checks of changes."""
    name = request.baseline if isinstance(request.baseline, str) else "given"
    try:
        require(old, content, name)
        _require_suppressed(old, settings.suppress_below, name)
        both = None if data is None else _of_same_file(old, content, settings, request, data)
        more: tuple[Any, ...] = ()
        if both is not None:
            from fairfix.auditing.paired import Changes

            more = (Changes(both, settings.confidence, settings.reference).limits,)
        section, checks = compared(old, content, allowances, list(HEADLINES), request.gate_on, *more)
    except MALFORMED as error:
        raise changed(name, shown(error)) from error
    if both is not None:
        section["same_file"] = True
    elif data is not None:
        _propose_pairs(content, checks, old, request, data)
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
    from fairfix.auditing.paired import Matched

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
    if not alike(*rest) or not set(filter(None, decided.values())) <= set(data.source.columns):
        return None
    reading = data.reading.with_threshold()
    cut = old["settings"]["threshold"]
    before = replace(
        reading, columns=replace(reading.columns, **decided), thresholds=() if cut is None else (float(cut),)
    )
    was, now = (read_table(data.source, one, ()) for one in (before, reading))
    same = [np.array_equal(getattr(was.rows, part), getattr(now.rows, part)) for part in ("cell", "label")]
    if not all(same) or was.rows.cells != now.rows.cells:
        return None
    again = audit_dict(audit_data(was, before, replace(settings, checks=())))
    both = [one["attributes"] for one in (old, json.loads(json.dumps(again)))]
    return Matched(was, now, 0, 0, 0) if alike(*both) else None


def alike(one: Any, two: Any) -> bool:
    """Return whether two JSON forms are the same."""
    return json.dumps(one, sort_keys=True) == json.dumps(two, sort_keys=True)


def _propose_pairs(
    content: dict[str, Any],
    checks: Sequence[dict[str, Any]],
    old: Mapping[str, Any],
    request: AuditRequest,
    data: Dataset,
) -> None:
    """Say with undecided checks of changes that samples were taken as independent, and how to pair them."""
    from fairfix.tasks.guide import paired_instead

    undecided = [check for check in checks if check["code"] == "limit_inside"]
    for check in undecided:
        check["reason"] += "; the baseline has no rows, so old and new are taken as independent samples"
    source = data.source.unscored if isinstance(data.source, ScoredSource) else data.source
    command = paired_instead(request, source, old["data"]["source"])
    if undecided and command is not None:
        note = Note(
            f"{len(undecided)} of {len(checks)} checks of changes are undecided, with old and new taken as independent "
            "samples; if both contain the same people, compare them row by row with `baseline_data` and `id`, which "
            f"decides more{f': {command}' if command else ''}",
            "unpaired",
        )
        content.setdefault("messages", []).append(message_dict(note))
        log.info("%s", note.line)


def compare_rows(
    content: dict[str, Any],
    settings: Settings,
    allowances: Sequence[Allowance],
    request: AuditRequest,
    data: Dataset,
) -> None:
    """Add to a result what has changed on the rows that are in both files, and the checks of changes."""
    from fairfix.auditing.paired import Changes, doubt, match

    name = str(request.id)
    sources = opened(request, request.baseline_data), data.source
    reading = data.reading.with_threshold()
    before, after = (with_ids(source, reading, name) for source in sources)
    matched = match(before, after, name)
    plain = replace(settings, checks=())
    reports = [
        replace(audit_data(table, reading, plain), source=source.name)
        for table, source in zip((matched.old, matched.new), sources, strict=True)
    ]
    require_two_groups(reports[1])
    old, new = map(audit_dict, reports)
    limits = Changes(matched, settings.confidence, settings.reference).limits
    judged = {**new, "checks": content["checks"]}
    section, checks = compare(old, judged, allowances, list(HEADLINES), request.gate_on, limits)
    doubt(checks, matched)
    if matched.share < 1:
        both, every = f"{len(matched.new):,}", f"{len(after):,}"
        log.info("%s of %s rows are in the baseline too, in the same group", both, every)
    _add_changes(content, {**section, "paired": matched.to_dict(name)}, checks, allowances, "the baseline")


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


def with_ids(source: Source, reading: Reading, name: str) -> Table:
    """Return the rows of a source with their ids, which stay texts where the format is one of text."""
    source.require((name,))
    kind = pa.string() if source.text else source.schema.field(name).type
    return read_table(source, reading, (), {name: kind})
