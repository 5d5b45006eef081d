"""Checks: how they are read, judged and turned into a status."""

from __future__ import annotations

import math
import re
from itertools import product

import pytest
from fairfix.auditing.checks import OPERATORS, Check, exit_status
from fairfix.auditing.comparisons import Comparison
from fairfix.auditing.metrics import METRICS, NOISE_METRICS, RATES, SCOPES, Rate
from fairfix.data.choices import GateOn
from fairfix.errors import ExitStatus, UsageError
from fairfix.schema.common import estimate
from hypothesis import given
from hypothesis import strategies as st

GOOD = {
    "dp.difference<=0.1": ("selection_rate.difference.between_groups", None, None, "<=", 0.1),
    " demographic_parity.ratio > .8 ": ("selection_rate.ratio.between_groups", None, None, ">", 0.8),
    "eo.difference.to_overall<1e-2": ("equalized_odds.difference.to_overall", None, None, "<", 0.01),
    "eop.difference.within_strata[race]<=0": (
        "true_positive_rate.difference.within_strata",
        "race",
        None,
        "<=",
        0.0,
    ),
    "ks<=0.05": ("ks.between_groups", None, None, "<=", 0.05),
    "ks.to_overall[race*sex]<=0.05": ("ks.to_overall", "race x sex", None, "<=", 0.05),
    "accuracy.min[race x sex]>=0.7": ("accuracy.min", "race x sex", None, ">=", 0.7),
    "tpr[race=Black or other]>=0.6": ("true_positive_rate", "race", "Black or other", ">=", 0.6),
}


@pytest.mark.parametrize("text", GOOD)
def test_checks_are_read(text: str) -> None:
    """Metric (with aliases), kind, scope, attribute, group, operator, limit."""
    check = Check.parse(text)
    of = check.comparison

    assert (of.id, of.attribute, of.group, check.operator, check.limit) == GOOD[text]
    assert Comparison.parse(of.id, of.attribute, of.group) == of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "cannot read"),
        ("dp", "cannot read"),
        ("dp.difference", "cannot read"),
        ("dp.difference<=x", "not a number"),
        ("dp.difference<=nan", "not a number"),
        ("dp<=0.1", "selection_rate.difference"),
        ("dp.gap<=0.1", "unknown part 'gap'"),
        ("dp.difference.sideways<=0.1", "unknown part 'sideways'"),
        ("selection_rat.difference<=0", "did you mean 'selection_rate'"),
        ("ks.ratio<=0.1", "ks is a difference"),
        ("tpr.min[race=a]>=0.5", "drop '.min'"),
        ("ks[race=a]<=0.5", "ks compares groups, so it has no value for one group"),
        ("eo[race=a]<=0.5", "equalized_odds compares groups"),
        ("slices.accuracy.min>=0.4", "`slices=all`"),
        ("log_loss.max<=60%", "'60%' is a percentage"),
        ("zzzzzz<=0.5", "unknown metric 'zzzzzz'. The metrics are"),
    ],
)
def test_what_is_no_check_is_refused(text: str, words: str) -> None:
    """The message says what is wrong and how to write it."""
    with pytest.raises(UsageError, match=words.replace(".", r"\.")):
        Check.parse(text)


@pytest.mark.parametrize("metric", [name for name, one in METRICS.items() if not {*one.scopes} & {*SCOPES}])
def test_what_compares_no_groups_has_scopes_of_its_own(metric: str) -> None:
    """The first by default, also under an alias; another scope is refused with these, and larger is worse."""
    scopes = METRICS[metric].scopes
    for name, scope in product((metric, *METRICS[metric].aliases), scopes):
        assert Check.parse(f"{name}.{scope}[age]<=0.1").comparison.id == f"{metric}.{scope}"
        assert Check.parse(f"{name}[age]<=0.1").comparison.id == f"{metric}.{scopes[0]}"
    for text, words in ((f"{metric}.to_overall<=0.1", scopes[0]), (f"{metric}>=0.1", "larger")):
        with pytest.raises(UsageError, match=words):
            Check.parse(text)


def of_right_decisions(rate: Rate) -> float:
    """Return a rate where as many labels are 0 as 1, and every decision is the label."""
    right = {(0, 0), (1, 1)}
    return len(right & {*rate.success}) / len(right & {*rate.success, *rate.failure})


SMALLER_IS_BETTER = {
    *(name for name, rate in RATES.items() if of_right_decisions(rate) == 0),
    *("square_loss", "absolute_loss", "log_loss", "calibration_error"),
}
LARGER_IS_BETTER = {
    *(name for name, rate in RATES.items() if of_right_decisions(rate) == 1),
    *("balanced_accuracy", "f1", "mcc", "auc"),
}
"""What is better for a group; of all other metrics nobody can say."""


def fitting_signs(metric: str, part: str) -> str:
    """Return how the operator of a condition may begin that does not demand what is worse."""
    if part.startswith("ratio"):
        return ">"
    if part not in ("min", "max", "one group"):
        return "<"
    return ">" * (metric not in SMALLER_IS_BETTER) + "<" * (metric not in LARGER_IS_BETTER)


@pytest.mark.parametrize("metric", METRICS)
def test_a_check_that_demands_what_is_worse_is_refused_with_the_right_one(metric: str) -> None:
    """So for every comparison of every metric; the proposal is read, and has the same limit."""
    entry = METRICS[metric]
    parts = [*entry.comparisons, *(["one group"] if entry.of_groups else [])]
    parts += ["ratio.true_groups", "min.under_n1"] if metric in NOISE_METRICS and entry.of_groups else []
    for part, sign in product(parts, OPERATORS):
        subject = f"{metric}[g=a]" if part == "one group" else f"{metric}.{part}[g]"
        text = f"{subject}{sign}0.25"
        fits = fitting_signs(metric, part.split(".")[0] if "min." in part else part)
        if sign[0] in fits:
            check = Check.parse(text)
            assert (check.operator, check.limit, check.text) == (sign, 0.25, text)
            continue
        with pytest.raises(UsageError) as refused:
            Check.parse(text)
        (proposed,) = re.findall(r"`check=([^`]+)`", str(refused.value))
        right = Check.parse(proposed)
        assert (right.operator[0] in fits, right.limit) == (True, 0.25)


VERDICTS = [
    ((0.3, 0.2, 0.4), True, "fail", "fail"),
    ((0.05, 0.0, 0.08), True, "pass", "pass"),
    ((0.12, 0.05, 0.2), True, "undecided", "fail"),
    ((0.08, 0.05, 0.2), True, "undecided", "pass"),
    ((0.05, 0.0, 0.08), False, "undecided", "undecided"),
    ((0.3, 0.2, 1.0), False, "fail", "fail"),
    ((math.nan, 0.0, 1.0), False, "undecided", "undecided"),
    ((math.nan, 0.2, 1.0), True, "undecided", "undecided"),
]


@pytest.mark.parametrize("sign", ["<=", ">="])
@pytest.mark.parametrize("metric", METRICS)
def test_a_proposed_check_exists(metric: str, sign: str) -> None:
    """Of a metric without a kind, and of a kind whose direction is wrong."""
    subjects = metric, *(f"{metric}.{part}" for part in METRICS[metric].comparisons)
    refused = [error for text in subjects if (error := refusal(f"{text}{sign}0.1")) is not None]

    for text, right in (pair for error in refused for pair in error.instead):
        assert text.startswith(metric)
        assert Check.parse(right).comparison.exists
    if METRICS[metric].of_groups and METRICS[metric].kinds:
        assert any(error.instead for error in refused)


def refusal(text: str, protected: tuple[str, ...] = ()) -> UsageError | None:
    """Return the error with which a check is refused."""
    try:
        Check.parse(text, protected)
    except UsageError as error:
        return error
    return None


@pytest.mark.parametrize("text", ["dp<=0.1", "dp_difference<=0.1", "dp.difference>=0.1"])
def test_a_check_is_proposed_of_a_protected_column_or_of_none(text: str) -> None:
    """The name in brackets may be of a group, and then the proposal would be refused as well."""
    for where, meant in (("", True), ("[race]", True), ("[Black]", False)):
        subject, sign, limit = re.split("(<=|>=)", text)
        error = refusal(f"{subject}{where}{sign}{limit}", ("race",))
        assert error is not None
        assert bool(error.instead) is meant
        of_any = refusal(f"{subject}{where}{sign}{limit}")  # as where a check is explained without data
        assert of_any is not None
        assert of_any.instead


@given(st.text('ab="][<>≤.,0 ', max_size=12))
def test_any_text_is_read_or_refused_with_a_short_answer(text: str) -> None:
    """Quotes that are added are not quoted again, without a limit as with one."""
    for whole in (f"dp[{text}]", f"dp[x={text}]", f"dp[x={text}]<=0.1", text):
        error = refusal(whole, ("x",))
        assert error is None or len(str(error)) < 2000
        assert error is None or all(len(right) < 100 for _, right in error.instead)


@pytest.mark.parametrize(
    "text", ["dp.ratio≥0.8", "dp.ratio=>0.8", "dp.ratio>=0,8", "dp.ratio ≥ 0,8", "0.8<=dp.ratio"]
)
def test_other_spellings_are_answered_with_ours(text: str) -> None:
    error = refusal(text)
    assert error is not None
    ((_, right),) = error.instead
    assert (
        Check.parse(right).judge(estimate(0.8, 0.8, 0.8), complete=True, gate_on="interval").verdict == "pass"
    )


@pytest.mark.parametrize(("numbers", "complete", "by_interval", "by_point"), VERDICTS)
def test_three_verdicts(
    numbers: tuple[float, float, float], complete: bool, by_interval: str, by_point: str
) -> None:
    """Against <= 0.1: the whole interval beyond, within, or neither; undefined never passes."""
    check = Check.parse("dp.difference<=0.1")

    assert check.judge(estimate(*numbers), complete=complete, gate_on="interval").verdict == by_interval
    assert check.judge(estimate(*numbers), complete=complete, gate_on="point").verdict == by_point


@pytest.mark.parametrize("gate_on", ["interval", "point"])
@pytest.mark.parametrize(
    ("operator", "at_the_limit"), [(">", "fail"), (">=", "pass"), ("<", "fail"), ("<=", "pass")]
)
def test_what_is_exactly_at_the_limit(operator: str, at_the_limit: str, gate_on: GateOn) -> None:
    """A value at the limit passes where the operator has the equals sign, and there alone."""
    check = Check.parse(f"selection_rate.min{operator}0.1")
    within, beyond = (0.2, 0.05) if ">" in operator else (0.05, 0.2)

    for value, verdict in ((0.1, at_the_limit), (beyond, "fail"), (within, "pass")):
        assert check.judge(estimate(value, value, value), complete=True, gate_on=gate_on).verdict == verdict


@pytest.mark.parametrize(
    ("value", "bound", "verdict"),
    [(0.09, 0.0, "pass"), (0.09, 0.02, "undecided"), (0.11, 0.02, "undecided"), (0.15, 0.02, "fail")],
)
def test_a_point_is_known_to_its_numerical_error(value: float, bound: float, verdict: str) -> None:
    """Within the error of a number it cannot be told on which side of the limit it lies."""
    check = Check.parse("auc.difference<=0.1")

    assert (
        check.judge(estimate(value, 0.0, 1.0, bound=bound), complete=True, gate_on="point").verdict == verdict
    )


@given(
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0, 1),
    st.sampled_from(["<", "<=", ">", ">="]),
)
def test_a_verdict_agrees_with_every_value_of_the_interval(
    a: float, b: float, at: float, limit: float, sign: str
) -> None:
    """Fail means that every value of the interval breaks the limit, pass that none does."""
    low, high = sorted((a, b))
    value = low + at * (high - low)
    check = Check.parse(f"selection_rate.max{sign}{limit!r}")
    verdict = check.judge(estimate(value, low, high), complete=True, gate_on="interval").verdict

    if verdict == "fail":
        assert check.violated_by(value)
    if verdict == "pass":
        assert not check.violated_by(value)


def test_exit_status_precedence() -> None:
    """Fail beats undecided beats pass; nothing gated is fine."""
    assert exit_status([]) is ExitStatus.OK
    assert exit_status(["pass"]) is ExitStatus.OK
    assert exit_status(["pass", "undecided"]) is ExitStatus.UNDECIDED
    assert exit_status(["undecided", "fail", "pass"]) is ExitStatus.FAILED
    assert exit_status(["undecided"], "pass") is ExitStatus.OK
    assert exit_status(["undecided"], "fail") is ExitStatus.FAILED
