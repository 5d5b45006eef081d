"""The same table means the same in every format; what a library cannot bear ends as an error that names the file."""

from __future__ import annotations

import base64
import json
import re
import resource
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any

import fairfix
import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pyreadstat
import pytest
from fairfix.data import confined
from fairfix.data.encoder import group_codes
from fairfix.data.files import file_kinds, open_source
from fairfix.data.sources import json as json_lines
from fairfix.data.sources import typed_file
from fairfix.data.typed import column_of, told_apart
from fairfix.errors import ColumnError, DataError, UsageError
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data import read

Write = Callable[[pd.DataFrame, Path], None]


def people(rows: int = 400, seed: int = 1) -> pd.DataFrame:
    """Return rows with missing groups, unicode, codes, dates, truth values and numbers with gaps."""
    rng = np.random.default_rng(seed)
    score = rng.random(rows).round(3)
    return pd.DataFrame(
        {
            "race": rng.choice(["Black", "White", "Åsa 中", None], rows, p=[0.4, 0.3, 0.2, 0.1]),
            "sex": rng.choice([1, 2], rows),
            "age": np.where(rng.random(rows) < 0.1, np.nan, rng.integers(18, 90, rows)),
            "day": pd.to_datetime("2020-01-01") + pd.to_timedelta(rng.integers(0, 3, rows), "D"),
            "yes": rng.random(rows) < 0.5,
            "score": score,
            "label": (rng.random(rows) < score).astype(int),
        }
    )


def _plain(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame as statistics packages have it: without truth values, days as dates."""
    out = frame.copy()
    for name in out:
        if out[name].dtype == bool:
            out[name] = out[name].astype(int)
        elif out[name].dtype.kind == "M":
            out[name] = out[name].dt.date
    return out


def _stata(frame: pd.DataFrame, path: Path) -> None:
    texts = {name: frame[name].fillna("") for name in frame if frame[name].dtype.kind not in "iufbM"}
    frame.assign(**texts).to_stata(path, write_index=False, version=118)


def _labelled_stata(frame: pd.DataFrame, path: Path) -> None:
    coded = {name: frame[name].astype("category") for name in ("race",)}
    frame.assign(**coded).to_stata(path, write_index=False, version=118, byteorder="big")


def _labelled_spss(frame: pd.DataFrame, path: Path) -> None:
    """Write groups as codes with labels, and a user missing code."""
    names = sorted(set(frame["race"].dropna()))
    codes = frame["race"].map({name: float(i) for i, name in enumerate(names, 1)}).fillna(99.0)
    labels = {"race": {float(i): name for i, name in enumerate(names, 1)}}
    pyreadstat.write_sav(
        _plain(frame).assign(race=codes), path, variable_value_labels=labels, missing_ranges={"race": [99]}
    )


def _arff(frame: pd.DataFrame, path: Path) -> None:
    numeric = {name: frame[name].dtype.kind in "if" for name in frame}
    lines = ["% comment", "@RELATION 'a b'", ""]
    lines += [f"@Attribute '{name}' {'NUMERIC' if numeric[name] else 'string'}" for name in frame] + ["@data"]
    for row in frame.itertuples(index=False):
        entries = (
            "?" if pd.isna(one) else repr(one) if numeric[name] else f"'{_escaped(one)}'"
            for name, one in zip(frame, row, strict=True)
        )
        lines.append(", ".join(entries))
    path.write_text("\n".join(lines), encoding="utf-8")


def _escaped(entry: Any) -> str:
    return str(entry).replace("\\", "\\\\").replace("'", "\\'")


def _orc(frame: pd.DataFrame, path: Path) -> None:
    orc.write_table(pa.Table.from_pandas(frame, preserve_index=False), path, stripe_size=4096)


def _json(orient: str, **more: Any) -> Write:
    return lambda frame, path: frame.to_json(path, orient=orient, date_format="iso", **more)


def _xpt(frame: pd.DataFrame, path: Path) -> None:
    pyreadstat.write_xport(_plain(frame), path, file_format_version=5)


WAYS: dict[str, Write] = {
    "a.xlsx": lambda frame, path: frame.to_excel(path, index=False),
    "a.ods": lambda frame, path: frame.to_excel(path, index=False, engine="odf"),
    "a.dta": _stata,
    "labelled.dta": _labelled_stata,
    "a.xpt": _xpt,
    "a.sav": lambda frame, path: pyreadstat.write_sav(_plain(frame), path),
    "a.zsav": lambda frame, path: pyreadstat.write_sav(_plain(frame), path, compress=True),
    "labelled.sav": _labelled_spss,
    "a.arff": _arff,
    "a.orc": _orc,
    "a.jsonl": _json("records", lines=True),
    "lines.json": _json("records", lines=True),
    "records.json": _json("records"),
    "columns.json": _json("columns"),
    "split.json": _json("split"),
    "index.json": _json("index"),
    "table.json": _json("table", index=False),
}
"""Name of a file -> what writes a frame to it."""

SLOW = {"a.xlsx", "a.ods", "a.sav", "a.zsav", "labelled.sav"}
"""Files that are read in a process of their own."""


def audited(path: Path) -> dict[str, Any]:
    """Return the audit of a file without its name."""
    result = fairfix.audit(
        path,
        protected=["race", "sex"],
        label="label",
        score="score",
        missing=[f"{name}=group" for name in ("race", "sex", "day")],
        strata="day",
    ).to_dict()
    return json.loads(json.dumps(result).replace(json.dumps(path.name)[1:-1], "DATA"))


@pytest.mark.slow
@pytest.mark.parametrize("name", WAYS)
def test_a_table_means_the_same_in_every_format(name: str, tmp_path: Path) -> None:
    """The audit is equal to that of Parquet to the last bit, with missing values, unicode, labels and dates."""
    frame = people()
    WAYS[name](frame, tmp_path / name)
    frame.to_parquet(tmp_path / "a.parquet")

    assert audited(tmp_path / name) == audited(tmp_path / "a.parquet")


WORDS = st.text(st.sampled_from("ab'\"\\,%{}é中 01.?"), min_size=1, max_size=6).filter(
    lambda text: text.strip() == text
)


@st.composite
def tables(draw: st.DrawFn) -> pd.DataFrame:
    """Draw a table of groups that are texts, codes and truth values, some missing, with scores and labels."""
    rows = draw(st.integers(20, 60))
    names = draw(st.lists(WORDS, min_size=1, max_size=4, unique=True))
    race = draw(st.lists(st.sampled_from([*names, None]), min_size=rows, max_size=rows))
    label = [0, 1, *draw(st.lists(st.integers(0, 1), min_size=rows - 2, max_size=rows - 2))]
    score = draw(st.lists(st.integers(0, 1000), min_size=rows, max_size=rows))
    sex = draw(st.lists(st.sampled_from([1, 2, 10]), min_size=rows, max_size=rows))
    day = draw(st.lists(st.dates(date(1990, 1, 1), date(1990, 1, 3)), min_size=rows, max_size=rows))
    race[0] = names[0]
    return pd.DataFrame(
        {
            "race": pd.Series(race, dtype=object),
            "sex": sex,
            "day": pd.to_datetime(day),
            "score": np.array(score) / 1000,
            "label": label,
        }
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(WAYS) - SLOW))
@settings(max_examples=12, deadline=None)
@given(frame=tables())
def test_drawn_tables_mean_the_same(name: str, frame: pd.DataFrame) -> None:
    """Names with quotes, commas, signs of comments and digits are the same groups in every format."""
    with tempfile.TemporaryDirectory() as folder:
        one, other = Path(folder, name), Path(folder, "a.parquet")
        WAYS[name](frame, one)
        frame.to_parquet(other)
        assert named_rows(one) == named_rows(other)


def named_rows(path: Path) -> dict[str, list[Any]]:
    """Return the names and the scores that an audit reads."""
    coded = pa.dictionary(pa.int32(), pa.string())
    names = ["race", "sex", "day", "label"]
    types = {**dict.fromkeys(names, coded), "score": pa.float64()}
    table = read(open_source(path), [*names, "score"], types)
    out: dict[str, list[Any]] = {"score": table.column("score").to_pylist()}
    for name in names:
        codes, levels, _ = group_codes(table.column(name).combine_chunks(), name)
        out[name] = [levels[code] for code in codes]
    return out


# ---------------------------------------------------------------------- spreadsheets


def book(path: Path, **sheets: list[list[Any]]) -> Path:
    """Write a workbook of sheets of rows."""
    made = openpyxl.Workbook()
    made.remove(made.active)
    for name, rows in sheets.items():
        sheet = made.create_sheet(name)
        for row in rows:
            sheet.append(row)
    made.save(path)
    return path


ROWS = [["g", "s"], ["a", 0.5], ["b", 1]]


def test_titles_empty_edges_and_repeated_heads(tmp_path: Path) -> None:
    """A header is found below titles; empty rows and columns go; heads are names, kept apart."""
    rows = [
        ["Report"],
        [],
        ["by", "X"],
        ["g", None, 2019, "g", None, True],
        ["a", None, 1, "x"],
        [],
        ["b", 3, 2.5, None],
    ]
    source = open_source(book(tmp_path / "a.xlsx", one=rows))

    assert source.columns == ("g", "Unnamed: 1", "2019", "g.1", "True")
    assert read(source, ["g", "Unnamed: 1", "2019", "g.1"]).to_pydict() == {
        "g": ["a", "b"],
        "Unnamed: 1": [None, 3],
        "2019": [1.0, 2.5],
        "g.1": ["x", None],
    }
    assert "row 4" in source.remark


@pytest.mark.slow
def test_sheets_are_named(tmp_path: Path) -> None:
    """One with a table is taken; of several, each can be typed as the error has it."""
    one = book(tmp_path / "one.xlsx", notes=[["by X"]], data=ROWS, empty=[])
    two = book(tmp_path / "two.xlsx", **{"first": ROWS, "the second": [["h"], [1], [2]], "third": ROWS[::-1]})

    assert open_source(one).columns == ("g", "s")
    assert "'data'" in open_source(one).remark
    with pytest.raises(DataError, match="first") as error:
        open_source(two)
    typed = re.search(r"'([^']*#[^']*)'", str(error.value))
    assert typed is not None
    assert open_source(tmp_path / typed[1]).columns == ("g", "s")
    assert open_source(f"{two}#the%20second").columns == ("h",)
    assert open_source(f"{two}#the%20second").columns == open_source(f"{two}#the second").columns
    with pytest.raises(DataError, match="frist"):
        open_source(f"{two}#frist")
    with pytest.raises(UsageError):
        open_source(two, delimiter=";")
    pq.write_table(pa.table({"g": [1]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="leave out #x"):
        open_source(f"{tmp_path / 'a.parquet'}#x")
    (tmp_path / "b.xlsx#x.csv").write_text("g\n1\n")
    assert open_source(tmp_path / "b.xlsx#x.csv").columns == ("g",)


def test_cells_of_every_kind(tmp_path: Path) -> None:
    """Numbers as text, truth values, times, errors, merged and mixed cells."""
    rows = [["id", "text", "yes", "when", "error", "merged", "mixed", "code"]]
    rows += [
        [1, "0.5", True, datetime(2020, 1, 2, 3), "#N/A", "a", "x", "01"],
        [2, 1, False, date(2020, 1, 3), 1, None, 1, "1"],
        [3, "2", None, None, 2, "b", True, 1],
    ]
    path = book(tmp_path / "a.xlsx", one=rows)
    made = openpyxl.load_workbook(path)
    made["one"]["E2"].data_type = "e"
    made["one"].merge_cells("F2:F3")
    made.save(path)
    table = read(open_source(path)).to_pydict()

    assert table == {
        "id": [1, 2, 3],
        "text": [0.5, 1.0, 2.0],
        "yes": [True, False, None],
        "when": [datetime(2020, 1, 2, 3), datetime(2020, 1, 3), None],
        "error": [None, 1, 2],
        "merged": ["a", "a", "b"],
        "mixed": ["x", "1", "True"],
        "code": ["01", "1", "1"],
    }


def test_a_text_among_numbers_is_named_where_it_is_used(tmp_path: Path) -> None:
    """As a score it is an error with row and value; as a group it is a name, and without a role it stops nothing."""
    rows = [
        ["g", "label", "score", "note"],
        *([i % 2, i // 2 % 2, i / 100, [i % 3, "x"][i % 2]] for i in range(60)),
    ]
    path = book(tmp_path / "a.xlsx", one=rows)
    assert fairfix.audit(path, protected="note", label="label", score="score").to_dict()
    rows[8][2] = "n.k."
    book(path, one=rows)
    with pytest.raises(DataError, match=r"'score' holds 'n\.k\.' at row 8 of a\.xlsx"):
        fairfix.audit(path, protected="g", label="label", score="score")


def rezipped(path: Path, inner: str, change: Callable[[bytes], bytes]) -> None:
    """Change a file inside an archive."""
    with zipfile.ZipFile(path) as old:
        parts = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name, content in parts.items():
            new.writestr(name, change(content) if name == inner else content)


FAR = b'<row r="1048576"><c r="XFD1048576"><v>1</v></c></row></sheetData>'


def test_a_far_cell_takes_no_memory_of_ours(tmp_path: Path) -> None:
    """A library that takes memory for all cells between ends alone; the error names the file."""
    path = book(tmp_path / "far.xlsx", one=ROWS)
    rezipped(path, "xl/worksheets/sheet1.xml", lambda text: text.replace(b"</sheetData>", FAR))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    with pytest.raises(DataError, match=r"far\.xlsx"):
        open_source(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10  # KiB


@pytest.mark.slow
def test_what_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    """An archive is refused by the sizes it declares, before it is unpacked."""
    path = book(tmp_path / "bomb.xlsx", one=ROWS)
    with (
        zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive,
        archive.open("x", "w", force_zip64=True) as file,
    ):
        for _ in range(1 + confined.BYTES // (1 << 24)):
            file.write(bytes(1 << 24))
    with pytest.raises(DataError, match=r"bomb\.xlsx is too large"):
        open_source(path)


@pytest.mark.slow
def test_a_library_that_ends_its_process_is_an_error(tmp_path: Path) -> None:
    """A crash and a panic in the other process are errors that name the file."""
    path = book(tmp_path / "a.xlsx", one=ROWS)
    place = open_source(path).places[0]  # type: ignore[attr-defined]  # a file has places
    for reader in ("os:abort", "faulthandler:_sigsegv", "no_such_module:read"):
        with pytest.raises(DataError, match=r"a\.xlsx"):
            confined.read_confined(place, "Excel", reader)


@pytest.mark.slow
def test_whole_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several files share one bound; the error says what to save them as."""
    for name in "ab":
        book(tmp_path / f"{name}.xlsx", one=ROWS)
    assert read(open_source(tmp_path)).num_rows == 4
    monkeypatch.setattr(typed_file, "BYTES", 40)
    with pytest.raises(DataError, match="Parquet"):
        open_source(tmp_path)


@pytest.mark.parametrize(("name", "extra"), [("a.xlsx", "excel"), ("a.sav", "spss")])
def test_a_missing_extra_is_named(
    name: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    WAYS[name](people(20), tmp_path / name)
    monkeypatch.setattr(typed_file, "find_spec", lambda module: None)
    with pytest.raises(DataError, match=re.escape(f"pip install 'fairfix[{extra}]'")):
        open_source(tmp_path / name)


# ---------------------------------------------------------------------- JSON


def test_records_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that a record lacks is missing; nested and mixed columns stop nothing; long integers stay exact."""
    rows = [
        {"g": "a", "n": {"x": 1}, "m": 1, "id": 2**63},
        {"g": None, "m": "z", "l": [1]},
        {"id": 2**53 + 1, "f": 0.5},
    ]
    monkeypatch.setattr(json_lines, "BLOCK", 16)
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    (tmp_path / "a.json").write_text("\ufeff" + json.dumps(rows), encoding="utf-8")
    for name in ("a.jsonl", "a.json"):
        source = open_source(tmp_path / name)
        assert source.rows == 3
        assert read(source, ["g", "m", "id", "f"]).to_pydict() == {
            "g": ["a", None, None],
            "m": ["1", "z", None],
            "id": [str(2**63), None, str(2**53 + 1)],
            "f": [None, None, 0.5],
        }
        assert read(source, ["n"]).to_pydict() == {"n": [{"x": 1}, None, None]}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", '[{"a": 1}, {"a": 1, "a": 2}]'),
        ("a.jsonl", '{"a": 1, "a": 2}\n'),
        ("a.json", '{"x": [1], "x": [2]}'),
        ("a.json", '[{"a": 1}, {"a":'),
        ("a.json", '[{"a": 1} {"a": 2}]'),
        ("a.json", '[{"a": 1}] x'),
        ("a.json", "[1, 2]"),
        ("a.json", "[[1, 2]]"),
        ("a.json", "3"),
        ("a.json", ""),
        ("a.json", "[" * 100_000),
        ("a.jsonl", '{"a":' * 100_000),
        ("a.jsonl", '{"a": 1}\n[2]\n'),
        ("a.jsonl", '{"a": "\udcff"}\n'),
        ("a.json", '{"a": [1, 2], "b": [1]}'),
        ("a.jsonl", '{"a": ' + "[" * 200_000 + "]" * 200_000 + '}\n{"a": []}\n'),
        ("a.json", "\ufffe" + "[]"),
    ],
)
def test_damaged_json_is_named(name: str, text: str, tmp_path: Path) -> None:
    """Keys that are there twice, ends that are missing, what holds no table."""
    (tmp_path / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(DataError, match=re.escape(name)):
        open_source(tmp_path / name)


def test_keys_are_compared_a_few_times_each() -> None:
    """However many an object has."""
    compared = 0

    class Key(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, str(other))

        __hash__ = str.__hash__

    pairs = [(Key(i), 0) for i in (*range(1000), 999)]
    with pytest.raises(ValueError, match="'999'"):
        json_lines._unrepeated(pairs)
    assert compared < 10 * len(pairs)


# ---------------------------------------------------------------------- statistics packages, ARFF


def test_labels_name_groups_and_codes_stay_numbers(tmp_path: Path) -> None:
    """Where each value has a label, the labels are the values; where some have none, only names take them."""
    frame = pd.DataFrame({"g": [1.0, 2.0, 1.0], "age": [30.0, -9.0, 40.0]})
    labels = {"g": {1: "one", 2: "two"}, "age": {-9: "refused"}}
    pyreadstat.write_sav(frame, tmp_path / "a.sav", variable_value_labels=labels)
    frame.to_stata(
        tmp_path / "a.dta", write_index=False, value_labels={"g": labels["g"], "age": labels["age"]}
    )
    for name in ("a.sav", "a.dta"):
        source = open_source(tmp_path / name)
        assert read(source).to_pydict() == {"g": ["one", "two", "one"], "age": [30, -9, 40]}
        coded = pa.dictionary(pa.int32(), pa.string())
        assert read(source, ["age"], {"age": coded}).to_pydict() == {"age": ["30", "refused", "40"]}
        assert read(source, ["g"], {"g": pa.float64()}).to_pydict() == {"g": [1, 2, 1]}


SAS = (
    "c-rmV&ubi2902gQ$=0kGG=YWYQ0P!2^dOQnK`InYYNDw|Q<{Pbf`(*kLVj-&d$OWeJ*f05c<>Jp^x#DhFP@4NJSY_G"
    "!GrYVsoFNpI<q^I%x=>kDPj>mAJ}}q^X7fud-LY8drSyBez@|%+h3QvfBNpTQh4~s{*QYOc6A>*6b1$gZAXgRz1j;+"
    "?E{6!2g0)<bhQ_<9+Sh9(F-TWN5_Uo#z)_X?%T-l>ER?MW6pm1#NPu~ejUzYeWLRhzu$?;^o3B!J<l^w^$qs*ztaEu"
    "(}QmvJ$Y&(+^1yD-rrvOJo~iXe|~=RLVk?_0000000000000000000000000000000000000000000000000000000"
    "00000000000000000000007{B==l8Rg)IN@YW$~de|Rho(N+kT3yt=2oOh;ue%}nCFKyqv5yBry5?_B6=i_NU7U#2R"
    "-Wlh|()^d}Aq=MDe3{Eva`~}bUdrV^U)#yQXvx#zbN+np&apg{U7v{>(!!zLV^-I7o4Qg<zt;M!t~AtK*VWRmWt@w("
    "TGk#l)s=6vuJSGOE;iNmwA?Qb?OtDQsXH*V`~H<$>RacFZnF>NyUYgw0000000000000000000000000000000002|"
    "HwvNMCICRQb0I|WZ)B9jwnC`2xO}d^H|dr|00000000000000000000000000000000000004N9wr<pF_tx{<(7WfF"
    "^Wos0YgR(E=bG_7)eMD>J?}wZDBb72<!WlRT3@*Iev%)KKONzbP}p9}zW7tCZPnWAcS0zJhjO)>aqXMA>-uVng?h~L"
    "zU{m%bmiK6a(R@?59jhs@;}*!wy%0aTWGAd@$^U2HI1e13u*i$jo+lP;buJ6rQCJYVr2OA@Z{;ylXEj6oL#QYugxy6"
    "yf$&_<;k&$lkZfPW-8Tq1uu@iIx>1HtoDa+dbSeHEv>CrH>TH@tI^r1wdibRVIf+nR#v8}m6_EexAd7_UR>N*nwy?l"
    "ugugtuMRZ&OfPR#*DBFse4{!ywNM{ywz9BtW@90&4u&xCZlyZ4u<&GbB096Yu{0B{$3@8^XV;cjqK&mm(lPgPF4f;y"
    "XgOJT*4eT1Zj(2V>}?irrftQvt(d->LV8lNxRthbq-{xzkLE3B^ZG7r*J^t|!~ce>v236IihUFxn(p+vyYEo(Xm&1B"
    "S>NQm_SCb+d0i?t_N4ZJp5tzg&u?D1*S^UUwWaaVG<KzNe;P}Bn!Qv%GY#cjZD&0{aF3%E<C&9hnck+>_liy5L(TT("
    "Fa81Tt3j*"
)
"""A data set of eight rows that SAS wrote (hadley.sas7bdat of haven, MIT), packed: nothing in Python writes one."""


def test_a_data_set_of_sas(tmp_path: Path) -> None:
    """Numbers, texts, and blank texts as missing; a row that is cut off, or bytes that are changed, are named."""
    content = zlib.decompress(base64.b85decode(SAS))
    (tmp_path / "a.sas7bdat").write_bytes(content)
    table = read(open_source(tmp_path / "a.sas7bdat"), ["id", "gender", "q1"]).to_pydict()
    assert table["id"] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert set(table["gender"]) == {"f", "m", None}
    assert table["q1"][0] == 1
    for damaged in (content[: len(content) // 2], content[:300], content[:30] + bytes(200) + content[230:]):
        (tmp_path / "b.sas7bdat").write_bytes(damaged)
        with pytest.raises(DataError, match=r"b\.sas7bdat"):
            read(open_source(tmp_path / "b.sas7bdat"))


@pytest.mark.parametrize("version", [114, 117, 118, 119])
@pytest.mark.parametrize("order", ["big", "little"])
def test_stata_of_every_version(version: int, order: str, tmp_path: Path) -> None:
    """Old and new, of either order of bytes; missing codes are missing."""
    frame = pd.DataFrame({"g": ["a", "b"], "x": [1.5, np.nan]})
    frame.to_stata(tmp_path / "a.dta", write_index=False, version=version, byteorder=order)

    assert read(open_source(tmp_path / "a.dta")).to_pydict() == {"g": ["a", "b"], "x": [1.5, None]}


@pytest.mark.parametrize(
    "rows", ["{0 1, 1 a}", "1", "1,a,b", "x,a", "1,'a", "1,a,{2}", "'1'," + " " * 100_000 + '"a']
)
def test_odd_rows_of_arff_are_named(rows: str, tmp_path: Path) -> None:
    """Sparse rows, too few and too many values, texts among numbers, quotes that do not end."""
    text = f"@relation r\n@attribute x numeric\n@attribute g {{a, b}}\n@data\n1,a\n{rows}\n"
    (tmp_path / "a.arff").write_text(text)
    with pytest.raises(DataError, match=r"row 2"):
        read(open_source(tmp_path / "a.arff"))


def test_arff_headers(tmp_path: Path) -> None:
    """Comments, quoted names, names that repeat, and a mark of missing values in quotes, which is a name."""
    head = "%c\n@relation r\n\n@ATTRIBUTE 'a b' REAL\n@attribute \"it's\" {x,'?'}\n"
    head += "@attribute x date 'yyyy'\n@attribute x string\n"
    (tmp_path / "a.arff").write_text(head + "@DATA\n% c\n1.5, '?', 2020, ?\n?,\tx,?,'a\\'b'\n")
    assert read(open_source(tmp_path / "a.arff")).to_pydict() == {
        "a b": [1.5, None],
        "it's": ["?", "x"],
        "x": ["2020", None],
        "x.1": [None, "a'b"],
    }
    for text in ("@relation r\n@data\n1\n", "@relation r\n@attribute a numeric\n"):  # other text is CSV
        (tmp_path / "b.arff").write_text(text)
        with pytest.raises(DataError, match=r"b\.arff"):
            open_source(tmp_path / "b.arff")


# ---------------------------------------------------------------------- every format


@pytest.mark.slow
@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("part", [0.0, 0.4, 0.9])
def test_what_breaks_off_is_named(name: str, part: float, tmp_path: Path) -> None:
    """A file that ends too early is an error that names it, or whole records of a format that counts none."""
    path = tmp_path / name
    WAYS[name](people(60), path)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * part)])
    countless = name.endswith((".arff", ".xpt")) and part
    try:
        table = read(open_source(path), ["race", "score"])
    except DataError as error:
        complaint = str(error)
    else:
        complaint = name if countless and table.num_rows < 60 else f"{table.num_rows} rows were read"
    assert name in complaint


@pytest.mark.slow
@pytest.mark.parametrize("name", WAYS)
def test_a_column_that_is_not_there_is_named(name: str, tmp_path: Path) -> None:
    """The error is the one of all formats, and nothing is written in a format that is only read."""
    WAYS[name](people(20), tmp_path / name)
    source = open_source(tmp_path / name)
    with pytest.raises(ColumnError, match="'rave'"):
        source.parts(["rave"])
    kind = file_kinds()[Path(name).suffix]
    with pytest.raises(DataError, match="read, not written"):
        kind.writer(None, tmp_path / name, source.schema)  # type: ignore[arg-type]  # no file is opened


@given(st.lists(st.sampled_from(["x", "x.1", "x.1.1", "y"]), max_size=9))
def test_names_are_told_apart(names: list[str]) -> None:
    """Each is there once, and the first of each name keeps it unless an earlier one took it."""
    out = told_apart(names)
    assert len(set(out)) == len(out) == len(names)
    assert all(own.startswith(name) for own, name in zip(out, names, strict=True))


@given(st.lists(st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates(), max_size=9))
def test_any_values_make_a_column(entries: list[Any]) -> None:
    """A column of any values has a type, and what is missing stays missing."""
    for numerals in (False, True):
        column = column_of(entries, numerals=numerals)
        assert len(column) == len(entries)
        assert all(
            one is None for one, entry in zip(column.to_pylist(), entries, strict=True) if entry is None
        )
