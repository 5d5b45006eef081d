"""The plan of the house, held against the imports of every module."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import fairfix
import pytest

HOUSE = Path(fairfix.__file__).parent
MODULES = sorted(HOUSE.rglob("*.py"))

MAY_IMPORT = {
    "errors": set(),
    "counts": set(),
    "metrics": {"counts"},
    "special": set(),
    "uncertainty": {"special"},
    "checks": {"errors", "metrics"},
    "baseline": {"checks", "errors", "metrics"},
    "paired": {"checks", "counts", "engine", "errors", "metrics", "table", "uncertainty"},
    "suppression": {"counts"},
    "profiles": {"errors", "metrics", "table"},
    "waivers": {"baseline", "checks", "errors"},
    "config": {"errors"},
    "draws": set(),
    "table": {"counts", "draws", "errors"},
    "io": {"errors"},
    "inference": {"errors", "table"},
    "models": {"errors", "onnx_model"},
    "onnx_model": {"errors"},
    "scoring": {"errors", "io", "models", "table"},
    "engine": {"counts", "errors", "io", "table"},
    "distributions": {"counts", "engine"},
    "findings": {"checks", "errors", "table"},
    "starter": {"auditor", "engine", "errors", "inference", "io", "table"},
    "explain": {"checks", "errors", "metrics", "report"},
    "measure": {"counts", "distributions", "engine", "findings", "metrics", "table", "uncertainty"},
    "auditor": {
        "checks",
        "counts",
        "distributions",
        "engine",
        "errors",
        "findings",
        "io",
        "measure",
        "metrics",
        "suppression",
        "table",
    },
    "optim": {"optim"},
    "noise": {"counts", "errors", "io", "optim", "table"},
    "predictors": {"counts", "draws", "errors", "optim", "table"},
    "flips": {"counts", "errors", "scoring", "table"},
    "individual_effect": {"counts", "errors", "learners", "special", "table"},
    "individual": {
        "auditor",
        "counts",
        "engine",
        "errors",
        "features",
        "findings",
        "flips",
        "individual_effect",
        "io",
        "optim",
        "predictors",
        "table",
        "uncertainty",
    },
    "true_groups": {
        "auditor",
        "checks",
        "counts",
        "engine",
        "errors",
        "findings",
        "io",
        "metrics",
        "noise",
        "optim",
        "table",
    },
    "true_proof": {
        "checks",
        "counts",
        "engine",
        "errors",
        "findings",
        "metrics",
        "noise",
        "optim",
        "predictors",
        "table",
        "true_groups",
    },
    "membership": {
        "auditor",
        "checks",
        "counts",
        "engine",
        "errors",
        "findings",
        "io",
        "noise",
        "optim",
        "table",
        "true_groups",
    },
    "features": {"counts", "errors", "table"},
    "learners": {"counts", "errors"},
    "values": {"counts", "errors", "features", "learners", "optim", "predictors", "table"},
    "chances": {"counts", "errors", "optim", "predictors", "table", "values"},
    "repair": {
        "chances",
        "counts",
        "draws",
        "errors",
        "features",
        "flips",
        "learners",
        "noise",
        "optim",
        "predictors",
        "repair",
        "table",
        "uncertainty",
        "values",
    },
    "doubts": {"counts", "errors", "findings", "predictors", "table"},
    "proof": {
        "auditor",
        "checks",
        "counts",
        "doubts",
        "engine",
        "errors",
        "findings",
        "flips",
        "individual",
        "io",
        "noise",
        "optim",
        "paired",
        "predictors",
        "repair",
        "table",
        "true_proof",
        "uncertainty",
    },
    "compare": {
        "auditor",
        "errors",
        "findings",
        "flips",
        "individual",
        "noise",
        "predictors",
        "proof",
        "repair",
        "table",
        "true_proof",
    },
    "artifact": {"errors", "io"},
    "countfile": {"artifact", "auditor", "counts", "engine", "errors", "findings", "io", "table"},
    "repaired": {"artifact", "chances", "counts", "draws", "errors", "io", "predictors", "table", "values"},
    "sklearn": {"counts", "errors", "io", "noise", "predictors", "repair", "repaired", "table"},
    "report": {
        "checks",
        "compare",
        "errors",
        "findings",
        "flips",
        "metrics",
        "predictors",
        "proof",
        "repaired",
        "report",
        "table",
    },
}
"""Room -> rooms it may import; whoever is not here (cli, __init__, __main__) may import anything but cli."""

TOUCH_FILES = {"io", "artifact", "models", "config", "cli"}


def room_of(path: Path) -> str:
    """Return the top-level room of a module."""
    return path.relative_to(HOUSE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> set[str]:
    """Return the dotted names a module imports, inside functions too, type-checking blocks excepted."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = [ast.Pass()]
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{name.name}" for name in node.names}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(HOUSE)))
def test_imports_follow_the_plan(path: Path) -> None:
    """A room imports only the rooms below it, and nobody imports the command line."""
    room = room_of(path)
    rooms = {name.split(".")[1] for name in imports_of(path) if name.startswith("fairfix.")}
    rooms.discard("__version__")

    if room != "cli" and room != "__main__":
        assert "cli" not in rooms
    if room in MAY_IMPORT:
        assert rooms <= MAY_IMPORT[room] | {room}


def test_every_room_is_on_the_plan() -> None:
    """A new room has to be put on the plan."""
    rooms = {room_of(path) for path in MODULES}

    assert rooms == set(MAY_IMPORT) | {"cli", "__init__", "__main__"}


def test_methods_do_not_import_one_another() -> None:
    """Only the base, the rows by cell and what is learned are shared among methods."""
    shared = ("base", "cells", "learned")
    for path in (HOUSE / "repair").glob("*.py"):
        if path.stem in ("__init__", *shared):
            continue
        others = {n.split(".")[2] for n in imports_of(path) if n.startswith("fairfix.methods.")}
        assert others <= set(shared), path


@pytest.mark.parametrize(
    ("room", "allowed"),
    [
        ("counts", {"numpy"}),
        ("metrics", {"numpy"}),
        ("special", {"numpy"}),
        ("uncertainty", {"numpy"}),
        ("optim", {"numpy", "scipy", "threadpoolctl"}),
    ],
)
def test_arithmetic_needs_numpy_only(room: str, allowed: set[str]) -> None:
    """The rooms of arithmetic import nothing but numpy (and scipy and a limit of threads, where solvers live)."""
    foreign = set()
    for path in MODULES:
        if room_of(path) == room:
            foreign |= {name.split(".")[0] for name in imports_of(path)}

    assert foreign - set(sys.stdlib_module_names) - {"fairfix"} <= allowed


@pytest.mark.parametrize(
    "path", [p for p in MODULES if room_of(p) != "cli"], ids=lambda p: str(p.relative_to(HOUSE))
)
def test_only_the_command_line_talks_and_exits(path: Path) -> None:
    """No other room prints, exits, reads the environment or touches global random state."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}

    assert not calls & {"print", "sys.exit", "exit", "quit", "os.getenv"}
    assert "os.environ" not in text
    assert not re.search(r"np\.random\.(?!default_rng|Generator)", text)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(HOUSE)))
def test_only_the_rooms_of_files_open_files(path: Path) -> None:
    """Reading and writing files is the work of a few rooms."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    calls = {ast.unparse(node.func).split(".")[-1] for node in ast.walk(tree) if isinstance(node, ast.Call)}
    opening = calls & {"open", "read_text", "write_text", "read_bytes", "write_bytes", "unlink", "mkstemp"}

    assert not opening or room_of(path) in TOUCH_FILES


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(HOUSE)))
def test_every_module_says_what_it_is_for(path: Path) -> None:
    """A module opens with a docstring."""
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


HEAVY = ("pandas", "scipy", "sklearn", "joblib", "matplotlib", "rich")


def loaded_by(code: str) -> set[str]:
    """Return the top-level modules that are loaded after running code in a new process."""
    script = f"{code}\nimport sys; print(' '.join(sorted({{m.split('.')[0] for m in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_the_command_line_starts_light() -> None:
    """Importing the command line imports neither numpy nor anything heavier."""
    assert not loaded_by("import fairfix.cli") & {"numpy", "pyarrow", *HEAVY}


def test_the_audit_path_needs_numpy_and_pyarrow_only(tmp_path: Path) -> None:
    """An audit in JSON loads no pandas, scipy, scikit-learn or rich."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    table = {
        "race": pa.array(list("abc") * 40),
        "label": pa.array(rng.integers(0, 2, 120)),
        "score": pa.array(rng.random(120)),
    }
    pq.write_table(pa.table(table), tmp_path / "data.parquet")
    arguments = [
        "audit",
        str(tmp_path / "data.parquet"),
        "--protected",
        "race",
        "--format",
        "json",
        "--no-config",
    ]
    run = f"from fairfix.cli import run; run({arguments!r})"

    assert not loaded_by(run) & set(HEAVY)


def test_public_names_are_complete_and_sorted() -> None:
    """Every public name can be imported, and the list is in order."""
    assert fairfix.__all__ == sorted(fairfix.__all__)
    assert set(fairfix.__all__) == set(fairfix._HOME)
    for name in fairfix.__all__:
        assert getattr(fairfix, name) is not None
