"""The ramp with every constraint: laws on the rows of the fit, independent optima, and what it says."""

from __future__ import annotations

import warnings
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fairfix.auditing.audit import audit
from fairfix.auditing.results import Settings
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.scan import read_table
from fairfix.data.table import Table
from fairfix.errors import ConvergenceWarning, DataError, UsageError
from fairfix.methods.base import expected_accuracy
from fairfix.methods.problem import RepairProblem
from fairfix.methods.ramp import Ramp, strata, stream
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.trace import Caution
from fairfix.tasks.fit_and_evaluate import repair_table
from scipy.optimize import linprog

from tests.data import scored

RATES = ("demographic_parity", "equal_opportunity", "predictive_equality", "equalized_odds")
CONSTRAINTS = (*RATES, "covariance")


def frame(seed: int = 0, rows: int = 900, *, groups: int = 3, skew: float = 1.5) -> pa.Table:
    """Return scored rows whose scores are too high."""
    return scored(seed, rows, groups, skew=skew)


def table_of(
    data: pa.Table, *, weight: str | None = None, strata: tuple[str, ...] = (), label: str | None = "label"
) -> Table:
    """Return the validated table of a frame."""
    columns = ColumnRoles(("race",), label=label, score="score", weight=weight, strata=strata)
    return read_table(data, DataSpec(columns, thresholds=(0.5,)))


def fit(repairer: Ramp, table: Table, unlabelled: Table | None = None) -> RepairedPredictor:
    """Fit, with every warning an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return repairer.fit(RepairProblem(table, unlabelled=unlabelled), rng=np.random.default_rng(0))


def gap(repairer: Ramp, table: Table, chance: np.ndarray, attribute: str = "race") -> float:
    """Return the audited value of what the slack bounds."""
    name = repairer.bounded_comparison(table.data_spec)
    if table.data_spec.columns.strata:
        name = name.rpartition(".")[0] + ".within_strata"
    report = audit(
        table.with_decision(chance), table.data_spec, Settings(only={name}, intersect=" x " in attribute)
    )
    return report.block(attribute).by_id[name].value


# ---- laws ----------------------------------------------------------------------------------------------


GAMMAS = (0.0, 0.05, 0.5)
WAYS = list(product(["auto", "isotonic"], [(None, ()), ("weight", ()), ("weight", ("job",))]))
PAIRWISE = [
    (constraint, gamma, *WAYS[(2 * c + 2 * g + other) % 6])
    for (c, constraint), (g, gamma) in product(enumerate(CONSTRAINTS), enumerate(GAMMAS))
    for other in (0, 1)
]
"""Every constraint with every width, and each of both with every recalibration of every kind of rows."""


@pytest.mark.slow
@pytest.mark.parametrize(("constraint", "gamma", "calibrate", "of_rows"), PAIRWISE)
def test_the_audit_finds_the_slack_on_the_fit_rows(
    constraint: str, gamma: float, calibrate: str, of_rows: tuple[str | None, tuple[str, ...]]
) -> None:
    """Every constraint, width, shape and recalibration: within the slack, and more slack costs no objective."""
    weight, strata = of_rows
    table = table_of(frame(), weight=weight, strata=strata)
    for shape in ("one-sided", "centred"):
        objectives = []
        for slack in (0.0, 0.03, 2.0):
            repairer = Ramp(constraint=constraint, gamma=gamma, calibrate=calibrate, shape=shape, slack=slack)
            predictor = fit(repairer, table)
            assert gap(repairer, table, predictor.predict(table)) <= slack + 1e-9
            objectives.append(predictor.trace.objective)
        assert all(b <= a + 1e-12 for a, b in pairwise(objectives))


RATIOS = [
    ({"gamma": 0.0}, None, ()),
    ({"gamma": 0.05}, "weight", ("job",)),
    ({"gamma": 0.0, "calibrate": "isotonic"}, "weight", ("job",)),
    ({"constraint": "equal_opportunity"}, "weight", ()),
    ({"constraint": "equal_opportunity", "gamma": 0.0}, None, ("job",)),
    ({"constraint": "predictive_equality", "shape": "centred"}, None, ("job",)),
]


@pytest.mark.parametrize(("given", "weight", "strata"), RATIOS)
def test_the_audit_finds_the_ratio_on_the_fit_rows(
    given: dict, weight: str | None, strata: tuple[str, ...]
) -> None:
    """No group's rate is below the share of another's, to rounding, and a larger share costs objective."""
    table = table_of(frame(), weight=weight, strata=strata)
    ratios, objectives = [], []
    rate = given.get("constraint", "dp")
    for least in (0.3, 0.8, 1.0):
        repairer = Ramp(**given | {"constraint": f"{rate}.ratio>={least}"})
        predictor = fit(repairer, table)
        assert predictor.trace.converged
        ratios.append(gap(repairer, table, predictor.predict(table)))
        objectives.append(predictor.trace.objective)

    assert ratios[0] == pytest.approx(max(0.3, ratios[0]), abs=1e-9)
    assert ratios[0] < 0.8
    assert ratios[1:] == pytest.approx([0.8, 1.0], abs=1e-9)
    assert objectives == sorted(objectives)
    assert objectives[1] < objectives[2]


def crossed(weight: str | None = None, strata: tuple[str, ...] = ()) -> Table:
    """Return rows of two protected columns, race and sex, whose scores hang on both."""
    rng, data = np.random.default_rng(7), frame(3)
    sex = rng.choice(["f", "m"], len(data))
    score = np.clip(data["score"].to_numpy() + 0.1 * (sex == "m"), 0, 1)
    data = data.set_column(data.column_names.index("score"), "score", pa.array(score))
    columns = ColumnRoles(("race", "sex"), label="label", score="score", weight=weight, strata=strata)
    return read_table(data.append_column("sex", pa.array(sex)), DataSpec(columns, thresholds=(0.5,)))


def test_the_gap_that_thresholds_leave_is_the_largest_of_each_column() -> None:
    """Rounded on the rows of the fit; the intersections are not held, and so not told."""
    table, repairer = crossed(), Ramp(constraint="dp[each]", decisions="deterministic")
    rounded = fit(repairer, table)
    left = max(gap(repairer, table, rounded.predict(table), name) for name in ("race", "sex"))

    assert 0 < left < 0.01 < gap(repairer, table, rounded.predict(table), "race x sex")
    assert f"the largest gap in the constrained rates is {left:.2g}," in rounded.trace.notes[-1]


@pytest.mark.parametrize("gamma", [0.0, 0.05])
def test_one_column_is_each_column(gamma: float) -> None:
    """With one protected column there is nothing to cross, and the rule is the same to the bit."""
    table = table_of(frame())
    one, each = (fit(Ramp(gamma=gamma, constraint=name), table).state() for name in ("dp", "dp[each]"))

    assert {n: a.tobytes() for n, a in one[1].items()} == {n: a.tobytes() for n, a in each[1].items()}


# ---- optima --------------------------------------------------------------------------------------------


def monotone_optimum(table: Table, constraint: str) -> float:
    """Return the best expected accuracy of rules monotone in the score inside each group, by a linear program.

    The variables are the jumps of each group's rule at its scores, which sum to at most 1.
    """
    code, f, y = table.groups().codes, table.rows.score, table.rows.label
    blocks, gains = [], []
    for k in range(code.max() + 1):
        inside = code == k
        above = (f[inside][:, None] >= np.unique(f[inside])[None, :]).astype(float)
        up, right = above[y[inside] == 1], above[y[inside] == 0]
        rates = {
            "demographic_parity": [above.mean(axis=0)],
            "equal_opportunity": [up.mean(axis=0)],
            "predictive_equality": [right.mean(axis=0)],
            "equalized_odds": [up.mean(axis=0), right.mean(axis=0)],
        }
        blocks.append(rates[constraint])
        gains.append(up.sum(axis=0) - right.sum(axis=0))
    sizes = [g.size for g in gains]
    kinds, many = len(blocks[0]), sum(sizes)
    equal, budget, start = [], np.zeros((len(sizes), many + kinds)), 0
    for k, size in enumerate(sizes):
        budget[k, start : start + size] = 1
        for j in range(kinds):
            row = np.zeros(many + kinds)
            row[start : start + size], row[many + j] = blocks[k][j], -1
            equal.append(row)
        start += size
    cost = np.concatenate([-np.concatenate(gains), np.zeros(kinds)])
    found = linprog(
        cost, budget, np.ones(len(sizes)), np.array(equal), np.zeros(len(equal)), bounds=(0, None)
    )
    return (-found.fun + (y == 0).sum()) / y.size


@pytest.mark.parametrize("constraint", RATES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_no_width_and_isotonic_is_the_most_accurate_monotone_rule(constraint: str, seed: int) -> None:
    """The label-based optimum equals that of a linear program over all rules monotone in the score."""
    table = table_of(frame(seed, 120, groups=2 + seed % 2))
    predictor = fit(Ramp(gamma=0.0, constraint=constraint, calibrate="isotonic"), table)

    assert expected_accuracy(table, predictor.predict(table)) == pytest.approx(
        monotone_optimum(table, constraint), abs=1e-9
    )


def test_strata_are_problems_of_their_own() -> None:
    """Within strata, the rules of a stratum are those of its rows alone."""
    data = frame()
    whole = fit(Ramp(), table_of(data, strata=("job",)))
    table = table_of(data, strata=("job",))
    chance, job = whole.predict(table), np.array(data["job"].to_pylist())
    for name in ("j0", "j1"):
        rows = data.filter(pa.array(job == name))
        alone = table_of(rows)
        np.testing.assert_allclose(chance[job == name], fit(Ramp(), alone).predict(alone), atol=1e-12)


# ---- parameters ----------------------------------------------------------------------------------------


def test_rates_that_are_asked_for() -> None:
    """A number, the mean score, and the best rate by the labels; for equal opportunity a true positive rate."""
    table = table_of(frame())
    code, label = table.groups().codes, table.rows.label

    def rates(repairer: Ramp, only: np.ndarray) -> np.ndarray:
        chance = fit(repairer, table).predict(table)
        return np.array([chance[(code == k) & only].mean() for k in range(3)])

    everyone = np.ones(len(table), dtype=bool)
    assert rates(Ramp(rho=0.3), everyone) == pytest.approx(0.3, abs=1e-12)
    assert rates(Ramp(rho="mean"), everyone) == pytest.approx(table.rows.score.mean(), abs=1e-12)
    best = rates(Ramp(gamma=0.0, calibrate="isotonic"), everyone)
    assert rates(Ramp(rho="labels"), everyone) == pytest.approx(best, abs=1e-12)
    assert rates(Ramp(rho=0.6, constraint="equal_opportunity"), label == 1) == pytest.approx(0.6, abs=1e-9)


def test_a_centred_ramp_is_the_ramp_of_raised_scores() -> None:
    """Penalising the distance from one half moves the ramp down by half its width, at a given rate not at all."""
    table = table_of(frame())
    one, centred = (fit(Ramp(gamma=0.4, slack=2.0, shape=shape), table) for shape in ("one-sided", "centred"))
    score = 2 * table.rows.score - 1

    np.testing.assert_allclose(one.predict(table), np.clip(score / 0.4, 0, 1), atol=1e-12)
    np.testing.assert_allclose(centred.predict(table), np.clip(score / 0.4 + 0.5, 0, 1), atol=1e-12)
    given = [
        fit(Ramp(gamma=0.4, rho=0.3, shape=shape), table).predict(table) for shape in ("one-sided", "centred")
    ]
    np.testing.assert_allclose(given[0], given[1], atol=1e-12)


def cut_at(table: Table, cut: float) -> Table:
    """Return the table with another threshold of the base decisions."""
    return replace(table, data_spec=replace(table.data_spec, thresholds=(cut,)))


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize("gamma", [0.0, 0.05])
def test_the_threshold_in_force_is_where_the_rule_stands(constraint: str, gamma: float) -> None:
    """Where nothing binds, a narrow rule selects what the base decisions at that threshold select."""
    cut = 0.305  # between the tied scores
    table = cut_at(table_of(frame(rows=3000, skew=1.0)), cut)
    rule = Ramp(constraint=constraint, gamma=gamma / 100, slack=2.0, calibrate="none", shape="centred")
    base = (table.rows.score >= cut).astype(float)
    assert np.abs(fit(rule, table).predict(table) - base).mean() < 0.002
    assert np.abs(fit(rule, cut_at(table, 0.5)).predict(table) - base).mean() > 0.2


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize("gamma", [0.0, 0.05])
def test_thresholds_at_the_ends_decide_the_same_for_everybody(constraint: str, gamma: float) -> None:
    """At 0 every positive decision is worth something, at 1 none is."""
    table = table_of(frame())
    rule = Ramp(constraint=constraint, gamma=gamma)
    all_, none = (fit(rule, cut_at(table, cut)).predict(table) for cut in (0.0, 1.0))
    assert all_[table.rows.label == 1].mean() > 0.98  # blocks without any label 1 are worth nothing at 0
    assert none.mean() < 0.01


@pytest.mark.parametrize("constraint", RATES)
def test_costs_of_the_threshold_are_what_is_optimised(constraint: str) -> None:
    """No other threshold's rule has a higher accuracy as weighted by this one, on the rows of the fit."""
    table = table_of(frame(rows=1500))
    ramp = Ramp(gamma=0.0, constraint=constraint, calibrate="isotonic")
    found = {
        cut: expected_accuracy(table, fit(ramp, cut_at(table, cut)).predict(table), 0.3)
        for cut in (0.1, 0.2, 0.3, 0.4, 0.5, 0.7)
    }
    assert max(found, key=found.__getitem__) == 0.3


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_deterministic_thresholds_say_what_they_cost(constraint: str) -> None:
    """Nothing is left to chance; rates are as near as thresholds come; the cost is measured on held-out rows."""
    table = table_of(frame(rows=4000))
    outcome = repair_table(table, Ramp(constraint=constraint, decisions="deterministic"))
    chance = outcome.predictor.predict(table)

    assert set(np.unique(chance)) <= {0.0, 1.0}
    assert not outcome.predictor.randomized
    assert outcome.holdout.shown.randomized == 0
    assert not outcome.predictor.trace.certificates, "what is proven is of the rule before it was rounded"
    assert np.isnan(outcome.predictor.trace.gap)
    note = next(str(n) for n in outcome.messages if str(n).startswith("without randomization"))
    held = table.take(outcome.split.holdout)
    value = gap(Ramp(constraint=constraint), held, outcome.predictor.predict(held))
    assert f"{value:.4f} instead of" in note
    fitted = table.take(outcome.split.fit)
    if constraint != "equalized_odds":  # a threshold has one number to hit two rates with
        assert gap(Ramp(constraint=constraint), fitted, outcome.predictor.predict(fitted)) < 0.01


@pytest.mark.parametrize(
    "parameters",
    [
        {"constraint": "equalized_odds"},
        {"constraint": "predictive_equality"},
        {"constraint": "predictive_equality.ratio>=0.8"},
    ],
)
def test_rounding_leaves_out_rates_that_a_group_lacks(parameters: dict[str, Any]) -> None:
    """A group of positives alone has no false positive rate: what the others leave is said, and it keeps its share."""
    data = frame(rows=3000).to_pandas()
    data.loc[data["race"] == "g2", "label"] = 1
    table = table_of(pa.table(data))
    drawn = fit(Ramp(calibrate="sigmoid", **parameters), table)
    rounded = fit(Ramp(calibrate="sigmoid", decisions="deterministic", **parameters), table)
    chance, group, label = rounded.predict(table), data["race"].to_numpy(), data["label"].to_numpy()
    rates = np.array([chance[(group == name) & (label == 0)].mean() for name in ("g0", "g1")])
    said = next(note for note in rounded.trace.notes if note.startswith("deterministic"))
    if "ratio" in parameters["constraint"]:
        assert f"the smallest ratio of the constrained rates is {rates.min() / rates.max():.2g}," in said
    elif parameters["constraint"] == "predictive_equality":
        assert f"the largest gap in the constrained rates is {np.ptp(rates):.2g}," in said
    mine = group == "g2"
    assert chance[mine].mean() == pytest.approx(drawn.predict(table)[mine].mean(), abs=2 / mine.sum())


@pytest.mark.parametrize(("constraint", "label"), [("equal_opportunity", 1), ("predictive_equality", 0)])
@pytest.mark.parametrize("calibrate", ["none", "isotonic"])
@pytest.mark.parametrize("gamma", [0.0, 0.05])
def test_one_rate_needs_the_rows_of_one_label(
    constraint: str, label: int, calibrate: str, gamma: float
) -> None:
    """A group whose rows all have the label that counts has its rate; one with none of them is refused by its name."""
    data = frame().to_pandas()
    for own, refused in ((label, False), (1 - label, True)):
        data.loc[data["race"] == "g2", "label"] = own
        if calibrate == "none":
            data.loc[data["race"] == "g2", "score"] = float(own)
        table, ramp = table_of(pa.table(data)), Ramp(constraint=constraint, calibrate=calibrate, gamma=gamma)
        if refused:
            with pytest.raises(DataError, match=f"group 'g2' has no rows with label {label} to fit on"):
                fit(ramp, table)
            continue
        chance, of_label = fit(ramp, table).predict(table), data["label"].to_numpy() == label
        if calibrate == "isotonic":
            rates = [chance[of_label & (data["race"] == name)].mean() for name in ("g0", "g1", "g2")]
            assert np.ptp(rates) < 1e-9


def test_a_cell_without_the_label_is_no_group_of_its_own() -> None:
    """Of groups that overlap only the groups of each column need rows of the label, and not every cell."""
    data = frame(rows=1500).to_pandas()
    data["sex"] = np.where(data["x"] > 0, "f", "m")
    data.loc[(data["race"] == "g2") & (data["sex"] == "f"), "label"] = 0
    columns = ColumnRoles(("race", "sex"), label="label", score="score")
    table = read_table(pa.table(data), DataSpec(columns, thresholds=(0.5,)))
    chance = fit(Ramp(constraint="equal_opportunity[each]"), table).predict(table)
    ones = data["label"].to_numpy() == 1
    for column in columns.protected:
        rates = [chance[ones & (data[column] == name)].mean() for name in data[column].unique()]
        assert np.ptp(rates) < 1e-8
    data.loc[data["race"] == "g2", "label"] = 0
    table = read_table(pa.table(data), DataSpec(columns, thresholds=(0.5,)))
    with pytest.raises(DataError, match="group 'g2' has no rows with label 1"):
        fit(Ramp(constraint="equal_opportunity[each]"), table)


def test_unlabelled_rows_join_the_rates() -> None:
    """Rows without labels count for the selection rates like those with; they move no recalibration."""
    data = frame(rows=1200)
    labelled, more = table_of(data.slice(0, 300)), table_of(data.slice(300), label=None)
    everybody = table_of(data, label=None)
    np.testing.assert_allclose(
        fit(Ramp(), labelled, more).predict(everybody), fit(Ramp(), everybody).predict(everybody), atol=1e-12
    )
    pooled = fit(Ramp(calibrate="isotonic", gamma=0.0), labelled, more).predict(everybody)
    code = everybody.groups().codes
    assert np.ptp([pooled[code == k].mean() for k in range(3)]) < 1e-12
    with pytest.raises(DataError, match=r"'g2'.*no labelled row"):
        fit(Ramp(), table_of(frame(groups=2)), table_of(frame(groups=3), label=None))


def test_bad_calibration_is_told_where_the_result_hangs_on_it() -> None:
    """With slack, or where labels are what the constraint is about; not where labels mend it or nothing hangs on it."""
    off, good = table_of(frame(rows=5000, skew=2.0)), table_of(frame(rows=5000, skew=1.0))

    def told(repairer: Ramp, table: Table) -> bool:
        return any("the scores are not calibrated" in note for note in fit(repairer, table).trace.notes)

    assert told(Ramp(slack=0.05), off)
    assert told(Ramp(constraint="equalized_odds", calibrate="none"), off)
    assert not told(Ramp(), off)
    assert not told(Ramp(slack=0.05, calibrate="isotonic"), off)
    assert not told(Ramp(slack=0.05, rho="labels"), off)
    assert not told(Ramp(slack=0.05), good)


# ---- streams -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [{}, {"slack": 0.05}, {"rho": 0.3}, {"rho": "mean"}, {"shape": "centred", "gamma": 0.3, "rho": "mean"}],
)
def test_the_solver_of_streams_comes_to_the_exact_rule(given: dict) -> None:
    """On rows in memory and on rows in pieces, the rule is that of the exact solver, to the solver's promise."""
    table = table_of(frame(rows=60_000))
    exact = fit(Ramp(**given), table).predict(table)
    pieces = [table.take(np.arange(at, min(at + 7000, len(table)))) for at in range(0, len(table), 7000)]
    stream = Ramp(**given, solver="stream").effective_solver.learn(
        lambda: iter(pieces), rng=np.random.default_rng(0)
    )
    for found in (fit(Ramp(**given, solver="stream"), table), stream):
        chance = found.predict(table)
        assert found.trace.converged
        assert np.abs(chance - exact).max() < 1e-4
        rates = np.bincount(table.groups().codes, chance) / np.bincount(table.groups().codes)
        assert np.ptp(rates) <= given.get("slack", 0.0) + 1e-6


def test_a_file_is_learned_as_it_is_read(tmp_path: Path) -> None:
    """A repair of a stream learns from rows that it does not judge by, the same ones whatever the pieces."""
    from fairfix.data.files import open_source
    from fairfix.tasks.fit_and_evaluate import repair_stream

    data = frame(rows=20_000)
    outcomes = []
    for size in (2_000, 20_000):
        pq.write_table(data, tmp_path / f"{size}.parquet", row_group_size=size)
        data_spec = table_of(data).data_spec
        outcomes.append(
            repair_stream(open_source(str(tmp_path / f"{size}.parquet")), data_spec, Ramp(solver="stream"))
        )
    (one, counts), (other, _) = outcomes
    gap_after = {row.name: row.after.value for row in one.holdout.shown.table}

    assert one.sizes["fit"] + one.sizes["holdout"] == counts.counts.used == 20_000
    assert one.sizes["holdout"] == pytest.approx(6_000, abs=300)
    assert one.holdout.shown.rows == one.sizes["holdout"]
    np.testing.assert_allclose(one.predictor.offsets, other.predictor.offsets, atol=1e-6)
    assert gap_after["selection_rate.difference.between_groups [race]"] < 0.05
    with pytest.raises(UsageError, match="does not learn from a stream"):
        repair_stream(open_source(data), data_spec, Ramp())
    with pytest.raises(UsageError, match="strata"):
        repair_stream(open_source(data), table_of(data, strata=("job",)).data_spec, Ramp(solver="stream"))
    with pytest.raises(DataError, match="only the group 'g0'"):
        Ramp(solver="stream").effective_solver.learn(
            lambda: iter([table_of(frame(groups=1))]), rng=np.random.default_rng(0)
        )


@pytest.mark.parametrize(
    "given",
    [
        {"gamma": 0.0},
        {"constraint": "covariance"},
        {"calibrate": "isotonic"},
        {"rho": "labels"},
        {"decisions": "deterministic"},
    ],
)
def test_what_needs_all_rows_is_refused_with_a_stream(given: dict) -> None:
    """The message names the parameter and the other solver."""
    with pytest.raises(UsageError, match=f"`{next(iter(given))}=.*it needs `solver=exact`"):
        Ramp(solver="stream", **given)


# ---- gates ---------------------------------------------------------------------------------------------


def test_what_needs_labels_says_so() -> None:
    """Constraints about labels, recalibration and rates by labels."""
    bare = table_of(frame(), label=None)
    for given in ({"constraint": "equalized_odds"}, {"calibrate": "sigmoid"}, {"rho": "labels"}):
        with pytest.raises(DataError, match="needs labels"):
            fit(Ramp(**given), bare)
    fit(Ramp(constraint="equalized_odds", calibrate="none"), bare)


def test_what_one_stratum_misses_is_said_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stratum that has not converged, or has a gap left, is not hidden by one that has none."""
    plain, calls = strata.solve, []

    def first_is_off(*given: Any) -> Any:
        calls.append(given)
        return replace(plain(*given), converged=False, gap=0.25) if len(calls) == 1 else plain(*given)

    monkeypatch.setattr(strata, "solve", first_is_off)
    data = frame()
    with pytest.warns(ConvergenceWarning):
        predictor = Ramp().fit(RepairProblem(table_of(data, strata=("job",))), rng=np.random.default_rng(0))
    first = sorted(set(data["job"].to_pylist()))[0]
    share = float(np.mean([job == first for job in data["job"].to_pylist()]))
    (proven,) = predictor.trace.certificates

    assert len(calls) == 2
    assert not predictor.trace.converged
    assert predictor.trace.gap == pytest.approx(0.25 * share, abs=1e-9)
    assert proven.value - proven.bound == pytest.approx(predictor.trace.gap, abs=1e-12)


def test_a_stream_that_has_not_settled_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates that are off the band are a caution, and the fit is not called converged."""
    plain = stream.learn
    monkeypatch.setattr(stream, "learn", lambda *given, **more: replace(plain(*given, **more), off=0.03))
    with pytest.warns(ConvergenceWarning):
        predictor = Ramp(solver="stream").fit(RepairProblem(table_of(frame())), rng=np.random.default_rng(0))

    assert not predictor.trace.converged
    assert any(isinstance(note, Caution) and "3.0e-02" in note for note in predictor.trace.notes)


def test_a_stratum_without_a_group_leaves_its_rows_undecided() -> None:
    """A cell that the fit has not seen has no rule: NaN, which the artifact turns into its policy."""
    data = frame()
    gone = (np.array(data["job"].to_pylist()) == "j1") & (np.array(data["race"].to_pylist()) == "g2")
    predictor = fit(Ramp(), table_of(data.filter(pa.array(~gone)), strata=("job",)))
    chance = predictor.predict(table_of(data, strata=("job",)))

    np.testing.assert_array_equal(np.isnan(chance), gone)


# ---- raw scores ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize("gamma", [0.0, 0.1])
def test_of_raw_scores_only_the_order_counts(constraint: str, gamma: float) -> None:
    """Points of any range give the rule of recalibrated probabilities: the same chances, within the slack."""
    data = frame(skew=1.0, groups=2)
    method = Ramp(constraint=constraint, gamma=gamma, slack=0.03)
    plain = table_of(data)
    points = data.set_column(2, "score", pa.array(np.exp(3 * np.asarray(data["score"])) * 100 - 7))
    raw = read_table(points, replace(plain.data_spec, score_scale="raw", thresholds=(200.0,)))

    rule = fit(method, raw)
    like = fit(replace(method, calibrate="isotonic"), plain)
    np.testing.assert_allclose(rule.predict(raw), like.predict(plain), rtol=0, atol=1e-12)
    assert gap(method, raw, rule.predict(raw)) <= 0.03 + 1e-9
    assert any("isotonic" in note for note in rule.trace.notes)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"calibrate": "none"}, "calibrate none"),
        ({"calibrate": "sigmoid"}, "calibrate sigmoid"),
        ({"rho": "mean"}, "rho mean"),
    ],
)
def test_what_needs_probabilities_is_refused_on_raw_scores(settings: dict[str, str], named: str) -> None:
    """The message names the parameter and the way out; without labels nothing makes a raw score a probability."""
    data_spec = replace(table_of(frame()).data_spec, score_scale="raw")
    with pytest.raises(UsageError, match=named):
        fit(Ramp(**settings), read_table(frame(), data_spec))
    unlabelled = replace(data_spec, columns=replace(data_spec.columns, label=None))
    with pytest.raises(DataError, match="`label`"):
        fit(Ramp(), read_table(frame(), unlabelled))
