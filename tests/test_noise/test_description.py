"""Noisy protected groups: descriptions of noise, and what an audit says of the true groups behind them."""

from __future__ import annotations

import json
import math
import re
import shlex
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from fairfix.auditing.audit import audit
from fairfix.auditing.checks import Check
from fairfix.auditing.results import Settings
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.files import open_source
from fairfix.data.noise_spec import NoiseSpec, with_file
from fairfix.errors import DataError, FairfixError, UsageError
from fairfix.noise.description import Noise, NoiseTable, read_noise, tabulate
from fairfix.noise.epsilon import sensitivity_bounds
from fairfix.noise.observed_groups import Recorded
from fairfix.noise.rates import RATIOS, Floats
from fairfix.noise.true_groups import TrueGroups, audit_noisy
from fairfix.schema import json_schema

from tests.conftest import Call
from tests.results import audit_dict, rendered
from tests.test_noise.programs import rates_of

pytestmark = pytest.mark.usefixtures("away")
SAMPLE = Path(__file__).parents[2] / "sample_data"
READING = DataSpec(ColumnRoles(("noisy",), label="label", prediction="yhat"))
METRICS = tuple(RATIOS)


# ---------------------------------------------------------------------- generated data

Frame = dict[str, Any]


def people(rows: int = 4000, seed: int = 0, groups: int = 3) -> Frame:
    """Return true groups, labels and decisions that depend on both."""
    rng = np.random.default_rng(seed)
    true = rng.choice(
        groups, rows, p=np.array([0.6, 0.25, 0.15, 0.1])[:groups] / sum([0.6, 0.25, 0.15, 0.1][:groups])
    )
    label = (rng.random(rows) < np.array([0.5, 0.35, 0.45, 0.4])[true]).astype(np.int64)
    chance = np.array([0.25, 0.15, 0.2, 0.3])[true] + label * np.array([0.5, 0.45, 0.35, 0.3])[true]
    return {"true": true, "label": label, "yhat": (rng.random(rows) < chance).astype(np.int64)}


def blurred(data: Frame, kind: str, gamma: float = 0.2, seed: int = 1) -> Frame:
    """Return the data with noisy groups: uniform noise, or minorities into the majority."""
    rng = np.random.default_rng(seed)
    true, groups = data["true"], int(data["true"].max()) + 1
    noisy = true.copy()
    if kind == "uniform":
        moved = rng.random(true.size) < gamma
        noisy[moved] = (true[moved] + rng.integers(1, groups, moved.sum())) % groups
    else:
        noisy[(rng.random(true.size) < gamma) & (true > 0)] = 0
    return {**data, "noisy": noisy}


def named(data: Frame) -> pa.Table:
    """Return the data as a table with group names."""
    names = np.array(["a", "b", "c", "d"])
    columns = {"noisy": names[data["noisy"]], "label": data["label"], "yhat": data["yhat"]}
    return pa.table({name: pa.array(values.tolist()) for name, values in columns.items()})


def table_of(data: Frame, *, by_label: bool = False) -> str:
    """Return the noise table of a whole population as CSV."""
    lines = ["true,noisy,label,count" if by_label else "true,noisy,count"]
    names = "abcd"
    for j in range(data["true"].max() + 1):
        for k in range(data["noisy"].max() + 1):
            for y in (0, 1) if by_label else (None,):
                here = (data["true"] == j) & (data["noisy"] == k) & (y is None or data["label"] == y)
                lines.append(f"{names[j]},{names[k]}" + ("" if y is None else f",{y}") + f",{here.sum()}")
    return "\n".join(lines) + "\n"


def truth(data: Frame) -> dict[str, Floats]:
    """Return the true rates of true groups, by hand."""
    return rates_of(data["true"], data["label"], data["yhat"])


def noisy_audit(
    data: Frame, noise: Noise, *checks: str, data_spec: DataSpec = READING, seed: int = 0
) -> tuple[dict[str, Any], Any]:
    """Return the noise part of an audit's JSON form, and the report."""
    settings = Settings(checks=tuple(Check.parse(text) for text in checks))
    report = audit_noisy(open_source(named(data)), data_spec, noise, settings, seed=seed)
    result = audit_dict(report)
    schema = json_schema("audit")
    jsonschema.Draft202012Validator(schema).validate(result)
    return result["noise"], report


def written(text: str, name: str = "noise.csv") -> Any:
    """Return the source of a file with this text."""
    Path(name).write_text(text)
    return open_source(name)


def figure(noise: dict[str, Any], name: str, group: str = "") -> dict[str, Any]:
    """Return a figure of a group or of a comparison."""
    where = (
        next(g["figures"] for g in noise["groups"] if g["group"] == group) if group else noise["comparisons"]
    )
    return next(f for f in where if f["name"] == name)


# ---------------------------------------------------------------------- descriptions

COUNTS = "true,noisy,count\na,a,40\na,b,10\nb,a,20\nb,b,30\n"


def test_counts_are_read() -> None:
    """Rows may come in any order, combinations that are not there are 0."""
    table = read_noise(written("noisy,true,count\nb,b,30\na,b,20\na,a,40\nc,a,5\n"))

    assert (table.true, table.noisy, table.form, table.rows) == (("a", "b"), ("a", "b", "c"), "count", 95)
    assert table.entries.tolist() == [[40, 0, 5], [20, 30, 0]]


def test_a_parquet_table_by_label_is_read() -> None:
    """Labels are 0/1, in any type; groups may be numbers."""
    columns = {"true": [1, 1, 2, 2], "noisy": [1, 2, 1, 2], "label": [True, False] * 2, "count": [1, 2, 3, 4]}
    pq.write_table(pa.table(columns), "noise.parquet")
    table = read_noise(open_source("noise.parquet"))

    assert table.by_label
    assert table.true == ("1", "2")
    assert table.entries.tolist() == [[[0, 2], [0, 4]], [[1, 0], [3, 0]]]


@pytest.mark.parametrize(
    ("cells", "form"),
    [
        ((0.4, 0.1, 0.2, 0.3), "joint"),
        ((0.7, 0.25, 0.3, 0.75), "true-given-noisy"),
        ((0.8, 0.2, 0.4, 0.6), "noisy-given-true"),
    ],
)
def test_what_a_probability_is_shows_in_its_sums(cells: tuple[float, ...], form: str) -> None:
    """Joint ones sum to 1 in all, conditional ones per group; rounding is forgiven."""
    rows = zip("aabb", "abab", cells, strict=True)
    text = "true,noisy,probability\n" + "".join(f"{j},{k},{p + 0.0001}\n" for j, k, p in rows)
    table = read_noise(written(text))

    assert table.form == form
    assert table.rows is None
    axis = {"joint": None, "true-given-noisy": 0, "noisy-given-true": 1}[form]
    np.testing.assert_allclose(table.entries.sum(axis), 1, atol=1e-12)


def test_ambiguous_probabilities_have_to_be_named(call: Call) -> None:
    """A table whose rows and columns both sum to 1 can be read in two ways."""
    text = "true,noisy,probability\na,a,0.9\na,b,0.1\nb,a,0.1\nb,b,0.9\n"

    with pytest.raises(UsageError, match=r"`noise=FILE\(keep=true-given-noisy\)` or `noise"):
        read_noise(written(text))
    for form in ("true-given-noisy", "noisy-given-true"):
        assert read_noise(written(text), form).form == form


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("true,noisy\na,a\n", "must have a column 'count' or a column 'probability'"),
        ("true,noisy,count,probability\na,a,1,1\n", "it has both"),
        ("true,recorded,count\na,a,1\n", "no column 'noisy'"),
        ("true,noisy,count\na,a,-4\nb,b,3\n", "column 'count' of noise.csv is -4 in row 1"),
        ("true,noisy,count\na,a,1.5\nb,b,3\n", "1.5 in row 1, which is not a number of rows"),
        ("true,noisy,count\na,a,1e19\nb,b,3\n", "sums to 1e+19 rows, more than any survey has"),
        ("true,noisy,count\na,a,\nb,b,3\n", "is missing in row 1"),
        ("true,noisy,count\na,a,x\nb,b,3\n", "must contain numbers"),
        ("true,noisy,count\na,a,1\na,a,3\nb,b,1\n", "more than one row with true = 'a', noisy = 'a'"),
        ("true,noisy,count\n,a,1\nb,b,3\n", "column 'true' of noise.csv is empty in row 1"),
        ("true,noisy,label,count\na,a,2,1\nb,b,0,3\n", "column 'label' of noise.csv has the value '2'"),
        ("true,noisy,count\na,a,1\na,b,3\n", "only the true group 'a'"),
        ("true,noisy,count\na,a,0\nb,b,0\n", "only zeros"),
        ("true,noisy,count\n", "has no rows"),
        ("true,noisy,probability\na,a,0.7\na,b,0.25\nb,a,0.2\nb,b,0.75\n", "with noisy = 'a' sum to 0.9"),
        ("true,noisy,probability\na,a,0.7\nb,b,-0.3\n", "is -0.3 in row 2"),
        ("true,noisy,count\n" + "".join(f"p{i},a,1\n" for i in range(1001)), "1,001 true groups, such"),
    ],
)
def test_tables_that_make_no_sense_are_refused(text: str, said: str) -> None:
    """Each refusal names column, value and remedy."""
    with pytest.raises(FairfixError, match=re.escape(said)):
        read_noise(written(text))


def test_a_survey_is_tabulated() -> None:
    """A row per person, both groups named; the number of true and noisy groups may differ."""
    columns = {"own": ["x", "x", "y", "y", "y"], "seen": ["p", "q", "r", "r", "p"], "out": [1, 0, 1, 1, 0]}
    source = open_source(pa.table(columns))
    table = tabulate(source, "own", "seen")

    assert (table.true, table.noisy, table.rows) == (("x", "y"), ("p", "q", "r"), 5)
    assert table.entries.tolist() == [[1, 1, 0], [1, 0, 2]]
    assert tabulate(source, "own", "seen", "out").entries.tolist() == [
        [[0, 1, 0], [1, 0, 0]],
        [[1, 0, 0], [0, 0, 2]],
    ]
    with pytest.raises(FairfixError, match="no column 'sen'; did you mean 'seen'"):
        tabulate(source, "own", "sen")
    with pytest.raises(UsageError, match="names a column twice"):
        tabulate(source, "own", "own")
    more = {"sex": ["f", "m", "f", "f", "m"], "written": ["f", "f", "f", "m", "m"]}
    cells = tabulate(open_source(pa.table({**columns, **more})), "own*sex", "seen x written", "out")
    assert cells.true == ("x & f", "x & m", "y & f", "y & m")
    assert cells.noisy == ("p & f", "p & m", "q & f", "r & f", "r & m")
    assert cells.entries[1].tolist() == [[1, 0, 0, 0, 0], [0] * 5, [0, 0, 0, 1, 1], [0] * 5]
    known = tabulate(open_source(pa.table({**columns, **more})), "own x sex", "seen x sex")
    assert known.noisy == ("p & f", "p & m", "q & m", "r & f")
    assert known.entries.tolist() == [[1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 2], [0, 1, 0, 0]]
    for given in (("own x sex", "sex x own"), ("own x own", "seen"), ("own x out", "seen", "out")):
        with pytest.raises(UsageError, match="names a column twice"):
            tabulate(open_source(pa.table({**columns, **more})), *given)
    named = open_source(pa.table({**columns, "own x sex": ["u", "v", "u", "v", "u"]}))
    assert tabulate(named, "own x sex", "seen").true == ("u", "v")
    with pytest.raises(FairfixError, match="no column 'six'; did you mean 'sex'"):
        tabulate(open_source(pa.table({**columns, **more})), "own x six", "seen")
    gaps = open_source(pa.table({"own": ["x", None, "y"], "seen": ["p", "q", "p"]}))
    with pytest.raises(DataError, match=r"column 'own' of .* has 1 missing"):
        tabulate(gaps, "own", "seen")


def test_groups_of_table_and_data_have_to_be_the_same() -> None:
    """Missing and unknown noisy groups are named; one that counts nothing is not missed."""
    table = read_noise(written("true,noisy,count\na,a,4\nb,b,3\nb,zz,0\n"))

    assert table.for_groups(("a", "b"), "race").noisy == ("a", "b")
    assert table.for_groups(("b", "a"), "race").entries.tolist() == [[0, 4], [3, 0]]
    with pytest.raises(DataError, match=r"lacks the group 'c' of column 'race'.*add rows with noisy = 'c'"):
        table.for_groups(("a", "b", "c"), "race")
    with pytest.raises(
        DataError, match=r"noisy group 'b', which column 'race' does not have.*did you mean 'bb'"
    ):
        read_noise(written("true,noisy,count\na,a,4\nb,b,3\na,bb,1\n")).for_groups(("a", "bb"), "race")


def test_radii_are_read() -> None:
    """GROUP=NUMBER, also for names with a sign in them; nothing outside [0, 1], nothing twice."""
    assert NoiseSpec.parse(["radius:a=0.1, b=c=0.25"]).radii == {"a": 0.1, "b=c": 0.25}
    assert NoiseSpec.parse(["radius:a=0.1", 'radius:"b,c=0.25"']).radii == {"a": 0.1, "b,c": 0.25}
    assert NoiseSpec.parse([{"radius": {"a": 0.1, "b,c": 0.25}}]).radii == {"a": 0.1, "b,c": 0.25}
    for bad in ("a", "a=x", "a=1.5", "=0.1", "a=-0.1", "a=nan"):
        with pytest.raises(UsageError, match="GROUP=NUMBER"):
            NoiseSpec.parse([f"radius:{bad}"])
    with pytest.raises(UsageError, match="given twice"):
        NoiseSpec.parse(["radius:a=0.1,a=0.2"])


def test_files_are_read_with_what_is_said_of_them() -> None:
    """In brackets, each key once; brackets without a key are of the name."""
    spec = NoiseSpec.parse(['p (1).csv(true="race, own",recorded=seen,label=y)'])
    assert (spec.file, spec.columns) == ("p (1).csv", {"true": "race, own", "recorded": "seen", "label": "y"})
    assert NoiseSpec.parse(["t (1).csv"]).file == "t (1).csv"
    assert NoiseSpec.parse(["t.csv(keep=true-given-noisy)"]).keep == "true-given-noisy"
    assert with_file("t.csv(keep=x)", lambda file: f"/in/{file}") == "/in/t.csv(keep=x)"
    assert with_file("radius:a=0.1", lambda file: f"/in/{file}") == "radius:a=0.1"
    for text, said in (
        ("t.csv(kept=x)", "did you mean 'keep'"),
        ("t.csv(keep=x)", "keep must be one of true-given-noisy"),
        ("t.csv(recorded=x)", "name the column of the true group"),
        ("t.csv(true=x,true=y)", "'true' is given twice"),
        ("t.csv(true=)", "name the column of the true group"),
        ("radii:a=0.1", "did you mean `noise=radius:a=0.1`"),
    ):
        with pytest.raises(UsageError, match=re.escape(said)):
            NoiseSpec.parse([text])
    for two in (["a.csv", "b.csv"], ["a.csv", "membership:p,q"], ["radius:a=0.1", "membership:p,q"]):
        with pytest.raises(UsageError, match="give one"):
            NoiseSpec.parse(two)


@pytest.mark.parametrize("kind", ["t.csv", "radius:a=0.1,b=0.1", "membership:p,q"])
@pytest.mark.parametrize("assume", ["", "none", "eps=0.1", "class-conditional", "independent", "radii"])
def test_an_assumption_needs_what_it_is_about(kind: str, assume: str) -> None:
    """A table allows all but independence, radii no more than radii; an error proposes what is accepted."""
    allowed = {
        "t.csv": ("", "none", "eps=0.1", "class-conditional", "radii"),
        "radius:a=0.1,b=0.1": ("", "none", "radii"),
        "membership:p,q": ("", "none", "independent"),
    }[kind]
    if assume in allowed:
        assert str(NoiseSpec.parse([kind], assume).assume) == assume
        return
    with pytest.raises(UsageError, match=f"`assume={assume}` needs") as error:
        NoiseSpec.parse([kind], assume)
    for proposed in re.findall(r"`assume=([^`]+)`", str(error.value).partition("use ")[2]):
        assert NoiseSpec.parse([kind], proposed).assume.word


@pytest.mark.parametrize("text", ["nothing", "eps", "eps=2", "eps=x", "none=1", "class_conditional"])
def test_assumptions_are_read(text: str) -> None:
    """A word, or eps with a number from 0 to 1."""
    with pytest.raises(UsageError, match=f"`assume={text}`"):
        NoiseSpec.parse(["t.csv"], text)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "is not described"),
        ({"radii": {"a": 0.1}, "assume": "eps=0.1"}, "`assume=eps=0.1` needs a noise table"),
        ({"table": "count", "assume": "eps=2"}, "from 0 to 1"),
    ],
)
def test_statements_that_contradict_one_another_are_refused(settings: dict[str, Any], said: str) -> None:
    """What is said of noise has to fit together."""
    values = np.array([[0.9, 0.1], [0.2, 0.8]])
    if "table" in settings:
        settings = {**settings, "table": NoiseTable("t", ("a", "b"), ("a", "b"), values, settings["table"])}
    with pytest.raises(UsageError, match=re.escape(said)):
        Noise(**settings)
    with pytest.raises(UsageError, match="can only stay the same"):
        NoiseTable("t", ("a", "b"), ("a", "b"), values, "noisy-given-true", "true-given-noisy")


# ---------------------------------------------------------------------- by hand

CELLS = np.array([[30.0, 10, 10, 50], [20, 20, 20, 40]]) / 200
"""TP, FN, FP, TN of noisy groups a and b."""


def rows_of(cells: np.ndarray[Any, Any], rows: int = 200) -> Frame:
    """Return rows with these masses."""
    many = np.round(cells * rows).astype(int)
    noisy = np.repeat(np.arange(len(cells)), many.sum(1))
    label = np.concatenate([np.repeat([1, 1, 0, 0], m) for m in many])
    yhat = np.concatenate([np.repeat([1, 0, 1, 0], m) for m in many])
    return {"true": noisy, "noisy": noisy, "label": label, "yhat": yhat}


def test_figures_against_hand_computation() -> None:
    """A table of two groups, 100 rows each; of those recorded as a 80 are a, of those recorded as b 90 are b.

    Selection rate of a: 40 of 100 are selected in a and 40 in b. From a, 80 of 100 are taken: at least 20 selected, at
    most 40; from b 10 rows: none or 10. So 20/90 and 50/90.
    """
    table = read_noise(written("true,noisy,count\na,a,80\na,b,10\nb,a,20\nb,b,90\n"))
    noise, _ = noisy_audit(rows_of(CELLS), Noise(table))
    found = figure(noise, "selection_rate", "a")

    assert found["recorded"] == pytest.approx(0.4)
    assert found["bounds"]["N1"]["low"] == pytest.approx(20 / 90)
    assert found["bounds"]["N1"]["high"] == pytest.approx(50 / 90)
    assert found["weighted"] == pytest.approx((0.8 * 40 + 0.1 * 40) / 90)
    # radius of a: 1 - 80 / max(90, 100); TV ball on rate 0.4
    sizes = {"radius": pytest.approx(0.2), "if_shares_were_equal": pytest.approx(1 / 9)}
    assert noise["radii"][0] == {"group": "a", "near": "a", **sizes}
    assert found["bounds"]["N0"]["low"] == pytest.approx(0.2)
    assert found["bounds"]["N0"]["high"] == pytest.approx(0.6)
    assert found["naive"] == [pytest.approx(0.4 - 1 / 9), pytest.approx(0.4 + 1 / 9)]
    # b: from a 20 rows, 0 to 20 selected; from b 90, 30 to 40 selected: 30/110 and 60/110
    gap = figure(noise, "selection_rate.difference")
    assert gap["bounds"]["N1"]["high"] == pytest.approx(max(50 / 90 - 30 / 110, 60 / 110 - 20 / 90))
    assert gap["bounds"]["N1"]["low"] == 0
    assert gap["weighted"] == pytest.approx(abs(36 / 90 - 44 / 110))
    ratio = figure(noise, "selection_rate.ratio")["bounds"]["N1"]
    assert ratio["low"] == pytest.approx(min((20 / 90) / (60 / 110), (30 / 110) / (50 / 90)))
    assert ratio["high"] == 1
    assert noise["rests_on"] == "N1"
    assert noise["table"]["shift"] == pytest.approx(0)
    assert noise["table"]["transport_difference"] == 0
    assert set(noise["unavailable"]) == {"N2", "N3", "N4"}


def test_identified_values_against_hand_computation() -> None:
    """Noise that depends on the group alone: m = T' M solved by hand, with the influence function's standard error."""
    T = np.array([[0.9, 0.1], [0.2, 0.8]])
    true = np.array([[30.0, 10, 20, 40], [10, 30, 10, 50]]) / 200
    cells = T.T @ true
    table = read_noise(written("true,noisy,probability\na,a,0.9\na,b,0.1\nb,a,0.2\nb,b,0.8\n"))
    noise, _ = noisy_audit(rows_of(cells, 2000), Noise(table, assume="class-conditional"))
    found = figure(noise, "true_positive_rate", "a")

    assert noise["rests_on"] == "N4"
    assert noise["table"]["kept"] == "noisy-given-true"
    assert noise["table"]["shift"] is None
    assert found["identified"] == pytest.approx(0.75)
    A = np.linalg.inv(T.T)[0]
    se = np.sqrt((A**2 * (cells[:, 0] * 0.25**2 + cells[:, 1] * 0.75**2)).sum() / 2000) / 0.2
    assert found["standard_error"] == pytest.approx(se)
    assert found["bounds"]["N4"]["low"] == pytest.approx(0.75)
    assert figure(noise, "true_positive_rate.difference")["identified"] == pytest.approx(0.5)
    assert noise["smallest_eps"] == 0
    curve = found["curve"]
    assert curve[0]["low"] < 0.75 < curve[0]["high"]
    assert all(a["low"] >= b["low"] - 1e-9 for a, b in pairwise(curve))
    assert any("taken as known" in note for note in noise["notes"])


def test_a_table_by_label_gives_narrower_bounds() -> None:
    """N2 lies inside N1 for every figure and is narrower for the true positive rate; N1 of both tables is the same."""
    data = blurred(people(), "majority")
    plain, _ = noisy_audit(data, Noise(read_noise(written(table_of(data)))))
    both, _ = noisy_audit(data, Noise(read_noise(written(table_of(data, by_label=True)))))

    assert both["rests_on"] == "N2"
    for metric in METRICS:
        for group in "abc":
            n1, n2 = (figure(both, metric, group)["bounds"][level] for level in ("N1", "N2"))
            assert n1["low"] - 1e-12 <= n2["low"] <= n2["high"] <= n1["high"] + 1e-12
            old = figure(plain, metric, group)["bounds"]["N1"]
            assert n1["low"] == pytest.approx(old["low"])
            assert n1["high"] == pytest.approx(old["high"])
    one, two = (figure(both, "true_positive_rate", "b")["bounds"][level] for level in ("N1", "N2"))
    assert two["high"] - two["low"] < 0.9 * (one["high"] - one["low"])


def test_different_numbers_of_groups() -> None:
    """Two true groups, recorded as four, and the other way: bounds hold; what does not exist is said."""
    data = people(groups=2)
    rng = np.random.default_rng(3)
    many = {**data, "noisy": np.where(rng.random(4000) < 0.8, data["true"] * 2, rng.integers(0, 4, 4000))}
    noise, _ = noisy_audit(many, Noise(read_noise(written(table_of(many))), assume="class-conditional"))
    right = truth(many)
    for metric, rates in right.items():
        for group, rate in zip("ab", rates, strict=True):
            found = figure(noise, metric, group)
            assert found["bounds"]["N1"]["low"] <= rate <= found["bounds"]["N1"]["high"]
            assert abs(found["identified"] - rate) < 0.1
            assert found["bounds"]["N0"]["low"] <= rate <= found["bounds"]["N0"]["high"]
    assert [one["near"] for one in noise["radii"]] == ["a", "c"]
    assert any("more recorded than true groups" in note for note in noise["notes"])

    few = people(groups=3)
    few["noisy"] = np.minimum(few["true"], 1)
    table = read_noise(written(table_of(few)))
    noise, _ = noisy_audit(few, Noise(table))
    assert len(noise["groups"]) == 3
    assert [one["near"] for one in noise["radii"]] == ["a", "b", "b"]
    for metric, rates in truth(few).items():
        for group, rate in zip("abc", rates, strict=True):
            near = figure(noise, metric, group)["bounds"]["N0"]
            assert near["low"] - 1e-9 <= rate <= near["high"] + 1e-9
    with pytest.raises(DataError, match=r"rank 2 for 3 true groups.*leave the option out"):
        noisy_audit(few, Noise(table, assume="class-conditional"))


def test_a_survey_of_few_people_widens_what_is_told_under_every_assumption() -> None:
    """Rows without error, and a table from four hundred people, ten thousand or everybody; T errs as a share does."""
    T = np.array([[0.9, 0.1], [0.2, 0.8]])
    cells = T.T @ np.array([[0.2, 0.1, 0.1, 0.2], [0.05, 0.1, 0.05, 0.2]])
    joint = np.array([[0.3, 0.25], [0.3, 0.15]])[:, :, None] * T  # by label

    rate = {"true_positive_rate": RATIOS["true_positive_rate"]}

    def widths(rows: int) -> dict[str, float]:
        form = "count" if rows else "joint"
        table = NoiseTable("survey", ("a", "b"), ("a", "b"), joint * (rows or 1), form)
        out = {}
        for said in ("class-conditional", "eps=0.1"):
            data = Recorded("noisy", ("a", "b"), cells, 1e8, rate)
            found = TrueGroups(
                data, Noise(replace(table, keep="noisy-given-true"), assume=said), replicates=150
            )
            for level, bounds in found.bounds.items():
                one = next(bounds.of_groups("true_positive_rate"))
                out[level] = one.outer_high - one.outer_low
        return out

    few, many, known = widths(400), widths(10_000), widths(0)
    assert list(few) == ["N0", "N1", "N2", "N4", "N3"]
    for level, width in known.items():
        assert few[level] > many[level] + 0.02 > width + 0.02
    assert known["N4"] < 1e-3
    assert few["N4"] / many["N4"] == pytest.approx(5, rel=0.25)


# ---------------------------------------------------------------------- transports


def test_shifted_tables_are_carried_over_in_both_ways() -> None:
    """Other shares of true groups, the same P(noisy | true): with that the truth is inside; unsaid, both count."""
    data = blurred(people(20_000), "uniform", 0.2)
    other = blurred(people(20_000, seed=9), "uniform", 0.2, seed=4)
    keep = np.random.default_rng(0).random(20_000) < np.array([0.2, 0.6, 1.0])[other["true"]]
    table = read_noise(written(table_of({name: part[keep] for name, part in other.items()})))
    either, _ = noisy_audit(data, Noise(table))
    noise, _ = noisy_audit(data, Noise(replace(table, keep="true-given-noisy")))
    swapped, _ = noisy_audit(data, Noise(replace(table, keep="noisy-given-true")))

    assert either["table"]["kept"] == "either"
    assert noise["table"]["kept"] == "true-given-noisy"
    assert swapped["table"]["kept"] == "noisy-given-true"
    assert noise["table"]["shift"] > 0.1
    assert noise["table"]["transport_difference"] > 0.01
    right = truth(data)["selection_rate"]
    for j, group in enumerate("abc"):
        first, second = (figure(n, "selection_rate", group) for n in (noise, swapped))
        assert first["other_transport"] == pytest.approx(
            [second["bounds"]["N1"][end] for end in ("low", "high")]
        )
        both = figure(either, "selection_rate", group)["bounds"]["N1"]
        assert both["low"] == pytest.approx(min(f["bounds"]["N1"]["low"] for f in (first, second)))
        assert both["high"] == pytest.approx(max(f["bounds"]["N1"]["high"] for f in (first, second)))
        for end, far in (("outer_low", min), ("outer_high", max)):  # in each draw, whichever is worse
            assert far(both[end], *(f["bounds"]["N1"][end] for f in (first, second))) == both[end]
        assert second["bounds"]["N1"]["low"] - 0.02 <= right[j] <= second["bounds"]["N1"]["high"] + 0.02
    assert figure(swapped, "selection_rate", "c")["weighted"] != pytest.approx(
        figure(noise, "selection_rate", "c")["weighted"], abs=0.005
    )


def test_n4_is_about_the_noise_of_the_data_by_what_is_kept() -> None:
    """A survey of other shares of recorded groups has another P(noisy | true), and one of true groups the same."""
    T = np.array([[0.9, 0.1], [0.2, 0.8]])
    true = np.array([[30.0, 10, 20, 40], [10, 30, 10, 50]]) / 200
    data = rows_of(T.T @ true, 2000)
    for keep, shares in (("true-given-noisy", np.array([0.3, 2.0])), ("noisy-given-true", [[0.3], [2.0]])):
        joint = true.sum(1)[:, None] * T * shares
        table = NoiseTable("survey", ("a", "b"), ("a", "b"), joint / joint.sum(), "joint")
        for said in ("true-given-noisy", "noisy-given-true"):
            noise, _ = noisy_audit(data, Noise(replace(table, keep=said), assume="class-conditional"))
            found = [figure(noise, "true_positive_rate", group).get("identified") for group in "ab"]
            assert (found == pytest.approx([0.75, 0.25], abs=1e-6)) is (said == keep)


def test_a_noisy_group_without_a_true_one_is_an_error() -> None:
    """By label, a group may be missing for one label only."""
    text = "true,noisy,label,count\na,a,0,5\na,a,1,5\nb,b,0,5\nb,a,1,5\n"
    with pytest.raises(
        DataError, match="gives no true group for rows recorded as 'b' with one of the labels"
    ):
        noisy_audit(rows_of(CELLS), Noise(read_noise(written(text))))


# ---------------------------------------------------------------------- checks

MILD = "true,noisy,count\na,a,990\na,b,10\nb,a,10\nb,b,990\n"


def verdicts(table: str, *checks: str, **said: Any) -> list[tuple[str, str]]:
    """Return verdict and reason of checks on a hundred times the rows of ``CELLS``."""
    noise = Noise(read_noise(written(table)), **said)
    _, report = noisy_audit(rows_of(CELLS, 20_000), noise, *checks)
    return [(result.verdict, result.reason) for result in report.checks]


def test_checks_have_three_verdicts() -> None:
    """Pass only if the whole worst case with sampling error is within, fail only if all of it is beyond."""
    found = verdicts(
        MILD,
        "eo.difference.true_groups<=0.5",
        "tpr.difference.true_groups<=0.1",
        "tpr.difference.true_groups<=0.24",
        "tpr.min.true_groups>=0.3",
        "accuracy.max.true_groups>=0.5",
        "dp.ratio.true_groups>=0.8",
    )

    assert [verdict for verdict, _ in found] == ["pass", "fail", "undecided", "pass", "pass", "pass"]
    assert "assumes N1; worst case" in found[0][1]
    assert "too few rows" not in found[2][1]


def test_a_check_can_ask_for_a_weaker_assumption() -> None:
    """Under N4 the gap is near its estimate, under N1 anything is possible; each says what it rests on."""
    rough = "true,noisy,count\na,a,800\na,b,200\nb,a,200\nb,b,800\n"
    found = verdicts(
        rough, "tpr.difference.true_groups<=0.6", "tpr.difference.under_n1<=0.6", assume="class-conditional"
    )

    assert [verdict for verdict, _ in found] == ["pass", "undecided"]
    assert "assumes N4; estimate 0.4167" in found[0][1]
    assert "assumes N1; worst case 0.0000 to 1.0000" in found[1][1]


def noisy_check(source: pa.Table, noise: Noise, check: str) -> None:
    """Parse and judge a check."""
    audit_noisy(open_source(source), READING, noise, Settings(checks=(Check.parse(check),)))


def test_a_check_can_ask_for_one_true_group() -> None:
    """Under what was stated or one assumption; its value is the figure of the group."""
    source = named(rows_of(CELLS))
    noise = Noise(read_noise(written(COUNTS)))
    checks = [
        "dp.true_groups[noisy=a]>0.99",
        "true_positive_rate.under_n0[noisy=b]>=0.5",
        "dp.under_n4[noisy=a]<0.5",
    ]
    settings = Settings(checks=tuple(Check.parse(text) for text in checks))
    report = audit_noisy(open_source(source), READING, noise, settings)
    told = audit_dict(report)["noise"]
    one, two, three = report.checks

    bound = figure(told, "selection_rate", "a")["bounds"]["N1"]
    assert (one.id, one.groups) == ("selection_rate.true_groups[noisy=a]", ("a",))
    assert (one.low, one.high) == (bound["outer_low"], bound["outer_high"])
    assert bound["low"] <= one.value <= bound["high"]
    assert "assumes N1; worst case" in one.reason
    assert two.low == figure(told, "true_positive_rate", "b")["bounds"]["N0"]["outer_low"]
    assert (three.verdict, "`assume=class-conditional`" in three.reason) == ("undecided", True)
    for text, said in (
        ("dp.true_groups[noisy=z]>0.1", "no true group 'z'; it has a, b"),
        ("dp.true_groups>0.1", "unknown part|difference, ratio, min or max"),
        ("eo.true_groups[noisy=a]<=0.1|ks.true_groups[noisy=a]<=0.1", "for one true group, use"),
    ):
        for part in text.split("|"):
            with pytest.raises(UsageError, match=said):
                noisy_check(source, noise, part)
    plain = Settings(checks=(Check.parse("dp.true_groups[noisy=a]<=0.1"),))
    with pytest.raises(UsageError, match=r"noise=SPEC"):
        audit(source, READING, plain)


def test_an_assumption_that_was_not_stated_is_undecided() -> None:
    """It cannot pass, and the reason tells how to state it."""
    ((verdict, reason),) = verdicts(MILD, "dp.difference.under_n4<=0.6")

    assert verdict == "undecided"
    assert "`assume=class-conditional`" in reason


def test_breakdown_points_agree_with_bisection() -> None:
    """The eps from which a limit can be broken is where the largest gap of single bounds meets it."""
    noise, _ = noisy_audit(
        rows_of(CELLS, 20_000),
        Noise(read_noise(written(MILD))),
        "tpr.difference.true_groups<=0.26",
        "tpr.difference<=0.24",
        "tpr.difference.true_groups<=0.2",
        "accuracy.min.true_groups>=0.1",
    )
    kept, plain, broken, loose = noise["breakdown"]
    joint = np.array(noise["table"]["joint"])

    def gap(eps: float) -> float:
        low, high = sensitivity_bounds(CELLS, joint, RATIOS, eps)["true_positive_rate"]
        return max(high[0] - low[1], high[1] - low[0])

    assert gap(kept["holds_up_to"]) <= 0.26 + 1e-6
    assert gap(kept["holds_up_to"] + 2e-4) > 0.26
    assert kept["fails_up_to"] is None
    assert broken["holds_up_to"] is None
    assert broken["fails_up_to"] > 0
    assert plain["check"] == "tpr.difference<=0.24"
    assert loose["holds_up_to"] == 1
    certain = figure(noise, "true_positive_rate.difference")["certain_up_to"]
    assert certain >= broken["fails_up_to"]


@pytest.mark.slow
@pytest.mark.parametrize("by_label", [False, True])
@pytest.mark.parametrize("kind", ["difference", "ratio", "min", "max"])
def test_breakdown_points_of_every_kind_are_those_of_all_ends_at_every_eps(kind: str, by_label: bool) -> None:
    """Looking only at the ends on which an answer hangs finds what bisection over all of them does."""
    rng = np.random.default_rng([7, len(kind), by_label])
    inner = 0
    for _ in range(3):
        q = rng.dirichlet(np.full(36, 2.0)).reshape(3, 3, 4) * (np.eye(3) * 8 + 1)[:, :, None]
        q /= q.sum()
        values = np.stack([q[..., 2:].sum(-1), q[..., :2].sum(-1)]) if by_label else q.sum(-1)
        names = ("a", "b", "c")
        data = Recorded("x", names, q.sum(0), 1e4, dict(RATIOS))
        noise = Noise(NoiseTable("t", names, names, values, "joint"))
        curve = TrueGroups(data, noise, replicates=0).evidence.curve
        assert curve is not None
        metrics = (
            ("true_positive_rate", "false_positive_rate")
            if kind in ("difference", "ratio")
            else ("accuracy",)
        )
        top = kind in ("difference", "max")
        ends = np.array([curve.compared(kind, metrics, eps) for eps in (curve.least, 0.1, 1.0)])
        for limit in (ends[1, 0], ends[1, 1], ends[:2, 0].mean(), ends[1:, 1].mean()):

            def kept(low: float, high: float, limit: float = float(limit), top: bool = top) -> bool:
                return high <= limit + 1e-9 if top else low >= limit - 1e-9

            def broken(low: float, high: float, limit: float = float(limit), top: bool = top) -> bool:
                return low > limit - 1e-9 if top else high < limit + 1e-9

            for holds in (kept, broken):
                found = curve.largest(holds, kind, metrics, 1e-3)
                if math.isnan(found):
                    assert not holds(*curve.compared(kind, metrics, curve.least))
                    continue
                inner += curve.least < found < 1
                assert holds(*curve.compared(kind, metrics, found))
                assert found == 1 or not holds(*curve.compared(kind, metrics, min(found + 1e-3, 1.0)))
    assert inner >= 6


def test_an_assumption_that_the_data_refute_is_not_used() -> None:
    """An eps below what the data allow: no numbers, the least eps in words, and no pass."""
    sharp = np.array([[60.0, 0, 0, 40], [0, 50, 50, 0]]) / 200
    table = read_noise(written("true,noisy,count\na,a,60\na,b,40\nb,a,40\nb,b,60\n"))
    noise, report = noisy_audit(
        rows_of(sharp), Noise(table, assume="eps=0.01"), "dp.difference.true_groups<=0.99"
    )

    assert noise["smallest_eps"] > 0.01
    assert "refute" in noise["unavailable"]["N3"]
    assert f"{noise['smallest_eps']:.4f}" in noise["unavailable"]["N3"]
    assert report.checks[0].verdict == "undecided"
    assert "refute" in report.checks[0].reason
    assert figure(noise, "selection_rate", "a")["curve"][0] == {"eps": 0.01, "low": None, "high": None}


def test_an_eps_that_is_stated_lies_between_table_and_inversion() -> None:
    """N3 is inside N1 and around N4; its draws are few and seeded."""
    data = blurred(people(2000), "uniform", 0.1)
    noise, report = noisy_audit(
        data, Noise(read_noise(written(table_of(data))), assume="eps=0.05"), "dp.difference.true_groups<=0.9"
    )

    assert noise["rests_on"] == "N3"
    for metric in METRICS:
        found = figure(noise, metric, "b")["bounds"]
        low, high = found["N3"]["low"], found["N3"]["high"]
        assert found["N1"]["low"] - 1e-7 <= low < high <= found["N1"]["high"] + 1e-7
        assert found["N3"]["outer_low"] <= found["N3"]["low"]
    assert report.checks[0].verdict == "pass"
    assert "assumes N3" in report.checks[0].reason


def test_many_groups_have_no_curve() -> None:
    """Its linear programs would be large; the bounds are there, and a note says what is not."""
    names = tuple("abcdefgh")
    rng = np.random.default_rng(0)
    cells = rng.dirichlet(np.ones(32)).reshape(8, 4)
    table = NoiseTable("t", names, names, 5 + 100 * np.eye(8), "count")
    told, _ = TrueGroups(
        Recorded("x", names, cells, 1000.0, dict(RATIOS)), Noise(table), replicates=20
    ).report()

    figures = (*(f for group in told.groups for f in group.figures), *told.comparisons)
    assert all(not f.curve and f.certain_up_to is None for f in figures)
    assert "N1" in figures[0].bounds
    assert any("curve" in note for note in told.notes)


def test_radii_alone() -> None:
    """N0 without a table: the ball around each recorded group; radii for all of them, of groups that exist."""
    noise, _ = noisy_audit(rows_of(CELLS), Noise(radii={"a": 0.1, "b": 0.0}))
    found = figure(noise, "true_positive_rate", "a")["bounds"]

    assert noise["rests_on"] == "N0"
    assert set(found) == {"N0"}
    assert found["N0"]["low"] == pytest.approx((0.3 - 0.1) / 0.4)
    assert found["N0"]["high"] == pytest.approx(1.0)
    assert figure(noise, "true_positive_rate", "b")["bounds"]["N0"]["low"] == pytest.approx(0.5)
    with pytest.raises(UsageError, match="lacks the group 'b' of column 'noisy'"):
        noisy_audit(rows_of(CELLS), Noise(radii={"a": 0.1}))
    with pytest.raises(UsageError, match=r"has no group 'aa'.*did you mean 'a'"):
        noisy_audit(rows_of(CELLS), Noise(radii={"aa": 0.1, "a": 0.1, "b": 0.1}))


def test_vacuous_bounds_are_said_in_words() -> None:
    """A small group may lie in the other label wholly: the report says that no rule is free of it."""
    data = blurred(people(), "uniform", 0.5)
    noise, report = noisy_audit(data, Noise(read_noise(written(table_of(data)))))
    assert "gives no bound on the TPR of c, whatever" in rendered("markdown", audit_dict(report))
    told = {(item["metric"], item["group"]) for item in noise["vacuous"]}

    assert ("true_positive_rate", "c") in told
    assert figure(noise, "true_positive_rate", "c")["bounds"]["N1"]["low"] == 0


def test_groups_without_a_denominator_are_undefined() -> None:
    """No positives at all in one noisy group that is recorded without error: null, with a reason, and no pass."""
    cells = np.array([[30.0, 10, 10, 50], [0, 0, 40, 60]]) / 200
    noise, report = noisy_audit(
        rows_of(cells),
        Noise(read_noise(written("true,noisy,count\na,a,9\nb,b,9\n"))),
        "tpr.difference.true_groups<=0.9",
    )

    assert figure(noise, "true_positive_rate", "b")["bounds"]["N1"]["low"] is None
    assert report.checks[0].verdict == "undecided"


def test_without_labels_there_is_the_selection_rate() -> None:
    """What needs no label is told; a table by label is refused."""
    data = rows_of(CELLS)
    data_spec = DataSpec(ColumnRoles(("noisy",), prediction="yhat"))
    noise, _ = noisy_audit(data, Noise(read_noise(written(COUNTS))), data_spec=data_spec)

    assert {f["name"] for f in noise["groups"][0]["figures"]} == {"selection_rate"}
    labelled = "true,noisy,label,count\n" + "".join(
        f"{j},{k},{y},5\n" for j in "ab" for k in "ab" for y in (0, 1)
    )
    with pytest.raises(UsageError, match="is by label, and the data have no label"):
        noisy_audit(data, Noise(read_noise(written(labelled))), data_spec=data_spec)


def test_weights_count() -> None:
    """Weights make other masses, and fewer effective rows."""
    data = rows_of(CELLS)
    table = named(data).append_column("w", pa.array(np.where(data["yhat"] == 1, 3.0, 1.0)))
    data_spec = DataSpec(ColumnRoles(("noisy",), label="label", prediction="yhat", weight="w"))
    report = audit_noisy(open_source(table), data_spec, Noise(radii={"a": 0.0, "b": 0.0}))
    assert report.noise is not None
    group = next(one for one in report.noise.groups if one.group == "a")
    found = next(one for one in group.figures if one.name == "selection_rate")

    assert found.recorded == pytest.approx(120 / 180)
    assert found.bounds["N0"].low == pytest.approx(120 / 180)


# ---------------------------------------------------------------------- command line


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """A copy of the sample data."""
    shutil.copytree(SAMPLE, tmp_path / "sample_data")
    return tmp_path / "sample_data"


RECORDED = shlex.split(
    "audit sample_data/loans.parquet --protected race_recorded --noise sample_data/race_noise.csv"
)


@pytest.mark.slow
def test_same_seed_same_bytes(call: Call, sample: Path) -> None:
    """The resampling is seeded; another seed gives other outer ends and the same bounds."""
    first, again, other = (call(*RECORDED, "--format", "json", "-q", "--seed", s)[1] for s in ("3", "3", "4"))

    assert first == again
    assert first != other
    one, two = (
        figure(json.loads(t)["noise"], "selection_rate.difference")["bounds"]["N1"] for t in (first, other)
    )
    assert one["low"] == two["low"]
    assert one["high"] == two["high"]
    assert one["outer_high"] != two["outer_high"]


def test_all_formats_tell_of_true_groups(call: Call, sample: Path) -> None:
    """Text, Markdown and HTML show point, weighted and worst case side by side, and the breakdown point."""
    checks = "--check dp.difference.true_groups<=0.1 --check dp.difference<=0.3 --undecided pass"
    outs = "--out markdown=a.md --out html=a.html --out json=a.json --out junit=a.xml --out sarif=a.sarif"
    status, text, err = call(*RECORDED, *checks.split(), *outs.split())

    assert status == 0
    assert (
        "dp.difference<=0.3' is about the recorded groups; of the true ones: selection_rate.difference.true"
        in err
    )
    for told in (text, Path("a.md").read_text(), Path("a.html").read_text()):
        plain = re.sub(r"</?a\b[^>]*>", "", told.replace("\\", ""))  # words of HTML link to what they mean
        assert "True groups behind race_recorded" in plain
        for part in (
            "recorded",
            "weighted",
            "worst case N1",
            "Breakdown" if "<" in plain[:1] else "eps 0.05",
        ):
            assert part in plain
        assert "checks assume N1: the table in race_noise.csv" in plain
    result = json.loads(Path("a.json").read_text())
    assert rendered("text", result).count("True groups behind race_recorded") == 1
    assert {b["check"] for b in result["noise"]["breakdown"]} == {
        "dp.difference.true_groups<=0.1",
        "dp.difference<=0.3",
    }
    assert (
        "under the strongest noise assumption"
        in result["definitions"]["selection_rate.difference.true_groups"]
    )


def test_an_auxiliary_file_by_the_command_line(call: Call) -> None:
    """A survey in Parquet with both groups and the label."""
    data = blurred(people(), "uniform")
    pq.write_table(named(data), "data.parquet")
    survey = {"own": np.array(list("abc"))[data["true"]], "seen": np.array(list("abc"))[data["noisy"]]}
    pq.write_table(pa.table({**survey, "y": data["label"]}), "aux.parquet")
    Path("noise.csv").write_text(table_of(data, by_label=True))
    plain = shlex.split("audit data.parquet --protected noisy --prediction yhat --format json -q")
    status, out, err = call(*plain, "--noise", "aux.parquet(true=own,recorded=seen,label=y)")
    _, by_table, _ = call(*plain, "--noise", "noise.csv")

    assert status == 0, err
    one, two = (json.loads(text)["noise"] for text in (out, by_table))
    assert (one.pop("source"), two.pop("source")) == ("aux.parquet", "noise.csv")
    assert one.pop("assumptions") != two.pop("assumptions")
    assert one == two


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--assume", "eps=0.1"], "--assume needs --noise:"),
        (["--noise", "no.csv"], "no.csv does not exist"),
        (["--noise", "noise.csv(true=own)"], "no column 'own'"),
        (["--noise", "noise.csv(keep=joint)"], "keep must be one of"),
        (["--noise", "noise.csv", "--assume", "eps=0.1", "--assume", "none"], "give it once"),
        (["--noise", "noise.csv", "--suppress-below", "9"], "leave out --suppress-below"),
        (["--noise", "noise.csv", "--protected", "other"], "noise is described for one column"),
        (["--noise", "radius:a:0.1"], "GROUP=NUMBER"),
        (["--noise", "radius:a=0.1"], "lacks the group 'b'"),
        (["--check", "dp.difference.true_groups<=0.1"], "describe the noise with --noise SPEC"),
        (["--check", "ks.difference.true_groups<=0.1"], "for true groups, use"),
        (["--noise", "noise.csv", "--task", "regression"], "--task regression is about values"),
    ],
)
def test_refusals_of_the_command_line(options: list[str], said: str, call: Call) -> None:
    """Every one is a status of 2 with one line that says what to do."""
    data = named(rows_of(CELLS)).append_column("other", pa.array(["p", "q"] * 100))
    pq.write_table(data, "data.parquet")
    Path("noise.csv").write_text(COUNTS)
    status, _, err = call("audit", "data.parquet", "--protected", "noisy", "--prediction", "yhat", *options)

    assert status == 2, err
    assert said in err


def test_a_model_that_looks_at_the_recorded_group(call: Call) -> None:
    """Noise comes into its decisions, so statements on noise given the true group are refused; bounds are not."""
    import hashlib

    import joblib
    import pandas as pd
    from sklearn.linear_model import LogisticRegression

    data = blurred(people(1000), "uniform")
    frame = pd.DataFrame(
        {"noisy": data["noisy"], "x": data["label"] + np.linspace(0, 1, 1000), "label": data["label"]}
    )
    joblib.dump(LogisticRegression().fit(frame[["noisy", "x"]], frame["label"]), "model.joblib")
    frame.to_parquet("data.parquet")
    digest = hashlib.sha256(Path("model.joblib").read_bytes()).hexdigest()
    Path("noise.csv").write_text(
        table_of(data).translate(str.maketrans("abc", "012")).replace("20unt", "count")
    )
    Path("noise.csv").write_text("true,noisy,count\n" + Path("noise.csv").read_text().partition("\n")[2])
    plain = shlex.split("audit data.parquet --protected noisy --model model.joblib --noise noise.csv")
    trust = ["--trust-model", f"sha256:{digest}"]

    status, _, err = call(*plain, *trust, "--assume", "class-conditional")
    assert (status, "the model uses noisy" in err) == (2, True), err
    assert call(*plain, *trust)[0] == 0
