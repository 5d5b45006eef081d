r"""Robust: score thresholds that keep true groups alike where only noisy groups are recorded.

.. math::
    \min_F\; \sum_{k,b} n_k(b, 0) F_k(b) + n_k(b, 1) \{1 - F_k(b)\} \quad\text{s.t.}\quad
    |\mathrm{TPR}_j(q, F) - \mathrm{TPR}(F)| \le \epsilon \;\text{ for every true group } j
    \text{ and every } q \in \mathcal{U} .

``n_k(b, y)`` are the masses of the data by recorded (noisy) group ``k``, bin ``b`` of the score and label ``y``. A row
is accepted with probability ``F_k(b)``, which does not decrease in ``b``. ``q_jk(b, y)`` are the unknown masses of true
group ``j``, and ``U`` holds those that the data, the noise table and an assumption allow:

==============  ====  =========================================================================================
certified       N2    whatever fits the table by label
soft            N1    whatever fits the table without labels
epsilon         N3    the same, if noise depends on the score (and the label) by at most ``eps``
identified      N4    noise depends on the true group alone (and the label, if the table has labels)
radii           N0    distributions of true groups within total variation of those of the recorded groups
==============  ====  =========================================================================================

``assume=none`` means the first of a table with labels and the second of one without; ``eps=NUMBER`` the third,
``class-conditional`` and, of probabilities of membership, ``independent`` the fourth, ``radii`` the last.

References
----------
S. Wang, W. Guo, H. Narasimhan, A. Cotter, M. Gupta and M. I. Jordan, *Robust optimization for fairness with noisy
protected groups* (2020).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, cast

from fairfix.data.data_spec import DataSpec
from fairfix.data.domain import parameter
from fairfix.data.noise_spec import StatedAssumption
from fairfix.errors import UsageError
from fairfix.methods.base import Repairer, Use, group_param
from fairfix.methods.constraint import Grammar
from fairfix.methods.learned import Learning, learner_param
from fairfix.methods.robust.gradient_training import Dro, SoftGroups
from fairfix.methods.robust.guarantee import RobustGuarantee
from fairfix.methods.robust.model_mixture import OracleMixture
from fairfix.methods.robust.postprocessed import Ideal, RobustThresholds
from fairfix.models.estimators import Learner
from fairfix.noise.description import Noise
from fairfix.noise.rates import DEMANDS, Parity
from fairfix.noise.repair_evaluation import RobustnessClaim

COMPARISONS = {
    "demographic_parity": "selection_rate.difference.to_overall",
    "equal_opportunity": "true_positive_rate.difference.to_overall",
    "predictive_equality": "false_positive_rate.difference.to_overall",
    "equalized_odds": "equalized_odds.difference.to_overall",
    "minimax": "accuracy.min",
}
"""Constraint -> the comparison that would tell of it, were it made among the true groups.

One with ``worse_than_overall`` counts both directions there, and the slack bounds one of them."""


@dataclass(frozen=True)
class Robust(Learning):
    """Thresholds that keep true groups alike behind noisy ones; see the module's docstring."""

    name: ClassVar[str] = "robust"
    summary: ClassVar[str] = (
        "score thresholds that equalize rates of the true groups where the recorded groups are noisy, under a stated "
        "assumption about the noise; demographic parity, equal opportunity, predictive equality (FPR), equalized odds, "
        "or the smallest error of the worst-off group (minimax)"
    )
    criterion: ClassVar[str] = COMPARISONS["demographic_parity"]
    grammar: ClassVar = Grammar(
        {of: name for name, of in COMPARISONS.items()}, without_limit=("minimax",), one_sided=True
    )
    uses: ClassVar[tuple[Use, ...]] = ("features", "noise")
    guarantee_adapter: ClassVar = RobustGuarantee
    solvers: ClassVar = {
        "thresholds": RobustThresholds,
        "ideal": Ideal,
        "oracle": OracleMixture,
        "dro": Dro,
        "soft": SoftGroups,
    }

    slack: float = parameter(
        0.05,
        "largest allowed distance of a true group's rate from the overall rate",
        at_least=0.0,
        finite=False,
    )
    constraint: str = parameter(
        "demographic_parity",
        "constraint on the true groups: demographic_parity, equal_opportunity, predictive_equality or equalized_odds, "
        "or a condition such as tpr.difference.to_overall<=0.02. Write worse_than_overall instead of to_overall to "
        "limit only the worse direction, as in the paper: selection and true positive rates below the overall rate, "
        "false positive rates above it. minimax has no slack: it minimizes the largest error rate of a true group",
    )
    solver: str = parameter(
        "thresholds",
        "thresholds: optimal score thresholds, in closed form; ideal: thresholds found by a search of a small class of "
        "rules; oracle: a mixture of models, fitted to the costs of the worst noise; dro: a linear model, trained "
        "against the worst distribution within the radii; soft: a linear model, trained against the worst soft "
        "assignment of groups",
        choices=("thresholds", "ideal", "oracle", "dro", "soft"),
    )
    assume: str = parameter(
        "",
        "assumption about the noise: none, eps=NUMBER, class-conditional, independent or radii. By default, the "
        "assumption of `noise`, or none; with solver dro, radii",
    )
    survey_confidence: float | str = parameter(
        "none",
        "confidence level for the survey behind a noise table of counts. The slack then holds for all tables "
        "consistent with the survey at this level, not only for the counted table; 0.95 is usual",
        words=("none",),
        at_least=0.5,
        at_most=0.9999,
    )
    z: float = parameter(
        1.0,
        "margin in standard errors, for assumptions class-conditional and independent",
        at_least=0.0,
        at_most=10.0,
    )
    group: str = group_param("auto", "used", "unused")
    bins: int | str = parameter(
        "auto",
        "number of score bins; thresholds lie between bins. Bins are quantiles of the scores (of rows with label 1 if "
        "the constraint is about labels). auto: 100, or 20 for assumption eps, which is per bin; with solver ideal "
        "fewer, the more recorded groups there are",
        words=("auto",),
        kind=int,
        at_least=2,
        at_most=2000,
    )
    decisions: str = parameter(
        "randomized",
        "a mixture of rules (randomized), or the best single rule (deterministic); for solver ideal",
        choices=("randomized", "deterministic"),
    )
    learner: Learner = learner_param()

    def __post_init__(self) -> None:
        super().__post_init__()
        StatedAssumption.parse(self.assume)
        if self.goal != "minimax":
            return
        given = {"slack": (Robust.slack,), "solver": ("thresholds", "oracle")}
        for name, usual in given.items():
            if (value := getattr(self, name)) not in usual:
                raise UsageError(
                    f"{self.name}: `{name}={value}` cannot be combined with `constraint=minimax`, which "
                    "minimizes the largest "
                    f"error of thresholds, or of models with `solver=oracle`; leave out `{name}`"
                )

    @property
    def protected_as_feature(self) -> bool:
        """Whether the recorded groups are features too, of a rule that is trained."""
        return super().protected_as_feature and self.solver in ("dro", "soft")

    @property
    def parity(self) -> Parity:
        """The constraint, by its type."""
        return cast("Parity", f"one_sided_{self.goal}" if self.parsed_constraint.worse else self.goal)

    @property
    def demands(self) -> tuple[tuple[str, float], ...]:
        """Rates of true groups that the slack bounds, with the side."""
        return DEMANDS[self.parity]

    def effective_noise(self, noise: Noise) -> Noise:
        """Return the noise as described, and as the assumption says besides; UsageError where it contradicts."""
        return replace(noise, assume=self.assume) if self.assume else noise

    def claim(self, noise: Noise | None) -> RobustnessClaim | None:
        """Return that true groups are within the slack by the description and the assumption."""
        if noise is None:
            return None
        return RobustnessClaim(self.effective_noise(noise), self.demands, self.slack)

    def assumption_of(self, noise: Noise) -> str:
        """Return the name of the stated assumption; where none is stated, only the description is used."""
        noise = self.effective_noise(noise)
        word, table = noise.assumption.word, noise.table
        if word in ("class-conditional", "independent"):
            return "identified"
        if word == "eps":
            return "epsilon"
        if noise.membership is not None:
            return "soft"
        if word == "radii" or table is None or self.solver == "dro":
            return "radii"
        return "certified" if table.by_label else "soft"

    @classmethod
    def contenders(cls, data_spec: DataSpec, noise: Noise | None = None) -> Iterator[tuple[str, Repairer]]:
        """Yield what assumes least, and what assumes most, where there are both; for rates given the label too."""
        yield cls.name, cls()
        noise = noise or Noise(membership={})
        table, by_radii = noise.table, noise.table is None and noise.radii is not None
        strongest = "independent" if noise.membership else "class-conditional"
        if by_radii or noise.assumption.word:  # there is no choice
            strongest = ""
        if strongest:
            yield f"{cls.name}, {strongest}", cls(assume=strongest)
        if not strongest or (table is not None and table.by_label):
            yield f"{cls.name}, equal opportunity", cls(constraint="equal_opportunity")
        if strongest:
            own = cls(constraint="equal_opportunity", assume=strongest)
            yield f"{cls.name}, equal opportunity, {strongest}", own
