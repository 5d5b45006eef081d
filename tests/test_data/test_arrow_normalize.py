"""Columns of types that few functions of Arrow take, read by every command as the ones that all of them take."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fairfix
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fairfix.data.arrow_normalize import plain
from pyarrow import feather

from tests.conftest import Call
from tests.data import scored
from tests.fuzz.frames import Unregistered

pytestmark = pytest.mark.usefixtures("away")


def ticks(kind: pa.DataType, step: int) -> Callable[[list[int]], pa.Array]:
    """Return what makes of groups 0, 1, 2 moments of a kind, so many of its units apart."""
    whole = pa.int32() if kind.bit_width == 32 else pa.int64()
    return lambda groups: pa.array([group * step for group in groups], whole).cast(kind)


GROUPS: dict[str, Callable[[list[int]], pa.Array]] = {
    "string view": lambda groups: pa.array([f"g{group}" for group in groups]).cast(pa.string_view()),
    "binary view": lambda groups: pa.array([b"g%d" % group for group in groups]).cast(pa.binary_view()),
    "views in a dictionary": lambda groups: pa.DictionaryArray.from_arrays(
        pa.array(groups, pa.int8()), pa.array(["a", "b", "c"]).cast(pa.string_view())
    ),
    "an entry twice": lambda groups: pa.DictionaryArray.from_arrays(
        pa.array([group + 3 * (i % 2) for i, group in enumerate(groups)], pa.int8()), pa.array([*"abcabc"])
    ),
    "an entry of nothing": lambda groups: pa.DictionaryArray.from_arrays(
        pa.array(groups, pa.int8()), pa.array([*"abc", None])
    ),
    "run ends": lambda groups: pa.RunEndEncodedArray.from_arrays(list(range(1, len(groups) + 1)), groups),
    "half": lambda groups: pa.array(groups, pa.float32()).cast(pa.float16()),
    "extension": lambda groups: pa.ExtensionArray.from_storage(Unregistered(), pa.array(groups, pa.int32())),
    "uuid": lambda groups: pa.array([uuid.UUID(int=group).bytes for group in groups], pa.uuid()),
    "narrow decimal": lambda groups: pa.array(groups).cast(pa.decimal128(20, 0)).cast(pa.decimal32(9, 0)),
    "dates after 9999": ticks(pa.date32(), 2**30 - 1),
    "moments after 9999": ticks(pa.timestamp("s"), 2**61),
    "an unknown zone": ticks(pa.timestamp("s", "Nowhere/Never"), 1),
    "long durations": ticks(pa.duration("s"), 2**61),
}
"""Columns of groups 0, 1, 2, by what is odd about them."""


def numbers_of(out: str) -> list[Any]:
    """Return rows and metrics of each group of an audit, whatever the groups are called."""
    return [(group["rows"], group["metrics"]) for group in json.loads(out)["attributes"][0]["groups"]]


@pytest.mark.slow
@pytest.mark.parametrize("kind", GROUPS)
def test_groups_of_any_type_are_groups(kind: str, call: Call) -> None:
    """An audit of odd groups has the numbers of plain ones; init, repair and predict take them too."""
    table = scored(rows=120)
    groups = [int(name[1:]) for name in table["race"].to_pylist()]
    odd = table.append_column("odd", GROUPS[kind](groups))
    with pa.ipc.new_file("d.arrow", odd.schema) as file:
        file.write_table(odd)

    def audited(name: str) -> list[Any]:
        out = call.ran("audit", "d.arrow", "--protected", name, "--format", "json", "--strata", "job")
        return sorted(numbers_of(out), key=str)

    assert audited("odd") == audited("race")
    assert call("init", "d.arrow", "--protected", "odd")[0] == 0
    given = ("--method", "ramp", "--gamma", "1", "--config", "none", "--quiet")
    # draws hang on all values of a row
    assert call("repair", "d.arrow", "--protected", "race", *given)[0] == 0
    call.ran("predict", "repaired.fairfix", "d.arrow", "-o", "p.arrow", "--config", "none")


@pytest.mark.parametrize("kind", ["lists", "an unknown zone"])
def test_what_a_kind_of_file_cannot_hold_is_refused(kind: str, call: Call) -> None:
    """CSV has no lists, and no times in a zone that nobody knows: said so, with a remedy, and no file is left."""
    column = pa.array([[1]] * 120) if kind == "lists" else GROUPS[kind]([1] * 120)
    pq.write_table(scored(rows=120).append_column("odd", column), "d.parquet")
    given = ("--method", "ramp", "--protected", "race", "--quiet")
    assert call("repair", "d.parquet", *given)[0] == 0
    status, _, err = call("predict", "repaired.fairfix", "d.parquet", "-o", "p.csv")
    assert (status, "p.csv cannot be written as CSV" in err) == (2, True), err
    assert not Path("p.csv").exists()


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()])
def test_a_number_is_at_its_own_threshold_and_edge(kind: pa.DataType, call: Call) -> None:
    """0.9 of a column of any width is at threshold 0.9, and 0.1 is in the band from 0.1 on."""
    scores = pa.array([0.1, 0.9, 0.9, 0.3] * 30)
    wide = pa.table({"label": [0, 1, 1, 0] * 30, "score": scores, "x": scores})
    pq.write_table(wide.cast(pa.schema([("label", kind), ("score", kind), ("x", kind)])), "d.parquet")
    given = ("--protected", "x", "--threshold", "0.9", "--bands", "x=0.1,0.3,0.9", "--format", "json")
    out = call.ran("audit", "d.parquet", *given)
    rates = {rows: metrics["selection_rate"]["value"] for rows, metrics in numbers_of(out) if rows}
    assert rates == {30: 0.0, 60: 1.0}


def test_half_floats_are_ids_and_features(call: Call) -> None:
    """What has no order in Arrow is compared, matched and paired as the same numbers in a wider column are."""
    wide = scored(rows=120).append_column("n", pa.array(np.arange(120.0)))
    halves = wide.set_column(4, "x", pa.array([i % 7 / 8 for i in range(120)], pa.float32()))
    kinds = [one.with_type(pa.float16()) if one.name in "xn" else one for one in halves.schema]
    odd = halves.cast(pa.schema(kinds))
    pq.write_table(halves, "plain.parquet")
    pq.write_table(odd, "odd.parquet")
    asked = ("--protected", "race", "--similar", "flips", "--features", "x", "--format", "json")
    one, other = (call("audit", name, *asked) for name in ("plain.parquet", "odd.parquet"))
    assert (one[0], other[0]) == (0, 0), (one[2], other[2])
    assert json.loads(one[1])["attributes"] == json.loads(other[1])["attributes"]
    call.ran("audit", "odd.parquet", "--protected", "race", "--id", "n", "--baseline", "odd.parquet")


def test_what_is_plain_stays_as_it_is() -> None:
    """No copy is made of a plain column, and gaps stay gaps."""
    array = pa.array(["a", None])
    assert plain(array) is array
    assert plain(pa.array([uuid.UUID(int=1).bytes, None], pa.uuid())).to_pylist() == [
        str(uuid.UUID(int=1)),
        None,
    ]
    assert plain(array.cast(pa.string_view())).to_pylist() == ["a", None]
    assert plain(GROUPS["views in a dictionary"]([0, 2])).to_pylist() == ["a", "c"]


@pytest.mark.parametrize("option", ["label", "score", "weight", "prediction"])
def test_a_column_without_a_name_plays_no_part(option: str, call: Call) -> None:
    """What is empty may be meant or not: it is refused, not taken for no option."""
    pq.write_table(scored(rows=50).rename_columns(["race", "", "score", "weight", "x", "job"]), "d.parquet")
    status, _, err = call("audit", "d.parquet", "--protected", "race", f"--{option}", "")
    assert (status, f"--{option}: a column without a name" in err) == (2, True), err


def test_a_column_that_is_there_twice_stops_nothing_unless_it_is_used(call: Call) -> None:
    table = scored(rows=120)
    pq.write_table(table.append_column("x", table["x"]), "d.parquet")
    assert call("repair", "d.parquet", "--method", "sensei", "--protected", "race")[0] == 0
    assert call("audit", "d.parquet", "--protected", "race")[0] == 0
    status, _, err = call("audit", "d.parquet", "--protected", "x")
    assert (status, "has the column 'x' more than once" in err) == (2, True), err


def test_a_uuid_of_parquet_is_read_as_text_without_a_schema_of_arrow(call: Call) -> None:
    """Other programs store no schema of Arrow; the type is then that of Parquet alone."""
    groups = pa.array([uuid.UUID(int=row % 2).bytes for row in range(120)], pa.uuid())
    pq.write_table(scored(rows=120).append_column("odd", groups), "d.parquet", store_schema=False)

    assert call("init", "d.parquet", "--protected", "odd")[0] == 0
    out = call.ran("audit", "d.parquet", "--protected", "odd", "--config", "none")
    assert str(uuid.UUID(int=1)) in out


CUTS: dict[str, Callable[[pd.Series], Any]] = {
    "cut": lambda numbers: pd.cut(numbers, [0, 25, 50, 75]),
    "left": lambda numbers: pd.cut(numbers, [0, 25, 50, 75], right=False),
    "fractions": lambda numbers: pd.cut(numbers + 0.5, [0, 25.5, 50.25, 75]),
    "quantiles": lambda numbers: pd.qcut(numbers, 3),
    "intervals": lambda numbers: pd.cut(numbers, [0, 25, 50, 75]).astype("interval[int64, right]"),
    "dates": lambda numbers: pd.cut(pd.Timestamp("2020-01-01") + pd.to_timedelta(numbers, "D"), 3),
    "quarters": lambda numbers: pd.PeriodIndex.from_ordinals(200 + numbers // 25, freq="Q"),
    "coded months": lambda numbers: pd.Categorical(pd.PeriodIndex.from_ordinals(numbers // 25, freq="M")),
    "with gaps": lambda numbers: pd.cut(numbers.where(numbers < 70), [0, 25, 50, 75]),
}
"""Groups made by pandas of the numbers 10, 30, 60 and 74."""

IN_NEW_PROCESS = """
import sys
from fairfix.cli import main
assert "pandas" not in sys.modules
sys.exit(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", CUTS)
def test_groups_that_pandas_makes_have_the_names_that_it_prints(kind: str, call: Call) -> None:
    """A frame, a Parquet and a Feather file, and a CSV file of them are one audit; so they are without pandas."""
    frame = pd.DataFrame({"n": [10, 30, 60, 74] * 30, "prediction": [0, 1, 1, 0, 1] * 24})
    frame["g"] = CUTS[kind](frame["n"])
    kinds = frame["g"].cat.categories if hasattr(frame["g"], "cat") else None
    used = frame["g"].unique() if kinds is None else kinds[sorted({*frame["g"].cat.codes} - {-1})]
    printed = sorted(map(str, used))
    frame.to_csv("d.csv", index=False)
    feather.write_feather(pa.Table.from_pandas(frame), "d.feather")
    names = ["d.feather"]
    if kind != "with gaps":  # Parquet takes no categories of intervals, and pandas has no intervals with gaps
        plainly = frame if kinds is None else frame.assign(g=frame["g"].astype(kinds.dtype))
        pq.write_table(pa.Table.from_pandas(plainly), "d.parquet")
        names.append("d.parquet")
    asked: dict[str, Any] = {"protected": "g", "missing": "drop", "reference": f"g={printed[0]}"}
    asked["check"] = [f'selection_rate[g="{printed[0]}"]>=0']

    def blocks(result: dict[str, Any]) -> Any:
        return result["attributes"], result["checks"]

    expected = blocks(fairfix.audit("d.csv", **asked).to_dict())
    assert [group["group"] for group in expected[0][0]["groups"]] == printed
    for data in (frame, *names):
        assert blocks(fairfix.audit(data, **asked).to_dict()) == expected
    for name in names:
        line = ["audit", name, "--protected", "g", "--missing", "drop", "--reference", asked["reference"]]
        line += ["--check", asked["check"][0], "--format", "json", "--config", "none"]
        run = subprocess.run([sys.executable, "-c", IN_NEW_PROCESS, *line], capture_output=True, check=True)
        assert blocks(json.loads(run.stdout)) == expected
