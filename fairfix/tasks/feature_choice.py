"""Feature choice: the columns that a method learns from, and those that are left out, each with a reason."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from fairfix.data.files import require
from fairfix.data.row_filter import columns_of, parse_condition
from fairfix.data.table import Table
from fairfix.errors import ColumnError, DataError, UsageError
from fairfix.models.identity import RowDraws
from fairfix.models.screening import leaks_among, of_leaks, of_left_out, screen, screen_types
from fairfix.models.trace import Note
from fairfix.schema.common import FeatureNames, LeftOut
from fairfix.tasks.dataset import Dataset, membership_columns
from fairfix.tasks.request import DataRequest

if TYPE_CHECKING:
    from fairfix.noise.description import Noise


@dataclass(frozen=True)
class FeatureChoice:
    """Columns that a method learns from, and those that are left out; ``names`` is None for the score alone."""

    names: tuple[str, ...] | None
    left_out: tuple[LeftOut, ...] = ()
    candidates: int = 0
    """Number of columns that could be features: those without a role."""
    notes: tuple[Note, ...] = ()

    @property
    def struct(self) -> FeatureNames | None:
        """The columns in a result; None for the score alone."""
        return None if self.names is None else FeatureNames(used=self.names, left_out=tuple(self.left_out))

    def screened(self, table: Table) -> tuple[FeatureChoice, Table]:
        """Return the choice after a look at the values, and the table without the columns that it leaves out.

        Features that were named stay; those that give away the label are warned of.
        """
        if self.names is None:
            return self, table
        if not self.candidates:
            return replace(self, notes=tuple(of_leaks(leaks_among(table, self.names)))), table
        unusable = screen(table, self.names)
        gone = {one.column for one in unusable}
        names, left_out = tuple(name for name in self.names if name not in gone), (*self.left_out, *unusable)
        choice = replace(self, names=names, left_out=left_out)
        if not names:
            reasons = ", ".join(f"{one.column!r} {one.text}" for one in left_out[:6])
            raise DataError(f"no columns are left to learn from: {reasons}; name some with `features`")
        kept = table.features.drop_columns([name for name in table.features.column_names if name in gone])
        table = replace(table, features=kept)
        if isinstance(table.draw, RowDraws):
            identity = {name: kind for name, kind in table.draw.identity.items() if name not in gone}
            table = replace(table, draw=table.draw.narrowed(*identity))
        return replace(choice, notes=tuple(of_left_out(left_out, self.candidates))), table


def learned_features(request: DataRequest, data: Dataset, noise: Noise | None = None) -> FeatureChoice:
    """Return the feature columns that a method learns from, as far as names and types decide."""
    asked, columns = tuple(request.features), data.data_spec.columns
    taken = {*columns.roles, *membership_columns(noise, data)}
    taken |= {*columns_of(parse_condition(request.where))} if request.where else set()
    excluded = _excluded(getattr(request, "exclude", ()), data, taken)
    if data.model is not None or asked == ("score",) or (not asked and columns.score):
        if columns.score is None:
            raise UsageError("`features=score`: there is no score column; name it with `score`")
        if excluded:
            remedy = "leave it out" if data.model is not None else "add `features=all`, or leave it out"
            raise UsageError(f"`exclude` has no effect: the method uses the score alone; {remedy}")
        return FeatureChoice(None)
    free = list(dict.fromkeys(name for name in data.source.columns if name not in taken))
    if asked in ((), ("all",)):
        usable = [name for name in free if name not in excluded]
        left_out = [
            LeftOut(column=name, reason="excluded", text="is excluded by `exclude`")
            for name in free
            if name in excluded
        ]
        left_out += screen_types(data.source.schema, usable)
        gone = {one.column for one in left_out}
        names = [name for name in free if name not in gone]
        choice = FeatureChoice(tuple(names), tuple(left_out), len(free))
    else:
        names = [name for name in asked if name not in excluded]
        choice = FeatureChoice(tuple(names))
    data.source.require(names)
    for name in names:
        if name in columns.protected:
            raise UsageError(
                f"`features={name}`: a protected column is a feature where `group=used` says so; leave it out here"
            )
        if name not in free:
            raise UsageError(f"`features={name}`: the column has a role already; leave it out")
    if not names:
        raise UsageError("there are no feature columns to learn from; name some with `features`")
    return choice


def _excluded(patterns: Sequence[str], data: Dataset, taken: Collection[str]) -> set[str]:
    """Return the columns that names and patterns of ``exclude`` mean; an error where one means none, or a role."""
    out = set[str]()
    for one in patterns:
        if one in taken:
            raise UsageError(
                f"`exclude={one}`: the column has a role and is not a feature; leave it out here"
            )
        matching = {name for name in data.source.columns if name not in taken and fnmatchcase(name, one)}
        if one in data.source.columns:
            matching = {one}
        elif not matching:
            if not set(one) & set("*?["):
                require([one], data.source.columns, data.source.name)
            raise ColumnError(f"`exclude={one}`: no column without a role matches this pattern")
        out |= matching
    return out
