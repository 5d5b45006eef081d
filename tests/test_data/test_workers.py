"""Workers: one result whoever reads the parts, and a place in every message."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.files import FrameSource, Source, SourcePart
from fairfix.data.scan import scan
from fairfix.data.workers import Threads, added, workers_of
from fairfix.errors import DataError, UsageError
from fairfix.models.user_file import file_hash, load_model
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from tests.conftest import Call, Frames

READING = DataSpec(ColumnRoles(protected=("race",), label="label", score="score"))


@dataclass(frozen=True)
class Word:
    """A piece of work whose sum shows how it was added."""

    where: str


@given(st.integers(0, 40))
def test_sum_is_a_tree_of_the_order(many: int) -> None:
    """Neighbours are added by pairs, pairs by pairs; the tree hangs on the number of pieces alone."""

    @dataclass(frozen=True)
    class Shown:
        text: str

        def __add__(self, other: Shown) -> Shown:
            return Shown(f"({self.text}+{other.text})")

    def by_levels(level: list[Shown]) -> Shown | None:
        while len(level) > 1:
            pairs = [level[i] + level[i + 1] for i in range(0, len(level) - 1, 2)]
            level = pairs + level[2 * len(pairs) :]
        return level[0] if level else None

    leaves = [Shown(str(i)) for i in range(many)]
    pieces = [Word(str(i)) for i in range(many)]

    assert added(leaves) == by_levels(leaves)
    assert Threads(3).total(pieces, lambda piece: Shown(piece.where)) == by_levels(leaves)


# ---------------------------------------------------------------------- a cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """Yield the address of a scheduler with two worker processes on this machine."""
    dask = pytest.importorskip("dask", reason="the extra `dask` is not installed")
    distributed = pytest.importorskip("distributed", reason="the extra `dask` is not installed")
    with (
        dask.config.set(
            {"distributed.scheduler.allowed-failures": 1, "distributed.comm.timeouts.connect": "5s"}
        ),
        distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as local,
    ):
        yield local.scheduler_address


def parts_of(frame: pd.DataFrame, folder: Path, many: int = 5) -> str:
    """Write a frame as some files; return the pattern of their names."""
    for i, rows in enumerate(np.array_split(np.arange(len(frame)), many)):
        frame.iloc[rows].to_parquet(folder / f"part{i}.parquet")
    return str(folder / "part*.parquet")


@pytest.mark.slow
def test_a_cluster_gives_the_same_bytes(
    cluster: str, tmp_path: Path, frames: Frames, call: Call, away: None
) -> None:
    """Of an audit with weights and of its counts, from a path that is not absolute."""
    parts_of(frames(3000), tmp_path)
    asked = ("part*.parquet", "--protected", "race", "--weight", "weight")
    for line in (("audit", *asked, "--format", "json"), ("count", *asked, "-o", "a.counts")):
        here = call(*line)
        counts = Path("a.counts").read_bytes() if "a.counts" in line else b""
        there = call(*line, "--cluster", cluster)

        assert here[0] == there[0] == 0, there[2]
        assert here[1] == there[1]
        assert not counts or counts == Path("a.counts").read_bytes()


@pytest.mark.slow
def test_the_second_pass_of_a_cluster(cluster: str, tmp_path: Path, call: Call) -> None:
    """More rows than are kept: exact distances fetch those of a few bins, which the workers find."""
    rng = np.random.default_rng(3)
    n = 1_100_000
    group = rng.integers(0, 2, n)
    score = np.clip(rng.normal(0.5 + 0.01 * group, 0.2, n), 0, 1)
    data = pd.DataFrame({"race": np.array(["a", "b"])[group], "score": score, "label": rng.integers(0, 2, n)})
    asked = ("audit", parts_of(data, tmp_path, 3), "--protected", "race", "--format", "json")
    here, there = call(*asked), call(*asked, "--cluster", cluster)

    assert here[0] == there[0] == 0, there[2]
    assert here[1] == there[1]


@pytest.mark.slow
def test_workers_score_their_parts_by_the_model_file(
    cluster: str, tmp_path: Path, frames: Frames, call: Call
) -> None:
    """The model goes to the workers as the name and hash of its file."""
    data = frames(900)
    joblib.dump(LogisticRegression().fit(data[["x", "weight"]], data.label), tmp_path / "m.joblib")
    trust = file_hash(tmp_path / "m.joblib")
    asked = (
        "audit",
        parts_of(data.drop(columns="score"), tmp_path),
        "--protected",
        "race",
        "--format",
        "json",
    )
    model = ("--model", str(tmp_path / "m.joblib"), "--trust-model", trust)
    here, there = call(*asked, *model), call(*asked, *model, "--cluster", cluster)

    assert here[0] == there[0] == 0, there[2]
    assert here[1] == there[1]
    loaded = load_model(tmp_path / "m.joblib", trust=trust)
    sent = pickle.dumps(loaded)
    assert len(sent) < 1000  # no estimator in it
    frame = data.head(5)
    assert (pickle.loads(sent).score(frame) == loaded.score(frame)).all()


class Deadly(Source):
    """Rows in ten parts, of which one kills the process that reads it, ``times`` times."""

    def __init__(self, frame: pd.DataFrame, folder: Path, times: int) -> None:
        self.table = pa.Table.from_pandas(frame, preserve_index=False)
        self.name, self.schema, self.rows, self.folder, self.times = (
            "deadly",
            self.table.schema,
            None,
            folder,
            times,
        )

    def parts(
        self, columns: Sequence[str], types: Mapping[str, pa.DataType] | None = None
    ) -> list[SourcePart]:
        """Return ten parts."""
        table, size = self.table.select(list(columns)), len(self.table) // 10
        return [
            SourcePart(f"part {i}", self.data_spec(table.slice(i * size, size), i == 6)) for i in range(10)
        ]

    def data_spec(self, table: pa.Table, kills: bool) -> Callable[[], Iterator[pa.RecordBatch]]:
        """Return what reads a part."""
        folder, times = self.folder, self.times

        def batches() -> Iterator[pa.RecordBatch]:
            deaths = len(list(folder.glob("death*")))
            if kills and deaths < times:
                (folder / f"death{deaths}").touch()
                os._exit(1)
            yield from table.to_batches()

        return batches


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced(cluster: str, tmp_path: Path, frames: Frames) -> None:
    """Its parts are counted by others, and every row once."""
    frame = frames(1000)
    with workers_of(cluster) as workers:
        found = scan(Deadly(frame, tmp_path, 1).read_by(workers), READING)
    whole = scan(FrameSource(pa.Table.from_pandas(frame, preserve_index=False)), READING)

    assert (tmp_path / "death0").exists()
    assert found.counts.cells == whole.counts.cells
    assert (found.counts.rows == whole.counts.rows).all()


@pytest.mark.slow
def test_a_part_that_kills_every_worker_ends_the_run(cluster: str, tmp_path: Path, frames: Frames) -> None:
    """Instead of the whole cluster; the message says what the workers had to do, as far as Dask knows."""
    with (
        workers_of(cluster) as workers,
        pytest.raises(
            DataError, match=r"the workers of the cluster died, 2 one after another, with (part|the add)"
        ),
    ):
        scan(Deadly(frames(1000), tmp_path, 99).read_by(workers), READING)


@pytest.mark.parametrize("order", ["each", "total"])
def test_what_is_wrong_with_a_part_is_said_as_by_one_process(
    cluster: str, order: str, tmp_path: Path, frames: Frames, call: Call
) -> None:
    data = frames(500)
    data.loc[321, "score"] = 7.0
    asked = ["count" if order == "each" else "audit", parts_of(data, tmp_path), "--protected", "race"]
    asked += ["-o", str(tmp_path / "x.counts")] if order == "each" else []
    here, there = call(*asked), call(*asked, "--cluster", cluster)

    assert here[0] == there[0] == 2
    assert here[2] == there[2].replace(f" --cluster {cluster}", "")
    assert "row 22 of part3.parquet" in there[2]
    assert not (tmp_path / "x.counts").exists()


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("local", "give the number of processes, as in local:4"),
        ("local:0", "give the number of processes, as in local:4"),
        ("somewhere", "give the scheduler's address, as tcp://HOST:8786"),
        ("tcp://127.0.0.1:1", "no scheduler answers there"),
        ("xyz://127.0.0.1:1", "no scheduler answers there"),
    ],
)
def test_no_cluster(
    address: str, says: str, tmp_path: Path, frames: Frames, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An address where nobody is ends the run before anything is read."""
    pytest.importorskip("distributed", reason="the extra `dask` is not installed")
    monkeypatch.setattr("fairfix.data.workers.PATIENCE", 1)
    err = call.refused("audit", parts_of(frames(), tmp_path), "--protected", "race", "--cluster", address)
    assert f"--cluster {address}: {says}" in err


def test_workers_of_another_version_are_refused(cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their bytes could be others."""
    monkeypatch.setattr("fairfix.data.workers.platform.python_version", lambda: "2.7")
    with (
        pytest.raises(Exception, match=r"has python 3\.\d+\.\d+, this process has 2\.7; install the same"),
        workers_of(cluster),
    ):
        pass


def test_without_dask_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError, match=r"pip install 'fairfix\[dask\]'"), workers_of("local:2"):
        pass


def test_counts_need_no_cluster(tmp_path: Path, frames: Frames, call: Call) -> None:
    counts: Any = tmp_path / "a.counts"
    call("count", parts_of(frames(), tmp_path), "--protected", "race", "-o", str(counts))
    err = call.refused("audit", str(counts), "--cluster", "local:2")
    assert "--cluster needs rows, and the data is counts" in err


def test_a_folder_gets_a_file_of_predictions_for_each_file(
    cluster: str, tmp_path: Path, frames: Frames, call: Call
) -> None:
    """By one process or by the workers, who write them themselves; folders inside are kept."""
    data = tmp_path / "in"
    for name, seed in (("a/x", 1), ("b/x", 2), ("y", 3)):
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        frames(300, seed).to_parquet(data / f"{name}.parquet")
    rule, there, here = (f"{tmp_path}/{name}" for name in ("r.fairfix", "there/", "here/"))
    fit = str(data / "y.parquet")
    assert call("repair", fit, "--method", "ramp", "--protected", "race", "--seed", "1", "-o", rule)[0] in (
        0,
        1,
    )
    for folder, more in ((here, ()), (there, ("--cluster", cluster))):
        status, _, err = call("predict", rule, str(data), "-o", folder, *more)
        assert status == 0, err
        assert f"wrote 900 rows to 3 files in {folder}" in err
    alone = str(tmp_path / "alone.parquet")
    call("predict", rule, str(data / "a" / "x.parquet"), "-o", alone)

    files = sorted(path.relative_to(here) for path in Path(here).rglob("*.parquet"))
    assert list(map(str, files)) == ["a/x.parquet", "b/x.parquet", "y.parquet"]
    for name in files:
        assert (Path(here) / name).read_bytes() == (Path(there) / name).read_bytes()
    assert (Path(here) / "a/x.parquet").read_bytes() == Path(alone).read_bytes()
    (tmp_path / "link").symlink_to(data)
    (data / "x.parquet").write_bytes((data / "y.parquet").read_bytes())
    before = {path: path.stat().st_mtime_ns for path in data.rglob("*")}
    for taken, replaced in ((f"{data}/", "a/x"), (f"{tmp_path}/link/", "a/x"), (f"{data}/a/", "x")):
        err = call.refused("predict", rule, str(data), "-o", taken)
        assert f"--output {taken} would replace {replaced}.parquet, an input file" in err
    assert {path: path.stat().st_mtime_ns for path in data.rglob("*")} == before
    err = call.refused("predict", rule, str(data), "-o", alone, "--cluster", cluster)
    assert "--cluster writes a file for each file of data" in err


@pytest.mark.slow
def test_a_file_that_cannot_be_predicted_leaves_the_others_whole(
    tmp_path: Path, frames: Frames, call: Call
) -> None:
    """What is written is whole and counted; the message names the file that is wrong."""
    data, rule = tmp_path / "in", str(tmp_path / "r.fairfix")
    data.mkdir()
    for i in range(3):
        frames(300, i).assign(race="unseen" if i == 1 else "r0").to_parquet(data / f"{i}.parquet")
    frames(300).to_parquet(tmp_path / "fit.parquet")
    call("repair", str(tmp_path / "fit.parquet"), "--method", "ramp", "--protected", "race", "-o", rule)
    err = call.refused("predict", rule, str(data), "-o", f"{tmp_path}/out/")
    assert "of 1.parquet" in err
    assert "; files completed before the error: 1 [data]" in err
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["0.parquet"]
