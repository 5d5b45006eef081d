"""Requests: the parameters of every task, what each may be, and which go together.

A request is a frozen dataclass of :func:`parameter` fields. From one field come the parameter of the library's
function, the option of the command line with its default, range and help, and the key of the configuration. A request
checks itself when it is made, so that whoever holds one need not. Messages and helps put parameters into backquotes;
the command line shows them as options. This module imports no numpy, since every ``--help`` needs it.
"""

from __future__ import annotations

import inspect
import math
import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import date
from typing import Any, ClassVar, ParamSpec, TypeVar, get_args

from fairfix.data.canonical import canonical_text
from fairfix.data.choices import (
    Asked,
    Database,
    DuplicateIds,
    ExportTarget,
    GateOn,
    Keep,
    MissingGroup,
    MissingRows,
    MissingScore,
    Probabilities,
    ScoreScale,
    Task,
    UnseenGroup,
)
from fairfix.data.names import did_you_mean, joined_names, with_values
from fairfix.errors import UsageError

P = ParamSpec("P")
R = TypeVar("R")

Names = str | Sequence[str]
"""One name or several; a string is one name."""


@dataclass(frozen=True)
class Domain:
    """What a parameter may be, and how it is shown."""

    help: str
    metavar: str = ""
    kind: type = str
    """Type of a value: text, a number, a flag; ``object`` for data, which may be a path or in memory."""
    many: bool = False
    """Whether it takes several values."""
    listed: bool = False
    """Whether the command line splits its text at commas."""
    choices: Sequence[str] = ()
    at_least: float | None = None
    below: float | None = None
    finite: bool = True
    """Whether infinity is none of its numbers."""
    positional: bool = False
    of_data: bool = False
    """Whether it is a value of the data, which has one text however it is written."""
    living: bool = False
    """Whether it may also be an object that is no text, such as the client of a cluster."""

    def value_of(self, name: str, value: Any, default: Any) -> Any:
        """Return a value in the type of the parameter, or raise a :class:`~fairfix.errors.UsageError`."""
        if value is None or value is default:
            return default
        listed = self.many and not hasattr(value, "iloc")
        if listed and not (isinstance(value, (str, int, float)) or _is_iterable(value)):
            raise UsageError(f"`{name}`: {type(value).__name__} is neither text nor a list")
        return (
            tuple(self.one_of(name, one) for one in _entries(value)) if listed else self.one_of(name, value)
        )

    def one_of(self, name: str, value: Any) -> Any:
        """Return one value in the type of the parameter, or raise a :class:`~fairfix.errors.UsageError`.

        All that is asked of fairfix passes here, from the command line, the environment, a configuration or Python.
        """
        if hasattr(value, "iloc") and self.kind is not object:  # of pandas: the entries instead of their name
            raise UsageError(f"`{name}`: give the name of the column in `data`, not its entries")
        if self.living and not isinstance(value, (str, os.PathLike, int, float)):
            return value
        if self.kind is object:
            return os.fspath(value) if isinstance(value, os.PathLike) else value
        if self.kind is str:
            value = ",".join(_entries(value)) if isinstance(value, Mapping) else str(value)
            value = canonical_text(value) if self.of_data else value
        elif self.kind is bool:
            if type(value).__name__ not in TRUTHS:
                raise UsageError(f"`{name}`: {value!r} is neither True nor False")
            value = bool(value)
        else:
            value = self._number(name, value)
        if self.choices and value not in self.choices:
            hint = did_you_mean(value, self.choices)
            raise UsageError(f"`{name}`: {value!r} is none of {', '.join(self.choices)}{hint}")
        if self.at_least is not None and not value >= self.at_least:
            raise UsageError(f"`{name}`: {value:g} is below {self.at_least:g}")
        if self.below is not None and not value < self.below:
            raise UsageError(f"`{name}`: {value:g} is not below {self.below:g}")
        return value

    def _number(self, name: str, value: Any) -> int | float:
        """Return a number of the parameter's kind, from a number or the text of one."""
        whole = self.kind is int
        text, truth = isinstance(value, str), type(value).__name__ in TRUTHS
        read: Callable[[Any], int | float] = operator.index if whole and not text else self.kind
        try:
            number: int | float = read(value if (text or hasattr(value, "__float__")) and not truth else "")
        except (TypeError, ValueError, OverflowError):
            raise UsageError(f"`{name}`: {value!r} is not a {'whole ' * whole}number") from None
        if not whole and (math.isnan(number) or (self.finite and math.isinf(number))):
            raise UsageError(f"`{name}`: {value!r} is not a finite number")
        return number


TRUTHS = ("bool", "bool_")
"""Types of True and False, those of numpy among them, which is not imported here."""


def _is_iterable(value: Any) -> bool:
    """Tell whether a value has entries, as an array without dimensions and a class have not."""
    try:
        iter(value)
    except TypeError:
        return False
    return True


def _entries(value: Any) -> list[Any]:
    """Return the entries of a parameter with several values; those of a mapping as ``name=value`` or ``name=a,b``."""
    if isinstance(value, Mapping):
        return [
            f"{k}={v if isinstance(v, (str, int, float)) else joined_names(map(str, v))}"
            for k, v in value.items()
        ]
    return [value] if isinstance(value, (str, int, float)) else list(value)


def parameter(default: Any, help: str, metavar: str = "", **domain: Any) -> Any:  # noqa: A002  as click has it
    """Return a field of a request; arguments are those of :class:`Domain`.

    Its kind is that of the default, if there is one; a default that is a tuple takes several values.
    """
    many = isinstance(default, tuple)
    if default is not None and default != ():
        domain["kind"] = type(default[0] if many else default)
    made = Domain(help, metavar, many=many, **domain)
    return field(default=default, metadata={"domain": made}, kw_only=not made.positional)


def source(help: str, metavar: str = "FILE", *, positional: bool = False) -> Any:  # noqa: A002  as click has it
    """Return a field that names data: a path, or what is in memory already."""
    return parameter(None, help, metavar, kind=object, positional=positional)


def parameters_of(kind: type) -> dict[str, tuple[Any, Domain]]:
    """Return (default, domain) of every parameter of a request, in order."""
    return {
        part.name: (part.default, part.metadata["domain"])
        for part in fields(kind)
        if "domain" in part.metadata
    }


def paths_of(kind: type) -> frozenset[str]:
    """Return the parameters of a request that may name a file."""
    return frozenset(name for name, (_, domain) in parameters_of(kind).items() if domain.kind is object)


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
    """What a task is asked for. ``explicit`` names the parameters that were given, be it with their defaults.

    ``configured`` are those of them that a configuration gives, which may be meant for other tasks.
    """

    reads: ClassVar[Mapping[str, tuple[tuple[str, ...], str]]] = {}
    """Parameter -> what it is read with, one of these, and why not without."""

    explicit: frozenset[str] = field(default=frozenset(), repr=False)
    configured: frozenset[str] = field(default=frozenset(), repr=False)

    def __post_init__(self) -> None:
        for name, (kind, words) in FORMS.items():
            value = getattr(self, name, None)
            if value is not None and not isinstance(value, kind):
                raise UsageError(f"`{name}` takes {words}, not a value of type {type(value).__name__}")
        for name, (default, domain) in parameters_of(type(self)).items():
            object.__setattr__(self, name, domain.value_of(name, getattr(self, name), default))
        check_together(self)

    def gives(self, name: str) -> bool:
        """Tell whether a parameter was given, be it with its default."""
        return name in self.explicit or self.has(name)

    @property
    def unused(self) -> Iterator[str]:
        """Yield in words which parameters change nothing beside the others, but for those of a configuration."""
        for name, (needed, why) in self.reads.items():
            if name in self.explicit - self.configured and not any(map(self._read_with, needed)):
                yield f"`{name}` changes nothing here: {why}"

    def _read_with(self, name: str) -> bool:
        """Tell whether there is what another parameter is read with: a parameter, a fit, or several values of one."""
        if name == "a fit":
            return not (self.has("against") or self.has("against_data"))
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
    """How rows are read from files and databases, and whether the file of a model may run code."""

    table: str | None = parameter(
        None,
        "Of a database: the table or view to read, perhaps with its schema, as in `table=risk.loans`.",
        "NAME",
    )
    sql: str | None = parameter(
        None, "Of a database: the query to read instead, which can only read.", "SELECT"
    )
    delimiter: str | None = parameter(
        None,
        "CSV column separator: a character, tab, or blank for runs of blanks.  [default: detected]",
        "CHAR",
    )
    decimal: str | None = parameter(
        None,
        "Decimal sign of CSV files; the other one then separates thousands.  [default: as the numbers show]",
        choices=(".", ","),
    )
    encoding: str | None = parameter(
        None, "Text encoding of CSV files, such as cp1252.  [default: detected]", "NAME"
    )
    header: bool | None = parameter(
        None,
        "Take the first row of CSV files for column names, or for data in columns c1, c2, ...  [default: detected]",
        kind=bool,
    )
    trust_model: str | None = parameter(
        None, "Load a pickle-family model file, which runs its code, if it has this hash.", "sha256:HASH"
    )


COPIES = (
    "Counterfactual copies of people: a file of the `id` column and the columns that change, with a row for each copy; "
    "all other columns keep their values."
)

MULTICLASS = "multiclass"
"""The task of labels of many classes, each of which an audit compares with the rest."""

RECORD = ("model", "owner", "purpose", "date")
"""What may be kept with a result: the model's name, who answers for it, what it decides, of when the data is."""


@dataclass(frozen=True, kw_only=True)
class DataRequest(FilesRequest):
    """Data, which column is what, and how its values are read."""

    data: Any = source(
        "The rows: a file, a folder, a pattern, the URL of a database, a data frame, an Arrow or an Ibis table.",
        "DATA",
        positional=True,
    )
    protected: Names = parameter((), "Column whose groups are compared.", "COLUMN", listed=True)
    label: str | None = parameter(
        None,
        "Observed outcome, 0/1; else name the positive values, or compare: 'income>=50000'.  "
        "[default: a column with a usual name]",
        "COLUMN[=VALUE,...]",
    )
    score: str | None = parameter(None, "The model's score.  [default: a column with a usual name]", "COLUMN")
    prediction: str | None = parameter(
        None,
        "Hard decisions, 0/1, instead of or beside a score; of other values name the positive ones.",
        "COLUMN[=VALUE,...]",
    )
    model: Any = source(
        "Score the rows with this model file (.skops, .onnx, .joblib, .pkl, or one of LightGBM, XGBoost or CatBoost)."
    )
    features: Names = parameter(
        (),
        "Feature columns: of the model file, if it does not name them itself; for a method that learns, what it "
        "learns from: columns, all (every usable column without a role), or score (the model's score alone).",
        "COLUMN",
        listed=True,
    )
    where: str | None = parameter(
        None,
        "Use only the rows that meet a condition, such as \"year==2024 and product in ('car','van')\".",
        "CONDITION",
    )
    weight: str | None = parameter(None, "Row weights.", "COLUMN")
    count: str | None = parameter(
        None,
        "Number of people that a row is for, in a table of frequencies: as if the row came so often.",
        "COLUMN",
    )
    strata: Names = parameter(
        (), "Compare, and repair, within each level of this column.", "COLUMN", listed=True
    )
    bands: Names | Mapping[str, str | float | Sequence[float]] = parameter(
        (),
        "Cut a protected column or a stratum of numbers into groups: at numbers, each the first of a group, or into "
        "quartiles (tertiles, quintiles, deciles); values makes each number a group.",
        "COLUMN=NUMBER,...",
    )
    merge: Names | Mapping[str, Sequence[str]] = parameter(
        (),
        "Names of a protected column or a stratum that mean one group, which the first names; (missing) as the first "
        "makes the others missing values, and a name alone says that it is a group.",
        "COLUMN=NAME,...",
    )
    threshold: float | None = parameter(
        None,
        "A score at or above it is a positive decision.  [default: where the probability is 0.5]",
        "SCORE",
        kind=float,
    )
    score_scale: ScoreScale = parameter(
        "probability",
        "What a score is: p, 100p, 2p-1, log-odds, or no probability.",
        choices=get_args(ScoreScale),
    )
    missing_group: MissingGroup = parameter(
        "error", "Rows whose group is missing.", choices=get_args(MissingGroup)
    )
    missing: MissingRows = parameter(
        "error", "Rows whose score, label or weight is missing.", choices=get_args(MissingRows)
    )
    max_groups: int = parameter(1000, "More distinct values than this are no groups.", at_least=2)
    task: Asked = parameter(
        "classification",
        "What the label is: 0/1, a real number, or one of many classes, in audits and for `method=sensei`.",
        choices=(*get_args(Task), MULTICLASS),
    )
    noise: Any = source(
        "The protected column is a noisy one, and this table tells how: rows of true, noisy (and label) with a count "
        "or a probability."
    )
    noise_columns: Names = parameter(
        (),
        "The noise file has a row per person instead, with both groups in these columns; A x B of several protected.",
        "TRUE,NOISY[,LABEL]",
        listed=True,
    )
    noise_probability: Probabilities | None = parameter(
        None,
        "What its probabilities are.  [default: found from what sums to 1]",
        choices=get_args(Probabilities),
    )
    noise_keep: Keep | None = parameter(
        None,
        "What of the table holds for the data, if their groups have other shares.",
        choices=get_args(Keep),
    )
    noise_radius: str | Mapping[str, float] | None = parameter(
        None,
        "Total variation between each true group and the one recorded as it, or another: TRUE near RECORDED=NUMBER.",
        "GROUP=NUMBER,...",
    )
    noise_epsilon: float | None = parameter(
        None, "Noise depends on outcomes by at most this.", "NUMBER", kind=float
    )
    noise_class_conditional: bool = parameter(
        False,
        "State that noise depends on nothing but the true group, and decisions not on the recorded one.",
    )
    noise_membership: Names | Mapping[str, str] = parameter(
        (),
        "Nothing is recorded: these columns hold each row's probability to be of each true group; an audit needs no "
        "`protected` then.",
        "[GROUP=]COLUMN,...",
        listed=True,
    )
    noise_independent: bool = parameter(
        False,
        "State that, given these probabilities, the true group is independent of label and decision.",
    )
    seed: int = parameter(0, "Of everything that is drawn: the split, the fit, resampling.", at_least=0)
    record: Mapping[str, str] = field(default_factory=dict)
    """What is kept with the result, by :data:`RECORD`, as in the table ``[report]`` of the configuration."""


@dataclass(frozen=True, kw_only=True)
class GateRequest(DataRequest):
    """Intervals, checks, and the waivers that excuse some of them."""

    confidence: float = parameter(0.95, "Of every interval.", at_least=0.5, below=1)
    fail_on: Names = parameter(
        (), "Fail on a condition such as 'dp.difference>0.1' or 'ks[race]>0.05'.", "CHECK"
    )
    require: Names = parameter((), "Fail unless a condition holds, such as 'dp.ratio>=0.8'.", "CHECK")
    gate_on: GateOn = parameter("interval", "What has to hold the limits.", choices=get_args(GateOn))
    waivers: Sequence[Mapping[str, Any]] = ()
    """Tables of ``check``, ``reason``, ``expires`` and perhaps ``limit``, as in the configuration."""
    today: date | None = None
    """The day by which waivers are judged; that of the clock, in UTC, if it is not given."""


@dataclass(frozen=True, kw_only=True)
class AuditRequest(GateRequest):
    """The parameters of ``audit``."""

    reads: ClassVar = {
        "features": (("model", "individual"), "it is read with `model` or `individual`"),
        "one_pass": (("data",), "counts were made in one pass"),
        "id": (
            ("baseline_data", "share", "counterfactuals"),
            "rows are told apart for `baseline_data`, `share` and `counterfactuals` alone",
        ),
        "seed": (
            ("individual", "noise", "noise_radius", "noise_membership", "counterfactuals"),
            "nothing is drawn without `individual` or a description of noise",
        ),
    }

    probability: str | None = parameter(
        None, "Probability of a positive decision of a randomised rule (p_positive).", "COLUMN"
    )
    metrics: Mapping[str, Callable[[Any], Any]] | None = None
    """Metrics of one's own by name: functions over counts, see :mod:`fairfix.auditing.own`. A function is no text, so
    the command line and the configuration have none."""
    intersect: bool = parameter(False, "Also audit the cells of all protected columns together.")
    reference: Names | Mapping[str, str] = parameter(
        (), "Also compare every group with this one.", "ATTRIBUTE=GROUP"
    )
    individual: bool = parameter(
        False,
        "Also ask what happens to a person who is changed in the protected columns alone: with a model file by doing "
        "so, else by what the scores tell.",
    )
    comparable: Names | Mapping[str, Sequence[str]] = parameter(
        (),
        "Values of a feature column whose difference does not count, for `individual`.",
        "COLUMN=VALUE,VALUE",
    )
    radius: float | None = parameter(
        None,
        "With `individual` and a model: also SenSeI's transport regularizer, rows moving by so much (mean square).",
        "NUMBER",
        kind=float,
        at_least=0,
    )
    counterfactuals: Any = source(
        COPIES + " Audited with the model file; without one, its score or prediction column holds theirs.",
        "DATA",
    )
    suppress_below: int = parameter(
        0,
        "Leave the rows of groups with fewer rows out of all numbers, in the report and in `counts_out`; 0 hides none.",
        "ROWS",
        at_least=0,
    )
    profile: str | None = parameter(
        None,
        "Also make the tables of a rule or guidance: a template, which switches no limit on.",
        choices=("ll144", "ugesp", "lending", "eu"),
    )
    exclude_small: str | None = parameter(
        None,
        "With `profile=ll144`: why categories below 2 % of the data are left out of impact ratios.",
        "REASON",
    )
    one_pass: bool = parameter(False, "Read the data once: KS and AUC from bins, with certified bounds.")
    counts_out: Any = source("Also save the counts, in one pass, for 'fairfix merge' and `from_counts`.")
    share: str | None = parameter(
        None,
        "Count a part of the rows only, by the hash of their `id`, or of their own values: 0:0.7 to fit a repair and "
        "0.7:1 to prove it.",
        "FROM:TO",
    )
    from_counts: Any = source(
        "Audit saved counts instead of `data`; the columns and their meaning are in the file."
    )
    baseline: Any = source("JSON result of an earlier audit to compare with.")
    baseline_data: Any = source(
        "Scored data of the earlier model instead, with the same columns: changes are those of the rows in both.",
        "DATA",
    )
    id: str | None = parameter(
        None, "Row identity, by which `baseline_data` matches rows and `share` takes them.", "COLUMN"
    )
    fail_on_worse: Names | float = parameter(
        (),
        "Fail when a number has become worse than in the baseline by more than this: 0.02 for all usual comparisons, "
        "'dp.difference>0.02' for one.",
        "AMOUNT|CHECK",
    )
    cluster: Any = parameter(
        None,
        "Let the workers of a Dask cluster read the data, by its scheduler's address; local:4 starts 4 processes here.",
        "ADDRESS",
        living=True,
    )
    threads: int | None = parameter(
        None,
        "Threads that read the data, and that grow trees for `individual`.  [default: up to 4, and 1]",
        kind=int,
        at_least=1,
    )


EXCLUDE = "Columns not to learn from; a pattern such as 'c_*' names several."
DUPLICATE_IDS = "Rows with one id: an error, or they share one draw."
THREADS = "Threads that grow boosted trees; the result is the same.  [default: 1]"


@dataclass(frozen=True, kw_only=True)
class RepairRequest(GateRequest):
    """The parameters of ``repair``; those of the method are in ``parameters``."""

    reads: ClassVar = {
        "duplicate_ids": (("id",), "it is about the column of `id`"),
        "validation": (("several values",), "a parameter of the method has to have several values"),
    }

    method: str | None = parameter(None, "The repair method.", "NAME")
    parameters: Mapping[str, Any] = field(default_factory=dict)
    exclude: Names = parameter((), EXCLUDE, "COLUMN,...", listed=True)
    protected_as_feature: bool = parameter(
        False, "The protected columns are features too; they are needed at predict time then."
    )
    id: str | None = parameter(
        None,
        "Row identity, which draws randomised decisions.  [default: the columns that the rule reads, and how many "
        "equal rows came before]",
        "COLUMN",
    )
    duplicate_ids: DuplicateIds = parameter("error", DUPLICATE_IDS, choices=get_args(DuplicateIds))
    from_counts: Any = source(
        "Fit to saved counts instead of `data`, of columns that are named in the file; for rules of the score alone."
    )
    proof_counts: Any = source(
        "With `from_counts`: counts of other rows, on which the repair is proven.  [default: none, nothing is proven]"
    )
    unlabelled: Any = source(
        "More scored rows with the same columns but no label, to learn rates from.", "DATA"
    )
    pairs: Any = source(
        "Pairs of people whose difference does not count: a file of two columns of ids, for methods that heed them.",
        "DATA",
    )
    subspace: Any = source(
        "Directions in which people may differ without it counting: a file with a row for each, of feature columns "
        "that hold numbers or lists of them, for methods that heed them.",
        "DATA",
    )
    counterfactuals: Any = source(
        COPIES + " For methods that heed them: people get the score of their copies.", "DATA"
    )
    holdout: float = parameter(0.3, "Share of the rows kept for the proof.")
    validation: float = parameter(0.2, "Share of the rows that select, when a parameter has several values.")
    guarantee: float | None = parameter(
        None,
        "Promise, with this confidence over the draw of the rows, that the slack holds for people who are not among "
        "them; 0.95 is usual.",
        "CONFIDENCE",
        kind=float,
    )
    unseen_group: UnseenGroup = parameter(
        "error",
        "At predict time, rows of a group the fit has not seen, or without a protected number.",
        choices=get_args(UnseenGroup),
    )
    threads: int | None = parameter(None, THREADS, kind=int, at_least=1)
    output: str | None = None
    """The artifact to write; None writes none."""


@dataclass(frozen=True, kw_only=True)
class CompareRequest(DataRequest):
    """The parameters of ``compare``."""

    reads: ClassVar = {
        "seed": (("a fit",), "nothing is drawn to compare two models"),
        "id": (("a fit", "against_data"), "both scores are in one row"),
        "threads": (("a fit",), "nothing is fitted to compare two models"),
    }

    against: str | None = parameter(
        None,
        "Compare two models instead of methods: this is the score of the other one, and nothing is fitted.",
        "COLUMN",
    )
    against_data: Any = source(
        "The other model's scores are in this data, with the same columns; rows are matched by `id`.", "DATA"
    )
    id: str | None = parameter(
        None, "Row identity, which draws randomised decisions; `against_data` matches rows by it.", "COLUMN"
    )
    methods: Names = parameter(
        (), "The methods to compare.  [default: all that fit the data]", "NAME[,...]", listed=True
    )
    slacks: float | Sequence[float] = parameter(
        (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, math.inf),
        "Allowed gaps to try, each in the method's own criterion; inf leaves them.",
        "NUMBER[,...]",
        listed=True,
        at_least=0,
        finite=False,
    )
    exclude: Names = parameter((), EXCLUDE, "COLUMN,...", listed=True)
    protected_as_feature: bool = parameter(
        False, "Methods that learn see the protected columns too, and need them at predict time."
    )
    holdout: float = parameter(0.3, "Share of the rows kept to judge by.")
    confidence: float = parameter(0.95, "Of every interval.", at_least=0.5, below=1)
    threads: int | None = parameter(None, THREADS, kind=int, at_least=1)


@dataclass(frozen=True, kw_only=True)
class PredictRequest(FilesRequest):
    """The parameters of ``predict``."""

    artifact: Any = source("A repaired predictor, or its file.", "ARTIFACT", positional=True)
    data: Any = source(
        "The rows: a file, a folder, a pattern, the URL of a database, a data frame, an Arrow or an Ibis table.",
        "DATA",
        positional=True,
    )
    model: Any = source("The model file that scored the rows of the repair; same hash.")
    unseen_group: UnseenGroup | None = parameter(
        None,
        "Rows of a group the fit has not seen, or without a protected number.  [default: as the artifact says]",
        choices=get_args(UnseenGroup),
    )
    missing: MissingScore = parameter("error", "Rows whose score is missing.", choices=get_args(MissingScore))
    duplicate_ids: DuplicateIds = parameter("error", DUPLICATE_IDS, choices=get_args(DuplicateIds))


@dataclass(frozen=True, kw_only=True)
class ExportRequest(Request):
    """The parameters of ``export``."""

    artifact: Any = source("A repaired predictor, or its file.", "ARTIFACT", positional=True)
    to: ExportTarget = parameter("json", "What it becomes.", choices=get_args(ExportTarget))
    dialect: Database = parameter("duckdb", "Of a query: the database it is for.", choices=get_args(Database))
    table: str = parameter("data", "Of a query: the table that it reads.", "NAME")


# ---------------------------------------------------------------------- which go together

FILE = "it says more of that file"
WRITTEN = ("delimiter", "decimal", "encoding", "header")
"""Parameters that say how text files are written."""

ROWS = "saved counts have no rows"
TRUE = "describe true groups in one way"

REQUIRES: Sequence[tuple[str, tuple[str, ...], str]] = (
    ("noise_columns", ("noise",), FILE),
    ("noise_probability", ("noise",), FILE),
    ("noise_keep", ("noise",), FILE),
    ("noise_epsilon", ("noise",), FILE),
    ("noise_class_conditional", ("noise",), FILE),
    ("noise_independent", ("noise_membership",), "it is about their probabilities"),
    ("comparable", ("individual",), ""),
    ("radius", ("individual",), ""),
    ("comparable", ("model",), "rows are changed and scored again"),
    ("radius", ("model",), "rows are moved and scored again"),
    ("individual", ("protected",), "it changes protected columns"),
    ("intersect", ("protected", "from_counts"), "it crosses protected columns"),
    ("strata", ("protected", "from_counts"), "groups of protected columns are compared within levels"),
    ("exclude_small", ("profile=ll144",), ""),
    ("fail_on_worse", ("baseline", "baseline_data"), "it compares with an earlier result"),
    ("baseline_data", ("id",), "rows are matched by their ids"),
    ("against_data", ("id",), "rows are matched by their ids"),
    ("pairs", ("id",), "people are named by their ids"),
    ("counterfactuals", ("id",), "people are named by their ids"),
    ("share", ("counts_out",), "a share is for counts"),
    ("proof_counts", ("from_counts",), "it proves a repair that is made of counts"),
)
"""(parameter, one of these is needed too, why)."""

FITTED = (
    "methods",
    "slacks",
    "holdout",
    "protected_as_feature",
    "features",
    "exclude",
    "model",
    "noise",
    "noise_radius",
    "noise_membership",
)

OF_TWO_COLUMNS = (*("score", "score_scale", "threshold", "probability", "model"),)
OF_TWO = (
    *("noise", "noise_radius", "noise_membership", "individual", "profile"),
    *("counts_out", "from_counts", "baseline_data", "one_pass"),
    "unlabelled",
)
"""What says more of two classes, and what there is of two classes only."""

EXCLUDES: Sequence[tuple[str, tuple[str, ...], str]] = (
    ("against", FITTED, "the scores of two models are compared, and nothing is fitted"),
    ("against_data", FITTED, "the scores of two models are compared, and nothing is fitted"),
    ("model", ("score", "prediction"), "the model makes the scores"),
    ("noise_columns", ("noise_probability",), "persons are counted"),
    *(
        (name, ("suppress_below",), "true groups are told of whatever their size")
        for name in ("noise", "noise_radius", "noise_membership")
    ),
    *(
        (name, ("counts_out",), "counts are of the recorded groups")
        for name in ("noise", "noise_radius", "noise_membership")
    ),
    ("noise_membership", ("noise", "noise_radius"), TRUE),
    (
        "noise_membership",
        ("noise_class_conditional",),
        "of probabilities of membership say `noise_independent`",
    ),
    ("noise_membership", ("profile",), "its tables are about recorded groups"),
    (
        f"task={MULTICLASS}",
        OF_TWO_COLUMNS,
        "every class that `prediction` and `label` hold is compared with the rest",
    ),
    (
        f"task={MULTICLASS}",
        OF_TWO,
        "it is of two classes; `label=COLUMN=VALUE` in place of the task has two",
    ),
    ("baseline_data", ("baseline",), "one compares rows and the other results"),
    (
        "baseline_data",
        ("model",),
        "the scores of two files are compared; write those of the model to a column",
    ),
    (
        "baseline_data",
        ("suppress_below",),
        "it is about other rows than the rest of the report, so nothing is hidden for certain",
    ),
    ("suppress_below", ("counterfactuals",), "copies are of single persons, whose rows may be left out"),
    ("table", ("sql",), "each says what is read"),
    ("count", ("id",), "an id names one person, and a row with a count is for many"),
    (
        "from_counts",
        ("data", "table", "sql", "model", "trust_model", "features", "exclude"),
        "no data is read",
    ),
    (
        "from_counts",
        ("individual", "counterfactuals", "counts_out", "noise_membership", "baseline_data"),
        ROWS,
    ),
    ("unlabelled", ("from_counts",), ROWS),
    ("guarantee", ("from_counts",), "the bound is made of rows; repair from `data`"),
    ("guarantee", ("unlabelled",), "it is about the people of one draw, and those rows may be of another"),
    ("guarantee", ("pairs",), "people who are paired are not drawn independently"),
    ("guarantee", ("counterfactuals",), "it is about flips, and copies change something else"),
    *((name, ("from_counts",), ROWS) for name in ("pairs", "subspace")),
    ("holdout", ("from_counts",), "held-out rows are counted apart, and given as `proof_counts`"),
    ("validation", ("from_counts",), "no rows are set aside to choose by"),
    *((name, ("from_counts",), "no text file is read") for name in WRITTEN),
)
"""(parameter, none of these goes with it, why)."""


def check_together(request: Request) -> None:
    """Raise a UsageError where parameters do not go together; it names both, and says why."""
    if getattr(request, "parameters", {}).get("protected_number"):
        for name in ("strata", "bands"):
            if request.has(name):
                raise UsageError(
                    f"`protected_number`: leave out `{name}`; numbers are no groups, and for groups of them name the "
                    "column with `protected` and its `bands` in place of `protected_number`"
                )
    for name, excluded, why in EXCLUDES:
        for other in excluded:
            if request.has(name) and request.has(other):
                raise UsageError(f"`{name}`: leave out `{other}`; {why}")
    for name, needed, why in REQUIRES:
        if request.has(name) and not any(map(request.has, needed)):
            options = " or ".join(f"`{one}`" for one in needed)
            raise UsageError(f"`{name}` goes with {options}" + (f": {why}" if why else ""))


# ---------------------------------------------------------------------- functions of requests

PEERS: Mapping[str, tuple[str, ...]] = {
    "data": ("X", "df", "dataset", "frame", "dataframe", "y"),
    "protected": (
        *(
            "sensitive_features",
            "sensitive_feature",
            "sensitive_attribute",
            "sensitive_attributes",
            "attr_cols",
        ),
        *("protected_attribute", "protected_attributes", "protected_attribute_names", "prot_attr", "groups"),
    ),
    "label": ("y_true", "labels", "target", "label_col", "label_names", "label_value", "true_col"),
    "prediction": ("y_pred", "pred", "preds", "predictions", "pred_col"),
    "score": ("y_score", "y_prob", "y_proba", "proba", "scores", "scores_names", "score_col"),
    "count": ("frequency", "frequencies", "freq", "freq_weight", "frequency_weight", "fweight"),
    "weight": ("sample_weight", "sample_weights", "weights", "instance_weights_name", "weights_col"),
    "strata": ("control_features", "control_feature"),
    "label=COLUMN=VALUE": ("positive_label", "pos_label", "favorable_label", "favorable_classes"),
    "prediction=COLUMN=VALUE": ("positive_prediction",),
    "reference": ("ref_groups_dict", "privileged_groups", "reference_group", "privileged"),
    "fail_on": ("limits", "limit"),
    "method": ("mitigator", "algorithm"),
    "constraint": ("constraints",),
    "slack": ("difference_bound", "tol", "eps"),
    "min_ratio": ("ratio_bound",),
    "seed": ("random_state",),
}
"""Parameter -> what other libraries call it, or what one guesses."""


def _of_peers(name: str, given: Mapping[str, Any], parameters: Mapping[str, Any]) -> str:
    """Return what to write for keywords that other libraries have; empty if there are none."""
    ours = {
        other: own for own, others in PEERS.items() for other in others if own.partition("=")[0] in parameters
    }
    words = [f"{one!r} is `{ours[one]}` here" for one in given if one in ours and one not in parameters]
    columns = "; each takes the name of a column of `data`, or an array with a value for each row"
    call = _call(name, {ours.get(one, one): value for one, value in given.items()})
    return f"fairfix.{name}(): {', '.join(words)}{columns}{call}" if words else ""


def _call(name: str, given: Mapping[str, Any]) -> str:
    """Return a line with the call that is meant; empty where a value cannot be written."""
    named = {one: value for one, value in given.items() if one != "data"}
    for one in [one for one in named if "=" in one]:  # the positive value of a column
        part, value = one.partition("=")[0], named.pop(one)
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


ROLES = ("protected", "strata", "label", "score", "prediction", "probability", "weight", "count", "id")
"""Parameters that take values for the rows in place of the name of a column."""


def _holds_values(role: str, value: Any) -> bool:
    """Tell whether a parameter holds anything but the name of a column, or a list of names where it takes several."""
    several = role in ("protected", "strata") and isinstance(value, (list, tuple))
    return not (
        value is None or isinstance(value, str) or (several and all(isinstance(one, str) for one in value))
    )


def function_of(
    name: str, make: Callable[P, Any], run: Callable[[Any], R], more: Mapping[str, str] | None = None
) -> Callable[P, R]:
    """Return the function whose parameters are those of a request.

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
        part for part in own.parameters.values() if part.name not in ("explicit", "configured", "parameters")
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
        explicit = frozenset(given)
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
            return run(make(**given, explicit=explicit))  # type: ignore[arg-type,call-arg]  # as bound above
        except UsageError as error:
            added = dict(new.split("=", 1) for old, new in error.instead[:1] if not old)
            if call := _call(name, {**kwargs, **added}) if added and len(args) < 2 else "":
                error.args = (f"{error}{call}",)
            raise

    helps = {one: domain.help for one, (_, domain) in parameters_of(make).items()} | dict(more)  # type: ignore[arg-type]  # a class
    listing = "\n".join(f"{one}\n    {text}" for one, text in helps.items())
    task.__name__ = task.__qualname__ = name
    task.__doc__ = f"{inspect.cleandoc(run.__doc__ or '')}\n\nParameters\n----------\n{listing}\n"
    task.__signature__ = signature  # type: ignore[attr-defined]  # functions may have it
    return task
