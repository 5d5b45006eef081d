"""The result of a search for the slices in which a model is worst: of ``fairfix audit --slices``."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from fairfix.data.choices import GateOn
from fairfix.schema import schema_id
from fairfix.schema.common import (
    CheckedResult,
    Count,
    Estimate,
    Fraction,
    Part,
    Positive,
    SavedSettings,
    Text,
    require_once,
)


class Proposed(Part, frozen=True, kw_only=True):
    """A slice among the rows that proposed it."""

    rows: Count
    value: float


class Slice(Estimate, frozen=True, kw_only=True):
    """A slice with its value and its interval; ``where`` is its condition, as for the option of this name."""

    where: Text
    rows: Count
    shown: bool
    """Whether it is shown to be worse than all other rows."""
    error: Fraction | None = None
    """Fraction of the whole error that its rows have."""
    proposed: Proposed | None = None
    command: str = ""
    """Command, or call, that audits it."""


class SearchedColumn(Part, frozen=True, kw_only=True):
    """A column that was searched, its levels, and how many levels of too few rows are no condition."""

    column: str
    levels: Positive
    pooled: Count


class UnusedColumn(Part, frozen=True, kw_only=True):
    """A column that can make no slice."""

    column: str
    reason: Text


class SliceSearch(Part, frozen=True, kw_only=True):
    """A search of all conjunctions of up to three conditions, and the slices that it reports, from the worst."""

    metric: str
    worse: Literal["larger", "smaller", "either"]
    searched: Count
    """Slices of enough rows."""
    min_rows: Positive
    columns: Annotated[tuple[SearchedColumn, ...], Meta(min_length=1)]
    left_out: tuple[UnusedColumn, ...]
    rows: Positive
    """Rows that the estimates are of."""
    overall: Estimate
    slices: tuple[Slice, ...]
    attribute: str = ""
    """Protected column whose groups are compared inside slices."""
    validation: Annotated[float, Meta(gt=0, lt=1)] | None = None
    """Fraction of rows that test what the others propose; without it intervals hold for all searched slices."""
    more: bool = False
    """Whether more slices are shown to be worse than are listed."""

    def __post_init__(self) -> None:
        """Require every slice once."""
        require_once((one.where for one in self.slices), "slice")


class SlicesSettings(SavedSettings, frozen=True, kw_only=True):
    """Settings of a search."""

    gate_on: GateOn


class Slices(CheckedResult, frozen=True, kw_only=True, tag_field="schema", tag=schema_id("slices")):
    """Result of fairfix audit --slices without protected columns."""

    settings: SlicesSettings
    slices: SliceSearch
