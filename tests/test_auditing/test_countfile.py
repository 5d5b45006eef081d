"""Saved counts: the same report as from the data, to the last bit; refused when damaged or of another kind."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import fairfix
import numpy as np
import pytest
from fairfix.auditing.audit import audit
from fairfix.auditing.checks import Check
from fairfix.auditing.countfile import CountFile, count, merged
from fairfix.auditing.disclosure import audit_counts
from fairfix.auditing.results import Settings
from fairfix.cli import run
from fairfix.data import container as artifact
from fairfix.data import files as io
from fairfix.data.container import COUNTS, Archive
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.domain import parameters_of
from fairfix.errors import ArtifactError, DataError, UsageError
from fairfix.report.words import as_json as as_text
from fairfix.tasks.request import (
    OF_ROWS,
    REQUIRES,
    AuditRequest,
    CountRequest,
    RepairRequest,
    Request,
)

from tests.data import people
from tests.results import audit_dict

ONE_PASS = Settings(exact=False)


RACE = ColumnRoles(("race", "sex"), label="label", score="score")
READINGS: dict[str, DataSpec] = {
    "scores": DataSpec(RACE),
    "threshold": DataSpec(RACE, thresholds=(0.7,)),
    "weights": DataSpec(replace(RACE, weight="weight")),
    "strata": DataSpec(replace(RACE, strata=("town",), weight="weight")),
    "raw": DataSpec(replace(RACE, score="raw"), score_scale="raw", thresholds=(0.25,)),
    "logit": DataSpec(replace(RACE, score="raw"), score_scale="logit"),
    "regression": DataSpec(replace(RACE, label="real", score="raw"), task="regression"),
    "regression, weights": DataSpec(
        replace(RACE, label="real", score="raw", weight="weight"), task="regression"
    ),
    "randomized": DataSpec(replace(RACE, probability="p")),
    "randomized, weights": DataSpec(replace(RACE, probability="p", weight="weight")),
    "decisions": DataSpec(replace(RACE, score=None, prediction="yes")),
    "no label": DataSpec(replace(RACE, label=None)),
}


def as_json(report: Any) -> str:
    """Return the JSON of a report without the name of its data."""
    result = audit_dict(report)
    del result["data"]["source"]
    return as_text(result)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Four files of a few parts each, in a folder ``data``."""
    monkeypatch.setattr(io, "PART_ROWS", 400)
    (tmp_path / "data").mkdir()
    paths = [tmp_path / "data" / f"part-{i}.parquet" for i in range(4)]
    for i, path in enumerate(paths):
        people(700 + 300 * i, seed=i).to_parquet(path, row_group_size=200)
    return paths


@pytest.mark.slow
@pytest.mark.parametrize("name", READINGS)
def test_merged_counts_give_the_report_of_the_files_together(
    name: str, files: list[Path], tmp_path: Path
) -> None:
    """Counted one by one, saved, merged in any nesting: the bytes of the JSON are those of one audit of the folder."""
    data_spec = READINGS[name]
    settings = replace(
        ONE_PASS, intersect=True, reference={"race": "a"}, checks=(Check.parse("dp.difference<=0.1"),)
    )
    if data_spec.task == "regression":
        settings = replace(settings, checks=(Check.parse("ks<=0.1"),))
    for path in files:
        count(path, data_spec).save(path.with_suffix(".counts"))
    a, b, c, d = ((path.stem, CountFile.load(path.with_suffix(".counts"))) for path in files)
    tree = merged([("ab", merged([a, b])), ("cd", merged([c, d]))])
    tree.save(tmp_path / "tree.counts")
    merged([a, b, c, d]).save(tmp_path / "flat.counts")
    wanted = audit(files[0].parent, data_spec, settings)

    assert len(a[1].pieces) > 1
    assert (tmp_path / "tree.counts").read_bytes() == (tmp_path / "flat.counts").read_bytes()
    assert as_json(audit_counts(CountFile.load(tmp_path / "tree.counts"), settings)) == as_json(wanted)


@pytest.mark.parametrize("name", READINGS)
def test_a_file_holds_what_was_counted(name: str, files: list[Path], tmp_path: Path) -> None:
    """Saving and loading changes no bit; saving twice gives the same bytes."""
    one = count(files[0], READINGS[name])
    digest = one.save(tmp_path / "one.counts")
    again = CountFile.load(tmp_path / "one.counts")

    assert again.save(tmp_path / "two.counts") == digest
    left, right = one.counts(), again.counts()
    for part in ("cells", "grid", "read", "excluded"):
        assert getattr(left, part) == getattr(right, part)
    for part in ("rows", "mass", "square_mass", "decisions"):
        assert np.array_equal(getattr(left, part), getattr(right, part))
    assert {n: t.tobytes() for n, t in left.sums.items()} == {n: t.tobytes() for n, t in right.sums.items()}


def test_rows_left_out_are_accounted_for(tmp_path: Path) -> None:
    """Reasons add up, in whatever order they were met; a file without a usable row adds its reasons only."""
    frames = [people(200, i) for i in range(3)]
    frames[0].loc[:4, "score"] = np.nan
    frames[1].loc[:6, "race"] = None
    frames[1].loc[10:12, "score"] = np.nan
    frames[2]["score"] = np.nan
    data_spec = replace(READINGS["scores"], missing_rows="drop", missing_group="drop")
    for i, frame in enumerate(frames):
        frame.to_parquet(tmp_path / f"{i}.parquet")
    files = [(str(i), count(tmp_path / f"{i}.parquet", data_spec)) for i in range(3)]
    total = merged(files)
    total.save(tmp_path / "all.counts")
    wanted = audit(str(tmp_path / "*.parquet"), data_spec, ONE_PASS)

    assert files[2][1].used == 0
    assert (total.read, total.used) == (600, 385)
    assert as_json(audit_counts(CountFile.load(tmp_path / "all.counts"))) == as_json(wanted)
    with pytest.raises(DataError, match=r"no rows are left to audit; left out: missing score 200"):
        audit_counts(files[2][1])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"thresholds": (0.6,)}, "thresholds is 0.5 in one.counts, 0.6 in two.counts"),
        ({"missing_rows": "drop"}, "missing rows is error in one.counts, drop in two.counts"),
        ({"columns": replace(RACE, weight="weight")}, "weight is none in one.counts, weight in two.counts"),
        ({"columns": replace(RACE, protected=("race",))}, "protected is race,sex in one.counts, race in"),
        ({"score_scale": "logit", "columns": replace(RACE, score="raw")}, "score scale is probability"),
        ({"merge": {"race": {"a": "a", "b": "a"}}}, "merge is none in one.counts, race=a,b in two.counts"),
        ({"missing_of": {"race": "group"}}, "missing of is none in one.counts, race=group in two.counts"),
        ({"where": "score > 0.1"}, "where is none in one.counts, score > 0.1 in two.counts"),
    ],
)
def test_counts_taken_in_different_ways_are_not_added(change: Mapping[str, Any], told: str) -> None:
    """The difference is named, with both values."""
    one, two = (
        count(people(300, 0), data_spec) for data_spec in (DataSpec(RACE), replace(DataSpec(RACE), **change))
    )

    with pytest.raises(UsageError, match="cannot be added") as error:
        merged([("one.counts", one), ("two.counts", two)])
    assert told in str(error.value)


def test_other_grids_and_other_models_are_not_added() -> None:
    """A scale with a range has one grid; scores of two models are two audits."""
    one = count(people(300, 0), DataSpec(RACE), model={"file": "m.joblib", "sha256": "sha256:1"})
    coarse = replace(one, pieces=tuple(replace(piece, grid=(9, 0, 512)) for piece in one.pieces))
    other = replace(one, model={"file": "m.joblib", "sha256": "sha256:2"})

    with pytest.raises(UsageError, match=r"score bins is 1,025 bins of 2\^-10 in a, 513 bins of 2\^-9 in b"):
        merged([("a", one), ("b", coarse)])
    with pytest.raises(UsageError, match=r"the model file is sha256:1 in a, sha256:2 in b"):
        merged([("a", one), ("b", other)])


def test_no_row_is_in_a_file(tmp_path: Path) -> None:
    """No score and no feature of a row can be found in the bytes; a sum over a single row would be its score."""
    frame = people(300, 0)
    frame = frame[frame.race != "c"]
    frame["name"] = [f"person-{i}" for i in range(len(frame))]
    count(frame, READINGS["scores"]).save(tmp_path / "a.counts")
    content = (tmp_path / "a.counts").read_bytes()

    assert b"person-" not in content
    assert not any(score.tobytes() in content for score in frame["score"].to_numpy() if 0 < score < 1)


# ---------------------------------------------------------------------- damage

Change = Callable[[dict[str, Any], dict[str, Any]], object]
DAMAGES: dict[str, Change] = {
    "one column in two parts": lambda m, a: m["data_spec"].update(label="score"),
    "a threshold outside": lambda m, a: m["data_spec"].update(thresholds=[7.0]),
    "a weight that was not counted": lambda m, a: m["data_spec"].update(weight="weight"),
    "a label that was not counted": lambda m, a: m["data_spec"].update(label=None),
    "a cell with a level too few": lambda m, a: m["cells"][0].pop(),
    "cells in disorder": lambda m, a: m["cells"].reverse(),
    "rows that were not read": lambda m, a: m["pieces"][0].update(read=1),
    "more entries than there are": lambda m, a: m["pieces"][0].update(entries=m["pieces"][0]["entries"] + 1),
    "a huge grid": lambda m, a: m["pieces"][0].update(grid=[10, 0, 1 << 40]),
    "a grid upside down": lambda m, a: m["pieces"][0].update(grid=[10, 5, 0]),
    "a small grid": lambda m, a: m["pieces"][0].update(grid=[1, 0, 2]),
    "no grid": lambda m, a: m["pieces"][0].update(grid=None),
    "a reason twice": lambda m, a: m["pieces"][0].update(excluded=[["why", 0], ["why", 0]]),
    "an array too few": lambda m, a: a.pop("rows"),
    "a cell that is not there": lambda m, a: a.update(cell=a["cell"] + 100),
    "places in disorder": lambda m, a: a.update(place=a["place"][::-1].copy()),
    "places outside": lambda m, a: a.update(place=a["place"] + 100_000),
    "decisions that do not add up": lambda m, a: a.update(decisions=a["decisions"] * 2),
    "a grid of another scale": lambda m, a: [piece["grid"].__setitem__(0, 3) for piece in m["pieces"]],
    "a grid for a table of gigabytes": lambda m, a: m["pieces"][0].update(grid=[10, 0, 1 << 20]),
    "more rows than can be counted": lambda m, a: m["pieces"].append(
        {"read": 1 << 53, "excluded": [["why", 1 << 53]], "grid": None, "cells": 0, "entries": 0}
    ),
    "losses below 0": lambda m, a: a.update({"sums.log_loss": a["sums.log_loss"] * [-1, 1]}),
    "squares below 0": lambda m, a: a.update({"sums.score": a["sums.score"] * [1, -1]}),
    "a mean beyond the scale": lambda m, a: a.update({"sums.score": a["sums.score"] * [3, 9]}),
    "a mean without its squares": lambda m, a: a.update({"sums.log_loss": a["sums.log_loss"] * [9, 1]}),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_does_not_fit_together_is_refused(damage: str, tmp_path: Path) -> None:
    """Content with sound hashes that no scan makes is refused before anything is built of it."""
    count(people(300, 0), READINGS["randomized"]).save(tmp_path / "a.counts")
    found = artifact.read(tmp_path / "a.counts", COUNTS)
    manifest, arrays = json.loads(json.dumps(dict(found.manifest))), dict(found.arrays)
    DAMAGES[damage](manifest, arrays)
    artifact.write(tmp_path / "b.counts", Archive(manifest, arrays), COUNTS)

    with pytest.raises(ArtifactError, match=r"b\.counts is not a valid file of counts"):
        CountFile.load(tmp_path / "b.counts")


@pytest.mark.parametrize(
    "damage",
    [
        {"mass": 2.0},
        {"mass": 0.5},
        {"square_mass": 2.0},
        {"square_mass": 1e300},
        {"mass": 1e200, "square_mass": 1e300},
        {"sums.score": [1, 1, 1, -1]},
        {"decisions": [1, 1, 2, 2]},
    ],
)
def test_weights_that_contradict_their_squares_are_refused(damage: dict[str, Any], tmp_path: Path) -> None:
    """The sum of squared weights is at most the square of their sum, and at least that by the number of rows."""
    count(people(300, 0), READINGS["randomized, weights"]).save(tmp_path / "a.counts")
    held = artifact.read(tmp_path / "a.counts", COUNTS)
    alone = held.arrays["rows"] == 1  # where weight and square tell each other
    arrays = dict(held.arrays)
    for name, factor in damage.items():
        arrays[name] = (
            np.where(alone, arrays[name] * factor, arrays[name])
            if name in ("mass", "square_mass")
            else arrays[name] * factor
        )
    artifact.write(tmp_path / "b.counts", Archive(held.manifest, arrays), COUNTS)

    with pytest.raises(
        ArtifactError, match=r"b\.counts is not a valid file of counts: .*count the data again"
    ):
        CountFile.load(tmp_path / "b.counts")


# ---------------------------------------------------------------------- command line


@pytest.fixture
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with two CSV files and a repaired predictor's kind of file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for i in range(2):
        people(400, i).to_csv(tmp_path / "data" / f"{i}.csv", index=False)
    return tmp_path


def test_the_commands_give_the_report_of_the_folder(shards: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Counts of each file, added by any command in any form, make the JSON of the counts of the folder."""
    for i in range(2):
        assert run(["count", f"data/{i}.csv", "--protected", "race,sex", "-o", f"{i}.counts"]) == 0
    assert run(["count", "0.counts", "1.counts", "-o", "all.counts"]) == 0
    assert "wrote all.counts: 800 rows read, 800 counted" in capsys.readouterr().err
    Path("both").mkdir()
    for i in range(2):
        Path(f"{i}.counts").rename(f"both/{i}.table")  # known by their content
    Path("both/notes.md").write_text("of two hospitals")
    assert run(["count", "data", "--protected", "race,sex", "-o", "whole.counts", "--quiet"]) == 0
    checked = ["--check", "dp.difference<=0.5", "--undecided", "pass", "--quiet", "--format", "json"]
    results = []
    for data in (
        ["whole.counts"],
        ["all.counts"],
        ["both"],
        ["both/*.table"],
        ["both/0.table", "both/1.table"],
    ):
        capsys.readouterr()
        assert run(["audit", *data, *checked]) == 0
        results.append(json.loads(capsys.readouterr().out))
        assert results[-1]["data"].pop("source") == (
            "data (2 files)" if len(results) == 1 else "0.csv and 1 more"
        )
    assert all(one == results[0] for one in results)
    assert run(["audit", "both/*", *checked]) == 2
    assert "contains counts (0.table) and other files (notes.md)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["data"], "data has rows, and the other DATA has counts"),
        (["--label", "yes"], "--label is yes, but the counts were made with label"),
        (["--threshold", "0.7"], "--threshold is 0.7, but the counts were made with 0.5"),
        (["--protected", "sex"], "--protected is sex, but the counts were made with race"),
        (["--weight", "weight"], "--weight is weight, but the counts were made with none"),
        (["--reference", "race=z"], "'race' has no group 'z'"),
    ],
)
def test_what_contradicts_the_counts_is_an_error(
    more: list[str], told: str, shards: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An option that says something else than the file is not passed over in silence; one that agrees is fine."""
    assert run(["count", "data", "--protected", "race", "-o", "a.counts"]) == 0
    agreed = ["--protected", "race", "--threshold", "0.5", "--label", "label"]
    assert run(["audit", "a.counts", *agreed]) == 0

    assert run(["audit", "a.counts", *more]) == 2
    assert told in capsys.readouterr().err


NEEDING: dict[str, Any] = {
    **dict.fromkeys(OF_ROWS, "x"),
    "similar": "flips",
    "header": True,
    "delimiter": ";",
    "decimal": ",",
    "validation": 0.1,
    "guarantee": 0.95,
    "id": "id",
    "top": 5,
    "protected": "race",
    "noise": "n.csv",
    "slices": "all",
    "explain_gap": True,
}
"""Parameter that needs rows -> a value; and what some of them need."""


@pytest.mark.parametrize("kind", [AuditRequest, RepairRequest, CountRequest])
def test_what_needs_rows_is_refused_by_its_name(kind: type[Request], shards: Path) -> None:
    """Every row of the table, by the command and the library, with one message."""
    counts = fairfix.count("data", protected="race")
    function = {AuditRequest: fairfix.audit, RepairRequest: fairfix.repair, CountRequest: fairfix.count}[kind]
    given: dict[str, Any] = {"method": "ramp"} if kind is RepairRequest else {}
    for name in {*OF_ROWS, *kind.needs_rows} & parameters_of(kind).keys():
        also = [needed[0] for one, needed, _ in REQUIRES if one == name]
        more = {one: NEEDING[one] for one in (name, *also)}
        with pytest.raises(UsageError, match=f"^`{name}` needs rows, and the data is counts") as told:
            function(counts, **given, **more)
        assert "leave out" in str(told.value)


def test_counts_are_no_rows(shards: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where only rows do, they are refused with the way to see what they are; so are they in several DATA of rows."""
    assert run(["count", "data", "--protected", "race", "-o", "a.counts", "--quiet"]) == 0
    for line in (
        ["compare", "a.counts", "--protected", "race"],
        ["repair", "data", "--protected", "race", "--method", "ramp", "--unlabelled", "a.counts"],
    ):
        assert run(line) == 2
        assert "inspect a.counts" in capsys.readouterr().err
    assert run(["audit", "a.counts", "--slices"]) == 2  # without a protected column slices are searched alone
    assert "--slices needs rows" in capsys.readouterr().err
    assert run(["audit", "data", "data/0.csv", "--protected", "race"]) == 2
    assert "several files of rows" in capsys.readouterr().err


def test_counts_are_a_baseline(shards: Path) -> None:
    """Of other counts and of rows, as the result of their audit is."""
    for i in range(2):
        fairfix.count(f"data/{i}.csv", protected="race").save(f"{i}.counts")
    Path("old.json").write_text(fairfix.audit("0.counts").to_json())
    for data, more in (("1.counts", {}), ("data/1.csv", {"protected": "race"})):
        check = "dp.difference.change<=0.5"
        results = [
            fairfix.audit(data, **more, baseline=old, check=check).to_dict()
            for old in ("old.json", "0.counts")
        ]
        for result in results:
            assert result["checks"][0]["verdict"] == "pass"
            del result["baseline"]["source"]
        assert results[0]["baseline"] == results[1]["baseline"]
    with pytest.raises(UsageError, match="the data is counts"):
        fairfix.audit("1.counts", baseline="data/0.csv")


def test_the_configuration_of_the_data_does_not_disturb(shards: Path) -> None:
    """With data and columns in fairfix.toml, counts are audited all the same; a contradiction is an error."""
    Path("fairfix.toml").write_text(
        'data = "data"\nprotected = ["race"]\nlabel = "label"\ndelimiter = ","\nholdout = 0.2\n'
    )
    assert run(["count", "-o", "a.counts"]) == 0
    assert run(["audit", "a.counts"]) == 0
    assert run(["repair", "a.counts", "--method", "ramp", "--id", "id"]) == 0
    Path("fairfix.toml").write_text('data = "a.counts"\n[repair]\nmethod = "ramp"\nholdout = "b.counts"\n')
    assert run(["audit"]) == 0
    assert run(["repair"]) == 2  # there are no b.counts
    Path("fairfix.toml").write_text('data = "data"\nprotected = ["race"]\nthreshold = 0.9\n')
    assert run(["audit", "a.counts"]) == 2


def test_inspect_tells_what_was_counted(shards: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Sources, rows, reading and levels, as text and JSON; anything else is told as of an artifact."""
    assert run(["count", "data", "--protected", "race", "-o", "a.counts", "--quiet"]) == 0
    capsys.readouterr()
    assert run(["inspect", "a.counts"]) == 0
    assert "rows              800 read, 800 counted" in capsys.readouterr().out
    assert run(["inspect", "a.counts", "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["format"], told["levels"]) == ("fairfix.counts/1", {"race": ["a", "b", "c"]})
    for content in (b"", b"PK", Path("a.counts").read_bytes()[:-9]):
        Path("bad.counts").write_bytes(content)
        assert run(["inspect", "bad.counts"]) == 2


def test_only_counts_are_added(shards: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Other files, one file twice and no folder to write to are errors; twins are a warning."""
    assert run(["count", "data/0.csv", "--protected", "race", "-o", "a.counts"]) == 0
    Path("twin.counts").write_bytes(Path("a.counts").read_bytes())
    Path("bad.counts").write_bytes(Path("a.counts").read_bytes()[:-9])
    artifact.write("other.fairfix", Archive({"method": "ramp"}, {}))

    for wrong, told in (
        (["a.counts", "./a.counts", "-o", "x"], "named twice"),
        (["a.counts", "data/0.csv", "-o", "x"], "data/0.csv has rows"),
        (["a.counts", "gone.counts", "-o", "x"], "gone.counts does not exist"),
        (["a.counts", "other.fairfix", "-o", "x"], "other.fairfix has rows"),
        (["a.counts", "bad.counts", "-o", "x"], "bad.counts is not a valid file of counts"),
        (["a.counts", "-o", "nowhere/x"], "the folder nowhere does not exist"),
        (["a.counts", "-o", "a.counts"], "also used by DATA"),
        (["a.counts", "twin.counts", "-o", "twin.counts"], "also used by DATA"),
    ):
        assert run(["count", *wrong]) == 2
        assert told in capsys.readouterr().err
        assert not Path("x").exists()
    assert run(["audit", "a.counts", "twin.counts"]) == 0
    assert "a.counts and twin.counts contain identical counts" in capsys.readouterr().err
    assert run(["count", "data/1.csv", "--protected", "race", "-o", "b.counts", "--quiet"]) == 0
    assert run(["count", "a.counts", "b.counts", "-o", "ab.counts", "--quiet"]) == 0
    assert capsys.readouterr().err == ""
    assert run(["count", "b.counts", "ab.counts", "-o", "bab.counts"]) == 0
    assert "b.counts and ab.counts contain identical counts" in capsys.readouterr().err


def test_scores_of_a_model_file(shards: Path) -> None:
    """Rows scored by a model are counted like rows with a score; name and hash of the model go along."""
    from sklearn.linear_model import LogisticRegression
    from skops.io import dump

    frame = people(900, 5)
    dump(LogisticRegression().fit(frame[["raw", "real"]], frame["label"]), "model.skops")
    for i in range(3):
        frame[300 * i : 300 * (i + 1)].to_parquet(f"part-{i}.parquet")
    parts, whole = (
        [fairfix.count(path, protected="race", model="model.skops") for path in paths]
        for paths in ([f"part-{i}.parquet" for i in range(3)], ["part-*.parquet"])
    )
    found, wanted = (fairfix.audit(counts).to_dict() for counts in (parts, whole[0]))

    assert found["data"].pop("source") == "part-0.parquet and 2 more"
    assert wanted["data"].pop("source") == "part-*.parquet (3 files)"
    assert found == wanted
    assert found["data"]["model"]["sha256"].startswith("sha256:")
