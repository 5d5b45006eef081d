"""Rows unlike the training rows: of groups that these lack, or with feature values that these lack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from fairfix.data.choices import Unseen
from fairfix.data.counts import Bools
from fairfix.data.names import few, group_name
from fairfix.data.table import Table
from fairfix.models.features import NewValues
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.trace import Caution, Note

MOSTLY = 0.5
"""Least fraction of such rows that is a caution."""

SHOWN = 6
"""Groups or features that are named."""


@dataclass
class UnlikeRows:
    """Numbers of rows that are unlike the training rows, counted while rows are predicted."""

    groups: Counter[str] = field(default_factory=Counter)
    """Rows by group."""
    features: dict[str, NewValues] = field(default_factory=dict)
    """New values by feature."""

    def add(self, table: Table, predictor: RepairedPredictor, unseen: Bools) -> None:
        """Count rows of a table; ``unseen``, shape (n,), are those of groups that the training rows lack."""
        if unseen.any():
            groups = table.groups(predictor.inputs)
            rows = np.bincount(groups.codes[unseen], minlength=len(groups.names))
            self.groups.update({groups.names[k]: int(rows[k]) for k in np.flatnonzero(rows)})
        for name, new in predictor.new_values(table).items():
            old = self.features.get(name, NewValues())
            self.features[name] = NewValues(
                old.missing + new.missing, old.others + new.others, old.example or new.example
            )

    def notes(self, predictor: RepairedPredictor, policy: Unseen, rows: int) -> Iterator[Note]:
        """Yield notes on this number of rows; a caution if half of them or more are unlike in one way."""
        if self.groups:
            yield self._on_groups(predictor, policy, rows)
        if self.features:
            yield self._on_features(rows)

    def _on_groups(self, predictor: RepairedPredictor, policy: Unseen, rows: int) -> Note:
        total = sum(self.groups.values())
        most = sorted(self.groups.items(), key=lambda one: (-one[1], one[0]))
        named = few([f"{name!r} {many:,}" for name, many in most], SHOWN, str)
        gets = {
            "abstain": "they get no prediction",
            "original": "they get the original model's prediction"
            if not predictor.classes
            else "they are predicted as rows of no group",
        }[policy]
        own = [group_name(level) for level in getattr(predictor, "levels", ())]
        there = (
            f"; the training rows have {', '.join(map(repr, own[:SHOWN]))}"
            + (", ..." if len(own) > SHOWN else "")
            if own
            else ""
        )
        text = (
            f"the training rows lack the groups of {total:,} of {rows:,} rows ({total / rows:.1%}): {named}; "
            f"{gets}{there}"
        )
        if total >= MOSTLY * rows:
            return Caution(
                f"this repair hardly applies here: {text}; check how groups are written", "unseen_groups"
            )
        return Note(text, "unseen_groups")

    def _on_features(self, rows: int) -> Note:
        parts = list[tuple[int, str]]()
        for name, new in self.features.items():
            if new.missing:
                parts.append((new.missing, f"{name!r} is missing in {new.missing:,}"))
            if new.others:
                such = f"{name!r} has new categories such as {new.example!r} in {new.others:,}"
                parts.append((new.others, such))
        parts.sort(key=lambda one: -one[0])
        named = few([text for _, text in parts], SHOWN, str)
        text = f"some of the {rows:,} rows have feature values that no training row has: {named}"
        if parts[0][0] >= MOSTLY * rows:
            return Caution(
                f"these predictions may be poor: {text}; check how these columns are written",
                "unseen_features",
            )
        return Note(text, "unseen_features")
