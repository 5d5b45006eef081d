"""Quality: the measure by which compared repairs are ranked at a given gap. Importing this imports no numpy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairfix.data.domain import domain
from fairfix.data.spec import Form, parse_spec
from fairfix.errors import UsageError

if TYPE_CHECKING:
    from fairfix.auditing.metrics import Metric
    from fairfix.data.table import Table
    from fairfix.schema.common import Estimate

COST = "cost"

FORMS: Mapping[str, Form] = {
    "accuracy": Form("fraction of rows with the right decision", {}),
    "balanced_accuracy": Form("mean of the true positive and the true negative rate", {}),
    "log_loss": Form("mean log loss of the score", {}),
    "square_loss": Form("mean square error of the score", {}),
    "absolute_loss": Form("mean absolute error of a real-valued prediction", {}),
    COST: Form(
        "mean cost per row of wrong decisions",
        {
            "fp": domain(1.0, "cost of a false positive", at_least=0.0, at_most=1e9),
            "fn": domain(1.0, "cost of a false negative", at_least=0.0, at_most=1e9),
        },
    ),
}
"""Names of qualities, and their keys."""

OF_DECISIONS = ("accuracy", "balanced_accuracy", COST)
OF_TASK = {
    "classification": (*OF_DECISIONS, "log_loss", "square_loss"),
    "regression": ("square_loss", "absolute_loss"),
}


@dataclass(frozen=True)
class Quality:
    """A metric of all rows; ``fp`` and ``fn`` are the costs of a false positive and a false negative."""

    name: str
    fp: float = 1.0
    fn: float = 1.0

    @classmethod
    def parse(cls, text: str) -> Quality:
        """Return the quality of a text such as ``cost(fp=1,fn=9)``, or raise a UsageError."""
        spec = parse_spec("quality", text, FORMS)
        made = cls(spec.name, **{name: float(cost) for name, cost in spec.settings})
        if spec.name == COST and not (made.fp or made.fn):
            raise UsageError(
                f"`quality={text}`: both costs are 0, so all decisions are equally good; set at least one above 0"
            )
        return made

    def check(self, task: str) -> None:
        """Raise a UsageError if the quality is undefined for data of a task."""
        if self.name not in (there := OF_TASK[task]):
            raise UsageError(f"`quality={self.name}`: with `task={task}`, name one of {', '.join(there)}")

    @property
    def own_metrics(self) -> tuple[Metric, ...]:
        """The cost as a metric, as there is none in the catalogue."""
        from fairfix.auditing.custom_metrics import make

        if self.name != COST:
            return ()
        return (make(COST, (0.0, self.fn, self.fp, 0.0), (1.0, 1.0, 1.0, 1.0)),)

    def change(self, old: Table, new: Table, confidence: float) -> Estimate | None:
        """Return the change of the quality on the same rows with its interval; None if a row lacks a value for it.

        The change of balanced accuracy is the mean of the changes of both rates, each at half the miscoverage.
        """
        import numpy as np

        from fairfix.auditing.row_differences import ANY, SHARE, change_of, mean_change
        from fairfix.schema.common import estimate

        label = old.rows.label
        if self.name == "balanced_accuracy" and label is not None:
            sure = 1.0 - (1.0 - confidence) / 2.0
            parts = [
                change_of("accuracy", old.take(rows), new.take(rows), sure, SHARE)
                for rows in (np.flatnonzero(label == one) for one in (0, 1))
                if rows.size
            ]
            ends = [(part.point, part.lower, part.upper) for part in parts if part is not None]
            return estimate(*np.mean(ends, axis=0).tolist()) if len(ends) == 2 else None
        if self.name == COST and label is not None:
            if old.chance is None or new.chance is None:
                return None
            before, after = (
                np.where(label == 1, self.fn * (1 - chance), self.fp * chance)
                for chance in (old.chance, new.chance)
            )
            most = max(self.fp, self.fn)
            return mean_change(before, after, old, confidence, (-most, most))
        return change_of(self.name, old, new, confidence, SHARE if self.name in OF_DECISIONS else ANY)
