"""Fitted models in memory: estimators, boosters and functions as models that score rows.

Nothing is loaded, so nothing has to be trusted. An artifact keeps a hash of the fitted state, by which
the same model is known again, in memory or in a file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fairfix.errors import FairfixError, ModelError
from fairfix.models.boosters import adapted, booster_of
from fairfix.models.user_file import SCALES, ScoringModel, described, input_names, one_line

CONTENT = "content:"
"""Prefix of the hash of a fitted state."""


def fitted_model(
    model: Any,
    columns: Sequence[str],
    *,
    features: Sequence[str] | None = None,
    positive_label: str | Sequence[str] | None = None,
) -> ScoringModel:
    """Return a fitted model in memory, ready to score.

    Parameters
    ----------
    model
        An estimator with ``predict_proba``, ``decision_function`` or ``predict``; a booster of LightGBM or XGBoost; a
        function of a data frame that returns one score per row.
    columns
        Columns of the data without a role, in the order of the data.
    features, positive_label
        As in :func:`~fairfix.models.user_file.load_model`. A model without names takes all ``columns``, where these are
        as many as its features; so does a function.

    Raises
    ------
    ModelError
        It is no model, is not fitted, or its columns or its positive class are not clear.
    """
    name = _name(model)
    if isinstance(model, ScoringModel):
        return model
    try:
        estimator = adapted(model)
        asked = any(callable(getattr(estimator, kind, None)) for kind in SCALES)
        if not asked and callable(model) and not isinstance(model, type):
            own = input_names(getattr(model, "__self__", None))
            names = tuple(features or own or columns)
            return ScoringModel(name, "", "__call__", names, "stated", model, names, (0, 1), 1)
        if asked and not isinstance(model, type):
            _check_fitted(name, estimator)
        return described(name, "", estimator, features, positive_label, columns)
    except FairfixError:
        raise
    except Exception as error:  # attributes of a stranger's class may be code that fails
        raise ModelError(f"model {name} does not describe itself: {one_line(error)}") from error


def _name(model: Any) -> str:
    """Return what messages call a model."""
    return str(getattr(model, "__qualname__", None) or type(model).__qualname__)


def _check_fitted(name: str, estimator: Any) -> None:
    """Raise a ModelError where an estimator has not been fitted."""
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    if not hasattr(estimator, "fit") or input_names(estimator) is not None:
        return
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        if getattr(estimator, "n_features_in_", None) is None:
            raise ModelError(f"model {name} is not fitted; call its fit(X, y) first") from None
    except TypeError:  # an estimator of another library
        return


# ---------------------------------------------------------------------- identity


def content_hash(model: Any) -> str:
    """Return ``"content:<hex>"`` of what a model has learned; it survives saving and loading.

    A booster is known by its trees, so its library's own file, a pickle and the model in memory have one hash.
    """
    library, booster = booster_of(model)
    digest = hashlib.sha256()
    if library == "lightgbm":
        digest.update(booster.model_to_string().partition("\nend of trees")[0].encode())
    elif library == "xgboost":
        digest.update(bytes(booster.save_raw("json")))
    else:
        _add(digest.update, model, set())
    return CONTENT + digest.hexdigest()


def _add(update: Callable[[bytes], object], value: Any, open_: set[int]) -> None:
    """Add a value to a hash: by what it holds, not by where it is."""
    if id(value) in open_:
        update(b"<cycle>")
        return
    inner = open_ | {id(value)}

    def each(kind: str, entries: Any) -> None:
        update(f"<{kind} {len(entries)}>".encode())
        for entry in entries:
            _add(update, entry, inner)

    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, complex, str)):
        update(f"<{type(value).__name__}>{value!r}".encode())
    elif isinstance(value, (bytes, bytearray)):
        update(b"<bytes>" + bytes(value))
    elif isinstance(value, np.ndarray):
        _add_array(update, value, each)
    elif isinstance(value, Mapping):
        each("dict", [*value.keys(), *value.values()])
    elif isinstance(value, (set, frozenset)):
        each("set", sorted(value, key=repr))
    elif isinstance(value, (list, tuple)):
        each("list", value)
    elif isinstance(value, type) or hasattr(value, "__code__"):
        update(f"<{value.__module__}.{value.__qualname__}>".encode())
        if code := getattr(value, "__code__", None):
            update(code.co_code)
    else:
        update(f"<{type(value).__module__}.{type(value).__qualname__}>".encode())
        each("state", _state(value))


def _add_array(update: Callable[[bytes], object], value: Any, each: Callable[[str, Any], None]) -> None:
    """Add an array to a hash; the bytes between the fields of a structured one hold nothing."""
    if value.dtype.names:
        each("array", [*value.dtype.names, *(value[name] for name in value.dtype.names)])
    elif value.dtype.hasobject:
        each("array", value.ravel().tolist())
    else:
        update(f"<array {value.dtype.str} {value.shape}>".encode() + np.ascontiguousarray(value).tobytes())


def _state(value: Any) -> list[Any]:
    """Return what pickle would keep of an object; nothing of one that it cannot keep."""
    try:
        kept = value.__reduce_ex__(4)
    except Exception:  # objects of strangers
        return []
    if isinstance(kept, str):
        return [kept]
    _, arguments, *rest = kept
    state = [one if one is None or isinstance(one, (dict, tuple, list)) else list(one) for one in rest]
    return [*arguments, *state]
