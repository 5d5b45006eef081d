"""Artifacts whose container is sound but whose manifest lies are refused, or used as they say; never a crash."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fairfix.data.container import Archive, read, write
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.files import open_source
from fairfix.data.scan import read_table, scan
from fairfix.data.table import Table
from fairfix.errors import ArtifactError, DataError, FairfixError
from fairfix.methods.ramp import Ramp
from fairfix.models.identity import identity_columns
from fairfix.models.repaired import OUTPUT, Repaired, at_predict_time, fingerprint, hash_key
from fairfix.models.score_models import Scorer, Unrepaired
from fairfix.tasks.fit_and_evaluate import repair_table
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import Call
from tests.data import people
from tests.strategies import examples

ROWS = pa.Table.from_pandas(people(300)[["id", "race", "sex", "score"]], preserve_index=False)
"""Scored rows of two columns to cross."""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact of a ramp on crossed columns."""
    data_spec = DataSpec(ColumnRoles(("race", "sex"), score="score", id="id"), thresholds=(0.5,))
    table = read_table(ROWS, data_spec)
    outcome = repair_table(table, Ramp(gamma=0.5))
    repaired = Repaired(
        "ramp",
        outcome.repairer.parameters,
        outcome.predictor,
        at_predict_time(data_spec, outcome.predictor),
        "error",
        identity_columns(ROWS.schema, data_spec),
        hash_key(0, "data"),
        {"kind": "column", "name": "score"},
        {},
        0,
    )
    path = tmp_path_factory.mktemp("repaired") / "r.fairfix"
    repaired.save(path)
    return path


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value inside a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield (*at, key)
        yield from places(part, (*at, key))


WRONG = [None, 0, -1, 1.5, "", "x", [], {}, True, ["race"], "race", "sex", 1e308, [["a"]], [["a", "f"]]]


@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_lying_manifest_is_refused_or_harmless(data: st.DataObject, saved: Path, tmp_path: Path) -> None:
    """Any value replaced or removed: loading and predicting work, or say no."""
    whole = read(saved)
    manifest: dict[str, Any] = copy.deepcopy(dict(whole.manifest))
    path = data.draw(st.sampled_from(list(places(manifest))))
    inner: Any = manifest
    for key in path[:-1]:
        inner = inner[key]
    if isinstance(inner, dict) and data.draw(st.booleans()):
        del inner[path[-1]]
    else:
        inner[path[-1]] = data.draw(st.sampled_from(WRONG))
    write(tmp_path / "changed.fairfix", Archive(manifest, whole.arrays))
    try:
        repaired = Repaired.load(tmp_path / "changed.fairfix")
        rows = sum(batch.num_rows for batch in repaired.predict_source(open_source(ROWS)))
    except FairfixError:
        return
    assert rows == 300


LIES: dict[str, tuple[tuple[Any, ...], Any, str]] = {
    "needs no group": (("requires", "protected_at_predict"), False, "requirements contradict its content"),
    "a method with a line of SQL": (("method",), "ramp\nDROP TABLE data; --", "$.method"),
    "a threshold in words": (("policies", "threshold"), "0.5", "$.policies.threshold"),
    "a seed of ten": (("seed",), "10", "seed"),
    "facts that are a list": (("facts",), [["solution", {}]], "facts"),
    "a key of its own": (("more",), 1, "more"),
    "a base without its model": (("base",), {"kind": "file", "name": "m.skops"}, "base"),
    "a width below 0": (("predictor", "settings", "gamma"), -0.5, "gamma"),
    "a megabyte for a level": (("predictor", "settings", "levels", 0), "x" * 1_000_000, "levels"),
}


@pytest.mark.parametrize("command", ["inspect", "predict", "export"])
@pytest.mark.parametrize("lie", LIES)
def test_every_command_refuses_a_lie_and_names_the_file(
    lie: str, command: str, saved: Path, tmp_path: Path, call: Call
) -> None:
    """Status 2, file, field and remedy; what could not be used is not shown as if it could, and nothing is written."""
    whole, (path, value, words) = read(saved), LIES[lie]
    manifest = copy.deepcopy(dict(whole.manifest))
    inner: Any = manifest
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    write(changed := tmp_path / "changed.fairfix", Archive(manifest, whole.arrays))
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    more = {
        "predict": (f"{tmp_path}/rows.parquet", "-o", f"{tmp_path}/x"),
        "export": ("--to", "sql", "-o", f"{tmp_path}/x"),
    }
    status, out, err = call(command, str(changed), *more.get(command, ()))

    assert (status, out) == (2, "")
    assert "changed.fairfix" in err
    assert words in err
    assert "make it again" in err
    assert len(err) < 1000
    assert not (tmp_path / "x").exists()


def test_inspect_escapes_what_steers_a_terminal(saved: Path, tmp_path: Path, call: Call) -> None:
    whole = read(saved)
    manifest = {**whole.manifest, "parameters": {"gamma": "\x1b[31m\u202egpj\n::error::x"}}
    write(tmp_path / "a.fairfix", Archive(manifest, whole.arrays))
    status, out, _ = call("inspect", str(tmp_path / "a.fairfix"), "--detail")

    assert status == 0
    assert r"gamma \x1b[31m\u202egpj\n::error::x" in out


@pytest.mark.parametrize("decided", [True, False])
def test_a_rule_that_gives_no_number_is_an_error(decided: bool) -> None:
    """A row without a number would be taken for one of an unseen group; only of such a group there is none."""
    bad = np.inf if decided else np.nan

    class Odd(Unrepaired):
        gives = "decision" if decided else "value"

        def predict(self, table: Table) -> Any:
            return np.where(np.arange(len(table)) == 7, bad, 0.5)

    data_spec = DataSpec(ColumnRoles(("race",), score="score"), thresholds=(0.5,))
    repaired = Repaired(
        "odd",
        {},
        Odd(Scorer()),
        data_spec,
        "abstain",
        {"id": "text"},
        b"x",
        {"kind": "column", "name": "score"},
        {},
        0,
    )
    with pytest.raises(
        DataError, match=rf"the rule gives {bad:g}, which is not a \w+, for one of the 300 rows"
    ):
        list(repaired.predict_source(open_source(ROWS)))


def test_the_stream_is_the_table(saved: Path) -> None:
    """Batch by batch or at once, the columns added are the same."""
    repaired = Repaired.load(saved)
    whole = pa.Table.from_batches(repaired.predict_source(open_source(ROWS)))
    small = pa.Table.from_batches(ROWS.to_batches(max_chunksize=7))
    cut = pa.Table.from_batches(repaired.predict_source(open_source(small)))

    for name in OUTPUT.names:
        assert whole[name].to_pylist() == cut[name].to_pylist()
    assert whole.schema == repaired.output_schema(open_source(ROWS))


@pytest.mark.parametrize("bad", [{}, np.zeros(3), np.full(4, np.nan), np.array([np.inf, 0, 0, 0])], ids=str)
def test_arrays_that_do_not_fit_are_refused(bad: Any, saved: Path, tmp_path: Path) -> None:
    """Missing arrays, one of another length than the groups, offsets that decide nothing; bands may be missing."""
    whole = read(saved)
    older = {name: part for name, part in whole.manifest.items() if name != "bands"}
    write(tmp_path / "changed.fairfix", Archive(older, whole.arrays))
    assert Repaired.load(tmp_path / "changed.fairfix").data_spec.bands == {}
    arrays = {**whole.arrays, "offsets": bad} if isinstance(bad, np.ndarray) else bad
    write(tmp_path / "changed.fairfix", Archive(older, arrays))
    with pytest.raises(ArtifactError):
        Repaired.load(tmp_path / "changed.fairfix")


def test_the_fingerprint_tells_data_apart() -> None:
    """Other rows or another schema, another fingerprint; the same rows in another order, the same."""
    data_spec = DataSpec(ColumnRoles(("race",), score="score"), thresholds=(0.5,))

    def print_of(table: pa.Table) -> str:
        return fingerprint(scan(open_source(table), data_spec).counts, table.schema)

    assert print_of(ROWS) == print_of(ROWS.take(np.arange(299, -1, -1)))
    assert len({print_of(ROWS), print_of(ROWS.slice(1)), print_of(ROWS.drop_columns(["sex"]))}) == 3
