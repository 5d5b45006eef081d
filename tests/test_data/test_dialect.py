"""Dialects of CSV: what is sniffed, what is never sniffed, and that a file costs no more than its head."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fairfix.data import dialect
from fairfix.data.dialect import Dialect, sniffed
from fairfix.data.files import open_source
from fairfix.data.storage import local
from fairfix.errors import DataError, UsageError
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data import columns_read
from tests.strategies import examples

TEXTS = st.text(st.sampled_from(list(';,|\t"\n ab.10é')), max_size=6)


@settings(max_examples=examples(150))
@given(rows=st.lists(st.tuples(TEXTS, TEXTS, TEXTS), min_size=1, max_size=12), names=st.tuples(TEXTS, TEXTS))
def test_a_file_of_commas_is_read_with_commas(
    rows: list[tuple[str, ...]], names: tuple[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever stands in its quoted cells and names: semicolons, tabs, numbers with commas, line ends."""
    path = tmp_path_factory.mktemp("commas") / "d.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("a" + names[0], "b" + names[1], "c"), *rows])

    assert replace(sniffed(local(path)), padded=False) == Dialect()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("notes\na;b\nc;d\n", Dialect()),
        ("id,notes;more\n1,a;b\n2,c;d\n", Dialect()),
        ('id,notes\n1,"a;b"\n2,"c;d"\n', Dialect()),
        ("id,x\n1,2;3\n4;5\n", Dialect()),
        ("a;b\n1;2\n3\n", Dialect(";")),
        ('"a"|"b,c"\n"1"|"2"\n"3"|"4"|"more"\n', Dialect("|")),
        ("a;b\n1\n3\n4;5\n", Dialect()),
        ('"race, self";s\n"a, b";0,5\n', Dialect(";", ",")),
        ("g;income\na;1,234\nb;12,500\n", Dialect(";")),
        ("g;income\na;1,234\nb;0,500\n", Dialect(";", ",")),
        ("g;income\na;1,234\nb;12,50\n", Dialect(";", ",")),
        ("g;s;t\na;0,5;0.5\n", Dialect(";")),
        ("g;s;day\na;0,5;01.02.2024\n", Dialect(";", ",")),
        ("g;s\na;0,5\nb;NA\nc;\nd;2\n", Dialect(";", ",")),
        ("g;s\na;0,5\nb;many\n", Dialect(";")),
        ("g;list\na;1,2,3\n", Dialect(";")),
        ("g;s\na;0.5\n", Dialect(";", ".")),
        ("a;b|c\n1;2|3\n", Dialect(";")),
        ("g,s\na,1\n\nb,2\n\n", Dialect()),
        ("a\tb,c\n1\t2,3\n", Dialect()),
    ],
)
def test_what_a_head_shows(text: str, shown: Dialect, tmp_path: Path) -> None:
    """Commas where they can be; thousands are no decimals; two signs for numbers decide nothing.

    A record of another length is left to the reader, which names it, where most show the same.
    """
    (tmp_path / "d.csv").write_text(text)

    assert sniffed(local(tmp_path / "d.csv")) == shown


@pytest.mark.parametrize("end", range(1, 40))
def test_a_head_that_ends_anywhere_shows_the_same(
    end: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inside a cell, a quoted one, a character of two bytes; nothing behind the head is read."""
    head = 'größe;wert\n"a;\nä";0,5\n'.encode()
    rows = head + 'é"b";1,5\n"ü;";2,5\n'.encode() * 3 + b"no;more,of;the,same\n" * 50
    (tmp_path / "d.csv").write_bytes(rows)
    monkeypatch.setattr(dialect, "HEAD", len(head) + end)

    assert sniffed(local(tmp_path / "d.csv")) == Dialect(";", ",")


def test_only_the_head_is_read_to_open_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sniffing takes its first bytes, however many there are."""
    (tmp_path / "d.csv").write_text("g;s\n" + "a;0,5\n" * 50_000)
    taken = []
    whole = pa.OSFile

    def counting(path: str) -> Any:
        file = whole(path)
        return _Counting(file, lambda size: taken.append(size) or file.read(size))

    monkeypatch.setattr(pa, "OSFile", counting)
    assert sniffed(local(tmp_path / "d.csv")) == Dialect(";", ",")
    assert taken == [dialect.HEAD]


class _Counting:
    """A file whose reads are counted."""

    def __init__(self, file: Any, read_: Any) -> None:
        self.file, self.read = file, read_

    def __enter__(self) -> _Counting:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()


def test_what_is_stated_is_taken(tmp_path: Path) -> None:
    """Against what the head shows; a tab by its name; what is no CSV file is not stated anything of."""
    (tmp_path / "d.csv").write_text("a;b,c\n1;2,3\n")
    (tmp_path / "t.csv").write_text("a\tb,c\n1\t2,3\n")
    assert open_source(tmp_path / "d.csv").columns == ("a;b", "c")
    assert open_source(tmp_path / "d.csv", delimiter=";").columns == ("a", "b,c")
    assert open_source(tmp_path / "t.csv", delimiter="tab").columns == ("a", "b,c")
    assert open_source(tmp_path / "t.csv", delimiter="\t").columns == ("a", "b,c")
    for bad in ("", ";;", '"', "\n", "é", "\0"):
        with pytest.raises(UsageError, match="`delimiter="):
            open_source(tmp_path / "d.csv", delimiter=bad)
    with pytest.raises(UsageError, match="`delimiter` is for CSV files"):
        open_source(pa.table({"a": [1]}), delimiter=";")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": [1]}), tmp_path / "d.parquet")
    with pytest.raises(UsageError, match="`decimal` is for CSV files"):
        open_source(tmp_path / "d.parquet", decimal=",")


def test_files_of_a_folder_that_differ_are_refused_with_their_names(tmp_path: Path) -> None:
    """In separator, decimal sign or columns; not in the order of columns, nor where a head shows no decimals."""

    def folder(*texts: str) -> Path:
        place = tmp_path / str(np.random.default_rng().integers(2**60))
        place.mkdir()
        for i, text in enumerate(texts):
            (place / f"{i}.csv").write_text(text)
        return place

    for texts, words in (
        (("g,s\na,1\n", "g;s\nb;2\n"), r"0\.csv has ',' between columns.*1\.csv has ';'"),
        (("g;s\na;0,5\n", "g;s\nb;0.5\n"), r"0\.csv has .*',' as decimal.*1\.csv"),
        (("g,s\na,1\n", "g,t\nb,2\n"), r"0\.csv has 's', 1\.csv does not"),
        (("g,s\na,1\n", "g,s,t\nb,2,3\n"), r"1\.csv has 't', 0\.csv does not"),
    ):
        with pytest.raises(DataError, match=words):
            open_source(folder(*texts))
    turned = folder("g,s\na,1\n", "s,g\n2,b\n")
    assert columns_read(open_source(turned)) == {"g": ["a", "b"], "s": [1, 2]}
    few = folder("g;s\na;1\n", "g;s\nb;2,5\n")
    assert columns_read(open_source(few), None, {"s": pa.float64()}) == {"g": ["a", "b"], "s": [1.0, 2.5]}
