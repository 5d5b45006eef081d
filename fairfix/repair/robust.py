r"""Robust: score thresholds that keep true groups alike where only noisy groups are recorded.

.. math::
    \min_F\; \sum_{k,b} n_k(b, 0) F_k(b) + n_k(b, 1) \{1 - F_k(b)\} \quad\text{s.t.}\quad
    \mathrm{TPR}_j(q, F) \ge \mathrm{TPR}(F) - \epsilon \;\text{ for every true group } j
    \text{ and every } q \in \mathcal{U} .

``n_k(b, y)`` are the masses of the data by recorded (noisy) group ``k``, bin ``b`` of the score and label ``y``. A row
is accepted with probability ``F_k(b)``, which does not decrease in ``b``. ``q_jk(b, y)`` are the unknown masses of true
group ``j``, and ``U`` holds those that the data, the noise table and an assumption allow:

==============  ====  ===============================================  ============================================
``assumption``        what is assumed of the noise                     needs
==============  ====  ===============================================  ============================================
``certified``   N2    nothing but the table by label                   a table with labels
``soft``        N1    nothing but the table                            a table; trivial for rates given the label
``epsilon``     N3    that, and ``|P(k | j, b, y) - T_jk| <= eps``     a table; a score that does not use the group
``identified``  N4    it depends on the true group alone (and on the   the same, and as many noisy as true groups
                      label if the table has labels)
``radii``       N0    true groups are near the recorded ones of the    solver ideal; the same true as noisy groups
                      same name, by the radii of the table
==============  ====  ===============================================  ============================================

=======================  =====================================================
``constraint``           what holds for every true group ``j``
=======================  =====================================================
``demographic_parity``   ``|SR_j - SR| <= slack``
``equal_opportunity``    ``TPR_j >= TPR - slack``
``equalized_odds``       that, and ``FPR_j <= FPR + slack``
=======================  =====================================================

The programs, their worst cases and the margin of ``z`` standard errors are in :mod:`fairfix.optim.noisy_repair`. The
guarantee is about the rows of the fit, with the table taken as known. The table's columns are rescaled to the masses of
the recorded groups (and labels) in these rows; see :mod:`fairfix.noise`.

The rule may use the recorded group (``thresholds="group"``) or be the same for everybody (``"blind"``), which leaves
little to choose and so costs more.

================================  ================  ==============================================
paper                             here              meaning
================================  ================  ==============================================
``G``, ``G hat``                  true, noisy       groups
``P(G = j | G hat = k)``          table             what is known of the noise, from other data
``w``, ``p~``                     ``q``             what the adversary chooses
``alpha``                         ``slack``         allowed difference to the rate over everybody
``phi(x; theta) >= 0``            ``F_k(b)``        decision
================================  ================  ==============================================

The paper trains a linear model against an adversary by stochastic gradients. Here a score is post-processed, since the
worst case over ``q`` is a linear program (or a sum) that does not depend on the model; its optimum is found.

``solver="ideal"`` looks at all rules of a small class, each with a cut per recorded group, and mixes them so that the
error is least, or takes the best single one (``decisions="deterministic"``); see :mod:`fairfix.optim.noisy_ideal`.

The paper's own two methods are there as well: ``solver="dro"`` (N0, a ball around each recorded group) and
``solver="soft"`` (N1, soft assignments; N2 with ``assumption="certified"``) train a linear rule over features that does
not use the recorded group, with exact worst cases in place of steps of an adversary; see
:mod:`fairfix.optim.noisy_training`. No optimum is claimed there.

References
----------
S. Wang, W. Guo, H. Narasimhan, A. Cotter, M. Gupta and M. I. Jordan, *Robust optimization for fairness with noisy
protected groups* (2020).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np

from fairfix.chances import ScoreCurves
from fairfix.counts import Floats, Ints
from fairfix.errors import DataError, UsageError
from fairfix.learners import LinearMember
from fairfix.noise import NoiseTable
from fairfix.optim.noisy_groups import RATIOS, Refuted, tv_bounds, vacuous, valid_radius
from fairfix.optim.noisy_ideal import MOST, rules_of, solve_ideal, usual_bins
from fairfix.optim.noisy_repair import (
    DEMANDS,
    LABELS,
    Assumption,
    Certified,
    Identified,
    NoisyRepair,
    Parity,
    RateName,
    Sensitive,
    Soft,
    breakdown_of,
    rate_bounds,
    solve_noisy,
)
from fairfix.optim.noisy_training import Adversary, Near, Trained, Within, train
from fairfix.optim.piecewise import Piecewise
from fairfix.predictors import Caution, FitTrace, RepairedPredictor
from fairfix.repair.base import Repairer, RepairProblem, param
from fairfix.repair.learned import Scored, design_of, l2_param, label_of, learner_param, mean_of
from fairfix.table import Reading
from fairfix.values import Scorer, Unrepaired

COMPARISONS: dict[Parity, str] = {
    "demographic_parity": "selection_rate.difference.to_overall",
    "equal_opportunity": "true_positive_rate.difference.to_overall",
    "equalized_odds": "equalized_odds.difference.to_overall",
}

CERTAIN = 1e-9
"""A chance this near to 0 or 1 is one."""

FEW = 0.02
"""Share of everybody, accepted or not, that is worth a word."""

HOLDS = 1e-6
"""What a constraint may be missed by, as programs are solved to no more."""

ALONE = {"epsilon": "assumption epsilon", "z": "assumption identified", "bins": "thresholds"}
"""Parameters that mean nothing to a trained rule, with what they are of."""


@dataclass(frozen=True)
class Radii:
    """True groups are near the recorded ones of the same name."""


SMALL: dict[str, Assumption | Radii] = {"certified": Certified(), "soft": Soft(), "radii": Radii()}
"""What the search of a small class can assume."""

NEEDS_LABELS = (
    "the noise table has no labels, and without them {constraint} can hardly be guaranteed by any rule. Add a column "
    "label to the table, or choose --assumption identified or epsilon (which assume more), or soft (which may accept "
    "nobody)"
)


@dataclass(frozen=True)
class Robust(Repairer):
    """Thresholds that keep true groups alike behind noisy ones; see the module's docstring."""

    name: ClassVar[str] = "robust"
    summary: ClassVar[str] = (
        "score thresholds that keep the true groups alike where the recorded groups are noisy: demographic parity, "
        "equal opportunity, equalized odds, under a stated assumption about the noise"
    )
    criterion: ClassVar[str] = COMPARISONS["demographic_parity"]
    needs_labels: ClassVar[bool] = True
    learns: ClassVar[bool] = True
    knows_noise: ClassVar[bool] = True

    slack: float = param(
        0.05,
        "how far the rate of a true group may be from the rate over everybody; below it for true positives, above it "
        "for false positives, either way for selection",
        at_least=0.0,
    )
    constraint: str = param(
        "demographic_parity", "what is held alike among the true groups", choices=tuple(DEMANDS)
    )
    solver: str = param(
        "thresholds",
        "thresholds of a score, the best there are; the same by a search of all rules of a small class (ideal); or a "
        "linear rule over features without the recorded group, trained against the worst distribution within the radii "
        "of the table (dro) or the worst soft assignment (soft)",
        choices=("thresholds", "ideal", "dro", "soft"),
    )
    assumption: str = param(
        "auto",
        "what is assumed of the noise: nothing but the table by label (certified) or without (soft); that it depends "
        "on outcomes by at most epsilon; that it depends on the true group alone (identified); with solver ideal also: "
        "nothing but the radii of the table (radii); auto: certified if the table has labels, else soft; with solver "
        "soft: soft; with solver dro: radii",
        choices=("auto", "certified", "soft", "epsilon", "identified", "radii"),
    )
    epsilon: float = param(
        0.05,
        "largest difference of P(noisy | true, score, label) to P(noisy | true), for assumption epsilon",
        at_least=0.0,
        at_most=1.0,
    )
    z: float = param(1.0, "margin in standard errors, for assumption identified", at_least=0.0, at_most=10.0)
    thresholds: str = param(
        "group",
        "thresholds by recorded group, which is needed at predict time then, or the same for everybody",
        choices=("group", "blind"),
    )
    bins: float | str = param(
        "auto",
        "bins of the score between which thresholds lie: quantiles, of the positives where the constraint is about "
        "labels; auto: 100, and 20 for assumption epsilon, which is about bins; fewer with solver ideal, the more "
        "recorded groups there are",
        words=("auto",),
        at_least=2,
        at_most=2000,
    )
    decisions: str = param(
        "randomized",
        "with solver ideal: a mixture of rules, or the best single rule",
        choices=("randomized", "deterministic"),
    )
    learner: str = learner_param()
    l2: float = l2_param()

    @property
    def bounds(self) -> str:
        """Identifier of the audit comparison that ``slack`` bounds, were it made among the true groups."""
        return COMPARISONS[self.parity]

    @property
    def parity(self) -> Parity:
        """The constraint, by its type."""
        return cast("Parity", self.constraint)

    @property
    def sides(self) -> tuple[tuple[str, float], ...]:
        """Rates of true groups that the slack bounds, with the side."""
        return DEMANDS[self.parity]

    @property
    def trusts_recording(self) -> bool:
        """Whether noise is taken to depend on the true group alone."""
        return self.assumption == "identified"

    @classmethod
    def noisy_contenders(cls, reading: Reading, noise: NoiseTable) -> Iterator[tuple[str, Repairer]]:
        """Yield what assumes least, and what assumes most; for rates given the label too."""
        yield cls.name, cls()
        yield f"{cls.name}, identified", cls(assumption="identified")
        if noise.by_label:
            yield f"{cls.name}, equal opportunity", cls(constraint="equal_opportunity")
        yield (
            f"{cls.name}, equal opportunity, identified",
            cls(constraint="equal_opportunity", assumption="identified"),
        )

    def _fit(self, problem: RepairProblem, rng: np.random.Generator) -> RepairedPredictor:
        """Solve the program and say what it relies on."""
        assert problem.noise is not None
        seed = int(rng.integers(2**31))
        if self.solver in ("dro", "soft"):
            return self._train(problem, problem.noise, seed)
        assumed = self._assumed(problem, problem.noise)
        scored = mean_of(problem, self.learner, "logistic", self.l2, seed)
        seen = Seen.of(problem, scored, self.parity, self._bins(assumed, len(problem.cells.levels)))
        own = seen.n.sum(1).T if problem.noise.by_label else seen.n.sum((1, 2))
        table = problem.noise.fitted(problem.cells.names, own)
        used = _over_labels(table) if isinstance(assumed, Soft) else table
        if isinstance(assumed, Identified):
            assumed = Identified(self.z, seen.rows)
        found = (
            self._searched(problem, seen, table, assumed)
            if self.solver == "ideal"
            else self._solved(seen, used, assumed)
        )
        chance = np.where(found.F < CERTAIN, 0.0, np.where(found.F > 1 - CERTAIN, 1.0, found.F))
        groups, blind = problem.cells, self.thresholds == "blind"
        notes = (
            *self._said(problem, found, chance),
            *self._relied(problem, seen, table, chance, assumed, self._assumption_said(table, assumed)),
        )
        base = Unrepaired(scored.scorer) if scored.scorer.member is not None else None
        trace = FitTrace(
            found.converged,
            found.programs,
            found.error,
            max(found.error - found.bound, 0.0),
            notes,
            base=base,
            base_fitted=scored.values if base else None,
        )
        return ScoreCurves(
            () if blind else groups.columns,
            ((),) if blind else groups.levels,
            scored.scorer,
            tuple(Piecewise.steps(seen.edges, row) for row in (chance[:1] if blind else chance)),
            trace,
        )

    def _bins(self, assumed: Assumption | Radii, groups: int) -> int:
        """Return how many bins there are.

        Raises
        ------
        UsageError
            They make too many rules to look at all.
        """
        if self.solver != "ideal":
            usual = 20 if isinstance(assumed, Sensitive) else 100
            return usual if isinstance(self.bins, str) else int(self.bins)
        free = 1 if self.thresholds == "blind" else groups
        bins = max(usual_bins(free, 100), 2) if isinstance(self.bins, str) else int(self.bins)
        if rules_of(bins, free) > MOST:
            raise UsageError(
                f"{self.name}: --solver ideal looks at all rules, and {bins} bins in {groups} recorded groups make "
                f"{rules_of(bins, free):,}; it takes {MOST:,} at most. Take fewer --bins, --thresholds blind, or "
                "--solver thresholds"
            )
        return bins

    def _searched(
        self, problem: RepairProblem, seen: Seen, table: Floats, assumed: Assumption | Radii
    ) -> NoisyRepair:
        """Return the best mixture of the rules of a small class, or the best of them."""
        noise, names = problem.noise, problem.cells.names
        assert noise is not None
        plain = _over_labels(table)
        adversary: Adversary = Within(table if isinstance(assumed, Certified) else plain)
        if isinstance(assumed, Radii):
            self._same_groups(names, noise, "--assumption radii")
            adversary = Near(valid_radius(plain[[noise.true.index(name) for name in names]]))
        return solve_ideal(
            seen.n,
            adversary,
            self.parity,
            min(self.slack, 1.0),
            blind=self.thresholds == "blind",
            single=self.decisions == "deterministic",
        )

    def _same_groups(self, names: tuple[str, ...], noise: NoiseTable, what: str) -> None:
        """Raise where there is no ball around each recorded group, as true groups have other names."""
        if set(names) != set(noise.true):
            raise UsageError(
                f"{self.name}: {what} needs the same true as recorded groups, since a ball is around each; the noise "
                f"table has {', '.join(noise.true)} and the data {', '.join(names)}. Take --assumption or --solver soft"
            )

    def _assumed(self, problem: RepairProblem, noise: NoiseTable) -> Assumption | Radii:
        """Return the assumption in force.

        Raises
        ------
        UsageError
            It does not go with the table, the constraint or the score.
        """
        columns = problem.cells.columns
        if problem.protected_as_feature:
            raise UsageError(
                f"{self.name}: the score must not use the noisy group {' x '.join(columns)}; leave out "
                "--protected-as-feature"
            )
        name = self.assumption
        if name == "auto":
            name = "certified" if noise.by_label else "soft"
            if name == "soft" and self.constraint != "demographic_parity":
                raise UsageError(f"{self.name}: {NEEDS_LABELS.format(constraint=self.constraint)}")
        if name == "certified" and not noise.by_label:
            raise UsageError(
                f"{self.name}: assumption certified needs a noise table with labels; add a column label to it, or take "
                "--assumption soft"
            )
        used = [column for column in columns if column in problem.seen_by_model]
        if used and name in ("identified", "epsilon"):
            raise UsageError(
                f"{self.name}: the model looks at {', '.join(used)}; assumption {name} needs a score that does not "
                "use the noisy group. Take --assumption certified or soft, or a model without it"
            )
        if self.solver == "ideal":
            if name not in SMALL:
                raise UsageError(
                    f"{self.name}: --solver ideal knows the assumptions {', '.join(SMALL)}, not {name}; take --solver "
                    "thresholds for that"
                )
            return SMALL[name]
        for option, value in (("assumption", "radii"), ("decisions", "deterministic")):
            if getattr(self, option) == value:
                raise UsageError(f"{self.name}: --{option} {value} is of --solver ideal; take that")
        assumptions: dict[str, Assumption] = {
            "certified": Certified(),
            "soft": Soft(),
            "epsilon": Sensitive(self.epsilon),
            "identified": Identified(self.z),
        }
        return assumptions[name]

    def _solved(self, seen: Seen, table: Floats, assumed: Assumption | Radii) -> NoisyRepair:
        """Return the thresholds.

        Raises
        ------
        DataError
            The data refute the assumption, or do not identify the true groups.
        """
        assert not isinstance(assumed, Radii)
        slack = min(self.slack, 1.0)  # rates differ by no more
        try:
            return solve_noisy(seen.n, table, self.parity, slack, assumed, blind=self.thresholds == "blind")
        except Refuted as error:
            raise DataError(
                f"{self.name}: {error}; take a larger --epsilon, fewer --bins, or --assumption certified or soft"
            ) from error
        except ValueError as error:
            raise DataError(f"{self.name}: {error}") from error

    # ------------------------------------------------------------------ training

    def _train(self, problem: RepairProblem, noise: NoiseTable, seed: int) -> RepairedPredictor:
        """Train a linear rule and say what it relies on."""
        self._refuse(problem)
        names, by_label = problem.cells.names, self.assumption == "certified"
        self._refuse_noise(names, noise)
        scored = mean_of(problem, self.learner, "logistic", self.l2, seed)
        design, label, codes = design_of(problem, self.learner), label_of(problem), problem.cells.codes
        table = self._table(problem, noise)
        plain = _over_labels(table)
        radius = (
            valid_radius(plain[[noise.true.index(name) for name in names]]) if self.solver == "dro" else None
        )
        adversary = Within(table if by_label else plain) if radius is None else Near(radius)
        member = scored.scorer.member
        start = np.append(member.coef[:, 0], member.intercept) if isinstance(member, LinearMember) else None
        try:
            found = train(
                design.matrix,
                label,
                codes,
                problem.table.rows.weight,
                len(names),
                adversary,
                self.parity,
                min(self.slack, 1.0),
                l2=self.l2,
                start=start,
            )
        except ValueError as error:
            raise DataError(f"{self.name}: {error}") from error
        made = LinearMember(found.coef[:, None], np.array([found.intercept]), "sigmoid")
        rule = ScoreCurves(
            (), ((),), Scorer(design.features, made), (Piecewise.steps([-1.0, 0.0], [0.0, 1.0]),)
        )
        decided = rule.curves[0](2.0 * made.predict(design.matrix) - 1.0)
        seen, chance = Seen.decided(problem, decided)
        assumed: Assumption = Certified() if by_label else Soft()
        notes = (
            *self._said_of_training(problem, found, decided),
            *self._relied(problem, seen, table, chance, assumed, self._training_said(noise, names, radius)),
        )
        if radius is not None:
            notes = (*notes, *self._empty_balls(seen.merged(chance), radius, names))
        base = Unrepaired(scored.scorer)
        trace = FitTrace(
            True, found.steps, found.error, float("nan"), notes, base=base, base_fitted=scored.values
        )
        return rule.traced(trace)

    def _refuse_noise(self, names: tuple[str, ...], noise: NoiseTable) -> None:
        """Raise where the noise table does not go with a trained rule."""
        if self.assumption == "certified" and not noise.by_label:
            raise UsageError(
                f"{self.name}: assumption certified needs a noise table with labels; add a column label to it, or take "
                "--assumption soft"
            )
        if self.solver == "dro":
            self._same_groups(names, noise, "--solver dro")

    def _refuse(self, problem: RepairProblem) -> None:
        """Raise where something does not go with a trained rule."""
        who = f"{self.name}: --solver {self.solver}"
        columns = problem.cells.columns
        if problem.features is None:
            raise UsageError(
                f"{who} trains a model, and a score alone is nothing to train on; name columns with --features, or "
                "take --solver thresholds"
            )
        used = columns if problem.protected_as_feature else tuple(c for c in columns if c in problem.features)
        if used:
            raise UsageError(
                f"{who} makes a rule that must not use the noisy group {' x '.join(used)}; leave it out of the features"
            )
        if self.learner != "linear":
            raise UsageError(f"{who} trains a linear rule; leave out --learner {self.learner}")
        fits = ("auto", "radii") if self.solver == "dro" else ("auto", "soft", "certified")
        if self.assumption not in fits:
            what = (
                "assumes the radii of the table (N0) alone"
                if self.solver == "dro"
                else "knows soft and certified"
            )
            raise UsageError(f"{who} {what}; leave out --assumption {self.assumption}")
        defaults = {part.name: part.default for part in self.parameter_fields()}
        for name, of in ALONE.items():
            if getattr(self, name) != defaults[name]:
                raise UsageError(f"{who} has no use for --{name}, which is of {of}; leave it out")

    def _table(self, problem: RepairProblem, noise: NoiseTable) -> Floats:
        """Return the noise table, rescaled to the rows of the fit; by label if it is."""
        codes, many = problem.cells.codes, len(problem.cells.levels)
        label, weight = label_of(problem).astype(np.int64), problem.weight
        own = np.bincount(2 * codes + label, weight, 2 * many).reshape(many, 2) / weight.sum()
        return noise.fitted(problem.cells.names, own.T if noise.by_label else own.sum(1))

    def _said_of_training(self, problem: RepairProblem, found: Trained, decided: Floats) -> Iterator[str]:
        """Yield what is unusual about a trained rule."""
        if not found.feasible:
            yield Caution(
                f"no rule that was met in {found.steps} steps satisfies the constraint: this one misses it by the "
                f"least, {float(np.nanmax(found.excess)):.4f} of a rate"
            )
        if found.constant:
            what = "yes" if found.intercept >= 0 else "no"
            yield Caution(
                f"the repaired rule decides the same for everybody ({what}): nothing less was found to be guaranteed"
            )
        else:
            taken = problem.weight @ decided / problem.weight.sum()
            if not FEW <= taken <= 1 - FEW:
                yield Caution(
                    f"the repaired rule accepts {taken:.2%} of everybody: hardly more than a constant is guaranteed"
                )
        yield f"a linear rule trained by {found.steps} steps: the best that was met, not the best that there is"
        yield from self._cut_said(problem)

    def _training_said(self, noise: NoiseTable, names: tuple[str, ...], radius: Floats | None) -> str:
        """Return what a trained rule relies on."""
        if radius is None:
            if self.assumption == "certified":
                return "relies on N2 (certified): any noise that fits the noise table by label"
            unused = "; its labels are used by --assumption certified" if noise.by_label else ""
            return f"relies on N1 (soft): any noise that fits the noise table without labels{unused}"
        each = ", ".join(f"{name!r} {r:.3f}" for name, r in zip(names, radius, strict=True))
        return (
            "relies on N0 (dro): any distribution within total variation of that of the recorded group of the same "
            f"name, the radii valid whatever the noise that fits the noise table ({each})"
        )

    def _empty_balls(self, short: Merged, radius: Floats, names: tuple[str, ...]) -> Iterator[str]:
        """Yield whose radius is no less than the share of its rows that a rate is about."""
        cells = short.cells
        for rate, sign in DEMANDS[self.parity]:
            ratio = RATIOS[rate]
            share = np.add(*ratio.masses(cells)) / cells.sum(1)
            who = [name for name, r, s in zip(names, radius, share, strict=True) if r >= s]
            if who:
                label = f"with label {LABELS[rate][0]} " if len(LABELS[rate]) == 1 else ""
                end = "missed" if sign > 0 else "accepted"
                yield Caution(
                    f"the radii guarantee {', '.join(map(repr, who))} nothing: all of their rows {label}may be {end} "
                    f"ones as soon as anybody {label}is {end}"
                )

    # ------------------------------------------------------------------ what the user should know

    def _said(self, problem: RepairProblem, found: NoisyRepair, chance: Floats) -> Iterator[str]:
        """Yield what is unusual about a solution."""
        if not found.feasible:
            yield Caution(
                f"no thresholds satisfy the constraint: these miss it by the least, {found.violation:.4f} of a rate"
            )
        if chance.min() == chance.max():
            what = "the same chance" if 0 < chance.min() < 1 else "yes" if chance.min() == 1 else "no"
            yield Caution(
                f"the repaired rule decides the same for everybody ({what}): nothing less is guaranteed"
            )
        if self.solver == "ideal":
            which = "the best" if self.decisions == "deterministic" else "a mixture"
            yield f"{which} of {found.programs:,} rules, each held to its own worst noise"
        if self.thresholds == "group":
            yield f"decisions use the recorded group {' x '.join(problem.cells.columns)!r}; --thresholds blind does not"
        yield from self._cut_said(problem)

    def _cut_said(self, problem: RepairProblem) -> Iterator[str]:
        """Yield that errors count alike where the base decides at another threshold than 0.5."""
        if abs(problem.table.reading.cut - 0.5) > HOLDS:
            yield "both kinds of error count alike in the repair, wherever the threshold of the base decisions lies"

    def _assumption_said(self, table: Floats, assumed: Assumption | Radii) -> str:
        """Return what thresholds rely on."""
        label = " and the label" if table.ndim == 3 else ""
        return {
            Certified: "relies on N2 (certified): any noise that fits the noise table by label",
            Soft: "relies on N1 (soft): any noise that fits the noise table without labels",
            Radii: "relies on N0 (radii): any distribution within total variation of that of the recorded group of the "
            "same name, the radii valid whatever the noise that fits the noise table",
            Sensitive: f"relies on N3 (epsilon): noise that fits the noise table and, given the true group{label}, "
            f"depends on the score{'' if label else ' and the label'} by at most {self.epsilon:g}",
            Identified: f"relies on N4 (identified): noise that depends on the true group{label} alone, with a margin "
            f"of {self.z:g} standard errors",
        }[type(assumed)]

    def _relied(
        self,
        problem: RepairProblem,
        seen: Seen,
        table: Floats,
        chance: Floats,
        assumed: Assumption | Radii,
        relies: str,
    ) -> Iterator[str]:
        """Yield what the result relies on, its worst case under other assumptions, and what breaks it."""
        noise = problem.noise
        assert noise is not None
        short = seen.merged(chance)
        plain = _over_labels(table)
        label = " and the label" if table.ndim == 3 else ""
        yield f"{relies}; on the rows of the fit, the table taken as known"
        if (
            isinstance(assumed, Identified | Sensitive)
            and not problem.seen_by_model
            and problem.features is None
        ):
            yield f"that the score does not use {' x '.join(problem.cells.columns)!r} is taken on trust"
        said = list(self._worst_cases(problem, seen, short, table))
        extra = [
            name
            for k, name in enumerate(noise.noisy)
            if name not in problem.cells.names and noise.values[..., k].any()
        ]
        if extra:
            yield Caution(
                f"the noise table names {', '.join(map(repr, extra))} as recorded, and no row of the fit is recorded "
                "so: rename it there if it is another name of a group"
            )
        yield "the tables of the report are by recorded group, but for what is named true_groups"
        yield (
            f"the worst true group is on the wrong side of the rate over everybody by at most {'; '.join(said)}; the "
            f"slack is {self.slack:g}"
        )
        yield self._breakdown(short, table, label, assumed)
        if isinstance(assumed, Soft) and self.solver != "dro" and self.constraint != "demographic_parity":
            empty = vacuous(short.cells, plain, RATIOS["true_positive_rate"])
            names = [name for name, bad in zip(noise.true, empty, strict=True) if bad]
            if names:
                yield (
                    f"the table without labels guarantees {', '.join(map(repr, names))} nothing: all of their "
                    "positives may be among those that a rule misses"
                )

    def _worst_cases(self, problem: RepairProblem, seen: Seen, short: Merged, table: Floats) -> Iterator[str]:
        """Yield how far the worst true group is on the wrong side under each description of the noise."""
        assert problem.noise is not None
        plain = _over_labels(table)
        label = " and the label" if table.ndim == 3 else ""
        worst: dict[str, tuple[Floats, Assumption]] = {}
        if not set(problem.cells.columns) & set(problem.seen_by_model):
            text = f"noise depends on the true group{label} alone (N4, an estimate)"
            worst[text] = table, Identified(0.0, seen.rows)
        if table.ndim == 3:
            worst["any noise that fits the table by label (N2)"] = table, Certified()
        worst["any noise that fits the table without labels (N1)"] = plain, Soft()
        for text, (known, what) in worst.items():
            try:
                gap = self._shortfall(short, known, what)
            except ValueError:  # not identified
                continue
            yield f"{gap:z.4f} if {text}"
        ball = self._ball(problem, short, plain, problem.noise)
        if ball is not None:
            yield f"{ball:z.4f} within the radii of the table (N0)"

    def _shortfall(self, short: Merged, table: Floats, assumed: Assumption) -> float:
        """Return what the worst true group is on the wrong side by, over all rates of the constraint."""
        out = []
        for rate, sign in DEMANDS[self.parity]:
            low, high = rate_bounds(short.n, table, short.chance, rate, assumed)
            out.append(sign * (short.overall(rate) - (low if sign > 0 else high)))
        return float(np.nanmax(out))

    def _ball(self, problem: RepairProblem, short: Merged, table: Floats, noise: NoiseTable) -> float | None:
        """Return the shortfall within the radii, None where true and noisy groups are not the same."""
        names = problem.cells.names
        if set(names) != set(noise.true):
            return None
        radius = valid_radius(table[[noise.true.index(name) for name in names]])
        out = []
        for rate, sign in DEMANDS[self.parity]:
            low, high = tv_bounds(short.cells, radius, RATIOS[rate])
            out.append(sign * (short.overall(rate) - (low if sign > 0 else high)))
        return float(np.nanmax(out))

    def _breakdown(self, short: Merged, table: Floats, label: str, assumed: Assumption | Radii) -> str:
        """Return how much noise may depend on outcomes before the constraint can break."""
        found = breakdown_of(short.n, table, short.chance, self.parity, min(self.slack, 1.0))
        given = "decisions" if label else "decisions and the label"
        about = f"P(noisy | true{', label' if label else ''}) depends on {given}"
        eps = found.eps
        if isinstance(assumed, Sensitive):  # known of bins, which say more than levels of the decision
            eps = self.epsilon if math.isnan(eps) else max(eps, self.epsilon)
        if math.isnan(eps):
            return (
                f"the slack need not hold even if {about} by the least that the data allow, "
                f"{found.smallest_eps:.3f}: it is an estimate (no eps*)"
            )
        if eps >= 1:
            return f"the slack holds however much {about} (eps* = 1)"
        return f"the slack holds as long as {about} by at most eps* = {eps:.3f}"


@dataclass(frozen=True, eq=False)
class Seen:
    """What the fit sees of the data.

    Attributes
    ----------
    n
        Masses by noisy group, bin and label, shape (K, B, 2), of total 1.
    edges
        Least ``2 s - 1`` of each bin, shape (B,); lower ones are in the first bin.
    rows
        Effective number of rows.
    """

    n: Floats
    edges: Floats
    rows: float

    @classmethod
    def of(cls, problem: RepairProblem, scored: Scored, constraint: Parity, bins: int) -> Seen:
        """Count the rows; a row without weight has no part in anything."""
        score, label, weight = 2.0 * scored.values - 1.0, label_of(problem).astype(np.int64), problem.weight
        asked = weight > 0 if constraint == "demographic_parity" else (weight > 0) & (label == 1)
        if not asked.any():
            raise DataError(f"there is no row with label 1, which {constraint} needs")
        edges = bin_edges(score[asked], weight[asked], bins, 2.0 * problem.table.reading.cut - 1.0)
        at: Ints = np.maximum(np.searchsorted(edges, score, side="right") - 1, 0)
        groups = problem.cells
        shape = (len(groups.levels), edges.size, 2)
        index = np.ravel_multi_index((groups.codes, at, label), shape)
        n = np.bincount(index, weight, math.prod(shape)).reshape(shape)
        return cls(n / n.sum(), edges, float(weight.sum() ** 2 / (weight**2).sum()))

    @classmethod
    def decided(cls, problem: RepairProblem, decided: Floats) -> tuple[Seen, Floats]:
        """Return rows counted by decision, and the chances of the bins that this makes, shape (K, B)."""
        label, weight = label_of(problem).astype(np.int64), problem.weight
        levels, at = np.unique(decided[weight > 0], return_inverse=True)
        own = np.flatnonzero(weight > 0)
        shape = (len(problem.cells.levels), levels.size, 2)
        index = np.ravel_multi_index((problem.cells.codes[own], at, label[own]), shape)
        n = np.bincount(index, weight[own], math.prod(shape)).reshape(shape)
        rows = float(weight.sum() ** 2 / (weight**2).sum())
        return cls(n / n.sum(), 2.0 * levels - 1.0, rows), np.tile(levels, (shape[0], 1))

    def merged(self, chance: Floats) -> Merged:
        """Return the data with bins joined that are decided alike in every group."""
        starts = np.flatnonzero(np.r_[True, (np.diff(chance, axis=1) != 0).any(axis=0)])
        return Merged(np.add.reduceat(self.n, starts, axis=1), chance[:, starts])


@dataclass(frozen=True, eq=False)
class Merged:
    """Masses (K, m, 2) and chances (K, m) by level of the decision."""

    n: Floats
    chance: Floats

    def overall(self, rate: RateName) -> float:
        """Return the rate over everybody."""
        own = self.n[:, :, list(LABELS[rate])].sum(2)
        return float((own * self.chance).sum() / own.sum())

    @property
    def cells(self) -> Floats:
        """Masses of TP, FN, FP, TN by noisy group, shape (K, 4), expected over draws."""
        yes, no = self.chance[:, :, None] * self.n, (1 - self.chance)[:, :, None] * self.n
        taken, left = yes.sum(1), no.sum(1)
        return np.stack([taken[:, 1], left[:, 1], taken[:, 0], left[:, 0]], axis=1)


def _over_labels(table: Floats) -> Floats:
    """Return a table of true and noisy groups without labels, shape (m, K), of one by label, (2, m, K), or as it is."""
    return np.asarray(table.sum(0)) if table.ndim == 3 else table


def bin_edges(score: Floats, weight: Floats, bins: int, cut: float) -> Floats:
    """Return where bins begin: at quantiles of the scores, one of them moved to the base's threshold."""
    values, inverse = np.unique(score, return_inverse=True)
    total = np.cumsum(np.bincount(inverse, weight))
    first = np.searchsorted(total * bins, np.arange(bins) * total[-1], side="right")
    edges = values[np.minimum(first, values.size - 1)]
    edges = np.unique(np.append(edges, values[0]))
    if values[0] < cut <= values[-1]:  # in place of the nearest, so that no bin is nearly empty
        near = 1 + int(np.argmin(np.abs(edges[1:] - cut))) if edges.size > 1 else 1
        edges = np.unique(np.append(np.delete(edges, near) if edges.size > near else edges, cut))
    return edges
