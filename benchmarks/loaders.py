"""Data sets by the loaders that users know, as the files of Parquet that the benchmarks read: ``--fetch``.

A loader is Fairlearn's, scikit-learn's for OpenML, or AIF360's. Its rows are converted to the columns and types of the
file, and held against the published numbers of rows, labels and gaps before the file is written; what differs is
refused. The order of rows is the loader's: OpenML has Adult's other way round than UCI, so that a split of the same
seed has other rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

Got = tuple[pd.DataFrame, pd.Series]
"""Features and label as a loader gives them."""


@dataclass(frozen=True)
class Loader:
    """How a data set is fetched, converted and recognised.

    ``rates`` has, of the values of a column, the rows and the mean of the label to four digits; ``gaps`` the rows that
    miss a value, by column.
    """

    call: str
    fetch: Callable[[Path], Got]
    convert: Callable[[pd.DataFrame, pd.Series], pd.DataFrame]
    rates: tuple[str, Mapping[object, tuple[int, float]]]
    columns: int
    gaps: Mapping[str, int] = field(default_factory=dict)

    def frame(self, place: Path) -> pd.DataFrame:
        """Return the data set, its label last; the loader keeps what it downloads in a folder.

        Raises
        ------
        ValueError
            What came is not the data set that the benchmarks use.
        """
        frame = self.convert(*self.fetch(place))
        column, rates = self.rates
        label = frame.iloc[:, -1]
        found = {
            value: (len(own), round(float(own.mean()), 4)) for value, own in label.groupby(frame[column])
        }
        if found != dict(rates):
            raise ValueError(
                f"rows and mean {label.name} by {column} are {found}, and {dict(rates)} in the published file"
            )
        if frame.shape[1] != self.columns:
            raise ValueError(f"it has {frame.shape[1]} columns, and {self.columns} in the published file")
        gaps = {name: int(frame[name].isna().sum()) for name in frame if frame[name].isna().any()}
        if gaps != dict(self.gaps):
            raise ValueError(f"values are missing in {gaps}, and in {dict(self.gaps)} in the published file")
        return frame


# --- conversion ------------------------------------------------------------------------------------------


def text(column: pd.Series) -> pd.Series:
    """Return a column as text without blanks around it; what is empty or a question mark is missing."""
    out = column.astype("string").str.strip()
    return out.mask(out.isin(["", "?"]))


def whole(column: pd.Series) -> pd.Series:
    """Return a column of whole numbers, which may come as text, categories or with a decimal point.

    Raises
    ------
    ValueError
        A number is missing or not whole.
    """
    out = pd.to_numeric(text(column))
    if out.isna().any() or (out != out.round()).any():
        raise ValueError(f"column {column.name} has values that are no whole numbers")
    return out.astype("int64")


def number(column: pd.Series) -> pd.Series:
    """Return a column of numbers, missing ones as NaN."""
    return pd.to_numeric(text(column)).astype("float64")


def coded(label: pd.Series, codes: Mapping[str, int]) -> pd.Series:
    """Return a label as 0 and 1, whatever full stop is behind it (the test part of Adult has one)."""
    words = text(label).str.rstrip(".")
    unknown = sorted(set(words.dropna()) - set(codes)) + ["nothing"] * bool(words.isna().any())
    if unknown:
        raise ValueError(
            f"the label {label.name} has {', '.join(unknown)}, and {', '.join(codes)} were expected"
        )
    return words.map(codes).astype("int64")


def chosen(frame: pd.DataFrame, types: Mapping[str, Callable[[pd.Series], pd.Series]]) -> pd.DataFrame:
    """Return columns by name, each converted."""
    if missing := [name for name in types if name not in frame]:
        raise ValueError(f"it has no column {', '.join(missing)}")
    made = {name: convert(frame[name]).reset_index(drop=True) for name, convert in types.items()}
    return pd.DataFrame(made)


ADULT = {
    "age": whole,
    "workclass": text,
    "fnlwgt": whole,
    "education": text,
    "education_num": whole,
    "marital_status": text,
    "occupation": text,
    "relationship": text,
    "race": text,
    "sex": text,
    "capital_gain": whole,
    "capital_loss": whole,
    "hours_per_week": whole,
    "native_country": text,
}

CREDIT = (
    *("LIMIT_BAL", "SEX", "EDUCATION", "MARRIAGE", "AGE", "PAY_0"),
    *(f"PAY_{month}" for month in range(2, 7)),
    *(f"{what}_AMT{month}" for what in ("BILL", "PAY") for month in range(1, 7)),
)

COMPAS = {
    "sex": text,
    "age": whole,
    "age_cat": text,
    "race": text,
    "juv_fel_count": whole,
    "juv_misd_count": whole,
    "juv_other_count": whole,
    "priors_count": whole,
    "c_charge_degree": text,
    "c_charge_desc": text,
    "compas_screening_date": text,
    "days_b_screening_arrest": whole,
    "decile_score": whole,
    "score_text": text,
}

RACES = ["racepctblack", "racePctWhite", "racePctAsian", "racePctHisp"]


def adult(X: pd.DataFrame, y: pd.Series) -> pd.DataFrame:
    """Return Adult with 1 for an income above 50K."""
    frame = chosen(X.rename(columns=lambda name: name.replace("-", "_")), ADULT)
    return frame.assign(income=coded(y, {"<=50K": 0, ">50K": 1}).to_numpy())


def credit(X: pd.DataFrame, y: pd.Series) -> pd.DataFrame:
    """Return credit default; before Fairlearn 0.15 the columns are x1 to x23, in UCI's order."""
    if list(X.columns) == [f"x{place}" for place in range(1, len(CREDIT) + 1)]:
        X = X.set_axis(CREDIT, axis=1)
    return chosen(X, dict.fromkeys(CREDIT, whole)).assign(default=coded(y, {"0": 0, "1": 1}).to_numpy())


def compas(X: pd.DataFrame, y: pd.Series) -> pd.DataFrame:
    """Return COMPAS with 1 for an arrest within two years; AIF360 has sex and race as the index too."""
    return chosen(X, COMPAS).assign(two_year_recid=coded(y, {"Survived": 0, "Recidivated": 1}).to_numpy())


def communities(X: pd.DataFrame, y: pd.Series) -> pd.DataFrame:
    """Return communities and crime without UCI's codes of county and community, whose values are mostly missing.

    The majority is white where the share of whites, each share scaled on its own, is the largest.
    """
    if "communityname" not in X:  # it names the rows; nothing reads it, and OpenML may leave such columns out
        X = X.assign(communityname="")
    own: dict[str, Callable[[pd.Series], pd.Series]] = {"state": whole, "communityname": text, "fold": whole}
    rest = [name for name in X if name not in (*own, "county", "community")]
    frame = chosen(X, {**own, **dict.fromkeys([*rest, *RACES], number)})
    white = frame[RACES].idxmax(axis=1) == "racePctWhite"
    return frame.assign(majority_white=white.astype("int64"), ViolentCrimesPerPop=number(y).to_numpy())


# --- loaders ---------------------------------------------------------------------------------------------


def _adult(place: Path) -> Got:
    from fairlearn.datasets import fetch_adult

    got = fetch_adult(data_home=str(place))
    return got.data, got.target


def _credit(place: Path) -> Got:
    from fairlearn.datasets import fetch_credit_card

    got = fetch_credit_card(data_home=str(place))
    return got.data, got.target


def _compas(place: Path) -> Got:
    from aif360.sklearn.datasets import fetch_compas

    got = fetch_compas(data_home=str(place), usecols=list(COMPAS), dropna=False)
    return got.X, got.y


def _openml(place: Path, number: int) -> Got:
    from sklearn.datasets import fetch_openml

    got = fetch_openml(data_id=number, data_home=str(place), as_frame=True)
    return got.data, got.target


POLICE = (
    *("LemasSwornFT", "LemasSwFTPerPop", "LemasSwFTFieldOps", "LemasSwFTFieldPerPop", "LemasTotalReq"),
    *("LemasTotReqPerPop", "PolicReqPerOffic", "PolicPerPop", "RacialMatchCommPol", "PctPolicWhite"),
    *("PctPolicBlack", "PctPolicHisp", "PctPolicAsian", "PctPolicMinor", "OfficAssgnDrugUnits"),
    *("NumKindsDrugsSeiz", "PolicAveOTWorked", "PolicCars", "PolicOperBudg", "LemasPctPolicOnPatr"),
    *("LemasGangUnitDeploy", "PolicBudgPerPop"),
)

LOADERS: Mapping[str, Loader] = {
    "adult": Loader(
        "fairlearn.datasets.fetch_adult",
        _adult,
        adult,
        ("sex", {"Female": (16_192, 0.1093), "Male": (32_650, 0.3038)}),
        15,
        {"workclass": 2_799, "occupation": 2_809, "native_country": 857},
    ),
    "credit_default": Loader(
        "fairlearn.datasets.fetch_credit_card",
        _credit,
        credit,
        ("SEX", {1: (11_888, 0.2417), 2: (18_112, 0.2078)}),
        24,
    ),
    "compas": Loader(
        "aif360.sklearn.datasets.fetch_compas",
        _compas,
        compas,
        (
            "race",
            {
                "African-American": (3_175, 0.5231),
                "Asian": (31, 0.2581),
                "Caucasian": (2_103, 0.3909),
                "Hispanic": (509, 0.3713),
                "Native American": (11, 0.4545),
                "Other": (343, 0.3615),
            },
        ),
        15,
        {"c_charge_desc": 5},
    ),
    "communities": Loader(
        "sklearn.datasets.fetch_openml(data_id=42730)",
        partial(_openml, number=42730),
        communities,
        ("majority_white", {0: (422, 0.4737), 1: (1_572, 0.1747)}),
        127,
        {"OtherPerCap": 1, **dict.fromkeys(POLICE, 1_675)},
    ),
}
"""File without its ending -> its loader."""

WITHOUT = "no loader is known that gives its rows and columns"
"""Of the law school files: AIF360's loader has other columns, and no data set of OpenML could be verified."""


def fetch(names: Sequence[str], place: Path) -> Iterator[str]:
    """Fetch the data sets that a folder lacks into it, and yield a line on each."""
    for name in names:
        path = place / f"{name}.parquet"
        if path.exists():
            continue
        if name not in LOADERS:
            yield f"{name} is not fetched: {WITHOUT}"
            continue
        loader = LOADERS[name]
        try:
            table = pa.Table.from_pandas(loader.frame(place), preserve_index=False)
        except Exception as error:  # a loader may fail in any way, and the other data sets go on
            said = " ".join(str(error).split()) or type(error).__name__
            if isinstance(error, ModuleNotFoundError):
                said += f"; pip install {error.name}"
            yield f"{name} is not fetched by {loader.call}: {said}"
            continue
        kinds = [pa.string() if pa.types.is_large_string(one.type) else one.type for one in table.schema]
        part = path.with_suffix(".part")
        pq.write_table(table.cast(pa.schema(zip(table.column_names, kinds, strict=True))), part)
        part.replace(path)
        yield f"{name} is fetched by {loader.call}"
