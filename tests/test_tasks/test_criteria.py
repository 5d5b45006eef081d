"""Every repair names what it bounds, finds it in its own report, and says where there was nothing to repair."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import fairfix
import numpy as np
import pandas as pd
import pytest
from fairfix.auditing.comparisons import TRUE_GROUPS, Comparison
from fairfix.errors import DataError, UsageError
from fairfix.methods import available
from fairfix.report.layout import layout
from fairfix.sklearn import RepairedClassifier
from sklearn.linear_model import LogisticRegression

from tests.results import struct
from tests.strategies import PROFILE

NOISE = pd.DataFrame(
    {"true": ["a", "a", "b", "b"], "noisy": ["a", "b", "a", "b"], "count": [900, 100, 80, 920]}
)
BY_LABEL = pd.concat([NOISE.assign(label=0), NOISE.assign(label=1)])


SLOW = ("network", "oracle", "dro", "soft", "ideal", "reduction", "stream")
"""Solvers that are tried with their usual parameters alone."""


def people(seed: int, many: int, gap: float) -> pd.DataFrame:
    """Return scored people of two groups whose scores and features differ by ``gap``, with membership and an age."""
    rng = np.random.default_rng(seed)
    group, x, z = rng.choice(["a", "b"], many), rng.normal(size=many), rng.normal(size=many)
    x = x + gap * (group == "a")
    score = 1 / (1 + np.exp(-(x + 0.5 * z)))
    likely = np.where(group == "a", 0.8, 0.2)
    return pd.DataFrame(
        {
            "group": group,
            "x": x,
            "z": z,
            "age": rng.integers(20, 60, many).astype(float) + 10 * gap * (group == "a"),
            "p_a": likely,
            "p_b": 1 - likely,
            "label": (rng.random(many) < score).astype(int),
            "score": score,
        }
    )


def ways(name: str, first: int) -> Iterator[dict[str, Any]]:
    """Yield a method's parameters as they are, and with each other choice of each solver that is named.

    A default is no other choice, and ``auto`` is one of the solvers. A pull request draws every fifth choice, beginning
    with the ``first``; ``make test-full`` draws all.
    """
    step = 1 if PROFILE != "project" else 5
    method, seen = available()[name], set()
    solvers = [{"solver": one} for one in method.solvers] or [{}]
    usual = {name: str(spec.default) for name, spec in method.domains().items()}
    chosen = [
        {part: one}
        for part, rule in method.domains().items()
        for one in rule.choices
        if part != "solver" and one != usual[part]
    ]
    names = dict.fromkeys(method.grammar.criteria.values())
    chosen += [{"constraint": one} for one in names if one != "bounded_group_loss"]
    if name == "ramp":
        chosen += [{"constraint": "dp.ratio>=0.8"}, {"constraint": "covariance[age]"}]
        chosen += [{"noise": "membership:a=p_a,b=p_b"}]
    if name == "fair-regression":
        chosen += [{"constraint": "square_loss.max<=0.25"}]
    for solver in solvers:
        slow = solver.get("solver") in (*SLOW, "auto")
        for options in ({}, *([] if slow else chosen[first % step :: step])):
            asked = {**solver, **options}
            if repr(asked) not in seen:
                seen.add(repr(asked))
                yield asked


def repairs(
    name: str, first: int, data: pd.DataFrame, without: Sequence[str] = ()
) -> Iterator[tuple[dict[str, Any], fairfix.RepairResult]]:
    """Yield each way with the repairs that it allows, of the score and of features, and of either label.

    In a pull request, ways with a choice take turns with the score and with features. Ways with a constraint that is
    listed in ``without`` are left out.
    """
    asked = [one for one in ways(name, first) if one.get("constraint") not in without]
    for at, options in enumerate(asked):
        for result in repaired(name, options, data, at):
            yield options, result


def repaired(
    name: str, options: dict[str, Any], data: pd.DataFrame, at: int
) -> Iterator[fairfix.RepairResult]:
    """Yield the repairs of a way, the one at a place among the ways."""
    noise = {"noise": BY_LABEL} if "noise" in available()[name].uses else {}
    ungrouped = "noise" in options or "[age]" in options.get("constraint", "")
    protected = {} if ungrouped else {"protected": "group"}
    learned: list[dict[str, Any]] = [{"features": ["x", "z"]}]
    if not options.keys() - {"solver"}:
        learned.append({"features": ["x", "z"], "group": "used"})
        learned.append({"features": ["x", "z"], "task": "regression", "label": "age"})
    each = [{}, *learned]
    if "learner" in options:  # which scores do without
        each = learned
    elif options.keys() - {"solver"} and PROFILE == "project":
        each = [each[at % 2]]
    for more in each:
        try:
            yield fairfix.repair(data, method=name, **protected, **noise, **options, **more)
        except (UsageError, DataError):
            continue


@pytest.mark.slow(every=True)
@pytest.mark.parametrize("name", available())
def test_every_criterion_is_a_comparison_that_the_report_opens_with(name: str) -> None:
    """Whatever is chosen, the criterion is one that an audit has, and the report says what became of it."""
    data, many = people(0, 300, 0.6), 0
    for options, result in repairs(name, 0, data):
        many += 1
        content = result.to_dict()
        criterion = Comparison.parse(content["criterion"])
        assert criterion.id == content["criterion"], options
        assert criterion.exists, (options, content["criterion"])
        for part in ("holdout", "fit"):
            rows = (content["proof"].get(part) or {}).get("table", ())
            for row in (row for row in rows if row.get("change") and row["change"].get("value") is not None):
                moved = row["after"]["value"] - row["before"]["value"]
                assert row["change"]["value"] == pytest.approx(moved, abs=1e-9), (options, part, row["name"])
        titles = [criterion.title, criterion.to(TRUE_GROUPS).title]
        lines = [
            line for line in next(iter(layout(struct(content)))).lines if not line.startswith("warning: ")
        ]
        opening = lines[0].replace(",", "")  # a sentence needs not the comma that a heading has
        assert any(title.replace(",", "") in opening for title in titles), (options, lines)
    assert many > 2


@pytest.mark.slow
@pytest.mark.parametrize("name", available())
def test_where_nothing_was_to_repair_it_is_said(name: str) -> None:
    """Where groups are alike in all that there is, every repair says that it may have had nothing to do."""
    data = people(1, 300, 0.0)
    for options, result in repairs(name, 1, data, ("minimax", "bounded_group_loss")):
        codes = {one["code"] for one in result.to_dict()["messages"] if one["severity"] == "warning"}
        said = codes & {"no_help", "gap_before", "gap_after", "constant", "selection", "infeasible"}
        assert said, (options, result.to_dict()["criterion"], codes)


@pytest.mark.parametrize("drop", [True, False])
def test_an_estimator_that_individual_fairness_cannot_help_says_so(drop: bool) -> None:
    """Of scores alone nobody knows what a flip would do, so there is nothing that the fit could hold."""
    data = people(2, 300, 0.5)
    X = data[["group", "x", "z"]].assign(group=(data.group == "a").astype(int))
    model = RepairedClassifier(LogisticRegression(), "group", method="sensei", drop_protected=drop)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, data.label)
    assert [one.message.code for one in caught if hasattr(one.message, "code")] == ["no_help"]
