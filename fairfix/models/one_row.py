"""One row, as a service asks for it: read from a dict with plain values and decided without Arrow and data frames.

A row is decided here as it is among others, to the bit: by the same predictor, on a :class:`~fairfix.data.table.OneRow`
instead of a table. What is not plain (a missing score, a group that the fit has not seen, a column that is not there,
a value of another type) is left to the rules of all data, which know what to do and what to say.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

import numpy as np

from fairfix.data.encoder import level_of
from fairfix.data.merging import MISSING
from fairfix.data.numeric_groups import band_names, pieces
from fairfix.data.reading import Reading
from fairfix.data.row_hash import draw_of, identity_of
from fairfix.data.table import NotPlainError, OneRow
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.score_models import OfScorers

PLAIN = frozenset({str, int, float, bool, type(None)})
"""Types of values that are read here as Arrow reads them; the numbers of numpy are turned into these."""

LARGEST_WHOLE = 1 << 53
"""Whole numbers below it are floats as well, and fit into 64 bits."""


class RowRule:
    """Decides rows of dicts one by one; made once per repaired predictor."""

    def __init__(
        self,
        predictor: RepairedPredictor,
        reading: Reading,
        required: tuple[str, ...],
        output: tuple[str, ...],
        identity: Mapping[str, str],
        key: bytes,
    ) -> None:
        columns = reading.columns
        self.predictor, self.reading = predictor, reading
        self.required, self.output = frozenset(required), output
        self.keys, self.score, self.id = columns.cell_keys, columns.score, columns.id
        self.bands = {
            name: (*pieces(edges), band_names(edges)) for name, edges in reading.bands.items() if edges
        }
        self.least, self.most = reading.range
        self.gives = predictor.gives
        self.chance = self.gives == "decision" or predictor.is_probability
        self.cut = reading.cut if reading.thresholds else None
        self.identity, self.key = dict(identity), key
        self.numbers = frozenset(name for name, kind in identity.items() if kind != "text")
        self.truths = frozenset(name for name, kind in identity.items() if kind == "boolean")
        self._places: dict[int, Any] = {}

    @classmethod
    def of(cls, repaired: Any) -> RowRule | None:
        """Return the rule of a repaired predictor; None where it gives classes, or looks at more than plain values.

        The latter is a model file, and a predictor that reads feature columns in a way of its own.
        """
        predictor = repaired.predictor
        if repaired.base["kind"] == "file" or predictor.classes:
            return None
        if not (
            isinstance(predictor, OfScorers)
            or {*predictor.features} == {*predictor.memberships, *(one.column for one in predictor.scales)}
        ):
            return None
        names = repaired.required, tuple(repaired.output.names)
        return cls(predictor, repaired.reading, *names, repaired.identity, repaired.key)

    def __call__(self, data: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the row with its prediction; None where it is not plain."""
        try:
            return self._decided(data)
        except NotPlainError:
            return None

    def _decided(self, data: Mapping[str, Any]) -> dict[str, Any]:
        row = _plain(data)
        if not self.required <= row.keys() or any(name in row for name in self.output):
            raise NotPlainError
        if self.id is not None and not (self.id not in row or type(row[self.id]) in (str, int)):
            raise NotPlainError
        table = self._table(row)
        result, drawn = self.predictor.of_row(table)
        if not (0.0 <= result <= 1.0 if self.chance else math.isfinite(result)):
            raise NotPlainError
        added: dict[str, Any] = {self.output[0]: result}
        if self.gives == "decision":
            drawn = 0.0 < result < 1.0
            added["decision"] = int(self._draw(table) < result) if drawn else int(result >= 1.0)
        elif self.cut is not None:
            added["decision"] = int(result >= self.cut)
        added["randomized"] = drawn
        return {**data, **added}

    def _table(self, row: Mapping[str, Any]) -> OneRow:
        """Return the row as a table."""
        levels, score = tuple([self._level(name, row[name]) for name in self.keys]), None
        if self.score is not None:
            score = row[self.score]
            if type(score) not in (float, int, bool):
                raise NotPlainError
            score = float(score)
            if not (self.least <= score <= self.most and math.isfinite(score)):
                raise NotPlainError
        return OneRow(self.reading, levels, score, row, self._places, self._draw)

    def _level(self, name: str, value: Any) -> str:
        """Return the level of a column of groups."""
        if (band := self.bands.get(name)) is not None:
            if value is None or value != value:
                return MISSING
            if type(value) not in (int, float) or not math.isfinite(value):
                raise NotPlainError
            cuts, places, names = band
            return str(names[places[bisect_right(cuts, value)]])
        return level_of(value, self.reading.merge.get(name))

    def _draw(self, table: OneRow) -> float:
        """Return the draw of the row."""
        row = table.entries
        if any(type(row[name]) is str for name in self.numbers):
            raise NotPlainError
        if any(type(row[name]) in (int, float) for name in self.truths):
            raise NotPlainError
        return draw_of(identity_of([row[name] for name in self.identity]), self.key)


def _plain(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a row with plain values; raises :class:`NotPlainError` where there are others."""
    odd = None
    for name, value in data.items():
        kind = type(value)
        if kind is str:
            if not value.isascii():
                _check_text(value)
        elif kind is int:
            if not -LARGEST_WHOLE < value < LARGEST_WHOLE:
                raise NotPlainError
        elif kind not in PLAIN:
            if kind not in NUMPY:
                raise NotPlainError
            odd = odd or {}
            odd[name] = value.item()
        if type(name) is not str:
            raise NotPlainError
    return data if odd is None else {**data, **_plain(odd)}


NUMPY = frozenset({np.float64, np.int64, np.bool_, np.str_})
"""Types of numpy that hold what a plain type holds."""


def _check_text(value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise NotPlainError from None
