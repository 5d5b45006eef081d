"""Audits of many classes: each is the audit of two, gaps over all are what they are defined as, names mean nothing."""

from __future__ import annotations

import json
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import fairfix
import jsonschema
import numpy as np
import pandas as pd
import pytest
from fairfix.data.encoder import MOST_CLASSES
from fairfix.errors import DataError, FairfixError
from fairfix.schema import json_schema

from tests.databases import differences, without_source
from tests.results import rendered

JOBS = ("nurse", "poet", "surgeon", "teacher")
TPR, DP = "true_positive_rate", "selection_rate"
GAP = f"{TPR}.difference.between_groups"
MANY: dict[str, Any] = {"label": "job", "prediction": "told", "task": "multiclass"}


@cache
def workers(many: int = 3000, classes: int = 4) -> pd.DataFrame:
    """Return people of several jobs; of one job, women are told it more seldom than men."""
    rng = np.random.default_rng(classes)
    names = np.array([*JOBS, *(f"job {i}" for i in range(classes))])[:classes]
    job, sex = rng.integers(0, classes, many), rng.choice(["f", "m"], many)
    right = rng.random(many) < np.where((job == 1) & (sex == "f"), 0.5, 0.8)
    told = np.where(right, job, rng.integers(0, classes, many))
    return pd.DataFrame(
        {
            "job": names[job],
            "told": names[told],
            "code": job,
            "told_code": told.astype(float),
            "sex": sex,
            "town": rng.choice(["east", "north", "west"], many, p=[0.5, 0.3, 0.2]),
            "weight": rng.integers(1, 13, many) / 4,  # sums are exact in any order
        }
    )


def audited(frame: Any = None, **more: Any) -> dict[str, Any]:
    """Return the JSON form of an audit of all classes; that of the workers is made once."""
    return deepcopy(plainly_audited()) if frame is None and not more else _audited(frame, **more)


@cache
def plainly_audited() -> dict[str, Any]:
    return _audited()


def _audited(frame: Any = None, **more: Any) -> dict[str, Any]:
    data = workers() if frame is None else frame
    return fairfix.audit(data, **{"protected": "sex", **MANY, **more}).to_dict()  # type: ignore[call-arg,arg-type]  # as a user writes it


def gap_of(one: dict[str, Any], attribute: str = "sex") -> dict[str, Any]:
    """Return the gap in true positive rates of a class."""
    block = next(block for block in one["attributes"] if block["attribute"] == attribute)
    return next(dict(own) for own in block["comparisons"] if own["id"] == GAP)


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"weight": "weight", "protected": ["sex", "town"], "intersect": True, "confidence": 0.9},
        {"strata": "town", "reference": "sex=m"},
        {"label": None},
    ],
)
@pytest.mark.parametrize("classes", [2, 4])
def test_each_class_is_an_audit_of_two(classes: int, more: dict[str, Any]) -> None:
    """Its numbers are those of the audit with it as positive value, at the miscoverage divided by the classes."""
    result = audited(workers(classes=classes), **more)
    asked: dict[str, Any] = {"protected": "sex", **MANY, **more, "task": "classification"}
    sure = 1 - (1 - asked.get("confidence", 0.95)) / classes

    assert [one["class"] for one in result["classes"]] == list(JOBS[:classes])
    assert result["settings"]["confidence_of_class"] == sure
    for one in result["classes"]:
        valued = {
            part: f"{asked[part]}={one['class']}" for part in ("label", "prediction") if asked.get(part)
        }
        named = {**valued, "confidence": sure}
        two = fairfix.audit(workers(classes=classes), **{**asked, **named}).to_dict()  # type: ignore[call-arg,arg-type]  # keywords of the request
        parts = ("overall", "attributes", "strata")
        assert not differences({part: one[part] for part in parts}, {part: two[part] for part in parts})


@pytest.mark.parametrize("weight", [None, "weight"])
def test_gaps_of_classes_and_accuracy_are_those_of_the_rows(weight: str | None) -> None:
    """The root mean square and the mean of the gaps, and the share that is right, by their definitions."""
    frame = workers()
    result = audited(weight=weight)
    w = np.ones(len(frame)) if weight is None else frame[weight].to_numpy()
    gaps, recalls = [], []
    for job in JOBS:
        one = (frame["job"] == job).to_numpy()
        right, of = (frame["told"] == job).to_numpy(), frame["sex"].to_numpy()
        rates = [np.average(right[one & (of == sex)], weights=w[one & (of == sex)]) for sex in ("f", "m")]
        gaps.append(abs(rates[1] - rates[0]))
        recalls.append(np.average(right[one], weights=w[one]))
    (block,) = result["attributes"]
    by_id = {one["id"]: one for one in block["comparisons"]}
    each = [gap_of(one) for one in result["classes"]]

    rms, mean = (by_id[f"{TPR}.difference.{scope}_of_classes"] for scope in ("rms", "mean"))
    assert rms["value"] == pytest.approx(np.sqrt(np.mean(np.square(gaps))))
    assert mean["value"] == pytest.approx(np.mean(gaps))
    assert rms["of_class"] == mean["of_class"] == JOBS[int(np.argmax(gaps))] == "poet"
    for end in ("low", "high"):
        assert rms[end] == pytest.approx(np.sqrt(np.mean([one[end] ** 2 for one in each])))
        assert mean[end] == pytest.approx(np.mean([one[end] for one in each]))
    assert result["balanced_accuracy"]["value"] == pytest.approx(np.mean(recalls))
    right = (frame["job"] == frame["told"]).to_numpy()
    for group in block["groups"]:
        own = (frame["sex"] == group["group"]).to_numpy()
        assert group["metrics"]["accuracy"]["value"] == pytest.approx(np.average(right[own], weights=w[own]))
    assert "accuracy.ratio.between_groups" in by_id
    assert {name.partition(".")[0] for name in by_id} == {"accuracy", TPR, DP, "false_positive_rate"}


def test_names_of_classes_mean_nothing() -> None:
    """Other names in another order: the same numbers under the new names."""
    other = dict(zip(JOBS, ("D", "b", "C", "a"), strict=True))
    frame = workers()
    plain = audited(frame)
    renamed = audited(frame.assign(job=frame["job"].map(other), told=frame["told"].map(other)))

    old = {other[one["class"]]: one for one in plain["classes"]}
    assert [one["class"] for one in renamed["classes"]] == sorted(old)
    for one in renamed["classes"]:
        assert one["attributes"] == old[one["class"]]["attributes"]
    for now, then in zip(renamed["attributes"], plain["attributes"], strict=True):
        for one, two in zip(now["comparisons"], then["comparisons"], strict=True):
            ends = [[number[end] for end in ("low", "value", "high")] for number in (one, two)]
            assert ends[0] == pytest.approx(ends[1])
            assert one.get("of_class") == other.get(two.get("of_class", ""))


def test_numbers_are_classes_however_they_are_written(tmp_path: Path) -> None:
    """Whole numbers as real ones, in Parquet and in CSV, in the order of numbers; fractions are an error."""
    frame = workers(classes=12)
    codes = {"label": "code", "prediction": "told_code"}
    result = audited(frame, **codes)
    assert [one["class"] for one in result["classes"]] == [str(i) for i in range(12)]
    frame.to_csv(tmp_path / "w.csv", index=False)
    assert audited(str(tmp_path / "w.csv"), **codes)["classes"] == result["classes"]
    with pytest.raises(DataError, match=r"'told_code' holds .*, and numbers with a fraction are not classes"):
        audited(frame.assign(told_code=frame["told_code"] + 0.5), **codes)


def test_a_database_counts_as_a_file_does(tmp_path: Path) -> None:
    frame = workers().astype({"job": object, "told": object, "sex": object, "town": object})
    with duckdb.connect(str(tmp_path / "jobs.duckdb")) as connection:
        connection.register("frame", frame)
        connection.execute("CREATE TABLE jobs AS FROM frame")
    there = audited(f"duckdb:///{tmp_path / 'jobs.duckdb'}#jobs", weight="weight", strata="town")
    here = audited(weight="weight", strata="town")
    there.pop("messages", None)

    assert not differences(without_source(there), without_source(here))


def test_checks_are_judged_for_each_class() -> None:
    """Of each class, but of accuracy and class gaps together; the worst class is named, and text and exit say so."""
    checks = [
        "tpr.difference<=0.1",
        "accuracy.min>=0.2",
        "tpr.difference.rms_of_classes<=0.02",
        "tpr[sex=f]>=0.1",
    ]
    result = fairfix.audit(workers(), protected="sex", check=checks, **MANY)  # type: ignore[call-arg]  # keywords of the request
    verdicts = {(one["check"], one.get("class")): one["verdict"] for one in result.to_dict()["checks"]}

    assert {job: verdicts["tpr.difference<=0.1", job] for job in JOBS} == {
        **dict.fromkeys(JOBS, "pass"),
        **{job: "undecided" for job in JOBS if verdicts["tpr.difference<=0.1", job] == "undecided"},
        "poet": "fail",
    }
    assert verdicts["accuracy.min>=0.2", None] == "pass"
    assert verdicts["tpr.difference.rms_of_classes<=0.02", None] == "fail"
    assert len(verdicts) == 2 * len(JOBS) + 2
    assert result.verdict == "fail"
    assert result.exit_status() == 1
    text = " ".join(str(result).split())
    assert [one.partition(",")[0] for one in text.split("Class ")[1:2]] == ["poet"]
    assert "Class poet, the worst of 4: By sex, the true positive rate is" in text
    assert "root mean square of the gaps of all classes" in text
    assert len({one["id"] for one in result.to_dict()["checks"]}) == len(verdicts)
    github = rendered("github", result.to_dict())
    assert "title=tpr.difference<=0.1 [sex]%2C class poet::FAIL" in github
    assert {one.of_class for one in result.content.classes} == set(JOBS)
    assert result.content.verdict == "fail"


def test_a_class_that_no_label_has_leaves_the_gap_open() -> None:
    """Its rate is undefined: the mean is over the rest, may be anything there, and no check of it passes."""
    frame = workers().copy()
    frame.loc[frame.index[:5], "told"] = "dancer"
    result = audited(frame, check="tpr.difference.mean_of_classes<=0.9")
    (block,) = result["attributes"]
    mean = next(one for one in block["comparisons"] if one["id"] == f"{TPR}.difference.mean_of_classes")
    each = [gap_of(one) for one in result["classes"]]
    ends = {"low": [one["low"] or 0.0 for one in each], "high": [one["high"] for one in each]}

    assert [one["class"] for one in result["classes"] if gap_of(one)["value"] is None] == ["dancer"]
    assert mean["value"] == pytest.approx(np.mean([one["value"] for one in each if one["value"] is not None]))
    assert mean["low"] == pytest.approx(np.mean(ends["low"]))
    assert mean["high"] == pytest.approx(
        (np.sum([one for one in ends["high"] if one is not None and one < 1]) + 1) / 5
    )
    assert "undefined for some group in dancer" in mean["reason"]
    (check,) = result["checks"]
    assert (check["verdict"], check["code"]) == ("undecided", "group_undefined")
    (message,) = result["messages"]
    assert message["code"] == "unknown_classes"
    assert "'dancer'" in message["text"]


def copied(rows: int = 400) -> tuple[pd.DataFrame, pd.DataFrame, pd.Series]:
    """Return people with ids, two copies of each of some, and whether one of them is predicted another class."""
    rng = np.random.default_rng(3)
    frame = workers().assign(person=lambda one: [f"p{i}" for i in range(len(one))])
    copies = pd.concat(
        [frame[["person", "told", "told_code"]].sample(rows, random_state=1)] * 2, ignore_index=True
    )
    other = rng.random(len(copies)) < 0.1
    changed = copies.assign(
        told=np.where(other, "dancer", copies["told"]),
        told_code=np.where(other, 9, copies["told_code"]).astype(int),
    )
    return frame, changed, pd.Series(other).groupby(copies["person"]).any()


@pytest.mark.parametrize(("column", "weight"), [("told", None), ("told", "weight"), ("told_code", None)])
def test_copies_are_predicted_another_class(column: str, weight: str | None, tmp_path: Path) -> None:
    """The share of people with such a copy, each once; a class that no row is predicted to be counts as well."""
    frame, copies, other = copied()
    copies[["person", column]].to_csv(tmp_path / "copies.csv", index=False)
    asked: dict[str, Any] = {"label": "code", "weight": weight, "prediction": column}
    asked |= {"similar": str(tmp_path / "copies.csv"), "id": "person"}
    asked |= {
        "label": "job" if column == "told" else "code",
        "check": "decision_flips.under_counterfactuals<=0.05",
    }
    result = audited(frame, **asked)
    (block,) = result["attributes"]
    flips = next(one for one in block["comparisons"] if one["id"] == "decision_flips.under_counterfactuals")
    w = None if weight is None else frame.set_index("person")[weight][other.index]

    assert flips["value"] == pytest.approx(np.average(other, weights=w))
    assert flips["reason"] == "800 copies of 400 people"
    (check,) = result["checks"]
    assert check["verdict"] == "fail"
    assert "class" not in check
    assert "with the counterfactual copies, for people who have any" in " ".join(
        rendered("text", result).split()
    )


def test_copies_that_change_nothing_change_no_class() -> None:
    """Predictions of the same people: the share is 0, within the limits of so many."""
    frame, *_ = copied()
    result = audited(frame, similar=frame[["person", "told"]], id="person")
    (block,) = result["attributes"]
    flips = next(one for one in block["comparisons"] if one["id"] == "decision_flips.under_counterfactuals")
    assert (flips["value"], flips["low"]) == (0.0, 0.0)
    assert flips["high"] == pytest.approx(1 - 0.025 ** (1 / len(frame)))


def test_copies_without_a_class_or_a_person_are_told() -> None:
    """A missing prediction is an error that says whose copy it is; people who are not there are left out."""
    frame, copies, _ = copied()
    alien = pd.DataFrame({"person": ["nobody"], "told": ["nurse"]})
    result = audited(frame, similar=pd.concat([copies[["person", "told"]], alien]), id="person")
    assert [one["code"] for one in result["messages"]] == ["unknown_copies"]
    gone = copies[["person", "told"]].astype(object)
    gone.loc[0, "told"] = None
    with pytest.raises(DataError, match=f"'told' is missing for a copy of '{gone['person'][0]}'"):
        audited(frame, similar=gone, id="person")
    with pytest.raises(DataError, match="told"):
        audited(frame, similar=copies[["person"]], id="person")


@pytest.mark.parametrize("spelt", [str.upper, "{} ".format, {job: i for i, job in enumerate(JOBS)}.get])
def test_copies_in_another_spelling_are_refused(spelt: Any) -> None:
    """Where none is a class of the data; one that is predicted to nobody, but is a label, is one."""
    frame, *_ = copied()
    with pytest.raises(
        DataError, match=r"no copy is predicted a class of the data: column 'told' .* holds .*'nurse'"
    ):
        audited(frame, similar=frame[["person"]].assign(told=frame["told"].map(spelt)), id="person")
    told = frame.assign(told=frame["told"].replace("poet", "nurse"))
    copies = frame[["person"]].assign(told="poet")
    assert audited(told, similar=copies, id="person")["attributes"]


def test_a_comment_says_of_which_class_a_check_is() -> None:
    """Each row has its class, one of all together says so; without classes there is no such column."""
    checks = ["tpr.difference<=0.1", "accuracy.min>=0.9"]
    result = audited(check=checks)
    lines = rendered("comment", result).partition("Full report")[0].splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:4]] for line in lines if line.startswith("|")]
    assert ["verdict", "class", "check"] in rows
    assert {name for _, name, _ in rows} >= {*JOBS, "all together"}
    two: dict[str, Any] = {"label": "job=poet", "prediction": "told", "check": checks[0]}
    assert "| class" not in rendered("comment", fairfix.audit(workers(), protected="sex", **two).to_dict())


RMS = f"{TPR}.difference.rms_of_classes"


def test_changes_since_a_baseline_are_those_of_each_class() -> None:
    """Class by class those of two audits of two, at the same limits; of all together those of the gaps."""
    then, frame = audited(), workers().copy()
    worse = (frame["job"] == "nurse") & (frame["sex"] == "f") & (frame.index % 2 == 0)
    frame.loc[worse, "told"] = "poet"
    asked = [
        "tpr.difference.change<=0.05",
        "tpr.difference.rms_of_classes.change<=0.05",
        "accuracy.difference.change<=0.9",
    ]
    result = audited(frame, baseline=then, check=asked)
    schema = json_schema("audit")
    jsonschema.validate(result, schema)

    verdicts = {(one["comparison"], one.get("class")): one["verdict"] for one in result["checks"]}
    assert verdicts[GAP, "nurse"] == "fail"
    assert verdicts[RMS, None] == "fail"
    assert verdicts["accuracy.difference.between_groups", None] == "pass"
    assert len(verdicts) == len(JOBS) + 2
    sure = result["settings"]["confidence_of_class"]
    for job in JOBS:
        two: dict[str, Any] = {"protected": "sex", "confidence": sure}
        two |= {"label": f"job={job}", "prediction": f"told={job}"}
        was = fairfix.audit(workers(), **two).to_dict()
        now = fairfix.audit(frame, baseline=was, check=asked[0], **two).to_dict()
        own = [
            {**one, "id": f"{one['id']}, class {job}", "class": job}
            for one in now["baseline"]["changes"]
            if not one["comparison"].startswith("accuracy")
        ]
        assert [one for one in result["baseline"]["changes"] if one.get("class") == job] == own
    gap = next(one for one in result["baseline"]["changes"] if one["comparison"] == RMS)
    value = {one["id"]: one["value"] for one in result["attributes"][0]["comparisons"]}
    assert gap["new"]["value"] == value[RMS]
    assert gap["value"] == pytest.approx(gap["new"]["value"] - gap["old"]["value"])
    text = " ".join(rendered("text", result).split())
    assert "numbers changed significantly" in text
    assert "Class nurse, the worst of 4: By sex, since the baseline" in text


def test_a_class_without_labels_is_unchanged_as_well() -> None:
    """It is the same rows, though a class of five predictions could give its counts twice by chance."""
    frame = workers().copy()
    frame.loc[frame.index[:5], "told"] = "dancer"
    result = audited(
        frame, baseline=audited(frame), check=["accuracy.min.change>=-0.001", "dp.difference.change<=0"]
    )
    assert {(one["verdict"], one["code"]) for one in result["checks"]} == {("pass", "unchanged")}


def test_other_copies_are_a_change() -> None:
    """What copies are predicted is no number of a class: the same classes do not make it unchanged."""
    frame, copies, _ = copied()
    plain, asked = frame[["person", "told"]], "decision_flips.under_counterfactuals.change<=0.01"
    then = audited(frame, similar=plain, id="person")
    for of, code in ((plain, "unchanged"), (copies[["person", "told"]], "beyond_limit")):
        result = audited(frame, similar=of, id="person", baseline=then, check=asked)
        assert [one["code"] for one in result["checks"]] == [code]


def test_other_classes_are_not_compared() -> None:
    """Gaps are means over the classes, and limits hold for all at once: no check of a change passes."""
    frame = workers().replace({"poet": "dancer"})
    result = audited(frame, baseline=audited(), check="tpr.difference.change<=0.9")
    assert {one["code"] for one in result["checks"]} == {"not_comparable"}
    assert not result["baseline"]["changes"]
    reason = "the classes are not the same: poet only in the earlier audit; dancer only now"
    assert {one["reason"] for one in result["baseline"]["not_comparable"]} == {reason}
    with pytest.raises(DataError, match=f"nothing in the baseline given can be compared .*: {reason}"):
        audited(frame, baseline=audited(), check="change<=0.02")


def test_a_baseline_of_another_kind_is_refused() -> None:
    """One of two classes, of another confidence or another attribute, or one that was changed."""
    two = fairfix.audit(workers(), protected="sex", label="job=poet", prediction="told").to_dict()  # type: ignore[call-arg]  # keywords of the request
    changed = json.loads(json.dumps(audited()))
    changed["classes"][0]["attributes"][0]["groups"][0]["rows"] = "many"
    with pytest.raises(DataError, match="`task=multiclass`"):
        fairfix.audit(workers(), protected="sex", label="job=poet", prediction="told", baseline=audited())  # type: ignore[call-arg]  # keywords of the request
    for old, told in (
        (two, "`task=classification`"),
        ({**audited(), "schema": "fairfix.classes/1"}, "of this version .*fairfix.classes/1"),
        ({**audited(), "classes": two.get("classes", [])}, "is incomplete or was changed"),
        (audited(confidence=0.9), "`confidence=0.9`"),
        (audited(protected="town"), "audits none of the attributes sex"),
        (changed, "is incomplete or was changed"),
    ):
        with pytest.raises(DataError, match=told):
            audited(baseline=old)


def test_small_groups_stay_hidden_in_every_class() -> None:
    frame = workers().assign(town=lambda one: np.where(one.index < 7, "islet", one["town"]))
    result = audited(frame, protected="town", suppress_below=20)
    blocks = [one["attributes"][0] for one in (result, *result["classes"])]

    assert len({tuple(group["group"] for group in block["groups"]) for block in blocks}) == 1
    assert "islet" not in json.dumps({**result, "data": {}})


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"label": "job=nurse"}, "leave out the values of `label`"),
        ({"score": "weight"}, "leave out `score`"),
        ({"baseline": "code"}, "is a column"),
        ({"metrics": {"own": len}}, "`metrics`"),
        ({"check": "ks<=0.1"}, "classes have predictions alone"),
        ({"check": "ppv.difference.rms_of_classes<=0.1"}, "over the classes, use differences of"),
        ({"prediction": None}, "no column of predicted classes"),
        ({"prediction": "code"}, "no prediction is a class of the labels"),
        ({"prediction": "row"}, f"more than {MOST_CLASSES} distinct values"),
        ({"label": "told", "prediction": "told"}, "it can have only one role"),
        ({"protected": "only"}, "only the group 'one'"),
        ({"label": None, "prediction": "only"}, "only the class 'one'"),
        ({"label": "gone"}, "missing class \\(gone\\) in 3 of"),
        (
            {"task": "classification", "check": "tpr.difference.rms_of_classes<=0.1", "label": "job=nurse"},
            "it needs a label of many classes, with `task=multiclass`",
        ),
        ({"task": "classification"}, "an audit compares every class with the rest by `task=multiclass`"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_refused(more: dict[str, Any], told: str) -> None:
    frame = workers().assign(only="one", row=range(3000), gone=lambda one: one["job"].where(one.index > 2))
    with pytest.raises(FairfixError, match=told):
        audited(frame, **more)


def test_rows_without_a_class_are_left_out_when_asked() -> None:
    frame = workers().assign(gone=lambda one: one["job"].where(one.index > 2))
    rows = audited(frame, label="gone", missing="drop")["data"]["rows"]
    assert rows["excluded"] == [{"reason": "missing class (gone)", "rows": 3}]
    assert rows["read"] == rows["used"] + 3
