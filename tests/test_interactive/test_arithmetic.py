"""The script of the interactive page against Python: audits, optimal thresholds and bands, in one run of node.

Skips where node is missing.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import fairfix
import numpy as np
import pandas as pd
import pytest
from fairfix.methods.ramp import Ramp

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="node is not on the path")

EXACT = 1e-9
CONSTRAINTS = {
    "demographic_parity": ("selection_rate",),
    "equal_opportunity": ("true_positive_rate",),
    "predictive_equality": ("false_positive_rate",),
    "equalized_odds": ("true_positive_rate", "false_positive_rate"),
}


def content_of(page: str) -> dict[str, Any]:
    """Return the counts that a page holds."""
    found = re.search(r'<script type="application/json" id="content">(.*?)</script>', page, re.DOTALL)
    assert found
    content: dict[str, Any] = json.loads(found[1])
    return content


def driven(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what the script makes of jobs."""
    line = [str(NODE), str(Path(__file__).with_name("drive.js"))]
    done = subprocess.run(line, input=json.dumps(jobs), capture_output=True, text=True, check=True)
    results: list[dict[str, Any]] = json.loads(done.stdout)
    return results


def rows(seed: int) -> pd.DataFrame:
    """Return rows of a few groups that differ, some small, with rounded or continuous scores and perhaps weights."""
    rng = np.random.default_rng(seed)
    many = int(rng.choice([60, 300, 2000]))
    race = rng.choice(list("abcd"), many, p=[0.5, 0.3, 0.18, 0.02])
    score = np.clip(rng.beta(2, 3, many) + 0.1 * (race == "a"), 0, 1)
    frame = pd.DataFrame({"race": race, "sex": rng.choice(["f", "m"], many), "score": score})
    frame["label"] = (rng.random(many) < score**1.3).astype(int)
    frame["weight"] = rng.gamma(2.0, size=many)
    if seed % 2:
        frame["score"] = frame["score"].round(2)
    return frame if seed % 5 else frame.drop(columns="label")


def asked(seed: int) -> dict[str, Any]:
    """Return parameters of a world: with weights in a third, with another confidence in a fourth."""
    weight = {"weight": "weight"} if seed % 3 == 0 else {}
    return {"protected": ["race", "sex"], **weight, **({"confidence": 0.8} if seed % 4 == 0 else {})}


WORLDS = 8


@cache
def worlds() -> list[tuple[pd.DataFrame, dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]]:
    """Return frame, parameters, jobs and results of every world: each attribute at thresholds drawn and original."""
    out = []
    for seed in range(WORLDS):
        frame, rng = rows(seed), np.random.default_rng(seed)
        content = content_of(fairfix.explore(frame, **asked(seed)).html)
        start = content["edges"].index(content["start"])
        jobs = [
            {
                "content": content,
                "attribute": attribute,
                "moved": False,
                "places": [place] * len(own["names"]),
                "limits": sorted(rng.random(3).tolist()),
            }
            for place in (start, int(rng.integers(len(content["edges"]))))
            for attribute, own in enumerate(content["attributes"])
        ]
        out.append((frame, asked(seed), jobs))
    results = iter(driven([job for *_, jobs in out for job in jobs]))
    return [(*world, [next(results) for _ in world[-1]]) for world in out]


def close(mine: float | None, other: float | None) -> bool:
    """Tell whether two numbers are equal, undefined ones among themselves."""
    if mine is None or other is None or math.isnan(other):
        return mine is None and (other is None or math.isnan(other))
    return abs(mine - other) <= EXACT


@pytest.mark.slow
def test_an_audit_at_every_threshold_is_that_of_python() -> None:
    """Rates with simultaneous limits, differences, ratios, odds and verdicts, of each attribute and of crossed ones."""
    wrong, compared = [], 0
    for frame, parameters, jobs, results in worlds():
        audits: dict[float, Any] = {}
        for job, result in zip(jobs, results, strict=True):
            name = job["content"]["attributes"][job["attribute"]]["name"]
            threshold = job["content"]["edges"][job["places"][0]]
            if threshold not in audits:
                checks = [
                    f"dp.difference[{each['content']['attributes'][each['attribute']]['name']}]<={limit!r}"
                    for each in jobs
                    for limit in each["limits"]
                ]
                audits[threshold] = fairfix.audit(
                    frame, **parameters, intersect=True, threshold=threshold, check=checks
                )
            audit = audits[threshold]
            block = audit.content.block(name)
            for metric, own in result["rates"].items():
                for group, value, (low, high) in zip(block.groups, own["values"], own["limits"], strict=True):
                    theirs = group.metrics[metric]
                    pairs = ((value, theirs.point), (low, theirs.lower), (high, theirs.upper))
                    wrong += [(name, threshold, metric, group.group, *p) for p in pairs if not close(*p)]
                    compared += 3
            for metric, kinds in result["gaps"].items():
                for kind, gap in kinds.items():
                    report = block.by_id[f"{metric}.{kind}.between_groups"]
                    ends = (report.point, report.lower, report.upper)
                    pairs = tuple(zip((gap["value"], gap["low"], gap["high"]), ends, strict=True))
                    wrong += [(name, threshold, metric, kind, *p) for p in pairs if not close(*p)]
                    assert gap["complete"] == (not report.undefined)
                    assert [block.groups[k].group for k in gap["groups"]] == list(report.groups)
                    compared += 3
            ruled = {(one.attribute, one.limit): one.verdict for one in audit.content.checks}
            assert result["verdicts"] == [ruled[name, limit] for limit in job["limits"]]
            for metric, own in result["all"].items():
                theirs = audit.content.overall.metrics[metric]
                pairs = zip(
                    (own["value"], *own["limits"]), (theirs.point, theirs.lower, theirs.upper), strict=True
                )
                wrong += [(name, threshold, metric, "overall", *p) for p in pairs if not close(*p)]
            if result["overall"]:
                overall = {name: one.point for name, one in audit.content.overall.metrics.items()}
                assert close(100 - result["overall"]["cost"], 100 * overall["accuracy"])
                rates = overall["true_positive_rate"] + overall["true_negative_rate"]
                assert close(result["overall"]["balanced"], rates / 2)
    assert wrong == []
    assert compared > 4000


def repaired(frame: pd.DataFrame, constraint: str, gap: float, fp: float, fn: float) -> float:
    """Return the value of the rule of ``ramp`` on all rows, per row, with labels as isotonic regression has them."""
    method = Ramp(constraint=constraint, slack=gap, gamma=0.0, calibrate="isotonic")
    data_spec = fairfix.DataSpec(
        fairfix.ColumnRoles(protected=("race",), label="label", score="score"), thresholds=(fp / (fp + fn),)
    )
    table = fairfix.read_table(frame, data_spec)
    predictor = method.fit(fairfix.RepairProblem(table), rng=np.random.default_rng(0))
    chance, label = predictor.predict(table), frame["label"].to_numpy()
    return float(np.mean(chance * (fn * label - fp * (1 - label))))


def test_the_best_thresholds_are_those_of_the_solver() -> None:
    """Within the gap, and as good as the rule of ``ramp`` on the same counts, for all constraints, gaps and costs."""
    frames = [frame for seed, (frame, *_) in enumerate(worlds()) if seed % 2 and seed % 5]
    jobs = [
        {"content": content_of(fairfix.explore(frame, protected="race").html), "attribute": 0}
        | {"constraint": constraint, "gap": gap, "fp": fp, "fn": fn}
        for frame in frames
        for constraint in CONSTRAINTS
        for gap, fp, fn in ((0.0, 1, 1), (0.03, 1, 3), (0.2, 2, 1))
    ]
    for frame, job, result in zip(
        np.repeat(range(len(frames)), len(jobs) // len(frames)), jobs, driven(jobs), strict=True
    ):
        own, content = frames[frame], job["content"]
        bin_ = np.searchsorted(content["edges"], own["score"], side="right") - 1
        group = own["race"].map(content["attributes"][0]["names"].index).to_numpy()
        chance, label = np.array(result["chances"])[group, bin_], own["label"].to_numpy()
        assert (np.diff(result["chances"], axis=1) >= -1e-12).all()
        for metric in CONSTRAINTS[job["constraint"]]:
            inside = {
                "selection_rate": label >= 0,
                "true_positive_rate": label == 1,
                "false_positive_rate": label == 0,
            }[metric]
            rates = [chance[inside & (group == k)].mean() for k in np.unique(group)]
            assert np.ptp(rates) <= job["gap"] + EXACT, job["constraint"]
        value = float(np.mean(chance * (job["fn"] * label - job["fp"] * (1 - label))))
        best = repaired(own, job["constraint"], job["gap"], job["fp"], job["fn"])
        assert abs(value - best) <= (job["fp"] + job["fn"]) * EXACT, (job["constraint"], job["gap"])


def test_a_rate_that_a_group_lacks_has_no_best_thresholds() -> None:
    """As ``ramp`` has none: groups without rows of a label have no rate among them, but a selection rate."""
    frame = rows(1)
    content = content_of(
        fairfix.explore(frame[(frame["race"] != "b") | (frame["label"] == 0)], protected="race").html
    )
    jobs = [{"content": content, "attribute": 0, "constraint": one, "gap": 0.1} for one in CONSTRAINTS]
    lacking = [one["chances"] is None for one in driven(jobs)]

    assert dict(zip(CONSTRAINTS, lacking, strict=True)) == {
        "demographic_parity": False,
        "equal_opportunity": True,
        "predictive_equality": False,
        "equalized_odds": True,
    }


@pytest.mark.slow
def test_limits_of_moved_thresholds_hold_for_all_thresholds_at_once() -> None:
    """In worlds of known rates, every interval of every group at every threshold holds them, as often as is said."""
    rng, edges = np.random.default_rng(3), np.linspace(0, 1, 21)
    shares = np.array([0.6, 0.25, 0.15])
    rate = np.clip(edges[:-1] + 0.025, 0, 1)
    jobs, truths, worlds_ = [], [], 60
    for _ in range(worlds_):
        mass = np.stack([rng.dirichlet(np.full(20, 2.0)) for _ in shares])
        truth = np.stack([mass * (1 - rate), mass * rate], axis=1)
        many = [
            rng.multinomial(400 * s * len(shares), t.ravel()).reshape(t.shape)
            for s, t in zip(shares, truth, strict=True)
        ]
        content = {
            **catalogue(),
            "edges": edges[:-1].tolist(),
            "start": 0.5,
            "confidence": 0.5,
            "rows": [one.tolist() for one in many],
            "attributes": [{"name": "race", "names": list("abc"), "cells": [0, 1, 2]}],
        }
        jobs += [{"content": content, "attribute": 0, "places": [k] * 3, "moved": True} for k in range(20)]
        truths.append(truth)
    results, holds = driven(jobs), dict[str, int]()
    for world in range(worlds_):
        for metric in (
            "selection_rate",
            "true_positive_rate",
            "false_positive_rate",
            "accuracy",
            "positive_predictive_value",
            "negative_predictive_value",
        ):
            kept = True
            for k in range(1, 20):  # at the first, no row is below
                result = results[20 * world + k]
                for g, truth in enumerate(truths[world]):
                    low, high = result["rates"][metric]["limits"][g]
                    kept &= low - 1e-12 <= rate_of(metric, truth, k) <= high + 1e-12
                values = [rate_of(metric, truth, k) for truth in truths[world]]
                gap = result["gaps"][metric]["difference"]
                kept &= gap["low"] - 1e-12 <= max(values) - min(values) <= gap["high"] + 1e-12
            holds[metric] = holds.get(metric, 0) + kept
    assert all(many >= 0.5 * worlds_ - 3 * math.sqrt(worlds_ / 4) for many in holds.values()), holds
    assert holds["selection_rate"] < worlds_  # else the band is wider than the theorem asks


def catalogue() -> dict[str, Any]:
    """Return the metrics as a page has them."""
    content = worlds()[1][2][0]["content"]
    return {name: content[name] for name in ("rates", "odds", "labelled")}


def rate_of(metric: str, truth: Any, k: int) -> float:
    """Return the rate of a population, (label, bin), at a threshold."""
    (tn, fn), (fp, tp) = truth[:, :k].sum(axis=1), truth[:, k:].sum(axis=1)
    above, below = {
        "selection_rate": (tp + fp, tn + fn),
        "true_positive_rate": (tp, fn),
        "false_positive_rate": (fp, tn),
        "accuracy": (tp + tn, fp + fn),
        "positive_predictive_value": (tp, fp),
        "negative_predictive_value": (tn, fn),
    }[metric]
    return float(above / (above + below)) if above + below else math.nan


def test_limits_of_moved_thresholds_are_bands_of_a_stated_width() -> None:
    """By their formula, written once more: one band for each group of the rate's rows, and the ends that they allow."""
    frame, _, jobs, _ = worlds()[1]
    job = {**jobs[0], "moved": True}
    start, names = job["content"]["start"], job["content"]["attributes"][0]["names"]
    apart = {**job, "places": [place + k for k, place in enumerate(job["places"])]}
    result, other = driven([job, apart])
    pooled = np.sqrt(np.log(2 / (1 - job["content"]["confidence"])) / (2 * len(frame)))
    overall = (frame["score"] >= start).mean() + pooled * np.array([-1, 1])
    np.testing.assert_allclose(result["all"]["selection_rate"]["limits"], overall, atol=EXACT)
    parts = frame["race"].value_counts(normalize=True)[names].to_numpy()
    mean = parts @ np.array(other["rates"]["selection_rate"]["limits"])
    np.testing.assert_allclose(other["all"]["selection_rate"]["limits"], mean, atol=EXACT)
    for metric, own in (("selection_rate", frame), ("true_positive_rate", frame[frame["label"] == 1])):
        groups = [own.loc[own["race"] == name, "score"] >= start for name in names]
        level = 1 - job["content"]["confidence"] ** (1 / len(names))
        rate, size = np.array([one.mean() for one in groups]), np.array([len(one) for one in groups])
        margin = np.sqrt(np.log(2 / level) / (2 * size))
        low, high = np.maximum(rate - margin, 0), np.minimum(rate + margin, 1)
        np.testing.assert_allclose(
            result["rates"][metric]["limits"], np.stack([low, high], axis=1), atol=EXACT
        )
        pairs = [(i, j) for i in range(len(names)) for j in range(len(names)) if i != j]
        ends = {
            "difference": (
                max(0, *(low[i] - high[j] for i, j in pairs)),
                min(1, max(high[i] - low[j] for i, j in pairs)),
            ),
            "ratio": (
                min(low[j] / high[i] for i, j in pairs),
                min(1, *(high[j] / max(low[i], 1e-99) for i, j in pairs)),
            ),
        }
        for kind, (least, most) in ends.items():
            gap = result["gaps"][metric][kind]
            assert gap["low"] == pytest.approx(least, abs=EXACT)
            assert gap["high"] == pytest.approx(most, abs=EXACT)


def test_who_gains_is_who_lies_between_the_thresholds() -> None:
    for frame, _, jobs, results in worlds():
        for job, result in zip(jobs, results, strict=True):
            content = job["content"]
            if content.get("mass") or job["attribute"] != 0:
                continue
            here, start = content["edges"][job["places"][0]], content["start"]
            for name, change in zip(content["attributes"][0]["names"], result["changes"], strict=True):
                own = frame.loc[frame["race"] == name, "score"]
                assert change["gained"] == ((own >= here) & (own < start)).sum()
                assert change["lost"] == ((own < here) & (own >= start)).sum()
                assert change["all"] == len(own)
