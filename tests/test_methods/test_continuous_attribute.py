"""The ramp of protected numbers: columns such as age and income, of which nobody is a group."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import fairfix
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from fairfix.cli import run
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.numeric_groups import quantile_edges, shortened, written
from fairfix.data.scales import scale_of
from fairfix.data.scan import read_table
from fairfix.errors import ColumnError, DataError, UsageError
from fairfix.methods.problem import RepairProblem
from fairfix.methods.ramp import Ramp
from fairfix.report.repairs import _between_fifths
from fairfix.schema.common import Estimate
from fairfix.schema.repair import EvaluationRow

from tests.results import texts_of
from tests.test_methods.refusals import refusals

BETWEEN = "selection_rate.difference.between_groups [{}]"
GIVEN = {"method": "ramp", "constraint": "covariance[age]", "id": "id"}


def frame(seed: int = 0, rows: int = 1500) -> pd.DataFrame:
    """Return scored people with an age and a heavy-tailed income, both of which the score rises with."""
    rng = np.random.default_rng(seed)
    age, income = rng.integers(18, 90, rows), rng.lognormal(10, 1.2, rows)
    logit = 0.03 * (age - 50) + 0.4 * (np.log(income) - 10) + rng.normal(0, 1, rows)
    score = 1 / (1 + np.exp(-logit))
    return pd.DataFrame(
        {
            "id": np.arange(rows),
            "score": score,
            "label": (rng.random(rows) < score).astype(int),
            "age": age,
            "income": income,
        }
    )


def ends(x: np.ndarray) -> tuple[float, float]:
    """Return the ends that leave less than one number in a hundred beyond each, written down by itself."""
    ordered = np.sort(x)
    at = max(k for k in range(x.size) if 100 * k < x.size)
    return float(ordered[at]), float(ordered[-1 - at])


def per_deviation(chance: Any, x: np.ndarray, of: np.ndarray, weight: Any = None) -> float:
    """Return the covariance by the standard deviation of ``of``, the numbers that the ends are of."""
    low, high = ends(of)
    z = np.clip(x, low, high)
    both = np.cov(np.asarray(chance), z, bias=True, aweights=weight)
    return float(both[0, 1] / np.clip(of, low, high).std())


def fit(repairer: Ramp, data: pd.DataFrame, *protected: str, weight: str | None = None) -> Any:
    """Return the rows as a table, and the predictor fitted to them."""
    columns = ColumnRoles(protected, label="label", score="score", weight=weight)
    table = read_table(data, DataSpec(columns, thresholds=(0.5,)), columns=("age", "income"))
    return table, repairer.fit(RepairProblem(table), rng=np.random.default_rng(0))


@pytest.mark.parametrize("slack", [0.0, 0.03, np.inf])
@pytest.mark.parametrize("gamma", [1e-4, 0.05, 0.5])
def test_the_slack_is_held_with_weights_at_every_width(gamma: float, slack: float) -> None:
    """Covariance and deviation are those of the weights; whole weights are repeated rows."""
    data = frame(rows=400)
    data["weight"] = np.random.default_rng(1).integers(1, 4, len(data)).astype(float)
    table, predictor = fit(
        Ramp(constraint="covariance[age], covariance[income]", slack=slack, gamma=gamma),
        data,
        weight="weight",
    )
    repeated = data.loc[np.repeat(data.index, data["weight"].astype(int))]
    chance = predictor.predict(table)[repeated.index]

    assert predictor.trace.converged
    for column in ("age", "income"):
        x = repeated[column].to_numpy(float)
        assert abs(per_deviation(chance, x, x)) <= min(slack, 1.0) + 1e-9


@pytest.mark.parametrize(
    "change",
    [lambda x: 365.25 * x, lambda x: x + 1e6, lambda x: -x, lambda x: 1e-9 * x - 3.0, lambda x: x * 1e300],
    ids=["in days", "shifted", "mirrored", "tiny", "huge"],
)
@pytest.mark.parametrize("column", ["age", "income"])
def test_units_and_zero_of_a_number_do_not_matter(column: str, change: Any) -> None:
    """The rule is the same in days and years, dollars and cents, and from any origin."""
    data = frame(rows=500)
    table, plain = fit(Ramp(constraint="covariance[age], covariance[income]", slack=0.01), data)
    other, same = fit(
        Ramp(constraint="covariance[age], covariance[income]", slack=0.01),
        data.assign(**{column: change(data[column])}),
    )

    np.testing.assert_allclose(same.predict(other), plain.predict(table), atol=1e-6)


@pytest.mark.parametrize("slack", [0.0, 0.04])
def test_a_number_of_two_values_is_two_groups(slack: float) -> None:
    """The covariance of two groups, by the standard deviation of membership, is what is bounded."""
    data = frame()
    data["age"] = (data["age"] > 60) * 7.0 + 1.0
    data["group"] = np.where(data["age"] > 1, "old", "young")
    share = (data["age"] > 1).mean()
    table, number = fit(Ramp(constraint="covariance[age]", slack=slack), data)
    recorded, groups = fit(
        Ramp(constraint="covariance", slack=slack * np.sqrt(share * (1 - share))), data, "group"
    )

    np.testing.assert_allclose(number.predict(table), groups.predict(recorded), atol=1e-8)
    assert number.trace.objective == pytest.approx(groups.trace.objective, abs=1e-10)


def test_a_few_wild_numbers_neither_void_the_bound_nor_move_thresholds() -> None:
    """Five of a thousand incomes of a billion leave the rule of the others; a new one counts as the greatest."""
    data = frame(rows=1000)
    wild = data.copy()
    wild.loc[:4, "income"] = [1e9, 1e12, 1e30, -1e9, 1e200]
    table, plain = fit(Ramp(constraint="covariance[income]"), data)
    _, made = fit(Ramp(constraint="covariance[income]"), wild)
    many = plain.predict(table)

    assert np.abs(made.predict(table) - many).mean() < 0.02
    low, high = ends(data["income"].to_numpy())
    kept = data["income"].to_numpy()
    assert np.abs(per_deviation(many, kept, kept)) < 1e-9
    far = read_table(
        data.head(4).assign(income=[high, 1e300, low, -1e300], score=0.6),
        table.data_spec,
        columns=("age", "income"),
    )
    first, second, third, fourth = plain.predict(far)
    assert first == second
    assert third == fourth


def test_ends_leave_less_than_one_row_in_a_hundred_beyond_each() -> None:
    """By weight, also where numbers tie; a column that is nearly one number keeps its whole range."""
    rng = np.random.default_rng(0)
    for rows in (1, 99, 100, 101, 1000):
        data = frame(rows=max(rows, 2)).assign(age=rng.integers(0, 30, max(rows, 2)))
        table = read_table(
            data, DataSpec(ColumnRoles((), score="score"), thresholds=(0.5,)), columns=("age",)
        )
        assert (scale_of(table, "age").low, scale_of(table, "age").high) == ends(data["age"].to_numpy(float))
    data = frame(rows=1000).assign(age=0.0)
    data.loc[3, "age"] = 5.0
    table = read_table(data, DataSpec(ColumnRoles((), score="score"), thresholds=(0.5,)), columns=("age",))
    scale = scale_of(table, "age")
    assert (scale.low, scale.high) == (0.0, 5.0)
    assert scale.mean == pytest.approx(0.005)
    assert scale.deviation == pytest.approx(data["age"].std(ddof=0))


def test_columns_that_tell_the_same_are_solved() -> None:
    """Age in years and in days are one constraint, asked for twice."""
    data = frame(rows=600)
    table, once = fit(Ramp(constraint="covariance[age]", slack=0.01), data)
    other, twice = fit(
        Ramp(constraint="covariance[age], covariance[income]", slack=0.01),
        data.assign(income=365.25 * data["age"]),
    )

    assert twice.trace.converged
    np.testing.assert_allclose(twice.predict(other), once.predict(table), atol=1e-6)


def test_a_missing_number_at_predict_time_follows_the_policy() -> None:
    """An error by default, which names the column; else the base decision, or none."""
    data = frame(rows=400)
    made = fairfix.repair(data, **GIVEN).repaired
    new = data.head(5).assign(age=[40.0, np.nan, 50.0, np.inf, -np.inf])
    with pytest.raises(
        DataError, match=r"column 'age' is missing in 1 of the 5 rows from row 1 .*unseen=original"
    ):
        made.predict(new)
    with pytest.raises(DataError, match="'age' is missing"):
        made.predict({**new.iloc[1].to_dict(), "age": None})
    abstained = made.predict(new, unseen="abstain")
    assert abstained["p_positive"].isna().tolist() == [False, True, False, False, False]
    based = made.predict(new, unseen="original")
    assert based["p_positive"][1] == float(data["score"][1] >= 0.5)
    assert made.predict({**new.iloc[1].to_dict()}, unseen="original")["p_positive"] == based["p_positive"][1]
    with pytest.raises(ColumnError, match="age"):
        made.predict(new.assign(age="old"))


@pytest.mark.parametrize(("given", "told"), refusals("numbers"), ids=str)
def test_what_does_not_go_with_numbers_is_refused(given: dict, told: str) -> None:
    """Each by its name, with what to do."""
    data = frame(rows=200).assign(name="x", same=3, gaps=1.0, endless=2.0, negative=-0.0)
    data.loc[::2, "name"] = "y"
    data.loc[:149, "gaps"] = np.arange(150.0)
    data.loc[150:151, "gaps"] = np.nan
    data.loc[7, "endless"] = np.inf
    if "endless" in str(given):  # wherever the split puts it
        given = {**given, "holdout": 0.01}
    if "unlabelled" in given:
        given = {"unlabelled": frame()}
    with pytest.raises((UsageError, ColumnError, DataError), match=re.escape(told)):
        fairfix.repair(data, **{**GIVEN, **given})


def test_rows_without_a_number_are_dropped_where_that_is_asked() -> None:
    """Every row is accounted for, and the rest are repaired as if the others had not been there."""
    data = frame(rows=300).astype({"age": float})
    data.loc[[3, 50], "age"], data.loc[[50, 77, 78], "income"] = np.nan, np.nan
    given = {**GIVEN, "constraint": ["covariance[age]", "covariance[income]"], "missing": "drop"}
    result = fairfix.repair(data, **given)

    told = result.to_dict()["data"]["rows"]
    assert told.pop("excluded") == [
        {"reason": f"missing number ({one})", "rows": 2} for one in ("age", "income")
    ]
    assert told == {"read": 300, "used": 296}
    left = fairfix.repair(data.dropna(), **given).repaired.predictor
    np.testing.assert_array_equal(result.repaired.predictor.prices, left.prices)


def test_a_fit_in_python_names_a_missing_number() -> None:
    """Who fits a problem without a request is told as well."""
    with pytest.raises(DataError, match="column 'age' is missing in 1 of 300 rows to fit on"):
        fit(
            Ramp(constraint="covariance[age]"),
            frame(rows=300).assign(age=lambda rows: rows["age"].where(rows["id"] != 4)),
        )


def test_counts_hold_no_numbers(tmp_path: Path) -> None:
    """A repair from counts says what it lacks."""
    data = frame(rows=200).assign(group=lambda rows: np.where(rows["age"] > 50, "x", "y"))
    fairfix.count(data, protected="group").save(tmp_path / "a.counts")
    with pytest.raises(UsageError, match="counts have no values of age; repair from `data`"):
        fairfix.repair(str(tmp_path / "a.counts"), method="ramp", constraint="covariance[age]")


def test_the_note_tells_by_what_ends_are_cut_and_how_many_rows_lie_beyond() -> None:
    """Many light rows may lie beyond ends that leave little weight there."""
    data = frame(rows=400).assign(w=1.0)
    data.loc[:99, "age"], data.loc[:99, "w"] = np.arange(900, 1000), 1e-4
    (plain,) = notes_of(fairfix.repair(data.drop(columns="w"), **GIVEN))
    (light,) = notes_of(fairfix.repair(data, weight="w", **GIVEN))

    assert "less than one in a hundred of the rows used to fit at either end" in plain
    assert "less than one in a hundred of the weight of the rows used to fit at either end" in light
    assert int(re.findall(r"\((\d+) of 280 rows\)", light)[0]) > 28
    assert int(re.findall(r"\((\d+) of 280 rows\)", plain)[0]) < 6


def notes_of(result: Any) -> list[str]:
    """Return what is said of how numbers count."""
    return [
        note for note in texts_of(result.to_dict(), "note") if "is measured in standard deviations" in note
    ]


def test_a_column_with_a_comma_in_its_name_is_named_in_quotes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As docs/cli.md says of all columns; in Python it is one of a list."""
    data = frame(rows=300).rename(columns={"age": "age, years"})
    data.to_csv(tmp_path / "d.csv", index=False)
    line = f"repair {tmp_path / 'd.csv'} --output {tmp_path / 'a.fairfix'} --method ramp --id id --format json".split()
    assert run([*line, "--constraint", 'covariance["age, years"], covariance[income]']) == 0
    shell = json.loads(capsys.readouterr().out)
    python = fairfix.repair(
        data, **{**GIVEN, "constraint": ['covariance["age, years"]', "covariance[income]"]}
    )

    assert shell["parameters"]["constraint"] == 'covariance["age, years"], covariance[income]'
    assert python.repaired.predictor.columns == ("age, years", "income")


def test_what_cannot_be_told_of_fifths_is_left_out() -> None:
    """A held-out part too small for two groups with rows has no largest gap, and the answer says nothing of one."""
    told = list(_between_fifths("age", [table_row(0.2)]))
    assert "differ by up to 20.0 points" in told[0]
    assert not list(_between_fifths("age", [table_row(None)]))


def table_row(value: float | None) -> EvaluationRow:
    """Return a row of the evaluation with the largest gap between fifths of age."""
    one = Estimate(value=value, low=value, high=value, reason="" if value is not None else "no groups")
    return EvaluationRow(name="dp", id=BETWEEN.split()[0], attribute="age", before=one, after=one)


@pytest.mark.parametrize("square", [3.4, 7.2, 1e9])
def test_edges_of_fifths_have_no_more_digits_than_they_need(square: float) -> None:
    """They part the same rows as the numbers themselves do."""
    x = np.round(np.linspace(0.1, square, 300), 1) ** 2
    edges = quantile_edges("x", "quintiles", [x], pa.float64())
    short = [shortened(edge, float(x[x < edge].max())) for edge in edges]

    assert [int((x < edge).sum()) for edge in edges] == [int((x < edge).sum()) for edge in short]
    assert all(len(written(one)) <= len(written(edge)) for one, edge in zip(short, edges, strict=True))
    assert shortened(11.559999999999999, 11.4) == 11.5
