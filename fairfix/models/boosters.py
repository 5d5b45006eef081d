"""Boosters of LightGBM, XGBoost and CatBoost: as estimators, and with their categories restored.

A booster knows a category by its place among the levels of the fit. A CSV file has texts, and a frame may have levels
of its own, so :func:`restored` gives a column the levels that the booster keeps. Where it keeps none, the column is
refused by its name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from fairfix.data.canonical import canonical
from fairfix.errors import ColumnError, ModelError

if TYPE_CHECKING:
    import pandas as pd

SHOWN: Final = 10
"""Levels that a message lists."""


@dataclass(frozen=True, eq=False)
class BoosterModel:
    """A booster as an estimator that predicts numbers; ``feature_names_in_`` is None where it has no names."""

    booster: Any
    predict: Callable[[Any], Any]
    """Rows -> the number of each, or probabilities: of the second class, shape (n,), or of all classes, (n, K)."""
    feature_names_in_: tuple[str, ...] | None
    n_features_in_: int


@dataclass(frozen=True, eq=False)
class BoosterClassifier(BoosterModel):
    """A booster as an estimator that gives probabilities of classes."""

    classes_: tuple[Any, ...]

    def predict_proba(self, X: Any) -> Any:
        """Return the probabilities of every row."""
        return self.predict(X)


def adapted(model: Any) -> Any:
    """Return a booster as an estimator; any other model as it is."""
    names = _names(model)
    if "lightgbm.basic.Booster" in names:
        head = lightgbm_head(model)
        return _made(
            model,
            model.predict,
            model.feature_name(),
            model.num_feature(),
            {"binary": 2, "cross_entropy": 2, "multiclass": 0, "multiclassova": 0},
            head.get("objective", "").partition(" ")[0],
            int(head.get("num_class", 1)),
        )
    if "xgboost.core.Booster" in names:
        learner = json.loads(model.save_config())["learner"]
        return _made(
            model,
            partial(_ask_xgboost, model),
            model.feature_names,
            model.num_features(),
            {"binary:logistic": 2, "reg:logistic": 2, "multi:softprob": 0},
            learner["objective"]["name"],
            int(learner["learner_model_param"]["num_class"]),
        )
    if "catboost.core.CatBoost" in names and not hasattr(model, "predict_proba"):
        loss = str(model.get_all_params().get("loss_function")) if model.is_fitted() else ""
        classes = tuple(one.item() if isinstance(one, np.generic) else one for one in model.classes_)
        if loss in ("Logloss", "CrossEntropy", "MultiClass", "MultiClassOneVsAll"):
            own = tuple(model.feature_names_)
            ask = partial(model.predict, prediction_type="Probability")
            return BoosterClassifier(model, ask, own, len(own), classes or (0, 1))
    return model


def _made(
    model: Any,
    ask: Callable[[Any], Any],
    names: Any,
    width: int,
    classes: Mapping[str, int],
    objective: str,
    many: int,
) -> Any:
    """Return the estimator of a booster; ``classes`` has the objectives of classes, with 0 for many of them."""
    own = tuple(map(str, names)) if names else None
    if objective not in classes:
        return BoosterModel(model, ask, own, int(width))
    return BoosterClassifier(model, ask, own, int(width), tuple(range(classes[objective] or many)))


def _ask_xgboost(booster: Any, rows: Any) -> Any:
    made = import_module("xgboost").DMatrix
    if hasattr(rows, "columns"):
        return booster.predict(made(rows, enable_categorical=True))
    names, kinds = booster.feature_names, booster.feature_types
    return booster.predict(made(rows, feature_names=names, feature_types=kinds))


def _names(model: Any) -> set[str]:
    """Return the names of a model's classes, with their modules."""
    return {f"{kind.__module__}.{kind.__name__}" for kind in type(model).__mro__}


def booster_of(model: Any) -> tuple[str, Any]:
    """Return (library, booster) of a fitted model of LightGBM or XGBoost; ("", None) of any other."""
    if isinstance(model, BoosterModel):
        model = model.booster
    names = _names(model)
    if "lightgbm.basic.Booster" in names:
        return "lightgbm", model
    if "xgboost.core.Booster" in names:
        return "xgboost", model
    if "lightgbm.sklearn.LGBMModel" in names:
        return "lightgbm", model.booster_
    if "xgboost.sklearn.XGBModel" in names:
        return "xgboost", model.get_booster()
    return "", None


def lightgbm_head(booster: Any) -> dict[str, str]:
    """Return the entries before the first tree in the text of a booster of LightGBM."""
    lines = booster.model_to_string(num_iteration=1).split("\nTree=")[0].splitlines()
    return {name: value for name, sign, value in (line.partition("=") for line in lines) if sign}


def restored(model: Any, frame: pd.DataFrame, names: tuple[str, ...]) -> pd.DataFrame:
    """Return a frame whose columns are as a booster saw them in its fit; that of any other model is as it is.

    Parameters
    ----------
    model
        The estimator that will be asked.
    frame
        Its features, by its own names.
    names
        What the data calls them, for messages.

    Raises
    ------
    ColumnError
        A column holds a text that the booster knows as a number, or a category that XGBoost was not fitted on.
    ModelError
        The booster keeps no levels of a column of texts.
    """
    library, booster = booster_of(model)
    if not library:
        return frame
    kept = _levels_of_lightgbm(booster, frame) if library == "lightgbm" else _levels_of_xgboost(booster)
    changed: dict[str, Any] = {}
    for own, name in zip(frame.columns, names, strict=True):
        column = frame[own]
        levels = kept.get(own, ())
        if levels is None:
            if str(column.dtype) != "category":
                raise ModelError(
                    f"column {name!r}: the model takes categories and keeps no levels of them, as XGBoost before 3.1 "
                    "did not; give a frame in which the column has the categories of the fit, or save the model with "
                    "a newer XGBoost"
                )
        elif levels:
            changed[own] = _with_levels(column, levels, name, strict=library == "xgboost")
        elif (number := _as_number(column, name)) is not column:
            changed[own] = number
    return frame.assign(**changed) if changed else frame


def _levels_of_lightgbm(booster: Any, frame: pd.DataFrame) -> dict[str, tuple[Any, ...] | None]:
    """Return the levels of the columns that were categorical in pandas, by name."""
    kept = booster.pandas_categorical or []
    if not kept:
        return {}
    ranges = lightgbm_head(booster).get("feature_infos", "").split(" ")
    infos = dict(zip(frame.columns, ranges, strict=True))
    columns = [name for name, info in infos.items() if info != "none" and not info.startswith("[")]
    if len(columns) != len(kept):  # integers may be categories too, and a column of one level has no range
        able = {*columns, *(name for name, info in infos.items() if info == "none")}
        columns = [name for name in frame if name in able and not _is_number(frame[name])]
    if len(columns) != len(kept):
        raise ModelError(
            f"the model was fitted with {len(kept)} categorical columns, and {len(columns)} columns of the data can be "
            "them; give a frame in which they have the type category"
        )
    return {name: tuple(levels) for name, levels in zip(columns, kept, strict=True)}


def _levels_of_xgboost(booster: Any) -> dict[str, tuple[Any, ...] | None]:
    """Return the levels of categorical columns by name; None where the booster keeps none."""
    kinds, names = booster.feature_types or [], booster.feature_names or []
    columns = [name for name, kind in zip(names, kinds, strict=False) if kind == "c"]
    if not columns:
        return {}
    kept = (
        booster.get_categories(export_to_arrow=True).to_arrow() if hasattr(booster, "get_categories") else []
    )
    held = {name: tuple(levels.to_pylist()) for name, levels in kept or () if levels is not None}
    return {name: held.get(name) or None for name in columns}


def _with_levels(column: pd.Series[Any], levels: tuple[Any, ...], name: str, *, strict: bool) -> Any:
    """Return a column as a categorical one with the levels of a fit; without ``strict``, other entries are missing."""
    import pandas as pd

    if str(column.dtype) == "category":
        codes, entries = column.cat.codes.to_numpy(), list(column.cat.categories)
    else:
        codes, uniques = pd.factorize(column)
        entries = list(uniques)
    index = {canonical(level): i for i, level in enumerate(levels)}
    places = np.array([*(index.get(canonical(entry), -1) for entry in entries), -1], dtype=np.int64)
    strange = np.unique(codes[(places[codes] < 0) & (codes >= 0)])
    if strict and strange.size:
        more = ", ..." if len(levels) > SHOWN else ""
        raise ColumnError(
            f"column {name!r} holds {entries[strange[0]]!r}, a category that the model was not fitted on; it knows "
            f"{', '.join(map(repr, levels[:SHOWN]))}{more}: correct the value, or leave it empty"
        )
    made = pd.Categorical.from_codes(places[codes], categories=pd.Index(list(levels)))
    return pd.Series(made, index=column.index)


def _is_number(column: pd.Series[Any]) -> bool:
    """Tell whether a column holds numbers or truth values."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    return is_numeric_dtype(column.dtype) or is_bool_dtype(column.dtype)


def _as_number(column: pd.Series[Any], name: str) -> pd.Series[Any]:
    """Return a column that a booster knows as a number; a ColumnError where it holds texts."""
    kind = column.dtype
    if _is_number(column) or kind.kind in "mM" or str(kind).startswith("datetime"):
        return column
    try:
        return column.astype(np.float64)  # truth values with gaps, categories of numbers
    except (TypeError, ValueError):
        entry = next((one for one in column if isinstance(one, str)), None)
        held = f"{entry!r}" if entry is not None else f"entries of type {kind}"
        raise ColumnError(
            f"column {name!r} holds {held}, and the model knows it as a number; encode it as before the fit, or fit "
            "the model on a column of categories"
        ) from None
