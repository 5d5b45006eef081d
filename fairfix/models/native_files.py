"""Model files that boosters write themselves: LightGBM's text, XGBoost's JSON and UBJSON, CatBoost's ``.cbm``.

They hold data and no code. But their readers trust every number in them: a damaged index is read, and written to, as it
stands. Measured by mutation, most damaged files of LightGBM end the process. So a file that nobody vouches for is read
twice: first by a process of its own, which has bounded memory and time and scores rows, then here. Of XGBoost,
what is read here is what that process wrote.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from fairfix.errors import ModelError
from fairfix.models.boosters import adapted

LIBRARIES: Final = {"lightgbm": "LightGBM", "xgboost": "XGBoost", "catboost": "CatBoost"}
"""Package that reads a kind of file -> what messages call it."""

SECONDS: Final = 60
"""Time limits for the trial of a file, of the processor and of the clock."""

MEMORY: Final = 4 << 30
"""Bytes of memory that the trial may take."""

MARK: Final = b"\x00the model\x00"
"""Before the model in what the trial prints."""

TRIAL: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from fairfix.models import native_files as files; files.trial()"
)
"""Code of the trial."""


def library_of(data: bytes) -> str:
    """Return the package that reads a file, by its first bytes; empty where it is no file of a booster."""
    if data.startswith((b"tree\n", b"tree\r\n")):
        return "lightgbm"
    if re.match(rb"\s*\{\s*\"(learner|version)\"", data) or data.startswith((b"{L", b"{i\x07learner")):
        return "xgboost"
    return "catboost" if data.startswith(b"CBM1") else ""


def read_native(path: str | Path, data: bytes, sha256: str, *, trusted: bool) -> Any:
    """Return the booster of a file as an estimator; a ModelError where it is damaged, or its library is not there."""
    library = library_of(data)
    named = LIBRARIES[library]
    try:
        import_module(library)
    except ImportError:
        raise ModelError(
            f"model file {path} is one of {named}: install it with pip install {library}"
        ) from None
    if not trusted:
        data, fault = _tried(data, library)
        if fault:
            raise ModelError(
                f"model file {path} is damaged, or not of this version of {named}: {fault}; save it again"
            )
    try:
        return adapted(_loaded(library, data))
    except Exception as error:  # libraries have errors of their own
        raise ModelError(
            f"model file {path} cannot be read by {named}: {_first_line(str(error))}; save it again"
        ) from error


def _loaded(library: str, data: bytes) -> Any:
    """Return what a library reads."""
    package = import_module(library)
    if library == "lightgbm":
        return package.Booster(model_str=data.decode("utf-8"))
    if library == "xgboost":
        booster = package.Booster()
        booster.load_model(bytearray(data))
        return booster
    model = package.CatBoost()
    model.load_model(blob=data)
    return model


def _tried(data: bytes, library: str) -> tuple[bytes, str]:
    """Return what a process of its own wrote of a file that it could read, and why it could not; one is empty."""
    path = json.dumps([one for one in sys.path if one])
    command: list[str] = [sys.executable, "-I", "-c", TRIAL, path, library]
    try:
        done = subprocess.run(  # noqa: S603  this Python, and a program of ours
            command, input=data, capture_output=True, timeout=SECONDS + 30, check=False
        )
    except subprocess.TimeoutExpired:
        return b"", f"reading it takes more than {SECONDS} seconds"
    if done.returncode < 0 or done.returncode > 2:
        return b"", "reading it ends the process"
    if done.returncode:
        return b"", _first_line(done.stderr.decode("utf-8", "replace")) or "it cannot be read"
    return done.stdout.rpartition(MARK)[2] or data, ""


def _first_line(text: str) -> str:
    """Return the first line of a library's message, without the trace of its calls."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return re.sub(r"^\[[\d:]+\] \S+: ", "", lines[0])[:300] if lines else ""


# ---------------------------------------------------------------------- the process of its own


def trial() -> None:
    """Read a file from standard input and score rows that reach every tree, within limits; the process ends here."""
    library, data = sys.argv[2], sys.stdin.buffer.read()
    try:
        package = import_module(library)
        _limit()
        model = _loaded(library, data)
        _score(library, package, model)
        if library == "xgboost":  # whose own writing has no lengths that lie
            sys.stdout.buffer.write(MARK + bytes(model.save_raw("json")))
    except BaseException as error:
        sys.stderr.write(f"\n{_first_line(str(error)) or type(error).__name__}\n")
        raise SystemExit(1) from None


def _limit() -> None:
    """Bound memory, time and files of this process, where the system can."""
    try:
        import resource
    except ImportError:  # Windows
        return
    for limit, most in (
        (resource.RLIMIT_DATA, MEMORY),
        (resource.RLIMIT_CPU, SECONDS),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (most, most))


def _score(library: str, package: Any, model: Any) -> None:
    """Score rows of numbers, of none, and of numbers that are no category."""
    import numpy as np

    if library == "lightgbm":
        width = model.num_feature()
    else:
        width = model.num_features() if library == "xgboost" else len(model.feature_names_)
    if not 0 < width <= 1_000_000:
        raise ValueError(f"it has {width:,} features")
    rng = np.random.default_rng(0)
    rows = rng.normal(scale=np.geomspace(0.1, 1e6, 64)[:, None], size=(64, width))
    rows[::4] = np.abs(np.round(rows[::4])) % 40
    rows[1::8] = np.nan
    if library == "lightgbm":
        model.predict(rows, num_threads=1)
        return
    if library == "catboost":
        texts = set(model.get_cat_feature_indices())
        columns = [[str(one) for one in rows[:, i]] if i in texts else rows[:, i] for i in range(width)]
        model.predict([list(row) for row in zip(*columns, strict=True)], thread_count=1)
        return
    rows[:, [kind == "c" for kind in model.feature_types or [""] * width]] %= 40
    model.predict(package.DMatrix(rows, feature_names=model.feature_names, feature_types=model.feature_types))
