"""The command line as a shell sees it: statuses, streams, files."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import fairfix
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from fairfix import cli
from fairfix.cli.options import NumberOption, known_options
from fairfix.errors import DataError
from fairfix.models.repaired import OUTPUT

from tests.conftest import Call
from tests.results import texts_of

pytestmark = pytest.mark.usefixtures("away")


def people(rows: int = 3000, gap: float = 0.3, seed: int = 0) -> pa.Table:
    """Return two groups whose selection rates at 0.5 differ by about ``gap``."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, rows)
    score = np.clip(rng.normal(0.5 + np.where(group == 1, gap, 0.0) * 0.25, 0.1, rows), 0, 1)
    return pa.table(
        {
            "id": pa.array([f"p{i}" for i in range(rows)]),
            "race": pa.array(np.where(group == 1, "blue", "red").tolist()),
            "sex": pa.array(np.where(rng.random(rows) < 0.5, "f", "m").tolist()),
            "label": pa.array((rng.random(rows) < score).astype(np.int64)),
            "score": pa.array(score),
        }
    )


@pytest.fixture
def data(tmp_path: Path) -> str:
    """A Parquet file of scored people."""
    pq.write_table(people(), tmp_path / "data.parquet")
    return "data.parquet"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a repair of the scored people."""
    folder = tmp_path_factory.mktemp("repaired")
    pq.write_table(people(), folder / "data.parquet")
    line = f"repair {folder}/data.parquet --protected race --method ramp --id id --config none"
    assert cli.run([*line.split(), "-o", str(folder / "repaired.fairfix")]) == 0
    return folder


@pytest.fixture
def repaired(folder: Path, data: str) -> str:
    """The repair beside its data, as a file of its own."""
    shutil.copy(folder / "repaired.fairfix", "repaired.fairfix")
    return "repaired.fairfix"


def test_audit_runs_with_nothing_but_the_protected_column(call: Call, data: str) -> None:
    """Label and score are found by their names, and stderr says so; without limits the status is 0."""
    status, out, err = call(AUDIT)

    assert status == 0
    assert re.search(r"^  demographic parity +\d.*\n(.*\n)?  difference ", out, re.MULTILINE)
    assert "label is column 'label'" in err
    assert "score is column 'score'" in err


@pytest.mark.parametrize(
    ("checks", "status", "verdicts"),
    [
        (["dp.difference<=0.9"], 0, ["PASS"]),
        (["dp.difference<=0.05"], 1, ["FAIL"]),
        (["dp.difference<=0.05", "dp.difference<=0.27"], 1, ["FAIL", "UNDECIDED"]),
    ],
)
def test_the_status_is_that_of_the_checks(
    checks: list[str], status: int, verdicts: list[str], call: Call, data: str
) -> None:
    """Of whole intervals within or beyond their limits; one that fails decides."""
    ended, out, _ = call(AUDIT, *(word for check in checks for word in ("--check", check)))
    lines = [line.split()[:2] for line in out.splitlines() if line.startswith("  dp.difference")]

    assert ended == status
    assert all([check, verdict] in lines for check, verdict in zip(checks, verdicts, strict=True))


def test_status_3_when_a_check_is_undecided(call: Call, tmp_path: Path) -> None:
    """Too few rows to tell: status 3, which --undecided turns into 0 or 1."""
    pq.write_table(people(60, gap=0.1), tmp_path / "few.parquet")
    gate = ("audit", "few.parquet", "--protected", "race", "--check", "dp.difference<=0.1")

    assert call(*gate)[0] == 3
    assert call(*gate, "--undecided", "pass")[0] == 0
    assert call(*gate, "--undecided", "fail")[0] == 1
    for limit, status in ((0.9, 0), (0.0001, 1)):  # an estimate never waits for certainty
        assert call(*gate[:-1], f"dp.difference<={limit}", "--gate-on", "point")[0] == status


def test_status_70_for_a_bug(call: Call, data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error nobody foresaw is named as ours, without a traceback unless asked."""

    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("fairfix.tasks.audit.run_audit", broken)
    status, _, err = call(AUDIT)
    assert status == 70
    assert "bug in fairfix: ZeroDivisionError" in err
    assert "Traceback" not in err
    monkeypatch.setenv("FAIRFIX_DEBUG", "1")
    assert "Traceback" in call(AUDIT)[2]


REPAIR = "repair data.parquet --protected race --method ramp"
AUDIT = "audit data.parquet --protected race"
BAD_CALLS = {
    "unknown command": ("wobble", "No such command"),
    "unknown option": ("audit data.parquet --wobble", "No such option"),
    "no data": ("audit", "name the DATA"),
    "no such file": ("audit nothing.parquet --protected race", "does not exist"),
    "no protected": ("audit data.parquet", "--protected"),
    "wrong column": ("audit data.parquet --protected rase", "did you mean 'race'"),
    "one column twice": (f"{AUDIT} --label race", "one role"),
    "text as score": (f"{AUDIT} --score sex", "numbers are needed"),
    "real labels": (f"{AUDIT} --label score --prediction label", "binary"),
    "bad check": (f"{AUDIT} --check 'dp<<1'", "cannot read the check"),
    "unknown metric": (f"{AUDIT} --check 'acuracy.min>=1'", "did you mean"),
    "check of nobody": (f"{AUDIT} --check 'ks[age]<=1'", "not audited"),
    "bad out": (f"{AUDIT} --out docx=x", "FORMAT=FILE"),
    "no folder": (f"{AUDIT} --out json=no/x.json", "does not exist"),
    "bad threshold": (f"{AUDIT} --threshold half", "must be a finite number"),
    "NaN threshold": (f"{AUDIT} --threshold nan", "must be a finite number"),
    "threshold out of range": (f"{AUDIT} --threshold 5", "from 0 to 1"),
    "no output folder": (f"{REPAIR} -o no/x.fairfix", "does not exist"),
    "bad confidence": (f"{AUDIT} --confidence 95", "confidence"),
    "10,000 groups": ("audit data.parquet --protected id", "does not look like groups"),
    "unknown method": ("repair data.parquet --protected race --method magic", "the methods are:"),
    "no method": ("repair data.parquet --protected race", "choose one"),
    "a rate for one that finds its own": (
        f"{REPAIR} --set rho=0.3 --constraint covariance",
        "finds its own rates",
    ),
    "negative slack": (f"{REPAIR} --slack -1", "at least 0"),
    "gamma is text": (f"{REPAIR} --gamma x", "must be a finite number"),
    "two slacks": (f"{REPAIR} --slack 0,1", "one value"),
    "no holdout": (f"{REPAIR} --holdout 0", "--holdout"),
    "two widths of a stream": (f"{REPAIR} --solver stream --gamma 0.1,0.2", "takes one value"),
    "a stream within strata": (f"{REPAIR} --solver stream --strata sex", "strata"),
    "no artifact": ("predict nothing.fairfix data.parquet -o x.csv", "cannot be read"),
    "no artifact to see": ("inspect nothing.fairfix", "cannot be read"),
    "not an artifact": ("inspect data.parquet", "not a valid"),
    "no result": ("report nothing.json", "does not exist"),
    "config missing": ("audit data.parquet --config nothing.toml", "does not exist"),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_status_2_when_it_did_not_run(name: str, call: Call, data: str) -> None:
    """Usage and data errors: status 2, one line on stderr that says the remedy, nothing on stdout, no file."""
    line, words = BAD_CALLS[name]
    before = sorted(Path().iterdir())
    status, out, err = call(line)

    assert status == 2
    assert words in err
    assert out == ""
    assert "Traceback" not in err
    assert sorted(Path().iterdir()) == before


def write(table: pa.Table, name: str) -> None:
    """Write a table by its file name."""
    if name.endswith(".csv"):
        pyarrow.csv.write_csv(table, name)
    else:
        pq.write_table(table, name)


def changed(column: str, values: list[Any]) -> pa.Table:
    """Return people whose first values of a column are others."""
    table = people(300)
    place = table.column_names.index(column)
    content = values + table[column].to_pylist()[len(values) :]
    return table.set_column(place, column, pa.array(content))


@pytest.mark.parametrize("text", ["", "race,label,score\n"])
def test_empty_csv_is_an_error(text: str, call: Call) -> None:
    Path("empty.csv").write_text(text)
    err = call.refused("audit", "empty.csv", "--protected", "race")
    assert "empty" in err or "no rows" in err


def test_missing_values_by_policy(call: Call) -> None:
    """Rows are dropped or made a group when asked, and every row is accounted for."""
    write(changed("race", [None, None, None]), "gaps.parquet")
    line = "audit gaps.parquet --protected race --format json --missing"
    dropped, grouped = (json.loads(call(f"{line} {policy}")[1]) for policy in ("drop", "race=group"))
    rows = dropped["data"]["rows"]

    assert rows == {"read": 300, "used": 297, "excluded": [{"reason": "missing group (race)", "rows": 3}]}
    assert "(missing)" in [g["group"] for g in grouped["attributes"][0]["groups"]]
    assert grouped["data"]["rows"]["used"] == 300

    table, scores = changed("race", [None, None, None]), changed("score", [None] * 4)["score"]
    write(table.set_column(table.column_names.index("score"), "score", scores), "both.parquet")
    line = "audit both.parquet --protected race --format json --missing race=group"
    for more in ("--missing drop", "--missing score=drop"):
        both = json.loads(call(f"{line} {more}")[1])
        assert both["data"]["rows"]["excluded"] == [{"reason": "missing score", "rows": 4}]
    assert call(line)[0] == 2


@pytest.mark.parametrize("name", ["race=self", 'the "race"', "race, self"])
def test_missing_entries_of_a_column_of_any_name(name: str) -> None:
    """By a dict, and by the text that the message proposes."""
    table = changed("race", [None, None]).rename_columns(
        [name if one == "race" else one for one in people(300).column_names]
    )
    with pytest.raises(DataError, match="missing group") as refused:
        fairfix.audit(table, protected=[name])
    proposed = re.search(r" or `missing=([^`]*)` \(a separate", str(refused.value))
    assert proposed is not None
    for missing in ({name: "group"}, proposed[1]):
        groups = fairfix.audit(table, protected=[name], missing=missing).to_dict()["attributes"][0]["groups"]
        assert "(missing)" in [one["group"] for one in groups]


@pytest.mark.parametrize("role", ["label", "score", "prediction", "weight", "strata", "protected"])
def test_a_missing_entry_of_every_role_is_answered_with_settings_that_run(role: str) -> None:
    """The column is named, and each setting for missing entries runs as it is written."""
    frame = people(300).to_pandas().assign(kept=1.0, said=lambda rows: rows["score"] > 0.5, place="x")
    columns = {"label": "label", "score": "score", "weight": "kept", "strata": "place", "protected": "race"}
    columns |= {"prediction": "said"} if role == "prediction" else {}
    frame[columns[role]] = frame[columns[role]].astype(object).where(frame.index > 2)
    with pytest.raises(DataError, match=rf"\({columns[role]}\)") as refused:
        fairfix.audit(frame, **columns)
    ways = re.findall("`missing=([^`]*)`", str(refused.value))
    assert f"{columns[role]}=drop" in ways
    for missing in ways:
        used = fairfix.audit(frame, **columns, missing=missing).content.data.rows.used
        assert used == 300 - 3 * missing.endswith("drop")


def test_one_scan_several_outputs(call: Call, data: str) -> None:
    """--out writes every format from the same result as stdout."""
    outs = "--out json=a.json --out markdown=a.md --out text=a.txt"
    out = call.ran(f"{AUDIT} --format json {outs}")
    assert Path("a.json").read_text() == out
    assert "| demographic parity difference |" in Path("a.md").read_text()
    assert Path("a.txt").read_text() == call(AUDIT)[1]


def test_what_is_no_result_is_refused(call: Call, away: None) -> None:
    for broken, words in (("{}", "is not a result"), ('{"schema": "fairfix.audit/1"}', "b.json")):
        Path("b.json").write_text(broken)
        assert words in call.refused("report", "b.json")


def test_same_input_same_bytes(call: Call, data: str) -> None:
    """Audit, artifact and predictions repeat to the byte, whatever the number of threads."""
    audits = {
        call("audit", data, "--protected", "race,sex", "--intersect", "--format", "json", "--threads", t)[1]
        for t in "12"
    }
    for name in ("a", "b"):
        call(REPAIR, "--id", "id", "-o", f"{name}.fairfix")
        call("predict", f"{name}.fairfix", data, "-o", f"{name}.parquet")

    assert len(audits) == 1
    assert Path("a.fairfix").read_bytes() == Path("b.fairfix").read_bytes()
    assert Path("a.parquet").read_bytes() == Path("b.parquet").read_bytes()


# ---------------------------------------------------------------------- settings


def test_flag_beats_environment_beats_file(call: Call, data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Precedence, as --dry-run tells it."""
    Path("fairfix.toml").write_text(
        'data = "data.parquet"\nprotected = "race"\n[audit]\nconfidence = 0.9\nthreshold = 0.6\n'
    )
    assert "confidence = 0.9  # configuration" in call("audit", "--dry-run")[1]
    monkeypatch.setenv("FAIRFIX_CONFIDENCE", "0.8")
    assert "confidence = 0.8  # environment" in call("audit", "--dry-run")[1]
    out = call.ran("audit", "--dry-run", "--confidence", "0.7")
    assert "confidence = 0.7  # command line" in out
    assert "threshold = 0.6  # configuration" in out
    assert 'gate-on = "interval"  # default' in out


def test_commands_run_from_the_configuration_alone(call: Call, data: str) -> None:
    """With the file in place nothing else has to be on the line; its paths are relative to it."""
    Path("fairfix.toml").write_text(
        'data = "data.parquet"\nprotected = ["race"]\ncheck = ["dp.difference<=0.05"]\n'
        '[repair]\nid = "id"\noutput = "from_config.fairfix"\n[repair.ramp]\ngamma = 0.1\n'
        '[audit]\nformat = "json"\nout = ["html=a.html"]\n'
    )
    Path("below").mkdir()
    os.chdir("below")

    status, out, _ = call("audit")
    assert status == 1
    assert json.loads(out)["schema"] == "fairfix.audit/1"
    assert Path("../a.html").exists()
    assert call("repair", "--method", "ramp", "--undecided", "pass")[0] in (0, 1)
    assert '"gamma": 0.1' in call("inspect", "../from_config.fairfix", "--format", "json")[1]


def plausible(param: click.Parameter) -> str:
    """Return a value of an option, as TOML."""
    if isinstance(param, click.Option) and param.is_flag:
        return "true"
    if isinstance(param.type, click.Choice):
        return f'"{param.type.choices[-1]}"'
    if isinstance(param.type, click.types.FloatParamType):
        return "7" if isinstance(param.type, NumberOption) and param.type.domain.kind is int else "0.7"
    return {"out": '"json=x"', "set_": '"rho=0.4"'}.get(str(param.name), '"x"')


@pytest.mark.parametrize("name", known_options())
def test_every_option_is_a_key_of_the_configuration(name: str, call: Call) -> None:
    """By the name it has on the command line, at the top and in the table of its command."""
    command = importlib.import_module(f"fairfix.cli.{name}").command
    keys: dict[str, str] = {}
    for param in command.get_params(click.Context(command)):
        key = next((text[2:] for text in param.opts if text.startswith("--")), str(param.name))
        if key.replace("-", "_") in known_options()[name]:
            keys[key] = plausible(param)
    assert len(keys) == len(known_options()[name])
    for top in ("", f"[{name}]\n"):
        Path("fairfix.toml").write_text(top + "".join(f"{key} = {text}\n" for key, text in keys.items()))
        out = call.ran(name, "--dry-run", "--config", "fairfix.toml")
        assert all(line.endswith("# configuration") for line in out.splitlines()[1:])
        assert [line.partition(" = ")[0] for line in out.splitlines()[1:]] == list(keys)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('protectd = "race"', "did you mean 'protected'"),
        ("[audit]\nchekc = []", "unknown key"),
        ("[repair]\nmethod='ramp'\n[repair.ramp]\ngama = 1", "did you mean 'gamma'"),
        ("data = [", "not valid TOML"),
        ('data = ["a", "b"]', "takes one value"),
        ("seed = " + "9" * 5000, "not valid TOML"),
        ("threshold = 1" + "0" * 400, "a whole number of 2^64 or more"),
        ("[[waivers]]\nlimit = 1" + "0" * 400, "a whole number of 2^64 or more"),
        ("protected = " + "[" * 5000 + "]" * 5000, "nested too deeply"),
    ],
)
def test_a_typo_in_the_configuration_is_an_error(text: str, words: str, call: Call, data: str) -> None:
    """Unknown keys, bad TOML and wrong shapes: status 2, with the nearest name."""
    Path("fairfix.toml").write_text(text)
    err = call.refused(REPAIR)
    assert words in err


# ---------------------------------------------------------------------- repair and predict


def decided(name: str) -> pa.Table:
    """Read an output file."""
    return pyarrow.csv.read_csv(name) if name.endswith(".csv") else pq.read_table(name)


def test_repair_predict_audit(call: Call, data: str) -> None:
    """The whole way: repair, prove, apply, audit what was decided."""
    out = call.ran(REPAIR, "--id", "id")
    assert "Evaluation on held-out rows" in out
    assert call("predict", "repaired.fairfix", data, "-o", "out.parquet")[0] == 0
    table = decided("out.parquet")

    assert table.column_names == [*pq.read_schema(data).names, *OUTPUT.names]
    assert table.num_rows == 3000
    audit = "audit out.parquet --protected race"
    assert call(f"{audit} --probability p_positive --check 'dp.difference<=0.15'")[0] == 0
    assert call(f"{audit} --prediction decision")[0] == 0


def test_without_an_id_the_columns_of_the_rule_are_the_identity(call: Call, data: str) -> None:
    """The second of two equal rows changes nothing for the first, and both together get what their chance says.

    Other columns may be missing, more, or in another order; one that the rule reads is asked for.
    """
    call(REPAIR, "--gamma", "0.5")
    table = pq.read_table(data)
    pq.write_table(pa.concat_tables([table, table]).drop_columns(["label"]), "twice.parquet")
    assert call("predict", "repaired.fairfix", "twice.parquet", "-o", "out.parquet")[0] == 0
    twice = pq.read_table("out.parquet")
    decision, chance = twice["decision"].to_numpy(), twice["p_positive"].to_numpy()
    assert call("predict", "repaired.fairfix", data, "-o", "once.parquet")[0] == 0
    once = pq.read_table("once.parquet")["decision"].to_pylist()
    assert decision[:3000].tolist() == once
    assert (np.abs(decision[:3000] + decision[3000:] - 2 * chance[:3000]) < 1).all()

    other = table.select(["score", "race"]).append_column("more", table["id"])
    pq.write_table(other, "other.parquet")
    assert call("predict", "repaired.fairfix", "other.parquet", "-o", "other_out.parquet")[0] == 0
    assert pq.read_table("other_out.parquet")["decision"].to_pylist() == once
    pq.write_table(table.drop_columns(["race"]), "less.parquet")
    err = call.refused("predict", "repaired.fairfix", "less.parquet", "-o", "less_out.parquet")
    assert "no column 'race'" in err


def test_predictions_are_printed_without_an_output(call: Call, data: str) -> None:
    call(REPAIR, "--id", "id")
    assert call("predict", "repaired.fairfix", data, "-o", "out.csv")[0] == 0
    line = [sys.executable, "-m", "fairfix", "predict", "repaired.fairfix", data]
    done = subprocess.run(line, capture_output=True, check=True)
    assert done.stdout == Path("out.csv").read_bytes()
    assert b"protected attribute" in done.stderr
    assert call("predict", "repaired.fairfix", data, "--cluster", "local:1")[0] == 2


@pytest.mark.skipif(os.name != "posix", reason="pipes of POSIX")
def test_a_reader_that_leaves_ends_predict_with_141(call: Call, data: str) -> None:
    """As head does, and nothing is said of it."""
    call(REPAIR, "--id", "id")
    pq.write_table(pa.concat_tables([pq.read_table(data)] * 40), "many.parquet")
    line = f"{sys.executable} -m fairfix predict repaired.fairfix many.parquet --duplicates share".split()
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stdout.readline().startswith(b'"')
        running.stdout.close()
        assert running.wait(60) == 141


def test_missing_ids_are_refused_with_a_remedy(call: Call, data: str) -> None:
    rows = pq.read_table(data)
    holes = pa.array([None, *rows["id"].to_pylist()[1:]], rows["id"].type)
    pq.write_table(rows.set_column(rows.column_names.index("id"), "id", holes), "holes.parquet")
    err = call.refused("repair holes.parquet --protected race --method ramp --id id")
    assert (
        "id column 'id' is missing in 1 of 3,000 rows; fill it, leave these rows out, or name another" in err
    )
    assert "with --id" in err


def test_duplicate_ids_are_refused_or_shared(call: Call, data: str) -> None:
    """Ids draw decisions, so repeats are an error unless the user wants them to share a draw."""
    twice = pa.concat_tables([pq.read_table(data), pq.read_table(data).slice(0, 3)])
    pq.write_table(twice, "twice.parquet")
    repair = ("repair", "twice.parquet", "--protected", "race", "--method", "ramp", "--id", "id")
    err = call.refused(*repair)
    assert "3 repeated values in 3,003 rows (the first again in row 3,001)" in err
    assert call(*repair, "--duplicates", "share")[0] == 0
    assert call("predict", "repaired.fairfix", "twice.parquet", "-o", "out.csv")[0] == 2
    assert not Path("out.csv").exists()
    assert call("predict repaired.fairfix twice.parquet -o out.csv --duplicates share")[0] == 0


def test_unseen_groups_by_policy(call: Call, data: str, repaired: str) -> None:
    """A group the fit has not seen: an error by default, the base decision, or nothing at all."""
    table = pq.read_table(data)
    race = ["green", *table["race"].to_pylist()[1:]]
    score = pa.array([0.7, *table["score"].to_pylist()[1:]])
    table = table.set_column(1, "race", pa.array(race)).set_column(4, "score", score)
    pq.write_table(table, "new.parquet")
    predict = ("predict", "repaired.fairfix", "new.parquet", "-o", "out.parquet")
    status, _, err = call(*predict)
    assert (status, Path("out.parquet").exists()) == (2, False)
    assert "group 'green'" in err
    assert call(*predict, "--unseen", "original")[0] == 0
    assert decided("out.parquet")["p_positive"][0].as_py() == 1.0
    assert call(*predict, "--unseen", "abstain")[0] == 0
    first = decided("out.parquet").slice(0, 1).to_pylist()[0]

    assert (first["p_positive"], first["decision"], first["randomized"]) == (None, None, False)


def test_missing_scores_at_predict_time(call: Call, data: str, repaired: str) -> None:
    """A missing score is an error, or an undecided row when asked; every row comes out."""
    table = pq.read_table(data)
    pq.write_table(
        table.set_column(4, "score", pa.array([None, *table["score"].to_pylist()[1:]])), "new.parquet"
    )
    predict = ("predict", "repaired.fairfix", "new.parquet", "-o", "out.parquet")

    assert call(*predict)[0] == 2
    assert call(*predict, "--missing", "abstain")[0] == 0
    assert decided("out.parquet")["decision"].null_count == 1
    assert decided("out.parquet").num_rows == 3000


@pytest.mark.parametrize(
    ("first", "later", "status"),
    [
        (["a", "b"], pa.array(["x", "y"]).dictionary_encode(), 0),
        ([1.0, 2.0], pa.array(["1.5", None]), 0),
        ([1.0, 2.0], pa.array(["x", "y"]), 2),
    ],
    ids=["texts in codes", "numbers as texts", "no numbers"],
)
def test_a_column_of_another_type_in_a_later_file(
    call: Call, data: str, repaired: str, first: list[Any], later: pa.Array, status: int
) -> None:
    """A column that no decision needs comes out as the first file has it; what cannot be so is named."""
    Path("parts").mkdir()
    for at, more in enumerate((pa.array(first), later)):
        rows = pq.read_table(data).slice(2 * at, 2).append_column("more", more)
        pq.write_table(rows, f"parts/{at}.parquet")
    ended, _, err = call("predict", "repaired.fairfix", "parts", "-o", "out.parquet")

    assert ended == status
    if status:
        assert "column 'more' of 1.parquet is of type string, where the first file has double" in err
        assert not Path("out.parquet").exists()
    else:
        assert (
            decided("out.parquet")["more"].to_pylist() == first + later.cast(pa.array(first).type).to_pylist()
        )


def test_an_output_column_that_is_there_already_is_refused(call: Call, data: str, repaired: str) -> None:
    """Predicting twice into the same file would overwrite decisions."""
    call("predict", "repaired.fairfix", data, "-o", "out.parquet")
    err = call.refused("predict", "repaired.fairfix", "out.parquet", "-o", "again.parquet")
    assert "already has a column 'p_positive'" in err


def test_infinite_slack_is_saved(call: Call, data: str) -> None:
    """JSON has no infinity; the parameter is the text inf, and the artifact loads."""
    assert call(f"{REPAIR} --slack inf --id id")[0] == 0
    assert "slack inf" in call("inspect", "repaired.fairfix")[1]
    assert call("predict", "repaired.fairfix", data, "-o", "out.csv.gz")[0] == 0
    assert pyarrow.csv.read_csv(pa.input_stream("out.csv.gz", compression="gzip")).num_rows == 3000


def test_inspect_says_what_is_needed(call: Call, data: str) -> None:
    """Method, parameters, columns, the protected attribute, the proof and the hash are shown."""
    call(REPAIR, "--id", "id", "--slack", "0.02")
    _, text, _ = call("inspect", "repaired.fairfix")
    manifest = json.loads(call("inspect", "repaired.fairfix", "--format", "json")[1])

    assert "group needed      yes" in text
    assert "slack 0.02" in text
    assert manifest["requires"]["columns"] == ["race", "score", "id"]
    assert manifest["sha256"].startswith("sha256:")
    assert str(Path.cwd()) not in json.dumps(manifest)


def test_a_rule_without_the_group_draws_without_it(call: Call, data: str) -> None:
    """Draws read what the rule reads, or the id: neither needs the group, nor any other column."""
    pq.write_table(people(800), data)
    line = "repair data.parquet --method fair-regression --protected race --label label --features score --slack 0"
    for more, columns in (((), ["score"]), (("--id", "id"), ["score", "id"])):
        call.ran(line, *more)
        inspected = call("inspect", "repaired.fairfix")[1]
        kept = json.loads(call("inspect", "repaired.fairfix", "--format", "json")[1])
        assert kept["requires"]["columns"] == columns
        assert [*kept["randomization"]["identity"]] == columns[-1:]
        assert "group needed      no" in inspected


def test_a_value_that_is_given_twice_is_fitted_to_all_rows(call: Call, data: str) -> None:
    """Nothing is chosen, but the rows that would have chosen are rows of the fit, of which the report speaks."""
    pq.write_table(people(800), data)
    line = (
        "repair data.parquet --method fair-regression --protected race --label label --features score --id id"
    )
    text = call.ran(line, "--learner", "linear(l2=0.01),linear(l2=0.01)", "--format", "json")
    once = json.loads(
        call(line, "--learner", "linear(l2=0.01)", "--validation", "0.2", "--format", "json")[1]
    )
    assert json.loads(text)["proof"]["fit"]["table"] == once["proof"]["fit"]["table"]


@pytest.mark.parametrize(
    ("given", "typed"),
    [
        (("--basis", "splines"), "--learner 'linear(basis=VALUE)'"),
        (("--set", "l2=cv"), "--learner 'linear(l2=cv)'"),
        (("--learner", "linear(l3=1)"), "its keys are l2, basis, intercept"),
    ],
)
def test_a_setting_of_a_learner_is_answered_with_its_option(
    given: tuple[str, ...], typed: str, call: Call, data: str
) -> None:
    """As an option of its own, as a setting of the solver, and by a key that the learner does not have."""
    err = call.refused("repair data.parquet --method logloss --protected race --label label", *given)
    assert typed in err


def test_a_model_file_scores_the_rows(call: Call) -> None:
    """A pickle is refused with its hash; pinned, it scores audit, repair and predict alike."""
    import joblib
    import pandas as pd
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=2000), "z": rng.normal(size=2000)})
    frame["race"] = np.where(rng.random(2000) < 0.5 + 0.2 * np.sign(frame.x), "red", "blue")
    frame["label"] = (rng.random(2000) < 1 / (1 + np.exp(-frame.x))).astype(int)
    model = LogisticRegression().fit(frame[["x", "z"]], frame.label)
    joblib.dump(model, "model.joblib")
    frame.to_parquet("rows.parquet")
    frame.assign(score=model.predict_proba(frame[["x", "z"]])[:, 1]).to_parquet("scored.parquet")
    by_model = ("audit", "rows.parquet", "--protected", "race", "--model", "model.joblib", "--format", "json")
    status, _, err = call(*by_model)
    assert status == 2
    pin = next(word.strip(".,;'\"") for word in err.split() if word.startswith("sha256:"))
    status, out, _ = call(*by_model, "--trust-model", pin)
    column = json.loads(call("audit", "scored.parquet", "--protected", "race", "--format", "json")[1])

    assert status == 0
    assert json.loads(out)["attributes"] == column["attributes"]
    trust = ("--model", "model.joblib", "--trust-model", pin)
    assert call("repair", "rows.parquet", "--protected", "race", "--method", "ramp", *trust)[0] == 0
    assert call("predict", "repaired.fairfix", "rows.parquet", "-o", "out.parquet")[0] == 2
    assert call("predict", "repaired.fairfix", "rows.parquet", "-o", "out.parquet", *trust)[0] == 0
    joblib.dump(LogisticRegression(C=9).fit(frame[["x", "z"]], frame.label), "other.joblib")
    assert call("predict repaired.fairfix rows.parquet -o o.csv --model other.joblib")[0] == 2


# ---------------------------------------------------------------------- as a process


def test_a_pipe_gets_no_colours_and_ascii_where_it_must(data: str) -> None:
    """Words carry every verdict; where the locale cannot show them, lines and dashes are plain."""
    done = subprocess.run(
        [sys.executable, "-m", "fairfix", *AUDIT.split(), "--check", "ks<=0.01"],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )

    assert done.returncode == 1
    assert "\x1b" not in done.stdout.decode("ascii")
    assert b"FAIL" in done.stdout


# ---------------------------------------------------------------------- the ramp in full


def test_rows_of_a_stratum_that_the_fit_has_not_seen(call: Call, data: str, tmp_path: Path) -> None:
    """The message names stratum and group; the policy leaves the base decision."""
    call("repair", data, "--protected", "race", "--strata", "sex", "--id", "id", "--method", "ramp")
    new = people(50).set_column(2, "sex", pa.array(["x"] * 50))
    pq.write_table(new, tmp_path / "new.parquet")
    err = call.refused("predict", "repaired.fairfix", "new.parquet", "-o", "out.parquet")
    assert "'x & " in err
    assert "'sex x race'" in err
    again = ("predict", "repaired.fairfix", "new.parquet", "-o", "out.parquet", "--unseen", "original")
    assert call(*again)[0] == 0


def test_unlabelled_rows_come_from_a_file_of_their_own(call: Call, data: str, tmp_path: Path) -> None:
    """They change the thresholds and not the number of rows that prove something."""
    pq.write_table(people(9000, seed=5).drop_columns(["label"]), tmp_path / "more.parquet")
    given = (*REPAIR.split(), "--format", "json", "--id", "id")
    plain, more = (json.loads(call(*given, *also)[1]) for also in ((), ("--unlabelled", "more.parquet")))

    assert plain["split"] == more["split"]
    assert plain["artifact"]["sha256"] != more["artifact"]["sha256"]
    stream = ("--unlabelled", "more.parquet", "--solver", "stream")
    assert "takes no --unlabelled" in call(*given, *stream)[2]


def test_words_and_numbers_are_chosen_among(call: Call, data: str) -> None:
    """A rate may be a word or a number; the validation part chooses, and is then fitted to as well."""
    given = ("--set", "rho=joint,mean,0.4", "--gamma", "0.05,0.5", "--set", "shape=centred,one-sided")
    status, out, _ = call(REPAIR, *given, "--format", "json")
    result = json.loads(out)

    assert status == 0
    assert len(result["selection"]) == 12
    assert result["proof"]["fit"]["rows"] == result["split"]["fit"] + result["split"]["validation"]


def test_notes_inform_and_warnings_warn(call: Call, data: str) -> None:
    """What endangers the result is a warning, all else a note: on stderr, in every report and in the artifact."""
    table = people()
    alone = {name: table[name][:1] for name in table.column_names} | {"race": pa.array(["green"])}
    pq.write_table(pa.concat_tables([table, pa.table(alone)]), "alone.parquet")
    command = ("repair", "alone.parquet", "--protected", "race", "--method", "ramp", "-o", "a.fairfix")
    _, out, err = call(*command, "--decisions", "deterministic", "--out", "json=a.json")
    result = json.loads(Path("a.json").read_text())
    shown, out = call("inspect", "a.fairfix")[1], " ".join(out.split())

    for kind in ("warning", "note"):
        assert texts_of(result, kind)
        for text in texts_of(result, kind):
            assert any(line.startswith(f"fairfix: {kind}: {text} [") for line in err.splitlines())
            assert f"{kind}: {text}" in out
            assert f"{kind:<18}{text}" in shown.splitlines()
    assert not set(texts_of(result, "warning")) & set(texts_of(result, "note"))
    assert [text for text in texts_of(result, "warning") if "nothing was evaluated" in text]
    assert [text for text in texts_of(result, "note") if text.startswith("without randomization")]


# ---------------------------------------------------------------------- files


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--out", "json=data.parquet"), "this file is also used by DATA"),
        (("--out", "json=below/../data.parquet"), "also used by DATA"),
        (("--out", "json=x", "--out", "html=x"), "also used by --out json=x"),
        (("--baseline", "old.json", "--out", "json=old.json"), "also used by --baseline"),
    ],
)
def test_nothing_that_is_read_is_written(
    arguments: tuple[str, ...], words: str, call: Call, data: str
) -> None:
    """An output in place of the data, of the baseline or of another output is refused before anything is read."""
    Path("below").mkdir()
    before = Path(data).read_bytes()
    err = call.refused(AUDIT, *arguments)
    assert words in err
    assert Path(data).read_bytes() == before
    assert sorted(path.name for path in Path().iterdir()) == ["below", data]


def test_a_prediction_does_not_replace_its_rows(call: Call, data: str, repaired: str) -> None:
    for name in (data, repaired):
        assert call("predict", repaired, data, "-o", name)[0] == 2
    assert "decision" not in pq.read_schema(data).names


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.skipif(
    os.geteuid() == 0, reason="were it broken, this test would replace devices of the machine"
)
def test_a_device_stays_one(call: Call, data: str) -> None:
    assert call(AUDIT, "--out", "html=/dev/null")[0] == 0
    status, out, err = call(AUDIT, "--out", "json=/dev/full")

    assert Path("/dev/null").is_char_device()
    assert (status, out) == (2, "")
    assert "cannot write /dev/full: No space left" in err
