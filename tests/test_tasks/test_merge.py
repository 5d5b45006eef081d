"""Names of groups that mean one: asked about where nobody says so, one group everywhere where somebody does."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import fairfix
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from fairfix.data.merging import MARKS, look_alikes, marks_in, parse_merge, plain_form
from fairfix.data.names import with_values
from fairfix.errors import UsageError
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import Call
from tests.data import people
from tests.databases import differences, without_source
from tests.results import rendered

pytestmark = pytest.mark.usefixtures("away")

NAMES = {"a": ["a", "A", " a"], "b": ["b"], "c": ["?", "N/A"]}
"""Race of the plain rows -> how the same rows are spelled here."""

MERGE = ['race=a,A," a"', "race=c,?,N/A"]


def spelled(rows: int = 1200) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return rows, and the same rows whose groups are written in several ways."""
    plain = people(rows, shares=(0.5, 0.4, 0.1))
    names = [NAMES[race][i % len(NAMES[race])] for i, race in enumerate(plain["race"])]
    return plain, plain.assign(race=names)


def audited(data: Any, **more: Any) -> dict[str, Any]:
    content = without_source(json.loads(fairfix.audit(data, protected="race", **more).to_json()))
    content["settings"].pop("merge", None)
    return content


@given(st.text(max_size=12))
def test_what_nobody_sees_makes_no_other_form(text: str) -> None:
    assert plain_form(plain_form(text)) == plain_form(text)
    assert plain_form(f" {text.upper()}  ") == plain_form(text.upper())


@given(st.dictionaries(st.text(max_size=6), st.just(0), min_size=1, max_size=5))
def test_a_written_merge_is_read_back(names: dict[str, int]) -> None:
    from fairfix.data.canonical import canonical_text

    own = list(dict.fromkeys(map(canonical_text, names)))
    assert parse_merge([with_values("race", own)]) == {"race": dict.fromkeys(own, own[0])}


@pytest.mark.parametrize("wrong", [["a,b"], ["=a,b"], ["r=a,b", "r=c,b"], ["r=a,b", "r=c,a"]])
def test_what_is_no_merge_is_refused(wrong: list[str]) -> None:
    with pytest.raises(UsageError):
        parse_merge(wrong)


def test_what_looks_alike_is_found_unless_it_is_stated() -> None:
    levels = ["Native", "native", "Native ", "White", "1", "1.0.0", "caf\u00e9", "cafe\u0301"]
    assert look_alikes(levels, {}) == [["Native", "Native ", "native"], ["cafe\u0301", "caf\u00e9"]]
    assert look_alikes(levels, dict.fromkeys(levels[:3])) == [["cafe\u0301", "caf\u00e9"]]
    assert marks_in(["?", " ?", "None", "N/A", "unknown", "", "other", "(missing)"], {"None": "None"}) == [
        *("", " ?", "?", "N/A", "unknown")
    ]
    assert all(plain_form(one) == one for one in MARKS)


@pytest.mark.parametrize(
    "form", ["text", "json", "markdown", "html", "github", "junit", "sarif", "comment", "card"]
)
def test_no_verdict_comes_without_the_question(form: str) -> None:
    """In every format both warnings are there, before the table of the checks where there is one."""
    _, data = spelled()
    result = fairfix.audit(data, protected="race", check="dp.difference<=0.9").to_dict()
    assert result["verdict"] == "pass"
    assert [one["code"] for one in result["messages"]] == ["alike_groups", "missing_marks"]
    text = rendered(form, result) if form != "json" else json.dumps(result)
    assert "differ only in case" in text
    assert "like missing values" in text
    if form in ("text", "markdown", "html", "comment", "card", "github"):
        verdict = text.find("dp.difference")
        assert verdict < 0 or text.index("differ only in case") < verdict


def test_every_command_asks(call: Call) -> None:
    _, data = spelled()
    data.assign(other=data["score"] ** 2).to_parquet("d.parquet")
    lines: list[list[str]] = [
        ["audit", "d.parquet"],
        ["audit", "d.counts"],
        ["audit", "d.parquet", "--task", "multiclass", "--prediction", "yes"],
        ["repair", "d.parquet", "--method", "ramp", "-o", "r.fairfix"],
        ["repair", "d.counts", "--method", "ramp", "-o", "r.fairfix"],
        shlex.split("repair d.parquet --method ramp --solver stream --gamma 0.1 -o r.fairfix"),
        ["compare", "d.parquet", "--methods", "ramp", "--slacks", "0.1"],
        ["compare", "d.parquet", "--score", "score", "--baseline", "other"],
    ]
    assert call("count", "d.parquet", "--protected", "race", "-o", "d.counts")[0] == 0
    for line in lines:
        named = [] if "d.counts" in line else ["--protected", "race"]
        status, out, err = call(*line, *named, "--format", "json", "--config", "none")
        assert status in (0, 3), err
        found = json.loads(out)["messages"]
        assert [one["code"] for one in found[:2]] == ["alike_groups", "missing_marks"], line
        # counts take no --merge, so that is no remedy for them
        assert all(("count the data again" in one["text"]) == ("d.counts" in line) for one in found[:2])


def test_merged_names_are_one_group_everywhere(tmp_path: Path) -> None:
    """An audit of merged names is that of rows with one name: of a frame, files, a database, counts and a baseline."""
    plain, data = spelled()
    expected = audited(plain)
    assert not differences(expected, audited(data, merge=MERGE))
    data.to_parquet("d.parquet")
    assert not differences(expected, audited("d.parquet", merge=MERGE))
    with duckdb.connect("x.duckdb") as base:
        base.execute("CREATE TABLE d AS SELECT * FROM 'd.parquet'")
    once = audited(plain)
    assert not differences(once, audited("duckdb:///x.duckdb#d", merge=MERGE))
    counts = fairfix.count("d.parquet", protected="race", merge=MERGE)
    counts.save("d.counts")
    counted = fairfix.audit(counts).to_dict()
    again = fairfix.audit("d.counts").to_dict()
    assert again["attributes"] == counted["attributes"]
    assert again["settings"]["merge"] == {
        "race": {"a": "a", "A": "a", " a": "a", "c": "c", "?": "c", "N/A": "c"}
    }
    with pytest.raises(UsageError):
        fairfix.audit("d.counts", merge="race=a,b")


def test_marks_that_are_made_missing_meet_the_policy() -> None:
    plain, data = spelled()
    merge = [MERGE[0], "race=(missing),?,N/A"]
    with pytest.raises(fairfix.errors.DataError):
        fairfix.audit(data, protected="race", merge=merge)
    gone = plain.assign(race=plain["race"].where(plain["race"] != "c"))
    for policy in ("drop", "race=group"):
        assert not differences(audited(gone, missing=policy), audited(data, merge=merge, missing=policy))


def test_a_repair_keeps_what_was_merged() -> None:
    """A repair of merged names is that of plain ones, and so are its decisions, alone, in files and in exports."""
    plain, data = spelled()
    asked: dict[str, Any] = {"protected": "race", "method": "ramp", "id": "id", "features": "score"}
    first = fairfix.repair(plain, **asked).repaired
    fairfix.repair(data, **asked, merge=MERGE, output="r.fairfix")
    repaired = fairfix.load("r.fairfix")
    assert isinstance(repaired, type(first))
    columns = ["p_positive", "decision"]
    expected = first.predict(plain)["p_positive"].to_numpy()
    decided = repaired.predict(data)
    assert decided["p_positive"].to_numpy() == pytest.approx(expected, abs=1e-12)
    alone = [repaired.predict(row) for row in data.head(60).to_dict("records")]
    assert [[row[name] for name in columns] for row in alone] == decided.head(60)[columns].to_numpy().tolist()
    Path("score.py").write_text(str(fairfix.export("r.fairfix", to="python")))
    rows = "\n".join(json.dumps(row) for row in data[["race", "score", "id"]].to_dict("records"))
    run = subprocess.run([sys.executable, "score.py"], input=rows, capture_output=True, text=True, check=True)
    assert [json.loads(line)["p_positive"] for line in run.stdout.splitlines()] == pytest.approx(
        expected, abs=1e-9
    )
    query = str(fairfix.export("r.fairfix", to="sql"))
    table = pa.Table.from_pandas(data)
    with duckdb.connect() as base:
        base.register("data", table)
        out = base.execute(query).df()
    assert out.set_index("id").loc[data["id"], "p_positive"].to_numpy() == pytest.approx(expected, abs=1e-9)


def test_numbers_of_names_are_exported_in_every_spelling() -> None:
    """A query and a script know 1, 1.0, 1.00 and true, as prediction does."""
    rng = np.random.default_rng(1)
    frame = people(900, shares=(0.5, 0.3, 0.2))
    frame["race"] = frame["race"].map({"a": 1, "b": 2, "c": 3})
    frame["sex"] = frame["sex"] == "f"
    asked: dict[str, Any] = {"protected": ["race", "sex"], "method": "ramp", "id": "id", "features": "score"}
    repaired = fairfix.repair(frame, **asked, output="r.fairfix").repaired
    expected = repaired.predict(frame)["p_positive"].to_numpy()
    query = str(fairfix.export("r.fairfix", to="sql"))
    kinds = ("BIGINT", "DOUBLE", "DECIMAL(6,2)", "VARCHAR")
    for kind in kinds:
        with duckdb.connect() as base:
            base.register("rows", pa.Table.from_pandas(frame))
            base.execute(f"CREATE TABLE data AS SELECT * REPLACE (CAST(race AS {kind}) AS race) FROM rows")
            out = base.execute(query).df().set_index("id").loc[frame["id"], "p_positive"]
        assert out.to_numpy() == pytest.approx(expected, abs=1e-9), kind
    Path("score.py").write_text(str(fairfix.export("r.fairfix", to="python")))
    odd = [
        {"race": rng.choice([str(race), f"{race}.0"]), "sex": str(sex).upper(), "score": score, "id": one}
        for race, sex, score, one in frame[["race", "sex", "score", "id"]].itertuples(index=False)
    ]
    run = subprocess.run(
        [sys.executable, "score.py"],
        input="\n".join(map(json.dumps, odd)),
        capture_output=True,
        text=True,
        check=True,
    )
    assert [json.loads(line)["p_positive"] for line in run.stdout.splitlines()] == pytest.approx(
        expected, abs=1e-9
    )


def test_labels_that_look_positive_are_never_negative_in_silence() -> None:
    """Yes beside yes is refused with the way on, which counts both; so it is of decisions."""
    plain = people(600)
    words = plain.assign(
        label=np.where(plain["label"] == 1, "yes", "no"), hired=np.where(plain["yes"] == 1, "yes", "no")
    )
    odd = words.copy()
    for name in ("label", "hired"):
        odd.loc[odd.index % 2 == 0, name] = odd[name].str.title()
    asked: dict[str, Any] = {"prediction": "hired", "label": "label=yes"}
    expected = audited(words, **asked)
    with pytest.raises(fairfix.errors.DataError, match="merge=label=yes,Yes"):
        audited(odd, **asked)
    with pytest.raises(fairfix.errors.DataError, match="merge=hired=yes,Yes"):
        audited(odd.assign(label=words["label"]), **asked)
    assert not differences(expected, audited(odd, merge=["label=yes,Yes", "hired=yes,Yes"], **asked))
    apart = audited(odd, merge=["label=Yes", "hired=Yes"], **asked)
    assert (
        apart["overall"]["metrics"]["base_rate"]["value"]
        < expected["overall"]["metrics"]["base_rate"]["value"]
    )


def test_a_merge_of_nothing_is_said() -> None:
    result = fairfix.audit(people(300), protected="race", merge=["race=a", "race=Zed,zed"]).to_dict()
    assert [one["code"] for one in result["messages"]] == ["merged_nothing"]
