"""No explicit setting is overridden in silence: it is used, refused, or said to change nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import fairfix
import joblib
import numpy as np
import pandas as pd
import pytest
from fairfix.data.domain import parameters_of
from fairfix.errors import FairfixError
from fairfix.tasks.request import AuditRequest, CompareRequest, CountRequest, RepairRequest
from sklearn.ensemble import VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from tests.conftest import Call
from tests.strategies import PROFILE

ROWS = 240


def people() -> pd.DataFrame:
    """Return scored people of three groups with a column for each part, and nothing missing."""
    rng = np.random.default_rng(0)
    group, x, z = rng.choice(["a", "b", "c"], ROWS), rng.normal(size=ROWS), rng.normal(size=ROWS)
    score = 1 / (1 + np.exp(-(x + 0.5 * z + 0.4 * (group == "a"))))
    likely = np.where(group == "a", 0.8, 0.2)
    return pd.DataFrame(
        {
            "group": group,
            "sex": rng.choice(["f", "m"], ROWS),
            "x": x,
            "z": z,
            "label": (rng.random(ROWS) < score).astype(int),
            "score": score,
            "other": np.clip(score + 0.1 * rng.normal(size=ROWS), 0, 1),
            "yes": (score > 0.5).astype(int),
            "chance": (0.9 * score).round(2),
            "w": rng.choice([0.5, 1.0, 2.0], ROWS),
            "key": [f"k{i}" for i in range(ROWS)],
            "p_a": likely,
            "p_b": 1 - likely,
        }
    )


NOISE = pd.DataFrame(
    {"true": ["a", "a", "b", "b", "c"], "noisy": ["a", "b", "a", "b", "c"], "count": [90, 10, 8, 92, 50]}
)

VALUES: Mapping[str, Any] = {
    "delimiter": ";",
    "decimal": ",",
    "encoding": "utf-8",
    "header": True,
    "sql": "select * from t limit 200",
    "protected": "sex",
    "label": "yes",
    "score": "other",
    "prediction": "yes",
    "features": ["x"],
    "exclude": ["z"],
    "where": "x > -1",
    "weight": "w",
    "strata": "sex",
    "threshold": 0.3,
    "top": "50",
    "score_scale": "raw",
    "task": "regression",
    "noise": NOISE,
    "bands": {"x": [0]},
    "assume": "class-conditional",
    "seed": 5,
    "confidence": 0.8,
    "check": "dp.difference<=0.01",
    "gate_on": "point",
    "probability": "chance",
    "intersect": True,
    "reference": "a",
    "similar": ["flips", pd.DataFrame({"key": ["k1"], "x": [0.5]})],
    "suppress_below": 100,
    "profile": "ugesp",
    "part": "0:0.5",
    "id": "key",
    "unlabelled": people().drop(columns="label"),
    "group": "used",
    "duplicates": "share",
    "holdout": 0.5,
    "validation": 0.4,
    "guarantee": 0.9,
    "baseline": "other",
    "slacks": [0.03],
    "methods": ["fair-regression"],
    "slices": ["x", "z"],
    "explain_gap": True,
    "slice_metric": "selection_rate",
    "min_rows": 60,
    "always_valid": True,
    "quality": "balanced_accuracy",
    "private": "1",
}
"""Parameter -> a value that is not its default."""

OTHERWISE: Mapping[str, str] = {
    "data": "it is the data itself",
    "model": "the contexts have it",
    "trust_model": "it is of the file of the model",
    "method": "the contexts have it",
    "count": "it says how many people rows are: tests/test_data/test_people.py",
    "merge": "it says which names are one: tests/test_tasks/test_merge.py",
    "threads": "it changes no number, by design",
    "cluster": "it changes no number, by design",
    "missing": "of rows with gaps, and there are none",
    "of": "it is about decisions of an artifact: tests/test_tasks/test_renewal.py",
    "state": "it is a file that each run adds to: tests/test_auditing/test_state.py",
    "unseen": "it is kept in the artifact, for rows to come",
}
"""Parameters that are not in the law, and why."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with three model files, a database and counts of the people."""
    place, data = tmp_path_factory.mktemp("explicit"), people()
    X, y = data[["x", "z"]], data["label"]
    models = {
        "proba": LogisticRegression(),
        "raw": LinearSVC(),
        "decision": VotingClassifier([("a", LogisticRegression()), ("b", LinearSVC())]),
    }
    for name, model in models.items():
        joblib.dump(model.fit(X, y), place / f"{name}.joblib")
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(place / "people.duckdb")) as database:
        database.register("rows", data)
        database.execute("create table t as select * from rows")
    fairfix.count(data, protected="group").save(place / "people.counts")
    return place


def model(folder: Path, name: str) -> dict[str, Any]:
    """Return the parameters of a model file."""
    path = folder / f"{name}.joblib"
    return {"model": str(path), "trust_model": "sha256:" + sha256(path.read_bytes()).hexdigest()}


ROLES = {"protected": "group", "label": "label"}
CONTEXTS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "audit": ("audit", {}),
    "audit of decisions": ("audit", {"data": people().drop(columns="score"), "prediction": "yes"}),
    "audit of probabilities": ("audit", {"model": "proba"}),
    "audit of margins": ("audit", {"model": "raw"}),
    "audit of a classifier": ("audit", {"model": "decision"}),
    "audit of counts": ("audit", {"data": "{}/people.counts"}),
    "audit of a database": ("audit", {"data": "duckdb://{}/people.duckdb#t"}),
    "ramp": ("repair", {"method": "ramp"}),
    "ramp of margins": ("repair", {"method": "ramp", "threshold": 0.1, "model": "raw"}),
    "ramp of counts": ("repair", {"data": "{}/people.counts", "method": "ramp"}),
    "logloss": ("repair", {"method": "logloss", "features": ["x", "z"]}),
    "fair-regression": ("repair", {"method": "fair-regression"}),
    "sensei": ("repair", {"method": "sensei", "features": ["x", "z"]}),
    "robust": ("repair", {"method": "robust", "noise": NOISE}),
    "compare": ("compare", {"methods": "ramp", "slacks": 0.05}),
    "compare of models": ("compare", {"baseline": "other"}),
}
"""A function, and what it is given beside the people, their group and their label."""

KINDS: Mapping[str, type] = {"audit": AuditRequest, "repair": RepairRequest, "compare": CompareRequest}


def given_in(context: str, folder: Path) -> dict[str, Any]:
    """Return the parameters of a context, with the files of a folder."""
    given = {"data": people(), **ROLES, **CONTEXTS[context][1]}
    if isinstance(given["data"], str):
        given["data"] = given["data"].format(folder)
    if "counts" in context:
        given = {name: value for name, value in given.items() if name not in ROLES}
    return {**given, **(model(folder, given["model"]) if "model" in given else {})}


SLOW = ("robust", "compare", "fair-regression", "logloss", "sensei")
"""Contexts that fit for a while: a pull request tries every other parameter, not the same ones in all of them."""


def outcome(function: Callable[..., Any], given: Mapping[str, Any]) -> str | None:
    """Return what a run says, None where it is refused."""
    try:
        return json.dumps(function(**given).to_dict(), default=str, sort_keys=True)
    except FairfixError:
        return None


def test_every_parameter_is_in_the_law() -> None:
    """A new parameter gets a value here, or a reason why it has none."""
    for kind in (AuditRequest, RepairRequest, CompareRequest, CountRequest):
        assert set(parameters_of(kind)) <= VALUES.keys() | OTHERWISE.keys()
    assert not VALUES.keys() & OTHERWISE.keys()


@pytest.mark.slow
@pytest.mark.parametrize("context", CONTEXTS)
def test_an_explicit_setting_is_used_or_refused_or_said_to_be_unused(
    context: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What is given changes what comes out, be it by a note that it changes nothing, or the run is refused."""
    name = CONTEXTS[context][0]
    function, kind, given = getattr(fairfix, name), KINDS[name], given_in(context, folder)
    plain = outcome(function, given)
    assert plain is not None

    values = {**VALUES, "score_scale": "logit"} if "margins" in context else VALUES
    ignored = []
    asked = [name for name in parameters_of(kind) if name not in OTHERWISE]
    if PROFILE == "project" and context in SLOW:
        asked = asked[SLOW.index(context) % 2 :: 2]
    for name in asked:
        if name in given and given[name] is values[name]:
            continue
        caplog.clear()
        with caplog.at_level("INFO", "fairfix"):
            same = outcome(function, {**given, name: values[name]}) == plain
        if same and f"note: `{name}` changes nothing here" not in caplog.text:
            ignored.append(name)
    assert not ignored


@pytest.mark.parametrize("scale", ["probability", "percent", "margin", "logit", "raw"])
def test_the_scale_of_margins_is_the_one_that_is_said(scale: str, folder: Path) -> None:
    """Margins are read as is said, be it the default, or refused where they cannot be that; unsaid they are raw."""
    given = {"data": people(), **ROLES, **model(folder, "raw")}
    said = outcome(fairfix.audit, {**given, "score_scale": scale})

    if said is None:
        assert scale in ("probability", "percent", "margin")
    else:
        assert json.loads(said)["settings"]["score_scale"] == scale
    assert fairfix.audit(**given).to_dict()["settings"]["score_scale"] == "raw"


@pytest.mark.parametrize("kind", ["proba", "decision"])
def test_what_a_model_file_gives_has_no_other_scale(kind: str, folder: Path) -> None:
    """A model that gives probabilities, or decisions, is read as that; another scale is refused by name."""
    given = {"data": people(), **ROLES, **model(folder, kind)}
    with pytest.raises(FairfixError, match="`score_scale=logit`"):
        fairfix.audit(**given, score_scale="logit")
    assert fairfix.audit(**given, score_scale="probability").content == fairfix.audit(**given).content


def test_margins_that_are_log_odds_are_repaired_and_predicted_as_such(folder: Path) -> None:
    """The scale that was said for the model file is kept in the artifact."""
    given = {"data": people(), **ROLES, **model(folder, "raw"), "method": "ramp"}
    made = fairfix.repair(**given, score_scale="logit")
    assert made.to_dict()["settings"]["score_scale"] == "logit"
    told = fairfix.predict(made.repaired, people(), **model(folder, "raw"))
    chance = told["p_positive"].to_numpy()
    assert ((chance >= 0) & (chance <= 1)).all()
    assert len(np.unique(chance)) > 2


def test_a_setting_of_the_configuration_may_be_for_other_commands(call: Call, tmp_path: Path) -> None:
    """What a shared configuration says is not noted where it changes nothing; on the command line it is."""
    people().to_csv(tmp_path / "people.csv", index=False)
    (tmp_path / "fairfix.toml").write_text('protected = "group"\nid = "key"\nfeatures = ["x"]\n')
    command = (
        "audit",
        str(tmp_path / "people.csv"),
        "--config",
        str(tmp_path / "fairfix.toml"),
        "--format",
        "json",
    )

    out = call.ran(*command)
    assert "messages" not in json.loads(out)
    _, out, _ = call(*command, "--id", "key")
    assert [one["code"] for one in json.loads(out)["messages"]] == ["unused"]
