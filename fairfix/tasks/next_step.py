"""Next step: the command at the end of a report, for the same data and settings.

An audit with a failed check ends with the repair that has this limit, one without checks with a limit that holds now,
and an undecided one with the number of rows that would decide it. A repair ends with the use of its file, or with a
comparison of methods where it is warned of. There is none where the command would need what a shell cannot name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fairfix.auditing.comparisons import Comparison, written
from fairfix.auditing.metrics import METRICS
from fairfix.data.names import shell_line, with_values
from fairfix.errors import UsageError
from fairfix.report.answer import headline, leading_check, rows_to_decide
from fairfix.schema.audit import Audit
from fairfix.schema.common import Block, NextStep, SavedCheck
from fairfix.schema.repair import Repair
from fairfix.tasks.advice import REFUSED
from fairfix.tasks.command import Name, command_of, in_memory, settings_for
from fairfix.tasks.request import AuditRequest, CompareRequest, PredictRequest, RepairRequest, Request

LEAST_ROWS = 30
"""Least number of rows of every group for which a repair is proposed."""

ELSEWHERE = frozenset(
    (
        *("slices", "baseline", "profile", "suppress_below", "metrics"),
        *("strata", "prediction", "probability", "validation", "cluster"),
    )
)
"""Parameters of an audit whose numbers a repair of the score does not bound."""

OF_COLUMNS = ("bands", "merge", "missing")
"""Parameters that may name a protected column."""

METHODS = ("ramp", "fair-regression")
"""Methods that repair a score, in the order in which their constraints are tried."""


def after_audit(request: AuditRequest, result: Audit) -> NextStep | None:
    """Return the step that follows from the checks of an audit of rows, or None."""
    if any(map(request.has, ("noise", "assume", "similar"))):
        return None  # the numbers that count are not those of the recorded groups alone
    failed = [check for check in result.checks if check.verdict == "fail" and check.of == "value"]
    if failed:
        first = leading_check(failed)
        if first.of_class:
            return _to_class(request, result, first)
        steps = (_to_repair(request, result, check) for check in (first, *failed))
        return next((step for step in steps if step is not None), None)
    needed: dict[str, int] = {}
    for check in result.checks:
        rows = rows_to_decide(check, result.data.rows.used) if check.verdict == "undecided" else None
        if rows is not None:  # of all classes that a check is about
            asked = f"{check.check} by {check.attribute}"
            needed[asked] = max(rows, needed.get(asked, 0))
    if needed:
        asked, rows = next(iter(needed.items()))
        return NextStep(text=f"To decide {asked}, audit about {rows:,} rows.")
    return None if result.checks else _to_limit(request, result)


def _to_class(request: AuditRequest, result: Audit, check: SavedCheck) -> NextStep | None:
    """Return the audit of the one class of a failed check, against all others."""
    columns = result.data.columns
    roles = {"label": columns.label, "prediction": columns.prediction}
    more = {role: with_values(name, (check.of_class,)) for role, name in roles.items() if name}
    refused = {"task", "check", "baseline", "similar", "threads", *roles}
    return _step(f"To look at class {check.of_class} alone:", "audit", AuditRequest, request, refused, more)


def _to_repair(request: AuditRequest, result: Audit, check: SavedCheck) -> NextStep | None:
    """Return the repair that holds the limit of a check on its training rows."""
    columns, task = result.data.columns, result.settings.task
    block = next((one for one in result.attributes if one.attribute == check.attribute), None)
    if (
        block is None
        or not columns.label
        or not (columns.score or request.model)
        or any(map(request.has, ELSEWHERE))
    ):
        return None
    others = set(columns.protected) - set(block.columns)
    if not _is_repairable(block) or (others and any(map(request.has, OF_COLUMNS))):
        return None
    from fairfix.methods import available

    of = Comparison.of(check)
    condition = f"{of.metric}.{of.short_part}{check.operator}{check.limit:.12g}"
    for name in METHODS:
        method = available()[name]
        try:
            holds = not check.group and task in method.tasks and method(constraint=condition) is not None  # type: ignore[call-arg]  # a field of all methods here
        except UsageError:
            continue
        if holds:
            more: dict[str, Any] = {"method": name, "constraint": condition}
            if others:
                more["protected"] = list(block.columns)
            return _step(
                "To fit a repair with this limit:",
                "repair",
                RepairRequest,
                request,
                {"check", "gate_on", "threads"},
                more,
            )
    return None


def _is_repairable(block: Block) -> bool:
    """Whether every group has enough rows, and both labels where labels are 0 or 1."""
    rates = [group.metrics["base_rate"].value for group in block.groups if "base_rate" in group.metrics]
    both = all(rate is not None and 0 < rate < 1 for rate in rates)
    return both and all(group.rows >= LEAST_ROWS for group in block.groups)


def _to_limit(request: AuditRequest, result: Audit) -> NextStep | None:
    """Return the audit with a limit that the first gap meets now."""
    block = result.attributes[0]
    blocks = [one.attributes[0] for one in result.classes] or [block]
    gaps = [(gap.high, gap.id) for gap in map(headline, blocks) if gap is not None and gap.high is not None]
    if len(gaps) < len(blocks):
        return None
    high, name = max(gaps)
    of = Comparison.parse(name)
    share = METRICS[of.metric].scale == "share"
    step = 0.01 if share or not high else 10.0 ** (math.floor(math.log10(high)) - 1)
    limit = max(math.ceil(high / step - 1e-9), 1) * step
    if share and limit >= 1:
        return None
    where = f"[{written(block.attribute)}]" if len(result.attributes) > 1 else ""
    more = {"check": [f"{of.metric}.{of.short_part}{where}<={limit:.12g}"]}
    text = "To notice when this gap grows, set a limit. This one holds now:"
    return _step(text, "audit", AuditRequest, request, {"cluster", "threads"}, more)


def after_repair(request: RepairRequest, result: Repair) -> NextStep | None:
    """Return how to use the file of a repair of rows, or, after some warnings, how to choose another repair."""
    codes = {one.code for one in result.messages if one.severity == "warning"}
    comparable = result.settings.task != "multiclass" and result.data.columns.label and not request.similar
    if codes & REFUSED and comparable:
        text = "The repair has warnings. To compare methods and allowed gaps:"
        return _step(text, "compare", CompareRequest, request, {"threads"}, {})
    if request.output is None:
        return None
    if any(one.rows for one in result.data.rows.excluded) or request.where:
        command = shell_line(("fairfix", "inspect", str(request.output)))
        return NextStep(text="To see what the repair needs and does:", command=command)
    refused = {"data", "missing", "duplicates", "unseen"}
    return _step(
        "To apply the repair:", "predict", PredictRequest, request, refused, {}, first=(str(request.output),)
    )


def _step(
    text: str,
    task: str,
    kind: type[Request],
    request: Any,
    refused: set[str],
    more: Mapping[str, Any],
    first: tuple[str, ...] = (),
) -> NextStep | None:
    """Return a step with its command; None where data or a parameter is in memory, or a pipe that is read once."""
    if in_memory(request.data) or request.data == "-" or request.has("metrics"):
        return None
    settings = settings_for(kind, request, {"data", *refused}) | dict(more)
    if any(isinstance(value, Name) for value in settings.values()):
        return None
    data = (request.data,) if isinstance(request.data, str) else tuple(request.data)
    return NextStep(text=text, command=command_of(task, (*first, *data), settings))
