"""Gaps: groups for which a proof proves nothing, and the checks that therefore do not pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fairfix.data.names import attribute_name, each_and_crossed, group_name
from fairfix.data.table import Table
from fairfix.models.trace import Caution
from fairfix.schema.common import SavedCheck
from fairfix.tasks.before_after import RepairEffects

Levels = Callable[[tuple[str, ...]], Sequence[tuple[str, ...]]]
"""Makes of columns the levels of the groups that there are."""


def levels_of(table: Table) -> Levels:
    """Return the levels of the groups that a table has."""
    return lambda columns: table.groups(columns).levels


@dataclass(frozen=True)
class UnprovenGroups:
    """Groups of an attribute for which a proof proves nothing, or not for all of their rows, and why in words."""

    columns: tuple[str, ...]
    groups: tuple[str, ...]
    """Their names; none where nobody can tell which."""
    why: str

    @property
    def caution(self) -> Caution:
        """The same for the user."""
        return Caution(self.why, "unproven")


def unproven(protected: tuple[str, ...], fitted: Levels, held: Levels) -> Iterator[UnprovenGroups]:
    """Yield the groups without held-out rows, by protected columns, each and crossed.

    A crossed group that lacks a part is a gap for the reason of that part.
    """
    part: dict[tuple[str, str], str] = {}
    for columns in each_and_crossed(protected):
        there = set(held(columns))
        by_why: dict[str, list[tuple[str, ...]]] = {}
        own = []
        for level in fitted(columns):
            parts = zip(columns, level, strict=True)
            if why := next((part[one] for one in parts if one in part), ""):
                by_why.setdefault(why, []).append(level)
            elif level not in there:
                own.append(level)
        if own:
            has, them = ("has", "it") if len(own) == 1 else ("have", "them")
            why = f"{groups_in_words(own, columns)} {has} no held-out rows: nothing was evaluated for {them}"
            by_why[why] = own
            part |= {(columns[0], level[0]): why for level in own if len(columns) == 1}
        for why, levels in by_why.items():
            yield UnprovenGroups(columns, tuple(map(group_name, levels)), why)


def without_rule(protected: tuple[str, ...], lost: Levels, why: str) -> list[UnprovenGroups]:
    """Return the groups that the training rows lack, by protected columns, each and crossed, as gaps."""
    return [
        UnprovenGroups(columns, tuple(map(group_name, lost(columns))), why)
        for columns in each_and_crossed(protected)
    ]


def without_passes(proof: RepairEffects, gaps: Sequence[UnprovenGroups]) -> RepairEffects:
    """Return a proof in which no check passes that is about a group with a gap."""

    def why(check: SavedCheck) -> str:
        of_it = (
            gap.why
            for gap in gaps
            if gap.columns == check.columns
            and (not check.group or not gap.groups or check.group in gap.groups)
        )
        reason = next(of_it, "")
        return reason and f"not evaluated for all groups: {reason}; for the others {check.reason}"

    return proof.without_passes("not_proven", why)


NAMED = 3
"""Groups that a message names at most."""


def groups_in_words(levels: Sequence[tuple[str, ...]], columns: Sequence[str]) -> str:
    """Return groups of columns by their names, a few of them where they are many."""
    *names, last = [repr(group_name(level)) for level in levels[:NAMED]]
    if len(levels) > NAMED:
        names, last = [*names, last], f"{len(levels) - NAMED:,} more"
    listing = f"{', '.join(names)} and {last}" if names else last
    return f"{'group' if len(levels) == 1 else 'groups'} {listing} of {attribute_name(columns)!r}"
