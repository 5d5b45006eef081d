"""Lines to fuzz with: all options of all commands, drawn from the options that the commands have.

An option has entries by its type (flags, choices, numbers), by what its help calls its value (``COLUMN``), or by its
name in :data:`BY_NAME`. :func:`unknown_options` names those with none of these, so that a new one is fuzzed from its
first day.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import click
import pyarrow as pa
from fairfix.auditing.comparisons import written
from fairfix.auditing.metrics import ALIASES, FLIP_SCOPES, METRICS, SCOPES
from fairfix.cli import COMMANDS
from fairfix.cli.options import NumberOption
from fairfix.data.choices import Keep, Probabilities
from fairfix.data.domain import Domain
from fairfix.data.names import quoted_name
from fairfix.data.noise_spec import NEEDS
from fairfix.methods import available as found_methods
from fairfix.methods.learned import LearnerDomain
from fairfix.report.words import SETTINGS
from fairfix.tasks.quality import FORMS as QUALITIES
from fairfix.tasks.request import EXCLUDES, MULTICLASS, REQUIRES

from tests.fuzz import files
from tests.fuzz.frames import NAMES, Frame, frame
from tests.results import FILES

available = cache(found_methods)
"""The methods, searched for once."""

Make = Callable[[pa.Table, Path, random.Random], str]
"""Writes a file of a case into a folder, from the case's table, and returns its name."""

Line = list[tuple[str, ...]]
"""Words of a command line, those of one option or argument together."""


@dataclass
class Case:
    """Some commands, one after the other, in a folder with files; drawn from a number, or made smaller."""

    number: int
    frame: Frame
    files: dict[str, Make] = field(default_factory=dict)
    """By the word that stands for the file in the lines, such as ``<data>``."""
    steps: list[Line] = field(default_factory=list)

    def written(self, folder: Path) -> list[list[str]]:
        """Write the files, and return the lines with their names and their hashes."""
        words = {}
        for key, make in self.files.items():
            name = make(self.frame.table, folder, random.Random(f"{self.number} {key}"))
            words[f"<{key}>"] = name
            if (folder / name).is_file():
                words[f"<hash {key}>"] = hashlib.sha256((folder / name).read_bytes()).hexdigest()

        def filled(word: str) -> str:
            for key, name in words.items():
                word = word.replace(key, name)
            return word.replace("\x00", "")  # no argument of a process has one

        return [[filled(word) for part in line for word in part] for line in self.steps]


# ---------------------------------------------------------------------- entries


class Drawer:
    """Draws the entries of options for one case."""

    def __init__(self, draw: random.Random, case: Case, hostile: float) -> None:
        self.draw, self.case, self.hostile = draw, case, hostile
        self.method = ""
        self.recorded = ""
        """The one protected column of a line whose groups are described as noisy ones."""
        self.described = ""
        """How noise is described: a table of counts where this is empty, or of a kind of probabilities, ``people``,
        ``radius`` or ``membership``."""

    def wild(self) -> bool:
        """Tell whether something implausible is wanted."""
        return self.draw.random() < self.hostile

    def column(self, *parts: str) -> str:
        """Return a column of one of these parts; now and then any, or one that is not there."""
        names = self.case.frame.table.column_names
        if self.wild():
            return self.draw.choice([*names, self.draw.choice(NAMES)])
        return self.draw.choice(
            [name for part in parts for name in self.case.frame.parts.get(part, ())] or names
        )

    def listed(self, *parts: str, most: int = 2) -> str:
        """Return some columns in the form of a list."""
        return ",".join(listable(self.column(*parts)) for _ in range(self.draw.randint(1, most)))

    def entry(self, column: str, table: pa.Table | None = None) -> str:
        """Return an entry of a column as a text."""
        table = self.case.frame.table if table is None else table
        if not self.wild() and column in table.column_names and table.num_rows:
            part = table.column(table.column_names.index(column))
            return files.as_text(part[self.draw.randrange(table.num_rows)])
        return self.draw.choice((*NAMES, "a", "b", "1", "true"))

    def number(self, *usual: float) -> str:
        """Return a number, mostly one of the usual ones."""
        odd = ("0", "1", "-1", "inf", "-inf", "nan", "1e-300", "1e308", "2", "1e16", "0.999999999", "x", "")
        return self.draw.choice(odd) if self.wild() else f"{self.draw.choice(usual):.15g}"

    def file(self, key: str, make: Make) -> str:
        """Return the word of a file, which is written before the commands run."""
        self.case.files.setdefault(key, make)
        return f"<{key}>"

    def check(self) -> str:
        """Return a check, mostly one that makes sense."""
        draw = self.draw
        metric = (
            draw.choice(("dp", "eo", "ks", "accuracy", "auc", *METRICS, *ALIASES))
            if draw.random() < 0.5
            else "dp"
        )
        kind = draw.choice((".difference", ".difference", ".ratio", ".min", ".max", ".covariance", ""))
        scope = draw.choice(
            ("", "", "", *(f".{one}" for one in (*SCOPES, *FLIP_SCOPES, "true_groups", "under_n1")))
        )
        if draw.random() < 0.8:
            metric, kind, scope = (
                draw.choice(("dp", "selection_rate", "base_rate", "mean_score", "accuracy")),
                ".difference",
                "",
            )
            return f"{metric}.difference<={self.number(0.1, 0.02, 0.5)}"
        where = f"[{written(self.column('group'))}]" if draw.random() < 0.2 else ""
        sign = ">=" if kind in (".ratio", ".min") else "<="
        change = ".change" if draw.random() < 0.1 else ""
        sign = draw.choice((sign, sign, ">", "<="))
        return f"{metric}{kind}{scope}{change}{where}{sign}{self.number(0.1, 0.02, 0.5)}"

    def setting(self) -> str:
        """Return a setting of the method as ``NAME=VALUE``."""
        every = rules_of()
        own = [name for name in sorted(SETTINGS) if name in every and self.method in dict(every[name])]
        name = (
            self.draw.choice(own or ["rho"])
            if not self.wild()
            else self.draw.choice(("slack", "x", "", "rho"))
        )
        if name == "label_range":
            return (
                f"{name}={'-1e6,1e6' if not self.wild() else self.draw.choice(('0,1', '1,0', '5', 'nan,1'))}"
            )
        rules = [rule for method, rule in every.get(name, []) if method == self.method]
        return f"{name}={self.hyper(rules) if rules else '1'}"

    def hyper(self, rules: list[Domain]) -> str:
        """Return a value of a hyper-parameter, or several."""
        rule = self.draw.choice(rules)
        if self.wild():
            return self.draw.choice(("", "nan", "-1", "inf", "x", "0", "a=b", "1e308", *NAMES[:3]))
        if isinstance(rule, LearnerDomain):
            return self._learner(rule)
        usual = (*rule.choices, *rule.words, *(() if rule.choices else self._numbers(rule)))
        many = 2 if rule.selectable and self.draw.random() < 0.2 else 1
        return ",".join(self.draw.choice(usual) for _ in range(many))

    def _learner(self, rule: LearnerDomain) -> str:
        """Return a learner, perhaps with a value for one of its keys."""
        name = self.draw.choice(list(rule.forms))
        keys = rule.forms[name].keys
        if not keys or self.draw.random() < 0.5:
            return name
        key = self.draw.choice(list(keys))
        return f"{name}({key}={self.hyper([keys[key]])})"

    def _numbers(self, rule: Domain) -> tuple[str, ...]:
        low = rule.at_least or 0.0
        return tuple(
            f"{one:g}"
            for one in (low, low + 0.01, low + 0.1, low + 1, low + 3)
            if rule.at_most is None or one <= rule.at_most
        )


def listable(name: str) -> str:
    """Return a column's name as it stands in a list."""
    plain = name == name.strip() and name and not set(name) & {",", '"'}
    return name if plain else '"' + name.replace('"', '""') + '"'


def _data(table: pa.Table, folder: Path, draw: random.Random) -> str:
    return files.write(
        table,
        folder,
        draw.choice(("data", "data", "data", "da\u202eta", "\x1b[31mred", "a b", "<b>", "%0A::error")),
        draw,
    )


def _more(table: pa.Table, folder: Path, draw: random.Random) -> str:
    """Write other rows of the same table, perhaps without a column, as data of later."""
    rows = table
    if draw.random() < 0.5:
        start = draw.randint(0, table.num_rows)
        rows = pa.concat_tables([table.slice(start), table.slice(0, start // 2)])
    if draw.random() < 0.1 and rows.num_columns > 1:
        rows = rows.remove_column(draw.randrange(rows.num_columns))
    return files.write(rows, folder, "more", draw)


def _noise(column: str, by_label: bool, form: str) -> Make:
    """Return what writes a table of true and recorded groups: of counts, of probabilities, or a row per person."""

    def make(table: pa.Table, folder: Path, draw: random.Random) -> str:
        named = {"a", "b"}
        if column in table.column_names:
            part = table.column(table.column_names.index(column))
            named = {files.as_text(one) for one in part.slice(0, 50)} or named
        groups, labels = sorted(named)[:6], (0, 1) if by_label else (None,)
        counts = {
            (true, noisy, label): draw.choice((90, 900)) if true == noisy else draw.choice((0, 3, 10))
            for true in groups
            for noisy in groups
            for label in labels
        }
        sums: Counter[Any] = Counter()
        alike = {"joint": lambda key: key[2], "true-given-noisy": lambda key: key[1:]}.get(
            form, lambda key: key[::2]
        )
        for key, many in counts.items():
            sums[alike(key)] += many
        head = ["true", "noisy", *(["label"] if by_label else [])]
        lines = [",".join(head if form == "people" else [*head, "probability" if form else "count"])]
        for key, many in counts.items():
            words = [files.quoted_csv(str(one)) for one in key if one is not None]
            if form == "people":
                lines += [",".join(words)] * (many // 10)
            else:
                total = 1 if not form else sums[alike(key)] * (2 if form == "joint" and by_label else 1)
                lines.append(",".join([*words, repr(many / total) if form else str(many)]))
        (folder / "noise.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return "noise.csv"

    return make


def _pairs(column: str) -> Make:
    def make(table: pa.Table, folder: Path, draw: random.Random) -> str:
        names = ["x", "y"]
        if column in table.column_names:
            names = [
                files.as_text(one) for one in table.column(table.column_names.index(column)).slice(0, 20)
            ] or names
        lines = ["one,other"] + [
            ",".join(files.quoted_csv(draw.choice(names)) for _ in range(2)) for _ in range(8)
        ]
        (folder / "pairs.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return "pairs.csv"

    return make


def _directions(column: str) -> Make:
    """Return what writes directions: rows with an entry for one column, some of them none or none of use."""

    def make(table: pa.Table, folder: Path, draw: random.Random) -> str:
        entries = [draw.choice(("1", "-2.5", "1e9", "0", "", "x")) for _ in range(draw.randint(0, 3))]
        name = files.quoted_csv(column)
        (folder / "directions.csv").write_text("\n".join([name, *entries]) + "\n", encoding="utf-8")
        return "directions.csv"

    return make


def _copies(column: str) -> Make:
    """Return what writes copies of people: the id and one or two other columns, with entries of other rows."""

    def make(table: pa.Table, folder: Path, draw: random.Random) -> str:
        others = [name for name in dict.fromkeys(table.column_names) if name != column] or ["x"]
        names = [column, *draw.sample(others, min(len(others), draw.randint(1, 2)))]
        lines = [",".join(map(files.quoted_csv, names))]
        columns = [
            [files.as_text(one) for one in table.column(table.column_names.index(name)).slice(0, 40)] or ["y"]
            if name in table.column_names
            else ["x", "y"]
            for name in names
        ]
        lines += [",".join(files.quoted_csv(draw.choice(one)) for one in columns) for _ in range(30)]
        (folder / "copies.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return "copies.csv"

    return make


def _similar(d: Drawer) -> str:
    """Return who is similar: a form, values of a column, or one of the kinds of files."""
    kind = d.draw.choice(("flips", "near", "learned", "values", "pairs", "directions", "copies", "wild"))
    if kind == "near":
        cost = f",cost={d.number(0.0, 0.1)}" if d.draw.random() < 0.3 else ""
        return f"near(radius={d.number(0.0, 0.1, 1.0)}{cost})"
    if kind == "learned":
        return d.draw.choice(("learned", "learned(by=means)", "learned(by=pooled)"))
    if kind == "values":
        column = d.column("group", "number")
        return f"{column}={d.entry(column)},{d.entry(column)}"
    if kind == "pairs":
        return d.file("pairs", _pairs(d.column("id"))) + d.draw.choice(
            ("", "(directions=1)", "(directions=3)")
        )
    if kind == "directions":
        return d.file("directions", _directions(d.column("features")))
    if kind == "copies":
        return d.file("copies", _copies(d.column("id")))
    return (
        "flips"
        if kind == "flips" or not d.wild()
        else d.draw.choice(("flip", "near", "near(radius=x)", "a=b"))
    )


def _model(columns: tuple[str, ...]) -> Make:
    def make(table: pa.Table, folder: Path, draw: random.Random) -> str:
        import joblib
        import numpy as np
        import pandas as pd
        from sklearn.linear_model import LinearRegression, LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        rng = np.random.default_rng(0)
        rows: Any = pd.DataFrame(rng.normal(40, 20, (40, len(columns))), columns=list(columns))
        made = draw.choice((LogisticRegression(), LogisticRegression(), LinearRegression()))
        fitted = make_pipeline(StandardScaler(), made).fit(rows, (rows.iloc[:, 0] > 40).astype(int))
        joblib.dump(fitted, folder / "model.joblib")
        return "model.joblib"

    return make


def _model_word(d: Drawer) -> str:
    columns = tuple(dict.fromkeys(d.case.frame.parts.get("number", ["age"])))
    return d.file("model", _model(columns))


def _radii(d: Drawer) -> str:
    column = d.recorded or d.column("group")
    groups = dict.fromkeys(d.entry(column) for _ in range(d.draw.randint(1, 3)))
    near = d.draw.random() < 0.2
    return ",".join(
        f"{f'true {k} near ' * near}{group}={d.number(0.0, 0.05, 0.1)}" for k, group in enumerate(groups)
    )


def _constraint(d: Drawer) -> str:
    """Return what a method is to hold: a name, or a condition, mostly one that it knows."""
    named = [
        one
        for name, method in available().items()
        if name == d.method or d.wild()
        for one in method.grammar.criteria
    ]
    of = d.draw.choice(named or ["selection_rate.difference.between_groups"])
    limit, column = d.number(0.02, 0.1, 0.5), d.recorded or d.column("group")
    group = f"{of.removesuffix('.max')}[{written(column)}={written(d.entry(column))}]<={limit}"
    return d.draw.choice(
        (
            *(f"{of}<={limit}", f"{of}<={limit}", f"{of}[each]<={limit}", group, f"{of}<={limit}, {group}"),
            f"{of.replace('.difference', '.ratio')}>={d.number(0.8, 0.5)}",
            f"{of.replace('to_overall', 'worse_than_overall')}<={limit}",
            f"{of}[{written(column)}]<={limit}",
            *(name for method in available().values() for name in method.grammar.criteria.values()),
        )
    )


def _of_number(chosen: dict[str, str], d: Drawer) -> dict[str, str]:
    """Return the options of a repair, now and then made ones of a protected number; by a draw of its own."""
    draw = random.Random(f"{d.case.number} number")
    if draw.random() >= OF_CLASSES or d.method != "ramp":
        return chosen
    out = {name: entry for name, entry in chosen.items() if name not in ("protected", "slack")}
    return {**out, "constraint": f"covariance[{written(d.column('number'))}]<={draw.choice((0, 0.02, 0.1))}"}


def _membership(d: Drawer) -> str:
    names = d.case.frame.parts.get("membership", [])
    named = d.draw.random() < 0.5
    return ",".join(
        (f"g{at}=" if named else "") + listable(d.column("membership") if d.wild() else name)
        for at, name in enumerate(names)
    )


def _described(d: Drawer) -> str:
    """Return a description of noise."""
    if d.described in ("radius", "membership"):
        return f"{d.described}:{(_radii if d.described == 'radius' else _membership)(d)}"
    file = d.file("noise", _noise(d.recorded or d.column("group"), d.draw.random() < 0.5, d.described))
    said = ["true=true,recorded=noisy"] if d.described == "people" else []
    said += [f"keep={d.draw.choice(get_args(Keep))}"] if d.draw.random() < 0.3 else []
    said += [f"label={d.column('label')}"] if d.wild() else []
    return f"{file}({','.join(said)})" if said else file


def _bands(d: Drawer) -> str:
    how = d.draw.choice(("quartiles", "tertiles", "deciles", "30,50", "40", "values", d.number(3, 50)))
    return f"{d.column('number', 'number', 'group')}={how}"


def _merge(d: Drawer) -> str:
    column = d.column("group", "stratum", "label")
    names = [d.entry(column) for _ in range(d.draw.randrange(1, 4))]
    first = ["(missing)"] if d.draw.random() < 0.3 else []
    return f"{column}={','.join(map(listable, first + names))}"


def _report_file(d: Drawer) -> str:
    return d.draw.choice(("no/such/x", "out.counts")) if d.wild() else f"report{d.draw.randrange(99)}"


BY_NAME: dict[str, Callable[[Drawer], str]] = {
    "data": lambda d: (
        d.file("data", _data) if d.draw.random() < 0.99 else d.draw.choice(("gone.csv", "", ".", "*.csv"))
    ),
    "protected": lambda d: listable(d.recorded) if d.recorded and not d.wild() else d.listed("group"),
    "label": lambda d: d.column("label"),
    "score": lambda d: d.column("score"),
    "prediction": lambda d: d.column("prediction"),
    "probability": lambda d: d.column("probability"),
    "weight": lambda d: d.column("weight"),
    "count": lambda d: d.column("weight"),
    "id": lambda d: d.column("id"),
    "features": lambda d: d.draw.choice(
        (d.listed("number", most=3), d.listed("number", "odd", "group", most=4), "all", "score")
    ),
    "exclude": lambda d: d.draw.choice((d.listed("number", "odd", most=2), "c*", "*", "[")),
    "strata": lambda d: d.listed("stratum", most=1),
    "bands": _bands,
    "merge": _merge,
    "where": lambda d: f"`{d.column('group')}` != '{d.entry(d.column('group'))}'",
    "threshold": lambda d: d.draw.choice(
        (
            *(d.number(0.5, 0.3, 0.7, 0.0) for _ in range(3)),
            f"{d.column('group')}:{d.entry(d.column('group'))}=0.4,{d.entry(d.column('group'))}=0.5",
        )
    ),
    "top": lambda d: d.draw.choice(
        ("5", "10%", "2.5 %", *(("0", "101%", "x", "1e9", "0.1") if d.wild() else ()))
    ),
    "missing": lambda d: d.draw.choice(
        (
            "drop",
            "error",
            f"{d.column('group')}=group",
            f"{d.column('label')}=drop",
            "group" if d.wild() else "drop",
        )
    ),
    "model": _model_word,
    "trust_model": lambda d: (
        "sha256:<hash model>" if not d.wild() else d.draw.choice(("sha256:0", "x", "sha256:" + "0" * 64))
    ),
    "noise": _described,
    "assume": lambda d: d.draw.choice(
        (f"eps={d.number(0.0, 0.05, 0.3)}", *(("", "x", "eps") if d.wild() else NEEDS))
    ),
    "constraint": _constraint,
    "check": Drawer.check,
    "confidence": lambda d: d.number(0.95, 0.9, 0.5, 0.99),
    "guarantee": lambda d: d.number(0.95, 0.9, 0.5, 0.99),
    "table": lambda d: d.draw.choice(("loans", 'we"ird', *NAMES)),
    "reference": lambda d: (lambda column: f"{quoted_name(column, '=')}={quoted_name(d.entry(column))}")(
        d.column("group")
    ),
    "similar": _similar,
    "slices": lambda d: d.draw.choice(("all", d.listed("number", "odd", "group", most=4))),
    "slice_metric": lambda d: d.draw.choice(
        (
            "accuracy",
            "dp",
            "fnr",
            "calibration_gap",
            "log_loss",
            "tpr.difference",
            "dp.difference[x",
            *METRICS,
        )
    ),
    "min_rows": lambda d: d.draw.choice(("1", "5", "100000")),
    "set_": lambda d: d.setting(),
    "profile": lambda d: d.draw.choice(
        (
            "ll144",
            "ugesp",
            "lending",
            "eu",
            "ll144(exclude_small=0.02)",
            f"ll144(exclude_small=0.01,reason={d.draw.choice(NAMES)})",
        )
    ),
    "words": lambda d: d.draw.choice(("audit", "count", "moon")),
    "private": lambda d: d.number(1.0, 0.1, 10.0, 0.0),
    "part": lambda d: d.draw.choice(("0.5:0.5", "x", "1:0") if d.wild() else ("0:0.7", "0.7:1", "0:1")),
    "baseline": lambda d: d.draw.choice(
        (lambda: "missing.json", lambda: "<data>", lambda: d.column("score"), lambda: d.file("more", _more))
    )(),
    "state": lambda d: (
        d.draw.choice(("no/such/folder/x", ".", "/dev/stdout", "<data>", "", "s3://x/y.counts"))
        if d.wild()
        else "grown.counts"
    ),
    "of": lambda d: d.draw.choice(("missing.fairfix", "<data>", "")),
    "unlabelled": lambda d: d.file("more", _more),
    "holdout": lambda d: (
        d.number(0.3, 0.5, 0.1, 0.0) if not d.wild() else d.draw.choice(("missing.counts", "<data>"))
    ),
    "validation": lambda d: d.number(0.2, 0.5),
    "method": lambda d: d.draw.choice([*available(), *(["", "rampe"] if d.wild() else [])]),
    "methods": lambda d: ",".join(d.draw.sample(list(available()), d.draw.randint(1, 2))),
    "quality": lambda d: (
        d.draw.choice((*QUALITIES, "cost(fp=1,fn=9)", "cost(fp=0)"))
        if not d.wild()
        else d.draw.choice(("", "cost(", "cost(fp=nan)", "cost(fp=0,fn=0)", "f1", "cost(fp=1e308)"))
    ),
    "slacks": lambda d: ",".join(d.number(0.0, 0.05, 0.2) for _ in range(d.draw.randint(1, 2))),
    "encoding": lambda d: d.draw.choice(("utf-8", "cp1252", "utf-16", "x", "", "rot13")),
    "delimiter": lambda d: d.draw.choice((",", ";", "\t", "|", "x", "", ",,", "é")),
    "sql": lambda d: d.draw.choice(("select 1", "drop table x", "")),
    "cluster": lambda d: d.draw.choice(("local:0", "local:x", "")),
    "output": lambda d: (
        d.draw.choice(("made", "made.csv", "made.parquet", "no/such/folder/x", ".", "/dev/stdout"))
        if d.wild()
        else d.draw.choice(("made", "made.csv", "made.parquet"))
    ),
    "out": lambda d: f"{d.draw.choice(FILES)}={_report_file(d)}",
    "config": lambda d: d.file("config", lambda table, folder, draw: _config(folder, "")),
    "name": lambda d: d.draw.choice(("all", *NAMES)),
    "artifact": lambda d: "made",
    "result": lambda d: "result.json",
    "counts": lambda d: "out.counts",
    "comparison": Drawer.check,
}
"""By the name of an option or argument: what it may be."""


def entry_of(param: click.Parameter) -> Callable[[Drawer], str] | None:
    """Return what draws the entry of an option; None of one that nothing here knows."""
    name = str(param.name)
    kind = param.type
    if isinstance(kind, click.Choice):
        choices = list(kind.choices)
        return lambda d: (
            d.draw.choice(choices) if not d.wild() else d.draw.choice(("", "none of these", *choices))
        )
    if getattr(param, "is_flag", False):
        return lambda d: ""
    if isinstance(kind, NumberOption) and kind.domain.kind is int:
        low = int(kind.min or 0)
        usual = (low, low + 1, low + 2, low + 7, low + 50)
        return lambda d: (
            str(d.draw.choice(usual))
            if not d.wild()
            else d.draw.choice(("-1", "0", "99999999999999999999", "1.5", "x", ""))
        )
    if name in BY_NAME:
        return BY_NAME[name]
    rules = rules_of().get(name)
    if rules:
        return lambda d: d.hyper(
            [rule for method, rule in rules if method == d.method] or [rule for _, rule in rules]
        )
    if isinstance(kind, NumberOption):
        return lambda d: d.number(0.0, 0.1, 0.5, 1.0)
    if getattr(param, "metavar", None) == "COLUMN":
        return lambda d: d.column("number", "odd", "group", "score", "label")
    return None


@cache
def rules_of() -> dict[str, list[tuple[str, Domain]]]:
    """Return (method, rule) of every hyper-parameter that has no text of its own form, by its name."""
    out: dict[str, list[tuple[str, Domain]]] = {}
    for method, kind in available().items():
        for name, spec in kind.domains().items():
            if not spec.text or name in SETTINGS:
                out.setdefault(name, []).append((method, spec))
    return out


def params_of(command: str) -> list[click.Parameter]:
    """Return the options and arguments of a command, but for help."""
    made: click.Command = import_module(f"fairfix.cli.{command}").command
    return [one for one in made.get_params(click.Context(made)) if "--help" not in one.opts]


def unknown_options() -> list[str]:
    """Return the options and arguments that nothing here knows what to give to, as ``command --option``."""
    return [
        f"{command} {param.opts[0]}"
        for command in COMMANDS
        for param in params_of(command)
        if entry_of(param) is None
    ]


# ---------------------------------------------------------------------- lines

SELDOM = {
    "dry_run": 0.1,
    "strata": 0.4,
    "config": 0.0,
    "cluster": 0.2,
    "sql": 0.2,
    "delimiter": 0.2,
    "decimal": 0.4,
    "baseline": 0.2,
    "state": 0.4,
    "of": 0.1,
    "similar": 0.3,
    "force": 0.5,
    "learner": 0.3,
    "threads": 0.5,
}
"""Options that end most runs early, or make them long: how often they are taken, compared with others."""

USUAL = {
    "protected": 0.985,
    "label": 0.95,
    "score": 0.97,
    "method": 0.99,
    "format_": 0.3,
    "out": 0.25,
    "task": 0.0,
}
"""Options that most lines have, and how often."""


def written_option(param: click.Option, entry: str, draw: random.Random) -> tuple[str, ...]:
    """Return the words of an option."""
    name = draw.choice(param.opts)
    if param.is_flag:
        return (name,)
    return (f"{name}={entry}",) if name.startswith("--") and draw.random() < 0.2 else (name, entry)


def line(command: str, d: Drawer, given: dict[str, str] | None = None, *, more: int | None = None) -> Line:
    """Return a line of a command: ``given`` options by name, usual ones, and ``more`` of all the others."""
    draw, given = d.draw, given or {}
    params = {str(param.name): param for param in params_of(command)}
    chosen = dict(given)
    for name, often in USUAL.items():
        if name in params and name not in chosen and draw.random() < often:
            chosen[name] = ""
    if "method" in chosen:
        d.method = chosen["method"] or BY_NAME["method"](d)
        chosen["method"] = d.method
    every = {name for method in available().values() for name in method.domains()}
    own = set(available()[d.method].domains()) if d.method in available() else set()
    if command == "repair" and (d.method == "robust") and draw.random() < 0.9:
        chosen["noise"] = ""
        chosen |= {"assume": ""} if draw.random() < 0.5 else {}
    others = [
        name
        for name, param in params.items()
        if name not in chosen
        and isinstance(param, click.Option)
        and name not in ("output",)
        and (name not in every or name in own or d.wild())
        and not (
            command == "repair"
            and name in ("noise", "assume")
            and name not in own
            and d.method != "robust"
            and not d.wild()
        )
        and draw.random() < SELDOM.get(name, 1.0)
    ]
    if more is None:
        more = draw.choice((0, 0, 0, 1, 1, 2, 3, 5))
    chosen |= dict.fromkeys(draw.sample(others, min(more, len(others))), "")
    if command == "audit" and not given:
        chosen = _of_classes(chosen, d)
    if command == "repair" and not given:
        chosen = _of_number(chosen, d)
    if draw.random() >= d.hostile:
        _reconcile(chosen, params, frozenset(given))
        if draw.random() < 0.8:
            _bear_gaps(chosen, params, d.case.frame, frozenset(given))
    if command == "compare":
        for name in {"format_", "out"} & {*chosen}:
            shown = draw.choice(("text", "json", "html", "markdown"))
            chosen[name] = shown if name == "format_" else f"{shown}={_report_file(d)}"
    d.recorded, d.described = "", ""
    if "noise" in chosen:
        kinds = ("", "people", *get_args(Probabilities), "radius", "membership")
        d.described = draw.choice(kinds)
        d.recorded = d.column("group") if d.described != "membership" else ""
        fits = "method" in params or "methods" in params  # these need the column of a rule's groups
        if d.described == "membership" and "protected" not in given and not fits and not d.wild():
            chosen.pop("protected", None)
    out: Line = [(command,)]
    for name in chosen:
        param = params[name]
        make = entry_of(param)
        assert make is not None, f"{command} {name}: say in tests/fuzz/commands.py what it may be"
        times = draw.choice((1, 1, 2)) if param.multiple and name not in given else 1
        for _ in range(times):
            entry = chosen[name] or make(d)
            out.append(written_option(param, entry, draw) if isinstance(param, click.Option) else (entry,))
    return out


OF_CLASSES = 0.03
"""How often an audit is one of many classes."""


def _of_classes(chosen: dict[str, str], d: Drawer) -> dict[str, str]:
    """Return the options of a line, now and then made ones of an audit of many classes; by a draw of its own."""
    draw = random.Random(f"{d.case.number} classes")
    if draw.random() >= OF_CLASSES:
        return chosen
    groups, condition = d.case.frame.parts.get("group", ["1"]), f"task={MULTICLASS}"
    foreign = {other for name, others, _ in EXCLUDES if name == condition for other in others}
    out = {name: entry for name, entry in chosen.items() if name not in foreign or draw.random() < d.hostile}
    columns = draw.choices((*groups, *d.case.frame.parts.get("label", ())), k=2)
    return {**out, "task": MULTICLASS, "label": columns[0], "prediction": columns[1]}


def _reconcile(chosen: dict[str, str], params: dict[str, Any], kept: frozenset[str]) -> None:
    """Drop options that do not go with others, and add those that others need, as the tables of requests say."""
    for turn in range(4):
        for name, others, _why in EXCLUDES:
            for other in others:
                if name in chosen and other in chosen:
                    chosen.pop(name if other in kept and name not in kept else other)
        for condition, needed, _why in REQUIRES:
            name = condition.partition("=")[0]
            if name not in chosen or any(one.partition("=")[0] in chosen for one in needed):
                continue
            one, _, wanted = needed[0].partition("=")
            if turn < 2 and one in params and one != "baseline":
                chosen[one] = wanted
            else:  # what it needs goes with nothing else that is there
                chosen.pop(name)
        if "model" in chosen:
            chosen.setdefault("trust_model", "")
        elif "trust_model" in chosen:
            chosen.pop("trust_model")
    if chosen.get("task") != "regression":
        chosen.pop("label_range", None)
    if "constraint" in chosen and "constraint" not in kept and "slack" not in kept:
        chosen.pop("slack", None)


def _bear_gaps(chosen: dict[str, str], params: dict[str, Any], of: Frame, kept: frozenset[str]) -> None:
    """Add what data with gaps, or labels that are texts, need; whichever column will be taken."""
    gaps = {
        name
        for name, column in zip(of.table.column_names, of.table.columns, strict=True)
        if column.null_count
    }
    parts = ("group", "stratum", "label", "score", "weight")
    if "missing" in params and gaps & {name for part in parts for name in of.parts.get(part, ())}:
        chosen.setdefault("missing", "abstain" if "artifact" in params else "drop")
    if "id" in chosen and "duplicates" in params:
        chosen.setdefault("duplicates", "share")
    for part in ("label", "prediction"):
        names = of.parts.get(part, [""])
        if part in chosen and chosen.get("task") != "regression" and names[0] in of.table.column_names:
            column = of.table.column(of.table.column_names.index(names[0]))
            entries = {files.as_text(one) for one in column.slice(0, 20)}
            if not entries <= {"0", "1", "True", "False", "0.0", "1.0", "0.000000", "1.000000"}:
                chosen[part] = f"{names[0]}={max(entries)}"


def _config(folder: Path, text: str) -> str:
    (folder / "settings.toml").write_text(text, encoding="utf-8")
    return "settings.toml"


def configured(case: Case, line_: Line, draw: random.Random) -> Line:
    """Return the line with some of its options moved to a configuration file."""
    command = line_[0][0]
    params = {opt: param for param in params_of(command) for opt in param.opts}
    lines: dict[str, list[str]] = {}
    out: Line = []
    for part in line_:
        name, entry = part[0], part[1] if len(part) == 2 else ""
        param = params.get(name)
        out_of_line = (
            param is None or param.name in ("config", "dry_run", "quiet", "detail") or draw.random() < 0.5
        )
        if (
            out_of_line
            or getattr(param, "is_flag", False)
            or "<" in entry
            or "\x00" in entry
            or (param.name in lines and not param.multiple)
        ):
            out.append(part)
        else:
            lines.setdefault(max(param.opts, key=len).lstrip("-"), []).append(entry)
    if not lines:
        return line_
    text = f"[{command}]\n" + "".join(
        f"{name} = {json.dumps(entries if len(entries) > 1 else entries[0])}\n".replace("\x7f", "\\u007F")
        for name, entries in lines.items()
    )
    case.files["config"] = lambda table, folder, draw: _config(folder, text)
    return [*out, ("--config", "<config>")]


# ---------------------------------------------------------------------- cases

PLANS = {
    "audit": 34,
    "repair": 16,
    "compare": 3,
    "predict": 9,
    "export": 5,
    "inspect": 5,
    "report": 6,
    "init": 8,
    "count": 4,
    "explore": 4,
    "explain": 2,
    "counts": 5,
    "baseline": 4,
}
"""What a case is about, and how often of about a hundred."""


def case(number: int) -> Case:
    """Return the case of a number: the same each time."""
    draw = random.Random(number)
    plan = draw.choices(list(PLANS), list(PLANS.values()))[0]
    made = Case(number, frame(draw))
    d = Drawer(draw, made, draw.choice((0.0, 0.0, 0.0, 0.03, 0.15)))
    data = BY_NAME["data"](d)
    quiet: dict[str, Any] = {"more": draw.choice((0, 0, 1))}
    saved = {"out": f"{draw.choice((*['json'] * 11, 'html'))}=result.json"}
    repair = {"data": data, "output": "made"}
    first = {
        "audit": lambda: [line("audit", d, {"data": data})],
        "repair": lambda: [
            line("repair", d, {"data": data} | ({"output": "made"} if draw.random() < 0.8 else {}))
        ],
        "compare": lambda: [
            line(
                "compare",
                d,
                {"data": data, "slacks": d.number(0.0, 0.1)}
                | ({"methods": BY_NAME["method"](d)} if draw.random() < 0.7 else {}),
            )
        ],
        "predict": lambda: [
            line("repair", d, repair, **quiet),
            line(
                "predict",
                d,
                {
                    "artifact": "made",
                    "data": d.file("more", _more),
                    "output": draw.choice(("p.parquet", "p.csv", "p.arrow", "p/", BY_NAME["output"](d))),
                },
            ),
        ],
        "export": lambda: [
            line("repair", d, repair, **quiet),
            line(
                "export", d, {"artifact": "made", **({"output": "exported"} if draw.random() < 0.5 else {})}
            ),
        ],
        "inspect": lambda: [
            line("repair", d, repair, **quiet)
            if draw.random() < 0.5
            else line("count", d, {"data": data, "output": "made"}, **quiet),
            line("inspect", d, {"artifact": "made"}),
        ],
        "report": lambda: [
            line(draw.choice(("audit", "audit", "repair")), d, {"data": data} | saved, **quiet),
            line("report", d, {"result": "result.json"}),
        ],
        "init": lambda: [
            [
                one
                for one in line("init", d, {"data": data})
                if draw.random() < 0.7 or one[0] in ("init", data)
            ],
            *([line("audit", d, {"config": "fairfix.toml"}, more=0)] if draw.random() < 0.5 else []),
        ],
        "count": lambda: [
            line("count", d, {"data": data, "output": "one.counts"}),
            line("count", d, {"data": "one.counts", "output": "out.counts"}),
        ],
        "explore": lambda: [line("explore", d, {"data": data, "output": "page.html"})],
        "counts": lambda: [
            line("count", d, {"data": data, "output": "one.counts"}, **quiet),
            [(draw.choice(("audit", "audit", "repair")),), ("one.counts",)],
        ],
        "baseline": lambda: [
            line("audit", d, {"data": data, "out": "json=result.json"}, more=0),
        ],
        "explain": lambda: [
            [
                ("explain",),
                *(
                    (
                        draw.choice(
                            (
                                *METRICS,
                                *ALIASES,
                                *available(),
                                "four-fifths rule",
                                "0",
                                "usage",
                                "--protected",
                                d.check(),
                                *NAMES,
                            )
                        ),
                    )
                    for _ in range(draw.randint(0, 2))
                ),
            ]
        ],
    }[plan]
    made.steps = first()
    if plan == "counts":
        command = made.steps[1][0][0]
        extra = line(command, d, {"data": "one.counts"}, more=2)
        named = ("protected", "label", "score")
        named += (
            "prediction",
            "probability",
            "weight",
            "count",
            "threshold",
            "missing",
            "strata",
            "bands",
            "merge",
        )
        params = {opt: str(param.name) for param in params_of(command) for opt in param.opts}
        made.steps[1] = [
            part for part in extra if params.get(part[0].partition("=")[0]) not in named or d.wild()
        ]
    if plan == "baseline":
        made.steps.append(
            [
                *made.steps[0][:-1],
                ("--baseline", "result.json"),
                ("--check", f"change<={d.number(0.02, 0.0)}"),
            ]
        )
        made.steps[1] = [
            part
            for part in made.steps[1]
            if "json=result.json" not in part and "--out=json=result.json" not in part
        ]
    for at, step in enumerate(made.steps):
        command = step[0][0]
        if command in ("audit", "repair", "compare") and draw.random() < 0.1:
            made.steps[at] = configured(made, step, draw)
        if command in ("audit", "repair", "compare", "report") and draw.random() < 0.8:
            made.steps[at] = [*made.steps[at], ("--out", f"json=seen{at}.json")]
    return made


def smaller(before: Case) -> list[Case]:
    """Return cases that are a little smaller: fewer steps, options, rows or columns; the boldest first."""
    out = []
    table = before.frame.table

    def of(rows: pa.Table) -> Case:
        return replace(before, frame=replace(before.frame, table=rows))

    size = table.num_rows
    while size:
        out += [
            of(pa.concat_tables([table.slice(0, start), table.slice(start + size)]))
            for start in range(0, table.num_rows, size)
        ]
        if len(out) > 30:
            break
        size //= 2
    out += [of(table.remove_column(at)) for at in range(table.num_columns)]
    for at, step in enumerate(before.steps):
        for word in range(1, len(step)):
            steps = [*before.steps]
            steps[at] = step[:word] + step[word + 1 :]
            out.append(replace(before, steps=steps))
    if len(before.steps) > 1:
        out += [
            replace(before, steps=before.steps[:at] + before.steps[at + 1 :])
            for at in range(len(before.steps))
        ]
    return out
