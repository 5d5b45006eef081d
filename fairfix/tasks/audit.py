"""Audit: how a model treats groups, from data or saved counts, with all that is compared, changed or waived."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace as fields_replaced

from fairfix.auditing.audit import More, joined, require_two_groups
from fairfix.auditing.audit import audit as audit_data
from fairfix.auditing.baseline import Allowance
from fairfix.auditing.custom_metrics import added, own_metrics, own_struct
from fairfix.auditing.results import Settings, with_data
from fairfix.data.canonical import canonical_group
from fairfix.data.names import keyed, quoted_name, unquoted
from fairfix.data.urls import is_dry
from fairfix.data.workers import workers_of
from fairfix.errors import UsageError
from fairfix.models.threads import threads_of_fits
from fairfix.models.trace import Caution, Note
from fairfix.schema.audit import Audit
from fairfix.tasks.changes import (
    EarlierModel,
    baseline_of,
    both_models,
    checks_of,
    not_checked,
    with_changes,
    with_paired_changes,
)
from fairfix.tasks.count import check_agreement, check_bands, counts_of, model_of
from fairfix.tasks.dataset import (
    Dataset,
    cut_counts,
    explaining,
    log,
    noise_of,
    open_data,
    opened,
    said_of_unused,
    unsent,
    waivers_of,
    with_waivers,
)
from fairfix.tasks.messages import (
    names_of,
    of_class_decisions,
    of_decisions,
    of_direction,
    of_names,
    of_source,
    of_unknown_classes,
    of_weights,
    with_messages,
)
from fairfix.tasks.next_step import after_audit
from fairfix.tasks.request import MULTICLASS, AuditRequest, function_of, of_counts
from fairfix.tasks.result import Result
from fairfix.tasks.run_metadata import with_record
from fairfix.tasks.similar import changed_rows, copies_of, counterfactuals, similar_of

if TYPE_CHECKING:
    from fairfix.auditing.countfile import CountFile
    from fairfix.auditing.waivers import Waiver
    from fairfix.data.data_spec import DataSpec
    from fairfix.noise.description import Noise
    from fairfix.tasks.changes import BothModels


@dataclass(frozen=True, repr=False)
class AuditResult(Result):
    """An audit; its numbers are typed: ``content.block("race").by_id["ks.to_overall"].low``."""

    content: Audit


def run_audit(request: AuditRequest) -> AuditResult:
    """Audit a model: metrics per group, comparisons with intervals, and verdicts.

    The result is that of ``fairfix audit`` with the options of these names; ``result.to_json()`` is what its
    ``--format json`` prints. ``audit(frame, protected="race")`` is enough where label and score have usual names.

    Raises
    ------
    UsageError, DataError
        Parameters do not go together, or the data cannot answer; the message names parameter, column and remedy.
    """
    from fairfix.auditing.suppression import withholding

    if not request.metrics:
        with withholding(request.suppress_below, request.data):
            return _run(request)
    own = own_metrics(request.metrics)
    with added(own), withholding(request.suppress_below, request.data):
        result = _run(request)
    assert isinstance(result.content, Audit)
    content = fields_replaced(result.content, own_metrics=tuple(map(own_struct, own)))
    return replace(result, content=content)


def _run(request: AuditRequest) -> AuditResult:
    spec = None
    if request.profile:
        from fairfix.auditing.report_templates import read_profile

        spec = read_profile(request.profile)
    renewal = None
    if request.of is not None:
        from fairfix.tasks.renewal import Renewal

        renewal = Renewal.of(request)
        request = renewal.request
    counts = counts_of(request.data)
    state = None
    if request.state is not None:
        from fairfix.tasks.state import GrowingState

        state = GrowingState.of(request, counts)
        counts, request = state.content, state.request
    elif renewal is not None and counts is None:
        counts, request = renewal.counted()
    elif counts is not None:
        request = of_counts(request)
    else:
        check_bands(request)
    cut: tuple[Note, ...] = ()
    if counts is not None:
        counts, request, cut = cut_counts(counts, request)
    asked = None
    if request.slices:
        if not request.protected and request.noise_spec.membership is None:
            raise UsageError("`slices` without `protected` is a search alone; call fairfix.slices()")
        from fairfix.tasks.slices import without_slices

        asked = without_slices(request)
        request = asked.rest
    if spec and counts is None and all("=" in one for one in request.missing):
        apart = (
            f"{quoted_name(name, '=')}=group" for name in request.protected
        )  # its tables have a row for unknown groups
        request = replace(request, missing=(*apart, *request.missing))
    _, allowances = checks_of(request)
    waivers, base = waivers_of(request), baseline_of(request.baseline)
    unchecked = not_checked(request, allowances, "there is no `baseline`") if base is None else []
    if base is not None and (old := counts_of(base.data)) is not None:
        from fairfix.auditing.count_thresholds import at_threshold

        base = replace(
            base, result=_of_counts(replace(request, check=()), at_threshold(old, request.threshold))[0]
        )
    if request.task == MULTICLASS:
        return _of_classes(request, allowances, waivers, base, unchecked)
    data: Dataset | None = None
    notes: list[Note] = [*said_of_unused(request), *unchecked, *cut]
    both: BothModels | None = None
    if counts is not None:
        content, data_spec, settings = _of_counts(request, counts)
        if counts.privacy:
            notes.append(Note(f"{counts.name}: {counts.privacy}", "private_counts"))
        if counts.batches and not settings.always_valid:
            notes.append(
                Caution(
                    f"{counts.name} grows by batches, and these intervals hold for a single look at it; add "
                    "`always_valid` if it is audited more than once",
                    "one_look",
                )
            )
        if base is not None and base.result is None:
            raise UsageError(
                "`baseline`: the data is counts, which have no rows; give a saved result or counts"
            )
    else:
        split = asked is not None and request.validation
        by_id = (base is not None and base.result is None) or request.similar or split
        data = open_data(
            request if by_id else replace(request, id=None),
            protected_needed=request.noise_spec.membership is None,
        )
        request = data.settled(request)
        base = None if base is None else base.among(data.source.columns)
        if base is not None and base.result is None:
            both = _both(request, data, base)
            if is_dry():
                of_old = both.steps if both else (partial(_old, request, data, base),)
                unsent(partial(_read, request, data, []), *of_old)
        with explaining(data):
            content, settings = _read(request, data, notes)
        data_spec = data.data_spec
    if "intersect" in request.explicit - request.configured and len(data_spec.columns.protected) < 2:
        notes.append(Note("`intersect` has no effect here: a single column has no intersections", "unused"))
    everybody = content.overall.metrics
    wrong = [*of_direction(everybody.get("auc"), data_spec)]
    if not wrong or content.settings.threshold is None:  # decisions by a score point where it does
        wrong += of_decisions(everybody, data_spec)
    content = with_messages(
        content,
        (
            *of_names(names_of(content), data_spec, counted=data is None),
            *notes,
            *wrong,
            *of_weights(content),
            *of_source(None if request.suppress_below or data is None else data.source),
        ),
    )
    if spec:
        from fairfix.auditing.report_templates import with_template

        content = with_template(spec, content)
    if both is not None:
        content = with_paired_changes(content, settings, allowances, request, both)
    elif base is not None:
        if base.result is None and data is not None:
            base = replace(base, result=_old(request, data, base))
        content = with_changes(content, base, allowances, request, settings, data)
    if asked is not None and data is not None:
        from fairfix.tasks.slices import with_slices

        content = with_slices(content, asked, data)
    shown = settings.always_valid and not settings.suppress_below
    if counts is not None and counts.batches and shown:
        from fairfix.auditing.history import history

        content = fields_replaced(content, state=history(counts, settings))
    if renewal is not None and counts is not None:
        content = renewal.certified(content, counts, settings)
    content = with_waivers(content, waivers, request)
    if data is not None and state is None:
        content = fields_replaced(content, next_step=after_audit(request, content))
    result = AuditResult(with_record(content, request, None if data is None else data.source))
    if state is not None:
        state.save()
    return result


def _both(request: AuditRequest, data: Dataset, base: EarlierModel) -> BothModels | None:
    """Return how rows are compared one by one; None where a baseline of other rows has no ids."""
    if base.data is not None and data.model is not None:
        raise UsageError(
            "`baseline`: leave out `model`; the scores of two files are compared, so write those of the model to a "
            "column"
        )
    if base.data is not None and request.id is None:
        return None
    if request.suppress_below:
        raise UsageError(
            "`baseline`: leave out `suppress_below`, or compare with a saved result. The rows that both models scored "
            "differ from those of the rest of the report, so small groups might be shown"
        )
    return both_models(request, data, base)


def _old(request: AuditRequest, data: Dataset, base: EarlierModel) -> Audit:
    """Return the same audit of the rows of a baseline."""
    changed = str(replace(similar_of(request), files=()))
    same = replace(request, check=(), similar=(changed,) if changed else (), explain_gap=False)
    source = opened(request, base.data)
    log.info("auditing the baseline %s", source.name)
    old = replace(data, source=source, inferred={})
    with explaining(old):
        return _read(same, old, [])[0]


def _of_classes(
    request: AuditRequest,
    allowances: Sequence[Allowance],
    waivers: list[Waiver],
    base: EarlierModel | None,
    unchecked: Sequence[Note],
) -> AuditResult:
    """Return the audit of every class against the rest."""
    from fairfix.auditing.multiclass import audit_classes

    if request.metrics:
        raise UsageError(
            "`metrics`: custom metrics are for two classes; leave them out with `task=multiclass`"
        )
    similar = similar_of(request)
    if similar.changes_rows:
        raise UsageError(
            "`similar`: with `task=multiclass` an audit measures a file of counterfactual copies alone, since the "
            "classes of changed rows are not in the data"
        )
    copied = bool(similar.files)
    data = open_data(request if copied else replace(request, id=None))
    settings = _settings(request, request.protected, exact=False)
    base = None if base is None else base.among(data.source.columns)
    if base is not None and base.column:
        raise UsageError(
            f"`baseline={base.column}` is a column; with `task={MULTICLASS}` give a saved result, or data with the "
            "earlier predictions"
        )
    source = None if request.suppress_below else data.source
    notes, more, copies = [*said_of_unused(request), *unchecked, *of_source(source)], None, None
    if copied:
        from fairfix.individual.counterfactual_consistency import classes_of_copies, require_known
        from fairfix.individual.counterfactuals import left_out

        with explaining(data):
            asked = copies_of(similar, data), request.confidence
            more, copies = classes_of_copies(data.source, data.data_spec, *asked)
        notes += left_out(copies)
    with explaining(data), workers_of(request.cluster, request.threads) as workers:
        content = audit_classes(data.source.read_by(workers), data.data_spec, settings, more)
    metrics = {one.of_class: one.overall.metrics for one in content.classes}
    if copies is not None:
        require_known(copies, metrics)
    require_two_groups(content)
    content = with_data(content, inferred=dict(data.inferred))
    names, wrong = of_names(names_of(content), data.data_spec), of_class_decisions(metrics)
    content = with_messages(content, (*names, *wrong, *of_unknown_classes(metrics), *notes))
    if base is not None:
        if base.result is None:
            then = audit_classes(opened(request, base.data), data.data_spec, replace(settings, checks=()))
            base = replace(base, result=then)
        content = with_changes(content, base, allowances, request, settings, None)
    content = with_waivers(content, waivers, request)
    content = fields_replaced(content, next_step=after_audit(request, content))
    return AuditResult(with_record(content, request, data.source))


def _settings(request: AuditRequest, protected: Sequence[str], *, exact: bool) -> Settings:
    crossed = bool(request.similar) or str(request.profile).startswith("ll144")
    return Settings(
        confidence=request.confidence,
        intersect=request.intersect or crossed,
        reference=references_of(request.reference, protected),
        exact=exact,
        checks=checks_of(request)[0],
        gate_on=request.gate_on,
        suppress_below=request.suppress_below,
        always_valid=request.always_valid or request.state is not None,
    )


def references_of(texts: Iterable[str], protected: Sequence[str]) -> dict[str, str]:
    """Read ``race=White``; the attribute may be left out when there is only one."""
    single = protected[0] if len(protected) == 1 else ""
    given = keyed("reference=", texts, "ATTRIBUTE=GROUP, such as race=White", bare=bool(single))
    return {attribute or single: canonical_group(unquoted(group)) for attribute, group in given}


# ---------------------------------------------------------------------- data


def _read(request: AuditRequest, data: Dataset, notes: list[Note]) -> tuple[Audit, Settings]:
    """Return the audit of data, and its settings; what there is to say of it goes into ``notes``."""
    settings = _settings(request, request.protected, exact=True)
    if request.suppress_below:
        from fairfix.auditing.suppression import shown_rows, tables_of

        tables = tables_of(data.data_spec.columns, intersect=settings.intersect)
        with explaining(data):
            shown = shown_rows(data.source, data.data_spec, tables, request.suppress_below)
        data = replace(data, source=shown)
    with threads_of_fits(request.threads):
        similar = similar_of(request)
        more = changed_rows(request, data, similar) if similar.changes_rows else None
        if similar.files:
            more = joined(more or {}, counterfactuals(request, data, copies_of(similar, data), notes))
    with workers_of(request.cluster, request.threads) as workers:
        result = _of_data(request, replace(data, source=data.source.read_by(workers)), settings, more)
    if request.explain_gap:
        from fairfix.tasks.gap_parts import with_gap_parts

        result = with_gap_parts(result, request, data, intersect=settings.intersect)
    return result, settings


def _of_data(request: AuditRequest, data: Dataset, settings: Settings, more: More | None) -> Audit:
    """Audit data: by recorded groups, behind noise, or by probabilities of membership."""
    source, data_spec = data.source, data.data_spec
    noise = _noise(request, data)
    if noise is not None and noise.membership is not None:
        if request.strata and not request.protected:
            raise UsageError("`strata` needs `protected`, whose groups are compared within levels")
        from fairfix.noise.membership_audit import audit_membership

        groups, independent = noise.membership, noise.independent
        result = audit_membership(
            source, data_spec, groups, settings, independent=independent, seed=request.seed, more=more
        )
    elif noise is not None:
        from fairfix.noise.true_groups import audit_noisy

        result = audit_noisy(source, data_spec, noise, settings, seed=request.seed, more=more)
        for check in settings.checks:
            of = check.comparison
            if of.scope == "between_groups" and of.attribute in (None, *request.protected):
                plain = "check %r is about the recorded groups; of the true ones: %s"
                log.info(plain, check.text, check.true_groups)
    else:
        result = audit_data(source, data_spec, settings, more)
    require_two_groups(result)
    return with_data(result, inferred=dict(data.inferred), model=dict(model_of(data)))


def _noise(request: AuditRequest, data: Dataset) -> Noise | None:
    """Return what is said of noise, where it can be: a model that looks at the groups brings noise into decisions."""
    noise = noise_of(request)
    if noise is not None and noise.membership is not None and request.profile:
        raise UsageError("`noise=membership:...`: leave out `profile`; its tables are about recorded groups")
    used = sorted(set(request.protected) & set(data.seen_by_model))
    if noise is not None and used and (noise.class_conditional or noise.epsilon is not None):
        raise UsageError(
            f"the model uses {', '.join(used)}, so noise affects its decisions: leave out "
            f"`assume={noise.assume}`, or drop the column from the model"
        )
    return noise


def _of_counts(request: AuditRequest, counts: CountFile) -> tuple[Audit, DataSpec, Settings]:
    """Return the audit of counts, and how they are read and audited."""
    from fairfix.auditing.disclosure import audit_counts

    check_agreement(request, counts.data_spec)
    if counts.private is not None:
        for name in ("baseline", "profile", "suppress_below"):
            if request.has(name):
                raise UsageError(
                    f"`{name}` needs exact counts, but those of {counts.name} have noise; leave it out, or name "
                    "counts without noise"
                )
    settings = _settings(request, counts.data_spec.columns.protected, exact=False)
    result = audit_counts(counts, settings)
    require_two_groups(result)
    return result, counts.data_spec, settings


audit = function_of("audit", AuditRequest, run_audit)
