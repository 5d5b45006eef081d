"""Suppression: a result is that of the rows kept, whatever the rows of small groups are."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema
import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from fairfix.auditing.audit import audit
from fairfix.auditing.checks import Check
from fairfix.auditing.results import Settings
from fairfix.auditing.suppression import shown_cells
from fairfix.cli import run
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.typed import rebatched
from fairfix.errors import DataError, UsageError
from fairfix.schema.common import comparison, estimate
from hypothesis import given
from hypothesis import strategies as st

from tests.results import FILES, audit_dict, rendered
from tests.strategies import examples
from tests.test_auditing.test_gates import SCHEMA

RACES = ("Ash", "Birch", "Cedar", "Dogwood", "Elm")
SHARES = (0.5, 0.3, 0.15, 0.04, 0.01)
READING = DataSpec(ColumnRoles(("race", "sex"), label="label", score="score", strata=("product",)))
OF_RACE = DataSpec(ColumnRoles(("race",), label="label", score="score"))
LEAST = 12


def people(rows: int, seed: int) -> dict[str, Any]:
    """Return people with some rare races, sexes and products."""
    rng = np.random.default_rng(seed)
    return {
        "race": rng.choice(RACES, rows, p=SHARES),
        "sex": rng.choice(["female", "male", "other"], rows, p=[0.5, 0.47, 0.03]),
        "product": rng.choice(["boat", "car", "home"], rows, p=[0.05, 0.5, 0.45]),
        "label": rng.integers(0, 2, rows),
        "score": rng.random(rows),
    }


def audited(
    data: Mapping[str, Any], least: int, data_spec: DataSpec = READING, **settings: Any
) -> dict[str, Any]:
    """Return the JSON form of an audit, which holds to its schema."""
    columns = {name: pa.array(values.tolist()) for name, values in data.items()}
    chosen = Settings(
        **{"intersect": len(data_spec.columns.protected) > 1, "suppress_below": least, **settings}
    )
    result = json.loads(rendered("json", audit_dict(audit(columns, data_spec, chosen))))
    jsonschema.validate(result, SCHEMA, jsonschema.Draft202012Validator)
    return result


def tables(result: Mapping[str, Any]) -> Iterator[tuple[dict[str, str], Mapping[str, Any]]]:
    """Yield what a reader sees of each group: the columns that define it, and all numbers."""
    for block in (*result["attributes"], *result["strata"]):
        where = dict(pair.split("=") for pair in block.get("stratum", "").split(" & ") if pair)
        for group in block["groups"]:
            yield {**where, **dict(zip(block["columns"], group["group"].split(" & "), strict=True))}, group


def members(data: Mapping[str, Any], levels: Mapping[str, str]) -> Any:
    """Return which rows are in a group."""
    return np.all([data[name] == level for name, level in levels.items()], axis=0)


def small_groups(data: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the groups with fewer rows than the limit, of every table."""
    columns = [("race",), ("sex",), ("race", "sex")]
    out = []
    for names in (*columns, *(("product", *names) for names in columns)):
        levels, sizes = np.unique(np.array([data[n] for n in names]).T, axis=0, return_counts=True)
        out += [dict(zip(names, level, strict=True)) for level in levels[sizes < LEAST].tolist()]
    return out


def with_others(
    data: Mapping[str, Any], group: Mapping[str, str], size: int, seed: int = 0
) -> dict[str, Any]:
    """Return the data with ``size`` other people in a group, of any label and with scores beyond all others."""
    rng = np.random.default_rng(seed)
    keep = ~members(data, group)
    more = {name: np.repeat(group.get(name, values[0]), size) for name, values in data.items()}
    more |= {"label": rng.integers(0, 2, size), "score": rng.choice([0.0, 0.001, 0.999, 1.0], size)}
    order = rng.permutation(int(keep.sum()) + size)
    out = {name: np.concatenate([values[keep], more[name]]) for name, values in data.items()}
    at = np.argsort(np.concatenate([np.sort(order[: int(keep.sum())]), order[int(keep.sum()) :]]))
    return {name: values[at] for name, values in out.items()}  # those kept stay in their order


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(examples(6) // 3))
@pytest.mark.parametrize("scale", ["probability", "raw"])
def test_any_size_labels_and_scores_of_a_small_group_give_the_same_report(seed: int, scale: Any) -> None:
    """Whatever the rows of a small group are, up to one below the limit, every byte is the same."""
    data = people(700, seed)
    data_spec = DataSpec(READING.columns, score_scale=scale, thresholds=(0.5,))
    text = json.dumps(audited(data, LEAST, data_spec))
    small = small_groups(data)
    rng = np.random.default_rng(seed)

    assert len(small) > 5
    for group in rng.choice(np.array(small, dtype=object), 3, replace=False):
        for size in (0, 1, LEAST - 1):
            assert json.dumps(audited(with_others(data, group, size, seed), LEAST, data_spec)) == text, (
                group,
                size,
            )


@pytest.mark.slow
@pytest.mark.parametrize("intersect", [False, True])
def test_it_is_the_report_of_the_rows_kept(intersect: bool) -> None:
    """Overall numbers, the median and distributions included."""
    data = people(700, 3)
    kept = np.ones(700, dtype=bool)
    columns = [("race",), ("sex",), *([("race", "sex")] if intersect else [])]
    for _ in range(9):
        for names in [*columns, *(("product", *names) for names in columns)]:
            _, group, sizes = np.unique(
                np.array([np.where(kept, data[n], "") for n in names]).T,
                axis=0,
                return_inverse=True,
                return_counts=True,
            )
            kept &= sizes[group.ravel()] >= LEAST
    plain, ours = (
        audited({n: v[rows] for n, v in data.items()}, least, intersect=intersect)
        for rows, least in ((kept, 0), (slice(None), LEAST))
    )

    assert 300 < kept.sum() < 700
    for part in ("overall", "attributes", "strata", "pooled_median", "data"):
        assert ours[part] == plain[part]
    assert min(group["rows"] for _, group in tables(ours)) >= LEAST


@pytest.mark.slow
@pytest.mark.parametrize("rows", [7, 37, 400])
@pytest.mark.parametrize(
    "more", [(), ("--weight", "weight"), ("--task", "regression"), ("count",)], ids=" ".join
)
def test_where_batches_of_the_file_end_does_not_show(
    rows: int,
    more: tuple[str, ...],
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The last digits of a sum, and what is said of counts, are those of the rows kept; so are all files."""
    monkeypatch.chdir(tmp_path)
    data = people(600, 5)
    data["weight"] = np.random.default_rng(1).random(600) + 0.5
    seen = []
    for size in (1, 2, 5, LEAST - 1):
        of_size = {
            name: pa.array(values.tolist())
            for name, values in with_others(data, {"race": "Elm"}, size).items()
        }
        pq.write_table(pa.table(of_size), "d.parquet", row_group_size=rows)
        asked = ["--protected", "race", "--label", "label", "--score", "score", "--config", "none"]
        line = ["audit", "d.parquet", *more, "--out", "json=r.json"]
        line = ["count", "d.parquet", "-o", "x.counts"] if more == ("count",) else line
        assert run([*line, *asked, "--suppress-below", str(LEAST)]) == 0
        said = capsys.readouterr()
        files = [path.read_bytes() for path in sorted(tmp_path.iterdir()) if path.name != "d.parquet"]
        seen.append((said.out, said.err, files))
    assert all(one == seen[0] for one in seen)


@given(st.lists(st.integers(0, 9), max_size=9), st.integers(1, 7))
def test_batches_of_one_size_have_the_same_rows(sizes: list[int], size: int) -> None:
    """In their order, and all but the last one of this size."""
    rows = pa.table({"x": list(range(sum(sizes)))})
    ends = np.cumsum([0, *sizes])
    batches = [
        pa.RecordBatch.from_pydict({"x": rows["x"].slice(at, many).to_pylist()}, rows.schema)
        for at, many in zip(ends, sizes, strict=False)
    ]
    out = list(rebatched(iter(batches), size))
    assert [x for one in out for x in one["x"].to_pylist()] == rows["x"].to_pylist()
    assert all(one.num_rows == size for one in out[:-1])
    assert all(one.num_rows <= size for one in out)


def test_what_is_found_elsewhere_is_hidden_too() -> None:
    """Comparisons that come from changed rows lose what they say of small groups."""
    value = estimate(0.1, 0.0, 0.2, "over the rest; undefined in Elm")
    told = comparison("decision_flips.under_flips", value, ("Ash",), per_group={"Ash": value, "Elm": value})
    named = comparison("score_change.under_flips", value, ("Elm", "Ash"))
    data = {name: pa.array(values.tolist()) for name, values in people(700, 1).items()}
    report = audit(data, OF_RACE, Settings(suppress_below=LEAST), {"race": [told, named]})

    assert set(report.block("race").by_id["decision_flips.under_flips"].per_group) == {"Ash"}
    assert "Elm" not in report.block("race").by_id["decision_flips.under_flips"].reason
    assert "score_change.under_flips" not in report.block("race").by_id


def test_a_group_that_loses_its_rows_goes_too() -> None:
    """The sixth person of a race of twelve who is of a rare sex takes the others along."""
    cells = [("Ash", "f"), ("Ash", "m"), ("Elm", "f"), ("Elm", "x")]
    rows = np.array([40, 40, 9, 5])
    one = [("race",), ("sex",)]

    assert shown_cells(("race", "sex"), cells, rows, one[:1], 12).tolist() == [True, True, True, True]
    assert shown_cells(("race", "sex"), cells, rows, one, 12).tolist() == [True, True, False, False]
    assert shown_cells(("race", "sex"), cells, rows, one, 5).tolist() == [True, True, True, True]


def test_attributes_with_too_little_to_show_are_left_out() -> None:
    """Said in the report; a check of them cannot pass, and says the same of a group that is small or not there."""
    data = people(700, 1)
    data["sex"] = np.where(np.arange(700) < 5, "other", "male")
    data_spec = DataSpec(ColumnRoles(("race", "sex"), label="label", score="score"))
    checks = tuple(
        map(
            Check.parse,
            (
                "dp.difference<=0.9",
                "accuracy[race=Elm]>=0.1",
                "accuracy[race=Nobody]>=0.1",
            ),
        )
    )
    result = audited(data, LEAST, data_spec, checks=checks[:1])

    assert "sex" in result["suppressed"]["left_out"]
    assert {c["attribute"]: c["verdict"] for c in result["checks"]}["sex"] == "undecided"
    small, nobody = audited(data, LEAST, data_spec, checks=checks[1:])["checks"]
    assert small["verdict"] == nobody["verdict"] == "undecided"
    assert small["reason"] == nobody["reason"]
    with pytest.raises(DataError, match="too few of its groups"):
        audited(data, LEAST, DataSpec(ColumnRoles(("sex",), score="score")))
    with pytest.raises(UsageError) as error:
        audited(data, LEAST, data_spec, reference={"race": "Nobody"})
    assert "Elm" not in str(error.value)


HIDDEN = "JohnDoe-HIV+"


def spoilt(where: str) -> pa.Table:
    """Return people with an entry that its column may not hold, or a secret name of a group of one."""
    data: dict[str, Any] = {name: values.tolist() for name, values in people(300, 2).items()}
    data = {**data, "weight": [1.0] * 300, "vote": [0, 1] * 150}
    column = {"group": "race"}.get(where, where)
    data[column] = [HIDDEN, *map(str, data[column][1:])]
    return pa.table({**data, "id": list(range(300))})


@pytest.mark.slow
@pytest.mark.parametrize("where", ["label", "score", "weight", "vote", "group"])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize(
    "more",
    [
        (),
        ("--reference", "race=Nobody"),
        ("--check", "accuracy[race=Nobody]>=0.5"),
        ("count",),
        ("--label", "label=Nobody"),
        ("--strata", "race"),
        ("--similar", "flips"),
        ("--threshold", "race:Ash=0.5,Birch=0.4"),
        ("--merge", "race=Nobody,Ash"),
        ("--where", "race=='Nobody'"),
        ("--slices", "race"),
    ],
)
def test_no_message_and_no_report_quotes_a_value(
    where: str,
    ending: str,
    more: tuple[str, ...],
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whether the run ends or is refused: neither the streams nor any file that it writes."""
    monkeypatch.chdir(tmp_path)
    table = spoilt(where)
    if ending == "csv":
        pc.write_csv(table, "d.csv")
    else:
        pq.write_table(table, "d.parquet")
    read = {path.name for path in tmp_path.iterdir()}
    asked = ["--protected", "race", "--label", "label", "--score", "score", "--config", "none"]
    asked += {"weight": ["--weight", "weight"], "vote": ["--prediction", "vote"]}.get(where, [])
    outs = [f"--out={name}=r.{name}" for name in FILES if name != "text"]
    line = ["audit", f"d.{ending}", *more, *outs]
    line = ["count", f"d.{ending}", "-o", "x.counts"] if more == ("count",) else line
    status = run([*line, *asked, "--suppress-below", "10"])
    said = capsys.readouterr()

    assert status in (0, 1, 2, 3)
    for text in (
        said.out,
        said.err,
        *(path.read_bytes().decode("latin-1") for path in tmp_path.iterdir() if path.name not in read),
    ):
        assert HIDDEN not in text


@pytest.mark.parametrize("command", ["repair", "compare"])
def test_commands_that_hide_nothing_refuse_to_be_told_so(
    command: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A shared configuration or the environment asks for what they do not do; a table of audits does not."""
    monkeypatch.chdir(tmp_path)
    line = [command, "none.parquet", "--protected", "race", *(["-o", "x"] if command == "repair" else [])]
    config = tmp_path / "fairfix.toml"
    config.write_text("suppress-below = 20\n")
    assert run(line) == 2
    assert "does not hide groups" in capsys.readouterr().err
    config.write_text("[audit]\nsuppress-below = 20\n")
    assert run(line) == 2
    assert "does not hide groups" not in capsys.readouterr().err
    monkeypatch.setenv("FAIRFIX_SUPPRESS_BELOW", "20")
    assert run([*line, "--config", "none"]) == 2
    assert "does not hide groups" in capsys.readouterr().err
