"""What a repair changes for whom: rates and movements of each group agree, and a rule that is shown is the rule."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.scan import read_table
from fairfix.models.predictors import BinnedRule, GroupwiseCurve, GroupwiseRamp
from fairfix.report.layout import layout
from fairfix.report.repairs import in_words
from fairfix.schema.repair import GroupRule
from fairfix.solvers.piecewise import Piecewise
from fairfix.tasks.group_changes import acceptance_curves
from fairfix.tasks.predict import predict
from fairfix.tasks.repair import RepairResult, repair

from tests.data import scored

METHODS: dict[str, dict[str, Any]] = {
    "ramp": {"method": "ramp", "slack": 0.02},
    "thresholds": {"method": "ramp", "slack": 0.02, "decisions": "deterministic"},
    "steps": {"method": "ramp", "constraint": "equalized_odds", "slack": 0.02},
    "curves": {"method": "logloss", "features": "score"},
    "values": {"method": "fair-regression", "group": "used"},
    "blind": {"method": "fair-regression"},
}


def people(digits: int = 9) -> pd.DataFrame:
    """Return scored people of three groups, the smallest of 60, with weights; scores are rounded to digits."""
    rng = np.random.default_rng(3)
    race = np.repeat(["a", "b", "c"], [400, 240, 60])
    z = rng.normal(size=race.size) - 0.8 * (race == "b") + 0.6 * (race == "c")
    label = rng.random(race.size) < 1 / (1 + np.exp(-1.5 * z))
    score = np.round(1 / (1 + np.exp(-z)), digits)
    return pd.DataFrame(
        {"race": race, "y": label.astype(int), "score": score, "w": rng.random(race.size) + 0.5}
    )


@cache
def repaired(name: str, digits: int = 9) -> RepairResult:
    """Return a repair, which is made once."""
    return repair(people(digits), protected="race", weight="w", holdout=0.4, **METHODS[name])


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("part", ["fit", "holdout"])
def test_who_moves_is_what_rates_change(name: str, part: str) -> None:
    """A rate after is the one before, plus who goes from no to yes, less who goes from yes to no; so is the whole."""
    proof = repaired(name).to_dict()["proof"][part]
    (block,) = proof["people"]
    assert [one["group"] for one in block["groups"]] == ["a", "b", "c"]
    assert sum(one["rows"] for one in block["groups"]) == proof["rows"]
    moved = 0.0
    for one in block["groups"]:
        before, after = (one["metrics"]["selection_rate"][when]["value"] for when in ("before", "after"))
        assert after == pytest.approx(before + one["up"] - one["down"], abs=1e-12)
        assert 0 <= one["up"] <= 1 - before + 1e-12
        assert 0 <= one["down"] <= before + 1e-12
        moved += one["up"] + one["down"]
    assert moved > 0


@pytest.mark.parametrize("name", ["ramp", "thresholds", "steps", "curves"])
@pytest.mark.parametrize("digits", [9, 1])
def test_a_rule_that_is_shown_is_the_rule(name: str, digits: int) -> None:
    """Straight lines between the scores of a rule give what the artifact gives people of new scores and of old ones."""
    result = repaired(name, digits)
    rng = np.random.default_rng(0)
    rules = result.to_dict()["rule"]
    assert [one["group"] for one in rules] == ["a", "b", "c"]
    for one in rules:
        assert (np.diff(one["scores"]) > 0).all()
        asked = np.concatenate([rng.random(500), people(digits)["score"].unique()])
        frame = pd.DataFrame({"race": one["group"], "score": asked, "w": 1.0})
        expected = predict(result.repaired, frame)["p_positive"]
        shown = np.interp(asked, one["scores"], one["probabilities"])
        assert np.abs(shown - np.asarray(expected)).max() < (0.05 if name == "curves" else 1e-6)


def test_every_jump_is_shown() -> None:
    """Bins may be much narrower than the steps at which a rule is drawn: all of their jumps are shown, and no more."""
    edges = np.sort(np.random.default_rng(0).random(600))
    levels = np.linspace(0.0, 1.0, edges.size + 1)
    columns = ColumnRoles(("race",), label="label", score="score")
    table = read_table(scored(rows=300), DataSpec(columns, thresholds=(0.5,)), columns=())
    groups = table.groups().levels
    rule = BinnedRule(("race",), groups, edges, np.stack([levels, levels[::-1], levels**2])[: len(groups)])
    curves = acceptance_curves(table, rule)

    assert [one.group for one in curves] == ["g0", "g1", "g2"]
    for k, one in enumerate(curves):
        assert len(one.scores) == 2 * edges.size + 2
        asked = np.random.default_rng(1).random(2000)
        shown = np.interp(asked, one.scores, one.probabilities)
        assert np.abs(shown - rule.probabilities[k, rule.bins(asked)]).max() < 1e-12


@pytest.mark.parametrize("scale", ["probability", "percent", "margin", "logit", "raw"])
def test_knots_are_on_the_scale_of_the_scores(scale: Any) -> None:
    """At the knots of a ramp, its probabilities are 0 and 1; so they are of one on recalibrated scores."""
    data_spec = DataSpec(ColumnRoles(("race",), score="score"), score_scale=scale, thresholds=(0.5,))
    groups = (("g0",), ("g1",), ("g2",))
    curve = Piecewise.line(4.0, 0.5)
    rules = [GroupwiseCurve(("race",), groups, (curve,) * 3)]
    if scale != "raw":
        rules.append(
            GroupwiseCurve(("race",), groups, (curve,) * 3, np.array([[1.0, 0.3], [2.0, 0.0], [0.5, -1.0]]))
        )
        rules.append(GroupwiseRamp(("race",), groups, np.array([-0.2, 0.0, 0.3]), np.zeros(3), 0.25))
    for rule in rules:
        knots = rule.knots(data_spec)
        table = pa.table({"race": [g[0] for g in groups] * 2, "score": np.stack(knots).T.ravel()})
        given = rule.predict(read_table(table, data_spec, columns=())).reshape(2, 3)
        np.testing.assert_allclose(given, [[0.0] * 3, [1.0] * 3], atol=1e-12)


@pytest.mark.parametrize("name", ["values", "blind"])
def test_where_more_than_the_score_decides_no_rule_is_shown(name: str) -> None:
    assert not repaired(name).content.rule


@pytest.mark.parametrize(
    ("scores", "probabilities", "words"),
    [
        ((0, 1), (0, 0), "no for every score"),
        ((0, 1), (1, 1), "yes for every score"),
        ((0, 1), (0.25, 0.25), "yes with probability 25.0%, whatever the score"),
        ((0, 0.4, 0.40000000001, 1), (0, 0, 1, 1), "no below 0.4000, yes above"),
        (
            (0, 0.4, 0.6, 1),
            (0, 0, 1, 1),
            "no below 0.4000; yes above 0.6000; in between, the probability of yes rises from 0 to 1",
        ),
        ((0, 1), (0.1, 0.9), "yes with a probability that rises with the score, from 10.0% to 90.0%"),
        (
            (0, 0.5, 1),
            (0, 1, 0.5),
            "yes with a probability from 0.0% to 100.0% that does not always rise with the score",
        ),
    ],
)
def test_rules_in_words(scores: Any, probabilities: Any, words: str) -> None:
    assert in_words(GroupRule(group="a", scores=tuple(scores), probabilities=tuple(probabilities))) == words


def test_losses_of_decisions_are_not_compared_with_losses_of_scores() -> None:
    """They stand in a table of their own, without a change; losses of repaired values have one."""
    for name, apart in (("ramp", True), ("blind", False)):
        proof = repaired(name).to_dict()["proof"]["holdout"]
        losses = [row for row in (*proof["table"], *proof.get("other", ())) if row["id"] == "square_loss"]
        assert losses
        assert all(bool(row.get("unlike")) == apart for row in losses)
        section = next(one for one in layout(repaired(name).content) if one.kind == "proof")
        shown = {row[0] for row in section.grids[0].rows}
        assert ("square loss" in shown) == (
            not apart and any(r["id"] == "square_loss" for r in proof["table"])
        )
