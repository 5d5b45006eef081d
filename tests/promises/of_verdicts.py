"""Promises of checks: their verdicts, the waivers that cover them, and what is said of both."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd

from tests.promises.harness import NOT_SAID, Shell, Tried, judged, promise

COMPARED = (
    *("selection_rate.difference", "true_positive_rate.difference", "true_positive_rate.min"),
    *("positive_predictive_value.ratio", "accuracy.min", "false_positive_rate.max"),
    "equalized_odds.difference",
    *("true_positive_rate.difference.to_overall", "true_positive_rate", "accuracy.difference"),
)
"""What checks are about; the last but one is of one group."""

COLUMNS = ("race", "a=b", "r [1]", "x x y")
"""Names of the column of groups; no report may take one apart."""


def _people(rng: np.random.Generator, column: str, sizes: np.ndarray) -> pd.DataFrame:
    """Return rows of groups, some without positives and some without anybody selected."""
    code = np.repeat(np.arange(sizes.size), sizes)
    base, rate = (rng.choice([0.0, 0.2, 0.5, 0.8], sizes.size) for _ in range(2))
    base[0], rate[0] = 0.5, 0.5  # somebody has a value
    frame = pd.DataFrame(
        {
            "id": np.arange(code.size),
            column: np.array([f"g & {k}" for k in range(sizes.size)])[code],
            "label": (rng.random(code.size) < base[code]).astype(int),
            "prediction": (rng.random(code.size) < rate[code]).astype(int),
        }
    )
    frame.loc[0, ["label", "prediction"]] = 1
    frame.loc[1, ["label", "prediction"]] = 0
    return frame


def worse_if_smaller(name: str) -> bool:
    """Tell which way one of the numbers that are compared gets worse."""
    return ".difference" not in name and not name.startswith("false_positive_rate")


def _judge(shell: Shell, words: tuple[object, ...], *, waiver: str = "") -> dict[str, Any] | None:
    """Return the one check of an audit, under a waiver or none; None where it is refused."""
    (shell.folder / "fairfix.toml").write_text(waiver)
    done = shell.run("audit", *words)
    if done.status == 2:
        return None
    (check,) = done.result["checks"]
    expected = {"fail": 1, "undecided": 3}.get(check["verdict"], 0)
    assert done.status == expected, (done.status, check)
    return dict(check)


@promise(level=0.0, quick=18, full=2000, must_say=0.3)
def waived_up_to_a_limit(rng: np.random.Generator, shell: Shell) -> Tried:
    """A waiver up to M waives a check exactly where the same check with the limit M passes."""
    column = str(rng.choice(COLUMNS))
    sizes = np.round(np.exp(rng.uniform(np.log(3), np.log(400), int(rng.integers(2, 6))))).astype(int)
    frame = _people(rng, column, sizes)
    name = str(rng.choice(COMPARED))
    kind = str(rng.choice(["limit", "limit", "change", "same rows"]))
    common = ["--protected", column, "--label", "label", "--prediction", "prediction", "--features", "id"]
    common += ["--gate-on", str(rng.choice(["interval", "point"]))]
    data = shell.write(frame)
    if kind == "limit":
        where = f"[{column}=g & 0]" if name == "true_positive_rate" and column == "race" else ""
        if name == "true_positive_rate" and not where:
            name = "true_positive_rate.max"
        strict, loose = sorted(rng.choice(np.round(np.arange(0.0, 1.05, 0.05), 2), 2, replace=False))
        operator = str(rng.choice([">", ">="] if worse_if_smaller(name) else ["<", "<="]))
        if operator.startswith(">"):
            strict, loose = loose, strict
        texts = [f"{name}{where}{operator}{limit}" for limit in (strict, loose)]
        of, limit = f"{name}{where}", loose
    else:
        name = "accuracy.min" if name == "true_positive_rate" else name
        old = _people(rng, column, sizes)
        if kind == "change":
            shell.run(
                "audit", shell.write(old, "old.parquet"), *common, "--out", f"json={shell.folder}/old.json"
            )
            common += ["--baseline", f"{shell.folder}/old.json"]
        else:
            old["id"] += int(rng.choice([0, 0.3, 0.7], p=[0.4, 0.2, 0.4]) * len(old))
            old[column] = frame[column].reindex(old["id"]).to_numpy()
            both = old[column].notna()
            old = old[both] if both.any() else _people(rng, column, sizes)
            common += ["--baseline", shell.write(old, "old.parquet"), "--id", "id"]
        strict, loose = sorted(rng.choice(np.round(np.arange(0.0, 1.05, 0.05), 2), 2, replace=False))
        smaller = ".ratio" in name or name.endswith(".min")
        texts = [f"{name}.change{'>=-' if smaller else '<='}{limit}" for limit in (strict, loose)]
        of, limit = f"{name}.change", -loose if smaller else loose
    waiver = f'[[waivers]]\ncheck = "{of}"\nreason = "x"\nexpires = {dt.date.max}\nlimit = {limit}\n'
    plain, at_limit = (_judge(shell, (data, *common, "--check", text)) for text in texts)
    found = _judge(shell, (data, *common, "--check", texts[0]), waiver=waiver)
    if plain is None or at_limit is None or found is None:
        return NOT_SAID  # the two files have no row, or nothing that is defined, in common
    wanted = plain["verdict"]
    if wanted != "pass":
        wanted = "waived" if at_limit["verdict"] == "pass" else at_limit["verdict"]
    told = f"{texts[0]} waived to {limit}: {found['verdict']} ({found['reason']}), the law: {wanted}"
    return judged(found["verdict"] == wanted, told)
