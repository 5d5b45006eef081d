"""The gate for a user's model file: load it without being robbed, then let it score tables.

Loading. A pickle (``.pkl``, ``.pickle``, ``.joblib``) is a program that runs when it is opened, and no
scanner tells the harmless from the hostile. So what decides is the user's word about exact bytes::

    pinned(bytes)  <=>  trust == "sha256:" + hex(SHA-256(bytes))
    load a pickle   =>  pinned(bytes)
    load a .skops   =>  pinned(bytes)  or  every type in it is one skops knows to be safe
    load a .onnx    =>  always: it is a graph of known operators (:mod:`fairfix.models.onnx_model`)
    load a booster  =>  pinned(bytes)  or  a process of its own can read it (:mod:`fairfix.models.native_files`)
    trust given     =>  pinned(bytes), whatever the kind of file

The file is read once; the bytes that were hashed are the bytes that are loaded.

Scoring. With x a row, reduced to the model's own columns by name, and c the positive class, the score is the
first of these that the model offers::

    predict_proba       P(y = c | x)                         score_scale "probability", in [0, 1]
    decision_function   the margin of c over the rest        score_scale "raw"
    predict             1{label(x) = c}  of a classifier     score_scale "decision"
                        the value        of anything else    score_scale "raw"

A score should belong to its row alone, to the bit, and depend neither on the rows that share its batch nor on
the run. Two habits of numerical libraries break this and are put right in :meth:`ScoringModel.score`: matrix
products sum the last few rows of a block in another order, so every block is filled up to a multiple of
:data:`LANE_ROWS`; forests add up their trees in the order in which threads finish, so a model's own threads
are switched off while it scores.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from fairfix.data.canonical import canonical, canonical_text
from fairfix.data.container import digest
from fairfix.data.files import require
from fairfix.data.names import few
from fairfix.errors import FairfixWarning, ModelError
from fairfix.models.boosters import restored
from fairfix.models.native_files import library_of, read_native

if TYPE_CHECKING:
    import pandas as pd

Kind = Literal["predict_proba", "decision_function", "predict", "__call__"]
Scale = Literal["probability", "raw", "decision", "stated"]

SCALES: Final[dict[Kind, Scale]] = {
    "predict_proba": "probability",
    "decision_function": "raw",
    "predict": "decision",
}
"""Meaning of a classifier's output by method; a probability says more than a margin, which says more than a label."""
PICKLES: Final = (".pkl", ".pickle", ".joblib")
"""Suffixes of files that run code when they are loaded."""
SAFE_SKOPS: Final = (0, 12)
"""Older skops runs code hidden in files that look harmless (CVE-2025-54412, CVE-2025-54413)."""
BLOCK_ROWS: Final = 65_536
"""Rows a model sees at once: bounds the memory of one-hot columns and of forests."""
LANE_ROWS: Final = 64
"""Blocks are filled up to a multiple of this. Found empirically: with OpenBLAS, 8 leaves thousands of scores
of a linear model in the hands of their batch, 64 leaves none."""
PROBABILITY_SLACK: Final = 1e-6
"""Naive Bayes and friends normalise in logarithms and end a few units in the last place above 1."""
BLANK: Final = re.compile(r"\s")
"""Signs that LightGBM writes as ``_`` in the names of columns."""
LISTED: Final = 20
"""Names a message lists before it says how many more there are."""


@dataclass(frozen=True)
class ScoringModel:
    """A user's model, loaded and ready to score; made by :func:`load_model`."""

    path: str
    """The model file, or the kind of a model in memory."""
    sha256: str
    """``"sha256:<hex>"`` of the bytes that were loaded; empty of a model in memory."""
    kind: Kind
    """The method of the model that is asked."""
    feature_names: tuple[str, ...]
    """Columns of the data, in the model's order."""
    score_scale: Scale
    """``"probability"``, ``"raw"`` (a margin or a regressor's value), ``"decision"`` (0 or 1), or ``"stated"``: the
    scores of a function, whose scale the user states."""
    estimator: Any = field(repr=False, compare=False)
    input_names: tuple[str, ...] | None = field(repr=False)
    """Names of the columns in the model itself; None if it was fitted on plain arrays."""
    classes: tuple[Any, ...] = ()
    """The classes of a classifier, in the model's order; empty for anything else."""
    positive: int = 0
    """Index in ``classes`` of the class that is scored."""

    @property
    def identity(self) -> str:
        """The hash by which a model is known again: of its file, or of what it has learned if it is in memory."""
        from fairfix.models.in_memory import content_hash

        return self.sha256 or content_hash(self.estimator)

    def score(self, frame: pd.DataFrame) -> NDArray[np.float64]:
        """Return the score of every row of a table on the scale ``score_scale``, shape (n,), finite.

        The frame must hold the columns ``feature_names``; their order and all other columns are irrelevant. Batches cut
        at multiples of :data:`BLOCK_ROWS` give the bits of the whole table by construction; other cuts as far as
        :data:`LANE_ROWS` suffices. A ColumnError where a column is missing or there twice; a ModelError where the model
        fails on the data, or answers with anything but one finite number (or class of its own) per row.
        """
        inputs = self._inputs(frame)
        if not len(frame):
            return np.empty(0)
        starts = range(0, len(frame), BLOCK_ROWS)
        answer = np.concatenate([self._ask(inputs, i, min(i + BLOCK_ROWS, len(frame))) for i in starts])
        return self._checked(self._to_scores(answer), frame.index)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how another process gets the model: from the same bytes of the same file, or by a copy of it."""
        if not self.sha256:
            return ScoringModel, tuple(getattr(self, one.name) for one in fields(self))
        facts = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "estimator"}
        return _reloaded, (str(Path(self.path).absolute()), facts)

    def _inputs(self, frame: pd.DataFrame) -> pd.DataFrame | NDArray[Any]:
        """Return the model's columns in its order, as it was fitted: a frame with its names or an array."""
        from pandas.api.types import is_numeric_dtype

        columns = [str(column) for column in frame.columns]
        require(self.feature_names, columns, "the data")
        places = {name: i for i, name in enumerate(columns)}
        part = frame.iloc[:, [places[name] for name in self.feature_names]]
        if self.input_names is not None:
            return restored(self.estimator, part.set_axis(self.input_names, axis=1), self.feature_names)
        numeric = all(is_numeric_dtype(dtype) for dtype in part.dtypes)
        return part.to_numpy(dtype=np.float64, na_value=np.nan) if numeric else part.to_numpy()

    def _ask(self, inputs: pd.DataFrame | NDArray[Any], start: int, stop: int) -> NDArray[Any]:
        """Return the model's own answer for the rows from ``start`` to ``stop``."""
        import joblib

        filled = math.ceil((stop - start) / LANE_ROWS) * LANE_ROWS
        rows = np.minimum(np.arange(start, start + filled), stop - 1)  # the last row, again and again
        # A fresh index: the repeated row must not give a user's transformer two rows of one name.
        block = inputs[rows] if isinstance(inputs, np.ndarray) else inputs.iloc[rows].reset_index(drop=True)
        try:
            with joblib.parallel_config(backend="sequential"):
                answer = np.asarray(getattr(self.estimator, self.kind)(block))
        except Exception as error:
            plain = "" if self.input_names else " (on a plain array, since it has no feature_names_in_)"
            self._fail(f"failed on the data: {one_line(error)}{plain}", error)
        if answer.ndim not in (1, 2) or len(answer) != filled:
            self._fail(f"returned an array of shape {answer.shape} for a block of {filled} rows")
        return answer[: stop - start]

    def _to_scores(self, answer: NDArray[Any]) -> NDArray[np.float64]:
        """Reduce the model's answer to one number per row: that of the positive class."""
        column = answer[:, 0] if answer.ndim == 2 and answer.shape[1] == 1 else answer
        if self.score_scale == "decision":
            return self._decisions(column)
        try:
            scores = np.asarray(column, dtype=np.float64)
        except (TypeError, ValueError) as error:
            self._fail(f"returned a value that is not a number: {one_line(error)}", error)
        if scores.ndim == 1 and len(self.classes) in (0, 2):  # of the second of two classes, or of no class
            if not self.classes or self.positive == 1:
                return scores
            return 1.0 - scores if self.kind == "predict_proba" else -scores
        if scores.ndim == 1 or scores.shape[1] != len(self.classes):
            wanted = f"the classes {_listing(self.classes)}" if self.classes else "one value per row"
            self._fail(f"returned an array of shape {answer.shape}, which does not fit {wanted}")
        return scores[:, self.positive]

    def _decisions(self, labels: NDArray[Any]) -> NDArray[np.float64]:
        """Return 1 where the label is the positive class, 0 where it is another class of the model."""
        if labels.ndim != 1:
            self._fail(f"returned labels of shape {labels.shape}; one label per row is needed")
        plain = labels.astype(object)  # compares as Python does: the text "1" is not the number 1
        strangers = sorted({label for label in plain.tolist() if label not in self.classes}, key=repr)
        if strangers:
            self._fail(
                f"returned {_listing(strangers)}, which is not among its classes {_listing(self.classes)}"
            )
        return np.asarray(plain == self.classes[self.positive], dtype=np.float64)

    def _checked(self, scores: NDArray[np.float64], index: pd.Index[Any]) -> NDArray[np.float64]:
        """Refuse what is not finite or no probability; clip the rounding off probabilities."""
        import pandas as pd

        bounded = self.score_scale == "probability"
        good = np.isfinite(scores) & ((not bounded) | (np.abs(scores - 0.5) <= 0.5 + PROBABILITY_SLACK))
        if not good.all():
            row = int(np.argmin(good))
            number = int(index[row]) if isinstance(index, pd.RangeIndex) else row
            wanted = "a probability in [0, 1]" if bounded else "a finite number"
            self._fail(f"scored row {number + 1:,} as {scores[row]}, which is not {wanted}")
        return np.clip(scores, 0.0, 1.0) if bounded else scores

    def _fail(self, reason: str, cause: Exception | None = None) -> NoReturn:
        """Raise the error that names the model file and what it did."""
        raise ModelError(f"model {self.path} {reason}") from cause


def file_hash(path: str | Path) -> str:
    """Return ``"sha256:<hex>"`` of a file: what ``trust_model`` takes."""
    return digest(_read(path))


def load_model(
    path: str | Path,
    *,
    trust: str | None = None,
    features: Sequence[str] | None = None,
    positive_label: str | Sequence[str] | None = None,
) -> ScoringModel:
    """Load a user's model file, refusing to run code the user did not vouch for.

    Warns where the model was saved by another version of scikit-learn; a ModelError where the file is missing, damaged,
    refused, of an unknown kind, or not a model, and where its columns or its positive class are not clear.

    Parameters
    ----------
    path
        A ``.pkl``, ``.pickle``, ``.joblib``, ``.skops`` or ``.onnx`` file, or one of LightGBM, XGBoost or CatBoost.
    trust
        ``"sha256:<hex>"``: the hash of the file the user trusts. Needed for pickles; for ``.skops`` only if
        the file holds types that skops does not know.
    features
        Columns of the data in the model's order, for a model that was fitted without names; else the set of its own.
    positive_label
        The positive values of the label as texts; one of them is the class to score. Needed for text classes, for
        more than two classes (one against the rest), and for two numbers where the smaller is 1, as in (1, 2);
        otherwise the larger of two numeric classes is taken. A model without ``classes_`` is taken to have the
        classes (0, 1).
    """
    pinned = None if trust is None else trust.strip().lower()
    if pinned is not None and not re.fullmatch(r"sha256:[0-9a-f]{64}", pinned):
        raise ModelError(
            f"`trust_model` takes sha256: and the file's 64 hexadecimal digits, not {trust!r}; "
            "without the option, the refusal prints the hash of the file"
        )
    suffix = Path(path).suffix.lower()
    if suffix == ".fairfix":
        raise ModelError(
            f"model file {path} is a repaired predictor, which decides and does not score: run `fairfix predict {path} "
            "DATA -o DECIDED.parquet`, and audit that file"
        )
    data = _read(path)
    if suffix not in (*PICKLES, *READERS) and not library_of(data):
        raise ModelError(
            f"model file {path} has an unknown kind; supported are {', '.join(PICKLES)}, .skops and .onnx, and the "
            "files that LightGBM, XGBoost and CatBoost save"
        )
    sha256 = digest(data)
    if pinned not in (None, sha256):
        raise ModelError(
            f"model file {path} is not the one you trust: it has the hash {sha256}, "
            f"`trust_model` has {pinned}. If you know why it changed, pin the new hash: `trust_model={sha256}`"
        )
    reader = _reader(path, data)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            estimator = reader(path, data, sha256, trusted=pinned is not None)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"model file {path} cannot be loaded: {one_line(error)}") from error
    _tell_versions(path, caught)
    try:
        return described(str(path), sha256, estimator, features, positive_label)
    except ModelError:
        raise
    except Exception as error:  # attributes of a stranger's class may be code that fails
        raise ModelError(f"model {path} cannot describe itself: {one_line(error)}") from error


def _reloaded(path: str, facts: dict[str, Any]) -> ScoringModel:
    """Return a model that came from another process by the name of its file."""
    return ScoringModel(**facts, estimator=_estimator(path, facts["sha256"]))


@lru_cache(maxsize=4)
def _estimator(path: str, sha256: str) -> Any:
    """Return the estimator of a file that was vouched for elsewhere; a process loads it once."""
    data = _read(path)
    if digest(data) != sha256:
        raise ModelError(
            f"model file {path} is not the one that was loaded first, which had the hash {sha256}"
        )
    return _reader(path, data)(path, data, sha256, trusted=True)


def _read(path: str | Path) -> bytes:
    """Read a whole file once, so that what is hashed is what is loaded."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise ModelError(f"model file {path} does not exist") from None
    except IsADirectoryError:
        raise ModelError(f"model file {path} is a directory; name the file in it") from None
    except OSError as error:
        raise ModelError(f"model file {path} cannot be read: {error.strerror}") from error
    if not data:
        raise ModelError(f"model file {path} is empty")
    return data


def _from_pickle(path: str | Path, data: bytes, sha256: str, *, trusted: bool) -> Any:
    """Unpickle bytes the user vouched for; joblib reads plain and compressed pickles and its own."""
    if not trusted:
        raise ModelError(
            f"model file {path} is a pickle, and loading a pickle runs the code in it, so it was not loaded. "
            "The safer way: write the model's scores into a column and name it with `score`. "
            f"If you trust whoever made this very file: `trust_model={sha256}`"
        )
    import joblib

    return joblib.load(io.BytesIO(data))


def _from_skops(path: str | Path, data: bytes, sha256: str, *, trusted: bool) -> Any:
    """Load a .skops file if all its types are known to be safe, or the user vouched for its bytes."""
    try:
        import skops
        import skops.io
    except ImportError:
        raise ModelError(f"model file {path} needs skops: pip install 'fairfix[skops]'") from None
    if tuple(int(part) for part in re.findall(r"\d+", skops.__version__)[:2]) < SAFE_SKOPS:
        raise ModelError(
            f"model file {path}: skops {skops.__version__} runs code hidden in files it calls safe; "
            "upgrade: pip install 'fairfix[skops]'"
        )
    unknown = skops.io.get_untrusted_types(data=data)
    if unknown and not trusted:
        raise ModelError(
            f"model file {path} contains types that skops does not know to be safe, so it was not loaded: "
            f"{', '.join(unknown)}. The safer way: write the model's scores into a column and name it with "
            f"`score`. If you trust these types and whoever made this very file: `trust_model={sha256}`"
        )
    return skops.io.loads(data, trusted=unknown)


def _from_onnx(path: str | Path, data: bytes, sha256: str, *, trusted: bool) -> Any:
    """Read an ONNX graph, which runs no code of its own."""
    from fairfix.models.onnx_model import OnnxModel

    return OnnxModel(str(path), data)


READERS: Final = {".skops": _from_skops, ".onnx": _from_onnx}
"""Suffixes of files that can be read without running code in them."""


def _reader(path: str | Path, data: bytes) -> Callable[..., Any]:
    """Return what reads a file: by its content where a booster wrote it, else by the end of its name."""
    return read_native if library_of(data) else READERS.get(Path(path).suffix.lower(), _from_pickle)


def _tell_versions(path: str | Path, caught: Iterable[warnings.WarningMessage]) -> None:
    """Pass on the warnings of a load, those about scikit-learn's version as one per version."""
    from sklearn.exceptions import InconsistentVersionWarning

    versions = set()
    for warning in caught:
        if isinstance(message := warning.message, InconsistentVersionWarning):
            versions.add((message.original_sklearn_version, message.current_sklearn_version))
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    for saved, present in sorted(versions):
        other = FairfixWarning(
            f"model file {path} was saved by scikit-learn {saved} and is read by {present}: its scores may "
            f"differ from those it was validated with; install scikit-learn {saved} or save the model again",
            "model_version",
        )
        warnings.warn(other, stacklevel=3)  # the caller of load_model


def described(
    path: str,
    sha256: str,
    estimator: Any,
    features: Sequence[str] | None,
    positive_label: str | Sequence[str] | None,
    columns: Sequence[str] = (),
) -> ScoringModel:
    """Ask a loaded object how it scores, from which columns and for which class.

    A model that was fitted without names takes all ``columns`` of the data, where these are as many as its features.
    """
    kind = next((kind for kind in SCALES if callable(getattr(estimator, kind, None))), None)
    if kind is None or isinstance(estimator, type):
        made, what = (estimator, "class") if isinstance(estimator, type) else (type(estimator), "value")
        remedy = "save the fitted model itself" if sha256 else "give the fitted model itself"
        holds = f"model file {path} holds" if sha256 else "`model` is"
        raise ModelError(
            f"{holds} a {what} {made.__module__}.{made.__qualname__}, which has no predict_proba, "
            f"decision_function or predict; {remedy}"
        )
    names, inputs = _columns(path, estimator, features, columns)
    is_number = kind == "predict" and not _is_classifier(estimator)
    classes = () if is_number else _classes(path, estimator)
    labels = (positive_label,) if isinstance(positive_label, str) else tuple(positive_label or ())
    positive = _positive(path, classes, labels)
    if kind == "decision_function" and len(classes) > 2 and _is_one_against_one(estimator):
        raise ModelError(
            f"model {path} compares its classes in pairs (decision_function_shape='ovo'), so it has no "
            "score of one class against the rest; set decision_function_shape='ovr' or score a column"
        )
    scale: Scale = "raw" if is_number else SCALES[kind]
    return ScoringModel(path, sha256, kind, names, scale, estimator, inputs, classes, positive)


def _columns(
    path: str, estimator: Any, features: Sequence[str] | None, columns: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """Return what the data and what the model call the columns, both in the model's order."""
    own, width = input_names(estimator), getattr(estimator, "n_features_in_", None)
    unnamed = own is None or own in (made_up("Column_", len(own)), made_up("", len(own)))
    by_place = unnamed or (own and tuple(columns) == made_up("x", len(own)))  # columns of an array
    if features is None and by_place and columns and len(columns) == (width if own is None else len(own)):
        return tuple(columns), own
    if features is None:
        if own is None:
            raise ModelError(
                f"model {path} does not name the columns that it was fitted on (no feature_names_in_); name them "
                f"in its order with `features` (its n_features_in_ is {width or 'unknown'})"
            )
        blanks = {BLANK.sub("_", name): name for name in columns}  # LightGBM has no blanks in its names
        return tuple(name if name in columns else blanks.get(name, name) for name in own), own
    given = tuple(features)
    if len(set(given)) < len(given):
        raise ModelError(f"`features` names a column more than once: {_listing(given)}")
    if own is not None and set(own) == set(given):
        return own, own
    if not unnamed and own != tuple(BLANK.sub("_", name) for name in given):
        raise ModelError(
            f"`features` does not match the columns of model {path}: only the model has "
            f"{_listing(sorted(set(own or ()) - set(given)))}, only `features` has "
            f"{_listing(sorted(set(given) - set(own or ())))}; leave `features` out"
        )
    expected = width if own is None else len(own)
    if expected is not None and int(expected) != len(given):
        raise ModelError(f"`features` names {len(given)} columns, model {path} was fitted on {expected}")
    return given, own


def made_up(prefix: str, width: int) -> tuple[str, ...]:
    """Return the names that LightGBM (``Column_0``) and CatBoost (``0``) give to the columns of an array."""
    return tuple(f"{prefix}{i}" for i in range(width))


def input_names(estimator: Any) -> tuple[str, ...] | None:
    """Return the column names a model was fitted on; None if on plain arrays."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is None and type(estimator).__module__.startswith("catboost."):
        names = getattr(estimator, "feature_names_", None) or None
    if names is not None:
        return tuple(str(name) for name in names)
    # A pipeline asks its first step, and gets no answer from one that passes everything through.
    pipeline = getattr(estimator, "best_estimator_", estimator)
    steps = [step for _, step in getattr(pipeline, "steps", ()) if step not in (None, "passthrough")]
    return input_names(steps[0]) if steps else None


def _is_classifier(estimator: Any) -> bool:
    """Ask scikit-learn's tags; where there are none, a model with ``classes_`` is a classifier."""
    try:
        says = estimator.__sklearn_tags__().estimator_type
    except AttributeError:  # not of scikit-learn, or made before version 1.6
        says = getattr(estimator, "_estimator_type", None)
    return hasattr(estimator, "classes_") if says is None else says == "classifier"


def _classes(path: str, estimator: Any) -> tuple[Any, ...]:
    """Return the classes as plain Python values, in the model's order."""
    classes = getattr(estimator, "classes_", (0, 1))
    if any(np.ndim(label) for label in classes):
        raise ModelError(
            f"model {path} predicts {len(classes)} labels at once; score each with its own model"
        )
    return tuple(label.item() if isinstance(label, np.generic) else label for label in classes)


def _positive(path: str, classes: tuple[Any, ...], positive_label: Sequence[str]) -> int:
    """Return the index of the class that is scored."""
    if not classes:  # a number has no class; the label column may still have positive values
        return 0
    if len(classes) == 1:
        raise ModelError(f"model {path} has a single class, {classes[0]!r}: there is nothing to score")
    if not positive_label:
        return _obvious_positive(path, classes)
    texts = [canonical(label) for label in classes]
    named = [text for text in map(canonical_text, positive_label) if text in texts]
    if not named and set(classes) == {0, 1}:  # trained on encoded labels, while the label column holds names
        return classes.index(1)
    if len(named) != 1:
        wrong = "is not among" if not named else "are several of"
        raise ModelError(
            f"`label` has the positive values {_listing(positive_label)}: this {wrong} the classes of model {path}. "
            f"It scores one of {_listing(classes)}"
        )
    return texts.index(named[0])


def _obvious_positive(path: str, classes: tuple[Any, ...]) -> int:
    """Return the index of class 1, True or the larger of two numbers, if these do not contradict."""
    if len(classes) > 2:
        why = "it has more than two classes"
    elif not all(isinstance(label, Real) for label in classes):
        why = "its classes are not numbers"
    elif 1 in classes and max(classes) != 1:
        why = "1 is often the positive class, and here it is the smaller one"
    else:
        return classes.index(max(classes))
    error = ModelError(
        f"model {path} does not show which class is positive ({why}); its classes are {_listing(classes)}; "
        "choose one with `label`"
    )
    error.classes = [*map(canonical, classes)]
    raise error


def _is_one_against_one(estimator: Any) -> bool:
    """Tell whether a support vector machine, alone or inside a pipeline, compares classes in pairs."""
    parameters = estimator.get_params(deep=True) if hasattr(estimator, "get_params") else {}
    shapes = [value for name, value in parameters.items() if name.endswith("decision_function_shape")]
    return any(isinstance(shape, str) and shape == "ovo" for shape in shapes)


def _listing(names: Iterable[Any]) -> str:
    return few(list(names), LISTED) or "none"


def one_line(error: Exception) -> str:
    """Return an error's type and message without line breaks."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:500]}" if text else type(error).__name__
