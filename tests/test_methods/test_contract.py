"""The contract of every repair method: a new method is tested by existing.

A method leaves a law only by an entry in ``EXCEPTIONS``, with a reason.
"""

from __future__ import annotations

import importlib
import math
import pickle
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import fairfix.methods
import numpy as np
import pyarrow as pa
import pytest
from fairfix.auditing.audit import audit
from fairfix.auditing.results import Settings
from fairfix.cli.repair import method_options
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.scan import Scan, count_table, read_table
from fairfix.data.table import Table
from fairfix.errors import ArtifactError, DataError, UsageError
from fairfix.methods import available
from fairfix.methods.base import Repairer, expected_accuracy
from fairfix.methods.fair_regression import FairRegression
from fairfix.methods.logloss import LogLoss
from fairfix.methods.problem import RepairProblem
from fairfix.methods.ramp import Ramp
from fairfix.methods.robust import Robust
from fairfix.methods.sensei import Sensei
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.repaired import Repaired, at_predict_time
from fairfix.noise.description import Noise, NoiseTable
from fairfix.tasks.fit_and_evaluate import repair_table
from fairfix.tasks.repair import repair
from fairfix.tasks.repaired_rows import RepairedRows
from sklearn.tree import DecisionTreeClassifier

from tests.data import scored
from tests.test_methods.refusals import refusals

pytestmark = pytest.mark.filterwarnings(
    "ignore:no evidence that the repair helped. sensei learned from the score"
)
"""The laws hold of SenSeI of a score alone too, which has nothing to do and says so."""

plain_rows = scored
"""The rows of most laws, which a fixture may add columns to."""


def variant(name: str, method: type[Repairer], **usual: Any) -> type[Repairer]:
    """Return a method whose parameters, or class attributes, have other values by default."""
    own = dict(usual)
    for one in usual.keys() & method.domains().keys():
        domain = replace(method.domains()[one], default=usual[one])
        own[one] = field(default=usual[one], metadata={"domain": domain}, kw_only=True)
    kinds = {one: "Any" for one in own if one in method.domains()}
    return dataclass(frozen=True)(type(name, (method,), {"__annotations__": kinds, **own}))


SOFT = "membership:g0=in_g0,other=in_other"
TREE = DecisionTreeClassifier(max_depth=3)
EachColumn = variant("EachColumn", Ramp, constraint="dp[each]")
SoftGroups = variant("SoftGroups", Ramp, noise=SOFT)
SoftRates = variant("SoftRates", Ramp, noise=SOFT, constraint="equal_opportunity")
Numbers = variant("Numbers", Ramp, constraint="covariance[x]")
Blind = variant("Blind", LogLoss, group="unused")
WithinStrata = variant("WithinStrata", LogLoss, criterion="selection_rate.difference.within_strata")
OnSplines = variant("OnSplines", LogLoss, learner="linear(basis=splines)")
Quantile = variant("Quantile", FairRegression, loss="quantile")
VARIANTS = [
    variant("FourFifths", Ramp, constraint="dp.ratio>=0.8"),
    EachColumn,
    SoftGroups,
    SoftRates,
    Numbers,
    Blind,
    WithinStrata,
    OnSplines,
    variant("Directed", Sensei, solver="regularizer", similar="learned(by=pooled)", balance="labels"),
    variant("Surveyed", Robust, survey_confidence=0.9, bins=20),
    variant("InRadii", Robust, assume="radii"),
    variant("Minimax", Robust, constraint="minimax", assume="none"),
    Quantile,
    variant("OwnLearner", FairRegression, learner=TREE),
]
METHODS = [*available().values(), *VARIANTS]
"""Every registered method, and variants that differ from theirs in what they bound, minimise, look at or learn by."""

PROTECTED = ["race"]
"""Protected columns of the tables of the method at hand."""

STRATA: list[str] = []
"""Columns of strata of the tables of the method at hand."""

READ: dict[str, Any] = {"thresholds": (0.5,)}
"""How the tables of the method at hand are read."""

RATIO = "it holds a ratio, for which slack is refused"
NO_SLACK = "it has no slack"
TWO = "the law's table has one protected column"
UNRECORDED = "no group is recorded"

EXCEPTIONS = {
    ("Sensei", "slack"): (
        "it bounds a share of decisions that change under flips, which no audit of rows as they are can see"
    ),
    ("Directed", "slack"): "it bounds what the slack of Sensei does",
    ("Directed", "infinite numbers"): "an infinite rho of a linear model is a projection",
    ("Quantile", "classes"): "its labels are numbers",
    **{("FourFifths", law): RATIO for law in ("slack", "objective", "infinite slack")},
    **{("Minimax", law): NO_SLACK for law in ("slack", "objective", "infinite slack")},
    **{("EachColumn", law): TWO for law in ("one group", "empty group", "unseen group")},
    **{
        (name, law): UNRECORDED
        for name in ("SoftGroups", "SoftRates", "Numbers")
        for law in ("one group", "empty group", "unseen group")
    },
}
"""Class of a method and law that it leaves -> the reason."""


def table_of(data: pa.Table, *, weight: str | None = None) -> Table:
    """Return the validated table of a frame."""
    columns = ColumnRoles(tuple(PROTECTED), label="label", score="score", weight=weight, strata=tuple(STRATA))
    members = [name for name in data.column_names if name.startswith("in_")]
    return read_table(data, DataSpec(columns, **READ), columns=("x", *members))


def with_members(*given: Any, **named: Any) -> pa.Table:
    """Return the rows of most laws with a probability to be of the first group, and one to be of another."""
    data = plain_rows(*given, **named)
    part = np.random.default_rng(3).uniform(0.0, 0.4, data.num_rows)
    own = np.where(np.array(data["race"]) == "g0", 1.0 - part, part)
    return data.append_column("in_g0", pa.array(own)).append_column("in_other", pa.array(1.0 - own))


def fit(repairer: Repairer, table: Table, seed: int = 0) -> RepairedPredictor:
    """Fit with a fixed stream of random numbers."""
    return repairer.fit(problem_of(type(repairer), table), rng=np.random.default_rng(seed))


def problem_of(method: type[Repairer], table: Table) -> RepairProblem:
    """Return the problem of a table; a method that knows noise is told that there is none."""
    names = table.groups().names
    none = NoiseTable("table", names, names, 1e4 * np.eye(len(names)), "count")
    features = ("x",) if method is OnSplines else None
    return RepairProblem(table, features=features, noise=Noise(none) if "noise" in method.uses else None)


def fitted(method: type[Repairer], slack: float | None = None) -> tuple[Table, RepairedPredictor]:
    """Return the table of most laws and a fit to it, by default with the slack of the method."""
    return fitted_within(method, method().slack if slack is None else slack)


@cache
def fitted_within(method: type[Repairer], slack: float) -> tuple[Table, RepairedPredictor]:
    """Return the table and the fit, shared by the laws that change neither."""
    table = table_of(scored())
    return table, fit(method(slack=slack), table)


def law(name: str) -> Callable[[type[Repairer]], None]:
    """Return a function that skips a method with an exception to the law."""

    def check(method: type[Repairer]) -> None:
        if (method.__name__, name) in EXCEPTIONS:
            pytest.skip(f"{method.__name__} leaves this law: {EXCEPTIONS[method.__name__, name]}")

    return check


def gap_on_fit_rows(repairer: Repairer, table: Table, predictor: RepairedPredictor) -> float:
    """Return the audited value of the method's criterion on the rows of the fit, values expected over their draws."""
    if predictor.drawn(table).any():
        times, many = 512, len(table)
        draw = np.repeat((np.arange(times) + 0.5) / times, many)
        table = replace(table.take(np.tile(np.arange(many), times)), draw=lambda rows: draw[rows])
    repaired = RepairedRows(table, predictor).shipped.repaired
    if repairer.membership:
        z = np.stack([table.features[name].to_numpy() for name in repairer.membership.values()])
        z *= table.rows.label == 1 if type(repairer) is SoftRates else 1
        return float(np.ptp(z @ predictor.predict(table) / z.sum(axis=1)))
    if repairer.parsed_constraint.numbers:
        gaps = [np.cov(predictor.predict(table), z, bias=True)[0, 1] / z.std() for z in kept_numbers(table)]
        return float(np.abs(gaps).max())
    report = audit(repaired, repaired.data_spec, Settings(only={repairer.criterion}))
    return max(report.block(name).by_id[repairer.criterion].value for name in PROTECTED)


def kept_numbers(table: Table) -> Iterator[np.ndarray]:
    """Yield the protected number without its tails of one row in a hundred, which count as their ends."""
    x = table.features["x"].to_numpy()
    yield np.clip(x, np.sort(x)[math.ceil(x.size / 100) - 1], -np.sort(-x)[math.ceil(x.size / 100) - 1])


@pytest.fixture(params=METHODS, ids=[method.__name__ for method in METHODS])
def method(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[Repairer]:
    """Every registered method; some have other protected columns or none, or read labels as numbers."""
    found: type[Repairer] = request.param
    if found is EachColumn:
        monkeypatch.setattr(sys.modules[__name__], "PROTECTED", ["race", "job"])
    if found is WithinStrata:
        monkeypatch.setattr(sys.modules[__name__], "STRATA", ["job"])
    if found is Quantile:
        monkeypatch.setattr(sys.modules[__name__], "READ", {"task": "regression"})
    if found in (SoftGroups, SoftRates, Numbers):
        monkeypatch.setattr(sys.modules[__name__], "PROTECTED", [])
    if found in (SoftGroups, SoftRates):
        monkeypatch.setattr(sys.modules[__name__], "scored", with_members)
    return found


def test_same_seed_same_state(method: type[Repairer]) -> None:
    """Two fits with one seed leave the same settings and arrays, to the bit."""
    (settings, arrays), (again, same) = fitted(method)[1].state(), fit(method(), table_of(scored())).state()

    assert settings == again
    assert {n: a.tobytes() for n, a in arrays.items()} == {n: a.tobytes() for n, a in same.items()}


def test_a_repair_predicts_and_audits_no_rows_twice(
    method: type[Repairer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shipped rule is asked once for each set of rows, and no results are audited again for the same metrics."""
    asked: list[tuple[object, bytes]] = []
    audited: list[tuple[object, bytes]] = []

    def content(table: Table) -> bytes:
        rows = table.rows
        arrays = (rows.cell, rows.label, rows.score, rows.decision)
        known = [b"" if one is None else one.tobytes() for one in arrays]
        return pickle.dumps((known, table.features.to_pydict(), rows.cells))

    def watched(predict: Callable[[Any, Table], Any]) -> Callable[[Any, Table], Any]:
        def predicted(self: Any, table: Table) -> Any:
            asked.append((self, content(table)))
            return predict(self, table)

        return predicted

    def scanned(table: Table, *, exact: bool) -> Scan:
        settings = sys._getframe(1).f_locals["settings"]
        audited.append(((settings.confidence, str(settings.only), str(settings.metrics)), content(table)))
        return count_table(table, exact=exact)

    for kind in {base for one in RepairedPredictor.kinds.values() for base in one.__mro__}:
        if "predict" in vars(kind):
            monkeypatch.setattr(kind, "predict", watched(kind.predict))
    monkeypatch.setattr("fairfix.auditing.audit.count_table", scanned)
    table = table_of(scored())
    problem = problem_of(method, table)
    outcome = repair_table(table, method(), noise=problem.noise, features=problem.features)
    mine = [rows for rule, rows in asked if rule is outcome.predictor]

    assert 2 <= len(mine) == len(set(mine))
    assert 4 <= len(audited) == len(set(audited))


def test_the_problem_is_untouched(method: type[Repairer], capsys: pytest.CaptureFixture[str]) -> None:
    """A fit changes no array of its problem, and prints nothing."""
    table = table_of(scored())
    before = [np.copy(a) for a in (table.rows.score, table.rows.label, table.rows.cell)]
    fit(method(), table)

    for then, now in zip(before, (table.rows.score, table.rows.label, table.rows.cell), strict=True):
        np.testing.assert_array_equal(then, now)
    assert capsys.readouterr() == ("", "")


def test_row_order_is_irrelevant(method: type[Repairer]) -> None:
    """Shuffled rows give the same predictions."""
    law("row order")(method)
    table, plain = fitted(method)
    order = np.random.default_rng(1).permutation(len(table))

    shuffled = fit(method(), table.take(order))

    np.testing.assert_allclose(shuffled.predict(table), plain.predict(table), atol=1e-9)


def test_rows_under_new_draws_are_predicted_as_ever(method: type[Repairer]) -> None:
    """What is looked at once of rows that repeat gives what their prediction gives, to the bit."""
    table, predictor = fitted(method)
    rng = np.random.default_rng(4)
    own, draw = rng.integers(0, len(table), 300), rng.random(300)
    again = replace(table.take(own), draw=lambda rows: draw[rows])

    np.testing.assert_array_equal(predictor.redrawn(table)(again, own), predictor.predict(again))


def test_weight_two_is_the_row_twice(method: type[Repairer]) -> None:
    """Integer weights and repeated rows give the same predictions."""
    law("weights")(method)
    weighted = table_of(scored(), weight="weight")
    assert weighted.rows.weight is not None
    repeated = table_of(
        scored().take(pa.array(np.repeat(np.arange(len(weighted)), weighted.rows.weight.astype(int))))
    )

    np.testing.assert_allclose(
        fit(method(), weighted).predict(weighted), fit(method(), repeated).predict(weighted), atol=1e-9
    )


def test_weight_zero_is_the_row_removed(method: type[Repairer]) -> None:
    """Rows of weight zero have no part in the fit."""
    law("weights")(method)
    data = scored()
    zero = np.arange(data.num_rows) % 5 == 0
    weights = np.where(zero, 0.0, 1.0)
    marked = table_of(data.set_column(3, "weight", pa.array(weights)), weight="weight")
    removed = table_of(data.filter(pa.array(~zero)))

    np.testing.assert_allclose(
        fit(method(), marked).predict(removed), fit(method(), removed).predict(removed), atol=1e-12
    )


@pytest.mark.parametrize("method", [*available().values(), Blind], ids=lambda one: one.__name__)
def test_a_guarantee_holds_in_the_population_or_is_refused(method: type[Repairer]) -> None:
    """What is promised of other people is true of many fresh ones; a refusal says what to do instead."""
    learned: dict[str, Any] = {"features": ["x"]} if "features" in method.uses else {}
    learned, refusal = learned | ({"group": "unused"} if method is Blind else {}), ""
    try:
        result = repair(
            scored(5, 900), method=method.name, protected="race", slack=0.3, guarantee=0.99, **learned
        )
    except UsageError as refused:
        refusal = str(refused)
    if refusal:
        assert re.search("use|set|name|give|leave out|Repair|describe", refusal)
        return
    one, fresh = result.to_dict()["guarantee"], table_of(scored(6, 20_000))
    repaired = RepairedRows(fresh, result.repaired.predictor).shipped.repaired
    gaps = audit(repaired, repaired.data_spec).block("race").by_id

    assert one["holds"] == (one["bound"] <= one["slack"])
    assert method is not Blind or not result.repaired.predictor.needs_protected
    if one["way"] == "construction":
        assert "race" not in result.repaired.required
    else:
        assert gaps[one["criterion"]].value <= one["bound"] < 1


def test_infinite_slack_is_the_unconstrained_fit(method: type[Repairer]) -> None:
    """Beyond the gap that is there anyway, more slack changes nothing."""
    law("infinite slack")(method)
    (table, loose), (_, looser) = fitted(method, 1.0), fitted(method, np.inf)

    np.testing.assert_array_equal(loose.predict(table), looser.predict(table))


def test_nothing_but_a_slack_may_be_infinite(method: type[Repairer]) -> None:
    """A number without end is no number of a solver: it is refused by its name before anything is fitted."""
    law("infinite numbers")(method)
    for name, rule in method.domains().items():
        if not (name == "slack" or rule.choices or rule.text):
            with pytest.raises(UsageError, match=name):
                method(**{name: math.inf})


def test_the_gap_on_the_fit_rows_is_at_most_the_slack(method: type[Repairer]) -> None:
    """The audit finds the criterion within the slack, and tighter slack leaves no larger gap.

    Values that are drawn hold it in expectation, which 512 draws tell to one part in 512.
    """
    law("slack")(method)
    gaps = []
    for slack in (0.0, 0.01, 0.05, 0.2):
        table, predictor = fitted(method, slack)
        gaps.append(gap_on_fit_rows(method(slack=slack), table, predictor))
        assert gaps[-1] <= slack + (1 / 512 if predictor.drawn(table).any() else 1e-9)

    assert gaps == sorted(gaps)


def test_more_slack_costs_no_objective(method: type[Repairer]) -> None:
    """The method's objective does not grow with the slack."""
    law("objective")(method)
    found = [fitted(method, slack)[1].trace.objective for slack in (0.0, 0.05, 0.2, np.inf)]

    assert all(b <= a + 1e-12 for a, b in pairwise(found))


def test_predictions_are_probabilities_and_deterministic(method: type[Repairer]) -> None:
    """Predictions lie in [0, 1] and do not change from call to call."""
    law("classes")(method)
    table, predictor = fitted(method)
    chance = predictor.predict(table)

    assert chance.shape == (len(table),)
    assert ((chance >= 0) & (chance <= 1)).all()
    np.testing.assert_array_equal(chance, predictor.predict(table))


def test_saved_and_loaded_predicts_the_same_bits(method: type[Repairer], tmp_path: Path) -> None:
    """An artifact gives back the same predictions to the bit, from the same bytes each time."""
    table, predictor = fitted(method)
    data_spec = at_predict_time(table.data_spec, predictor)
    repaired = Repaired(
        method.name,
        method().parameters,
        predictor,
        data_spec,
        "error",
        {"x": "number"},
        b"key",
        {"kind": "column", "name": "score"},
        {},
        0,
    )
    hashes = {repaired.save(tmp_path / name) for name in ("a.fairfix", "b.fairfix")}
    loaded = Repaired.load(tmp_path / "a.fairfix")

    assert len(hashes) == 1
    assert loaded.predictor.predict(table).tobytes() == predictor.predict(table).tobytes()


def test_a_damaged_state_is_refused(method: type[Repairer]) -> None:
    """A setting or an array too many, too few, or of another kind: nothing is built from parts that do not fit."""
    predictor = fitted(method)[1]
    settings, arrays = predictor.state()
    damaged = [({**settings, "more": 1}, arrays), (settings, {**arrays, "more": np.zeros(1)})]
    damaged += [({one: own for one, own in settings.items() if one != name}, arrays) for name in settings]
    for name, array in arrays.items():
        damaged.append((settings, {one: own for one, own in arrays.items() if one != name}))
        damaged.append((settings, {**arrays, name: array.astype(np.float64) * np.nan}))
        damaged.append((settings, {**arrays, name: array.astype(np.float32)}))
    for state in damaged:
        with pytest.raises(ArtifactError):
            type(predictor).from_state(*state)


def answers(repaired: Repaired, row: dict[str, object], **ways: Any) -> object:
    """Return what a row gets as a dict, and as a list of one, which must be the same or the same error."""
    out: list[object] = []
    for data in (row, [row]):
        try:
            got = repaired.predict(data, **ways)
            out.append(got if data is row else got[0])
        except (DataError, UsageError) as error:
            out.append((type(error), str(error)))
    assert repr(out[0]) == repr(out[1])
    return out[0]


def test_a_single_row_is_a_row_of_the_batch(method: type[Repairer]) -> None:
    """A dict gets what its row gets among all, to the bit, without Arrow; what is odd gets the rules of all data."""
    table, predictor = fitted(method)
    data_spec = at_predict_time(table.data_spec, predictor)
    identity = {"race": "text", "job": "text", "score": "number", "x": "number"}
    parts = (method.name, method().parameters, predictor, data_spec, "error", identity, b"key")
    repaired = Repaired(*parts, {"kind": "column", "name": "score"}, {}, 0)
    rows = scored().drop_columns(["label", "weight"]).to_pylist()
    together = repaired.predict(rows)
    assert repaired._row_rule is not None

    assert [repaired._row_rule(row) for row in rows] == together
    numpy_row = {**rows[0], "score": np.float64(rows[0]["score"]), "race": np.str_(rows[0]["race"])}
    assert repaired._row_rule(numpy_row) == together[0]

    nothing = dict.fromkeys(rows[0])
    odd: list[dict[str, object]] = [
        {"race": "nobody"}, {"race": None}, {"race": 7}, {"race": b"g0"}, {"race": "\ud800"}, {"x": np.nan},
        {"score": None}, {"score": 1}, {"score": True}, {"score": "0.5"}, {"score": 1.5}, {"score": -np.inf},
        {"score": np.float32(0.25)}, {"x": 2**70}, {"x": "2"}, {"x": np.inf}, {"decision": 1}, nothing,
    ]  # fmt: skip
    for change in odd:
        answers(repaired, {**rows[0], **change})
        answers(repaired, {**rows[0], **change}, missing="abstain", unseen="abstain")
    for name in rows[0]:
        answers(repaired, {own: entry for own, entry in rows[0].items() if own != name})


def test_one_group_is_named(method: type[Repairer]) -> None:
    """A single group is an error that names it."""
    law("one group")(method)
    table = table_of(scored(groups=1))

    with pytest.raises(DataError, match="only the group 'g0'"):
        fit(method(), table)


def test_one_class_is_named(method: type[Repairer]) -> None:
    """A single class is an error that names it."""
    law("classes")(method)
    data = scored()
    ones = data.set_column(1, "label", pa.array(np.ones(data.num_rows, dtype=np.int64)))

    with pytest.raises(DataError, match="all labels are 1"):
        fit(method(), table_of(ones))


def test_an_empty_group_is_named(method: type[Repairer]) -> None:
    """A group without rows is an error that names it."""
    law("empty group")(method)
    problem = problem_of(method, table_of(scored()))
    vars(problem)["groups"] = replace(problem.groups, levels=(*problem.groups.levels, ("nobody",)))

    with pytest.raises(DataError, match="'nobody'"):
        method().fit(problem, rng=np.random.default_rng(0))


def test_unseen_groups_are_not_decided(method: type[Repairer]) -> None:
    """Rows of a group that the fit has not seen get NaN if the method needs the group, never 0."""
    law("unseen group")(method)
    predictor = fit(method(), table_of(scored(groups=2)))
    other = table_of(scored(groups=3))
    chance = predictor.predict(other)
    new = other.groups().codes == 2

    if method.name in {m.name for m in METHODS} and predictor.needs_protected:
        assert np.isnan(chance[new]).all()
    assert not np.isnan(chance[~new]).any()


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [(name, *each) for name in available() for each in refusals(name)],
    ids=str,
)
def test_parameters_that_do_not_go_together_are_named(name: str, given: dict[str, Any], told: str) -> None:
    """Before any data is read, with the rule or the remedy."""
    if given.get("learner") in ("lightgbm", "xgboost"):
        pytest.importorskip(given["learner"], reason="the extra of its name is not installed")
    with pytest.raises(UsageError, match=re.escape(told)):
        available()[name](**given)


def test_parameters_out_of_range_are_named(method: type[Repairer]) -> None:
    """Every numeric parameter refuses NaN, naming method and parameter."""
    for name, rule in method.domains().items():
        if not (rule.choices or rule.text):
            with pytest.raises(UsageError, match=f"{method.name}: {name}"):
                method(**{name: float("nan")})


def test_negative_slack_is_refused(method: type[Repairer]) -> None:
    """Slack is an allowed gap, which cannot be negative."""
    with pytest.raises(UsageError, match="slack must be at least 0"):
        method(slack=-0.1)


def test_the_class_says_its_objective_first() -> None:
    """A method's module opens with its objective as a formula."""
    for found in available().values():
        text = sys.modules[found.__module__].__doc__ or ""
        assert ".. math::" in text.split("=====")[0], found.name


# ---------------------------------------------------------------------- a sixth method

SIXTH = '''"""Coin: everybody gets the same chance.

.. math:: q_i = c
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta

from fairfix.data.codec import Setting
from fairfix.models.predictors import RepairedPredictor
from fairfix.data.domain import parameter
from fairfix.methods.base import Repairer


@dataclass(frozen=True)
class CoinPredictor(RepairedPredictor):
    """Gives one chance to all rows."""

    kind: ClassVar[str] = "coin"
    randomized: ClassVar[bool] = True
    chance: Annotated[float, Meta(ge=0, le=1), Setting()]

    def write(self, program):
        return program.constant(self.chance)


@dataclass(frozen=True)
class Coin(Repairer):
    """Everybody gets the same chance."""

    name: ClassVar[str] = "coin"
    summary: ClassVar[str] = "one chance for everybody"
    criterion: ClassVar[str] = "selection_rate.difference.between_groups"
    chance: float = parameter(0.25, "the chance that everybody gets", at_least=0.0, at_most=1.0)

    def _fit(self, problem, rng):
        return CoinPredictor(self.chance)
'''


@pytest.fixture
def sixth(tmp_path: Path) -> Iterator[Path]:
    """Drop a made-up method into the folder of methods, as a single file."""
    folder = tmp_path / "more"
    folder.mkdir()
    (folder / "coin.py").write_text(SIXTH)
    fairfix.methods.__path__.append(str(folder))
    importlib.invalidate_caches()
    method_options.cache_clear()
    try:
        yield tmp_path
    finally:
        method_options.cache_clear()
        fairfix.methods.__path__.remove(str(folder))
        sys.modules.pop("fairfix.methods.coin", None)
        RepairedPredictor.kinds.pop("coin", None)
        if hasattr(fairfix.methods, "coin"):
            delattr(fairfix.methods, "coin")


def test_a_sixth_method_is_found_everywhere(sixth: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One new file: the method is in --method, its option in --help, its kind in the artifact, and it passes here."""
    import pyarrow.parquet as pq
    from fairfix.cli import run

    coin = available()["coin"]
    pq.write_table(scored(), sixth / "data.parquet")
    artifact = str(sixth / "coin.fairfix")

    assert run(["repair", "--help"]) == 0
    assert "coin one chance for everybody" in " ".join(capsys.readouterr().out.split())
    assert run(["repair", "--method", "coin", "--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "--chance NUMBER The chance that everybody gets. [default: 0.25]" in told
    arguments = ["repair", str(sixth / "data.parquet"), "--protected", "race", "--method", "coin"]
    assert run([*arguments, "--chance", "0.5", "-o", artifact, "--config", "none"]) == 0
    assert run(f"predict {artifact} {sixth}/data.parquet -o {sixth}/out.csv --config none".split()) == 0
    assert Repaired.load(artifact).parameters == {"slack": 0.0, "chance": 0.5}
    test_same_seed_same_state(coin)
    test_the_gap_on_the_fit_rows_is_at_most_the_slack(coin)
    test_saved_and_loaded_predicts_the_same_bits(coin, sixth)


def test_a_parameter_of_another_method_is_refused(sixth: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An option that the chosen method has not is an error, not silence."""
    import pyarrow.parquet as pq
    from fairfix.cli import run

    pq.write_table(scored(), sixth / "data.parquet")
    status = run(
        [
            "repair",
            str(sixth / "data.parquet"),
            *shlex.split("--protected race --method ramp --chance 0.5 --config none"),
        ]
    )

    assert status == 2
    assert "--chance is not an option of ramp" in capsys.readouterr().err


def test_expected_accuracy_is_the_mean_over_the_draws() -> None:
    """The accuracy of a randomised rule is q y + (1 - q)(1 - y), weighted."""
    table = table_of(scored(), weight="weight")
    chance = np.random.default_rng(2).random(len(table))
    assert table.rows.label is not None
    right = np.where(table.rows.label == 1, chance, 1 - chance)

    assert expected_accuracy(table, chance) == pytest.approx(
        np.average(right, weights=table.rows.weight), abs=1e-15
    )
