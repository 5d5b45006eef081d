"""Paired baselines: matching, intervals against truth, and what the command says."""

from __future__ import annotations

import json
import math
import shlex
from dataclasses import replace
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any

import fairfix
import jsonschema
import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from fairfix.auditing.audit import audit
from fairfix.auditing.baseline import Allowance, compare
from fairfix.auditing.checks import named
from fairfix.auditing.comparisons import Comparison
from fairfix.auditing.paired_differences import (
    Changes,
    Matched,
    Reaches,
    _change_of_largest,
    _reach,
    _units,
    match,
)
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.scan import read_table
from fairfix.data.table import Table
from fairfix.errors import DataError, UsageError
from fairfix.schema import json_schema, to_dict
from fairfix.stats.estimates import Proportions

from tests.conftest import Call

pytestmark = pytest.mark.usefixtures("away")
SCHEMA = json_schema("audit")
READING = DataSpec(ColumnRoles(("race",), label="label", prediction="prediction", id="id"))
DP = "selection_rate.difference.between_groups"


def people(rng: np.random.Generator, sizes: dict[str, int]) -> dict[str, Any]:
    """Return groups, labels and ids of some people."""
    race = np.repeat(list(sizes), list(sizes.values()))
    return {"id": np.arange(race.size), "race": race.tolist(), "label": rng.integers(0, 2, race.size)}


def two_models(
    rng: np.random.Generator, sizes: dict[str, int], old: list[float], new: list[float], rho: float
) -> tuple[pa.Table, pa.Table]:
    """Return decisions of two models with these rates, whose scores have a correlation."""
    base = people(rng, sizes)
    group = np.repeat(np.arange(len(sizes)), list(sizes.values()))
    z = rng.normal(size=group.size)
    scores = z, rho * z + math.sqrt(1 - rho * rho) * rng.normal(size=group.size)
    out = []
    for score, rates in zip(scores, (old, new), strict=True):
        cut = np.array([NormalDist().inv_cdf(rate) for rate in rates])
        out.append(pa.table({**base, "prediction": (score < cut[group]).astype(int)}))
    return out[0], out[1]


def table_of(data: pa.Table, data_spec: DataSpec = READING) -> Table:
    return read_table(data, data_spec, (), {"id": pa.string()})


def matched_of(old: pa.Table, new: pa.Table, data_spec: DataSpec = READING) -> Matched:
    return match(table_of(old, data_spec), table_of(new, data_spec), "id")


def limits_of(
    found: Matched, name: str = DP, group: str = "", confidence: float = 0.95
) -> tuple[float, float]:
    ends = Changes(found, confidence, {}).limits(Comparison.parse(name, "race", group), ("race",))
    assert not isinstance(ends, str), ends
    return ends[:2]


def compared(found: Matched, *names: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the change of every number with rows paired, and without."""
    old, new = (audit(table, table.data_spec) for table in (found.old, found.new))
    out = []
    for limits in (Changes(found, 0.95, {}).limits, None):
        section, _ = compare(old, new, (Allowance.parse("change<=0"),), names, "interval", limits)
        out.append(to_dict(section)["changes"])
    return list(zip(*out, strict=True))


# ---------------------------------------------------------------------- one group


def test_one_group_by_hand() -> None:
    """Of 100 rows 7 rose and 2 fell: two cells of one table, put together by MOVER with their correlation."""
    old = np.array([0] * 7 + [1] * 2 + [0] * 41 + [1] * 50)
    new = np.array([1] * 7 + [0] * 2 + [0] * 41 + [1] * 50)
    base = {"id": np.arange(200), "race": ["a"] * 100 + ["b"] * 100, "label": np.arange(200) % 2}
    made = (pa.table({**base, "prediction": np.concatenate([part, old])}) for part in (old, new))
    low, high = limits_of(matched_of(*made), "selection_rate", "a")
    level = 1 - math.sqrt(0.95)  # both groups at once
    parts = Proportions(np.array([7.0, 2.0]), np.full(2, 100.0))
    least, most = parts.limits(level)
    kappa = math.sqrt(0.07 * 0.02 / (0.93 * 0.98))
    x, y = 0.07 - least[0], most[1] - 0.02
    u, v = most[0] - 0.07, 0.02 - least[1]

    assert low == pytest.approx(0.05 - math.sqrt(x * x + y * y + 2 * kappa * x * y))
    assert high == pytest.approx(0.05 + math.sqrt(u * u + v * v + 2 * kappa * u * v))


def test_no_changed_row_is_no_certainty() -> None:
    """Where nothing has changed the interval is that of 0 out of n, and shrinks as 1 / n."""
    rng = np.random.default_rng(0)
    for rows in (100, 1000):
        old, _ = two_models(rng, {"a": rows, "b": rows}, [0.5, 0.4], [0.5, 0.4], 1.0)
        low, high = limits_of(matched_of(old, old), "selection_rate", "a")
        reach = Proportions(np.zeros(1), np.full(1, float(rows))).limits(1 - math.sqrt(0.95))[1][0]

        assert (low, high) == pytest.approx((-reach, reach))
        assert reach < 4.5 / rows


@pytest.mark.parametrize("name", ["selection_rate", "positive_predictive_value"])
def test_the_variance_is_that_of_resampled_rows(name: str) -> None:
    """Linearised, also where denominators differ: as the bootstrap of rows finds it."""
    rng = np.random.default_rng(3)
    old, new = two_models(rng, {"a": 400, "b": 30}, [0.5, 0.5], [0.6, 0.5], 0.8)
    found = matched_of(old, new)
    units = Changes(found, 0.95, {})._units(name, ("race",))
    assert units is not None
    first = np.arange(400)
    changes = []
    for _ in range(200):
        rows = np.concatenate([rng.choice(first, 400), np.arange(400, 430)])
        some = Matched(found.old.take(rows), found.new.take(rows), 0, 0, 0)
        one = Changes(some, 0.95, {})._units(name, ("race",))
        assert one is not None
        changes.append(one.new.value[0] - one.old.value[0])

    assert math.sqrt(units.variance[0]) == pytest.approx(float(np.std(changes)), rel=0.15)


def test_weights_count_as_rows() -> None:
    """A weight of 2 moves the change as two rows do, and its scale does not matter."""
    rng = np.random.default_rng(4)
    old, new = two_models(rng, {"a": 300, "b": 300}, [0.5, 0.4], [0.5, 0.3], 0.9)
    weighted = DataSpec(ColumnRoles(("race",), "label", prediction="prediction", weight="w", id="id"))
    weight = rng.choice([1.0, 3.0], 600)
    ends = []
    for scale in (1.0, 10.0):
        made = (table.append_column("w", pa.array(weight * scale)) for table in (old, new))
        ends.append(limits_of(matched_of(*made, weighted)))
    even = (table.append_column("w", pa.array(np.full(600, 0.5))) for table in (old, new))

    assert ends[0] == pytest.approx(ends[1])
    assert ends[0][1] - ends[0][0] > 0.9 * np.ptp(limits_of(matched_of(old, new)))
    assert limits_of(matched_of(*even, weighted)) == pytest.approx(limits_of(matched_of(old, new)))


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("drawn", [0.0, 0.3, 1.0])
def test_rows_that_are_alike_count_as_one_entry(labelled: bool, drawn: float) -> None:
    """Merged or row by row: the same numbers of every unit, with decisions that chance makes as well."""
    rng = np.random.default_rng(7)
    old, new = two_models(rng, {"a": 300, "b": 200, "c": 7}, [0.5, 0.4, 0.3], [0.5, 0.3, 0.6], 0.9)
    data_spec = replace(READING, columns=replace(READING.columns, label="label" if labelled else None))
    found = matched_of(old, new, data_spec)
    chance = np.where(rng.random(507) < drawn, rng.integers(0, 9, 507) / 8, found.new.chance)
    found = Matched(found.old, found.new.with_decision(chance), 0, 0, 0)
    merged = found.merged
    for name in ("selection_rate", *(("accuracy", "true_positive_rate", "f1") if labelled else ())):
        many, few = (
            _units(name, *both, both[1].groups().codes, 3) for both in ((found.old, found.new), merged)
        )
        assert many is not None
        assert few is not None
        for part in ("share_old", "share_new", "rise", "fall", "size", "variance", "apart"):
            np.testing.assert_allclose(
                getattr(few, part), getattr(many, part), rtol=1e-9, atol=1e-12, err_msg=part
            )
        for was, now in ((many.old, few.old), (many.new, few.new)):
            np.testing.assert_allclose(now.limits(0.05), was.limits(0.05), rtol=1e-9, atol=1e-12)

    whole = 3 * (4 if labelled else 1) * 4
    assert len(merged[0]) == len(merged[1]) <= whole + np.count_nonzero((chance > 0) & (chance < 1))
    assert merged[0].used == 507


# ---------------------------------------------------------------------- against truth

SIZES = {"a": 600, "b": 400, "c": 300}


def test_no_change_is_beyond_what_can_be() -> None:
    """Limits of a gap of rates end at 100 points; with a clear gap and few changed rows, they are far narrower."""
    old, new = two_models(np.random.default_rng(3), {"a": 6, "b": 5, "c": 7}, [0.5, 0.4, 0.6], [0.4] * 3, 0.0)

    assert limits_of(matched_of(old, new)) == (-1.0, 1.0)
    old, new = two_models(np.random.default_rng(5), {"a": 4000, "b": 4000}, *[[0.6, 0.3]] * 2, 0.9999)
    ((paired, apart),) = compared(matched_of(old, new), DP)
    assert paired["high"] - paired["low"] < 0.2 * (apart["high"] - apart["low"])


@pytest.mark.parametrize(
    "name",
    ["equalized_odds.difference", "equalized_odds.ratio", "ppv.ratio", "accuracy.difference.to_overall"],
)
def test_other_comparisons_hold_their_value(name: str) -> None:
    """Every kind gives limits that hold the estimate."""
    rng = np.random.default_rng(6)
    found = matched_of(*two_models(rng, SIZES, [0.5, 0.4, 0.4], [0.5, 0.4, 0.3], 0.9))
    one = compared(found, named(name).id)[0][0]

    assert "not_paired" not in one
    assert one["low"] < one["value"] < one["high"]


# ---------------------------------------------------------------------- matching and the command


def test_ids_are_matched_as_text_in_any_order() -> None:
    """Numbers of one file and text of the other; rows of one file alone are counted, and moved ones too."""
    rng = np.random.default_rng(7)
    old, new = two_models(rng, {"a": 50, "b": 50}, [0.5, 0.5], [0.5, 0.5], 0.9)
    order = rng.permutation(100)
    moved = new.set_column(1, "race", pa.array(["b", *new["race"].to_pylist()[1:]]))
    mixed = (
        moved.set_column(0, "id", pa.array([str(i) for i in range(100)]))
        .take(order)
        .filter(pa.array(order != 99))
    )
    found = match(table_of(old), table_of(mixed), "id")

    assert (len(found.new), found.only_old, found.only_new, found.moved) == (98, 1, 0, 1)
    left = [i for i in order if i not in (0, 99)]
    assert found.old.rows.decision is not None
    assert found.old.rows.decision.tolist() == [old["prediction"][int(i)].as_py() for i in left]


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([0, 0, 1, 2], "1 values more than once, such as '0'"),
        ([0, None, 1, 2], "is missing in 1 of 4 rows"),
        ([7, 8, 9, 10], "nothing can be paired"),
    ],
)
def test_ids_that_match_nothing_are_refused(ids: list[int | None], said: str) -> None:
    """Duplicate, missing and foreign ids are errors."""
    base = {"race": ["a", "b"] * 2, "label": [0, 1, 1, 0], "prediction": [1, 1, 0, 0]}
    good = pa.table({"id": [0, 1, 2, 3], **base})
    with pytest.raises(DataError, match=said):
        matched_of(good, pa.table({"id": pa.array(ids), **base}))


def decided_pair(worse: float = 0.3, rows: int = 2000) -> tuple[pa.Table, pa.Table]:
    """Return decisions of an old model and of a new one, by which group b is selected at another rate."""
    return two_models(np.random.default_rng(8), {"a": rows, "b": rows}, [0.5, 0.4], [0.5, worse], 0.99)


def gated(new: pa.Table, old: Any, **more: Any) -> dict[str, Any]:
    """Return the result of an audit against other decisions on the same rows, which holds to its schema."""
    given = {"protected": "race", "prediction": "prediction", "id": "id", "baseline": old, **more}
    result = fairfix.audit(new, **{"check": "dp.difference.change<=0.05", **given}).to_dict()
    jsonschema.validate(result, SCHEMA, jsonschema.Draft202012Validator)
    return result


@pytest.mark.parametrize(("worse", "verdict"), [(0.3, "fail"), (0.4, "pass"), (0.35, "undecided")])
def test_a_gate_on_the_same_rows(worse: float, verdict: str) -> None:
    """Fails, passes and cannot tell; the same from CSV."""
    old, new = decided_pair(worse)
    result = gated(new, old)
    pc.write_csv(old, "old.csv")

    assert result["checks"][0]["verdict"] == verdict
    none = dict.fromkeys(("only_in_baseline", "only_now", "other_group"), 0)
    assert result["baseline"]["paired"] == {"id": "id", "rows": 4000, **none}
    assert gated(new, "old.csv")["baseline"]["changes"] == result["baseline"]["changes"]


def test_what_is_not_paired_is_said() -> None:
    """KS has the interval of independent samples."""
    rng = np.random.default_rng(9)
    base = people(rng, {"a": 300, "b": 300})
    score = 0.1 + 0.8 * rng.random(600)  # near 0 and 1 a few rows would make up the change of the log loss
    old, new = (pa.table({**base, "score": one}) for one in (score, score * 0.98 + 0.01))
    result = gated(new, old, prediction=None, check="change<=0.1")
    apart = {one["id"].partition(".")[0] for one in result["baseline"]["changes"] if "not_paired" in one}

    assert {"ks", "auc", "scoring_rate"} <= apart
    assert not apart & {"selection_rate", "true_positive_rate", "mean_score", "square_loss", "log_loss"}


def test_few_rows_in_both_decide_nothing() -> None:
    """With less than half of the new rows in the baseline, every check of a change is undecided."""
    old, new = decided_pair(0.2)
    result = gated(new, old.filter(pa.array(np.arange(old.num_rows) % 3 == 0)))

    assert (result["checks"][0]["verdict"], result["checks"][0]["code"]) == ("undecided", "few_common_rows")
    assert "only 33% of the rows are in the baseline too" in result["checks"][0]["reason"]
    assert result["baseline"]["paired"]["only_now"] > 2000


def test_an_id_alone_changes_nothing(call: Call) -> None:
    """A shared id, meant for repairs, has no effect on an audit, which says so where it is asked for by name."""
    old, new = decided_pair(rows=50)
    pq.write_table(new, "new.parquet")
    line = shlex.split("audit new.parquet --protected race --prediction prediction --quiet --format json")
    with_id, without = (json.loads(call(*line, *more)[1]) for more in (("--id", "id"), ()))

    assert [one["code"] for one in with_id.pop("messages")] == ["unused"]
    assert with_id.pop("next_step")["command"].replace(" --id id", "") == without.pop("next_step")["command"]
    assert with_id == without
    with pytest.raises(UsageError, match="small groups might be shown"):
        gated(new, old, suppress_below=10)


def test_the_largest_may_be_another_group_than_before() -> None:
    """Ends are over every group that may have been the largest before and every one that may be it now."""
    unit, off = np.eye(3), np.full(3, 0.02)
    reach = (off, off)
    units: Any = SimpleNamespace(reaches=lambda level: Reaches(reach, reach, (off / 10, off / 10)))
    old, new = (np.array([0.50, 0.10, 0.49]), unit), (np.array([0.30, 0.90, 0.88]), unit)
    low, high = _change_of_largest(old, new, units, 0.05)
    apart = float(np.hypot(0.02, 0.02))

    assert low == pytest.approx(0.88 - 0.50 - apart)
    assert high == pytest.approx(0.90 - 0.49 + apart)


def test_a_change_of_slopes_reaches_as_far_as_the_change_itself() -> None:
    """Where the limits of both files cancel out, what the rows' own change allows is still there."""
    new, old, change = (np.full(1, reach) for reach in (0.02, 0.03, 0.005))
    by = Reaches((old, old), (new, new), (change, change))

    np.testing.assert_allclose(_reach(np.array([1.5]), np.array([1.0]), by), 0.005)
