"""Vectors: made-up rows with the results of a repair, by which a reader in another language is tested.

The rows are not of the data: groups and categories are those that the rule names, numbers lie around the means that it
keeps or in all of its bands, or over and beyond its scale, scores go from one end of their scale to the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from fairfix.data.choices import Unseen
from fairfix.data.codec import LONGEST_FAULT, need, shortened
from fairfix.data.data_spec import SCORE_RANGE
from fairfix.data.files import open_source
from fairfix.errors import MALFORMED, ArtifactError, FairfixError
from fairfix.models.export.lowering import Exported
from fairfix.models.identity import IDENTITY_TYPES, RowDraws
from fairfix.models.program import names_of
from fairfix.models.repaired import Repaired

ALIKE = 1e-9
"""By how much numbers of two processors may differ, relative to 1 or to themselves."""

ROWS = 48
"""Enough for each group of most rules to meet every piece of its curve."""


def vectors(repaired: Repaired, program: Exported) -> dict[str, Any]:
    """Return ``rows``, made-up rows as columns, their ``draws``, and ``results``: what prediction on them gives."""
    rng = np.random.default_rng(0)
    columns: dict[str, pa.Array] = {}
    # a rule may look at no column in the end, such as a constant, but prediction asks for all that it was made of
    read = {**repaired.predictor.features, **program.inputs}
    bands = repaired.data_spec.bands
    for name in repaired.data_spec.columns.cell_keys:
        read.setdefault(name, "number" if bands.get(name) else "text")
    for name, kind in read.items():
        columns[name] = _inputs(program, name, kind, repaired, rng)
    if members := repaired.predictor.memberships:
        parts = rng.random((len(members), ROWS))
        columns |= {name: pa.array(part) for name, part in zip(members, parts / parts.sum(0), strict=True)}
    if repaired.data_spec.columns.score and repaired.data_spec.columns.score not in columns:
        columns[repaired.data_spec.columns.score] = pa.array(_scores(repaired, (0.0, 1.0)))
    for name, kind in repaired.identity.items():
        columns.setdefault(name, _names(kind))
    return {"rows": (rows := pa.table(columns)).to_pydict(), **_answers(repaired, rows)}


def check_vectors(repaired: Repaired, name: str) -> None:
    """Run the rule of an artifact on the test vectors that it holds; an ArtifactError where it gives something else."""
    held = repaired.facts.get("vectors")
    if held is None:
        return
    try:
        rows = pa.table(held["rows"])
        computed, saved = _answers(repaired, rows), {key: held[key] for key in ("draws", "results")}
        need(computed["draws"] == saved["draws"], "the draws of its test vectors are not those of its rows")
        need(
            computed["results"].keys() == saved["results"].keys(),
            "its test vectors have results of another kind",
        )
        for column, entries in computed["results"].items():
            for row, (one, other, draw) in enumerate(
                zip(entries, saved["results"][column], saved["draws"], strict=True)
            ):
                chance = computed["results"].get("p_positive", entries)[row]
                close = column == "decision" and chance is not None and abs(chance - draw) <= ALIKE
                need(
                    close or _same_result(one, other),
                    f"its rule gives {one!r} for test vector {row}, which says {other!r}",
                )
    except (*MALFORMED, FairfixError, pa.ArrowException) as error:
        raise ArtifactError(
            f"{name}: its rule contradicts its test vectors: {shortened(str(error), LONGEST_FAULT)}; it was changed or "
            "damaged: repair again"
        ) from error


def _same_result(one: Any, other: Any) -> bool:
    """Tell whether a result is the other one, but for the rounding of another processor."""
    if type(one) is float and isinstance(other, (int, float)):
        return math.isclose(one, other, rel_tol=ALIKE, abs_tol=ALIKE)
    return bool(one == other)


def _answers(repaired: Repaired, rows: pa.Table) -> dict[str, Any]:
    """Return the draws of made-up rows, and what prediction on them gives."""
    unseen: Unseen = "original" if repaired.unseen == "original" else "abstain"
    by_column = replace(repaired, base={"kind": "column"}, unseen=unseen)
    batches = by_column.predict_source(open_source(rows), missing_score="abstain")
    table = pa.Table.from_batches(batches)
    names = [name for name in by_column.output.names if name != "randomized"]
    draw = RowDraws(rows, repaired.identity, repaired.key, by_id=repaired.data_spec.columns.id is not None)
    return {
        "draws": draw(np.arange(ROWS)).tolist(),
        "results": table.select(names).to_pydict(),
    }


def _inputs(
    program: Exported, name: str, kind: str, repaired: Repaired, rng: np.random.Generator
) -> pa.Array:
    steps = [step for step in program.steps if step.settings.get("column") == name]
    if kind == "text":
        texts = [one for step in steps for names in names_of(step.settings) for one in names]
        levels = sorted({*texts} - {"(missing)"})
        return pa.array(_in_turn(levels or [""]))
    if kind == "boolean":
        return pa.array(rng.random(ROWS) < 0.5)
    if name == repaired.data_spec.columns.score:
        return pa.array(_scores(repaired, _range(program)))
    if edges := repaired.data_spec.bands.get(name):
        return pa.array(_in_turn(_around(edges)), pa.float64())
    for one in repaired.predictor.scales:
        if one.column == name:  # also beyond its ends, and missing
            inside = rng.uniform(-0.2, 1.2, ROWS) * (one.high - one.low) + one.low
            return pa.array(np.where(np.arange(ROWS) % 12 == 7, np.nan, inside), from_pandas=True)
    learned = [
        one for scorer in getattr(repaired.predictor, "scorers", ()) for one in scorer.features.columns
    ]
    mean, scale = next(((one.mean, one.scale) for one in learned if one.name == name), (0.0, 1.0))
    return pa.array(mean + 2.0 * scale * rng.standard_normal(ROWS))


def _in_turn(entries: Sequence[Any]) -> list[Any]:
    return (list(entries) * math.ceil(ROWS / len(entries)))[:ROWS]


def _around(edges: Sequence[float]) -> list[float]:
    """Return numbers of every band: the edges, and one between two of them and beyond each end."""
    margin = max(1.0, edges[-1] - edges[0])
    between = [one + (other - one) / 2 for one, other in pairwise(edges)]
    return sorted({edges[0] - margin, *edges, *between, edges[-1] + margin})


def _scores(repaired: Repaired, grid: tuple[float, float]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return scores over their whole scale, in no order."""
    ends = {**SCORE_RANGE, "logit": (-6.0, 6.0), "raw": grid}
    raw = repaired.data_spec.task == "regression"
    low, high = ends["raw" if raw else repaired.data_spec.score_scale]
    even = np.linspace(low, high, ROWS)
    return even[np.arange(ROWS) * 29 % ROWS]  # 29 and 48 have no common divisor: every score once


def _range(program: Exported) -> tuple[float, float]:
    """Return the least and the greatest number that scores are compared with, and a little more."""
    grid = [one for step in program.steps if step.operation == "search" for one in step.settings["grid"]]
    low, high = (min(grid), max(grid)) if grid else (-1.0, 1.0)
    margin = (high - low) / 10 or 1.0
    return low - margin, high + margin


def _names(kind: str) -> pa.Array:
    whole = list(range(ROWS))
    made: Mapping[str, list[Any]] = {
        "text": [f"v{i}" for i in whole],
        "integer": whole,
        "number": [i + 0.5 for i in whole],
        "boolean": [i % 2 == 0 for i in whole],
    }
    return pa.array(made[kind], IDENTITY_TYPES[kind])
