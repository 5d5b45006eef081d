"""The library does what the command line does: one parameter for every option, and the same result to the byte."""

from __future__ import annotations

import importlib
import inspect
import json
from datetime import date
from pathlib import Path
from typing import Any

import click
import fairfix
import pandas as pd
import pyarrow as pa
import pytest
from fairfix.auditing.countfile import CountFile
from fairfix.cli import run
from fairfix.data.domain import parameters_of
from fairfix.errors import FairfixError, UsageError
from fairfix.report.words import SETTINGS, as_options
from fairfix.tasks.request import (
    EXCLUDES,
    REQUIRES,
    AuditRequest,
    CompareRequest,
    CountRequest,
    PredictRequest,
    RepairRequest,
    Request,
)

from tests.conftest import Call, Frames

pytestmark = pytest.mark.usefixtures("away")

COMMANDS: dict[str, type[Request]] = {
    "audit": AuditRequest,
    "repair": RepairRequest,
    "compare": CompareRequest,
    "predict": PredictRequest,
}
SAYING = {"log", "format_", "out", "detail", "output", "undecided", "quiet", "verbose"}
"""Options of output, of the exit status, and of what is told meanwhile."""
CONFIGURED = {"config", "dry_run"}
"""Options of the configuration; it has waivers, and the environment the day by which they are judged."""


def options(command: str) -> dict[str, click.Parameter]:
    """Return the options of a command by the name of their parameter."""
    one = importlib.import_module(f"fairfix.cli.{command}").command
    params = one.get_params(click.Context(one))
    hidden = SAYING | CONFIGURED
    return {param.name: param for param in params if param.expose_value and param.name not in hidden}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_a_parameter_and_every_parameter_an_option(command: str) -> None:
    """By name and by default, those of every repair method included."""
    own = options(command)
    if command == "predict":
        own.pop("cluster")  # its workers write the files of a folder, which the library is not given
    parameters = inspect.signature(getattr(fairfix, command)).parameters
    settings = SETTINGS if own.pop("set_", None) else set()
    assert set(parameters) - {"waivers", "today", "output", "record", "metrics"} == {*own, *settings}
    for name, domain in parameters_of(COMMANDS[command]).items():
        if domain.positional:
            continue
        shown = own[name].get_default(click.Context(click.Command(command)))
        if domain.many:
            shown = domain.value_of(name, shown or ())
        assert (shown or None) == (domain.default or None), name


def test_every_parameter_is_explained() -> None:
    """The docstring of a function has the help of every parameter, in its own names."""
    for command in COMMANDS:
        told = inspect.getdoc(getattr(fairfix, command))
        assert told
        for name in inspect.signature(getattr(fairfix, command)).parameters:
            assert f"\n{name}\n" in told or name in ("waivers", "today", "output", "record", "metrics")


@pytest.fixture
def rows(frames: Frames) -> pd.DataFrame:
    """Rows with every kind of column, beside ``d.parquet``, a noise table and an earlier file."""
    frame = frames(600).assign(person=[f"p{i}" for i in range(600)])
    frame["guessed"] = frame.race.where(frame.x < 1, "r0")
    frame["in_r0"] = (frame.race == "r0") * 0.8 + 0.1
    frame["elsewhere"] = 1 - frame.in_r0
    frame.to_parquet("d.parquet")
    frame.assign(score=frame.score.round(1)).to_parquet("old.parquet")
    frame.groupby(["race", "guessed"]).size().rename("count").rename_axis(
        ["true", "noisy"]
    ).reset_index().to_csv("noise.csv", index=False)
    return frame


RUNS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "plain": ("audit", "--protected race", {"protected": "race"}),
    "strata, a reference, checks": (
        "audit",
        (
            "--protected race,member --intersect --strata town --reference race=r0 --check dp.difference<=0.1 "
            "--check ks[race]<=0.05 --threshold 1 --confidence 0.9 --gate-on point --weight weight"
        ),
        {
            "protected": ["race", "member"],
            "intersect": True,
            "strata": "town",
            "reference": {"race": "r0"},
            "check": ["dp.difference<=0.1", "ks[race]<=0.05"],
            "threshold": 1,
            "confidence": 0.9,
            "gate_on": "point",
            "weight": "weight",
        },
    ),
    "individual": (
        "audit",
        "--protected member --similar flips --features x,town",
        {"protected": ("member",), "similar": "flips", "features": ["x", "town"]},
    ),
    "noise": (
        "audit",
        "--protected guessed --noise noise.csv(keep=true-given-noisy) --noise radius:r0=0.3,r1=0.2,r2=0.2 --seed 3",
        {
            "protected": "guessed",
            "noise": [
                {"file": Path("noise.csv"), "keep": "true-given-noisy"},
                {"radius": {"r0": 0.3, "r1": 0.2, "r2": 0.2}},
            ],
            "seed": 3,
        },
    ),
    "membership": (
        "audit",
        "--noise membership:r0=in_r0,other=elsewhere --assume independent",
        {"noise": {"membership": {"r0": "in_r0", "other": "elsewhere"}}, "assume": "independent"},
    ),
    "an earlier model": (
        "audit",
        "--protected race --baseline old.parquet --id person --check change<=0.02 --suppress-below 0",
        {"protected": "race", "baseline": "old.parquet", "id": "person", "check": "change<=0.02"},
    ),
    "A profile": (
        "audit",
        "--protected race --profile ll144(exclude_small=0.02)",
        {"protected": "race", "profile": "ll144(exclude_small=0.02)"},
    ),
    "ramp": (
        "repair",
        (
            "--protected race --method ramp --gamma 0.05,0.2 --slack 0.02 --id person -o r.fairfix --check "
            "dp.difference<=0.1"
        ),
        {
            "protected": "race",
            "method": "ramp",
            "gamma": [0.05, 0.2],
            "slack": 0.02,
            "id": "person",
            "output": "r.fairfix",
            "check": "dp.difference<=0.1",
        },
    ),
    "features": (
        "repair",
        "--protected race --method logloss --features x,town --group used -o r.fairfix",
        {
            "protected": "race",
            "method": "logloss",
            "features": ["x", "town"],
            "group": "used",
            "output": Path("r.fairfix"),
        },
    ),
    "compare": (
        "compare",
        "--protected race --methods ramp,logloss --slacks 0.02,inf --holdout 0.4",
        {"protected": "race", "methods": ["ramp", "logloss"], "slacks": [0.02, float("inf")], "holdout": 0.4},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_the_function_gives_what_the_command_gives(name: str, rows: pd.DataFrame, call: Call) -> None:
    """To the byte of the JSON, with values in the types of Python."""
    command, line, given = RUNS[name]
    status, out, _ = call(command, "d.parquet", *line.split(" "), "--format", "json")
    assert status in (0, 1, 3)
    result = getattr(fairfix, command)("d.parquet", **given)

    assert result.to_json() == out
    assert json.loads(result.to_json()) == json.loads(json.dumps(result.to_dict()))
    assert result.exit_status() == status


def test_waivers_are_those_of_the_configuration(rows: pd.DataFrame, call: Call) -> None:
    """A table of each; the day may be given."""
    tables = '[[waivers]]\ncheck = "dp.difference"\nreason = "known"\nexpires = 2030-01-01\n'
    Path("fairfix.toml").write_text(tables)
    check = "dp.difference<=0.001"
    _, out, _ = call("audit", "d.parquet", "--protected", "race", "--check", check, "--format", "json")
    today = json.loads(out)["waivers"]["today"]
    waiver = {"check": "dp.difference", "reason": "known", "expires": "2030-01-01"}
    day = date.fromisoformat(today)
    result = fairfix.audit("d.parquet", protected="race", check=check, waivers=[waiver], today=day)
    assert result.to_json() == out


def test_a_frame_and_column_names_suffice(rows: pd.DataFrame) -> None:
    """A frame is audited, repaired and decided on as its file is; only the name of the source and the step differ."""
    rows = rows.drop(columns=["guessed", "in_r0", "elsewhere"])
    rows.to_parquet("d.parquet")
    texts = [fairfix.audit(one, protected="race").to_dict() for one in (rows, "d.parquet")]
    assert texts[1].pop("next_step")["command"].startswith("fairfix audit d.parquet")
    texts[1]["data"]["source"] = texts[0]["data"]["source"]
    assert texts[0] == texts[1]
    table = pd.read_csv("noise.csv")
    noisy = fairfix.audit(rows, protected="race", noise=table, assume="class-conditional")
    assert noisy.to_dict()["noise"]["table"]["rows"] == 600

    repair = fairfix.repair(rows, protected="race", method="ramp", id="person", gamma=0.2)
    assert "artifact" not in repair.to_dict()
    assert not Path("repaired.fairfix").exists()
    repair.repaired.save("r.fairfix")
    assert run(["predict", "r.fairfix", "d.parquet", "-o", "p.parquet", "--quiet"]) == 0
    for artifact in (repair, "r.fairfix", fairfix.load("r.fairfix")):
        assert fairfix.predict(artifact, pa.Table.from_pandas(rows)).equals(pd_table("p.parquet"))


def pd_table(path: str) -> Any:
    """Return a Parquet file as an Arrow table."""
    import pyarrow.parquet as pq

    return pq.read_table(path)


def test_counts_add_up_to_the_audit_of_all_rows(rows: pd.DataFrame) -> None:
    """Counted in two pieces, merged and audited: the numbers of one pass over everything."""
    names = ("one.counts", "two.counts")
    for part, name in zip((rows[:1], rows[1:]), names, strict=True):
        fairfix.count(part, protected="race").save(name)  # one row is no data set of its own
    total = fairfix.count(names)
    whole = fairfix.audit(rows, protected="race").to_dict()
    merged = fairfix.audit(total).to_dict()
    assert [group["rows"] for group in merged["attributes"][0]["groups"]] == [
        group["rows"] for group in whole["attributes"][0]["groups"]
    ]
    assert merged["attributes"][0]["comparisons"][0] == whole["attributes"][0]["comparisons"][0]
    for same in (names, list(names), "*.counts", [CountFile.load(name) for name in names]):
        assert fairfix.audit(same).to_dict() == merged
    total.save("all.counts")
    assert fairfix.load("all.counts") is not None
    assert fairfix.audit("all.counts").to_dict() == merged
    with pytest.raises(UsageError, match="`task` is regression"):
        fairfix.audit(total, task="regression")


def test_an_earlier_result_may_be_in_memory(rows: pd.DataFrame) -> None:
    old = fairfix.audit("old.parquet", protected="race")
    Path("old.json").write_text(old.to_json())
    forms = [old, old.to_dict(), "old.json", Path("old.json"), fairfix.load("old.json")]
    results = [
        fairfix.audit(rows, protected="race", baseline=form, check=["change<=0.5"]).to_json()
        for form in forms
    ]
    assert len(set(results)) == 1


VALUES: dict[str, Any] = {
    "assume": "eps=0.1", "guarantee": 0.95, "noise": "noise.csv", "private": "0.5", "profile": "ll144",
    "similar": "flips", "suppress_below": 5, "threshold": 0.5, "top": "5",
}  # fmt: skip
"""Parameter that not every text is read for -> a value of it."""


def value_of(command: str, name: str) -> Any:
    """Return a value of a parameter that is not its default."""
    domain = parameters_of({**COMMANDS, "count": CountRequest}[command])[name]
    return True if domain.kind is bool else VALUES.get(name, domain.choices[-1] if domain.choices else "x")


OF_REPAIR = ("unlabelled", "holdout", "validation", "guarantee", "exclude")


@pytest.mark.parametrize(("name", "others"), [(name, others) for name, others, _ in (*REQUIRES, *EXCLUDES)])
def test_what_does_not_go_together_is_said(name: str, others: tuple[str, ...], call: Call) -> None:
    """Every row of the tables is an error that names both, before any data is read, in words of the caller."""
    excluded = (name, others) in [(one, them) for one, them, _ in EXCLUDES]
    for other in others:
        command = (
            "repair" if {name, other} & {*OF_REPAIR} else "count" if "private" in (name, other) else "audit"
        )
        parts = [one.partition("=") for one in ((name, other) if excluded else (name,))]
        given = {one: value or value_of(command, one) for one, _, value in parts}
        with pytest.raises(UsageError) as told:
            getattr(fairfix, command)(**given)
        assert f"`{name}`" in str(told.value)
        assert "--" not in str(told.value)
        flags = [
            ["d.parquet"]
            if one == "data"
            else [as_options(f"`{one}`"), *([] if value is True else texts(value))]
            for one, value in given.items()
        ]
        if "data" not in given:
            flags.append(["d.parquet"])
        if command == "count":
            flags.append(["-o", "y.counts"])
        err = call.refused(command, *(part for flag in flags for part in flag))
        assert as_options(str(told.value)) in err


def texts(value: Any) -> list[str]:
    """Return a value as the command line has it."""
    return [",".join(value) if isinstance(value, list) else str(value)]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"protected": "race", "missing": "keep"}, "`missing=keep`: 'keep' is none of error, drop"),
        ({"protected": "race", "missing": "group"}, "write COLUMN=group"),
        ({"protected": "race", "missing": "label=group"}, "'label' is not a group column; these are race"),
        ({"protected": "race", "missing": {"nobody": "drop"}}, "'nobody' is not a column with a role"),
        ({"protected": "race", "confidence": 0.1}, "`confidence` must be at least 0.5, got 0.1"),
        ({"protected": "race", "threshold": "half"}, "`threshold` must be a finite number, got 'half'"),
        ({}, "`protected=COLUMN`"),
    ],
)
def test_a_parameter_that_cannot_be_is_named(given: dict[str, Any], words: str, rows: pd.DataFrame) -> None:
    with pytest.raises(FairfixError) as told:
        fairfix.audit(rows, **given)
    assert words in str(told.value)


def test_a_parameter_that_there_is_not_is_a_type_error(rows: pd.DataFrame) -> None:
    """As of any function; a method's own parameter is refused by another method."""
    with pytest.raises(TypeError, match=r"fairfix\.\w+\(\) .*protectd"):
        fairfix.audit(rows, protectd="race")
    with pytest.raises(UsageError, match="`gamma` is not an option of sensei"):
        fairfix.repair(rows, protected="race", method="sensei", gamma=0.1)


PEERS: list[tuple[str, dict[str, str]]] = [
    ("audit", {"y_true": "label", "y_pred": "prediction", "sensitive_features": "protected"}),
    ("audit", {"protected_attribute_names": "protected", "favorable_label": "label=COLUMN=VALUE"}),
    ("audit", {"sample_weight": "weight", "control_features": "strata", "ref_groups_dict": "reference"}),
    ("repair", {"sensitive_features": "protected", "difference_bound": "slack", "y_proba": "score"}),
    ("repair", {"ratio_bound": "constraint=dp.ratio>=NUMBER"}),
    ("compare", {"X": "data", "sensitive_features": "protected", "random_state": "seed"}),
]


@pytest.mark.parametrize(("function", "names"), PEERS)
def test_keywords_of_other_libraries_are_answered_with_ours(
    function: str, names: dict[str, str], rows: pd.DataFrame
) -> None:
    """Each of them in one message, and what is answered is a parameter of the function."""
    task = getattr(fairfix, function)
    with pytest.raises(TypeError) as refused:
        task(**dict.fromkeys(names, rows.race))

    for theirs, own in names.items():
        assert f"{theirs!r} is `{own}` here" in str(refused.value)
        assert own.partition("=")[0] in inspect.signature(task).parameters
    with pytest.raises(UsageError, match="`reference`: give the name"):
        fairfix.audit(rows, protected="race", reference=rows.race)
    assert fairfix.audit(rows, protected=rows[["race", "town"]].columns).to_dict()["data"]["columns"][
        "protected"
    ]
