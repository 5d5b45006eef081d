"""Capacity: the lowest threshold that selects at most a given number of rows, from sorted distinct scores."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from fairfix.data.counts import Counts, Floats, Slice
from fairfix.data.cutoffs import Capacity
from fairfix.data.data_spec import DataSpec
from fairfix.data.files import Source
from fairfix.data.scan import scan
from fairfix.data.second_pass import collect
from fairfix.errors import DataError

CLOSE = 1e-9
"""Relative error of sums of weights, within which a capacity is met."""


@dataclass(frozen=True)
class CapacityCut:
    """The lowest threshold that a capacity allows; numbers are rows, or their weights where they have some."""

    threshold: float
    selected: float
    total: float
    tied: float = 0.0
    """Size of the next lower score, which does not fit; 0 where the capacity is used up, or all are selected."""
    unit: str = "rows"

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
    counts = scanned.counts
    if scanned.kept is not None:
        return _cut(scanned.kept.score, scanned.kept.mass, 0.0, _size(counts), capacity, _unit(counts))
    mass = counts.held_weights.sum(axis=(0, 1))
    below_top = np.cumsum(mass[::-1])[::-1]
    most = capacity.most(_size(counts))
    there = np.flatnonzero(counts.rows.sum(axis=(0, 1)))
    last = int(np.searchsorted(-below_top[there], -most * (1 + CLOSE), side="left")) - 1
    bins = there[max(last, 0) : last + 2]
    rows = int(counts.rows[..., bins].sum())
    ask = source.collected if source.answers else partial(collect, source)
    kept = ask(scanned.data_spec, counts, [Slice(counts.bins, bins, rows)])
    above = float(mass[int(bins[-1]) + 1 :].sum())
    return _cut(kept.score, kept.mass, above, _size(counts), capacity, _unit(counts))


def _cut(
    score: Floats, mass: Floats, above: float, total: float, capacity: Capacity, unit: str
) -> CapacityCut:
    """Return the lowest of some scores that a capacity allows; ``above``: what higher scores have."""
    levels, place = np.unique(-score, return_inverse=True)
    own = np.bincount(place, mass, levels.size)
    selected = above + np.cumsum(own)
    most = capacity.most(total)
    fits = int(np.count_nonzero(selected <= most * (1 + CLOSE)))
    if not fits:
        raise DataError(
            f"`top={capacity}`: the highest score {float(-levels[0])!r} alone has {_shown(selected[0])} {unit}, more "
            f"than {_shown(most)}; name a larger number, or a score without such ties"
        )
    used = float(selected[fits - 1])
    more = fits < levels.size and most - used > CLOSE * most
    return CapacityCut(float(-levels[fits - 1]), used, total, float(own[fits]) if more else 0.0, unit)


def _size(counts: Counts) -> float:
    return float(counts.held_weights.sum())


def _unit(counts: Counts) -> str:
    return "units of weight" if counts.weighted else "rows"


def _shown(number: float) -> str:
    """Return rows as a whole number, and weights with as many digits as tell them apart."""
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:,.6g}"


def binned_cut(counts: Counts, capacity: Capacity, name: str) -> CapacityCut:
    """Return the threshold of a capacity from counts, whose bins have no order inside.

    Raises
    ------
    DataError
        The capacity ends inside a bin, so the counts do not show the threshold.
    """
    mass, edges = counts.held_weights.sum(axis=(0, 1)), counts.bins.edges
    there = np.flatnonzero(counts.rows.sum(axis=(0, 1)))[::-1]
    selected = np.cumsum(mass[there], dtype=np.float64)
    total, unit = _size(counts), _unit(counts)
    most = capacity.most(total)
    fits = int(np.count_nonzero(selected <= most * (1 + CLOSE)))
    ends = fits and (fits == there.size or most - selected[fits - 1] <= CLOSE * most)
    if not ends:
        near = [int(at) for at in (fits - 1, fits) if 0 <= at < there.size]
        ways = " or ".join(
            f"`threshold={float(edges[there[at]])!r}` ({_shown(selected[at])} {unit})" for at in near
        )
        raise DataError(
            f"`top={capacity}`: {name} has score bins, and {_shown(most)} {unit} end inside a bin; give {ways}, or "
            "name the rows"
        )
    return CapacityCut(float(edges[there[fits - 1]]), float(selected[fits - 1]), total, 0.0, unit)
