"""Answers to words of other tools: each is a whole line that the command line takes."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import numpy as np
import pandas as pd
import pytest
from fairfix.cli import cli, run
from fairfix.cli.proposals import instead_of, replaced_in
from fairfix.errors import UsageError
from fairfix.methods import available
from fairfix.report import FORMATS, OTHER_ENDINGS, endings
from fairfix.tasks.synonyms import COMMANDS, METHODS, PARAMETERS, ours

from tests.conftest import Call

CONTEXT = click.Context(cli)


def options_of(name: str) -> set[str]:
    command = cli.get_command(CONTEXT, name)
    assert command is not None
    return {word for one in command.get_params(click.Context(command)) for word in one.opts}


OURS = set().union(*(options_of(name) for name in cli.list_commands(CONTEXT)))
WORDS = [
    (other.replace("_", "-").lower(), own.replace("_", "-"))
    for other, own in ours(PARAMETERS).items()
    if own != "data" and "=" not in own and f"--{own.replace('_', '-')}" in options_of("repair")
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(5)
    group, score = rng.choice(["a", "b"], 400), rng.random(400).round(3)
    word = np.where(rng.random(400) < score, "good", "bad")
    scores = {"score": score, "points": (300 + 550 * score).round(), "mark": 100 * score}
    pd.DataFrame({"race": group, "class": word, **scores}).to_csv(tmp_path / "x.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("other", "own"), dict.fromkeys(WORDS))
def test_a_word_of_others_is_answered_with_the_option(other: str, own: str) -> None:
    line = ["repair", "x.csv", "--method", "ramp"] if own != "method" else ["repair", "x.csv"]
    if f"--{other}" in options_of("repair"):
        assert instead_of([*line, f"--{other}", "1"], cli) == []
    else:
        (answer,) = instead_of([*line, f"--{other}", "V"], cli)
        assert shlex.split(answer)[1:] == [*line, f"--{own}", "V"]


def test_the_tables_have_no_word_twice() -> None:
    for table in (COMMANDS, PARAMETERS, METHODS):
        words = " ".join(table.values()).split()
        assert len(words) == len(set(words))
    assert not {*ours(COMMANDS)} & {*cli.list_commands(CONTEXT)}
    assert {*COMMANDS} <= {*cli.list_commands(CONTEXT)}
    assert {*METHODS} <= {*available()}
    names = {own.partition("=")[0].replace("_", "-") for own in PARAMETERS} - {"data"}
    assert {f"--{name}" for name in names} <= OURS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("check x.csv --protected race --label class=good", "audit x.csv --protected race --label class=good"),
        ("x.csv --protected race --label class=good", "audit x.csv --protected race --label class=good"),
        ("--protected race audit x.csv --label class=good", "audit x.csv --protected race --label class=good"),
        ("audit x.csv race --label class=good", "audit x.csv --label class=good --protected race"),
        ("audit x.csv --sensitive=race --label class --pos-label good",
         "audit x.csv --protected race --label class=good"),
        ("audit x.csv --group race --y-true class=good --y-pred score",
         "audit x.csv --protected race --label class=good --score score"),
        ("repair x.csv --method ramp --protected race --label class=good --min-ratio 0.8",
         "repair x.csv --method ramp --protected race --label class=good --constraint 'dp.ratio>=0.8'"),
        ("audit x.csv --protected race --label class=good --metrics tpr,fpr",
         "audit x.csv --protected race --label class=good"),
        ("fix x.csv --protected race --label class=good",
         "repair x.csv --protected race --label class=good --method ramp"),
        ("audit --html x.csv --protected race --label class=good",
         "audit x.csv --out html=report.html --protected race --label class=good"),
        ("audit x.csv --sensitive race --target class=good --html",
         "audit x.csv --protected race --label class=good --out html=report.html"),
        ("audit x.csv --protected race --label class=good --metric dp",
         "audit x.csv --protected race --label class=good"),
        ("audit --individual x.csv --protected race --score score --features class",
         "audit x.csv --similar flips --protected race --score score --features class"),
        ("repair x.csv --method sensei --protected race --label class=good --radius 1 --solver regularizer",
         ("repair x.csv --method sensei --protected race --label class=good --similar 'near(radius=1)' "
          "--solver regularizer")),
        ("audit x.csv --protected race --label class=good --score points --threshold 600",
         "audit x.csv --protected race --label class=good --score points --threshold 600 --score-scale raw"),
        ("repair x.csv --method ramp --protected race --label class=good --score mark --threshold 40",
         ("repair x.csv --protected race --label class=good --score mark --threshold 40 --method ramp "
          "--score-scale percent")),
        ("repair x.csv --method ramp --protected race --label class=good -o report.html",
         "repair x.csv --method ramp --protected race --label class=good --out html=report.html"),
    ],
)  # fmt: skip
def test_a_guess_is_answered_with_a_line_that_runs(typed: str, meant: str, folder: Path, call: Call) -> None:
    arguments = shlex.split(typed)
    assert f"  fairfix {meant}\n" in call.refused(*arguments)

    assert run(shlex.split(meant)) in (0, 1, 3)


ENDINGS = {**{endings(name)[0]: name for name in FORMATS}, **OTHER_ENDINGS}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("option", ["-o", "--output", "--report"])
def test_a_report_goes_to_a_file_by_its_ending(ending: str, option: str) -> None:
    (answer,) = instead_of(["audit", "x.csv", option, f"r{ending}"], cli)
    assert shlex.split(answer)[1:] == ["audit", "x.csv", "--out", f"{ENDINGS[ending]}=r{ending}"]


@pytest.mark.parametrize(
    ("typed", "same"),
    [
        ("help", "--help"),
        ("help audit", "audit --help"),
        ("help check", "audit --help"),
        ("help audit --help-all", "audit --help-all"),
        ("help repair --method ramp", "repair --method ramp --help"),
        ("help disparate impact", "explain disparate impact"),
        ("version", "--version"),
        ("-V", "--version"),
    ],
)
def test_help_and_version_are_commands(typed: str, same: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(shlex.split(typed)) == 0
    printed = capsys.readouterr()
    assert run(shlex.split(same)) == 0
    assert printed == capsys.readouterr()


TERMS_OF_OTHERS = [
    *("bias", "disparity", "fairness", "confidence interval", "p-value", "demographic_parity_difference"),
    *("equalized_odds_ratio", "ThresholdOptimizer", "sensitive_features", "control_features"),
    *("statistical_parity_difference", "disparate_impact", "average_odds_difference", "Reweighing"),
    *("privileged group", "fpr disparity", "pprev", "false omission rate", "predictive parity"),
    *("--sensitive", "--target", "audit", "mitigation"),
]
"""Words of Fairlearn, AIF360 and Aequitas, and first guesses."""


@pytest.mark.parametrize("word", TERMS_OF_OTHERS)
def test_a_word_of_other_tools_is_explained(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", *word.split()]) == 0
    assert capsys.readouterr().out


@pytest.mark.parametrize("option", ["--table", "--sheet"])
def test_a_table_is_named_behind_the_data(option: str) -> None:
    """Of a database or a workbook; a blank in its name is quoted, and data that names one gets no second."""
    (answer,) = instead_of(["audit", "x.xlsx", option, "my loans", "--protected", "race"], cli)
    assert shlex.split(answer)[1:] == ["audit", "x.xlsx#my loans", "--protected", "race"]
    assert instead_of(["audit", "x.xlsx#one", option, "two"], cli) == []


def test_a_model_among_the_data_is_an_option() -> None:
    for words in (["model.pkl", "x.csv"], ["x.csv", "model.pkl"]):
        (answer,) = instead_of(["audit", *words, "--protected", "race"], cli)
        assert shlex.split(answer)[1:] == ["audit", "x.csv", "--protected", "race", "--model", "model.pkl"]


@pytest.mark.parametrize(
    "typed",
    [
        "audit x.csv --colour red", "frobnicate", "audit x.csv --pos-label good", "audit", "",
        "audit postgresql://me:secret@host/base --sensitive race", "audit x.csv 'a\nb' --sensitive race",
    ],
)  # fmt: skip
def test_nothing_is_proposed_where_nothing_is_known_or_a_secret_would_show(typed: str) -> None:
    assert instead_of(shlex.split(typed), cli) == []


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("--check 'dp<=0.9'", "--check 'dp.difference<=0.9'"),
        ("--check 'dp>=0.1'", "--check 'dp.ratio>=0.1'"),
        ("--check 'tpr[race]<=0.9'", "--check 'tpr.difference[race]<=0.9'"),
        ("--check 'demographic_parity_difference<=0.9'", "--check 'demographic_parity.difference<=0.9'"),
        ("--check 'dp_ratio>=0.1'", "--check 'dp.ratio>=0.1'"),
    ],
)
def test_a_check_without_a_kind_is_answered_with_the_line(
    typed: str, meant: str, folder: Path, call: Call
) -> None:
    line = "audit x.csv --protected race --label class=good "
    assert f"  fairfix {line}{meant}\n" in call.refused(*shlex.split(line + typed))

    assert run(shlex.split(line + meant)) in (0, 1, 3)


@pytest.mark.parametrize(
    "typed",
    ["", "--method threshold-optimizer", "--method ExponentiatedGradient", "--method rampp",
     "--method ramp --constraint DemographicParity"],
)  # fmt: skip
def test_a_repair_is_answered_with_a_method_that_runs(
    typed: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(shlex.split(f"repair x.csv --protected race --label class=good {typed}")) == 2
    lines = [one for one in capsys.readouterr().err.splitlines() if one.startswith("  fairfix ")]
    assert lines

    for line in lines:
        assert run(shlex.split(line)[1:]) in (0, 1, 3)


@pytest.mark.parametrize(
    "typed",
    [
        "explore x.csv --protected race --label class=good --score points -o q.html",
        "explore x.csv --protected race --label class=good --score points --threshold 600 -o q.html",
        "audit x.csv --protected race --label class=good --score mark --out html=q.html -q",
        "audit x.csv --protected race --label class=good --score week --threshold 3 --out html=q.html",
        "compare x.csv --protected race --label class=good --score mark --methods ramp --slacks 0 --out html=q.html",
        "repair x.csv --protected race --label class=good --score points --method ramp -o q.html.fairfix",
        "audit d0.csv d1.csv --protected race --label class=good --score score --out html=q.html",
        "explore d0.csv d1.csv --protected race --label class=good --score score -o q.html",
        "audit x.csv --slices race,class --label points --score mark --task regression --out html=q.html",
        "audit x.csv --protected race --label points --score mark --out html=q.html",
        "audit x.csv --protected race --label points --score score --out html=q.html",
        "repair x.csv --protected race --label points --score mark --method fair-regression -o q.html.fairfix",
    ],
)
def test_a_proposed_line_runs_and_keeps_where_its_output_goes(
    typed: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = pd.read_csv("x.csv").assign(week=lambda one: one["mark"] // 15)
    for name in ("x.csv", "d0.csv", "d1.csv"):
        rows.to_csv(name, index=False)
    for line in (typed, f"{typed} --config none"):
        assert run(shlex.split(line)) == 2
        lines = [one for one in capsys.readouterr().err.splitlines() if one.startswith("  fairfix ")]
        assert lines
        assert all(("--config none" in one) == (line != typed) and "q.html" in one for one in lines)
    for one in lines:
        assert run(shlex.split(one)[1:]) in (0, 1, 3)
        assert next(folder.glob("q.html*")).stat().st_size
        next(folder.glob("q.html*")).unlink()


@pytest.mark.parametrize(
    ("typed", "right"),
    [
        ("compare x.csv --protected race --cost fp=1,fn=9", ["--quality", "cost(fp=1,fn=9)"]),
        ("audit x.csv --protected race --limit 'dp.difference<=0.1'", ["--check", "dp.difference<=0.1"]),
        ("audit x.csv --protected race --limit 0.1", []),
    ],
)
def test_an_option_is_renamed_where_it_can_be_read_then(typed: str, right: list[str], folder: Path) -> None:
    lines = instead_of(shlex.split(typed), cli)
    assert [shlex.split(one)[-2:] for one in lines] == ([right] if right else [])


@pytest.mark.parametrize("typed", ["x.csv y.csv", "x.csv x.csv", "x.csv sub/x.csv", "a0.csv a1.csv"])
def test_files_that_no_pattern_names_are_no_protected_columns(typed: str, folder: Path) -> None:
    (folder / "sub").mkdir()
    for name in ("y.csv", "z.csv", "sub/x.csv"):
        (folder / name).write_bytes(Path("x.csv").read_bytes())
    assert instead_of(shlex.split(f"audit {typed} --protected race"), cli) == []


def test_a_pickle_is_converted_by_the_line_that_is_proposed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "sub").mkdir()
    pd.read_csv("x.csv").to_pickle("sub/x y.pkl")
    assert run(["audit", "sub/x y.pkl", "--protected", "race", "--label", "class=good"]) == 2
    (line,) = (one for one in capsys.readouterr().err.splitlines() if one.startswith("  python "))
    words = shlex.split(line)
    at = words.index("&&")

    assert words[3:at] == ["sub/x y.pkl"]
    assert words[at:] == [
        "&&", "fairfix", "audit", "sub/x y.pkl.parquet", "--protected", "race", "--label", "class=good",
    ]  # fmt: skip


def test_a_label_of_amounts_makes_no_line_for_what_knows_no_regression(folder: Path, call: Call) -> None:
    for line in ("repair x.csv --method ramp -o q.fairfix", "explore x.csv -o q.html"):
        status, _, err = call(
            *shlex.split(line), "--protected", "race", "--label", "points", "--score", "mark"
        )
        assert status == 2
        assert "points>=NUMBER" in err
        assert "--task" not in err
        assert "\n  fairfix " not in err


def test_an_error_replaces_whole_words() -> None:
    error = UsageError("x").proposing(("dp", "demographic_parity"), ("", "score_scale=raw"))
    assert replaced_in(["repair", "dp.csv", "--constraint", "dp", "--id", "adp"], error) == [
        "fairfix repair dp.csv --constraint demographic_parity --id adp",
        "fairfix repair dp.csv --constraint dp --id adp --score-scale raw",
    ]
