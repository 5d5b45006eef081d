"""A folder with modules and settings of a stranger: no command runs them, nor does any process that it starts.

Modules are planted under every name of the standard library and under those of the libraries that fairfix uses.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fairfix.cli import COMMANDS

from tests.conftest import make_frame
from tests.test_cli.test_outputs import OUTPUTS, RUNS, folder, said_of  # noqa: F401  a fixture

USED = (
    *("numpy", "scipy", "pandas", "pyarrow", "sklearn", "joblib", "threadpoolctl", "click", "jinja2", "rich"),
    *("matplotlib", "duckdb", "ibis", "psycopg", "dask", "distributed", "tornado", "msgpack", "cloudpickle"),
    *("psutil", "tblib", "zict", "yaml", "toolz", "xgboost", "lightgbm", "highspy", "skops", "onnxruntime"),
    *("sitecustomize", "usercustomize", "fairfix", "evil"),
)
PLANTED = sorted({*sys.stdlib_module_names, *USED} - {"__main__", "this", "antigravity"})
SETTINGS = {
    "matplotlibrc": "text.usetex: True\nbackend: module://evil\n",
    "evil.pth": "import evil\n",
    "python._pth": ".\n",
    ".duckdbrc": ".shell touch ran\n",
    "distributed.yaml": "distributed: {worker: {preload: [evil]}, scheduler: {preload: [evil]}}\n",
}

INSTALLED = """
from fairfix.__main__ import main

if __name__ == "__main__":
    main()
"""
"""What pip installs as the command."""

SCRIPT = """
import numpy as np
import pandas as pd
from fairfix.sklearn import RepairedClassifier
from sklearn.linear_model import LogisticRegression

if __name__ == "__main__":
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.normal(size=80), "group": rng.integers(0, 2, 80)})
    RepairedClassifier(LogisticRegression(), ["group"], cv=2, n_jobs=2).fit(X, rng.integers(0, 2, 80))
"""


@pytest.fixture
def clone(folder: Path, tmp_path: Path) -> Path:  # noqa: F811  the fixture
    """What the commands read, in a folder of a stranger."""
    place = tmp_path / "clone"
    shutil.copytree(folder, place)
    for name in ("a", "b"):
        (place / "many").mkdir(exist_ok=True)
        make_frame(50).to_parquet(place / "many" / f"{name}.parquet")
    for name in PLANTED:
        line = f"open({str(place / 'ran')!r}, 'a').write('{name} ')\n"
        (place / f"{name}.py").write_text(line, encoding="utf-8")
    for name, text in SETTINGS.items():
        (place / name).write_text(text, encoding="utf-8")
    return place


CLUSTER = ("--cluster", "local:2")
LINES = {
    **{
        f"{name} {option}": (
            *RUNS[name],
            *said_of(option, {"predict": "new.parquet", "repair": "new.fairfix"}.get(name, "new.txt")),
        )
        for name, option in OUTPUTS
    },
    **{f"{name} --help": (name, "--help") for name in COMMANDS},
    "inspect": ("inspect", "r.fairfix"),
    "explain": ("explain", "dp"),
    "audit by a cluster": (*RUNS["audit"], *CLUSTER),
    "predict by a cluster": ("predict", "r.fairfix", "many", "--config", "none", "-o", "out/", *CLUSTER),
    "repair by a learner": (
        *("repair", "d.parquet", "--method", "logloss", "--features", "x,town", "-o", "new.fairfix"),
        *("--protected", "race", "--config", "none", "-q"),
    ),
}
"""Every command with every kind of output, and each place that starts a process or asks a library to draw."""


def ran(place: Path) -> str:
    """Return the names of the modules that ran."""
    return (place / "ran").read_text(encoding="utf-8") if (place / "ran").exists() else ""


def of(*command: str | Path, place: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of Python in a folder, with nothing in the environment that would keep it safe."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"}
    line = [sys.executable, *map(str, command)]
    return subprocess.run(line, cwd=place, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow(every=True)
@pytest.mark.parametrize("name", LINES)
def test_a_command_runs_nothing_of_the_folder(name: str, clone: Path, tmp_path: Path) -> None:
    """As the command is installed: by a script elsewhere; it does its work meanwhile."""
    script = tmp_path / "bin" / "fairfix"
    script.parent.mkdir()
    script.write_text(INSTALLED, encoding="utf-8")
    done = of(script, *LINES[name], place=clone)

    assert ran(clone) == ""
    assert done.returncode in (0, 1, 3), done.stderr


@pytest.mark.slow
def test_processes_of_estimators_run_nothing_of_the_folder(clone: Path, tmp_path: Path) -> None:
    """Folds of an estimator are fitted by processes of joblib, one of which watches over the others."""
    pytest.importorskip("joblib")
    script = tmp_path / "elsewhere" / "fit.py"
    script.parent.mkdir()
    script.write_text(SCRIPT, encoding="utf-8")
    done = of(script, place=clone)

    assert ran(clone) == ""
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_folder_would_run_without_care(clone: Path) -> None:
    """What is planted works: ``python -m`` itself imports from the folder in which it is called; not so with ``-P``."""
    of("-P", "-m", "fairfix", *LINES["audit by a cluster"], place=clone)
    assert ran(clone) == ""
    of("-m", "fairfix", "--help", place=clone)
    assert ran(clone) != ""
