"""Packed files: every kind in every packing by every way is the same data; damaged ones are named, bombs bounded."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import re
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fairfix
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fairfix.data import packing, spool, storage
from fairfix.data.files import FileSource, atomic_output, file_kinds, open_source, table_writer
from fairfix.data.opening import open_named
from fairfix.data.packing import PACKINGS, unpacked
from fairfix.data.recognition import OTHERS, TEXT_ENDINGS, holds_manifest, kinds_by_name, recognised
from fairfix.data.storage import local
from fairfix.errors import DataError, UsageError

from tests.conftest import make_frame
from tests.data import columns_read
from tests.stores import Server
from tests.test_data.test_storage import moto, put, store, web  # noqa: F401  fixtures

TABLE = pa.Table.from_pandas(make_frame(60), preserve_index=False)
WRITTEN = [
    next(ending for ending, one in file_kinds().items() if one is kind)
    for kind in kinds_by_name().values()
    if kind.writer.__func__ is not FileSource.writer.__func__  # type: ignore[attr-defined]  # a class method
]
"""An ending of each kind of file that is written."""


def written(path: Path, table: pa.Table = TABLE) -> Path:
    """Write a table as the name of a file says."""
    with atomic_output(path) as file, table_writer(file, path, table.schema) as write:
        for batch in table.to_batches():
            write(batch)
    return path


def packed(content: bytes, ending: str, name: str = "d.csv") -> bytes:
    """Return content in a packing."""
    out = io.BytesIO()
    with PACKINGS[ending].pack(out, name) as file:
        file.write(content)
    return out.getvalue()


@contextmanager
def piped(content: bytes) -> Iterator[str]:
    """Yield the name of a pipe through which content comes."""
    end, start = os.pipe()
    thread = threading.Thread(target=_write, args=(start, content))
    thread.start()
    try:
        yield f"/dev/fd/{end}"
    finally:
        os.close(end)
        thread.join()


def _write(number: int, content: bytes) -> None:
    with open(number, "wb") as file:
        file.write(content)


def audited(data: str) -> str:
    """Return the JSON of an audit, without the name of the data."""
    result = fairfix.audit(data, protected="race").to_dict()
    del result["data"]["source"], result["next_step"]
    return json.dumps(result)


@pytest.fixture
def empty_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files, in which none must remain."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The audit of the table as CSV."""
    return audited(str(written(tmp_path_factory.mktemp("reference") / "d.csv")))


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["", *PACKINGS])
@pytest.mark.parametrize("kind", WRITTEN)
@pytest.mark.usefixtures("empty_tmp")
def test_every_kind_in_every_packing_by_every_way_is_the_same_data(
    kind: str,
    ending: str,
    reference: str,
    tmp_path: Path,
    store: Server,  # noqa: F811  the fixture
) -> None:
    """By a path, a path that does not say what it is, a pipe and a URL."""
    path = written(tmp_path / f"d{kind}{ending}")
    put(path.name, path.read_bytes())

    assert audited(str(path)) == reference
    with piped(path.read_bytes()) as pipe:
        assert audited(pipe) == reference
    assert audited(f"s3://loans/{path.name}") == reference
    bare = path.rename(tmp_path / "bare")
    assert audited(str(bare)) == reference


def test_the_tools_of_each_packing_write_what_is_read(tmp_path: Path) -> None:
    """What Python's own modules write, several streams one after the other too, is read like what fairfix writes."""
    text = written(tmp_path / "d.csv").read_bytes()
    half = text.index(b"\n", len(text) // 2) + 1
    for ending, pack in {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}.items():
        path = tmp_path / f"d.csv{ending}"
        for content in (pack(text), pack(text[:half]) + pack(text[half:])):
            path.write_bytes(content)
            assert columns_read(path) == columns_read(tmp_path / "d.csv")
    path.write_bytes(lzma.compress(text[:half]) + bytes(8) + lzma.compress(text[half:]) + bytes(4))
    assert columns_read(path) == columns_read(tmp_path / "d.csv")


@pytest.mark.parametrize("ending", PACKINGS)
@pytest.mark.parametrize("kind", WRITTEN)
def test_what_is_cut_off_is_refused_wherever_it_is_cut(kind: str, ending: str, tmp_path: Path) -> None:
    """An error that names the file, never fewer rows."""
    path = written(tmp_path / f"d{kind}{ending}", TABLE.slice(0, 9))
    content = path.read_bytes()
    for size in range(0, len(content), max(1, len(content) // 25)):
        path.write_bytes(content[:size])
        with pytest.raises(DataError, match=rf"d\{kind}") as error:
            columns_read(path)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "ending", [".gz", ".bz2", ".xz", ".zip"]
)  # the others carry no sums as Arrow writes them
def test_what_is_damaged_is_refused(ending: str, tmp_path: Path) -> None:
    """Or read as it was, where the damage is in what no reader needs, such as a time."""
    path = written(tmp_path / f"d.csv{ending}")
    content, before = path.read_bytes(), columns_read(path)
    refused = 0
    for at in range(0, len(content), 11):
        path.write_bytes(content[:at] + bytes([content[at] ^ 32]) + content[at + 1 :])
        try:
            assert columns_read(path) == before
        except DataError as error:
            assert path.name in str(error)  # noqa: PT017  several kinds of errors
            refused += 1
    assert refused > len(content) / 11 / 2


# ---------------------------------------------------------------------- ZIP


def zipped(members: dict[str, bytes], kind: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return a ZIP of files."""
    with zipfile.ZipFile(out := io.BytesIO(), "w", kind) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


CSV = b"g,s\na,0.5\nb,0.25\n"


@pytest.mark.parametrize(
    "members",
    [
        {"d.csv": CSV},
        {"in/d.csv": CSV},
        {"d": CSV},
        {"german.data": CSV},
        {"d.csv": CSV, "readme.txt": b"x"},
        {"d.csv": CSV, "__MACOSX/._d.csv": b"x", ".hidden.csv": b"x"},
        {"d.tsv": CSV.replace(b",", b"\t"), "notes.pdf": b"%PDF"},
        {"d.data": CSV, "d.names": b"x"},
        {"d.csv.gz": gzip.compress(CSV)},
        {"d.zip": zipped({"d.csv": CSV})},
    ],
)
def test_the_one_table_of_a_zip_is_read(members: dict[str, bytes], tmp_path: Path) -> None:
    """Beside what is none; packed once more too."""
    for kind in packing.UNZIPPED:
        (tmp_path / "d.zip").write_bytes(zipped(members, kind))

        assert columns_read(tmp_path / "d.zip") == {"g": ["a", "b"], "s": [0.5, 0.25]}


def test_of_several_tables_one_is_named(tmp_path: Path, store: Server) -> None:  # noqa: F811  the fixture
    """The message has what to type, which is read; here and in a store."""
    content = zipped({"a.csv": CSV, "in/b.csv": CSV.replace(b"a", b"c"), "c.txt": b"x"})
    (tmp_path / "d.zip").write_bytes(content)
    put("d.zip", content)
    for name in (f"{tmp_path}/d.zip", "s3://loans/d.zip"):
        with pytest.raises(DataError, match="2 tables") as error:
            open_source(name)
        assert "a.csv, in/b.csv" in str(error.value)
        proposal = str(error.value).split("'")[1]
        assert columns_read(proposal)["g"] == ["a", "b"]
        assert columns_read(f"{name}#in/b.csv")["g"] == ["c", "b"]
        with pytest.raises(DataError, match=r"no file 'd\.csv'.*a\.csv"):
            open_source(f"{name}#d.csv")


def test_a_table_of_a_zip_of_a_web_server_is_named(web: Callable[..., Server]) -> None:  # noqa: F811  the fixture
    """Of a large one, what is read of it travels: its directory and the table, not the rest."""
    content = zipped({"a.csv": CSV, "big.csv": os.urandom(4 << 20)})
    server = web({"/d.zip": content})
    before = storage.traffic()

    assert columns_read(f"{server.url}/d.zip#a.csv")["g"] == ["a", "b"]
    assert sum((storage.traffic() - before).values()) < 1 << 20


def test_a_file_with_the_sign_in_its_name_stays_a_file(tmp_path: Path) -> None:
    """``a#b.csv`` is read where it is there; of a file with one table nothing is named after the sign."""
    (tmp_path / "a#b.csv").write_bytes(CSV)
    (tmp_path / "a").write_bytes(b"x,y\n1,2\n")

    assert columns_read(tmp_path / "a#b.csv")["g"] == ["a", "b"]
    with pytest.raises(DataError, match="holds one table; leave out #c"):
        open_source(f"{tmp_path}/a#c")


@pytest.mark.parametrize(
    ("members", "words"),
    [({}, "not hold a table"), ({"a.pdf": b"", "b.pdf": b""}, r"not hold a table; it holds: a\.pdf, b\.pdf")],
)
def test_a_zip_without_a_table_is_refused(members: dict[str, bytes], words: str, tmp_path: Path) -> None:
    (tmp_path / "d.zip").write_bytes(zipped(members))
    with pytest.raises(DataError, match=words):
        open_source(tmp_path / "d.zip")


def test_an_encrypted_zip_is_refused(tmp_path: Path) -> None:
    content = bytearray(zipped({"d.csv": CSV}))
    content[content.index(b"PK\1\2") + 8] |= 1
    content[6] |= 1
    (tmp_path / "d.zip").write_bytes(content)

    with pytest.raises(DataError, match="encrypted; unpack it yourself"):
        open_source(tmp_path / "d.zip")


def test_the_files_of_fairfix_are_no_data(tmp_path: Path) -> None:
    """They are ZIPs too; the message says how to look into them."""
    (tmp_path / "r.fairfix").write_bytes(zipped({"manifest.json": b"{}"}))
    with pytest.raises(DataError, match="fairfix inspect"):
        open_source(tmp_path / "r.fairfix")
    (tmp_path / "cut.zip").write_bytes(zipped({"d.csv": CSV})[:-9])
    assert not holds_manifest(local(tmp_path / "cut.zip"))


# ---------------------------------------------------------------------- bombs


def bomb(ending: str, size: int, name: str = "d.parquet", content: bytes = bytes(1 << 20)) -> bytes:
    """Return the same bytes again and again in a packing."""
    out = io.BytesIO()
    with PACKINGS[ending].pack(out, name) as file:
        for _ in range(size // len(content)):
            file.write(content)
    return out.getvalue()


@pytest.mark.parametrize("ending", PACKINGS)
@pytest.mark.usefixtures("empty_tmp")
def test_a_copy_that_grows_too_much_is_refused(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither beyond a ratio nor beyond the disk, and no more than a chunk beyond either is written."""
    monkeypatch.setattr(spool, "UNPACKED_FREELY", 1 << 20)
    monkeypatch.setattr(spool, "MAX_RATIO", 10)
    path = tmp_path / f"d.parquet{ending}"
    path.write_bytes(bomb(ending, 8 << 20))
    taken = []
    monkeypatch.setattr(spool, "mapped", taken.append)
    with pytest.raises(DataError, match="unpacks to more than"):
        open_source(path)
    monkeypatch.setattr(spool, "UNPACKED_FREELY", 1 << 40)
    monkeypatch.setattr(spool, "LEFT_FREE", 1 << 60)
    with pytest.raises(DataError, match="TMPDIR"):
        open_source(path)
    assert taken == []


@pytest.mark.slow
@pytest.mark.parametrize("ending", [".gz", ".bz2", ".zst", ".lz4"])
def test_text_is_unpacked_without_a_copy(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However large it is; a line that does not end is refused in the first piece of it."""
    monkeypatch.setattr(packing, "spooled", None)
    path = tmp_path / f"d.csv{ending}"
    path.write_bytes(bomb(ending, 8 << 20, "d.csv", b"g,s\n" + b"a,0.5\n" * 170_000))
    source = open_source(path)
    assert sum(batch.num_rows for part in source.parts(["g"]) for batch in part.batches()) > 1_000_000
    path.write_bytes(bomb(ending, 64 << 20, "d.csv", b"a" * (1 << 20)))
    before = pa.total_allocated_bytes()
    with pytest.raises(DataError, match=r"d\.csv"):
        columns_read(path)
    assert pa.total_allocated_bytes() - before < 32 << 20


def test_layers_and_directories_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packings of packings end, and a directory of a ZIP is read up to a size alone."""
    content = CSV
    for _ in range(5):
        content = gzip.compress(content)
    (tmp_path / "d").write_bytes(content)
    with pytest.raises(DataError, match="packed more than 3 times"):
        open_source(tmp_path / "d")
    monkeypatch.setattr(packing, "ZIP_DIRECTORY", 10_000)
    (tmp_path / "d.zip").write_bytes(zipped({f"{i}.csv": b"" for i in range(1000)}))
    with pytest.raises(DataError, match="directory is larger"):
        open_source(tmp_path / "d.zip")


def test_xz_may_not_ask_for_all_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream says itself how much its unpacking takes."""
    monkeypatch.setattr(packing, "XZ_MEMORY", 1 << 16)
    (tmp_path / "d.csv.xz").write_bytes(lzma.compress(CSV))
    with pytest.raises(DataError, match=r"d\.csv\.xz cannot be unpacked: .*limit"):
        columns_read(tmp_path / "d.csv.xz")


# ---------------------------------------------------------------------- copies


@pytest.mark.usefixtures("empty_tmp")
def test_a_copy_is_made_once_and_again_in_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source that is sent elsewhere unpacks there; a change of the packed file is noticed."""
    path = written(tmp_path / "d.parquet.gz")
    made: list[str] = []
    spooled: Callable[..., Any] = packing.spooled
    monkeypatch.setattr(packing, "spooled", lambda *about: made.append(about[1]) or spooled(*about))
    source = open_source(path)
    for _ in range(2):
        parts = source.parts(["score"])
        assert sum(batch.num_rows for part in parts for batch in part.batches()) == 60
    assert len(made) == 1
    place = unpacked(local(path), PACKINGS[".gz"], "", ())
    with pickle.loads(pickle.dumps(place)).opened() as file:
        assert pq.read_metadata(file).num_rows == 60
    assert len(made) == 2
    written(path, TABLE.slice(0, 9))
    with pytest.raises(DataError, match="changed while it was read"):
        [*parts[0].batches()]


def test_the_first_bytes_of_a_text_come_once(
    tmp_path: Path,
    web: Callable[..., Server],  # noqa: F811  the fixture
) -> None:
    """Its kind is looked at in what its reader takes: no byte more than before travels for it."""
    content = b"g,s\n" + b"a,0.5\n" * 40_000
    server = web({"/d.csv": content, "/d.csv.zst": packed(content, ".zst")})
    before = storage.traffic()
    columns_read(f"{server.url}/d.csv")
    came = storage.traffic() - before
    assert sum(came.values()) <= 65_536 + 2 * len(content)
    before = storage.traffic()
    columns_read(f"{server.url}/d.csv.zst")
    came = storage.traffic() - before
    assert sum(came.values()) <= 3 * len(packed(content, ".zst"))


# ---------------------------------------------------------------------- content


@pytest.mark.parametrize("actual", [*WRITTEN, *(f".csv{ending}" for ending in PACKINGS)])
@pytest.mark.parametrize("name", ["d.csv", "d.parquet", "d.arrow", "d.csv.gz", "d.zip", "d.xyz", "d"])
def test_content_overrules_the_name(actual: str, name: str, tmp_path: Path) -> None:
    """Whatever a file is called: its rows are read, and a remark says it where the name says another kind."""
    before = columns_read(written(tmp_path / f"true{actual}"))
    (tmp_path / f"true{actual}").rename(tmp_path / name)
    source = open_source(tmp_path / name)
    own = {"d.csv": ".csv", "d.parquet": ".parquet", "d.arrow": ".arrow", "d.csv.gz": ".csv.gz"}.get(name)
    agrees = name in ("d.xyz", "d") or own == actual or (name == "d.zip" and actual == ".csv.zip")

    assert columns_read(tmp_path / name) == before
    assert ("by its content" in source.remark) == (not agrees)


@pytest.mark.parametrize("name", ["d.csv", "d.parquet", "d.txt", "d"])
@pytest.mark.parametrize(("at", "sign", "what"), OTHERS)
def test_what_is_no_table_is_named(at: int, sign: bytes, what: str, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(bytes(at) + sign + (b"" if b"git" in sign else bytes(600)))
    path = tmp_path / name
    if "database" in what and name in ("d.txt", "d"):  # opened by its path
        return
    with pytest.raises(DataError) as error:
        open_named(str(path), {})
    assert what in str(error.value)
    assert name in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"<!DOCTYPE html><table>", "web page"),
        (b"\xef\xbb\xbf\n <HTML>", "web page"),
        (b"\0\1\2\3", "an unknown kind"),
        (b"", "is empty"),
    ],
)
def test_what_is_no_table_is_refused(text: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "d.xyz").write_bytes(text)
    with pytest.raises(DataError, match=words):
        open_source(tmp_path / "d.xyz")


@pytest.mark.parametrize("header", ["PAR1,s", "ARROW1,s", "MZ,s", "ORCID,s", "BZhang,s", "FEA1,s"])
def test_words_are_no_signatures(header: str, tmp_path: Path) -> None:
    """A text may begin with the letters of one."""
    for name in ("d.csv", "d.txt"):
        (tmp_path / name).write_text(f"{header}\na,1\n")
        assert columns_read(tmp_path / name)["s"] == [1]
        assert not open_source(tmp_path / name).remark


@pytest.mark.parametrize("name", ["d.txt", "d.data", "d.dat", "d.tab1", "d"])
def test_text_by_any_name_is_csv(name: str, tmp_path: Path) -> None:
    """Also in Latin letters, of an old encoding too where its reader takes it, and in UTF-16."""
    (tmp_path / name).write_bytes(CSV)
    assert recognised(local(tmp_path / name)).kind.kind == "CSV"
    (tmp_path / name).write_bytes(CSV.decode().encode("utf-16"))
    assert columns_read(tmp_path / name)["g"] == ["a", "b"]


def test_a_folder_of_texts_is_read_by_a_pattern(tmp_path: Path) -> None:
    """A folder has no other texts than those of tables; the message proposes a pattern that works."""
    (tmp_path / "a.txt").write_bytes(CSV)
    with pytest.raises(DataError, match="pattern") as error:
        open_source(str(tmp_path))
    assert columns_read(str(error.value).split("'")[1])["g"] == ["a", "b"]


def test_options_of_other_kinds_are_refused(tmp_path: Path) -> None:
    written(tmp_path / "d.parquet").rename(tmp_path / "d.csv")
    with pytest.raises(UsageError, match="CSV files"):
        open_source(tmp_path / "d.csv", delimiter=";")
    with pytest.raises(UsageError, match="for databases"):
        open_source(tmp_path / "d.csv", sql="SELECT 1")


@pytest.mark.slow
def test_the_table_of_formats_is_that_of_the_code() -> None:
    """Each kind and each packing has a row in docs/data.md with its endings and the extra that it needs."""
    text = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
    sections = [text.partition(f"## {name}")[2].partition("\n## ")[0] for name in ("Formats", "Spreadsheets")]
    lines = [line for section in sections for line in section.splitlines() if line[:1] == "|"]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    documented = {
        name: (set(re.findall(r"`(\.\w+)`", endings)), extra.strip("`"))
        for name, endings, extra in cells
        if endings not in ("ending", "---")
    }
    actual: dict[str, tuple[set[str], str]] = {}
    for name, kind in kinds_by_name().items():
        needs = getattr(kind, "needs", None)
        actual[name] = set(kind.endings), needs[1] if needs else ""
    actual["CSV"] = actual["CSV"][0] | set(TEXT_ENDINGS), actual["CSV"][1]
    actual |= {one.name: ({one.ending}, "") for one in PACKINGS.values()}

    assert {name: documented.get(name) for name in actual} == actual
    assert set(documented) - set(actual) == {"DuckDB, SQLite"}
