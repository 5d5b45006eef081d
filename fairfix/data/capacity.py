"""Capacity: the lowest threshold that selects at most a given number of rows, from sorted distinct scores."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from fairfix.data.counts import BinSlice, Counts, Floats, Ints
from fairfix.data.cutoffs import Capacity
from fairfix.data.data_spec import DataSpec
from fairfix.data.files import Source
from fairfix.data.scan import scan
from fairfix.errors import DataError

CLOSE = 1e-9
"""Relative error of sums of weights, within which a capacity is met."""


@dataclass(frozen=True)
class CapacityCut:
    """The lowest threshold that a capacity allows; sizes are numbers of rows, or their weights where they have some."""

    threshold: float
    """Infinity where the highest score has too many rows."""
    selected: float
    total: float
    unit: str
    lower: float
    """The next lower score."""
    tied: float
    """Size of the next lower score if it does not fit; 0 where the capacity is used up, or all are selected."""

    def sentence(self, capacity: Capacity) -> str:
        """Return what the threshold selects, and the tie at the edge."""
        selected = f"{_shown(self.selected)} of {_shown(self.total)} {self.unit}"
        text = f"`top={capacity}`: the threshold {self.threshold!r} selects {selected}"
        if self.tied > 0:
            text += f". {_shown(self.tied)} {self.unit} share the next lower score, too many to select"
        return f"{text}. Intervals take this threshold as fixed"


def capacity_cut(source: Source, data_spec: DataSpec, capacity: Capacity) -> CapacityCut:
    """Return the threshold of a capacity for the rows that an audit uses.

    The bins of a scan show in which bin the capacity ends; the rows of that bin, and of the next one above, are sorted.

    Raises
    ------
    DataError
        The highest score alone has more rows than the capacity.
    """
    scanned = scan(source, replace(data_spec, thresholds=()), losses=False)
    counts, kept, above = scanned.counts, scanned.kept, 0.0
    if kept is None:
        bins, sizes = _sizes(counts)
        ends = np.cumsum(sizes[::-1])[::-1]
        most = capacity.most(float(ends[0])) * (1 + CLOSE)
        last = max(int(np.count_nonzero(ends > most)) - 1, 0)
        above = float(sizes[last + 2 :].sum())
        rows = int(counts.rows[..., bins[last : last + 2]].sum())
        edge = BinSlice(counts.bins, bins[last : last + 2], rows)
        kept = source.collected(scanned.data_spec, counts, [edge])
    cut = _cut(kept.score, kept.mass, above, counts, capacity)
    if math.isinf(cut.threshold):
        raise DataError(
            f"`top={capacity}`: the highest score {cut.lower!r} alone has {_shown(cut.tied)} {cut.unit}, more than "
            f"{_shown(capacity.most(cut.total))}; name a larger number, or a score without such ties"
        )
    return cut


def binned_cut(counts: Counts, capacity: Capacity, name: str) -> CapacityCut:
    """Return the threshold of a capacity from counts, whose bins have no order inside.

    Raises
    ------
    DataError
        The capacity ends inside a bin, so the counts do not show the threshold.
    """
    bins, sizes = _sizes(counts)
    cut = _cut(counts.bins.edges[bins], sizes, 0.0, counts, capacity)
    if cut.tied:
        ends = ((cut.threshold, cut.selected), (cut.lower, cut.selected + cut.tied))
        ways = " or ".join(f"`threshold={at!r}` ({_shown(size)} {cut.unit})" for at, size in ends if size)
        raise DataError(
            f"`top={capacity}`: {name} has score bins, and {_shown(capacity.most(cut.total))} {cut.unit} end inside a "
            f"bin; give {ways}, or name the rows"
        )
    return cut


def _cut(score: Floats, mass: Floats, above: float, counts: Counts, capacity: Capacity) -> CapacityCut:
    """Return the lowest of some scores that a capacity allows; ``above``: the size of those with higher scores."""
    levels, place = np.unique(-score, return_inverse=True)
    own = np.bincount(place, mass, levels.size)
    total = float(counts.held_weights.sum())
    most, selected = capacity.most(total), np.concatenate([[above], above + np.cumsum(own)])
    fits = int(np.count_nonzero(selected[1:] <= most * (1 + CLOSE)))
    more = fits < levels.size and (not fits or most - selected[fits] > CLOSE * most)
    return CapacityCut(
        float(-levels[fits - 1]) if fits else math.inf,
        float(selected[fits]),
        total,
        "units of weight" if counts.weighted else "rows",
        float(-levels[min(fits, levels.size - 1)]),
        float(own[fits]) if more else 0.0,
    )


def _sizes(counts: Counts) -> tuple[Ints, Floats]:
    """Return the bins that have rows, and their sizes."""
    bins = np.flatnonzero(counts.rows.any(axis=(0, 1)))
    return bins, counts.held_weights.sum(axis=(0, 1), dtype=np.float64)[bins]


def _shown(number: float) -> str:
    """Return rows as a whole number, and weights with as many digits as tell them apart."""
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:,.6g}"
