"""How data is read is said, and a first guess that cannot be read is answered with what to type."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import fairfix
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fairfix.data.canonical import canonical_text

from tests.conftest import Call
from tests.data import people, scored
from tests.results import texts_of

pytestmark = pytest.mark.usefixtures("away")


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    """Rows with a label, a score in [0, 1] and decisions by it."""
    frame = people(600)[["race", "sex", "label", "score"]]
    return frame.assign(decided=(frame.score >= 0.5).astype(int))


def audited(call: Call, data: str, *options: str) -> Any:
    """Return the JSON form of an audit by race."""
    out = call.ran("audit", data, "--protected", "race", "--format", "json", *options)
    return json.loads(out)


def numbers_of(result: Any) -> Any:
    """Return the numbers of an audit, without what says how the data was read."""
    return [result[part] for part in ("overall", "attributes")]


# ---------------------------------------------------------------------- labels and decisions


SPELLINGS: dict[str, Any] = {
    "truth": {0: False, 1: True},
    "digits": {0: "0", 1: "1"},
    "floats": {0: 0.0, 1: 1.0},
    "long": {0: "0.00", 1: "1.00"},
    "capitals": {0: "FALSE", 1: "True"},
}


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_usual_spellings_of_truth_are_read_as_they_are(
    rows: pd.DataFrame, call: Call, spelling: str, ending: str
) -> None:
    """Labels and decisions of any of them give the numbers of 0 and 1."""
    spelt = {name: rows[name].map(SPELLINGS[spelling]) for name in ("label", "decided")}
    write(rows, "plain.parquet")
    write(rows.assign(**spelt), f"spelt.{ending}")
    plain, other = (
        audited(call, name, "--prediction", "decided") for name in ("plain.parquet", f"spelt.{ending}")
    )

    assert numbers_of(plain) == numbers_of(other)


def write(frame: pd.DataFrame, name: str) -> None:
    """Write a frame in the kind that its name says."""
    if name.endswith(".parquet"):
        frame.to_parquet(name)
    else:
        frame.to_csv(name, index=False)


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("no", "yes"), [(1, 2), (-1, 1), (1.0, 2.0), ("Charged Off", "repaid"), ("bad", "it's good")]
)
def test_other_labels_are_listed_with_the_options_to_copy(
    rows: pd.DataFrame, call: Call, no: Any, yes: Any, ending: str
) -> None:
    """Both values with their numbers of rows, though the file is sorted by them; either option gives what it says."""
    import shlex

    write(rows, "plain.parquet")
    write(rows.assign(label=rows.label.map({0: no, 1: yes})).sort_values("label"), f"d.{ending}")
    status, out, err = call("audit", f"d.{ending}", "--protected", "race")
    lines = [shlex.split(line) for line in err.splitlines() if line.startswith("  fairfix audit")]
    options = [line[line.index("--label") :] for line in lines]

    assert (status, out) == (2, "")
    no, yes = canonical_text(str(no)), canonical_text(str(yes))
    for value, label in ((no, 0), (yes, 1)):
        assert f"{value!r} in {int((rows.label == label).sum()):,}" in err
    assert len(options) == 2
    results = {parts[1].removeprefix("label="): audited(call, f"d.{ending}", *parts) for parts in options}
    plain = audited(call, "plain.parquet")["overall"]["metrics"]["base_rate"]["value"]
    assert results[yes]["overall"]["metrics"]["base_rate"]["value"] == pytest.approx(plain)
    assert results[no]["overall"]["metrics"]["base_rate"]["value"] == pytest.approx(1 - plain)


def test_many_values_are_not_all_listed(rows: pd.DataFrame, call: Call) -> None:
    """Six of them at most; of numbers without end, the task that they may be of is proposed."""
    write(rows.assign(label=np.arange(600) % 9), "few.csv")
    write(rows.assign(label=np.arange(600) / 4), "many.csv")
    write(rows.assign(label=np.where(rows.label, "yes", None)), "gaps.csv")
    few, many, gaps = (
        call("audit", f"{name}.csv", "--protected", "race")[2] for name in ("few", "many", "gaps")
    )

    assert few.count(" in ") >= 6
    assert "and 3 values more" in few
    assert "--label label=0" in few
    assert "--task regression" in many
    assert f"'yes' in {int(rows.label.sum())} rows, {int((rows.label == 0).sum())} missing" in gaps


@pytest.mark.parametrize("labels", ["words", "plain"])
def test_decisions_in_words_have_an_option_of_their_own(rows: pd.DataFrame, call: Call, labels: str) -> None:
    """Without it the values are listed, and never read as if all were negative; with it all is as with 0 and 1."""
    spelt = rows.assign(decided=rows.decided.map({0: "deny", 1: "approve"}))
    named: tuple[str, ...] = ()
    if labels == "words":
        spelt = spelt.assign(label=spelt.label.map({0: "bad", 1: "good"}))
        named = ("--label", "label=good")
    write(rows, "plain.parquet")
    write(spelt, "d.csv")
    asked = ("audit", "d.csv", "--protected", "race", *named, "--prediction")
    err = call.refused(*asked, "decided")
    assert "--prediction decided=approve" in err
    assert "--prediction decided=deny" in err
    err = call.refused(*asked, "decided=Approve")
    assert "'Approve'" in err

    ours = audited(call, "d.csv", "--prediction", "decided=approve", *named)
    assert numbers_of(ours) == numbers_of(audited(call, "plain.parquet", "--prediction", "decided"))
    counted = call("count", *asked[1:], "decided=approve", "-o", "c.counts")
    assert counted[0] == 0, counted[2]
    out = call.ran("audit", "c.counts", "--format", "json")
    metrics = [one["overall"]["metrics"]["selection_rate"]["value"] for one in (ours, json.loads(out))]
    assert metrics[0] == pytest.approx(metrics[1])
    err = call.refused("audit", "c.counts", "--prediction", "decided=deny")
    assert "--prediction is decided=deny" in err


@pytest.mark.parametrize(
    ("spelling", "asks"), [({0: "no", 1: "yes"}, False), ({0: 0, 1: 1}, False), ({0: 1, 1: 2}, True)]
)
def test_decisions_beside_a_named_label_are_of_its_words_or_of_truth(
    spelling: dict[int, Any], *, asks: bool
) -> None:
    """A positive label names the positive decision only where decisions hold it; 1 and 2 are two decisions."""
    label, decided = np.array(["no", "yes"] * 50), np.array([1, 1, 1, 0, 0] * 20)
    frame = pd.DataFrame({"g": ["a", "a", "b", "b"] * 25, "y": label, "d": pd.Series(decided).map(spelling)})
    given: dict[str, Any] = {"protected": "g", "label": "y=yes", "prediction": "d"}
    if asks:
        with pytest.raises(fairfix.UsageError, match="prediction='d=2'"):
            fairfix.audit(frame, **given)
        given["prediction"] = "d=2"
    result = fairfix.audit(frame, **given).to_dict()

    assert result["overall"]["metrics"]["selection_rate"]["value"] == pytest.approx(0.6)


# ---------------------------------------------------------------------- scales


def test_scores_up_to_a_hundred_are_offered_the_scale_and_read_by_it(rows: pd.DataFrame, call: Call) -> None:
    """The error has the range; in percent all numbers are those of the probabilities, thresholds in its units."""
    exact = rows.assign(score=np.round(rows.score * 64) / 64)  # so that nothing is rounded by 100
    write(exact, "p.parquet")
    write(exact.assign(score=exact.score * 100), "d.parquet")
    err = call.refused("audit", "d.parquet", "--protected", "race")
    low, high = exact.score.min() * 100, exact.score.max() * 100
    assert f"goes from {low:g} to {high:g}" in err
    assert "--score-scale percent" in err
    assert "--score-scale margin" not in err

    plain = audited(call, "p.parquet", "--threshold", "0.25")
    percent = audited(call, "d.parquet", "--threshold", "25", "--score-scale", "percent")
    for name, one in plain["overall"]["metrics"].items():
        other = percent["overall"]["metrics"][name]
        assert [other[end] for end in ("value", "low", "high")] == pytest.approx(
            [one[end] for end in ("value", "low", "high")], rel=1e-9, abs=2e-3 * (name == "calibration_error")
        )
    err = call.refused(
        "audit", "p.parquet", "--protected", "race", "--score-scale", "percent", "--threshold", "101"
    )
    assert "from 0 to 100" in err


def test_a_scale_is_kept_by_the_artifact(rows: pd.DataFrame, call: Call) -> None:
    """A repair of percents decides as one of probabilities, and refuses rows beyond the scale."""
    exact = rows.assign(score=np.round(rows.score * 64) / 64, id=np.arange(600))
    write(exact, "p.parquet")
    write(exact.assign(score=exact.score * 100), "d.parquet")
    for name, options in (("p", ()), ("d", ("--score-scale", "percent"))):
        how = ("--method", "ramp", "--protected", "race", "--id", "id", "-o", f"{name}.fairfix", *options)
        call.ran("repair", f"{name}.parquet", *how)
        call.ran("predict", f"{name}.fairfix", f"{name}.parquet", "-o", f"{name}.out.parquet")
    ours, theirs = (pd.read_parquet(f"{name}.out.parquet").p_positive for name in ("p", "d"))
    assert ours.to_numpy() == pytest.approx(theirs.to_numpy(), abs=1e-6)
    assert ours.nunique() >= 2
    write(exact.assign(score=101.0), "beyond.parquet")
    err = call.refused("predict", "d.fairfix", "beyond.parquet", "-o", "x.parquet")
    assert "outside [0, 100]" in err
    assert not Path("x.parquet").exists()


# ---------------------------------------------------------------------- direction


WRONG = "the score points in the wrong direction"


@pytest.fixture(scope="module")
def reverse(rows: pd.DataFrame) -> pd.DataFrame:
    """Scores of the other label, as of a model of defaults beside labels of repayment."""
    return rows.assign(score=1 - rows.score).drop(columns="decided")


def test_a_score_of_the_other_label_is_the_first_thing_said(
    reverse: pd.DataFrame, call: Call, tmp_path: Path
) -> None:
    """In every format, with its AUC; and the option that it names makes it an AUC above one half, without a word."""
    write(reverse, "d.csv")
    outs = [f"{name}=out.{name}" for name in ("json", "html", "markdown", "github", "junit", "sarif")]
    options = [part for out in outs for part in ("--out", out)]
    status, text, err = call(
        "audit", "d.csv", "--protected", "race", "--check", "dp.difference<=0.9", *options
    )
    assert status in (0, 3), err
    lines = text.splitlines()
    assert WRONG in lines[1]
    assert f"warning: {WRONG}" in err
    answer = next(i for i, line in enumerate(lines) if "By race" in line)
    assert "--label label=0" in " ".join(" ".join(lines[1:answer]).split())
    result = json.loads(Path("out.json").read_text())
    (message,) = result["messages"]
    assert (message["severity"], message["code"]) == ("warning", "score_direction")
    assert f"{result['overall']['metrics']['auc']['value']:.3f} [" in message["text"]
    page = Path("out.html").read_text()
    assert page.count(WRONG) == 1
    assert page.index(WRONG) < page.index("Data and settings")
    assert WRONG in Path("out.markdown").read_text().splitlines()[2]
    assert Path("out.github").read_text().startswith("::warning title=score_direction::")
    assert f'<property name="warning score_direction" value="{WRONG}' in Path("out.junit").read_text()
    (invocation,) = json.loads(Path("out.sarif").read_text())["runs"][0]["invocations"]
    assert invocation["toolExecutionNotifications"][0]["descriptor"]["id"] == "score_direction"

    right = audited(call, "d.csv", "--label", "label=0")
    assert "messages" not in right
    assert right["overall"]["metrics"]["auc"]["low"] > 0.5


DECIDED: dict[str, tuple[str, ...]] = {
    "decisions": ("--prediction", "decided"),
    "chances": ("--probability", "chance"),
    "counts": ("--prediction", "decided"),
    "strata": ("--prediction", "decided", "--strata", "sex"),
    "classes": ("--prediction", "told", "--label", "job", "--task", "multiclass"),
}


@pytest.mark.parametrize("kind", DECIDED)
def test_decisions_that_point_the_wrong_way_are_said_to(rows: pd.DataFrame, call: Call, kind: str) -> None:
    """In data, counts and classes, where the TPR is surely below the FPR; not where they are right."""
    for wrong in (True, False):
        frame = rows.drop(columns="score")
        decided = 1 - frame.decided if wrong else frame.decided
        chance = 0.2 + 0.6 * decided
        told, job = (np.where(one == 1, "nurse", "cook") for one in (decided, frame.label))
        named = {"told": told, "job": job} if kind == "classes" else {"decided": decided, "chance": chance}
        write(frame.drop(columns="decided").assign(**named), "d.csv")
        content = audited(call, "d.csv", *DECIDED[kind])
        codes = [one["code"] for one in content.get("messages", ())]
        assert codes == (["decision_direction"] if wrong else [])
        if kind == "counts":
            asked = ("--protected", "race", *DECIDED[kind], "-o", "d.counts")
            assert call("count", "d.csv", *asked)[0] == 0
            out = call.ran("audit", "d.counts", "--format", "json")
            assert [one["code"] for one in json.loads(out).get("messages", ())] == codes


def test_decisions_by_a_score_are_not_said_twice_to_point_the_wrong_way(
    reverse: pd.DataFrame, call: Call
) -> None:
    """Of a score, the warning is about the score; of decisions beside it, about each that is wrong."""
    write(reverse, "d.csv")
    assert [one["code"] for one in audited(call, "d.csv")["messages"]] == ["score_direction"]
    write(reverse.assign(yes=(reverse.score >= 0.5).astype(int)), "d.csv")
    both = audited(call, "d.csv", "--score", "score", "--prediction", "yes")
    assert [one["code"] for one in both["messages"]] == ["score_direction", "decision_direction"]
    write(reverse.assign(yes=(reverse.score < 0.5).astype(int)), "d.csv")
    both = audited(call, "d.csv", "--score", "score", "--prediction", "yes")
    assert [one["code"] for one in both["messages"]] == ["score_direction"]


def test_two_models_say_which_score_points_the_wrong_way(reverse: pd.DataFrame) -> None:
    frame = reverse.assign(other=1 - reverse.score)
    result = fairfix.compare(frame, protected="race", score="other", baseline="score").to_dict()
    (message,) = result["messages"]
    assert message["code"] == "score_direction"
    assert "'score'" in message["text"]
    assert WRONG in str(fairfix.compare(frame, protected="race", score="score", baseline="other")).replace(
        " 'score'", ""
    )


def test_a_repair_and_a_comparison_say_it_too(reverse: pd.DataFrame, call: Call) -> None:
    write(reverse, "d.csv")
    asked = ("d.csv", "--protected", "race", "--format", "json")
    for more, right in (((), False), (("--label", "label=0"), True)):
        out = call.ran("repair", *asked, "--method", "ramp", *more)
        codes = [one.get("code") for one in json.loads(out)["messages"]]
        assert codes[:1] != ["score_direction"] if right else codes[0] == "score_direction"
        out = call.ran("compare", *asked, "--methods", "ramp", "--slacks", "0.1", *more)
        base = json.loads(out)["points"][0]
        assert any(WRONG in note for note in texts_of(base)) is not right


# ---------------------------------------------------------------------- CSV


def test_a_file_of_semicolons_and_decimal_commas_gives_the_same_audit(rows: pd.DataFrame, call: Call) -> None:
    """And says how it was read; repair and predict read it too, and predict writes a file of commas."""
    frame = rows.assign(id=np.arange(600))
    write(frame, "plain.csv")
    frame.to_csv("d.csv", sep=";", decimal=",", index=False, encoding="utf-8-sig")
    how = "read with ';' between columns and ',' as decimal sign"
    status, text, err = call("audit", "d.csv", "--protected", "race")
    assert status == 0
    assert how in text.splitlines()[1]
    assert err.count(how) == 1
    assert numbers_of(audited(call, "d.csv")) == numbers_of(audited(call, "plain.csv"))
    stated = audited(call, "d.csv", "--delimiter", ";", "--decimal", ",")
    assert numbers_of(stated) == numbers_of(audited(call, "plain.csv"))
    for name in ("plain", "d"):
        asked = ("--method", "ramp", "--protected", "race", "--id", "id", "--quiet", "-o", f"{name}.fairfix")
        text = call.ran("repair", f"{name}.csv", *asked)
        assert (how in text) == (name == "d")
        status, _, err = call("predict", f"{name}.fairfix", f"{name}.csv", "-o", f"{name}.out.csv")
        assert status == 0, err
        assert (how in err) == (name == "d")
    assert Path("d.out.csv").read_text() == Path("plain.out.csv").read_text()


def test_a_decimal_comma_between_commas_is_asked_for(rows: pd.DataFrame, call: Call) -> None:
    """The error of a quoted number names the option, with which it is read."""
    write(rows, "plain.csv")
    quoted = rows.assign(score=rows.score.map(lambda score: str(score).replace(".", ",")))
    write(quoted, "d.csv")
    err = call.refused("audit", "d.csv", "--protected", "race")
    assert "--decimal ," in err
    assert numbers_of(audited(call, "d.csv", "--decimal", ",")) == numbers_of(audited(call, "plain.csv"))


# ---------------------------------------------------------------------- the command to copy


def test_the_command_to_copy_of_a_repair_keeps_what_is_of_its_method(rows: pd.DataFrame, call: Call) -> None:
    """Its parameters, also lists of which one is chosen; on the line as it was typed, in a call as Python has it."""
    write(rows.drop(columns="decided").assign(x=range(600)), "d.csv")
    asked = "--method logloss --learner linear,linear(l2=0.2) --decisions deterministic --features x --protected rcae"
    err = call.refused("repair", "d.csv", *asked.split())
    command = err[err.index("to copy: ") :].removeprefix("to copy: ").strip()
    kept = "--method logloss --features x --learner 'linear,linear(l2=0.2)' --decisions deterministic"
    assert set(command.split()) == {"fairfix", "repair", "d.csv", *kept.split(), "--protected", "race"}
    given: dict[str, Any] = {"method": "ramp", "gamma": [0.1, 0.2], "protected": "rcae"}
    for data, end in ((rows, "gamma=[0.1, 0.2])"), ("d.csv", "--gamma 0.1,0.2")):
        with pytest.raises(fairfix.DataError) as refused:
            fairfix.repair(data, **given)
        assert str(refused.value).endswith(end)


NEAR = {
    "repair d.csv --protected race --method rampp": "ramp",
    "repair d.csv --protected race --method fair-regression --learner tree": "trees",
    "repair d.csv --protected race --method fair-regression --solver plugin": "plug-in",
    "compare d.csv --protected race --score score --methods rmap": "ramp",
    "audit d.csv --protected race --missing race=dropp": "drop",
    "audit d.csv --protected race --format jsn": "json",
    "adit d.csv": "audit",
}


@pytest.mark.parametrize("line", NEAR)
def test_a_word_that_is_none_is_told_the_nearest(line: str, rows: pd.DataFrame, call: Call) -> None:
    """Of methods, of values and of commands; a word that is like none is told nothing."""
    write(rows.drop(columns="decided"), "d.csv")
    err = call.refused(*line.split())
    assert f"id you mean {NEAR[line]!r}?" in err
    word = line.split()[0] if line.startswith("adit") else line.split()[-1]
    err = call.refused(*line.replace(word, "qqqqq").split())
    assert "id you mean" not in err


def test_a_keyword_that_is_none_is_told_the_nearest(rows: pd.DataFrame) -> None:
    """In the library as on the line."""
    with pytest.raises(TypeError, match=r"'gama'; did you mean 'gamma'\?"):
        fairfix.repair(rows, protected="race", method="ramp", gama=0.1)
    with pytest.raises(fairfix.UsageError, match=r"none of error, drop; did you mean 'drop'\?"):
        fairfix.audit(rows, protected="race", missing="dropp")


def test_files_of_a_folder_that_differ_in_columns_are_named(call: Call) -> None:
    """A column that is asked for is in every file; one that is not may be in some."""
    Path("parts").mkdir()
    table = scored(rows=40, groups=2)
    pq.write_table(table.slice(0, 20), "parts/0.parquet")
    pq.write_table(table.slice(20).drop_columns(["job"]), "parts/1.parquet")
    begin = ("audit", "parts", "--protected", "race")

    assert call(*begin)[0] == 0
    err = call.refused(*begin, "--strata", "job")
    assert "1.parquet (of parts (2 files)) has no column 'job'" in err


@pytest.mark.parametrize(
    ("column", "options", "message"),
    [
        (
            {"big": pa.array([2**53 + 1] * 40)},
            ("--noise", "membership:big,x"),
            "'big' is 9.0072e+15, which is no",
        ),
        ({"odd": [math.inf] * 40}, ("--protected", "race", "--score", "odd"), "must be finite"),
        ({"odd": [-math.inf] * 40}, ("--protected", "race", "--weight", "odd"), "must be finite"),
    ],
)
def test_numbers_that_no_float_or_no_json_holds(
    call: Call, column: dict[str, Any], options: tuple[str, ...], message: str
) -> None:
    """Whole numbers beyond 2^53 as probabilities, and infinities, are refused by column and row."""
    pq.write_table(pa.table({**scored(rows=40).to_pydict(), **column}), "d.parquet")
    err = call.refused("audit", "d.parquet", *options)
    assert message in err
