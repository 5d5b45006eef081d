"""Columns in the names of folders are columns like others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fairfix
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from fairfix.data.files import open_source
from fairfix.data.partitions import MISSING, folder_columns
from fairfix.data.storage import local
from fairfix.errors import ColumnError

from tests.conftest import Call, make_frame
from tests.data import read
from tests.stores import Server
from tests.test_data.test_packing import WRITTEN, written
from tests.test_data.test_storage import moto, put, store  # noqa: F401  fixtures


def parted(folder: Path, kind: str = ".parquet", value: str = "NY") -> Path:
    """Write rows to folders by year and state."""
    for i, name in enumerate(
        [f"year=2023/state={value}", "year=2024/state=CA", f"year=2024/state={MISSING}"]
    ):
        (folder / name).mkdir(parents=True)
        written(folder / name / f"part-0{kind}", pa.table({"x": [i, i + 10]}))
    return folder


@pytest.mark.parametrize("kind", [*WRITTEN, ".csv.zst", ".parquet.gz"])
@pytest.mark.parametrize("pattern", ["", "/", "/*/*/*", "/year=*/state=*/*", "/**/*.*"])
def test_folders_hold_columns(kind: str, pattern: str, tmp_path: Path) -> None:
    """Of any kind, in any packing, by a folder or a pattern; types are those of all files."""
    source = open_source(f"{parted(tmp_path / 'd', kind)}{pattern}")
    table = read(source)

    assert source.columns == ("x", "year", "state")
    assert table.schema.types[1:] == [pa.int64(), pa.string()]
    found_rows = sorted(map(str, table.to_pylist()))
    assert found_rows == sorted(
        str({"x": x, "year": year, "state": state})
        for i, (year, state) in enumerate([(2023, "NY"), (2024, "CA"), (2024, None)])
        for x in (i, i + 10)
    )
    assert read(source, ["state", "year"]).num_rows == 6
    assert source.rows in (6, None)


def test_the_oracle_agrees(tmp_path: Path) -> None:
    """Arrow's own partitions have the same columns, types and rows."""
    folder = parted(tmp_path / "d", value="New%20York%2F1")
    oracle = ds.dataset(folder, partitioning=ds.partitioning(flavor="hive")).to_table()
    table = read(open_source(folder))

    def ordered(one: pa.Table) -> list[Any]:
        plain = one.cast(pa.schema([("x", "int64"), ("year", "int64"), ("state", "string")]))
        return list(plain.sort_by("x").to_pylist())

    assert ordered(table) == ordered(oracle.select(["x", "year", "state"]))
    assert "New York/1" in table["state"].to_pylist()


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (("1", "-2"), [1, -2]),
        (("1", MISSING), [1, None]),
        (("01", "02"), ["01", "02"]),
        (("1", "a"), ["1", "a"]),
        (("1.5", "2"), ["1.5", "2"]),
        (("1", "9" * 19), ["1", "9" * 19]),
        (("", "a=b"), ["", "a=b"]),
        ((MISSING, MISSING), [None, None]),
        (("0", "-0"), ["0", "-0"]),
    ],
)
def test_types_of_folders(entries: tuple[str, str], expected: list[Any], tmp_path: Path) -> None:
    """Integers where all are written as such, else text, so 01 stays what it is."""
    for i, text in enumerate(entries):
        (tmp_path / f"v{i}" / f"c={text}").mkdir(parents=True)
        written(tmp_path / f"v{i}" / f"c={text}" / "d.csv", pa.table({"x": [i]}))
    source = open_source(str(tmp_path))

    assert read(source)["c"].to_pylist() == expected
    coded = pa.dictionary(pa.int32(), pa.string())
    assert read(source, ["c"], {"c": coded})["c"].to_pylist() == [
        None if one is None else str(one) for one in expected
    ]


def test_a_column_of_the_file_wins(tmp_path: Path) -> None:
    """So what was written by predict, which has the column, is read like its source."""
    (tmp_path / "year=2024").mkdir()
    written(tmp_path / "year=2024" / "d.csv", pa.table({"year": [1999]}))

    assert read(open_source(str(tmp_path)))["year"].to_pylist() == [1999]


def test_columns_that_not_all_files_have_are_left_out(tmp_path: Path) -> None:
    """Files at another level have no value for them; asked for, they are not there."""
    for name in ("a=1/b=2", "a=3"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
        written(tmp_path / name / "d.csv", pa.table({"x": [1]}))
    source = open_source(str(tmp_path))

    assert source.columns == ("x", "a")
    with pytest.raises(ColumnError, match="no column 'b'"):
        source.require(["b"])


def test_one_file_is_read_as_it_is(tmp_path: Path) -> None:
    """Who names a file means the file; only folders directly above files count."""
    parted(tmp_path / "d")
    file = tmp_path / "d/year=2024/state=CA/part-0.parquet"

    assert open_source(file).columns == ("x",)
    assert open_source(file.parent).columns == ("x", "year", "state")
    assert folder_columns(local(file)) == {"year": "2024", "state": "CA"}
    (tmp_path / "run=1/plain").mkdir(parents=True)
    written(tmp_path / "run=1/plain/d.csv", pa.table({"x": [1]}))
    assert open_source(str(tmp_path / "run=1")).columns == ("x",)


def audit_rows(folder: Path) -> None:
    """Write an audit's rows by group and town."""
    for (race, town), rows in make_frame(90).groupby(["race", "town"]):
        place = folder / f"race={race}" / f"town={town}"
        place.mkdir(parents=True)
        rest = pa.Table.from_pandas(rows.drop(columns=["race", "town"]), preserve_index=False)
        written(place / "part.csv", rest)


@pytest.mark.slow
def test_groups_and_strata_may_be_folders(tmp_path: Path, store: Server) -> None:  # noqa: F811  the fixture
    """An audit is that of one file with all columns; in a store the same."""
    audit_rows(tmp_path / "d")
    for file in (tmp_path / "d").rglob("*.csv"):
        put(str(file.relative_to(tmp_path)), file.read_bytes())
    (tmp_path / "one.csv").write_text(
        make_frame(90).sort_values(["race", "town"], kind="stable").to_csv(index=False)
    )

    def audited(data: str) -> Any:
        out = fairfix.audit(data, protected="race", strata="town").to_dict()
        return {key: out[key] for key in ("attributes", "checks") if key in out}

    expected = audited(str(tmp_path / "one.csv"))
    assert audited(str(tmp_path / "d")) == expected
    assert audited("s3://loans/d") == expected
    assert audited("s3://loans/d/race=*/*/*.csv") == expected


@pytest.mark.slow
def test_predict_keeps_the_folders(call: Call, tmp_path: Path, away: None) -> None:
    """Files of a folder are written into folders of the same names, and are read like the source."""
    audit_rows(Path("d"))
    make_frame(400).to_csv("all.csv", index=False)
    options = ("--method", "ramp", "--protected", "race", "--config", "none", "-o", "r.fairfix")
    assert call("repair", "all.csv", *options)[0] == 0
    call.ran("predict", "r.fairfix", "d", "-o", "out/", "--config", "none")
    names = sorted(str(file.relative_to("d")) for file in Path("d").rglob("*.csv"))
    assert sorted(str(file.relative_to("out")) for file in Path("out").rglob("*.csv")) == names
    before, after = read(open_source("d"), ["race", "town"]), read(open_source("out"), ["race", "town"])
    assert after == before
    assert "decision" in open_source("out").columns
