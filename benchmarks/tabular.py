"""Real data with scores of trained classifiers: Adult and credit default, split and scored by seed.

The files are looked for in the folder that ``FAIRFIX_DATA_DIR`` names, else in ``../shared/data`` beside the
repository. They are not part of it.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from peers import Floats, Ints, Rows

FOLDER = "FAIRFIX_DATA_DIR"
HERE = Path(__file__).resolve().parent
SHARES = {"train": 0.4, "post": 0.2, "validation": 0.2, "test": 0.2}

CLASSIFIERS: Mapping[str, Callable[[int], Any]] = {
    "RF": lambda seed: RandomForestClassifier(100, max_depth=10, n_jobs=2, random_state=seed),
    "kNN": lambda seed: KNeighborsClassifier(10, n_jobs=2),
    "MLP": lambda seed: MLPClassifier((128,), early_stopping=True, random_state=seed),
    "LR": lambda seed: LogisticRegression(max_iter=300),
    "LR CV": lambda seed: GridSearchCV(
        LogisticRegression(solver="newton-cholesky"),
        {"C": np.geomspace(1e-3, 10, 5)},
        scoring="neg_log_loss",
        cv=StratifiedKFold(5, shuffle=True, random_state=seed),
    ),
}
"""Random forest of depth 10, 10 nearest neighbours, one layer of 128, logistic regression, the same with its penalty by
cross-validation; features standardised."""


@dataclass(frozen=True)
class Source:
    """A data set: features, label 0/1 and sex 0/1, shape (n, d), (n,) and (n,); ``biased`` thins the training rows."""

    name: str
    features: Floats
    label: Ints
    sex: Ints
    biased: bool


def folder() -> Path | None:
    """Return where the data are, None if nowhere."""
    named = os.environ.get(FOLDER)
    place = Path(named) if named else HERE.parents[1] / "shared" / "data"
    return place if place.is_dir() else None


def adult(path: Path) -> Source:
    """Return Adult: income above 50K, sex; all features, categories as indicators, without the census weight."""
    frame = pd.read_parquet(path)
    features = pd.get_dummies(frame.drop(columns=["income", "fnlwgt"]), dummy_na=True, dtype=float)
    return Source("Adult", *_arrays(features, frame["income"], frame["sex"] == "Male"), biased=False)


def credit(path: Path) -> Source:
    """Return credit default: default next month, sex; trained on rows of which half of those with label != sex went."""
    frame = pd.read_parquet(path)
    codes = ["SEX", "EDUCATION", "MARRIAGE"]
    features = pd.get_dummies(frame.drop(columns="default").astype(dict.fromkeys(codes, str)), dtype=float)
    return Source("credit", *_arrays(features, frame["default"], frame["SEX"] == 2), biased=True)


def _arrays(features: pd.DataFrame, label: pd.Series, sex: pd.Series) -> tuple[Floats, Ints, Ints]:
    return features.to_numpy(np.float64), label.to_numpy(np.int64), sex.to_numpy(np.int64)


READERS: Mapping[str, Callable[[Path], Source]] = {"adult": adult, "credit_default": credit}


def present(files: Mapping[str, str]) -> tuple[dict[str, Path], list[str]]:
    """Return name -> path of the data sets whose files are in the folder, and a line for each other."""
    place = folder() or Path()
    paths = {name: place / f"{file}.parquet" for name, file in files.items()}
    found = {name: path for name, path in paths.items() if path.exists()}
    return found, [
        f"{path.name} is not in the data folder: skipped." for path in paths.values() if not path.exists()
    ]


def sources() -> tuple[list[Source], list[str]]:
    """Return the data sets that are there, and a line for each that is not."""
    found, missing = present({name: name for name in READERS})
    return [READERS[name](path) for name, path in found.items()], missing


@dataclass(frozen=True)
class Scored:
    """Rows for the repair, for choosing, and for judging, scored by a classifier trained on other rows."""

    post: Rows
    validation: Rows
    test: Rows


def split(source: Source, seed: int) -> dict[str, Ints]:
    """Return row numbers of the four parts, drawn anew for each seed; the biased training rows are thinned."""
    rng = np.random.default_rng([seed, source.label.size])
    ends = np.cumsum([round(share * source.label.size) for share in SHARES.values()])[:-1]
    parts = dict(zip(SHARES, np.split(rng.permutation(source.label.size), ends), strict=True))
    if source.biased:
        train = parts["train"]
        unlike = source.label[train] != source.sex[train]
        parts["train"] = train[~unlike | (rng.random(train.size) < 0.5)]
    return parts


def scored(source: Source, classifier: str, seed: int) -> Scored:
    """Train on one part and score the others."""
    parts = split(source, seed)
    model = make_pipeline(StandardScaler(), CLASSIFIERS[classifier](seed))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(source.features[parts["train"]], source.label[parts["train"]])

    def rows(name: str) -> Rows:
        at: npt.NDArray[np.int64] = parts[name]
        score = model.predict_proba(source.features[at])[:, 1]
        return Rows(score.astype(np.float64), source.label[at], source.sex[at])

    return Scored(rows("post"), rows("validation"), rows("test"))
