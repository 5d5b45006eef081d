"""Groups known by probabilities of membership: bounds, what they cover, and what is refused."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from fairfix.auditing.checks import Check
from fairfix.auditing.results import Settings
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.files import open_source
from fairfix.data.noise_spec import NoiseSpec
from fairfix.errors import DataError, FairfixError, UsageError
from fairfix.noise.bounds import table_bounds
from fairfix.noise.membership_audit import (
    Limits,
    MembershipGroups,
    audit_membership,
    merged,
    read_members,
)
from fairfix.noise.membership_moments import Sample, worst_means
from fairfix.noise.rates import RATIOS, Ratio, flipped
from fairfix.schema import json_schema
from scipy import stats

from tests.conftest import Call
from tests.results import audit_dict
from tests.strategies import examples
from tests.test_noise.programs import CELLS, Joint

pytestmark = pytest.mark.usefixtures("away")
READING = DataSpec(ColumnRoles((), label="label", prediction="yhat"))
NAMES = {"a": "p_a", "b": "p_b", "c": "p_c"}


# ---------------------------------------------------------------------- generated data


def people(vectors: int = 6, each: int = 300, groups: int = 3, seed: int = 0) -> dict[str, Any]:
    """Return rows with probabilities in tenths, of which outcomes depend; in each vector shares are as it says."""
    rng = np.random.default_rng(seed)
    parts = rng.multinomial(20, np.full(groups, 1 / groups), vectors) / 20
    z = np.repeat(parts, each, axis=0)
    label = (rng.random(len(z)) < 0.3 + 0.4 * z[:, 0]).astype(np.int64)
    yhat = (rng.random(len(z)) < 0.2 + 0.3 * label + 0.3 * z[:, 1]).astype(np.int64)
    return {"z": z, "label": label, "yhat": yhat, "vector": np.repeat(np.arange(vectors), each)}


def frame(data: dict[str, Any], **more: Any) -> pa.Table:
    """Return the rows as a table."""
    chances = {f"p_{'abcd'[j]}": data["z"][:, j] for j in range(data["z"].shape[1])}
    return pa.table({**chances, "label": data["label"], "yhat": data["yhat"], **more})


def groups_of(data: dict[str, Any], **settings: Any) -> MembershipGroups:
    """Return what is known of the true groups."""
    names = dict(list(NAMES.items())[: data["z"].shape[1]])
    members = read_members(open_source(frame(data)), READING, names)
    return MembershipGroups(members, **settings)


def audited(
    data: pa.Table, *checks: str, data_spec: DataSpec = READING, **said: Any
) -> tuple[dict[str, Any], Any]:
    """Return the JSON form of an audit, which fits the schema, and the report."""
    names = {group: column for group, column in NAMES.items() if column in data.column_names}
    settings = Settings(checks=tuple(Check.parse(text) for text in checks))
    report = audit_membership(open_source(data), data_spec, names, settings, **said)
    result = audit_dict(report)
    schema = json_schema("audit")
    jsonschema.Draft202012Validator(schema).validate(result)
    return result, report


# ---------------------------------------------------------------------- exactness


def ends(sample: Sample, shares: Any, ratio: Ratio) -> tuple[Any, Any]:
    """Return the estimates of the lowest and the highest rates, with a guess of the shares of cells."""
    return 1 - worst_means(sample, shares, flipped(ratio)).rate, worst_means(sample, shares, ratio).rate


def shares_of(cells: Any) -> Any:
    """Return the shares of the cells of each vector."""
    return cells / cells.sum(1, keepdims=True)


@pytest.mark.parametrize("seed", range(examples(8)))
def test_the_worst_case_is_that_of_a_linear_program(seed: int) -> None:
    """Every group and rate, both ends, if the shares of cells are those of the rows; another guess is no narrower."""
    found = groups_of(people(vectors=4, each=120, groups=2 + seed % 2, seed=seed))
    sample = found.evidence.all
    cells = sample.weight / sample.weight.sum()
    joint = sample.vectors.T * cells.sum(1)
    rng = np.random.default_rng(seed)
    for name, ratio in found.data.metrics.items():
        low, high = ends(sample, shares_of(cells), ratio)
        a, rows = (np.array(mask, dtype=float)[CELLS] for mask in (ratio.a, ratio.rows))
        for j in range(len(found.true)):
            ends_of_all = Joint(cells[:, CELLS], joint).range_of(j, a, rows)
            np.testing.assert_allclose((low[j], high[j]), ends_of_all, atol=1e-7)
        wide = ends(sample, rng.dirichlet(np.ones(4), len(cells)), ratio)
        assert (wide[0] <= low + 1e-12).all(), name
        assert (wide[1] >= high - 1e-12).all(), name


def test_a_coarser_guess_is_no_narrower_and_no_wider_than_a_table() -> None:
    """Shares of larger bins widen bounds; the table of the likeliest group has the coarsest bins."""
    data = people(vectors=12, each=120, seed=3)
    sample = groups_of(data).evidence.all
    fine = sample.weight
    into = merged(sample.vectors, np.full(len(fine), 120), least=400)
    coarse = np.stack([np.bincount(into, part) for part in fine.T], -1)[into]
    assert into.max() + 1 < len(fine)
    likeliest = data["z"].argmax(1)
    y, d = data["label"] == 1, data["yhat"] == 1
    n = len(y)
    cells = np.array(
        [[(c & (likeliest == k)).sum() for c in (y & d, y & ~d, ~y & d, ~y & ~d)] for k in range(3)]
    )
    joint = np.array([[data["z"][likeliest == k, j].sum() for k in range(3)] for j in range(3)])
    for ratio in RATIOS.values():
        low, high = ends(sample, shares_of(fine), ratio)
        for wide in (ends(sample, shares_of(coarse), ratio), table_bounds(cells / n, joint / n, ratio)):
            assert (wide[0] <= low + 1e-9).all()
            assert (wide[1] >= high - 1e-9).all()


def test_limits_are_of_rows_on_which_nothing_was_chosen() -> None:
    """The parts share no row, and are the same whatever the order of the rows; another seed makes others."""
    data = people()
    found = groups_of(data)
    assert (found.evidence.searched, found.evidence.held) == (450, 1350)
    assert found.evidence.judged.weight.sum() == 1350
    order = np.random.default_rng(0).permutation(1800)
    again = groups_of({name: values[order] for name, values in data.items()})
    assert (again.evidence.judged.weight == found.evidence.judged.weight).all()
    assert (groups_of(data, seed=1).evidence.judged.weight != found.evidence.judged.weight).any()


@dataclass(frozen=True)
class Normal:
    """Highest rates of groups whose upper limits are those of normal distributions."""

    rate: np.ndarray

    def upper(self, level: float) -> np.ndarray:
        """Return the limits that are missed with a chance of ``level``."""
        return self.rate + 0.01 * stats.norm.isf(level)


def test_limits_of_a_comparison_are_shared_by_its_pairs() -> None:
    """Both rates of a pair share its level; the end that any of the six pairs may set is shared by them all besides.

    Rates are known but for sampling error here, so that a limit of a difference adds those of two rates.
    """
    rates = np.array([0.2, 0.4, 0.7])
    high, low = Normal(rates), Normal(1.0 - rates)
    known = {"selection_rate": (rates, rates)}
    limits = Limits(known, {}, 0.05, {"selection_rate": (high, low)})
    near, far = (2 * 0.01 * stats.norm.isf(0.025 / share / 2) for share in (6, 1))
    single, of_three = (0.01 * stats.norm.isf(0.025 / share) for share in (1, 3))

    found = limits.of_comparison("difference", ["selection_rate"])
    assert found.outer_low == pytest.approx(0.5 - near)
    assert found.outer_high == pytest.approx(0.5 + far)
    found = limits.of_comparison("min", ["selection_rate"])
    assert found.outer_low == pytest.approx(0.2 - single)
    assert found.outer_high == pytest.approx(0.2 + of_three)
    for rate, bound in zip(rates, limits.of_groups("selection_rate"), strict=True):
        assert (bound.outer_low, bound.outer_high) == pytest.approx((rate - single, rate + single))


def test_weighted_rates_are_of_rows_not_of_bins() -> None:
    """Merging does not change them; by hand, with weights of rows."""
    rng = np.random.default_rng(5)
    z = rng.dirichlet([1.0, 1.0], 900)
    data = {"z": z, "label": (rng.random(900) < 0.5) * 1, "yhat": (rng.random(900) < z[:, 0]) * 1}
    weight = rng.integers(1, 4, 900).astype(float)
    table = frame(data, w=weight)
    data_spec = DataSpec(ColumnRoles((), label="label", prediction="yhat", weight="w"))
    result, _ = audited(table, data_spec=data_spec)

    by_hand = (z * weight[:, None] * data["yhat"][:, None]).sum(0) / (z * weight[:, None]).sum(0)
    for j, group in enumerate(result["noise"]["groups"]):
        assert group["figures"][0]["weighted"] == pytest.approx(by_hand[j], abs=1e-9)
    told = result["noise"]["membership"]
    assert (told["vectors"], told["smallest_bin"] >= 50, told["bins"] > 1) == (900, True, True)
    assert (told["searched"], told["held"]) == (225, 675)
    assert any("limits come from the other 675 rows" in note for note in result["noise"]["notes"])


def test_bins_have_rows_enough_and_are_few() -> None:
    """Vectors with enough rows stay apart; rare ones are merged; beyond the most, bins are larger."""
    chances = np.array([[0.1, 0.9], [0.2, 0.8], [0.3, 0.7], [0.9, 0.1]])
    assert sorted(merged(chances, np.array([100, 100, 100, 100]))) == [0, 1, 2, 3]
    rare = merged(chances, np.array([5, 100, 100, 100]))
    assert rare[0] == rare[1]
    assert len(set(rare)) == 3
    assert merged(chances, np.array([5, 5, 5, 5])).tolist() == [0, 0, 0, 0]
    z = np.random.default_rng(0).dirichlet([1, 1, 1], 5000)
    into = merged(z, np.ones(5000, dtype=np.int64), most=20)
    assert np.bincount(into).min() >= 250
    assert into.max() + 1 <= 20


def test_one_row_per_vector_is_no_certainty() -> None:
    """With a vector of its own for each row, the worst case does not shrink to the weighted rate."""
    rng = np.random.default_rng(2)
    p = rng.uniform(0.3, 0.7, 2000)
    data = {"z": np.stack([p, 1 - p], 1), "label": rng.integers(0, 2, 2000), "yhat": rng.integers(0, 2, 2000)}
    low, high = groups_of(data).bounds["N1"].rates["selection_rate"]
    assert (high - low > 0.7).all()


@pytest.mark.parametrize("ratio", [RATIOS["selection_rate"], RATIOS["positive_predictive_value"]])
def test_a_limit_is_where_the_mean_is_not_yet_below_zero(ratio: Ratio) -> None:
    """By hand: the imagined row, the Student quantile and the larger variance, of the mean of (1 - t) h - t g."""
    rng = np.random.default_rng(1)
    z = rng.dirichlet([2.0, 3.0], 40)
    cell, weight = rng.integers(0, 4, 40), rng.uniform(0.5, 2, 40)
    data = np.eye(4)[cell] * weight[:, None]
    sample = Sample(z, data, data * weight[:, None])
    guess = rng.dirichlet(np.ones(4), 40)
    found = worst_means(sample, guess, ratio).upper(0.03)
    in_a, in_b = np.array(ratio.a)[cell], np.array(ratio.b)[cell]
    for j in range(2):
        seen = guess @ np.array(ratio.a) < z[:, j]
        forced = guess @ np.array(ratio.b) > 1 - z[:, j]
        h = np.append(np.where(seen, in_a, z[:, j]), 1.0)
        g = np.where(forced, z[:, j] - 1 + in_b, 0.0)
        g = np.append(g, np.where(forced, z[:, j] - 1, 0.0).min())
        w = np.append(weight, (weight**2).sum() / weight.sum())
        size = w.sum() ** 2 / (w**2).sum()

        def limit(rate: float, h: Any = h, g: Any = g, w: Any = w, size: float = size) -> float:
            x = (1 - rate) * h - rate * g
            mean = (w @ x) / w.sum()
            own = (w**2 @ (x - mean) ** 2) / w.sum() ** 2
            alike = (w @ (x - mean) ** 2) / w.sum() / size
            return mean + stats.t.isf(0.03, size - 1) * np.sqrt(max(own, alike))

        assert limit(1.0) < 0 or found[j] == 1.0
        assert found[j] == 1.0 or limit(found[j]) == pytest.approx(0, abs=1e-9)


# ---------------------------------------------------------------------- checks


def test_checks_of_true_groups() -> None:
    """Comparisons and single groups, under what was stated and under one assumption."""
    z = np.repeat((np.eye(3) * 57 + 1) / 60, 500, axis=0)  # nearly certain
    data = frame({"z": z, "label": np.arange(1500) % 2, "yhat": np.arange(1500) % 7 // 3 % 2})
    checks = [
        "dp.min.true_groups<=0.99",
        "dp.true_groups[membership=a]<=0.95",
        "true_positive_rate.under_n1[membership=b]>=0.01",
        "dp.under_n4[membership=a]>=0.1",
        "eo.difference.under_n1<=0.001",
    ]
    _, report = audited(data, *checks)
    verdicts = {result.check: result.verdict for result in report.checks}
    assert verdicts["dp.min.true_groups<=0.99"] == "pass"
    assert verdicts["dp.true_groups[membership=a]<=0.95"] == "pass"
    assert verdicts["dp.under_n4[membership=a]>=0.1"] == "undecided"
    assert verdicts["eo.difference.under_n1<=0.001"] == "undecided"
    assert "`assume=independent`" in next(r.reason for r in report.checks if "under_n4" in r.id)

    result, report = audited(data, *checks, independent=True)
    assert result["noise"]["rests_on"] == "N4"
    verdicts = {found.check: found.verdict for found in report.checks}
    assert verdicts["dp.under_n4[membership=a]>=0.1"] == "pass"
    one = next(r for r in report.checks if r.id == "selection_rate.true_groups[membership=a]")
    weighted = result["noise"]["groups"][0]["figures"][0]["weighted"]
    assert one.value == pytest.approx(weighted)
    assert one.low < one.value < one.high
    assert one.groups == ("a",)


def test_plain_checks_are_of_protected_columns() -> None:
    """Beside a protected column each check goes to the attribute that it can be about."""
    data = frame(people(), sex=["f", "m"] * 900)
    data_spec = DataSpec(ColumnRoles(("sex",), label="label", prediction="yhat"))
    _, report = audited(data, "dp.difference<=0.5", "dp.min.true_groups<=0.99", data_spec=data_spec)
    assert [(r.attribute, r.verdict) for r in report.checks] == [("sex", "pass"), ("membership", "pass")]


@pytest.mark.parametrize(
    ("check", "said"),
    [
        ("dp.difference<=0.1", "known by probabilities alone"),
        ("dp[membership=a]>0.1", "known by probabilities alone"),
        ("dp.true_groups[membership=z]>0.1", "no true group 'z'; it has a, b, c"),
        ("dp.difference.true_groups[race]<=0.1", "'race' is not audited"),
    ],
)
def test_checks_that_make_no_sense(check: str, said: str) -> None:
    """The message says what to write."""
    with pytest.raises(UsageError, match=said):
        audited(frame(people()), check)


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (["a"], "two or more"),
        (["a", "a=b"], "the group 'a' twice"),
        (["a", "b=a"], "the column 'a' twice"),
        (["a", "=b"], "`noise=membership:=b`: write COLUMN"),
        (["a", "b="], "`noise=membership:b=`: write COLUMN"),
    ],
)
def test_columns_of_membership_are_read(parts: list[str], said: str) -> None:
    """A column per group, by its own name or another."""
    for entries in (
        ["membership:a,B = c"],
        ["membership:a", "membership:B=c"],
        [{"membership": ["a", "B=c"]}],
    ):
        assert NoiseSpec.parse(entries).membership == {"a": "a", "B": "c"}
    assert NoiseSpec.parse([{"membership": {"B": "c", "a": "a"}}]).membership == {"a": "a", "B": "c"}
    with pytest.raises(UsageError, match=said):
        NoiseSpec.parse([f"membership:{','.join(parts)}"])


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("0.5,0.4", "sum to 0.9 in row 3 of m.csv, and not to 1"),
        ("1.5,-0.5", "column 'p_a' is 1.5, which is not a probability, in row 3 of m.csv"),
        (",1", "column 'p_a' is missing in row 3 of m.csv; correct it, or leave the row out"),
    ],
)
def test_probabilities_that_are_none_are_refused(row: str, said: str) -> None:
    """Row, column and remedy are named."""
    Path("m.csv").write_text(f"p_a,p_b,label,yhat\n1,0,1,1\n0,1,0,0\n{row},1,0\n")
    with pytest.raises(DataError) as error:
        read_members(open_source("m.csv"), READING, {"a": "p_a", "b": "p_b"})
    assert said in str(error.value)


def test_rounded_probabilities_are_taken_and_text_is_not() -> None:
    """Sums within 0.001 of 1 are made 1."""
    Path("m.csv").write_text("p_a,p_b,label,yhat\n0.3334,0.6665,1,1\n1,0,0,0\n")
    members = read_members(open_source("m.csv"), READING, {"a": "p_a", "b": "p_b"})
    assert members.vectors.sum(1) == pytest.approx(1, abs=1e-12)
    data = pa.table({"p_a": ["x"], "p_b": [0.5], "label": [1], "yhat": [1]})
    with pytest.raises(FairfixError, match="must contain membership probabilities"):
        read_members(open_source(data), READING, {"a": "p_a", "b": "p_b"})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--noise", "membership:p_a"], "two or more"),
        (["--noise", "membership:p_a,p_z"], "'p_z'"),
        (["--noise", "membership:p_a,label"], "given to --label and to --noise"),
        (["--noise", "membership:p_a,p_b,p_c", "--noise", "n.csv"], "give one description"),
        (["--noise", "membership:p_a,p_b,p_c", "--assume", "class-conditional"], "or --assume independent"),
        (["--noise", "membership:p_a,p_b,p_c", "--suppress-below", "9"], "leave out --suppress-below"),
        (["--noise", "membership:p_a,p_b,p_c", "--profile", "ll144"], "leave out --profile"),
        (["--noise", "membership:p_a,p_b,p_c", "--similar", "flips"], "needs --protected"),
        (["--noise", "membership:p_a,p_b,p_c", "--strata", "p_a"], "needs --protected"),
        (["--noise", "membership:p_a,p_b,p_c", "--task", "regression"], "--task regression"),
        (["--noise", "membership:p_a,p_b"], "name a column for the other groups too"),
        (["--protected", "yhat", "--assume", "independent"], "--assume needs --noise"),
        ([], "--protected COLUMN"),
    ],
)
def test_refusals_of_the_command_line(options: list[str], said: str, call: Call) -> None:
    """Every one is a status of 2 with one line that says what to do."""
    pq.write_table(frame(people()), "data.parquet")
    Path("n.csv").write_text("true,noisy,count\na,a,1\nb,b,1\n")
    status, _, err = call("audit", "data.parquet", "--label", "label", "--prediction", "yhat", *options)
    assert status == 2, err
    assert said in err


# ---------------------------------------------------------------------- command line


def test_missing_rows_that_are_left_out_need_no_probabilities(call: Call) -> None:
    """The policy for missing labels comes first."""
    Path("m.csv").write_text("p_a,p_b,label,yhat\n" + "0.5,0.5,1,1\n0.2,0.8,0,0\n" * 60 + ",,,1\n")
    plain = shlex.split("audit m.csv --noise membership:p_a,p_b --prediction yhat -q --format json")
    assert call(*plain)[0] == 2
    status, out, err = call(*plain, "--missing", "drop")
    assert status == 0, err
    assert json.loads(out)["noise"]["membership"]["vectors"] == 2


def test_a_model_file_decides(call: Call) -> None:
    """Scores from a model, which may look at the probabilities; what they say nothing of is told in words."""
    import hashlib

    import joblib
    import pandas as pd
    from sklearn.linear_model import LogisticRegression

    data = people()
    table = pd.DataFrame({"p_a": data["z"][:, 0], "x": data["yhat"] + np.linspace(0, 1, 1800)})
    joblib.dump(LogisticRegression().fit(table, data["label"]), "model.joblib")
    digest = hashlib.sha256(Path("model.joblib").read_bytes()).hexdigest()
    pq.write_table(frame(data, x=table["x"].to_numpy()).drop_columns(["yhat"]), "data.parquet")
    plain = ["--noise", "membership:p_a,p_b,p_c", "--assume", "independent", "--out", "json=a.json"]
    status, text, err = call(
        *["audit", "data.parquet", "--model", "model.joblib", "--trust-model", f"sha256:{digest}"], *plain
    )
    assert status == 0, err
    noise = json.loads(Path("a.json").read_text())["noise"]
    assert noise["rests_on"] == "N4"
    assert noise["vacuous"]
    first = noise["vacuous"][0]["group"]
    assert f"the probabilities give no bound on the TPR of {first}" in text
