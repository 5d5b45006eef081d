"""Originals: valid files of every kind that fairfix reads, each with how it is changed and who reads it."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial
from pathlib import Path
from typing import Any

import fairfix
import joblib
import numpy as np
import pandas as pd
import skl2onnx
import skops.io
from fairfix.auditing.countfile import Batch, Piece, count
from fairfix.auditing.disclosure import with_noise
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.files import file_hash
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from tests.data import below, people
from tests.fuzz import mutators
from tests.fuzz.mutators import Rng

Change = Callable[[Rng, bytes], tuple[bytes, str]]

SCORED = ("--label", "label", "--score", "score")
FEATURES = ["town", "real", "yes"]


@cache
def rows() -> pd.DataFrame:
    """Rows of all that the files speak of, with gaps in a feature."""
    frame = people(240, 3, shares=(0.5, 0.35, 0.15))
    frame["yes"] = frame["yes"].astype(bool)
    frame.loc[::17, "real"] = np.nan
    frame["decision_before"] = (frame["score"] > 0.5).astype(int)
    frame["seen"] = np.where(np.arange(240) % 9 == 0, "b", frame["race"])
    return frame


@dataclass(frozen=True, eq=False)
class Original:
    """A valid file, the way in which it is changed, and the commands that read it."""

    kind: str
    name: str
    file: str
    """What it is called where it is read."""
    make: Callable[[Path], bytes]
    """Makes its content; the folder has what else is needed."""
    change: Change
    commands: Sequence[Sequence[str]]


def _saved(repaired: Any, folder: Path) -> bytes:
    path = folder / "made.fairfix"
    (repaired if hasattr(repaired, "data_spec") else repaired.repaired).save(path)
    return _taken(path)


def _taken(path: Path) -> bytes:
    content = path.read_bytes()
    path.unlink()
    return content


# ---------------------------------------------------------------------- artifacts

REPAIRS: dict[str, dict[str, Any]] = {
    "ramp": {"method": "ramp", "score_scale": "percent"},
    "crossed ramp": {"method": "ramp", "protected": ["race", "sex"]},
    "ramp of bands": {"method": "ramp", "protected": "p", "bands": "p=0.3,0.7"},
    "recalibrated curves": {"method": "ramp", "constraint": "equal_opportunity", "calibrate": "sigmoid"},
    "bins of counts": {"method": "ramp", "gamma": 0.8},
    "tube": {"method": "fair-regression", "group": "used"},
    "plug-in rule": {"method": "fair-regression", "slack": 0.05},
    "truncated logit": {"method": "logloss", "slack": 0.02, "features": FEATURES},
    "estimated logit": {"method": "logloss", "constraint": "equal_opportunity", "features": FEATURES},
    "logit of splines": {"method": "logloss", "learner": "linear(basis=splines)", "features": FEATURES},
    "logit of trees": {"method": "logloss", "learner": "linear(basis=trees)", "features": FEATURES},
    "curve for everybody": {
        "method": "robust",
        "solver": "ideal",
        "assume": "radii",
        "noise": {"radius": {"a": 0.1, "b": 0.1, "c": 0.2}},
    },
    "linear model": {"method": "sensei", "features": FEATURES},
    "trees": {"method": "sensei", "features": FEATURES},
    "network": {"method": "sensei", "solver": "regularizer", "learner": "network", "features": FEATURES},
    "blind rule": {"method": "sensei", "solver": "equal-rates", "features": FEATURES},
    "values": {
        "method": "fair-regression",
        "task": "regression",
        "label": "real",
        "score": "raw",
        "missing": "drop",
    },
    "of a model": {"method": "ramp", "model": "model.skops", "score": None},
    "averaged model": {"method": "sensei", "solver": "average", "model": "model.skops", "score": None},
}


def _artifact(name: str) -> Callable[[Path], bytes]:
    def make(folder: Path) -> bytes:
        given: dict[str, Any] = {
            "protected": "race",
            "label": "label",
            "score": "score",
            "id": "id",
            "seed": 1,
        }
        given |= REPAIRS[name]
        if given.get("model"):
            given["model"] = str(folder / given["model"])
        if name == "averaged model":
            given["protected"] = "yes"
        given = {key: value for key, value in given.items() if value is not None}
        if name == "bins of counts":
            counted = count(rows(), DataSpec(ColumnRoles(("race",), label="label", score="score")))
            return _saved(fairfix.repair(counted, **given), folder)
        frame = rows()
        if given.get("score_scale") == "percent":
            frame = frame.assign(score=frame["score"] * 100)
        made = fairfix.repair(frame, **given).repaired
        return _saved(made if name != "trees" else _grown(made), folder)

    return make


def _grown(made: Any) -> Any:
    """Return a repair of a linear model with a few trees in its place."""
    from dataclasses import replace

    import pyarrow as pa
    from fairfix.data.table import assemble
    from fairfix.models.tree_arrays import of_histograms

    scorer = made.predictor.models[0]
    X = scorer.features.matrix(assemble(pa.Table.from_pandas(rows()).to_batches(), made.data_spec), gaps=True)
    model = HistGradientBoostingClassifier(max_iter=5, random_state=0).fit(X, rows()["label"])
    grown = replace(scorer, member=of_histograms(model, "sigmoid"))
    facts = {part: entry for part, entry in made.facts.items() if part != "vectors"}
    return replace(made, predictor=replace(made.predictor, models=(grown,)), facts=facts)


def _of_artifact(name: str) -> Original:
    model = ("--model", "../model.skops") if "model" in REPAIRS[name] else ()
    data = "../percent.parquet" if name == "ramp" else "../data.parquet"
    predict = ("predict", "FILE", data, *model)
    return Original(
        "artifact",
        name,
        "changed.fairfix",
        _artifact(name),
        mutators.change_sealed,
        (
            ("inspect", "FILE"),
            ("inspect", "FILE", "--format", "json"),
            (*predict, "-o", "out.parquet"),
            (*predict, "-o", "out.csv", "--missing", "abstain", "--unseen", "abstain"),
            ("export", "FILE", "--to", "json", "-o", "out.json"),
            ("export", "FILE", "--to", "python", "-o", "out.py"),
            ("export", "FILE", "--to", "sql", "--dialect", "duckdb", "-o", "out.sql"),
            ("export", "FILE", "--to", "onnx", "-o", "out.onnx"),
        ),
    )


# ---------------------------------------------------------------------- counts

COUNTED: Mapping[str, DataSpec] = {
    "scores": DataSpec(ColumnRoles(("race", "sex"), label="label", score="score"), thresholds=(0.3, 0.5)),
    "decisions": DataSpec(
        ColumnRoles(("race",), label="label", prediction="decision_before", weight="weight", strata=("town",))
    ),
    "raw scores": DataSpec(
        ColumnRoles(("race",), label="label", score="raw", weight="weight"),
        score_scale="raw",
        thresholds=(0.0,),
    ),
    "bands": DataSpec(
        ColumnRoles(("p",), label="label", score="score"), bands={"p": (0.3, 0.7)}, thresholds=(0.5,)
    ),
    "regression": DataSpec(
        ColumnRoles(("race",), label="real", score="raw"), task="regression", missing_rows="drop"
    ),
}


def _counted(name: str) -> Callable[[Path], bytes]:
    def make(folder: Path) -> bytes:
        path = folder / "made.counts"
        counts = count(rows(), COUNTED[name.removeprefix("private ").removeprefix("state of ")])
        if name.startswith("private "):
            counts = with_noise(counts, Fraction(1, 2), below(0))
        if name.startswith("state of "):
            batches = [Batch(one, f"2026-05-0{i + 1}T12:00:00+00:00", one) for i, one in enumerate("ab")]
            counts = replace(counts, pieces=2 * (Piece.of(counts.counts()),), batches=tuple(batches))
        counts.save(path)
        return _taken(path)

    return make


def _of_counts(name: str) -> Original:
    data_spec = COUNTED[name.removeprefix("private ").removeprefix("state of ")]
    fit = ("repair", "FILE", "--method", "ramp", "--protected", data_spec.columns.protected[0])
    prove = ("repair", f"../{name}.counts", "--holdout", "FILE", *fit[2:])
    audit, hiding = ("audit", "FILE"), ("--suppress-below", "20")
    return Original(
        "counts",
        name,
        "changed.counts",
        _counted(name),
        mutators.change_sealed,
        (
            ("inspect", "FILE"),
            ("inspect", "FILE", "--format", "json"),
            ("count", "FILE", f"../{name}.counts", "-o", "out.counts"),
            (*audit, "--format", "json"),
            (*audit, "--detail"),
            *([(*audit, "--always-valid", "--format", "html")] if name.startswith("state of ") else []),
            (*audit, *(() if name.startswith("private ") else hiding), "--check", "dp.difference<=0.3"),
            (*audit, "--format", "html"),
            *((*one, "-o", "out.fairfix") for one in (fit, prove) if name in ("scores", "bands")),
        ),
    )


# ---------------------------------------------------------------------- noise


def _noise(by_label: bool = False) -> pd.DataFrame:
    pairs = [(true, noisy) for true in "abc" for noisy in "abc"]
    frame = pd.DataFrame(pairs, columns=["true", "noisy"])
    frame["count"] = [90 if true == noisy else 5 for true, noisy in pairs]
    return frame if not by_label else pd.concat([frame.assign(label=0), frame.assign(label=1)])


AUDIT = ("audit", "../data.parquet", "--protected", "race", *SCORED, "--threshold", "0.5")


def _of_noise(name: str) -> Original:
    frame = _noise(by_label=name == "by label")
    if name == "probabilities":
        frame = frame.assign(probability=frame["count"] / 300).drop(columns="count")
    audit = (*AUDIT, "--noise", "FILE")
    commands = [(*audit, "--format", "json"), (*AUDIT, "--noise", "FILE(keep=noisy-given-true)")]
    if name == "persons":
        frame = rows()[["race", "seen"]]
        commands = [(*AUDIT, "--noise", "FILE(true=race,recorded=seen)", "--format", "json")]
    return Original(
        "noise",
        name,
        "changed.csv",
        lambda _: frame.to_csv(index=False).encode(),
        mutators.change_csv,
        commands,
    )


# ---------------------------------------------------------------------- models


@cache
def model() -> Any:
    """A model of columns without gaps."""
    return LogisticRegression().fit(rows()[["p", "weight", "yes"]].astype(float), rows()["label"])


def _skops(folder: Path) -> bytes:
    path = folder / "made.skops"
    skops.io.dump(model(), path)
    return _taken(path)


def _joblib(folder: Path) -> bytes:
    path = folder / "made.joblib"
    joblib.dump(model(), path)
    return _taken(path)


def _onnx(_: Path) -> bytes:
    made = skl2onnx.to_onnx(
        model(), rows()[["p", "weight", "yes"]].to_numpy(np.float32), options={"zipmap": False}
    )
    return bytes(made.SerializeToString())


def _of_model(name: str) -> Original:
    make, change = {
        "skops": (_skops, mutators.change_skops),
        "onnx": (_onnx, mutators.change_onnx),
        "joblib": (_joblib, mutators.change_bytes),
    }[name]
    audit = ("audit", "../data.parquet", "--protected", "race", "--label", "label", "--model", "FILE")
    columns = ("--features", "p,weight,yes") if name == "onnx" else ()
    commands = (
        (*audit, *columns, "--format", "json"),
        (*audit, *columns, "--trust-model", "HASH", "--format", "json"),
    )
    return Original("model", name, f"changed.{name}", make, change, commands)


# ---------------------------------------------------------------------- saved results

RESULTS: Mapping[str, Callable[..., Any]] = {
    "audit": partial(fairfix.audit, check=["dp.difference<=0.1", "ks<=0.2"]),
    "slices": partial(fairfix.audit, slices=["town", "yes"]),
    "parts of a gap": partial(fairfix.audit, explain_gap=True, features=["real", "yes"], missing="drop"),
    "classes": partial(fairfix.audit, score=None, label="town", prediction="product", task="multiclass"),
    "repair": partial(fairfix.repair, method="ramp", slack=0.05, check="dp.difference<=0.1"),
    "comparison": partial(fairfix.compare, methods="ramp", slacks=[0.05, 0.2]),
    "two models": partial(fairfix.compare, baseline="p"),
}
FORMATS = ("text", "html", "markdown", "csv", "json", "github", "junit", "sarif")
"""Formats of reports; comparisons have no checks, and the first five."""


def _of_result(name: str) -> Original:
    def make(_: Path) -> bytes:
        given = {"protected": "race", "label": "label", "score": "score"} | RESULTS[name].keywords
        frame = rows().assign(product=rows()["product"].map({"car": "north", "home": "south"}))
        return RESULTS[name].func(frame, **given).to_json().encode()

    commands = [
        ("report", "FILE", "--format", one)
        for one in FORMATS[: 5 if name.startswith(("comp", "two")) else None]
    ]
    return Original("result", name, "changed.json", make, mutators.change_json, commands)


# ---------------------------------------------------------------------- all

ORIGINALS: tuple[Original, ...] = (
    *map(_of_artifact, REPAIRS),
    *map(_of_counts, (*COUNTED, "private scores", "state of scores")),
    *map(_of_noise, ("counts", "by label", "probabilities", "persons")),
    *map(_of_model, ("skops", "onnx", "joblib")),
    *map(_of_result, RESULTS),
)


@contextmanager
def quiet() -> Iterator[None]:
    """Let what is made here say nothing: few rows give many warnings."""
    with redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@cache
def content_of(original: Original, folder: Path) -> bytes:
    """Return the content of an original; made once, and nothing is said of how."""
    with quiet():
        return original.make(folder)


def furnish(folder: Path) -> None:
    """Put what the commands read beside the changed file into a folder."""
    frame = rows()
    frame.to_parquet(folder / "data.parquet")
    frame.assign(score=frame["score"] * 100).to_parquet(folder / "percent.parquet")
    (folder / "model.skops").write_bytes(_skops(folder))
    for name, data_spec in COUNTED.items():
        count(frame, data_spec).save(folder / f"{name}.counts")
    with quiet():
        (folder / "ramp.fairfix").write_bytes(_artifact("ramp")(folder))


def line_of(command: Sequence[str], path: Path) -> list[str]:
    """Return the arguments of a command that reads a file."""
    words = {"FILE": path.name, "HASH": ""}
    if "HASH" in command:
        words["HASH"] = file_hash(path)
    return [words.get(word, path.name + word[4:] if word.startswith("FILE(") else word) for word in command]
