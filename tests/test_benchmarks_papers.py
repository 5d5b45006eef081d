"""The experiments of the papers run on what data there are, and on data of the loaders that users know."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.scripts import ROOT, script


@pytest.fixture
def loaders() -> ModuleType:
    """The loaders."""
    return script("benchmarks/loaders.py")


# --- frames as loaders give them, beside what the benchmarks read -------------------------------------------


def adult() -> tuple[pd.DataFrame, pd.Series]:
    """OpenML's Adult: hyphens in names, categories, missing values in three manners, a full stop behind labels."""
    X = pd.DataFrame(
        {
            "age": [25, 38, 28, 44],
            "workclass": pd.Categorical(["Private", " Private", None, "?"]),
            "fnlwgt": [226802, 89814, 336951, 160323],
            "education": pd.Categorical(["11th", "HS-grad", "Assoc-acdm", "Some-college"]),
            "education-num": [7, 9, 12, 10],
            "marital-status": pd.Categorical(["Never-married", *["Married-civ-spouse"] * 3]),
            "occupation": pd.Categorical(["Sales", "Sales", " ?", "Sales"]),
            "relationship": pd.Categorical(["Own-child", "Husband", "Wife", "Husband"]),
            "race": pd.Categorical(["Black", "White", "White", "Black"]),
            "sex": pd.Categorical([" Male", "Male", "Female", "Male"]),
            "capital-gain": [0.0, 0.0, 0.0, 7688.0],
            "capital-loss": [0, 0, 0, 0],
            "hours-per-week": [40, 50, 40, 40],
            "native-country": pd.Categorical(["United-States"] * 4),
        },
        index=[7, 3, 5, 1],
    )
    return X, pd.Series(pd.Categorical(["<=50K", " >50K.", "<=50K.", ">50K"]), index=X.index, name="class")


def converted(loaders: ModuleType, name: str, got: tuple[pd.DataFrame, pd.Series]) -> pd.DataFrame:
    return loaders.LOADERS[name].convert(*got)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda X, y: (X, y.cat.rename_categories({"<=50K": "1", ">50K": "2"})), r"the label class has .*1"),
        (lambda X, y: (X, y.where(y != "<=50K")), "the label class has nothing"),
        (lambda X, y: (X.drop(columns=["race", "sex"]), y), "no column race, sex"),
        (lambda X, y: (X.assign(age=[0.5, 1, 2, 3]), y), "column age has values that are no whole numbers"),
    ],
)
def test_what_cannot_be_converted_is_named(loaders: ModuleType, change: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        converted(loaders, "adult", change(*adult()))


# --- what comes is held against the published file ------------------------------------------------------------


@pytest.fixture
def small(loaders: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The loaders of which Adult's gives four rows, whose figures are known, and that of COMPAS reaches nobody."""

    def nobody(place: Path) -> Any:
        raise OSError(f"<urlopen error\n[Errno -3] for {place.name}>")

    told = {
        "fetch": lambda place: adult(),
        "rates": ("sex", {"Female": (1, 0.0), "Male": (3, 0.6667)}),
        "gaps": {"workclass": 2, "occupation": 1},
    }
    few = replace(loaders.LOADERS["adult"], **told)
    silent = replace(loaders.LOADERS["compas"], fetch=nobody)
    monkeypatch.setattr(loaders, "LOADERS", {**loaders.LOADERS, "adult": few, "compas": silent})
    return loaders


def test_what_is_fetched_is_written_as_the_benchmarks_read_it(small: ModuleType, tmp_path: Path) -> None:
    """The types are those of the file, without an index; a loader that fails stops no other, and leaves nothing."""
    lines = list(small.fetch(["compas", "lawschool", "adult"], tmp_path))
    why = f"<urlopen error [Errno -3] for {tmp_path.name}>"
    assert lines == [
        f"compas is not fetched by aif360.sklearn.datasets.fetch_compas: {why}",
        f"lawschool is not fetched: {small.WITHOUT}",
        "adult is fetched by fairlearn.datasets.fetch_adult",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["adult.parquet"]
    schema = pq.read_schema(tmp_path / "adult.parquet")
    assert schema.names == [*small.ADULT, "income"]
    assert set(schema.types) == {pa.int64(), pa.string()}


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"fetch": lambda place: tuple(part.iloc[:3] for part in adult())}, "rows and mean income by sex"),
        (
            {"fetch": lambda place: (adult()[0], adult()[1].map({"<=50K": ">50K"}).fillna("<=50K"))},
            "rows and mean income by sex",
        ),
        ({"gaps": {}}, "values are missing in {'workclass': 2"),
        ({"columns": 14}, "it has 15 columns, and 14 in the published file"),
    ],
)
def test_what_differs_from_the_published_file_is_refused(
    small: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: dict[str, Any], said: str
) -> None:
    """Rows too few, labels the other way round, gaps and columns."""
    changed = replace(small.LOADERS["adult"], **told)
    monkeypatch.setattr(small, "LOADERS", {"adult": changed})
    (line,) = small.fetch(["adult"], tmp_path)
    assert line.startswith("adult is not fetched by fairlearn.datasets.fetch_adult: ")
    assert said in line
    assert list(tmp_path.iterdir()) == []


# --- the command -----------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The command, with two pages of stand-ins for scripts: a table, a failure, and one whose data are not there."""
    module = script("benchmarks/run.py")
    docs, here = tmp_path / "project" / "docs", tmp_path / "project" / "benchmarks"
    (docs / "papers").mkdir(parents=True)
    here.mkdir()
    (here / "good.py").write_text("print('new')")
    (here / "other.py").write_text("import sys; sys.exit('no: the ' + 'reason')")
    (here / "absent.py").write_text("print('new')")
    (here / "third.py").write_text("print('new')")
    parts = [f"<!-- {name}.py -->\nold" for name in ("good", "other", "absent")]
    text = "\n\n".join(["Above.", *parts, "<!-- versions -->\nolder.\n"])
    (docs / "papers" / "one.md").write_text(text)
    (docs / "papers" / "two.md").write_text("Above.\n\n<!-- third.py -->\nold\n")
    one: dict[str, tuple[str, ...]] = {"good.py": (), "other.py": (), "absent.py": ()}
    monkeypatch.setattr(module, "HERE", here)
    monkeypatch.setattr(module, "DOCS", docs)
    monkeypatch.setattr(module, "DATA", {"good.py": ("adult",), "absent.py": ("adult", "compas")})
    monkeypatch.setattr(module, "PICTURES", {})
    monkeypatch.setattr(module, "pages", {"papers/one": one, "papers/two": {"third.py": ()}}, raising=False)
    monkeypatch.setenv("FAIRFIX_DATA_DIR", "")
    data = tmp_path / "data"
    data.mkdir()
    (data / "adult.parquet").touch()
    return module


def page(run: ModuleType, name: str) -> str:
    return (run.DOCS / "papers" / f"{name}.md").read_text().replace(run.versions(), "versions")


def test_one_missing_file_stops_nothing(run: ModuleType, tmp_path: Path, capsys: Any) -> None:
    """What has no data is skipped by name, what fails is named and makes the status 1; both keep their tables."""
    assert run.main(["--data", str(tmp_path / "data"), "one"], pages=run.pages) == 1
    told = capsys.readouterr().err
    assert f"absent.py is skipped: no compas.parquet in {tmp_path / 'data'}" in told
    assert "other.py failed with status 1: no: the reason" in told
    assert page(run, "one").split("\n\n") == [
        *("Above.", "<!-- good.py -->\nnew", "<!-- other.py -->\nold", "<!-- absent.py -->\nold"),
        *("<!-- versions -->\nversions", run.KEPT, "- `other.py`: older.\n- `absent.py`: older.\n"),
    ]
    assert "new" not in page(run, "two")


def test_data_sets_that_are_not_there_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "adult.parquet").touch()
    monkeypatch.setenv("FAIRFIX_DATA_DIR", str(tmp_path))
    found, missing = script("benchmarks/tabular.py").present({"Adult": "adult", "Law": "lawschool_bar"})
    assert found == {"Adult": tmp_path / "adult.parquet"}
    assert missing == ["lawschool_bar.parquet is not in the data folder: skipped."]


def test_what_the_folder_lacks_is_fetched(
    run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Only if asked, only what the scripts read, into a folder that is made; a failure changes no status."""
    asked: list[tuple[list[str], Path]] = []

    def fetch(names: list[str], place: Path) -> list[str]:
        asked.append((names, place))
        (place / "adult.parquet").touch()
        return ["compas is not fetched: no network"]

    monkeypatch.setattr(run, "fetch", fetch)
    new = tmp_path / "new" / "folder"
    assert run.main(["good.py", "absent.py", "--data", str(new), "--fetch"], pages=run.pages) == 0
    assert asked == [(["adult", "compas"], new)]
    told = capsys.readouterr().err
    assert "compas is not fetched: no network" in told
    assert "absent.py is skipped: no compas.parquet" in told
    assert "new" in page(run, "one")
    assert run.main(["good.py", "--data", str(new)], pages=run.pages) == 0
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["three"], "no such page or script: three; there are one, two, good.py"),
        (["--data", "nowhere"], "no such folder: nowhere"),
        (["--fetch"], "needs a folder outside of the project"),
        (["--fetch", "--data", "project/inside"], "needs a folder outside of the project"),
    ],
)
def test_bad_arguments_are_named(
    run: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(SystemExit) as stopped:
        run.main(arguments, pages=run.pages)
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


def test_every_script_is_there_and_every_data_set_has_a_reader() -> None:
    """Pages name scripts that exist; what they read is what a loader gives or is known to have none."""
    module = script("benchmarks/run.py")
    names = {one for scripts in module.PAGES.values() for one in scripts}
    assert all((ROOT / "benchmarks" / name).exists() for name in names)
    assert set(module.APART) <= set(module.DATA) <= names
    read = {one for sets in module.DATA.values() for one in sets}
    assert read - set(sys.modules["loaders"].LOADERS) == {"lawschool", "lawschool_bar"}


# --- what the papers print -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def printed() -> ModuleType:
    """The table of published figures."""
    return script("benchmarks/published.py")


def pages() -> dict[str, str]:
    """Paper -> the text of its page."""
    return {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "papers").glob("*.md")}


def tables_of(text: str) -> list[Any]:
    return list(script("benchmarks/pictures.py").tables(text))


NUMBER = r"[-+]?\d*\.\d+"


def test_each_published_figure_is_there_once(printed: ModuleType) -> None:
    """With its place, as a number, and where it is from; of papers that have a page."""
    found = [one for paper in pages() for one in printed.published(paper)]
    assert len({(one.paper, one.place, one.row, one.column) for one in found}) == len(found)
    assert len(found) == len(printed.FILE.read_text(encoding="utf-8").splitlines()) - 1
    for one in found:
        assert re.fullmatch(r"(Table|Figure|Theorem) \d+", one.place)
        assert re.fullmatch(rf"{NUMBER}|\d+", one.value)
        assert one.origin in printed.ORIGINS
        assert re.fullmatch(r"\d*", one.page + one.line)


def test_rows_of_the_noisy_paper_are_those_published(printed: ModuleType) -> None:
    """Error and violation of soft assignments and DRO at each share of uniform noise."""
    found = 0
    for table in tables_of(pages()["robust"]):
        place = {"Adult": "Table 2", "Credit": "Table 3"}.get(table.heading.partition(",")[0], "")
        for row in table.rows:
            if not row[0].startswith("paper, "):
                continue
            own = printed.row_of("robust", place, row[0].removeprefix("paper, "))
            for column, cell in zip(table.columns[2:], row[2:], strict=True):
                published = [own[f"{name}, {column}"] for name in ("error", "violation")] if cell else []
                assert [float(one) for one in re.findall(NUMBER, cell)] == [float(one) for one in published]
                found += len(published)
    assert found == len(printed.published("robust"))


def test_figures_of_individual_fairness_are_those_published(printed: ModuleType) -> None:
    """Every row of the paper, in a row of its own, with an asterisk where a figure is recalled."""
    (table,) = [one for one in tables_of(pages()["sensei"]) if one.columns[0] == "row of the paper"]
    assert {row[0] for row in table.rows} == {one.row for one in printed.published("sensei")}
    for row in table.rows:
        own = printed.row_of("sensei", "Table 3", row[0])
        assert set(own) == set(table.columns[1:])
        for column, cell in zip(table.columns[1:], row[1:], strict=True):
            value = float(own[column]) * (100 if column == "BA" else 1)
            assert float(cell.rstrip("*")) == pytest.approx(value)
            assert cell.endswith("*") == (own[column].origin == "recalled")


@pytest.mark.parametrize("paper", ["fair-regression", "logloss", "ramp", "robust", "sensei"])
def test_sentences_quote_figures_that_are_published(printed: ModuleType, paper: str) -> None:
    """What a paper prints, wherever its page says so, and whoever it is set beside."""
    known = {float(one) for one in printed.published(paper)}
    text = pages()[paper]
    quoted = [
        float(n)
        for part in re.findall(r"[Pp]aper prints ([^;|:]*?)[ ]s\b", text)
        for n in re.findall(NUMBER, part)
    ]
    assert set(quoted) <= known
    for table in tables_of(text):
        for at in (at for at, name in enumerate(table.columns) if name.startswith("paper's least")):
            if "/" not in table.columns[at]:
                assert {float(row[at]) for row in table.rows if row[at]} == {min(known)}
    if paper == "fair-regression":
        assert set(quoted) == known


def test_a_figure_that_is_not_published_is_refused(printed: ModuleType) -> None:
    with pytest.raises(KeyError, match="no row SenSR"):
        printed.row_of("sensei", "Table 9", "SenSR")
