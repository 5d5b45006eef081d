"""Page: counts as one offline HTML file in which thresholds, allowed gaps and costs can be changed.

The page contains counts by cell, label and score bin, and no rows. Its thresholds are edges of bins, so rates at them
are exact. ``arithmetic.js`` computes and ``page.js`` draws. Both are part of the file, which runs no other script and
cannot make requests.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, Template
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup, escape

from fairfix import __version__
from fairfix.auditing.metrics import EQUALIZED_ODDS, METRICS, RATES
from fairfix.data.counts import Counts, Floats, Ints, groups_of_cells
from fairfix.data.data_spec import DataSpec
from fairfix.data.names import attribute_name, each_and_crossed, group_name
from fairfix.errors import DataError
from fairfix.report import svg
from fairfix.report.html_ import environment_of
from fairfix.report.words import as_escape, as_references, harmless, named, plain

OF_RATES = ("name", "title", "needs", "better", "success", "failure")
"""Fields of a rate that the scripts read."""

SCRIPTS = ("arithmetic.js", "page.js")
DENSE: Mapping[str, Any] = {"sort_keys": True, "separators": (",", ":")}
"""Arguments for compact and reproducible JSON."""

FEW = 100
"""Largest number of score bins with rows for which the edge of each is a threshold."""

SPLIT = 0.03
"""Largest fraction of all rows between two thresholds without further thresholds among them."""

THINNED = (1, 2, 5, 10)
"""Every n-th threshold is kept, for the first n with which the page is small enough."""

MOST = 1_300_000
"""Characters of the counts of a page; styles, scripts and the rest take about a tenth of that."""


def content_of(counts: Counts, data_spec: DataSpec, attributes: Sequence[tuple[str, ...]]) -> dict[str, Any]:
    """Return the counts for the page: thresholds, groups of every attribute, and tables by cell, label and bin.

    Parameters
    ----------
    counts
        Counts with a score, cut at the decision threshold of ``data_spec`` and, where they are known before the data
        are read, at all that the page is to offer.
    attributes
        Protected columns of each attribute: one, or several for their intersections.

    Raises
    ------
    DataError
        The groups are too many for a page.
    """
    columns = data_spec.columns
    groups = [groups_of_cells(counts.keys, counts.cells, own, bands=data_spec.bands) for own in attributes]
    fixed = {
        "start": data_spec.thresholds[0] if data_spec.thresholds else None,
        "labelled": counts.has_labels,
        "rates": [
            {name: getattr(rate, name) for name in OF_RATES}
            for rate in RATES.values()
            if counts.has_labels or "label" not in rate.needs
        ],
        "odds": EQUALIZED_ODDS,
        "odds_title": METRICS["equalized_odds"].title,
        "attributes": [
            {
                "name": plain(attribute_name(own)),
                "names": [named(group_name(level)) for level in levels],
                "cells": cells.tolist(),
                **_starts(data_spec, own, levels),
            }
            for own, (levels, cells) in zip(attributes, groups, strict=True)
        ],
        "label": None if columns.label is None else plain(columns.label),
        "score": plain(str(columns.score)),
        "scale": data_spec.score_scale,
        "colours": {
            "ink": svg.INK,
            "quiet": svg.QUIET,
            "faint": svg.FAINT,
            "cut": svg.CUT,
            "mark": svg.COLOURS[0],
        },
    }
    for every in THINNED:
        places = _places(counts, data_spec, every)
        content = {**fixed, **_tables(counts, places), "edges": counts.bins.edges[places].tolist()}
        if len(json.dumps(content, **DENSE)) <= MOST:
            return content
    raise DataError(
        f"{', '.join(columns.protected)} have {len(counts.cells):,} intersections, too many for a page; name fewer "
        "columns in `protected`, cut numbers into `bands`, or leave out small groups with `suppress_below`"
    )


def _starts(
    data_spec: DataSpec, columns: tuple[str, ...], levels: Sequence[tuple[str, ...]]
) -> dict[str, list[float]]:
    """Return the threshold of the original decisions of each group, where it differs by group."""
    own = data_spec.group_thresholds
    if own is None:
        return {}
    at = columns.index(own.attribute)
    return {"starts": [own.cuts[level[at]] for level in levels]}


def _tables(counts: Counts, places: Ints) -> dict[str, Any]:
    """Return the counts of the bins between thresholds, by cell and label."""

    def added(table: Floats | Ints) -> Any:
        return np.add.reduceat(table, places, axis=-1).tolist()

    tables = {"rows": added(counts.rows)}
    if counts.mass is not None and counts.square_mass is not None:
        tables |= {"mass": added(counts.mass), "square": added(counts.square_mass)}
    return tables


def _places(counts: Counts, data_spec: DataSpec, every: int) -> Ints:
    """Return the bins whose lower edges are the thresholds of the page, the first bin among them.

    If few bins have rows, these are all of them. Otherwise they are the cuts of the reading with rows above them. If
    the decision threshold is the only cut, they are edges at equal distances. If many rows lie between two of them,
    edges at quantiles are added.
    """
    grid, rows = counts.bins, counts.rows.sum(axis=(0, 1))
    cuts = {cut: grid.start(cut) for cut in grid.thresholds}
    by_group = data_spec.group_thresholds
    start = [0, *(cuts[cut] for cut in (by_group.edges if by_group else data_spec.thresholds[:1]))]
    there = np.flatnonzero(rows)
    if there.size <= FEW and every == 1:
        return np.unique([*start, *there])
    regular = np.array(sorted(cuts.values()) if len(cuts) > 1 else range(0, grid.size, -(-grid.size // FEW)))
    regular = regular[np.add.reduceat(rows, regular) > 0]
    kept = np.unique([*start, *regular[::every]])
    mass, most, out = np.add.reduceat(rows, kept), SPLIT * every * rows.sum(), [kept]
    for k in np.flatnonzero(mass > most):
        end = kept[k + 1] if k + 1 < kept.size else grid.size
        parts = int(np.ceil(mass[k] / most))
        own = np.cumsum(rows[kept[k] : end])
        out.append(kept[k] + np.searchsorted(own, np.arange(1, parts) * mass[k] / parts))
    return np.unique(np.concatenate(out))


def attributes_of(protected: tuple[str, ...], counts: Counts, apart: str = "") -> list[tuple[str, ...]]:
    """Return the columns of the attributes that have something to compare, the intersections of all of them last.

    Only those with the column ``apart``, if decisions depend on it.
    """
    shown = [
        own
        for own in each_and_crossed(protected)
        if len(groups_of_cells(counts.keys, counts.cells, own)[0]) > 1 and (not apart or apart in own)
    ]
    if not shown:
        raise DataError(
            f"{', '.join(map(repr, protected))}: only one group has rows; the page compares at least two groups"
        )
    return shown


def page(content: Mapping[str, Any]) -> str:
    """Return the page of a content as JSON values: that of :func:`content_of`, with its confidence and commands."""
    template, title = _template(), f"Explore {content['source']}"
    scripts = [_source(template.environment, f"interactive/{name}") for name in SCRIPTS]
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    return template.render(
        # JSON whose markup and commands to CI are escaped
        content=Markup(harmless(htmlsafe_json_dumps(content, **DENSE), as_escape)),  # noqa: S704  JSON without signs of HTML
        title=title,
        heading=Markup(as_references(str(escape(title)))),  # noqa: S704  escaped
        scripts=[Markup(text) for text in scripts],  # noqa: S704  files of the package
        policy=" ".join(f"'sha256-{digest}'" for digest in digests),
        version=__version__,
    )


def _source(environment: Environment, name: str) -> str:
    """Return the text of a file of the package."""
    return PackageLoader("fairfix", "").get_source(environment, name)[0]


@cache
def _template() -> Template:
    return environment_of("").get_template("interactive/page.html")
