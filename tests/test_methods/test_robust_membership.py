"""Repair of true groups that are known by probabilities of membership: what holds for them, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.scan import read_table
from fairfix.data.table import Table
from fairfix.errors import ColumnError, DataError, UsageError
from fairfix.methods.problem import RepairProblem
from fairfix.methods.robust import COMPARISONS, Robust
from fairfix.models.score_models import ScoreCurves
from fairfix.noise.description import Noise
from fairfix.noise.rates import DEMANDS, LABELS
from fairfix.noise.score_bin_bounds import KnownMembership, rate_bounds
from fairfix.noise.thresholds import solve_noisy
from scipy.optimize import linprog

from tests.strategies import examples

PARITIES = list(COMPARISONS)
VECTORS = np.array([[0.95, 0.05], [0.85, 0.15], [0.1, 0.9], [0.02, 0.98]])
COLUMNS = {"a": "p_a", "b": "p_b"}


def people(seed: int, many: int = 1200) -> pd.DataFrame:
    """Return rows of a few vectors of probabilities, whose scores differ by the likely group."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(len(VECTORS), many, p=[0.4, 0.2, 0.1, 0.3])
    score = np.round(1 / (1 + np.exp(-rng.normal(0.8 - 1.2 * (kind >= 2), 1.0))), 3)
    return pd.DataFrame(
        {
            "id": np.arange(many),
            "likely": np.where(kind < 2, "a", "b"),
            "label": (rng.random(many) < score).astype(np.int64),
            "score": score,
            "p_a": VECTORS[kind, 0],
            "p_b": VECTORS[kind, 1],
            "w": rng.choice([0.5, 1.0, 2.0], many),
        }
    )


def table_of(frame: pd.DataFrame, weight: str | None = None) -> Table:
    """Return rows as fairfix reads them for a repair."""
    data_spec = DataSpec(
        ColumnRoles(("likely",), label="label", score="score", weight=weight), thresholds=(0.5,)
    )
    return read_table(
        pa.Table.from_pandas(frame), data_spec, (), dict.fromkeys(COLUMNS.values(), pa.float64())
    )


def fit(repairer: Robust, frame: pd.DataFrame, *, weight: str | None = None, **said: Any) -> ScoreCurves:
    problem = RepairProblem(table_of(frame, weight), noise=Noise(membership=COLUMNS, **said))
    found = repairer.fit(problem, rng=np.random.default_rng(0))
    assert isinstance(found, ScoreCurves)
    return found


def worst(frame: pd.DataFrame, chance: np.ndarray, parity: str, weight: np.ndarray) -> float:
    """Return the largest distance to everybody, whoever of the rows with one vector is of each group.

    A linear program over the share of each row that is of the group, scaled to a denominator of 1.
    """
    out, kinds = -np.inf, frame[["p_a", "p_b"]].drop_duplicates()
    for rate, sign in DEMANDS[parity]:
        about = frame["label"].isin(LABELS[rate]).to_numpy() * weight
        overall = about @ chance / about.sum()
        for column in ("p_a", "p_b"):
            rows = []
            for p in kinds[column]:
                own = np.where(frame[column] == p, weight, 0.0)
                rows.append(np.append(own, -p * own.sum()))
            found = linprog(
                np.append(sign * about * chance, 0.0),
                A_eq=np.array([*rows, np.append(about, 0.0)]),
                b_eq=np.append(np.zeros(len(rows)), 1.0),
                A_ub=np.c_[np.eye(chance.size), -np.ones(chance.size)],
                b_ub=np.zeros(chance.size),
                method="highs",
            )
            assert found.status == 0
            out = max(out, sign * (overall - sign * found.fun))
    return out


@pytest.mark.parametrize("group", ["used", "unused"])
@pytest.mark.parametrize("parity", ["demographic_parity", "equal_opportunity"])
def test_no_group_that_the_probabilities_allow_is_further_away_than_the_slack(
    parity: str, group: str
) -> None:
    """The worst assignment of rows to groups reaches the slack and is not beyond, with weights too."""
    frame = people(0, 400)
    for weight in (None, "w"):
        method = Robust(constraint=parity, assume="none", slack=0.1, group=group, bins=30)
        rule = fit(method, frame, weight=weight)
        chance = rule.predict(table_of(frame, weight))
        own = np.ones(len(frame)) if weight is None else frame["w"].to_numpy()
        assert worst(frame, chance, parity, own) == pytest.approx(0.1, abs=1e-6)
        if group == "unused":
            assert len(rule.curves) == 1


@pytest.mark.parametrize("parity", ["demographic_parity", "predictive_equality"])
def test_a_mixture_of_models_holds_for_all_groups_that_the_probabilities_allow(parity: str) -> None:
    """The models are those of a learner, the worst assignment is that of the program, with weights too."""
    frame = people(0, 400).assign(x=lambda one: np.log(one["score"] / (1 - one["score"])))
    for weight in (None, "w"):
        data_spec = DataSpec(
            ColumnRoles(("likely",), label="label", score="score", weight=weight), thresholds=(0.5,)
        )
        types = dict.fromkeys(COLUMNS.values(), pa.float64())
        table = read_table(pa.Table.from_pandas(frame), data_spec, ("x",), types)
        problem = RepairProblem(table, noise=Noise(membership=COLUMNS), features=("x",))
        method = Robust(solver="oracle", constraint=parity, assume="none", slack=0.15)
        rule = method.fit(problem, rng=np.random.default_rng(0))
        chance, own = rule.predict(table), np.ones(400) if weight is None else frame["w"].to_numpy()
        assert worst(frame, chance, parity, own) <= 0.15 + 1e-6
        assert 0.05 < chance.mean() < 0.98
        (said,) = [
            str(note) for note in rule.trace.notes if "any noise that fits the probabilities" in str(note)
        ]
        assert f"{worst(frame, chance, parity, own):.4f} under any noise that fits the probabilities" in said
        with pytest.raises(UsageError, match="needs a noise table of counts"):
            replace(method, survey_confidence=0.9).fit(problem, rng=np.random.default_rng(0))


def test_the_likely_groups_alone_are_not_enough() -> None:
    """What the certificate is for: parity of the likely groups leaves the true ones further apart than its slack."""
    frame = people(0, 400)
    chance = fit(Robust(slack=0.0, assume="independent", z=0.0), frame).predict(table_of(frame))
    assert worst(frame, chance, "demographic_parity", np.ones(len(frame))) > 0.05


def weighted_rows(seed: int, bins: int) -> tuple[np.ndarray, ...]:
    """Return memberships, rules, bins, labels and weights of rows, their masses and sums by membership."""
    rng = np.random.default_rng(seed)
    many = 200
    z = rng.dirichlet([1.0, 1.0, 1.0], many)
    k, b, y, w = (
        rng.integers(0, 2, many),
        rng.integers(0, bins, many),
        rng.integers(0, 2, many),
        rng.random(many),
    )
    n, sums = np.zeros((2, bins, 2)), np.zeros((2, 3, 2, bins, 2))
    np.add.at(n, (k, b, y), w / w.sum())
    for j in range(3):
        np.add.at(sums[0, j], (k, b, y), w * z[:, j])
        np.add.at(sums[1, j], (k, b, y), (w * z[:, j]) ** 2)
    return z, k, b, y, w, n, sums


def test_the_least_largest_error_by_membership_is_that_of_a_program_over_rows() -> None:
    """First the least largest error of a group, then the least error of everybody among the rules that reach it."""
    bins = 5
    for seed in range(examples(3)):
        z, k, b, y, w, n, sums = weighted_rows(seed, bins)
        of_row = np.eye(2 * bins)[k * bins + b]
        rising = np.kron(np.eye(2), np.eye(bins)[:-1] - np.eye(bins)[1:])
        share = w[:, None] * z / (w @ z)
        errors, refused = (
            (share * (1 - 2 * y)[:, None]).T @ of_row,
            share.T @ y,
        )  # of a group: errors F + refused
        under = np.vstack([np.c_[rising, np.zeros(len(rising))], np.c_[errors, -np.ones(3)]])
        bounds = [(0, 1)] * 2 * bins + [(0, None)]
        right = np.r_[np.zeros(len(rising)), -refused]
        level = linprog(np.r_[np.zeros(2 * bins), 1.0], A_ub=under, b_ub=right, bounds=bounds).fun
        right[len(rising) :] += level + 1e-9
        cost = (w * (1 - 2 * y)) @ of_row / w.sum()
        best = linprog(cost, A_ub=under[:, :-1], b_ub=right, bounds=(0, 1))
        found = solve_noisy(n, sums, "minimax", 0.0, KnownMembership())
        assert found.largest_error == pytest.approx(level, abs=1e-6)
        assert (errors @ found.F.ravel() + refused).max() == pytest.approx(level, abs=1e-6)
        assert found.error == pytest.approx(
            best.fun + w @ y / w.sum(), abs=2e-4
        )  # as near as tangents are asked to be
        safe = solve_noisy(n, sums, "minimax", 0.0, KnownMembership(1.0))
        mistaken = np.where(y == 1, 1 - safe.F[k, b], safe.F[k, b])
        mean = share.T @ mistaken
        margin = np.sqrt((share**2 * (mistaken[:, None] - mean) ** 2).sum(0))
        assert safe.largest_error == pytest.approx((mean + margin).max(), abs=1e-6)
        assert safe.largest_error >= level


@pytest.mark.parametrize("parity", [name for name in PARITIES if name != "minimax"])
def test_weighted_thresholds_are_the_best_by_a_program_over_rows(parity: str) -> None:
    """Each row counts in each group by its probability, and the error is the least that thresholds can have."""
    for seed in range(examples(3)):
        bins = 5
        z, k, b, y, w, n, sums = weighted_rows(seed, bins)
        of_row = np.eye(2 * bins)[k * bins + b]
        rows, right = list(np.kron(np.eye(2), np.eye(bins)[:-1] - np.eye(bins)[1:])), [0.0] * 2 * (bins - 1)
        for rate, sign in DEMANDS[parity]:
            about = np.isin(y, LABELS[rate]) * w
            for j in range(3):
                own = about * z[:, j]
                rows.append(sign * (about / about.sum() - own / own.sum()) @ of_row)
                right.append(0.05)
        cost = (w * (1 - 2 * y)) @ of_row / w.sum()
        best = linprog(cost, A_ub=np.array(rows), b_ub=right, bounds=(0, 1), method="highs")
        found = solve_noisy(n, sums, parity, 0.05, KnownMembership())
        assert found.error == pytest.approx(best.fun + w @ y / w.sum(), abs=1e-7)
        safe = solve_noisy(n, sums, parity, 0.05, KnownMembership(1.0))
        assert safe.error >= found.error - 1e-9
        chance = safe.F[k, b]
        for rate, sign in DEMANDS[parity]:
            about = np.isin(y, LABELS[rate]) * w
            ends = rate_bounds(n, sums, safe.F, rate, KnownMembership(1.0))
            for j in range(3):
                own = about * z[:, j]
                mean = own @ chance / own.sum()
                error = np.sqrt(((own * (chance - mean)) ** 2).sum()) / own.sum()
                assert ends[0 if sign > 0 else 1][j] == pytest.approx(mean - sign * error, abs=1e-9)
                assert sign * (about @ chance / about.sum() - mean) + error <= 0.05 + 1e-6


def test_what_is_relied_on_is_said() -> None:
    """N1 if nothing is said, N4 where independence is; and the worst case under the other."""
    frame = people(1)
    for said, method, code in (
        ({}, Robust(), "N1: any rows with the same membership probabilities in p_a, p_b"),
        ({"assume": "independent"}, Robust(), "N4: given the membership probabilities in p_a, p_b"),
        ({"assume": "independent"}, Robust(assume="none"), "N1:"),
        ({}, Robust(assume="independent"), "N4:"),
    ):
        rule = fit(method, frame, **said)
        notes = " ".join(rule.trace.notes)
        assert f"relies on {code}" in notes
        assert "given the probabilities (N4, an estimate)" in notes
        assert "under any noise that fits the probabilities (N1)" in notes
        assert "eps*" not in notes
    assert method.effective_noise(Noise(membership=COLUMNS)).independent
    vague = fit(
        Robust(constraint="equal_opportunity", assume="none", group="unused"),
        frame.assign(p_a=0.3, p_b=0.7),
        **said,
    )
    assert "the membership probabilities guarantee 'a' nothing" in " ".join(vague.trace.notes)


def test_what_probabilities_do_not_say_is_refused() -> None:
    """By name, with the remedy."""
    frame = people(2, 400)
    for method, said in (
        (
            Robust(assume="class-conditional"),
            "with probabilities of membership, use `assume=none` or `assume=ind",
        ),
        (Robust(assume="eps=0.05"), "`assume=eps=0.05` needs a noise table"),
        (Robust(assume="radii"), "`assume=radii` needs a noise table.* or radii"),
        (Robust(constraint="equal_opportunity"), "have no labels"),
        (Robust(solver="dro"), "`solver=dro` does not support membership probabilities"),
        (
            Robust(solver="ideal"),
            "`solver=ideal` does not support membership probabilities; use `solver=thresholds`",
        ),
    ):
        with pytest.raises(UsageError, match=said):
            fit(method, frame)
    problem = RepairProblem(table_of(frame), noise=Noise(membership=COLUMNS), features=("score",))
    with pytest.raises(UsageError, match="`solver=soft` does not support membership probabilities"):
        Robust(solver="soft").fit(problem, rng=np.random.default_rng(0))
    mixed = frame.assign(likely=np.where(frame["id"] % 2, "a", "b"))
    with pytest.raises(UsageError, match=r"in the groups 'a' and 'b' of 'likely'.*Use `group=unused`"):
        fit(Robust(), mixed)
    fit(Robust(group="unused", slack=0.2), mixed)
    with pytest.raises(DataError, match=r"p_a, p_b sum to 0.5 in row 3"):
        fit(
            Robust(),
            frame.assign(
                p_a=np.where(frame["id"] == 2, 0.5 - frame["p_b"].clip(upper=0.5), frame["p_a"]),
                p_b=np.where(frame["id"] == 2, frame["p_b"].clip(upper=0.5), frame["p_b"]),
            ),
        )
    with pytest.raises(ColumnError, match="no feature column 'p_c' of membership probabilities"):
        Robust().fit(
            RepairProblem(table_of(frame), noise=Noise(membership={"a": "p_a", "c": "p_c"})),
            rng=np.random.default_rng(0),
        )
    with pytest.raises(UsageError, match="needs a noise table"):
        Noise(membership=COLUMNS, assume="eps=0.1")
    with pytest.raises(UsageError, match="needs probabilities of membership"):
        Noise(radii={"a": 0.1}, assume="independent")
