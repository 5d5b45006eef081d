r"""Robust: score thresholds that keep true groups alike where only noisy groups are recorded.

.. math::
    \min_F\; \sum_{k,b} n_k(b, 0) F_k(b) + n_k(b, 1) \{1 - F_k(b)\} \quad\text{s.t.}\quad
    |\mathrm{TPR}_j(q, F) - \mathrm{TPR}(F)| \le \epsilon \;\text{ for every true group } j
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

=======================  ======================================  ======================================
``constraint``           ``sides`` both                          ``sides`` one, as in the paper
=======================  ======================================  ======================================
``demographic_parity``   ``|SR_j - SR| <= slack``                ``SR_j >= SR - slack``
``equal_opportunity``    ``|TPR_j - TPR| <= slack``              ``TPR_j >= TPR - slack``
``equalized_odds``       that, and ``|FPR_j - FPR| <= slack``    that, and ``FPR_j <= FPR + slack``
=======================  ======================================  ======================================

The programs, their worst cases and the margin of ``z`` standard errors are in :mod:`fairfix.noisy.repair`. The
guarantee is about the rows of the fit, with the table taken as known. The table is carried over to the recorded groups
(and labels) of these rows; where it is not known what of it holds there, every table that may be is in ``U``; see
:mod:`fairfix.noisy.description`.

The rule may use the recorded group (``thresholds="group"``) or be the same for everybody (``"blind"``), which leaves
little to choose and so costs more.

================================  ================  ==============================================
paper                             here              meaning
================================  ================  ==============================================
``G``, ``G hat``                  true, noisy       groups
``P(G = j | G hat = k)``          table             what is known of the noise, from other data
``w``, ``p~``                     ``q``             what the adversary chooses
``alpha``                         ``slack``         allowed difference to the rate over everybody, with
                                                    ``sides`` one
``phi(x; theta) >= 0``            ``F_k(b)``        decision
================================  ================  ==============================================

The paper trains a linear model against an adversary by stochastic gradients. Here a score is post-processed, since the
worst case over ``q`` is a linear program (or a sum) that does not depend on the model; its optimum is found.

``solver="ideal"`` looks at all rules of a small class, each with a cut per recorded group, and mixes them so that the
error is least, or takes the best single one (``decisions="deterministic"``); see :mod:`fairfix.noisy.ideal`.

The paper's own two methods are there as well: ``solver="dro"`` (N0, a ball around each recorded group) and
``solver="soft"`` (N1, soft assignments; N2 with ``assumption="certified"``) train a linear rule over features, with
exact worst cases in place of steps of an adversary; see :mod:`fairfix.noisy.training`. N0 to N2 hold for any
decision, so the recorded group may be among the features (``--protected-as-feature``): the rule is then a score without
it and a threshold per recorded group. What is told under N3 and N4 is about ``P(noisy | true)`` among rows that the
rules of all groups treat alike, so each row is decided by the rule of every group for it. No optimum is claimed there.

References
----------
S. Wang, W. Guo, H. Narasimhan, A. Cotter, M. Gupta and M. I. Jordan, *Robust optimization for fairness with noisy
protected groups* (2020).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, cast

import numpy as np
from scipy.special import expit

from fairfix.data.counts import Floats, Ints
from fairfix.data.names import attribute_name
from fairfix.data.reading import Reading
from fairfix.errors import DataError, UsageError
from fairfix.methods.base import Repairer, RepairProblem, param
from fairfix.methods.learned import Design, Scored, design_of, l2_param, label_of, learner_param, mean_of
from fairfix.models.features import Features
from fairfix.models.members import LinearMember
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.scorers import ScoreCurves, Scorer, Unrepaired
from fairfix.models.trace import Caution, FitTrace
from fairfix.noisy.bounds import RATIOS, Refuted, tv_bounds, vacuous, valid_radius
from fairfix.noisy.description import Noise, radii_for
from fairfix.noisy.ideal import MOST, rules_of, solve_ideal, usual_bins
from fairfix.noisy.repair import (
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
    where_of,
)
from fairfix.noisy.training import Adversary, Either, Near, Trained, Within, train
from fairfix.optim.piecewise import Piecewise

COMPARISONS = {
    "demographic_parity": "selection_rate.difference.to_overall",
    "equal_opportunity": "true_positive_rate.difference.to_overall",
    "equalized_odds": "equalized_odds.difference.to_overall",
}

SAME = 1e-9
"""Difference of joint masses below which tables are one."""

CERTAIN = 1e-9
"""A chance this near to 0 or 1 is one."""

FEW = 0.02
"""Share of everybody, accepted or not, that is worth a word."""

LITTLE = 0.25
"""Share of those whom the base accepts (or refuses) that is worth a word, if no more are left."""

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
        0.05, "how far the rate of a true group may be from the rate over everybody", at_least=0.0
    )
    constraint: str = param(
        "demographic_parity", "what is held alike among the true groups", choices=tuple(COMPARISONS)
    )
    sides: str = param(
        "both",
        "both: the slack bounds the distance either way; one: only to the worse, as in the paper (selection and true "
        "positive rates below that of everybody, false positive rates above)",
        choices=("both", "one"),
    )
    solver: str = param(
        "thresholds",
        "thresholds of a score, the best there are; the same by a search of all rules of a small class (ideal); or a "
        "linear rule over features, trained against the worst distribution within the radii of the table (dro) or the "
        "worst soft assignment (soft)",
        choices=("thresholds", "ideal", "dro", "soft"),
    )
    assumption: str = param(
        "auto",
        "what is assumed of the noise: nothing but the table by label (certified) or without (soft); that it depends "
        "on outcomes by at most epsilon; that it depends on the true group alone (identified); with solver ideal also: "
        "nothing but the radii (radii); auto: what --noise-epsilon or --noise-class-conditional state, else certified "
        "if the table has labels, else soft; with solver soft: soft; with solver dro: radii",
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
        found = COMPARISONS[self.constraint]
        return found if self.sides == "both" else f"{found} (groups worse off only)"

    @property
    def parity(self) -> Parity:
        """The constraint, by its type."""
        return cast("Parity", self.constraint if self.sides == "both" else f"one_sided_{self.constraint}")

    @property
    def demands(self) -> tuple[tuple[str, float], ...]:
        """Rates of true groups that the slack bounds, with the side."""
        return DEMANDS[self.parity]

    def noise_in_force(self, noise: Noise) -> Noise:
        """Return what is said of the noise, and what the assumption says besides."""
        name = self._named(noise)
        if name == "identified":
            if noise.epsilon is not None:
                raise UsageError(
                    f"{self.name}: assumption identified says that noise depends on the true group alone, and "
                    "--noise-epsilon that it may depend on outcomes; give one of them"
                )
            return replace(noise, class_conditional=True)
        if name == "epsilon" and not noise.class_conditional:
            return replace(noise, epsilon=self._eps(noise))
        return noise

    def _named(self, noise: Noise) -> str:
        """Return the name of the assumption in force: auto is what is said of the noise, or nothing but the table."""
        if self.assumption != "auto":
            return self.assumption
        if self.solver == "dro" or noise.table is None:
            return "radii"
        if self.solver == "soft":
            return "soft"
        if self.solver == "thresholds" and noise.class_conditional:
            return "identified"
        if self.solver == "thresholds" and noise.epsilon is not None:
            return "epsilon"
        return "certified" if noise.table.by_label else "soft"

    def _eps(self, noise: Noise) -> float:
        """Return the eps of assumption epsilon."""
        usual = next(part.default for part in self.parameter_fields() if part.name == "epsilon")
        if noise.epsilon is None or self.epsilon == noise.epsilon:
            return self.epsilon
        if self.epsilon != usual:
            raise UsageError(
                f"{self.name}: --epsilon {self.epsilon:g} and --noise-epsilon {noise.epsilon:g} say different things "
                "of the noise; give one of them"
            )
        return noise.epsilon

    @classmethod
    def noisy_contenders(cls, reading: Reading, noise: Noise) -> Iterator[tuple[str, Repairer]]:
        """Yield what assumes least, and what assumes most; for rates given the label too."""
        yield cls.name, cls()
        yield f"{cls.name}, identified", cls(assumption="identified")
        if noise.table is not None and noise.table.by_label:
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
        known = Known.of(problem, seen.n.sum(1))
        if isinstance(assumed, Identified):
            assumed = Identified(self.z, seen.rows)
        found = (
            self._searched(problem, seen, known, assumed)
            if self.solver == "ideal"
            else self._solved(seen, known, assumed)
        )
        chance = np.where(found.F < CERTAIN, 0.0, np.where(found.F > 1 - CERTAIN, 1.0, found.F))
        groups, blind = problem.cells, self.thresholds == "blind"
        notes = (
            *self._alike_said(problem, scored.values, chance[groups.codes, seen.bins(scored)]),
            *self._said(problem, found, chance, scored.values),
            *self._relied(
                problem, seen, known, chance, assumed, self._assumption_said(problem.noise, assumed)
            ),
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
            trace=trace,
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
        self, problem: RepairProblem, seen: Seen, known: Known, assumed: Assumption | Radii
    ) -> NoisyRepair:
        """Return the best mixture of the rules of a small class, or the best of them."""
        if isinstance(assumed, Radii):
            adversary: Adversary = Near(self._radii(problem, known, "--assumption radii"))
        else:
            adversary = known.adversary(by_label=isinstance(assumed, Certified))
        return solve_ideal(
            seen.n,
            adversary,
            self.parity,
            min(self.slack, 1.0),
            blind=self.thresholds == "blind",
            single=self.decisions == "deterministic",
        )

    def _radii(self, problem: RepairProblem, known: Known, what: str) -> Floats:
        """Return the radii of balls; raise where there are none, as true groups have other names."""
        if known.radii is None:
            assert problem.noise is not None
            assert problem.noise.table is not None
            raise UsageError(
                f"{self.name}: {what} needs the same true as recorded groups, since a ball is around each; the noise "
                f"table has {', '.join(problem.noise.table.true)} and the data {', '.join(problem.cells.names)}. Take "
                "--assumption or --solver soft"
            )
        return known.radii

    def _assumed(self, problem: RepairProblem, noise: Noise) -> Assumption | Radii:
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
        name, by_label = self._named(noise), noise.table is not None and noise.table.by_label
        if noise.table is None and (name != "radii" or self.solver != "ideal"):
            what = f"--assumption {name}" if name != "radii" else f"--solver {self.solver}"
            raise UsageError(
                f"{self.name}: --noise-radius alone does not tell what {what} needs; give a noise table with --noise, "
                "or take --solver ideal or dro with --assumption radii"
            )
        if self.assumption == "auto" and name == "soft" and self.constraint != "demographic_parity":
            raise UsageError(f"{self.name}: {NEEDS_LABELS.format(constraint=self.constraint)}")
        if name == "certified" and not by_label:
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
        for option, value, given in (
            ("assumption", "radii", name),
            ("decisions", "deterministic", self.decisions),
        ):
            if given == value:
                raise UsageError(f"{self.name}: --{option} {value} is of --solver ideal; take that")
        assumptions: dict[str, Assumption] = {
            "certified": Certified(),
            "soft": Soft(),
            "epsilon": Sensitive(self._eps(noise)),
            "identified": Identified(self.z),
        }
        return assumptions[name]

    def _solved(self, seen: Seen, known: Known, assumed: Assumption | Radii) -> NoisyRepair:
        """Return the thresholds.

        Raises
        ------
        DataError
            The data refute the assumption, or do not identify the true groups.
        """
        assert not isinstance(assumed, Radii)
        slack = min(self.slack, 1.0)  # rates differ by no more
        if isinstance(assumed, Sensitive) and known.recording is None:
            raise DataError(
                f"{self.name}: the noise table does not tell how large the true groups are, which assumption epsilon "
                "needs; say --noise-keep true-given-noisy if that holds, or take --assumption certified or soft"
            )
        table, *others = known.of_assumption(assumed)
        blind = self.thresholds == "blind"
        try:
            return solve_noisy(seen.n, table, self.parity, slack, assumed, blind=blind, others=others)
        except Refuted as error:
            raise DataError(
                f"{self.name}: {error}; take a larger --epsilon, fewer --bins, or --assumption certified or soft"
            ) from error
        except ValueError as error:
            raise DataError(f"{self.name}: {error}") from error

    # ------------------------------------------------------------------ training

    def _train(self, problem: RepairProblem, noise: Noise, seed: int) -> RepairedPredictor:
        """Train a linear rule and say what it relies on."""
        self._refuse(problem)
        names, by_label = problem.cells.names, self.assumption == "certified"
        self._refuse_noise(noise)
        scored = mean_of(problem, self.learner, "logistic", self.l2, seed)
        design, label, codes = design_of(problem, self.learner), label_of(problem), problem.cells.codes
        known = Known.of(problem, self._own(problem))
        radius = self._radii(problem, known, "--solver dro") if self.solver == "dro" else None
        adversary = known.adversary(by_label=by_label) if radius is None else Near(radius)
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
        rule, each = _rule(problem, design, found)
        seen, chance = Seen.decided(problem, each)
        assumed: Assumption = Certified() if by_label else Soft()
        notes = (
            *self._said_of_training(problem, found, each[np.arange(codes.size), codes]),
            *self._relied(problem, seen, known, chance, assumed, self._training_said(noise, names, radius)),
        )
        if radius is not None:
            notes = (*notes, *self._empty_balls(seen.merged(chance), radius, names))
        base = Unrepaired(scored.scorer)
        trace = FitTrace(
            found.feasible,
            found.steps,
            found.error,
            float("nan"),
            notes,
            base=base,
            base_fitted=scored.values,
        )
        return rule.traced(trace)

    def _refuse_noise(self, noise: Noise) -> None:
        """Raise where the noise table does not go with a trained rule."""
        if noise.table is None and self.solver == "soft":
            raise UsageError(
                f"{self.name}: --solver soft needs a noise table (--noise FILE); radii are for --solver dro"
            )
        if self.assumption == "certified" and not (noise.table is not None and noise.table.by_label):
            raise UsageError(
                f"{self.name}: assumption certified needs a noise table with labels; add a column label to it, or take "
                "--assumption soft"
            )

    def _refuse(self, problem: RepairProblem) -> None:
        """Raise where something does not go with a trained rule."""
        who = f"{self.name}: --solver {self.solver}"
        columns = problem.cells.columns
        if not problem.features:
            raise UsageError(
                f"{who} trains a model, and a score alone is nothing to train on; name columns with --features, or "
                "take --solver thresholds"
            )
        used = [column for column in columns if column in problem.features]
        if used:
            raise UsageError(
                f"{who} sees the recorded group {' x '.join(used)} with --protected-as-feature; leave it out of the "
                "features"
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

    def _own(self, problem: RepairProblem) -> Floats:
        """Return the masses of recorded groups by label in the rows of the fit, shape (K, 2)."""
        codes, many = problem.cells.codes, len(problem.cells.levels)
        label, weight = label_of(problem).astype(np.int64), problem.weight
        return np.asarray(np.bincount(2 * codes + label, weight, 2 * many).reshape(many, 2) / weight.sum())

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
                f"the repaired rule decides the same for everybody ({what}): nothing less was found to be guaranteed",
                "selection",
            )
        else:
            taken = problem.weight @ decided / problem.weight.sum()
            if not FEW <= taken <= 1 - FEW:
                yield Caution(
                    f"the repaired rule accepts {taken:.2%} of everybody: hardly more than a constant is guaranteed",
                    "selection",
                )
        yield f"a linear rule trained by {found.steps} steps: the best that was met, not the best that there is"
        if problem.protected_as_feature:
            yield (
                f"decisions use the recorded group {' x '.join(problem.cells.columns)!r}; they do not without "
                "--protected-as-feature"
            )
        yield from self._cut_said(problem)

    def _training_said(self, noise: Noise, names: tuple[str, ...], radius: Floats | None) -> str:
        """Return what a trained rule relies on."""
        if radius is None:
            if self.assumption == "certified":
                return "relies on N2 (certified): any noise that fits the noise table by label"
            by_label = noise.table is not None and noise.table.by_label
            unused = "; its labels are used by --assumption certified" if by_label else ""
            return f"relies on N1 (soft): any noise that fits the noise table without labels{unused}"
        each = ", ".join(f"{name!r} {r:.3f}" for name, r in zip(names, radius, strict=True))
        return (
            "relies on N0 (dro): any distribution within total variation of that of the recorded group of the same "
            f"name, {_radii_said(noise)} ({each})"
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

    def _said(
        self, problem: RepairProblem, found: NoisyRepair, chance: Floats, score: Floats
    ) -> Iterator[str]:
        """Yield what is unusual about a solution."""
        if not found.feasible:
            yield Caution(
                f"no thresholds satisfy the constraint: these miss it by the least, {found.violation:.4f} of a rate"
            )
        if self.sides == "one":
            yield (
                "only one side is held (--sides one): groups may be as much better off than everybody as they like"
            )
        if chance.min() == chance.max():
            what = "the same chance" if 0 < chance.min() < 1 else "yes" if chance.min() == 1 else "no"
            anyway = found.feasible and chance.min() == chance.max() == (score >= 0.5).mean()
            why = "no score lies on the other side of 0.5" if anyway else "nothing less is guaranteed"
            yield Caution(f"the repaired rule decides the same for everybody ({what}): {why}", "selection")
        if self.solver == "ideal":
            which = "the best" if self.decisions == "deterministic" else "a mixture"
            yield f"{which} of {found.programs:,} rules, each held to its own worst noise"
        if self.thresholds == "group":
            yield f"decisions use the recorded group {' x '.join(problem.cells.columns)!r}; --thresholds blind does not"
        yield from self._cut_said(problem)

    def _alike_said(self, problem: RepairProblem, base: Floats, chance: Floats) -> Iterator[str]:
        """Yield that nearly everybody is decided alike, where the base does not."""
        weight = problem.weight / problem.weight.sum()
        taken, was = float(weight @ chance), float(weight @ (base >= problem.table.reading.cut))
        few, had = min(taken, 1 - taken), was if taken < 0.5 else 1 - was
        if 0 < few < max(FEW, LITTLE * had):
            yield Caution(
                f"the repaired rule accepts {taken:.2%} of everybody, where the base accepts {was:.2%}: the constraint "
                "is held by deciding nearly everybody alike",
                "selection",
            )

    def _cut_said(self, problem: RepairProblem) -> Iterator[str]:
        """Yield that errors count alike where the base decides at another threshold than 0.5."""
        if abs(problem.table.reading.cut - 0.5) > HOLDS:
            yield "both kinds of error count alike in the repair, wherever the threshold of the base decisions lies"

    def _assumption_said(self, noise: Noise, assumed: Assumption | Radii) -> str:
        """Return what thresholds rely on."""
        label = " and the label" if noise.table is not None and noise.table.by_label else ""
        return {
            Certified: "relies on N2 (certified): any noise that fits the noise table by label",
            Soft: "relies on N1 (soft): any noise that fits the noise table without labels",
            Radii: "relies on N0 (radii): any distribution within total variation of that of the recorded group of the "
            f"same name, {_radii_said(noise)}",
            Sensitive: f"relies on N3 (epsilon): noise that fits the noise table and, given the true group{label}, "
            f"depends on the score{'' if label else ' and the label'} by at most {self._eps(noise):g}",
            Identified: f"relies on N4 (identified): noise that depends on the true group{label} alone, with a margin "
            f"of {self.z:g} standard errors",
        }[type(assumed)]

    def _relied(
        self,
        problem: RepairProblem,
        seen: Seen,
        known: Known,
        chance: Floats,
        assumed: Assumption | Radii,
        relies: str,
    ) -> Iterator[str]:
        """Yield what the result relies on, its worst case under other assumptions, and what breaks it."""
        noise = problem.noise
        assert noise is not None
        table, short = noise.table, seen.merged(chance)
        kept = "" if table is None else f"; {_kept_said(noise, assumed)}"
        what = "radii" if table is None else "table"
        yield f"{relies}; on the rows of the fit, the {what} taken as known{kept}"
        if (
            isinstance(assumed, Identified | Sensitive)
            and not problem.seen_by_model
            and problem.features is None
        ):
            yield f"that the score does not use {' x '.join(problem.cells.columns)!r} is taken on trust"
        said = list(self._worst_cases(problem, seen, short, known))
        extra = [
            name
            for k, name in enumerate(() if table is None else table.noisy)
            if table is not None and name not in problem.cells.names and table.values[..., k].any()
        ]
        if extra:
            yield Caution(
                f"the noise table names {', '.join(map(repr, extra))} as recorded, and no row of the fit is recorded "
                "so: rename it there if it is another name of a group"
            )
        yield "the tables of the report are by recorded group, but for what is named true_groups"
        yield (
            f"the worst true group is {where_of(self.demands)} the rate over everybody by at most {'; '.join(said)}; "
            f"the slack is {self.slack:g}"
        )
        if table is not None:
            yield self._breakdown(short, known, " and the label" if table.by_label else "", assumed, noise)
        if isinstance(assumed, Soft) and self.solver != "dro" and self.constraint != "demographic_parity":
            assert table is not None
            plain = [_over_labels(one) for one in known.tables]
            empty = np.any([vacuous(short.cells, one, RATIOS["true_positive_rate"]) for one in plain], axis=0)
            names = [name for name, bad in zip(table.true, empty, strict=True) if bad]
            if names:
                yield (
                    f"the table without labels guarantees {', '.join(map(repr, names))} nothing: all of their "
                    "positives may be among those that a rule misses"
                )

    def _worst_cases(self, problem: RepairProblem, seen: Seen, short: Merged, known: Known) -> Iterator[str]:
        """Yield how far the worst true group is away (or on the wrong side) under each description of the noise."""
        label = " and the label" if known.by_label else ""
        worst: dict[str, tuple[tuple[Floats, ...], Assumption]] = {}
        if known.conditional is not None and not set(problem.cells.columns) & set(problem.seen_by_model):
            text = f"noise depends on the true group{label} alone (N4, an estimate)"
            worst[text] = (known.conditional,), Identified(0.0, seen.rows)
        if known.by_label:
            worst["any noise that fits the table by label (N2)"] = known.tables, Certified()
        if known.tables:
            plain = tuple(_over_labels(table) for table in known.tables)
            worst["any noise that fits the table without labels (N1)"] = plain, Soft()
        for text, (tables, what) in worst.items():
            try:
                gap = max(self._shortfall(short, table, what) for table in tables)
            except ValueError:  # not identified
                continue
            yield f"{gap:z.4f} if {text}"
        if known.radii is not None:
            out = []
            for rate, sign in DEMANDS[self.parity]:
                low, high = tv_bounds(short.cells, known.radii, RATIOS[rate])
                out.append(sign * (short.overall(rate) - (low if sign > 0 else high)))
            yield f"{float(np.nanmax(out)):z.4f} within the radii (N0)"

    def _shortfall(self, short: Merged, table: Floats, assumed: Assumption) -> float:
        """Return what the worst true group is away (or on the wrong side) by, over all rates of the constraint."""
        out = []
        for rate, sign in DEMANDS[self.parity]:
            low, high = rate_bounds(short.n, table, short.chance, rate, assumed)
            out.append(sign * (short.overall(rate) - (low if sign > 0 else high)))
        return float(np.nanmax(out))

    def _breakdown(
        self, short: Merged, known: Known, label: str, assumed: Assumption | Radii, noise: Noise
    ) -> str:
        """Return how much noise may depend on outcomes before the constraint can break."""
        if known.recording is None:
            return "the noise table does not tell how large the true groups are, so there is no eps*"
        found = breakdown_of(short.n, known.recording, short.chance, self.parity, min(self.slack, 1.0))
        given = "decisions" if label else "decisions and the label"
        about = f"P(noisy | true{', label' if label else ''}) depends on {given}"
        eps = found.eps
        if isinstance(assumed, Sensitive):  # known of bins, which say more than levels of the decision
            own = self._eps(noise)
            eps = own if math.isnan(eps) else max(eps, own)
        if math.isnan(eps):
            return (
                f"the slack need not hold even if {about} by the least that the data allow, "
                f"{found.smallest_eps:.3f}: it is an estimate (no eps*)"
            )
        if eps >= 1:
            return f"the slack holds however much {about} (eps* = 1)"
        return f"the slack holds as long as {about} by at most eps* = {eps:.3f}"


def _radii_said(noise: Noise) -> str:
    """Return where the radii come from."""
    return (
        "the radii valid whatever the noise that fits the noise table"
        if noise.radii is None
        else "by the radii given"
    )


def _kept_said(noise: Noise, assumed: Assumption | Radii) -> str:
    """Return what of the noise table is taken to hold for the rows."""
    ways = (noise.of_recording,) if isinstance(assumed, Identified | Sensitive) else noise.ways
    both = " or ".join(f"P({way.replace('-given-', ' | ')})" for way in ways)
    return f"of it {both} holds for them{', whichever is worse' if len(ways) > 1 else ''}"


@dataclass(frozen=True, eq=False)
class Known:
    """What is known of the noise in the rows of the fit.

    Attributes
    ----------
    tables
        All joint masses of true and recorded groups that may be, shape (J, K) each, or by label (2, J, K); none where
        there are radii alone.
    recording
        Those that statements about ``P(noisy | true)`` are about (N3); None where the table does not tell them.
    conditional
        A table with the ``P(noisy | true)`` itself, of any shares (N4); None without a table.
    radii
        Shape (K,); None where true and recorded groups have other names.
    """

    tables: tuple[Floats, ...]
    recording: Floats | None
    conditional: Floats | None
    radii: Floats | None

    @classmethod
    def of(cls, problem: RepairProblem, own: Floats) -> Known:
        """Carry the table over to masses of recorded groups by label, shape (K, 2), of total 1."""
        names, said = problem.cells.names, problem.noise
        assert said is not None
        given = None
        if said.radii is not None:
            given = radii_for(said.radii, names, attribute_name(problem.cells.columns))
        if said.table is None:
            return cls((), None, None, given)
        said, masses = said.for_data(names, own.T if said.table.by_label else own.sum(1))
        table = said.table
        assert table is not None
        here = slice(len(names))
        joints = said.tables(masses)[..., here]
        tables = [joints[0]]
        tables += [joint for joint in joints[1:] if np.abs(joint - joints[0]).max() > SAME]
        recording = said.recording(masses)
        recording = None if recording is None else recording[..., here]
        raw = table.values[..., here] if said.of_recording == "noisy-given-true" else recording
        if given is None and set(names) == set(table.true):
            order = [table.true.index(name) for name in names]
            given = np.max([valid_radius(_over_labels(one)[order]) for one in tables], axis=0)
        return cls(tuple(tables), recording, raw, given)

    @property
    def by_label(self) -> bool:
        """Whether the table is by label."""
        return bool(self.tables) and self.tables[0].ndim == 3

    def of_assumption(self, assumed: Assumption) -> tuple[Floats, ...]:
        """Return the tables that an assumption is about."""
        if isinstance(assumed, Identified):
            return () if self.conditional is None else (self.conditional,)
        if isinstance(assumed, Sensitive):
            return () if self.recording is None else (self.recording,)
        return tuple(_over_labels(one) for one in self.tables) if isinstance(assumed, Soft) else self.tables

    def adversary(self, *, by_label: bool) -> Adversary:
        """Return any noise that fits one of the tables, by label or not."""
        found = tuple(Within(one if by_label else _over_labels(one)) for one in self.tables)
        return found[0] if len(found) == 1 else Either(found)


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
        of_label = any(len(LABELS[rate]) == 1 for rate, _ in DEMANDS[constraint])
        asked = (weight > 0) & (label == 1) if of_label else weight > 0
        if not asked.any():
            raise DataError(f"there is no row with label 1, which {constraint} needs")
        edges = bin_edges(score[asked], weight[asked], bins, 2.0 * problem.table.reading.cut - 1.0)
        at = _bins(edges, score)
        groups = problem.cells
        shape = (len(groups.levels), edges.size, 2)
        index = np.ravel_multi_index((groups.codes, at, label), shape)
        n = np.bincount(index, weight, math.prod(shape)).reshape(shape)
        return cls(n / n.sum(), edges, float(weight.sum() ** 2 / (weight**2).sum()))

    def bins(self, scored: Scored) -> Ints:
        """Return the bin of each row, shape (n,)."""
        return _bins(self.edges, 2.0 * scored.values - 1.0)

    @classmethod
    def decided(cls, problem: RepairProblem, each: Floats) -> tuple[Seen, Floats]:
        """Return rows counted by what each group's rule decides, (n, K), and the chances of these bins, (K, B).

        Edges are the mean chances of the bins, of which there is one score for all groups.
        """
        label, weight = label_of(problem).astype(np.int64), problem.weight
        own = np.flatnonzero(weight > 0)
        levels, at = np.unique(each[own], axis=0, return_inverse=True)
        shape = (len(problem.cells.levels), len(levels), 2)
        index = np.ravel_multi_index((problem.cells.codes[own], at.ravel(), label[own]), shape)
        n = np.bincount(index, weight[own], math.prod(shape)).reshape(shape)
        rows = float(weight.sum() ** 2 / (weight**2).sum())
        return cls(n / n.sum(), 2.0 * levels.mean(1) - 1.0, rows), levels.T

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


def _rule(problem: RepairProblem, design: Design, found: Trained) -> tuple[ScoreCurves, Floats]:
    """Return a trained rule, and what it decides of the rows of the fit in each recorded group, shape (n, K).

    Where the recorded group is a feature, the rule is a score of the others and a threshold per group, so that a group
    that the fit has not seen gets no decision. Forms are divided by the largest distance of a threshold to their
    middle, since a sigmoid tells numbers apart near 0 alone.
    """
    groups, features = problem.cells, design.features
    seen = problem.protected_as_feature
    columns = tuple(one for one in features.columns if one.kind != "group")
    plain = sum(len(one.titles) for one in columns)  # columns of groups come last
    matrix, coef = design.matrix[:, :plain], found.coef[:plain]
    first = [int(np.flatnonzero(groups.codes == k)[0]) for k in range(len(groups.levels) if seen else 1)]
    lifts = found.intercept + design.matrix[first, plain:] @ found.coef[plain:]
    middle = float(lifts.min() + lifts.max()) / 2
    scale = max(float(np.ptp(lifts)) / 2, 1.0)
    made = LinearMember(coef[:, None] / scale, np.array([middle / scale]), "sigmoid")
    edges = 2.0 * expit((middle - lifts) / scale) - 1.0
    rule = ScoreCurves(
        groups.columns if seen else (),
        groups.levels if seen else ((),),
        Scorer(Features(columns), made),
        tuple(Piecewise.steps([-1.0, float(edge)], [0.0, 1.0]) for edge in edges),
    )
    score = 2.0 * made.predict(matrix) - 1.0
    each = np.stack([curve(score) for curve in rule.curves], -1)
    return rule, each if seen else np.repeat(each, len(groups.levels), 1)


def _bins(edges: Floats, score: Floats) -> Ints:
    """Return the bin of each score ``2 s - 1``, shape (n,); those below all edges are in the first."""
    return np.asarray(np.maximum(np.searchsorted(edges, score, side="right") - 1, 0))


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
