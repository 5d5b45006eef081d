"""Promises of drawn results: what the proof says is delivered is what the written file decides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from fairfix.data.data_spec import ColumnRoles, DataSpec

from tests.promises.harness import Shell, Tried, judged, parts_of, promise

CHANCE = 1e-5
"""Chance at which draws by ids may be further from what is expected than this allows."""


def world(rng: np.random.Generator) -> pd.DataFrame:
    """Return scored rows of groups that differ, of which many are equal, with ids or without."""
    groups = int(rng.integers(2, 5))
    rows = int(np.exp(rng.uniform(np.log(80), np.log(12_000))))
    code = np.concatenate([np.arange(groups).repeat(20), rng.integers(0, groups, rows)])
    score = np.clip(rng.beta(2, 2, code.size) + rng.uniform(-0.25, 0.25, groups)[code], 0, 1)
    values = int(rng.choice([1, 10, 100]))
    score = np.round(score * values) / values if rng.random() < 0.8 else score
    frame = pd.DataFrame({"group": [f"g{k}" for k in code], "score": score})
    frame["label"] = (rng.random(len(frame)) < 0.1 + 0.8 * score).astype(int)
    if rng.random() < 0.4:
        frame["person"] = rng.permutation(len(frame))
    return frame


def options_of(frame: pd.DataFrame) -> tuple[str, ...]:
    """Return what says which column is which."""
    named = ("--id", "person") if "person" in frame else ()
    return "--protected", "group", "--label", "label", "--score", "score", *named


def said(result: dict[str, Any], part: str, name: str) -> dict[str, Any]:
    """Return a row of a proof."""
    return next(row for row in result["proof"][part]["table"] if row["name"] == name)


def audited(shell: Shell, rows: pd.DataFrame, comparison: str, *options: str) -> float:
    """Return a comparison of the audit of a file."""
    done = shell.run("audit", shell.write(rows, "done.parquet"), "--protected", "group", *options)
    return float(
        next(c["value"] for c in done.result["attributes"][0]["comparisons"] if c["id"] == comparison)
    )


def discreteness(rows: pd.DataFrame, drawn: pd.Series) -> float:
    """Return how far the gap of two groups may be from what is expected, by draws of single rows."""
    off = []
    for _, own in rows[drawn].groupby("group"):
        many = int((rows["group"] == own["group"].iloc[0]).sum())
        if "person" in rows:  # Hoeffding
            off.append(np.sqrt(0.5 * np.log(2 / CHANCE) * len(own)) / many)
        else:  # van der Corput, for each kind of equal rows
            kinds = own.groupby("score").size().to_numpy()
            off.append(float(np.minimum(kinds, 2 * np.log2(kinds) / 3 + 2).sum()) / many)
    return float(sum(sorted(off)[-2:]))


@promise(level=0, quick=4, full=300)
def decisions_are_delivered_as_said(rng: np.random.Generator, shell: Shell) -> Tried:
    """Ramp: the realized gap is that of the written decisions, and close to the expected one."""
    frame = world(rng)
    path, options = shell.write(frame), options_of(frame)
    gamma = rng.choice([0.0, 0.05, 0.3])
    more = ("--gamma", gamma, "--slack", rng.choice([0.0, 0.05]), "-o", "r.fairfix", "-q")
    done = shell.run("repair", path, "--method", "ramp", *options, *more)
    assert done.status == 0, done.err
    parts = parts_of(
        frame, path, DataSpec(ColumnRoles(("group",), label="label", score="score"), thresholds=(0.5,))
    )
    name, wrong = "selection_rate.difference.between_groups", []
    for part, rows in zip(("fit", "holdout"), parts, strict=True):
        row = said(done.result, part, f"{name} [group]")
        out = shell.predict("r.fairfix", shell.write(rows, "part.parquet"))
        found = audited(shell, out, name, "--prediction", "decision")
        expected = row["after"]["value"]
        drawn = (out["p_positive"] > 0) & (out["p_positive"] < 1)
        if abs(row.get("delivered", expected) - found) > 1e-9:
            wrong.append(f"{part}: says {row.get('delivered', expected):.4f}, delivers {found:.4f}")
        if abs(found - expected) > discreteness(rows, drawn) + 1e-9:
            wrong.append(f"{part}: expects {expected:.4f}, delivers {found:.4f}")
    return judged(not wrong, "; ".join(wrong) + f" ({list(frame)}, {len(frame)} rows, gamma {gamma})")


@promise(level=0, quick=4, full=300)
def values_are_delivered_as_said(rng: np.random.Generator, shell: Shell) -> Tried:
    """Fair regression: realized distances are those of the written scores, and close to the expected ones."""
    frame, slack = world(rng), float(rng.choice([0.0, 0.02, 0.1]))
    path, options = shell.write(frame), options_of(frame)
    more = ("--slack", slack, "--group", "used", "-o", "r.fairfix", "-q")
    done = shell.run("repair", path, "--method", "fair-regression", *options, *more)
    assert done.status == 0, done.err
    parts = parts_of(
        frame, path, DataSpec(ColumnRoles(("group",), label="label", score="score"), thresholds=(0.5,))
    )
    name, wrong = "ks.to_overall", []
    for part, rows in zip(("fit", "holdout"), parts, strict=True):
        row = said(done.result, part, f"{name} [group]")
        out = shell.predict("r.fairfix", shell.write(rows, "part.parquet"))
        again = rows.assign(score=out["prediction"].to_numpy())
        found = audited(shell, again, name, "--label", "label", "--score", "score")
        if abs(row["after"]["value"] - found) > 1e-9:
            wrong.append(f"{part}: says {row['after']['value']:.4f}, delivers {found:.4f}")
        expected = row.get("expected", row["after"]["value"])
        if part == "fit" and expected > slack + 2.0 * atom_of(rows) / 16 + 1e-9:
            wrong.append(f"{part}: expects {expected:.4f} at slack {slack}")
        # all rows of a score may be drawn, but at one threshold only those of one score or two are on both sides
        per_group = rows.groupby("group").size().min()
        most = rows.groupby(["group", "score"]).size().max()
        off = (
            np.sqrt(0.5 * np.log(2 / CHANCE) * 2 * most) if "person" in rows else 4 * (np.log2(most) / 3 + 1)
        )
        if found > expected + 2 * off / per_group + 1e-9:
            wrong.append(f"{part}: expects {expected:.4f}, delivers {found:.4f}")
    return judged(not wrong, "; ".join(wrong) + f" ({list(frame)}, {len(frame)} rows, slack {slack})")


def atom_of(rows: pd.DataFrame) -> float:
    """Return the largest share of its group that one score has."""
    sizes = rows.groupby(["group", "score"]).size()
    return float((sizes / rows.groupby("group").size()).max())
