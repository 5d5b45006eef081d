"""What fairfix explains is what it computes, and every check it shows can be used."""

from __future__ import annotations

import ast
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import fairfix
import pytest
from fairfix.auditing.audit import audit
from fairfix.auditing.checks import Check, Code
from fairfix.auditing.comparisons import KINDS, MEANINGS, Comparison
from fairfix.auditing.metrics import ALIASES, METRICS, SCOPES, Metric
from fairfix.auditing.results import Settings
from fairfix.cli import run
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.errors import CODES, ConvergenceWarning, ExitStatus, FairfixError, FairfixWarning, UsageError
from fairfix.methods import available
from fairfix.models.trace import Caution, Note
from fairfix.report.words import SETTINGS, as_options
from fairfix.tasks.explain import OTHERS, check_meant, example, explain, names, overview
from fairfix.tasks.glossary import GLOSSARY, STATUSES, keys_of
from fairfix.tasks.synonyms import TERMS

from tests.conftest import Frames

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", names())
def test_every_name_is_explained(name: str) -> None:
    """Metrics, aliases, kinds and scopes have a definition and a check that can be read."""
    found = explain(name)
    words = dict(found.lines)

    assert words.get("is") or words.get("means") or name == "exit_status"
    for word, text in found.lines:
        assert text
        if word == "check":
            Check.parse(text)


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_a_metric_is_explained_from_its_entry(metric: Metric) -> None:
    """Formula, needs, reason and aliases are those that reports and checks use."""
    words = dict(explain(metric.name).lines)

    assert words["is"] == metric.formula
    assert words["needs"]
    assert words.get("undefined", "").startswith(metric.undefined)
    assert ("interval" in words) == ("individual" not in metric.needs)
    for alias in metric.aliases:
        assert alias in words["also called"]
        assert explain(alias) == explain(metric.name)


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_comparisons_are_those_of_a_report(task: str, frames: Frames) -> None:
    """Every comparison of an audit is named, and the audit has every one that is named of its metrics."""
    frame = frames(600)
    columns = ColumnRoles(("race",), label="label", score="score", strata=("town",))
    data_spec = DataSpec(columns, task=task)
    report = audit(frame, data_spec, Settings(reference={"race": "r0"}))
    found = set(report.block("race").by_id)
    metrics = {Comparison.parse(identifier).metric for identifier in found}
    named = {f"{metric}.{rest}" for metric in metrics for rest in METRICS[metric].comparisons}

    assert found <= named
    assert {n for n in named - found if not n.startswith("mean_score.ratio")} == set()


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_every_comparison_has_an_example(metric: Metric) -> None:
    """The check of a comparison is a check of that comparison, and its explanation holds it."""
    for rest in metric.comparisons:
        of = Check.parse(example(metric, rest)).comparison

        assert of == Comparison.parse(f"{metric.name}.{rest}")
        assert dict(explain(of.id).lines)["is"] == MEANINGS[rest] == of.meaning
        assert explain(of.id).name == of.id


def test_a_whole_check_is_explained() -> None:
    words = dict(explain("dp.difference[race]<=0.1").lines)
    assert words["looks at"] == "selection_rate.difference.between_groups, race"
    assert words["fails"] == "no part of the interval is <= 0.1"

    words = dict(explain("tpr[race=Black] >= 0.6").lines)
    assert words["looks at"] == "true_positive_rate, the group 'Black' of race"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("disparate_inpact", "did you mean 'disparate_impact'"),
        ("rampp", "did you mean 'ramp'"),
        ("selecton_rate", "did you mean 'selection_rate'"),
        ("to-overal", "did you mean 'to_overall'"),
        ("xyzzy", "'fairfix explain' lists them all"),
        ("dp.differense", "unknown part 'differense'"),
        ("dpp.difference<=0.1", "did you mean 'dp'"),
        ("auc.difference.to_overall", "a report has no difference.to_overall of auc"),
    ],
)
def test_what_is_unknown_is_named(text: str, told: str) -> None:
    with pytest.raises(UsageError) as error:
        explain(text)
    assert told in str(error.value)


def test_spelling_is_forgiven() -> None:
    assert explain("Equalized Odds") == explain("eo") == explain("equalized-odds")


def test_everything_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a name; the same as JSON."""
    assert run(["explain"]) == 0
    out = capsys.readouterr().out
    every = {*METRICS, *MEANINGS, *available(), *STATUSES, *TERMS}.union(*GLOSSARY.values())
    assert all(f"  {name} " in out or f"  {name}\n" in out for name in every)
    assert run(["explain", "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {name for part in told.values() for name in part} == every
    assert [as_options(heading) for heading, _ in overview()] == list(told)


def test_the_command_prints_text_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "tpr"]) == 0
    out = capsys.readouterr().out
    assert "P(decision = 1 | y = 1)" in out
    assert "limits of checks are examples" in out
    assert run(["explain", "tpr", "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["name"] == "true_positive_rate"
    assert told["is"] == "P(decision = 1 | y = 1)"
    assert run(["explain", "nothing-like-it"]) == 2
    assert capsys.readouterr().out == ""
    assert "decision_flips" in explain("under_flips").to_dict()["of"]
    assert {*KINDS, *SCOPES} <= set(names())


def test_no_word_has_two_meanings() -> None:
    """What people come with is no word of the glossary and no name of ours; and it leads to something that is."""
    keys = [key for words in TERMS for key in keys_of(words)]
    ours = {
        *METRICS,
        *ALIASES,
        *KINDS,
        *SCOPES,
        *(k for part in GLOSSARY.values() for w in part for k in keys_of(w)),
    }

    assert len(keys) == len(set(keys))
    assert not ours.intersection(keys)
    for words, (to, remark) in TERMS.items():
        first, *others = words.split(", ")
        lines = dict(explain(first).lines)
        assert lines["for"] == first
        assert lines.get("note", "") == remark
        assert lines.items() >= dict(explain(to).lines).items()
        assert all(explain(other).name == explain(first).name for other in others)


@pytest.mark.parametrize(
    ("text", "name", "word", "told"),
    [
        ("four-fifths", "selection_rate.ratio.between_groups", "is", "smallest divided by largest"),
        ("Disparate Impact", "selection_rate.ratio.between_groups", "of", "selection_rate = P(decision = 1)"),
        ("statistical parity", "selection_rate", "is", "P(decision = 1)"),
        ("equal opportunity", "true_positive_rate", "means", "true positive rates are equal"),
        ("multi-class", "class", "note", "`task=multiclass`"),
        ("slack", "slack", "means", "the largest gap allowed after a repair"),
        ("slack", "slack", "option", "robust: largest allowed distance of a true group's rate"),
        ("N3", "N3", "means", "assumptions about the noise, from weak to strong"),
        ("gate-on", "gate-on", "option", ""),
        ("gamma", "gamma", "option", "ramp: width of the randomized ramp"),
        ("3", "exit status", "3", "at least one is undecided"),
        ("exit 1", "exit status", "1", "a check failed"),
    ],
)
def test_words_that_people_come_with(text: str, name: str, word: str, told: str) -> None:
    of = explain(text)

    assert of.name == name
    assert any(told in line for at, line in of.lines if at == word)


@pytest.mark.parametrize("name", available())
def test_a_method_is_explained(name: str) -> None:
    """By what its class says: summary, needs, criterion, parameters."""
    method, words = available()[name], dict(explain(name).lines)

    assert words["is"] == method.summary
    assert words["slack bounds"].startswith(method.criterion)
    assert ("labels" in words["needs"]) == method().uses_labels
    assert ("noise" in words["needs"]) == ("noise" in method.uses)
    options = [part.strip("`") for part in words["options"].split(", ")]
    settings = [text.strip("`").partition("=")[0] for word, text in explain(name).lines if word == "set"]
    assert sorted(options + settings) == sorted(method.domains())
    assert set(settings) <= SETTINGS


def test_several_words_need_no_quotes(capsys: pytest.CaptureFixture[str]) -> None:
    """As a person types them; parameters are shown as options, also in JSON."""
    assert run(["explain", "four-fifths", "rule"]) == 0
    out = capsys.readouterr().out
    assert run(["explain", "four-fifths rule"]) == 0
    assert capsys.readouterr().out == out
    assert run(["explain", "slack", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["option"][0].startswith("--slack: ")


@pytest.mark.parametrize(("name", "kind"), [("slack", "note"), ("artifact", "error")])
def test_a_word_that_is_a_code_too_is_both(name: str, kind: str) -> None:
    """What it means comes first, then the message that has it as its code."""
    (first, _), (second, told), *_ = explain(name).lines

    assert (first, second, told) == ("means", f"{kind} code", CODES[kind][name])


def test_the_statuses_are_those_of_the_program() -> None:
    assert {str(int(status)) for status in ExitStatus} <= set(STATUSES)


@pytest.mark.slow
def test_every_code_is_explained_and_used() -> None:
    """The catalogue has the codes that classes, rulings, notes and warnings have, and no others."""
    classes = [FairfixError, *subclasses(FairfixError)]
    docs = (ROOT / "docs/messages.md").read_text(encoding="utf-8")

    assert {one.code for one in classes} | {"output", "interrupted", "memory", "bug"} == set(CODES["error"])
    assert set(get_args(Code)) == set(CODES["verdict"])
    assert {code for _, codes in coded() for code in codes} == set(CODES["note"])
    for kind, texts in CODES.items():
        for code, text in texts.items():
            assert (f"{kind} code", text) in explain(code).lines
            assert f"| `{code}` | {kind} | {as_options(text)} |" in docs


@pytest.mark.slow
def test_every_note_and_warning_has_a_code() -> None:
    """Where one is made, its code stands written; a bare text is not warned with, since it would have none."""
    assert [where for where, codes in coded() if not codes] == []
    warned = [(where, call.args) for where, call in calls() if ast.unparse(call.func) == "warnings.warn"]
    assert warned
    assert [where for where, given in warned if len(given) != 1 or isinstance(given[0], ast.JoinedStr)] == []
    for kind in (Note, Caution, FairfixWarning):
        with pytest.raises(TypeError):
            kind("a text without a code")
    told = pickle.loads(pickle.dumps(FairfixWarning("a text", "slack")))
    assert (str(told), told.code, str(ConvergenceWarning("stopped"))) == ("a text", "slack", "stopped")


MAKERS = frozenset(("Note", "Caution", "FairfixWarning", "ConvergenceWarning"))


def coded() -> Iterator[tuple[str, set[str]]]:
    """Yield every place of the source where a note or a warning is made, with the codes that it can have."""
    for where, call in calls():
        if MAKERS & names_in(call.func):
            yield where, codes_of(call)


def calls() -> Iterator[tuple[str, ast.Call]]:
    for path in Path(fairfix.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                yield f"{path.name}:{node.lineno}", node


def names_in(function: ast.expr) -> set[str]:
    """Return what may be called: also ``(Caution if bad else Note)(...)`` is one of ours."""
    if isinstance(function, ast.IfExp):
        return names_in(function.body) | names_in(function.orelse)
    return {ast.unparse(function).rpartition(".")[2]}


def codes_of(call: ast.Call) -> set[str]:
    """Return the codes that a call may give."""
    if names_in(call.func) == {"ConvergenceWarning"}:
        return {"not_converged"}
    code = call.args[1] if len(call.args) == 2 else ast.Constant("")
    if ast.unparse(code) in ("one.code", "note.code"):  # of one that was made elsewhere, and is passed on
        return {"not_converged"}
    ends = (code.body, code.orelse) if isinstance(code, ast.IfExp) else (code,)
    return {str(one.value) for one in ends if isinstance(one, ast.Constant) and one.value}


def subclasses(kind: type) -> Iterator[type]:
    for one in kind.__subclasses__():
        yield from (one, *subclasses(one))


def test_checks_by_words_of_other_tools_are_checks_in_ours() -> None:
    """Of a number that is the same one."""
    for word, (ours, _) in OTHERS.items():
        for sign in ("<=", ">="):
            right = check_meant(f"{word}{sign}0.1")
            assert not right or Check.parse(right).comparison.exists, word
            assert not right or right.endswith("0.1")
            assert not right or right.startswith(ours)
    assert check_meant("disparate_impact>=0.8") == "dp.ratio>=0.8"
    assert check_meant("spd[race]<=0.1", ["race"]) == "dp.difference[race]<=0.1"
    assert not check_meant("spd[Black]<=0.1", ["race"])
    assert not check_meant("fdr<=0.1")  # 1 minus ours
    assert not check_meant("average_odds_difference<=0.1")  # the larger gap, not their mean
    assert not check_meant("accuracy.min>=0.1")
