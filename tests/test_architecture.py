"""The plan of the house: which room may import which, held against the imports of every module."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import fairfix

from tests.scripts import script

HOUSE_PLAN = script("docs/house.py")
HOUSE = Path(fairfix.__file__).parent

MAY_IMPORT = {
    "errors": "",
    "schema": "data",
    "stats": "",
    "solvers": "",
    "data": "errors",
    "models": "errors schema solvers data",
    "auditing": "errors schema stats data",
    "report": "errors schema data auditing",
    "interactive": "errors data auditing report",
    "individual": "errors schema stats solvers data models auditing",
    "noise": "errors schema solvers data models auditing",
    "methods": "errors stats solvers data models auditing individual noise",
    "sklearn": "errors data models noise methods",
    "tasks": "errors schema stats solvers data models auditing report interactive individual noise methods",
    "testing": "errors report tasks",
    "cli": "errors schema data models auditing report individual noise methods tasks",
}
"""Room -> rooms below it that it may import."""

LIBRARIES = {"stats": {"numpy", "scipy"}, "solvers": {"numpy", "scipy", "threadpoolctl"}}
"""Room of arithmetic -> what it may import from outside."""

TOUCH_FILES = {
    "data/confined.py",
    "data/files.py",
    "data/memory.py",
    "data/new_table.py",
    "data/packing.py",
    "data/storage.py",
    "data/atomic_write.py",
    "data/streams.py",
    "data/targets.py",
    "data/web.py",
    "data/container.py",
    "models/user_file.py",
    "models/onnx_model.py",
    "models/export/__init__.py",
    "cli",
}
"""Modules and rooms that read or write files."""


STARTING = "data/workers.py"
"""Module that starts processes, and sets a variable for them."""

LONGEST_MODULE, LONGEST_CLASS = 600, 300
"""Lines that fit one head."""

LONGER = {
    "auditing/metrics.py": "every metric, one entry each",
    "tasks/request.py": "every parameter of every command, one field each",
    "Repaired": "a saved repair: what it holds, reads, writes and predicts",
}
"""Module or class -> why it may be longer."""

VAGUE = {"found", "told", "said", "known", "some", "values", "chances", "measure", "findings"}
"""Names that say nothing of the object: one is called by its noun of the field and its unit."""

STILL_VAGUE = {"solvers/plugin_rule.py": {"values"}}
"""Module -> such a name in it, by which artifacts have its array."""


@cache
def trees() -> dict[Path, ast.Module]:
    """Return the parsed modules of the package; in the tests, since every worker collects and few run them."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(HOUSE.rglob("*.py"))}


SCRIPT = "models/standalone.py"
"""What is given away to run where fairfix is not."""


def calls_of(tree: ast.AST) -> set[str]:
    """Return what is called in a module, as it is written."""
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


def test_imports_follow_the_plan() -> None:
    """A room imports only rooms below it; what it imports from outside is what its work needs."""
    wrong = []
    for path in trees():
        room, names = HOUSE_PLAN.room_of(path, HOUSE), HOUSE_PLAN.imports_of(path)
        if room in ("__init__", "__main__"):
            continue
        rooms = {name.split(".")[1] for name in names if name.startswith("fairfix.")} - {"__version__", room}
        outside = {name.split(".")[0] for name in names} - set(sys.stdlib_module_names) - {"fairfix"}
        wrong += [f"{path}: {other}" for other in rooms - set(MAY_IMPORT[room].split())]
        wrong += [f"{path}: {other}" for other in outside - LIBRARIES.get(room, outside)]
        shared = {"base", "constraint", "guarantee", "spline_basis", "cells", "learned", "problem"}
        if (
            room == "methods"
            and (method := path.relative_to(HOUSE).parts[1].removesuffix(".py")) not in shared
        ):
            others = {name.split(".")[2] for name in names if name.startswith("fairfix.methods.")}
            wrong += [f"{path}: {other}" for other in others - {*shared, method}]
    assert not wrong


def test_only_the_command_line_talks_exits_and_opens_files() -> None:
    """No other room prints, exits, reads the environment, opens files or touches global random state."""
    wrong = []
    for path, tree in trees().items():
        text, calls, name = path.read_text(encoding="utf-8"), calls_of(tree), path.relative_to(HOUSE)
        opening = {"open", "read_text", "write_text", "read_bytes", "write_bytes", "unlink", "mkstemp"}
        if name.parts[0] != "cli" and str(name) != SCRIPT:
            wrong += [
                f"{name}: {call}" for call in calls & {"print", "sys.exit", "exit", "quit", "os.getenv"}
            ]
            wrong += [f"{name}: environment"] if "os.environ" in text and str(name) != STARTING else []
        if not {name.parts[0], str(name)} & TOUCH_FILES:
            wrong += [f"{name}: {call}" for call in calls if call.split(".")[-1] in opening]
        wrong += re.findall(r"np\.random\.(?!default_rng|Generator)\w+", text)
    assert not wrong


def test_modules_and_classes_fit_one_head() -> None:
    """None is longer than the plan allows, but for those with a reason."""
    modules = {
        str(path.relative_to(HOUSE))
        for path in trees()
        if len(path.read_text(encoding="utf-8").splitlines()) > LONGEST_MODULE
    }
    classes = {
        node.name
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and (node.end_lineno or 0) - node.lineno >= LONGEST_CLASS
    }
    assert not (modules | classes) - set(LONGER)


def defined_in(tree: ast.AST) -> set[str]:
    """Return the names that a module defines: variables, arguments, functions, classes, fields and attributes."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(
            node, ast.FunctionDef | ast.ClassDef | ast.ExceptHandler | ast.MatchAs | ast.MatchStar
        ):
            names.add(node.name or "")
        elif isinstance(node, ast.alias):
            names.add(node.asname or "")
        elif isinstance(node, ast.MatchMapping):
            names.add(node.rest or "")
    return names


def test_names_say_their_object() -> None:
    """No vague name is defined, so none can be used but what libraries call so, such as ``dict.values()``."""
    names = {path: {path.stem, *defined_in(tree)} for path, tree in trees().items()}
    vague = {str(path.relative_to(HOUSE)): own & VAGUE for path, own in names.items() if own & VAGUE}

    assert vague == STILL_VAGUE


def test_no_two_classes_have_one_name() -> None:
    """Whoever reads the name of a class, in a message or an annotation, knows which one it is."""
    named = Counter(
        node.name for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    )
    assert [name for name, times in named.items() if times > 1] == []


def test_every_way_to_define_a_name_is_seen() -> None:
    """Each line defines one of the vague names in another way, and uses alone are none."""
    ways = [
        "found = 1", "for told, x in y: pass", "said: int", "with x as known: pass", "[some for some in x]",
        "(values := 1)", "def f(*, chances): pass", "def f(*measure): pass", "lambda findings: 0",
        "def found(): pass", "class told: pass", "x.said = 1", "import x as known", "from x import y as some",
        "try: pass\nexcept E as values: pass", "match x:\n case {'a': chances, **measure}: pass",
        "match x:\n case [*findings]: pass", "found += 1",
    ]  # fmt: skip

    assert all(defined_in(ast.parse(way)) & VAGUE for way in ways)
    assert not defined_in(ast.parse("x = d.values(); y = frame.values; f(values=x); z = found")) & VAGUE


def test_every_module_says_what_it_is_for() -> None:
    assert not [path for path, tree in trees().items() if not ast.get_docstring(tree)]


HEAVY = (
    "narwhals",
    "ibis",
    "duckdb",
    "sqlglot",
    "pandas",
    "sklearn",
    "joblib",
    "matplotlib",
    "rich",
    "jinja2",
)


def loaded_by(code: str) -> set[str]:
    """Return the modules that are loaded after running code in a new process."""
    script = f"{code}\nimport sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_the_command_line_starts_light() -> None:
    """Importing the command line imports neither numpy nor anything heavier, nor the structs of results."""
    assert not loaded_by("import fairfix.cli") & {"msgspec", "numpy", "scipy", "pyarrow", *HEAVY}


def test_the_audit_path_needs_numpy_and_pyarrow_only(tmp_path: Path) -> None:
    """An audit, be it with a configuration of methods, loads nothing heavy, and of scipy special functions alone."""
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
    config = tmp_path / "fairfix.toml"
    config.write_text('[audit]\nprotected = "race"\n[repair.ramp]\ngamma = 0.1\n', encoding="utf-8")
    arguments = ["audit", str(tmp_path / "data.parquet"), "--config", str(config)]
    run = f"from fairfix.cli import main\ntry: main({arguments!r})\nexcept SystemExit as end: assert not end.code"

    unwanted = {
        *("scipy.optimize", "scipy.sparse", "scipy.linalg", "scipy.stats"),
        *("pyarrow.compute", "pyarrow.dataset", "numpy.f2py.f2py2e", "numpy.testing._private"),
        *("fairfix.methods", "fairfix.solvers", "fairfix.noise", "fairfix.auditing.countfile"),
    }
    assert not loaded_by(run) & {*HEAVY, *unwanted}


def test_public_names_are_complete_and_sorted() -> None:
    assert fairfix.__all__ == sorted(fairfix.__all__)
    assert set(fairfix.__all__) == set(fairfix._HOME)
    for name in fairfix.__all__:
        assert getattr(fairfix, name) is not None
