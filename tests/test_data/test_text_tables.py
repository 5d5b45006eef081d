"""Text tables: whatever a table is written like, the same rows are read; what is refused names a way on that works."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import shlex
from pathlib import Path
from typing import Any

import fairfix
import numpy as np
import pyarrow as pa
import pytest
from fairfix.cli import main
from fairfix.data import text_stream
from fairfix.data.encodings import encoding_of
from fairfix.data.files import open_source
from fairfix.errors import ColumnError, DataError, UsageError
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data import columns_read
from tests.strategies import examples

LIBRARY: Any = fairfix

LANGUAGES = {
    "cp1252": "Männer,Größe,été,élève,garçon,niño,región,São Paulo,José,Ålesund,hombre,femme",
    "cp1250": "Łódź,Żółć,mężczyzna,kobieta,śląskie,ženy,Dvořák,Říha,nő,férfi",
    "cp1251": "Москва,мужчина,женщина,раса,пол",
    "cp1253": "άνδρας,γυναίκα,Αθήνα,Πάτρα",
    "cp1254": "kadın,erkek,İstanbul,şehir,doğu",
    "mac_roman": "Männer,été,élève,niño,región,São Paulo",
    "cp850": "Männer,Größe,été,niño",
    "koi8-r": "Москва,мужчина,женщина,раса",
    "shift_jis": "男性,女性,カテゴリ,東京",
    "euc_jp": "男性,女性,カテゴリ,東京",
    "gbk": "男,女,北京,上海,汉族,其他",
    "big5": "男性,女性,臺北,漢族,其他",
    "cp949": "남성,여성,서울,부산",
}
UNICODE = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be")


# ---------------------------------------------------------------------- any writing, the same table


@st.composite
def writings(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a table of names, numbers and labels, and a way to write it."""
    encoding = draw(st.sampled_from([*UNICODE, *LANGUAGES]))
    words = LANGUAGES.get(encoding, "Männer,女性,Москва,a b").split(",")
    n = draw(st.integers(4, 25))
    delimiter = draw(st.sampled_from([",", ";", "\t", "|", " "]))
    return {
        "encoding": encoding,
        "words": words,
        "group": [*words, *draw(st.lists(st.sampled_from(words), min_size=n, max_size=n)), words[0]],
        "seed": draw(st.integers(0, 2**20)),
        "delimiter": delimiter,
        "decimal": draw(st.sampled_from(".," if delimiter != "," else ".")),
        "padded": draw(st.booleans()) and delimiter != "\t",
        "header": draw(st.booleans()),
        "comments": draw(st.booleans()),
        "titles": draw(st.booleans()) and delimiter != " ",
        "trailing": draw(st.integers(0, 2)) if delimiter != " " else 0,
        "trailing_names": draw(st.booleans()),
        "quoted": draw(st.booleans()),
        "ends": draw(st.sampled_from(["\n", "\r\n", "\r"])),
        "footer": draw(st.booleans()) and delimiter != " ",
        "packed": draw(st.booleans()),
        "ending": draw(st.sampled_from(["csv", "tsv"])),
    }


def columns_of(world: dict[str, Any]) -> dict[str, list[Any]]:
    """Return the rows of a world."""
    rng, n = np.random.default_rng(world["seed"]), len(world["group"])
    return {
        world["words"][0] + "_g": world["group"],
        "score": [round(float(one), 3) + 0.0004 for one in rng.random(n)],
        "n": rng.integers(1, 90, n).tolist(),
        "label": rng.integers(0, 2, n).tolist(),
    }


def text_of(world: dict[str, Any]) -> str:
    """Return the rows of a world as it writes them."""
    out, columns = io.StringIO(newline=""), columns_of(world)
    runs = "   " if world["padded"] and world["delimiter"] == " " else ""
    blanks = " " if world["padded"] and world["delimiter"] != " " else ""
    more = [""] * world["trailing"]
    if world["comments"]:
        out.write("# made by a program\n")
    if world["titles"]:
        out.write(f"Report of 2024{world['delimiter'] * (3 + len(more))}\n\n")
    rows = [list(columns)] * world["header"] + [list(row) for row in zip(*columns.values(), strict=True)]
    for at, row in enumerate(rows):
        cells = [
            str(cell).replace(".", world["decimal"]) if isinstance(cell, float) else str(cell) for cell in row
        ]
        cells = [
            f'"{one}"' if " " in one or (world["quoted"] and i == 0) else one for i, one in enumerate(cells)
        ]
        without = at == 0 and world["header"] and len(more) == 1 and not world["trailing_names"]
        out.write((world["delimiter"] + blanks + runs).join([*cells, *more[without:]]) + "\n")
    if world["footer"]:
        out.write("\nTotal rows: many\n")
    return out.getvalue().replace("\n", world["ends"])


@settings(max_examples=examples(300))
@given(world=writings())
def test_however_a_table_is_written_the_same_rows_are_read(
    world: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Detected as well as stated; names and groups are right in any encoding."""
    path = tmp_path_factory.mktemp("written") / f"d.{world['ending']}{'.gz' * world['packed']}"
    data = text_of(world).encode(world["encoding"])
    path.write_bytes(gzip.compress(data) if world["packed"] else data)
    wanted = columns_of(world)
    if not world["header"]:
        wanted = {f"c{i + 1}": column for i, column in enumerate(wanted.values())}
    by_name = {"\t": "tab", " ": "blank"}
    stated = {
        "delimiter": by_name.get(world["delimiter"], world["delimiter"]),
        "decimal": world["decimal"],
        "encoding": world["encoding"],
        "header": world["header"],
    }
    for options in ({}, stated):
        source = open_source(path, **options)
        assert columns_read(source, None, {source.columns[0]: pa.string()}) == wanted
        own = {"csv": ",", "tsv": "\t"}[world["ending"]]
        usual = world["encoding"] in ("utf-8", "utf-8-sig") and world["delimiter"] == own and world["header"]
        assert source.remark or usual or options
        told = f"{world['delimiter']!r} between columns" in source.remark
        assert told or options or world["delimiter"] not in ";|"


@pytest.mark.parametrize("encoding", [*UNICODE, *LANGUAGES])
def test_the_encoding_of_each_language_is_found(encoding: str) -> None:
    """By its words alone, with ASCII around them; an ending inside a character changes nothing."""
    words = LANGUAGES.get(encoding, LANGUAGES["cp1252"]).split(",")
    text = "race,sex,score\n" + "".join(f"{word},a,0.5\n" for word in words * 5)
    data = text.encode(encoding)

    found_ = encoding_of(data, whole=True)
    assert codecs.decode(data, "utf-8-sig" if found_ == "utf-8" else found_) == text
    assert encoding_of(data[:-1], whole=False) == found_ or encoding.startswith("utf-")


@pytest.mark.parametrize("unused", ["id", "notes"])
def test_unused_columns_stop_nothing(unused: str, tmp_path: Path) -> None:
    """Whatever they hold: bytes that are no text, other types behind the first block, a repeated name."""
    rows = [f"{i},{'ab'[i % 2]},{i % 7 / 7:.3f},{i % 3 // 2},{i}" for i in range(60_000)]
    rows[50_000:50_003] = ["x,a,0.5,1,n/a", "7;8,b,0.5,0,$5", ",a,0.5,1,"]
    data = "\n".join([f"{unused},group,score,label,{unused}", *rows]).encode() + b"\n\xff\xfe,a,0.25,1,\xe4\n"
    (tmp_path / "d.csv").write_bytes(data)

    result = LIBRARY.audit(str(tmp_path / "d.csv"), protected="group")
    assert result.to_dict()["data"]["rows"]["used"] == 60_001


def test_repeated_names_are_one_column_where_their_entries_are_equal(tmp_path: Path) -> None:
    """In all rows, also behind the head; else each has a number, and the name alone is refused with them."""
    for n in (10, 20_000):
        same = [f"{i % 10},a,{i % 10}" for i in range(n)]
        (tmp_path / "same.csv").write_text("\n".join(["s,g,s", *same]))
        (tmp_path / "other.csv").write_text("\n".join(["s,g,s", *same, "1,b,2"]))
        source = open_source(tmp_path / "same.csv")
        assert source.columns == ("s", "g", "s.1")
        assert "'s'" in source.remark
        source.require(["s"])
        source = open_source(tmp_path / "other.csv")
        assert source.columns == ("s.0", "g", "s.1")
        with pytest.raises(ColumnError, match=r"'s\.0'.*'s\.1'"):
            source.require(["s"])
        assert columns_read(source)["s.1"][-1] == 2


def test_columns_without_names(tmp_path: Path) -> None:
    """An index has a name of its own, and cannot be in the way; no name is given twice."""
    (tmp_path / "d.csv").write_text(",g,Unnamed: 3,,,\n0,a,7,x,,\n1,b,8,y,,\n")
    source = open_source(tmp_path / "d.csv")

    assert source.columns == ("Unnamed: 0", "g", "Unnamed: 3", "Unnamed: 3.1")
    assert columns_read(source)["Unnamed: 3.1"] == ["x", "y"]


FIRST = ("Lake,0.33,0.02,0.33,1", "Lake,0.33,?,0.33,1", "town,2019,2020,2021,2022", "town,a,b,0.5,0.5")
TOWNS = "".join(f"T{i},{i / 40},{i / 50},{i / 60},{i % 3}\n" for i in range(30))


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("39, State-gov, 77516\n50, Private, 83311\n38, State-gov, 215646\n", False),
        ("b,30.83,0,+\na,58.67,4.46,+\nb,?,0.5,-\n", False),
        ("6,148,72,33.6,1\n1,85,66,26.6,0\n", False),
        ("p,x,s,n\ne,x,s,y\np,b,y,n\ne,x,s,n\n", False),
        ("g,2019,2020\na,1,2\nb,3,4\n", True),
        ("0,1,2\n0.5,1.5,2.5\n3.5,4.5,5.5\n", True),
        ("2019,2020\n17,18\n19,20\n", True),
        ("g,s\na,1\ng,s\nb,2\n", True),
        ("a,b\n", True),
        *((f"{first}\n{TOWNS}", first[:4] == "town") for first in FIRST),
    ],
)
def test_a_first_row_of_data_is_told_from_names(text: str, header: bool, tmp_path: Path) -> None:
    """Numbers in columns of numbers beside texts that come again, or that are equal, are a row; both can be stated."""
    (tmp_path / "d.csv").write_text(text)
    columns = len(text.split("\n", 1)[0].split(","))
    numbered = tuple(f"c{i + 1}" for i in range(columns))

    assert (open_source(tmp_path / "d.csv").columns == numbered) is not header
    assert open_source(tmp_path / "d.csv", header=False).columns == numbered
    assert open_source(tmp_path / "d.csv", header=True).columns != numbered


@pytest.mark.parametrize("mark", ["?", "NA", "N/A", "-", ".", "", '""', "None"])
@pytest.mark.parametrize("late", [False, True])
def test_marks_of_missing_values_are_no_text_in_numbers_and_labels(
    mark: str, late: bool, tmp_path: Path
) -> None:
    """In the head as well as behind it; a group of that name stays a group."""
    rows = [f"{'ab'[i % 2]},{i % 7 / 7:.3f},{i % 3 // 2}" for i in range(8000 if late else 50)]
    rows[-2:] = [f"a,{mark},1", f"b,0.5,{mark}"]
    (tmp_path / "d.csv").write_text("\n".join(["group,score,label", *rows]) + "\n")
    result = LIBRARY.audit(str(tmp_path / "d.csv"), protected="group", missing="drop")

    assert result.to_dict()["data"]["rows"]["used"] == len(rows) - 2


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["87.3%", "2.0%"], [87.3, 2.0]),
        (["$1,200", "$15"], [1200.0, 15.0]),
        (["(5.0)", "3.5"], [-5.0, 3.5]),
        (["-$5.50", "$7.25"], [-5.5, 7.25]),
        (["($1,200.50)", "$3.00"], [-1200.5, 3.0]),
        (["EUR 800", "EUR 900"], [800.0, 900.0]),
        (["12 %", "13 %"], [12.0, 13.0]),
        (["$12", "€13"], None),
        (["12%", "0.13"], None),
    ],
)
def test_numbers_with_a_unit(cells: list[str], numbers: list[float] | None, tmp_path: Path) -> None:
    """They are numbers where all have the same unit; else the column is refused by name where it has a role."""
    with (tmp_path / "d.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["g", "x"], *(["a", cell] for cell in cells)])
    source = open_source(tmp_path / "d.csv")
    if numbers is None:
        with pytest.raises(DataError, match="'x'"):
            source.parts(["x"], {"x": pa.float64()})
    else:
        assert columns_read(source)["x"] == numbers
        assert "'x'" in source.remark


# ---------------------------------------------------------------------- a refusal names a way on

GOOD = [f"{i},{'ab'[i % 2]},{i % 7 / 7:.3f},{i % 3 // 2}" for i in range(300)]
NAMES = "id,group,score,label"


def broken(row: str, data: bytes | None = None) -> bytes:
    """Return a table with a row that is wrong in its middle."""
    lines = [NAMES, *GOOD]
    lines[150:150] = [row]
    return data if data is not None else "\n".join(lines).encode() + b"\n"


REFUSED: dict[str, bytes] = {
    "late byte": ("\n".join([NAMES, *GOOD * 30]) + "\n").encode() + "1,Männer,0.5,1\n".encode("cp1252"),
    "late cyrillic": ("\n".join([NAMES, *GOOD * 30]) + "\n").encode() + "1,Москва,0.5,1\n".encode("cp1251"),
    "percent": ("\n".join([NAMES, *(f"{i},{'ab'[i % 2]},{i % 90}.5%,{i % 2}" for i in range(99))])).encode(),
    "missing": broken("1,a,?,1"),
    "repeated": (
        "\n".join(["id,group,score,label,group", *(f"{one},{i % 3}" for i, one in enumerate(GOOD))])
    ).encode(),
    "header": ("\n".join(f"{i / 7:.2f},{'ab'[i % 2]}{i % 2},{i % 2}" for i in range(3, 90))).encode(),
}
"""What options can mend."""


@pytest.mark.parametrize("fault", REFUSED)
def test_the_option_that_a_refusal_proposes_gets_further(
    fault: str, tmp_path: Path, away: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Typed as it is printed, it runs to a report, or to another message."""
    (tmp_path / "d.csv").write_bytes(REFUSED[fault])
    words = ["audit", "d.csv", "--config", "none", "--protected", "group"]

    def run() -> tuple[int, str]:
        with pytest.raises(SystemExit) as end:
            main(words)
        return int(end.value.code or 0), capsys.readouterr().err

    before = ""
    for _ in range(4):
        status, message = run()
        if status == 0:
            break
        error = message[message.rindex("fairfix: ") :]
        assert error != before
        before = error
        if copied := re.search(r"to copy: fairfix (.*)", error):
            words = shlex.split(copied[1])
        elif fault == "header":
            words = [one if one != "group" else re.findall(r"(c\d) \(", error)[1] for one in words]
            words += ["--prediction", re.findall(r"(c\d) \(", error)[2]]
        elif again := re.search(r"write '(\S+)' for the first", error):
            words[words.index("group")] = again[1]
        else:
            option = re.search(r"--[a-z][a-z-]*(?: (?!\(|or\b)[\w.-]+)?", error)
            assert option, error
            words += shlex.split(option[0])
    assert status == 0, message


def test_what_only_the_file_can_mend_is_named_with_its_row(tmp_path: Path) -> None:
    """Row, cells found and expected; the file with that row mended as the message says is read."""
    path = tmp_path / "d.csv"
    for row, words in (
        ("1,a,0.5,1,9", r"row 150 .* 5 cells.* 4 columns.*quotes"),
        ("1,a,0.5", r"row 150 .* 3 cells.* 4 columns.*remove it"),
        ('1,"a,0.5,1', r"line 151 .*quote"),
        ("1;a;0.5;1", r"row 150 .* 1 cells"),
    ):
        path.write_bytes(broken(row))
        with pytest.raises(DataError, match=words):
            LIBRARY.audit(str(path), protected="group")
    path.write_bytes(broken("1,a,0.5,1"))
    assert LIBRARY.audit(str(path), protected="group").to_dict()["data"]["rows"]["used"] == 301


@pytest.mark.slow
@pytest.mark.parametrize("size", [50, 60_000])
@pytest.mark.parametrize("at", [0.01, 0.5, 0.999])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("row", ['1,a,0.5,"1,text', '1,a,0.5,1,"text'])
def test_a_quote_without_end_swallows_no_rows(
    row: str, size: int, at: float, packed: bool, tmp_path: Path
) -> None:
    """Wherever it opens, be it in a column that is not used: its line is named."""
    lines = [f"{i},{'ab'[i % 2]},{i % 7 / 7:.3f},{i % 3 // 2},some more text" for i in range(size)]
    lines[int(at * size)] = row
    data = "\n".join(["id,group,score,label,text", *lines]).encode()
    path = tmp_path / ("d.csv.gz" if packed else "d.csv")
    path.write_bytes(gzip.compress(data) if packed else data)
    with pytest.raises(DataError, match=rf"line {int(at * size) + 2:,} "):
        LIBRARY.audit(str(path), protected="group")


@pytest.mark.parametrize("cells", ["x", ",", '"x'])
def test_a_line_without_end_is_named_before_the_rest_is_read(cells: str, tmp_path: Path) -> None:
    """What follows in the file is damaged, and nobody gets there."""
    data = "group,score,label\na,0.5,1\nb,0.6,0\n" + cells * 40_000_000
    (tmp_path / "d.csv.gz").write_bytes(gzip.compress(data.encode(), 1)[:-30])
    with pytest.raises(DataError, match=r"line 4 of d\.csv\.gz"):
        columns_read(open_source(tmp_path / "d.csv.gz"))


@settings(max_examples=examples(200))
@given(texts=st.lists(st.text('a"\n', max_size=12), max_size=6), longest=st.sampled_from([0, 5, 1000]))
def test_texts_are_cut_at_the_last_line_end_outside_of_quotes(texts: list[str], longest: int) -> None:
    """As early as a line ends there; after so many characters without one, anywhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_stream, "LONGEST", longest)
        made = list(text_stream._whole_lines(iter(texts)))
    assert "".join(made) == "".join(texts)
    if longest < 1000:
        return
    expected, rest = list[str](), ""
    for text in texts:
        rest += text
        ends = [i + 1 for i, sign in enumerate(rest) if sign == "\n" and rest.count('"', 0, i) % 2 == 0]
        if ends:
            expected.append(rest[: ends[-1]])
            rest = rest[ends[-1] :]
    assert made == [*expected, rest]


def test_quotes_inside_cells_are_cells(tmp_path: Path) -> None:
    """An odd number of them is no fault; nor are line ends in quotes, at the end of a file too."""
    rows = [f'{i},{"ab"[i % 2]},5" pipe,{i % 7 / 7:.3f},{i % 3 // 2}' for i in range(101)]
    rows.append('7,a,"two\nlines",0.5,1')
    (tmp_path / "d.csv").write_text("\n".join(["id,group,text,score,label", *rows]))

    assert LIBRARY.audit(str(tmp_path / "d.csv"), protected="group").to_dict()["data"]["rows"]["used"] == 102


def test_a_used_value_of_another_type_is_named(tmp_path: Path) -> None:
    rows = [*GOOD * 300, "1,a,high,1"]
    (tmp_path / "d.csv").write_text("\n".join([NAMES, *rows]))
    with pytest.raises(DataError, match=r"'score' holds 'high' at row 90,001 of d\.csv"):
        LIBRARY.audit(str(tmp_path / "d.csv"), protected="group")


@pytest.mark.parametrize("name", ["nonsense", "rot13", "base64", ""])
def test_an_encoding_that_is_none_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match="`encoding="):
        open_source(tmp_path / "d.csv", encoding=name)
