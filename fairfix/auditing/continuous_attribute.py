"""Association of decisions with a protected number, per standard deviation of the number.

The covariance of decision ``d`` and number ``x``, divided by the standard deviation of ``x``, is by how much the chance
of a positive decision rises per standard deviation along the straight line that fits best. It does not depend on units
and zero of the number. Numbers count by a scale that is independent of these rows (:mod:`fairfix.data.scales`), so they
are bounded, and the limits are those of a mean of the bounded ``(d - mean d) (x - mean x)``, in which an error of
either mean counts by its product with that of the other.

What a straight line cannot see, such as a rule that favours the middle, is told by groups: fifths of the rows in the
order of the number (:func:`in_fifths`), which are audited as any groups are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from fairfix.auditing.comparisons import WITH_NUMBER
from fairfix.auditing.results import first_of
from fairfix.data.memberships import numbers_of
from fairfix.data.numeric_groups import Edges, band_names, bands_of, quantile_edges, shortened
from fairfix.data.scales import Scale
from fairfix.data.table import Table
from fairfix.schema.common import Estimate, SavedComparison, comparison, estimate
from fairfix.stats.estimates import Means, powers


@dataclass(frozen=True)
class AttributeCovariance:
    """Association of decisions with a number."""

    scale: Scale
    covariance: Estimate
    """Per standard deviation, with its sign."""
    correlation: float
    """On these rows; NaN where all decisions or all numbers are the same."""

    @property
    def size(self) -> Estimate:
        """The covariance without its sign."""
        value, low, high = self.covariance.point, self.covariance.lower, self.covariance.upper
        return estimate(abs(value), max(low, -high, 0.0), max(-low, high))


def trends(table: Table, scales: Iterable[Scale], confidence: float) -> Iterator[AttributeCovariance]:
    """Yield how the decisions of a table, by their chances, go with its columns of numbers, none of them missing."""
    for scale in scales:
        chance, weight = table.decisions, table.weight
        away = chance - np.average(chance, weights=weight)
        number = scale.of(numbers_of(table, scale.column))
        far = number - np.average(number, weights=weight)
        product = away * far
        sums = powers(weight, product, table.square_weight).sum(axis=1, keepdims=True)
        mean = Means.from_sums(sums, (-scale.widest, scale.widest))
        value = first_of(mean.value, mean.limits(1.0 - confidence))
        rate = float(np.average(chance, weights=weight))
        spread = rate * (1.0 - rate) * float(np.average(far * far, weights=weight))
        correlation = value.point / np.sqrt(spread) if spread > 0 else np.nan
        yield AttributeCovariance(scale, value, float(correlation))


def reports(by_column: Iterable[AttributeCovariance]) -> dict[str, list[SavedComparison]]:
    """Return the comparisons by column, for an audit of the same rows."""
    return {one.scale.column: [comparison(WITH_NUMBER, one.size)] for one in by_column}


def fifths_of(table: Table, scales: Iterable[Scale]) -> dict[str, Edges]:
    """Return column -> where fifths of the rows of a table are cut; fewer where numbers tie."""
    names = [one.column for one in scales]
    numbers = {name: numbers_of(table, name) for name in names}
    cuts = {name: quantile_edges(name, "quintiles", [x], pa.float64()) for name, x in numbers.items()}
    return {
        name: tuple(shortened(edge, float(x[x < edge].max())) for edge in cuts[name])
        for name, x in numbers.items()
    }


def in_fifths(table: Table, cuts: Mapping[str, Edges]) -> Table:
    """Return a table whose protected columns are those of numbers, cut into groups at the given places."""
    codes = [bands_of(numbers_of(table, name), cuts[name], pa.float64()) for name in cuts]
    cells, code = np.unique(np.stack(codes, -1), axis=0, return_inverse=True)
    names = [band_names(edges) for edges in cuts.values()]
    levels = tuple(tuple(own[k] for own, k in zip(names, cell, strict=True)) for cell in cells.tolist())
    columns = replace(table.data_spec.columns, protected=tuple(cuts))
    return replace(
        table,
        data_spec=replace(table.data_spec, columns=columns, bands=cuts),
        rows=replace(table.rows, cell=code.ravel().astype(np.int64), cells=levels),
    )
