"""Files of every kind come in as the same rows; damaged ones are named; outputs are whole or absent."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import fairfix
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from fairfix.data import files as io
from fairfix.data.files import atomic_output, open_source, table_writer, write_content
from fairfix.data.new_table import check_new_table
from fairfix.data.recognition import kind_written
from fairfix.errors import ColumnError, DataError

from tests.conftest import Call, Frames
from tests.data import read

ROWS = pa.table({"g": ["a", "b", None], "x": [1, 2, 3], "s": [0.25, 0.5, 1.0]})


def write(path: Path, table: pa.Table = ROWS) -> Path:
    """Write a table to a file of the kind its name says, by pandas or Arrow."""
    frame = table.to_pandas()
    name = path.name.lower()
    if name.endswith((".parquet", ".pq")):
        pq.write_table(table, path)
        return path
    if name.endswith((".arrow", ".feather")):
        feather.write_feather(table, path, chunksize=2)
        return path
    text = frame.to_csv(index=False, sep="\t" if ".tsv" in name.removesuffix(".csv") else ",").encode()
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return path


NAMES = ["d.parquet", "d.pq", "d.csv", "d.tsv", "d.csv.gz", "d.tsv.gz", "D.CSV", "D.TSV.GZ", "d[1].csv"]
NAMES += ["d.arrow", "D.FEATHER"]


@pytest.mark.parametrize("name", NAMES)
def test_every_kind_of_file_holds_the_same_rows(name: str, tmp_path: Path) -> None:
    """Parquet, Arrow, comma and tab, packed or not, capital letters or brackets in the name."""
    source = open_source(write(tmp_path / name))

    assert source.columns == ("g", "x", "s")
    assert read(source).to_pydict() == ROWS.to_pydict()
    assert read(source, ["s", "g"]).column_names == ["s", "g"]
    assert source.rows == (None if source.text else 3)


def test_tabs_are_told_by_the_last_ending(tmp_path: Path) -> None:
    """A comma-separated file may have .tsv within its name."""
    (tmp_path / "export.tsv.csv").write_text("g,s\na,1\n")

    assert open_source(tmp_path / "export.tsv.csv").columns == ("g", "s")


def test_memory_is_cut_into_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io, "BATCH_ROWS", 7)
    table = pa.table({"x": range(100)})
    batches = list(open_source(table).parts(["x"])[0].batches())

    assert max(batch.num_rows for batch in batches) == 7
    assert pa.Table.from_batches(batches).to_pydict() == table.to_pydict()


class Stream:
    """Something that speaks the Arrow C stream and nothing else."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Hand out the stream."""
        return self._reader.__arrow_c_stream__(requested_schema)


def test_a_stream_is_not_copied() -> None:
    """The columns of the source lie where they lay."""
    table = pa.table({"x": np.arange(1000), "g": pa.array(["a", "b"] * 500)})
    batch = next(open_source(Stream(table)).parts(["x", "g"])[0].batches())

    for name in ("x", "g"):
        ours, theirs = batch.column(name).buffers(), table[name].chunk(0).buffers()
        assert [one and one.address for one in ours] == [one and one.address for one in theirs]


def test_a_stream_that_breaks_off_is_an_error_of_the_data() -> None:
    """With the reason that it gives, whatever its type, and no secret in it."""

    def batches() -> Iterator[pa.RecordBatch]:
        yield ROWS.to_batches()[0]
        raise RuntimeError("lost https://me:pw@host/x?sig=pw")

    for broken in (
        Stream(pa.RecordBatchReader.from_batches(ROWS.schema, batches())),
        duckdb.sql("SELECT CAST(x AS INT) AS x FROM (VALUES ('1'), ('b')) AS t(x)"),
        Stream(None),
    ):
        with pytest.raises(DataError, match=r"the rows of the [\w ]+ cannot be read: ") as error:
            open_source(broken).parts(["x"])
        assert "pw" not in str(error.value)


@pytest.mark.parametrize(
    "bad", [{"a": [1], "b": [1, 2]}, {"a": [[1], {"x": 1}]}, pd.DataFrame({"a": [object(), 1]})]
)
def test_what_is_no_column_is_refused(bad: Any) -> None:
    """Uneven lengths, and data without any column that can be read."""
    with pytest.raises(DataError):
        open_source(bad)


@pytest.mark.parametrize("data", [3, None, [1, 2], np.zeros(3)])
def test_what_is_no_data_is_refused(data: Any) -> None:
    with pytest.raises(DataError, match=f"cannot read data from a {type(data).__name__}"):
        open_source(data)


@pytest.mark.parametrize("name", ["d.parquet", "d.arrow"])
@pytest.mark.parametrize("row_group", [1, 3, 10, 1000])
@pytest.mark.parametrize("part", [1, 7, 10_000])
def test_parts_cover_the_file_in_order(
    name: str, row_group: int, part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row groups are joined into parts; each part knows how many rows come before and can be read again."""
    monkeypatch.setattr(io, "PART_ROWS", part)
    table = pa.table({"x": range(50)})
    if name == "d.parquet":
        pq.write_table(table, tmp_path / name, row_group_size=row_group)
    else:
        feather.write_feather(table, tmp_path / name, chunksize=row_group)
    parts = open_source(tmp_path / name).parts(["x"])
    for _ in range(2):
        before = 0
        for piece in parts:
            rows = [x for batch in piece.batches() for x in batch.column(0).to_pylist()]
            assert piece.first_row == before
            assert rows == list(range(before, before + len(rows)))
            before += len(rows)
        assert before == 50


def test_folders_and_globs_hold_their_files_in_order(tmp_path: Path) -> None:
    """Subfolders count, hidden files and those that begin with _ do not; the name says how many."""
    (tmp_path / "year=2024").mkdir()
    (tmp_path / ".tmp").mkdir()
    for i, name in enumerate(["b.parquet", "a.parquet", "year=2024/c.PARQUET"]):
        write(tmp_path / name, pa.table({"x": [i]}))
    for name in ("_SUCCESS.parquet", ".hidden.parquet", ".tmp/d.parquet", "readme.txt"):
        (tmp_path / name).write_bytes(b"")
    folder, some = open_source(tmp_path), open_source(f"{tmp_path}/[ab].parquet")

    assert read(folder)["x"].to_pylist() == [1, 0, 2]
    assert folder.name == f"{tmp_path.name} (3 files)"
    assert read(some)["x"].to_pylist() == [1, 0]
    assert folder.rows == 3
    assert read(open_source(f"{tmp_path}/**/*.PARQUET"))["x"].to_pylist() == [2]


def test_later_csv_files_have_the_types_of_the_first(tmp_path: Path) -> None:
    """A code like 01 stays text in a file where all codes look like numbers."""
    (tmp_path / "1.csv").write_text("code,empty\n0a,\n")
    (tmp_path / "2.csv").write_text("code,empty\n01,5\n")

    assert read(open_source(tmp_path), ["code"])["code"].to_pylist() == ["0a", "01"]


def test_types_may_be_asked_for(tmp_path: Path) -> None:
    """Groups as dictionaries, of truth values too, scores as numbers."""
    (tmp_path / "d.csv").write_text("g,s,t\n1,2,true\n,3,False\n")
    coded = pa.dictionary(pa.int32(), pa.string())
    table = read(open_source(tmp_path / "d.csv"), types={"g": coded, "s": pa.float64(), "t": coded})

    assert table.schema.types == [coded, pa.float64(), coded]
    assert table.to_pydict() == {"g": ["1", None], "s": [2.0, 3.0], "t": ["true", "False"]}


def test_quotes_decide_what_is_missing(tmp_path: Path) -> None:
    """NA and nothing are missing values, "NA" and "" are names; quoted commas and line ends are text."""
    (tmp_path / "d.csv").write_text('g,x\nNA,1\n"NA",2\n,3\n"",4\n"a,b",5\n"c\nd",6\n')

    assert read(open_source(tmp_path / "d.csv"))["g"].to_pylist() == [None, "NA", None, "", "a,b", "c\nd"]


PARQUET_BYTES = pa.BufferOutputStream()
pq.write_table(pa.table({"g": ["a", "b"] * 500, "s": np.linspace(0, 1, 1000)}), PARQUET_BYTES)
WHOLE = PARQUET_BYTES.getvalue().to_pybytes()
PACKED = gzip.compress(b"g,s\n" + b"a,0.5\n" * 1000, mtime=0)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("d.csv", b"", r"d\.csv is empty"),
        ("d.csv", b"\n", "cannot be read as CSV"),
        ("d.csv.gz", gzip.compress(b"", mtime=0), "cannot be read as CSV"),
        ("d.csv.gz", PACKED[:-20], "cannot be read as CSV"),
        ("d.csv", b"g,s\na,1\nb\n", r"row 2 of d\.csv has 1 cells"),
        ("d.parquet", b"", "cannot be read as Parquet"),
        ("d.parquet", WHOLE[:-100], "cannot be read as Parquet"),
        ("d.parquet", WHOLE[:50] + b"\0" * 400 + WHOLE[450:], "cannot be read as Parquet"),
        ("d.arrow", b"", "cannot be read as Arrow"),
        ("d.feather", b"FEA1" + WHOLE, "is a Feather file of version 1"),
        ("d.xyz", b"\0\1", r"d\.xyz is of an unknown kind; .*Parquet"),
    ],
)
def test_damaged_files_are_named(name: str, content: bytes, words: str, tmp_path: Path) -> None:
    """One line with the file's name, whether it shows at once or on reading."""
    (tmp_path / name).write_bytes(content)

    with pytest.raises(DataError, match=words) as error:
        read(open_source(tmp_path / name))
    assert name in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("coded", [False, True], ids=["texts", "categories"])
@pytest.mark.parametrize("place", [1100, -900, 2**30])
def test_no_place_outside_of_an_arrow_file_is_read(place: int, coded: bool, tmp_path: Path) -> None:
    """Neither by the offset of a text nor by the code of a category: memory could hold anything there."""
    places = np.arange(1000, dtype=np.int32)
    codes = pa.DictionaryArray.from_arrays(places, [f"g{i}" for i in range(1000)])
    table = pa.table({"g": codes if coded else ["a"] * 1000})
    feather.write_feather(table, tmp_path / "d.arrow", compression="uncompressed")
    data, moved = (tmp_path / "d.arrow").read_bytes(), places.copy()
    moved[5] = place
    assert data.count(places.tobytes()) == 1
    (tmp_path / "d.arrow").write_bytes(data.replace(places.tobytes(), moved.tobytes()))

    with pytest.raises(DataError, match=r"d\.arrow cannot be read as Arrow"):
        read(open_source(tmp_path / "d.arrow"))


def test_bytes_that_are_no_text_are_refused_where_they_are_used(tmp_path: Path) -> None:
    """The message names their line and the encoding to read them with."""
    (tmp_path / "d.csv").write_bytes(b"g,x\n" + b"a,1\n" * 50_000 + b"\xe9,2\n")

    with pytest.raises(DataError, match=r"bytes e9 in line 50,002.*`encoding=cp1252`"):
        read(open_source(tmp_path / "d.csv"), types={"g": pa.string()})
    assert read(open_source(tmp_path / "d.csv", encoding="cp1252"))["g"][-1].as_py() == "é"


def test_a_file_that_goes_away_is_named(tmp_path: Path) -> None:
    for name in ("d.parquet", "d.csv", "d.arrow"):
        source = open_source(write(tmp_path / name))
        (tmp_path / name).unlink()
        with pytest.raises(DataError, match=rf"{name} does not exist"):
            read(source)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nope.csv", "nope.csv does not exist"),
        ("nope*.csv", r"nope\*.csv matches no file"),
        ("empty", "contains no ARFF, .* or Stata file"),
        ("both", r"contains CSV and Parquet files.*ending in \.csv or \.parquet$"),
        ("ftp://host/d.parquet", "ftp://host/d.parquet has an unknown scheme"),
    ],
)
def test_what_is_not_there_is_said(text: str, words: str, tmp_path: Path, away: None) -> None:
    """Missing files, empty patterns, empty and mixed folders, URLs."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "both").mkdir()
    for name in ("a.csv", "b.parquet"):
        write(tmp_path / "both" / name)

    with pytest.raises(DataError, match=words):
        open_source(text)


def test_missing_and_twofold_columns_are_named(tmp_path: Path) -> None:
    """With the nearest name and all there are; a column that is there twice cannot be meant."""
    source = open_source(pa.table({"race": ["a"], "score": [0.1]}))
    twice = pa.table([[1], [2], [3]], ["s", "s", "t"])
    pq.write_table(twice, tmp_path / "d.parquet")

    with pytest.raises(ColumnError, match=r"no column 'scor'; did you mean 'score'\? it has: race, score"):
        source.require(["race", "scor"])
    for data in (twice, tmp_path / "d.parquet"):
        open_source(data).require(["t"])
        with pytest.raises(ColumnError, match="column 's' more than once"):
            open_source(data).require(["s"])


def test_a_second_file_without_the_column_is_named(tmp_path: Path) -> None:
    for kind in ("parquet", "csv", "arrow"):
        folder = tmp_path / kind
        folder.mkdir()
        write(folder / f"1.{kind}", pa.table({"g": ["a"], "s": [1]}))
        write(folder / f"2.{kind}", pa.table({"g": ["a"]}))
        with pytest.raises(DataError, match=rf"2\.{kind}.*s"):
            read(open_source(folder))


# ---------------------------------------------------------------------- writing


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_can_be_read(name: str, tmp_path: Path, frames: Frames) -> None:
    """By the file's name, packed where it says so, the same bytes each time."""
    table = pa.Table.from_pandas(frames(), preserve_index=False)
    written = []
    for _ in range(2):
        with (
            atomic_output(tmp_path / name) as file,
            table_writer(file, tmp_path / name, table.schema) as write,
        ):
            for batch in table.to_batches(max_chunksize=100):
                write(batch)
        written.append((tmp_path / name).read_bytes())

    assert read(open_source(tmp_path / name)).to_pydict() == table.to_pydict()
    assert written[0] == written[1]
    assert (written[0][:2] == b"\x1f\x8b") == name.lower().endswith(".gz")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_an_unknown_output_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="unknown kind of file"), atomic_output(tmp_path / "o.docx") as file:
        table_writer(file, tmp_path / "o.docx", ROWS.schema)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "table"), [("o.duckdb#chosen", "chosen"), ("o.duckdb", "decided")])
def test_a_new_database_is_refused_with_the_url_that_makes_it(name: str, table: str) -> None:
    with pytest.raises(DataError) as error:
        kind_written(name)
    url = str(error.value).split()[-1]
    check_new_table(url)
    assert url == f"duckdb:///o.duckdb#{table}"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_failed_output_leaves_the_old_one(error: type[BaseException], tmp_path: Path) -> None:
    """The file appears whole or stays as it was; nothing temporary remains."""
    path = tmp_path / "o.json"
    write_content(path, "old")

    def fail() -> None:
        with atomic_output(path) as file:
            file.write(b"half")
            assert path.read_text() == "old"
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["o.json"]


def test_places_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    for path, words in ((tmp_path, "is a folder"), (tmp_path / "no" / "o.txt", "cannot write")):
        with pytest.raises(DataError, match=rf"{path}.*{words}|{words}.*{path}"):
            write_content(path, "x")


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
@pytest.mark.parametrize(
    "kind", [pa.string_view(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]
)
def test_texts_of_a_later_file_may_be_of_another_type(
    kind: pa.DataType, ending: str, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The audit is that of one file, and a configuration is proposed."""
    monkeypatch.chdir(tmp_path)
    rows = pa.table({"race": ["a", "b"] * 100, "label": [0, 1, 1, 0] * 50, "score": [0.2, 0.7] * 100})
    halves = rows.slice(0, 80), rows.slice(80).set_column(0, "race", rows["race"].slice(80).cast(kind))
    (tmp_path / "parts").mkdir()
    for i, half in enumerate(halves):
        path = tmp_path / "parts" / f"{i}.{ending}"
        pq.write_table(half, path) if ending == "parquet" else feather.write_feather(half, path)

    results = [fairfix.audit(data, protected="race").to_dict() for data in ("parts", rows)]
    seen = [
        [
            (one["group"], one["rows"], one["metrics"]["selection_rate"])
            for one in made["attributes"][0]["groups"]
        ]
        for made in results
    ]
    assert seen[0] == seen[1]
    assert call("init", "parts")[0] == 0
