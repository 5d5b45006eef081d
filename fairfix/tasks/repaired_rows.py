"""Rows and a repair of them: the results before and after it, made of one prediction."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from fairfix.data.counts import Bools, Floats, Ints
from fairfix.data.data_spec import to_probability
from fairfix.data.row_hash import is_random
from fairfix.data.table import PLAIN_SCORE, Table
from fairfix.errors import DataError
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.score_models import BinnedTube


class Results(NamedTuple):
    """Rows with the results of the original model, and with those of a repair."""

    base: Table
    repaired: Table
    randomized: Bools
    """Which repaired results are left to chance."""


@dataclass(frozen=True, eq=False)
class RepairedRows:
    """Rows, and the rule of a repair: it predicts the rows once, whatever is asked of its results."""

    table: Table
    rule: RepairedPredictor

    @cached_property
    def predicted(self) -> Floats:
        """Output of the rule for each row, shape (n,); NaN for rows without one."""
        predicted = self.rule.predict(self.table)
        predicted.setflags(write=False)  # so that tables need no copy
        return predicted

    @cached_property
    def plain(self) -> Floats:
        """Output of the same model without the repair, shape (n,); only of a rule that has that model."""
        return self.rule.trace.known_base.predict(self.table)

    @cached_property
    def drawn(self) -> Bools:
        """Which results are left to chance, shape (n,)."""
        return self.rule.drawn(self.table) if self.rule.gives == "value" else is_random(self.predicted)

    @cached_property
    def original(self) -> Table:
        """The rows with the scores that the repair began with."""
        return self.base()

    @cached_property
    def shipped(self) -> Results:
        """Results of the rule for these rows, as for new ones."""
        return self._read(decides=self.rule.gives != "value")

    @cached_property
    def out_of_fold(self) -> Results:
        """The same for training rows, with out-of-fold values where the fit has kept some."""
        trace = self.rule.trace
        if trace.fitted is None and trace.base_fitted is None:
            return self.shipped
        return self._read(decides=self.rule.gives != "value", fitted=trace.fitted, plain=trace.base_fitted)

    @cached_property
    def read_otherwise(self) -> Results:
        """The results if probabilities were rounded instead of drawn, or drawn instead of rounded."""
        return self._read(decides=self.rule.gives == "value")

    def predict(self, table: Table) -> Floats:
        """Return what the rule gives each row of a table, without asking again for these very rows."""
        return self.predicted if table is self.table else self.rule.predict(table)

    def predict_plain(self, table: Table) -> Floats:
        """Return the same of the model without the repair."""
        return self.plain if table is self.table else self.rule.trace.known_base.predict(table)

    @cached_property
    def drawn_rule(self) -> RepairedRows | None:
        """The same rows under the randomized rule that a deterministic one was rounded from, if it was."""
        rule = self.rule.trace.randomized
        return None if rule is None else RepairedRows(self.table, rule)

    def take(self, rows: Ints) -> RepairedRows:
        """Return those of some row numbers, with what is known of them."""
        taken = RepairedRows(self.table.take(rows), self.rule)
        vars(taken).update({name: results[rows] for name, results in self._predictions.items()})
        return taken

    def regrouped(self, table: Table) -> RepairedRows:
        """Return the same rows in the groups of another table, which change no prediction."""
        same = RepairedRows(table, self.rule)
        vars(same).update(self._predictions)
        return same

    @property
    def _predictions(self) -> dict[str, Any]:
        return {name: vars(self)[name] for name in ("predicted", "plain", "drawn") if name in vars(self)}

    def _read(self, *, decides: bool, fitted: Floats | None = None, plain: Floats | None = None) -> Results:
        table, rule = self.table, self.rule
        if decides:
            base = self.original if plain is None else self.base(plain)
            if base.chance is None:
                raise DataError(
                    "the original decisions need a threshold on the score; set one with `threshold`"
                )
            return Results(base, table.with_decision(self.predicted), is_random(self.predicted))
        if table.rows.entries is not None:  # nobody knows which row of an entry draws which value
            assert isinstance(rule, BinnedTube)
            entry, value, chance = rule.outcomes(table)
            parts = RepairedRows(table.divided(entry, chance), rule)
            return Results(parts.base(plain), parts.table.with_score(value), rule.drawn(table)[entry])
        repaired = table.with_score(self.predicted if fitted is None else fitted)
        base = self.original if plain is None else self.base(plain)
        return Results(base, repaired, rule.drawn(table))

    def base(self, plain: Floats | None = None) -> Table:
        """Return the rows with the scores that the repair began with: their own, or of the model it learned.

        ``plain``: what that model is to have given the rows.
        """
        table = self.table
        if PLAIN_SCORE in table.features.column_names:
            given = table.features.column(PLAIN_SCORE).to_numpy()
            real = table.data_spec.task == "regression"
            return table.with_score(given if real else to_probability(given, table.data_spec.score_scale))
        if table.rows.score is not None:
            return table
        return table.with_score(self.plain if plain is None else plain)
