"""Individual fairness of labels of many classes: ``benchmarks/sensei_classes.py [SPLITS]``.

The occupation in Adult, 14 classes, from six features and sex: what a person's class changes to if the sex does, and
the gaps of true positive rates over classes, root mean square (RMS) and mean (ABS) as in the paper's experiment on
biographies, on held-out rows, through :func:`fairfix.repair`.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import fairfix
import numpy as np
from threadpoolctl import threadpool_limits

from tabular import folder

SPLITS = 3
FEATURES = ["age", "education_num", "marital_status", "relationship", "workclass", "hours_per_week"]

RULES: dict[str, dict[str, Any]] = {
    "merge, linear": {"solver": "merge"},
    "merge, trees": {"solver": "merge", "learner": "trees"},
    "linear, rho inf": {"solver": "regularizer", "rho": math.inf, "group": "used"},
    "network, rho 0": {"solver": "regularizer", "learner": "network(hidden=50)", "rho": 0.0, "group": "used"},
    "network, rho 10": {
        "solver": "regularizer",
        "learner": "network(hidden=50)",
        "rho": 10.0,
        "group": "used",
    },
}

COLUMNS = {
    "accuracy": "accuracy",
    "class changes with sex": "decision_flips.under_flips",
    "TPR gap, RMS": "true_positive_rate.difference.rms_of_classes",
    "TPR gap, ABS": "true_positive_rate.difference.mean_of_classes",
}
"""Head of a column -> what it is in a proof."""


def judged(rule: dict[str, Any], seed: int, path: str) -> tuple[list[float], list[float], float]:
    """Return the numbers of a logistic regression and of a rule on held-out rows, and the rule's CPU seconds."""
    begin = time.process_time()
    done = fairfix.repair(
        path,
        method="sensei",
        task="multiclass",
        label="occupation",
        missing="drop",
        protected="sex",
        features=FEATURES,
        seed=seed,
        output=str(Path(tempfile.gettempdir()) / "classes.fairfix"),
        **rule,
    ).to_dict()
    spent = time.process_time() - begin
    rows = {row["id"]: row for row in done["proof"]["holdout"]["table"]}
    before, after = (
        [rows[name][at]["value"] if name in rows else math.nan for name in COLUMNS.values()]
        for at in ("before", "after")
    )
    return before, after, spent


def main() -> None:
    """Print the table."""
    splits, place = int(sys.argv[1]) if len(sys.argv) > 1 else SPLITS, folder()
    assert place is not None
    path = str(place / "adult.parquet")
    print("### Labels of many classes\n")
    print(
        f"Occupation in Adult, 14 classes, held-out rows of {splits} splits. No biographies are among the data, so the "
        "paper's own figures are not set beside these.\n"
    )
    print(f"| rule | {' | '.join(COLUMNS)} | CPU s |\n|---|{'---|' * (len(COLUMNS) + 1)}")
    with threadpool_limits(1):
        for name, rule in RULES.items():
            found = [judged(rule, seed, path) for seed in range(splits)]
            before, after = (np.mean([one[at] for one in found], axis=0) for at in (0, 1))
            if name == "linear, rho inf":
                cells = " | ".join(f"{value:.3f}" for value in before)
                print(f"| logistic regression that sees sex | {cells} | |")
            cells = " | ".join(f"{value:.3f}" for value in after)
            print(f"| {name} | {cells} | {np.mean([one[2] for one in found]):.1f} |", flush=True)


if __name__ == "__main__":
    main()
