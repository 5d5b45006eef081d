"""Requests: the parameters of every task, what each may be, and which go together.

A request is a frozen dataclass of :func:`parameter` fields. From one field come the parameter of the library's
function, the option of the command line with its default, range and help, and the key of the configuration. A request
checks itself when it is made, so that whoever holds one need not. Messages and helps put parameters into backquotes;
the command line shows them as options. This module imports no numpy, since every ``--help`` needs it.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from typing import Any, ClassVar, Self, TypeVar, get_args

from fairfix.data.choices import (
    ROLES,
    SEVERAL,
    Asked,
    Database,
    Duplicates,
    ExportTarget,
    GateOn,
    GroupUse,
    MissingScore,
    ScoreScale,
    Task,
    Unseen,
)
from fairfix.data.cutoffs import Capacity, GroupThresholds, threshold_of
from fairfix.data.domain import parameter, parameters_of
from fairfix.data.names import did_you_mean, with_values
from fairfix.data.noise_spec import NoiseSpec
from fairfix.data.urls import closing_connections
from fairfix.errors import UsageError
from fairfix.tasks.quality import FORMS as QUALITIES
from fairfix.tasks.quality import Quality
from fairfix.tasks.synonyms import PARAMETERS, ours

R = TypeVar("R")
Made = TypeVar("Made", bound="Request")

Names = str | Sequence[str]
"""One name or several; a string is one name."""


def source(help: str, metavar: str = "FILE", **domain: Any) -> Any:  # noqa: A002  as click has it
    """Return a field that names data: a path, or what is in memory already."""
    return parameter(None, help, metavar, kind=object, **domain)


def paths_of(kind: type) -> frozenset[str]:
    """Return the parameters of a request that name a file, as ``noise`` may among other things."""
    return frozenset(
        name for name, domain in parameters_of(kind).items() if domain.kind is object and not domain.many
    )


FORMS: Mapping[str, tuple[Any, str]] = {
    "record": (Mapping, "a dict of texts"),
    "waivers": ((list, tuple), "a list of dicts"),
    "metrics": (Mapping, "a dict of functions"),
    "today": (date, "a date"),
    "output": ((str, os.PathLike), "a path"),
}
"""Parameters that have no option of the command line -> their types, in words too."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """Parameters of a task. ``explicit`` names those that were given, be it with their defaults.

    ``configured`` are those of them that a configuration or the environment gives, which may be meant for other tasks.
    """

    reads: ClassVar[Mapping[str, tuple[tuple[str, ...], str]]] = {}
    """Parameter -> what it is read with, one of these, and why not without."""
    needs_rows: ClassVar[Sequence[str]] = ()
    """Parameters that counts do not do for, besides :data:`OF_ROWS`."""

    explicit: frozenset[str] = field(default=frozenset(), repr=False)
    configured: frozenset[str] = field(default=frozenset(), repr=False)
    other_words: tuple[str, ...] = field(default=(), repr=False)
    """Words of a command line that are no parameters, such as ``-o page.html``; a proposed line has them, too."""

    def __post_init__(self) -> None:
        for name, (kind, words) in FORMS.items():
            value = getattr(self, name, None)
            if value is not None and not isinstance(value, kind):
                raise UsageError(f"`{name}` takes {words}, not a value of type {type(value).__name__}")
        for name, domain in parameters_of(type(self)).items():
            object.__setattr__(self, name, domain.value_of(f"`{name}`", getattr(self, name)))
        check_together(self)

    def gives(self, name: str) -> bool:
        """Tell whether a parameter was given, be it with its default."""
        return name in self.explicit or self.has(name)

    def without(self, names: Iterable[str], **more: Any) -> Self:
        """Return the request with the defaults of some parameters, and with further fields as given."""
        parts = self.__dataclass_fields__
        unset: dict[str, Any] = {name: parts[name].default for name in names if name in parts}
        return replace(self, **unset, **more)

    @property
    def unused(self) -> Iterator[str]:
        """Yield in words the parameters without an effect among the others, except configured ones."""
        for name, (needed, why) in self.reads.items():
            if name in self.explicit - self.configured and not any(map(self._read_with, needed)):
                yield f"`{name}` changes nothing here: {why}"

    def _read_with(self, name: str) -> bool:
        """Tell whether there is what another parameter is read with: a parameter, a fit, or several values of one."""
        if name == "a fit":
            return not self.has("baseline")
        if name != "several values":
            return self.has(name)
        several = getattr(self, "parameters", {}).values()
        return any(isinstance(one, (list, tuple)) or (isinstance(one, str) and "," in one) for one in several)

    def has(self, condition: str) -> bool:
        """Tell whether a parameter is given: ``name``, other than its default, or ``name=value``."""
        name, sign, wanted = condition.partition("=")
        value, part = getattr(self, name, None), self.__dataclass_fields__.get(name)
        if part is None or sign:
            return isinstance(value, str) and value == wanted
        plain = isinstance(value, (tuple, int, float, str))
        return value is not part.default and not (plain and value == part.default)


@dataclass(frozen=True, kw_only=True)
class FilesRequest(Request):
    """Parameters that read rows from files and databases, and that let the file of a model run code."""

    sql: str | None = parameter(
        None, "Read-only query, instead of a table in DATA#TABLE (databases).", "SELECT"
    )
    delimiter: str | None = parameter(
        None,
        "CSV column separator: a character, tab, or blank for runs of blanks.  [default: detected]",
        "CHAR",
    )
    decimal: str | None = parameter(
        None,
        "Decimal sign of CSV files; the other sign separates thousands.  [default: detected]",
        choices=(".", ","),
    )
    encoding: str | None = parameter(
        None, "Text encoding of CSV files, such as cp1252.  [default: detected]", "NAME"
    )
    header: bool | None = parameter(
        None,
        "Read column names from the first row of CSV files, or name the columns c1, c2, ...  [default: detected]",
        kind=bool,
    )
    trust_model: str | None = parameter(
        None,
        "Load a pickle or joblib model file if it has this hash. Loading runs the code in the file.",
        "sha256:HASH",
    )


MULTICLASS = "multiclass"
"""The task of labels of many classes; an audit compares each with the rest."""

RECORD = ("model", "owner", "purpose", "date")
"""Keys of the record of a result: the model's name, its owner, its purpose, the date of the data."""


PROBABILITY = "Column with the probability of a positive decision, for randomized rules (p_positive)."
SUPPRESS = "Leave out all rows of groups with fewer rows than this; 0 keeps all."
CONFIDENCE = "Confidence level of all intervals."
CLUSTER = (
    "Address of a Dask scheduler whose workers read the data; local:4 starts 4 processes on this machine."
)


@dataclass(frozen=True, kw_only=True)
class DataRequest(FilesRequest):
    """Data, which column is what, and how its values are read."""

    data: Any = source(
        "Rows: a file, a folder, a pattern, - (standard input), a database URL, a data frame, an Arrow or Ibis table. "
        "Or counts of rows (audit, repair, explore, count).",
        "DATA",
        positional=True,
    )
    protected: Names = parameter(
        (), "Protected column, whose groups are compared.", "COLUMN", listed=True, common=True
    )
    label: str | None = parameter(
        None,
        "Observed outcome. If it is not 0/1, name its positive values or a condition ('income>=50000').  [default: "
        "found by name]",
        "COLUMN[=VALUE]",
        common=True,
    )
    score: str | None = parameter(None, "Model score.  [default: found by name]", "COLUMN", common=True)
    prediction: str | None = parameter(
        None,
        "Decisions, instead of a score or in addition to it. If they are not 0/1, name the positive values.",
        "COLUMN[=VALUE]",
        common=True,
    )
    model: Any = source(
        "Model file that scores the rows (.skops, .onnx, .joblib, .pkl, LightGBM, XGBoost, CatBoost).",
        common=True,
    )
    features: Names = parameter(
        (),
        "Features of the model file, or columns to learn from. Also all (every column without another role), or "
        "score (only the score).",
        "COLUMN",
        listed=True,
        common=True,
    )
    where: str | None = parameter(
        None,
        "Use only rows that meet a condition, such as \"year==2024 and product in ('car','van')\".",
        "CONDITION",
        common=True,
    )
    weight: str | None = parameter(None, "Row weights.", "COLUMN")
    count: str | None = parameter(
        None, "Column with the number of people each row stands for (tables of frequencies).", "COLUMN"
    )
    strata: Names = parameter(
        (), "Compare and repair within each level of this column.", "COLUMN", listed=True
    )
    bands: Names | Mapping[str, str | float | Sequence[float]] = parameter(
        (),
        "Cut a numeric protected column or stratum into groups: at the given lower bounds, or into tertiles, "
        "quartiles, quintiles or deciles. The word values confirms that every value is a group of its own.",
        "COLUMN=NUMBER,...",
    )
    merge: Names | Mapping[str, Sequence[str]] = parameter(
        (),
        "Treat all listed values of a column as the first. If the first is (missing), treat the others as missing. A "
        "single name confirms that it is a group.",
        "COLUMN=NAME,...",
    )
    threshold: Any = parameter(
        None,
        "Decision threshold: scores at or above it are positive. If it differs by group, give each group of a column "
        "one: 'race:Black=0.4,White=0.5'.  [default: a probability of 0.5]",
        "SCORE",
        living=True,
    )
    top: str | None = parameter(
        None,
        "Select at most this many rows, or this percentage of them, by score: sets `threshold` to the lowest score "
        "that allows it. Weighted rows count by their weights.",
        "ROWS|PERCENT%",
    )
    score_scale: ScoreScale = parameter(
        "probability",
        "Scale of the score: p, 100p, 2p-1, log-odds, or not a probability (raw).",
        choices=get_args(ScoreScale),
    )
    missing: Names | Mapping[str, str] = parameter(
        (),
        "Handling of rows with a missing entry in a column that is used: error or drop. For a single column also "
        "group, which puts them in a group of their own: race=group.  [default: error]",
        "[COLUMN=]POLICY",
    )
    task: Asked = parameter(
        "classification",
        "Kind of label: 0/1, a real number, or one of several classes (audits and `method=sensei`).",
        choices=(*get_args(Task), MULTICLASS),
    )
    seed: int = parameter(0, "Random seed for the split, the fit and resampling.", at_least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "threshold", threshold_of(self.threshold))
        _ = self.capacity  # checked before any data is read
        if isinstance(self.threshold, GroupThresholds):
            for name, why in OF_ONE_THRESHOLD.items():
                if self.has(name):
                    raise UsageError(f"`threshold={self.threshold}`: leave out `{name}`; {why}")

    @cached_property
    def capacity(self) -> Capacity | None:
        """Number of rows to select, or None."""
        return None if self.top is None else Capacity.parse(self.top)


@dataclass(frozen=True, kw_only=True)
class CountRequest(DataRequest):
    """The parameters of ``count``."""

    needs_rows: ClassVar = ("top",)
    reads: ClassVar = {
        "features": (("model",), "it is read with `model`"),
        "id": (("part",), "it is read with `part`"),
        "seed": (("part",), "nothing is random without `part`"),
    }

    probability: str | None = parameter(None, PROBABILITY, "COLUMN")
    suppress_below: int = parameter(0, SUPPRESS, "ROWS", at_least=0, common=True)
    private: float | None = parameter(
        None,
        "Count only decisions, and add noise for differential privacy of each row with this epsilon, 0.001 to 10. "
        "Audits widen their intervals accordingly.",
        "EPSILON",
        kind=float,
    )
    part: str | None = parameter(
        None,
        "Count only a part of the rows, selected by a hash of their `id` or values: 0:0.7 to fit a repair, 0.7:1 to "
        "evaluate it.",
        "FROM:TO",
        common=True,
    )
    id: str | None = parameter(
        None, "Column with a unique row ID, by which `part` selects rows.", "COLUMN", common=True
    )
    cluster: Any = parameter(None, CLUSTER, "ADDRESS", living=True)
    threads: int | None = parameter(
        None, "Number of threads that read the data.  [default: up to 4]", kind=int, at_least=1
    )


@dataclass(frozen=True, kw_only=True)
class ExploreRequest(DataRequest):
    """The parameters of ``explore``."""

    reads: ClassVar = {"features": (("model",), "it is read with `model`"), "seed": ((), "nothing is random")}

    suppress_below: int = parameter(0, SUPPRESS, "ROWS", at_least=0, common=True)
    confidence: float = parameter(0.95, CONFIDENCE, at_least=0.5, below=1)


@dataclass(frozen=True, kw_only=True)
class ReportRequest(DataRequest):
    """Noise in the recorded groups, and what is kept with a result."""

    record: Mapping[str, str] = field(default_factory=dict)
    """Record kept with the result, by :data:`RECORD`, as in the table ``[report]`` of the configuration."""
    noise: Any = parameter(
        (),
        "Relation between recorded and true groups. FILE: a table with columns true, noisy, and count or probability. "
        "'FILE(true=COLUMN,recorded=COLUMN)': a file with one row per person. 'radius:GROUP=NUMBER,...': largest "
        "distance of each true group from its recorded group. 'membership:GROUP=COLUMN,...': columns with the "
        "probability of each group.",
        "SPEC",
        kind=object,
    )
    assume: str | None = parameter(
        None,
        "Assumption about the noise. none: only what `noise` states; eps=NUMBER: noise depends on outcomes by at most "
        "NUMBER; class-conditional: noise depends only on the true group; independent: given the membership "
        "probabilities, true groups are independent of outcomes; radii: only the "
        "radii, given or computed from the table.",
        "ASSUMPTION",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.noise_spec  # which is checked before any data is read

    @cached_property
    def noise_spec(self) -> NoiseSpec:
        """Statement about noise in recorded groups."""
        return NoiseSpec.parse(self.noise, self.assume)


@dataclass(frozen=True, kw_only=True)
class GateRequest(ReportRequest):
    """Similar people, intervals, checks, and the waivers that excuse some of them."""

    similar: Any = parameter(
        (),
        "People to treat alike. flips: people who differ only in the protected columns; COLUMN=VALUE,VALUE: only in "
        "these values of a column; near(radius=NUMBER): little in their features; FILE: a person and the person's "
        "counterfactual copies. Repairs also take learned(by=means) and files of pairs or directions.",
        "WHAT",
        kind=object,
    )
    confidence: float = parameter(0.95, CONFIDENCE, at_least=0.5, below=1)
    check: Names = parameter(
        (),
        "Condition that must hold, such as 'dp.difference<=0.1', or with `baseline` 'change<=0.02'.",
        "CHECK",
        common=True,
    )
    gate_on: GateOn = parameter(
        "interval",
        "Compare the whole interval, or only the point estimate, with the limit.",
        choices=get_args(GateOn),
    )
    waivers: Sequence[Mapping[str, Any]] = ()
    """Tables of ``check``, ``reason``, ``expires`` and perhaps ``limit``, as in the configuration."""
    today: date | None = None
    """The day by which waivers are judged; that of the clock, in UTC, if it is not given."""


@dataclass(frozen=True, kw_only=True)
class AuditRequest(GateRequest):
    """The parameters of ``audit``."""

    needs_rows: ClassVar = ("noise", "slices", "explain_gap")
    reads: ClassVar = {
        "features": (
            ("model", "similar", "explain_gap"),
            "it is read with `model`, `similar` or `explain_gap`",
        ),
        "id": (
            ("baseline", "similar", "state", "validation"),
            "row IDs are used only by `baseline`, `similar`, `state` and `validation`",
        ),
        "seed": (
            ("similar", "noise", "validation", "explain_gap"),
            "nothing is random without `similar`, `validation`, `explain_gap` or a description of noise",
        ),
        **dict.fromkeys(
            ("slice_metric", "min_rows", "validation"), (("slices",), "it is read with `slices`")
        ),
    }

    probability: str | None = parameter(None, PROBABILITY, "COLUMN")
    metrics: Mapping[str, Callable[[Any], Any]] | None = None
    """Metrics of one's own by name: functions of counts, or of labels and decisions, see
    :mod:`fairfix.auditing.custom_metrics`. A function is no text: the command line and the configuration have none."""
    intersect: bool = parameter(False, "Also audit all intersections of the protected columns.", common=True)
    reference: Names | Mapping[str, str] = parameter(
        (), "Reference group that every group is also compared with.", "ATTRIBUTE=GROUP", common=True
    )
    suppress_below: int = parameter(0, SUPPRESS, "ROWS", at_least=0)
    always_valid: bool = parameter(
        False,
        "Make intervals that hold for all looks at growing data at once, such as weekly audits.",
        common=True,
    )
    state: Any = source(
        "Counts file to which each run adds the rows of DATA. Audit the total with always-valid intervals, and report "
        "the batch since which a gap has changed.",
        common=True,
    )
    of: Any = source(
        "Repaired predictor with a `guarantee`, whose decisions the rows are. Checks at every look whether they keep "
        "the guarantee (`always_valid`).",
        "ARTIFACT",
        common=True,
    )
    profile: str | None = parameter(
        None,
        "Also print the tables of a rule or guidance: ll144, ugesp, lending or eu; it sets no limits. With "
        "'ll144(exclude_small=0.02)', impact ratios leave out categories below 2% of the data.",
        "NAME[(KEY=VALUE)]",
    )
    baseline: Any = source(
        "Earlier model to measure changes from: a JSON result, data, or a column of `data` with its score.",
        "RESULT|DATA|COLUMN",
        common=True,
    )
    slices: Names = parameter(
        (),
        "Search these columns for the slices in which the model is worst: conjunctions of up to three conditions. "
        "Without names: every column without another role. `protected` is optional then.",
        "[COLUMN]",
        listed=True,
        common=True,
        without="all",
    )
    slice_metric: str | None = parameter(
        None,
        "Metric by which slices are worst, such as accuracy, or dp.difference for the largest gap between groups "
        "inside a slice.  [default: accuracy; selection_rate without labels; absolute_loss in regression]",
        "METRIC",
    )
    min_rows: int | None = parameter(
        None,
        "Smallest number of rows of a slice.  [default: 1% of the rows, at least 50]",
        "ROWS",
        kind=int,
        at_least=1,
    )
    validation: float | None = parameter(
        None,
        "Fraction of rows that test the slices proposed by the others. Without it, intervals hold for all slices at "
        "once (`slices`).",
        "FRACTION",
        kind=float,
        below=1,
    )
    explain_gap: bool = parameter(
        False,
        "Show how much of the largest gap of each protected column the other columns account for: by a regression, or "
        "by the `model` itself.",
        common=True,
    )
    id: str | None = parameter(
        None,
        "Column with a unique row ID; `baseline` matches rows by it, and `validation` splits them by it.",
        "COLUMN",
    )
    cluster: Any = parameter(None, CLUSTER, "ADDRESS", living=True)
    threads: int | None = parameter(
        None,
        "Number of threads that read the data or grow trees (`similar`).  [default: up to 4 to read, 1 for trees]",
        kind=int,
        at_least=1,
    )


@dataclass(frozen=True, kw_only=True)
class RenewalRequest(AuditRequest):
    """The parameters of an audit of the decisions of a repaired predictor."""

    rule: Any = None
    """The predictor."""
    late: bool = False
    """Whether rows count once they have a label; else no label is read that is not named."""


FITTED = ("methods", "slacks", "quality", "holdout", "group", "exclude", "threads")
"""Parameters of a fit."""

EXCLUDE = "Columns not to learn from; a pattern such as 'c_*' names several."
DUPLICATES = "Handling of rows with the same ID: an error, or one shared random draw."
THREADS = "Number of threads that grow boosted trees; results do not change.  [default: 1]"


@dataclass(frozen=True, kw_only=True)
class RepairRequest(GateRequest):
    """The parameters of ``repair``; those of the method are in ``parameters``."""

    reads: ClassVar = {
        "duplicates": (("id",), "it is about the column of `id`"),
        "validation": (("several values",), "a parameter of the method has to have several values"),
    }

    method: str | None = parameter(None, "Repair method.", "NAME", common=True)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    exclude: Names = parameter((), EXCLUDE, "COLUMN,...", listed=True)
    id: str | None = parameter(
        None,
        "Column with a unique row ID; seeds randomized decisions.  [default: the values that the rule reads]",
        "COLUMN",
        common=True,
    )
    duplicates: Duplicates = parameter("error", DUPLICATES, choices=get_args(Duplicates))
    unlabelled: Any = source(
        "Additional scored rows without labels, with the same columns, used to estimate rates.", "DATA"
    )
    holdout: Any = parameter(
        0.3,
        "Fraction of rows held out for evaluation. If DATA is counts: counts of other rows, for evaluation.",
        "FRACTION|DATA",
        kind=object,
    )
    validation: float = parameter(0.2, "Fraction of rows used to choose among parameter values.")
    guarantee: float | None = parameter(
        None,
        "Keep the gap in the whole population within the allowed gap, with this confidence; 0.95 is usual.",
        "CONFIDENCE",
        kind=float,
        at_least=0.5,
        below=1,
        common=True,
    )
    unseen: Unseen = parameter(
        "error",
        "Handling of rows at prediction time whose group was not in the training rows, or whose protected number is "
        "missing.",
        choices=get_args(Unseen),
    )
    threads: int | None = parameter(None, THREADS, kind=int, at_least=1)
    output: str | None = None
    """The artifact to write; None writes none."""

    def __post_init__(self) -> None:
        with suppress(TypeError, ValueError):  # it names counts
            object.__setattr__(self, "holdout", float(self.holdout))
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class CompareRequest(ReportRequest):
    """The parameters of ``compare``."""

    reads: ClassVar = {
        "seed": (("a fit",), "comparing two models is not random"),
        **dict.fromkeys(FITTED, (("a fit",), "nothing is fitted to compare two models")),
        "features": (("a fit", "model"), "nothing is fitted to compare two models"),
    }

    baseline: Any = source(
        "Second model, to compare two models instead of methods: a column of `data` with its score, or other data.",
        "COLUMN|DATA",
        common=True,
    )
    id: str | None = parameter(
        None, "Column with a unique row ID; seeds randomized decisions and matches `baseline`.", "COLUMN"
    )
    methods: Names = parameter(
        (), "Methods to compare.  [default: all that suit the data]", "NAME[,...]", listed=True, common=True
    )
    slacks: float | Sequence[float] = parameter(
        (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, math.inf),
        "Allowed gaps to try, measured by each method's criterion; inf means no limit.",
        "NUMBER[,...]",
        listed=True,
        at_least=0,
        finite=False,
        common=True,
    )
    quality: str | None = parameter(
        None,
        f"Quality measure by which candidates are recommended: {', '.join(QUALITIES)}; 'cost(fp=1,fn=9)' sets the "
        "costs of a false positive and a false negative.  [default: accuracy; square_loss for real-valued labels]",
        "QUALITY",
        common=True,
    )
    exclude: Names = parameter((), EXCLUDE, "COLUMN,...", listed=True)
    group: GroupUse | None = parameter(
        None,
        "Compare only rules that use the protected group when they predict, or only rules that do not.",
        choices=get_args(GroupUse),
    )
    holdout: float = parameter(0.3, "Fraction of rows held out for evaluation.")
    confidence: float = parameter(0.95, CONFIDENCE, at_least=0.5, below=1)
    threads: int | None = parameter(None, THREADS, kind=int, at_least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.chosen_quality  # checked before any data is read
        if isinstance(self.threshold, GroupThresholds):
            raise UsageError(
                f"`threshold={self.threshold}`: a comparison takes one threshold for all groups; repair from the "
                "thresholds by group instead, with one of the methods"
            )

    @cached_property
    def chosen_quality(self) -> Quality | None:
        """Quality requested, or None."""
        return None if self.quality is None else Quality.parse(self.quality)


@dataclass(frozen=True, kw_only=True)
class PredictRequest(FilesRequest):
    """The parameters of ``predict``."""

    artifact: Any = source("Repaired predictor or its file.", "ARTIFACT", positional=True)
    data: Any = source(
        "Rows: a file, a folder, a pattern, - (standard input), a database URL, a data frame, an Arrow or Ibis table.",
        "DATA",
        positional=True,
    )
    model: Any = source(
        "Model file that the repair was fitted with; its hash must be the one in the artifact.", common=True
    )
    unseen: Unseen | None = parameter(
        None,
        "Handling of rows whose group was not in the training rows, or whose protected number is missing.  "
        "[default: set in the artifact]",
        choices=get_args(Unseen),
        common=True,
    )
    missing: MissingScore = parameter(
        "error", "Handling of rows without a score.", choices=get_args(MissingScore), common=True
    )
    duplicates: Duplicates = parameter("error", DUPLICATES, choices=get_args(Duplicates))


@dataclass(frozen=True, kw_only=True)
class ExportRequest(Request):
    """The parameters of ``export``."""

    artifact: Any = source("Repaired predictor or its file.", "ARTIFACT", positional=True)
    to: ExportTarget = parameter("json", "Target format.", choices=get_args(ExportTarget))
    dialect: Database = parameter("duckdb", "SQL dialect (queries).", choices=get_args(Database))
    table: str = parameter("data", "Table that the query reads.", "NAME")


# ---------------------------------------------------------------------- which go together

WRITTEN = ("delimiter", "decimal", "encoding", "header")
"""Parameters that say how text files are written."""

OF_FILES = (*WRITTEN, "sql", "model", "trust_model", "features", "exclude")
"""Parameters that say how rows are read."""

OF_ROWS = (*OF_FILES, "similar", "cluster", "part", "unlabelled", "guarantee", "validation")
"""Parameters that nothing can be done with where the data is counts, which have no rows."""


REQUIRES: Sequence[tuple[str, tuple[str, ...], str]] = (
    ("assume", ("noise",), "an assumption needs a description of the noise"),
)
"""(parameter, one of these is needed too, why)."""

OF_TWO_COLUMNS = ("score", "score_scale", "threshold", "top", "probability", "model")
OF_TWO = ("noise", "profile", "slices", "explain_gap", "unlabelled")
"""Parameters for two classes only."""

OF_ONE_THRESHOLD: Mapping[str, str] = {
    "similar": "people in other groups would have another threshold",
    "noise": "decisions follow from the recorded group, so they depend on the noise",
    "task=regression": "it turns a score into decisions",
    "unseen=original": "a group that the training rows lack has no threshold",
}
"""Parameters that do not go with a threshold for each group, and why."""

EXCLUDES: Sequence[tuple[str, tuple[str, ...], str]] = (
    ("model", ("score", "prediction"), "the model computes the scores"),
    ("top", ("threshold",), "it sets the threshold"),
    ("top", ("prediction", "probability", "task=regression"), "it turns a score into decisions"),
    ("top", ("suppress_below", "private"), "its threshold is the score of a single row"),
    ("top", ("state",), "every batch would have another threshold; give `threshold`"),
    ("top", ("guarantee",), "a guarantee is for a threshold that does not depend on the held-out rows"),
    ("noise", ("suppress_below",), "numbers of true groups are shown for groups of any size"),
    ("explain_gap", ("noise",), "it compares the recorded groups"),
    (
        "explain_gap",
        ("strata",),
        "it compares all rows of two groups, and a column without a role can explain the gap",
    ),
    ("slices", ("suppress_below",), "slices are groups too; `min_rows` says how small they may be"),
    (
        f"task={MULTICLASS}",
        OF_TWO_COLUMNS,
        "each class in `prediction` and `label` is compared with all others",
    ),
    (f"task={MULTICLASS}", OF_TWO, "it needs two classes; use `label=COLUMN=VALUE` instead of the task"),
    (
        "private",
        ("suppress_below",),
        "suppression depends on exact numbers of rows; the noise hides small groups, too",
    ),
    ("count", ("id",), "an ID belongs to one person, and a row with a count represents many"),
    *(
        (
            name,
            ("baseline", "noise", "similar", "slices", "explain_gap", "profile", f"task={MULTICLASS}"),
            "its intervals hold for one look only",
        )
        for name in ("always_valid", "state", "of")
    ),
    ("state", ("suppress_below",), "a state keeps the counts of all groups"),
    ("of", ("weight", "suppress_below"), "the guarantee is about all groups, of rows that count alike"),
    ("of", ("gate_on=point",), "a guarantee is about the whole interval"),
    (
        "guarantee",
        ("unlabelled",),
        "it holds for the population of the training rows, and unlabelled rows may come from another",
    ),
)
"""(parameter, parameters that exclude it, reason)."""


def of_counts(request: Made) -> Made:
    """Return the request of a task whose data is counts, without what the configuration says of rows.

    A UsageError where a parameter needs rows.
    """
    parts = request.__dataclass_fields__
    given = [name for name in (*OF_ROWS, *request.needs_rows) if name in parts and request.has(name)]
    for name in given:
        if name not in OF_FILES or name not in request.configured:
            raise UsageError(
                f"`{name}` needs rows, and the data is counts; leave out `{name}`, or name the rows"
            )
    return request.without(given)


def check_together(request: Request) -> None:
    """Raise a UsageError where parameters do not go together; it names both, and says why."""
    for name, excluded, why in EXCLUDES:
        for other in excluded:
            if request.has(name) and request.has(other):
                raise UsageError(f"`{name}`: leave out `{other}`; {why}")
    for name, needed, why in REQUIRES:
        if request.has(name) and not any(map(request.has, needed)):
            options = " or ".join(f"`{one}`" for one in needed)
            raise UsageError(f"`{name}` needs {options}" + (f": {why}" if why else ""))


# ---------------------------------------------------------------------- functions of requests


def _of_peers(name: str, given: Mapping[str, Any], parameters: Mapping[str, Any]) -> str:
    """Return what to write for keywords that other libraries have; empty if there are none."""
    our_names = {other: own for other, own in ours(PARAMETERS).items() if own.partition("=")[0] in parameters}
    words = [
        f"{one!r} is `{our_names[one]}` here" for one in given if one in our_names and one not in parameters
    ]
    columns = "; each takes the name of a column of `data`, or an array with a value for each row"
    call = _call(name, {our_names.get(one, one): value for one, value in given.items()})
    return f"fairfix.{name}(): {', '.join(words)}{columns}{call}" if words else ""


def _call(name: str, given: Mapping[str, Any]) -> str:
    """Return a line with the call that is meant; empty where a value cannot be written."""
    named = {one: value for one, value in given.items() if one != "data"}
    for one in [one for one in named if "=" in one]:  # the positive value of a column
        part, template, value = one.partition("=")[0], one.partition("=")[2], named.pop(one)
        if "COLUMN" not in template and isinstance(value, (str, int, float)):
            named[part] = template.replace("NUMBER", str(value))
            continue
        if not isinstance(named.get(part), str):
            return ""
        named[part] = with_values(named[part], [str(value)])
    entries = [entry for one in named.values() for entry in (one if isinstance(one, list) else [one])]
    plain = all(isinstance(entry, (str, int, float)) for entry in entries)
    return (
        f"\n  fairfix.{name}({', '.join(['data', *(f'{k}={v!r}' for k, v in named.items())])})"
        if plain
        else ""
    )


def _holds_values(role: str, value: Any) -> bool:
    """Tell whether a parameter holds anything but the name of a column, or a list of names where it takes several."""
    several = role in SEVERAL and isinstance(value, (list, tuple))
    return not (
        value is None or isinstance(value, str) or (several and all(isinstance(one, str) for one in value))
    )


def function_of(
    name: str, make: Callable[..., Any], run: Callable[[Any], R], more: Mapping[str, str] | None = None
) -> Callable[..., R]:
    """Return the function whose parameters are those of a request.

    Its signature is made here, so type checkers know what it returns; the parameters are checked when it is called.

    Parameters
    ----------
    make
        Class of the request.
    run
        What is done with it; the function has its docstring, and the parameters with their helps.
    more
        Parameter -> help of what goes into ``parameters`` of the request.
    """
    own, more = inspect.signature(make), more or {}
    kept = [
        part
        for part in own.parameters.values()
        if part.name not in ("explicit", "configured", "other_words", "parameters")
    ]
    kept += [inspect.Parameter(one, inspect.Parameter.KEYWORD_ONLY, default=None) for one in more]
    signature = inspect.Signature(kept)

    def task(*args: Any, **kwargs: Any) -> R:
        try:
            given = dict(signature.bind(*args, **kwargs).arguments)
        except TypeError as error:  # which does not know the name of the function
            if peers := _of_peers(name, kwargs, signature.parameters):
                raise TypeError(peers) from None
            wrong = next((one for one in kwargs if one not in signature.parameters), "")
            asked = "protected" in signature.parameters and "protected" not in kwargs and not wrong
            call = _call(name, {"protected": args[1], **kwargs}) if asked and len(args) == 2 else ""
            raise TypeError(
                f"fairfix.{name}() {error}{did_you_mean(wrong, signature.parameters)}{call}"
            ) from None
        explicit = frozenset(name for name, value in given.items() if value is not None)
        if "protected" in signature.parameters and any(_holds_values(one, given.get(one)) for one in ROLES):
            from fairfix.data.beside import with_arrays

            given = with_arrays(given)
        if more:
            given["parameters"] = {one: given.pop(one) for one in more if one in given}
            for one, value in given["parameters"].items():
                if getattr(value, "ndim", 0):
                    raise UsageError(
                        f"`{one}` takes no {type(value).__name__}; give a value, a name or a list of them"
                    )
        try:
            with closing_connections():
                return run(make(**given, explicit=explicit))
        except UsageError as error:
            added = dict(new.split("=", 1) for old, new in error.instead[:1] if not old)
            if call := _call(name, {**kwargs, **added}) if added and len(args) < 2 else "":
                error.args = (f"{error}{call}",)
            raise

    helps = {one: domain.help for one, domain in parameters_of(make).items()} | dict(more)  # type: ignore[arg-type]  # a class
    listing = "\n".join(f"{one}\n    {text}" for one, text in helps.items())
    task.__name__ = task.__qualname__ = name
    task.__doc__ = f"{inspect.cleandoc(run.__doc__ or '')}\n\nParameters\n----------\n{listing}\n"
    task.__signature__ = signature  # type: ignore[attr-defined]  # functions may have it
    return task
