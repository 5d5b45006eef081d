"""People who are similar: rows that are changed and copies of people in an audit; pairs and directions in a repair."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from fairfix.auditing.audit import More
from fairfix.data.arrow_normalize import texts_of
from fairfix.data.files import Source
from fairfix.data.names import INDEX_NAME
from fairfix.data.table import Table
from fairfix.errors import DataError, UsageError
from fairfix.individual.counterfactuals import read_counterfactuals
from fairfix.individual.similar import Similar, SimilarFiles, files_of
from fairfix.models.trace import Note
from fairfix.tasks.dataset import Dataset, log
from fairfix.tasks.request import AuditRequest


def files_in(texts: Iterable[str]) -> list[str]:
    """Return the files that texts name; none of texts that cannot be read, which the request says."""
    try:
        return [one.data for one in Similar.parse(texts).files]
    except UsageError:
        return []


def similar_of(request: AuditRequest) -> Similar:
    """Return who is similar, as an audit can measure it."""
    similar = Similar.parse(request.similar)
    if similar.learned or similar.cost:
        raise UsageError(
            "`similar`: learned directions, and a cost of directions, are for `method=sensei`; an audit measures "
            "flips, COLUMN=VALUE,VALUE, near(radius=NUMBER) and a file of copies"
        )
    if len(similar.near) > 1:
        raise UsageError("`similar`: an audit takes one radius; give near(radius=...) once")
    if not request.protected and similar.changes_rows:
        raise UsageError("`similar` needs `protected`: it changes protected columns")
    if similar.files and request.suppress_below:
        raise UsageError(
            "`suppress_below`: leave files out of `similar`; copies are of single persons, whose rows may be left out"
        )
    return similar


def copies_of(similar: Similar, data: Dataset) -> Source:
    """Return the file of counterfactual copies; pairs and directions are of no use to an audit."""
    files = files_of(similar, data.source.columns, data.data_spec.columns.id)
    if other := files.pairs or files.directions:
        kind = "pairs of people" if files.pairs else "directions, since no column has IDs"
        raise UsageError(
            f"`similar={other.name}` has {kind}, which are for `method=sensei`; an audit measures copies: a file with "
            "the column that `id` names and the columns that change"
        )
    assert files.copies is not None
    return files.copies


def changed_rows(request: AuditRequest, data: Dataset, similar: Similar) -> More:
    """Return the comparisons of persons with their changed copies, by attribute; what is proposed is only said."""
    from fairfix.individual.by_model import of_model, of_scores, readable_table
    from fairfix.individual.flips import proxies

    comparable = similar.comparable
    if data.model is None and (comparable or similar.near):
        one = replace(similar, flips=False, files=())
        raise UsageError(f"`similar={one}` needs `model`: rows are changed and scored again")
    names = data.model.feature_names if data.model else tuple(request.features) or None
    table = readable_table(data.source, data.data_spec, names)
    declared = {name for name, _ in comparable}
    for proposal in proxies(table, data.data_spec.columns.protected):
        if proposal.column not in declared and not request.suppress_below:  # it quotes values
            log.info("possible comparable values, not used: %s; name them with `similar`", proposal)
    if data.model is not None:
        return of_model(table, data.model, comparable, request.confidence, similar.radius)
    comparisons, aside = of_scores(table, request.confidence)
    if aside:
        log.info("ignored, since nothing is learned from them: %s", ", ".join(aside))
    return comparisons


def counterfactuals(request: AuditRequest, data: Dataset, copied: Source, notes: list[Note]) -> More:
    """Return the comparisons of people with the copies in a file; what is left out of it goes into ``notes``."""
    from fairfix.individual.by_model import (
        judge_of_model,
        judge_of_scores,
        of_counterfactuals,
        readable_table,
    )
    from fairfix.individual.counterfactuals import left_out, read_counterfactuals

    model, data_spec = data.model, data.data_spec
    names = {str(data_spec.columns.id): pa.string()}
    table = readable_table(data.source, data_spec, model.feature_names if model else (), names)
    copies = read_counterfactuals(copied, table, data.source.columns, scored=model is None)
    notes += left_out(copies)
    judge = judge_of_scores(table.data_spec) if model is None else judge_of_model(table.data_spec, model)
    return of_counterfactuals(table, judge, copies, request.confidence)


def people_of(files: SimilarFiles, data: Dataset, table: Callable[[], Table]) -> dict[str, Any]:
    """Return what a problem has of similar people: pairs, directions and copies."""
    return {
        "pairs": () if files.pairs is None else _pairs(files.pairs),
        "subspace": None if files.directions is None else _directions(files.directions),
        "copies": None
        if files.copies is None
        else read_counterfactuals(files.copies, table(), data.source.columns, learned=True),
    }


def _pairs(source: Source) -> tuple[tuple[str, str], ...]:
    """Return the pairs of people whose difference does not count, as texts."""
    names = [name for name in source.columns if not INDEX_NAME.fullmatch(name)]
    batches = (b for p in source.parts(names, dict.fromkeys(names, pa.string())) for b in p.batches())
    texts = ((texts_of(batch.column(name)).to_pylist() for name in names) for batch in batches)
    out = tuple(pair for columns in texts for pair in zip(*columns, strict=True))
    if any(None in pair for pair in out):
        raise DataError(f"{source.name} has a pair with a missing id; remove it")
    if not out:
        raise DataError(f"{source.name} has no pairs; write two ids per row")
    if same := [a for a, b in out if a == b]:
        raise DataError(
            f"{source.name} has a pair of {same[0]!r} with itself, which has no effect; remove it"
        )
    return out


def _directions(source: Source) -> pa.Table:
    """Return the directions that do not count, a row each."""
    batches = list(source.batches(source.columns))
    if not sum(map(len, batches)):
        raise DataError(f"{source.name} has no directions; write one in each row")
    return pa.Table.from_batches(batches)
