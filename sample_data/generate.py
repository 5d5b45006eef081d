"""Generate the sample data: a synthetic loan book whose history treats groups differently.

``python sample_data/generate.py`` writes the committed files anew into its own folder. Nobody in it exists.

How it is made. Each applicant has a group (race, sex, age band) and a hidden ability to repay. Groups differ in
income, housing and education, as a history of unequal chances leaves them, and a little in ability; past lenders also
were harsher on some, so the observed label is worse for them at equal ability. A model is trained on the features
(never on race, sex or age) of *other* applicants; it learns the bias through income, housing and education.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

SEED = 20_261_120
AUDITED, TRAINING, NEW, CSV_ROWS, SURVEY = 20_000, 12_000, 1_000, 1_500, 5_000

RACES = ("Asian", "Black", "Hispanic", "Native", "White")
RACE_SHARES = (0.10, 0.16, 0.19, 0.025, 0.525)
ADVANTAGE = {"Asian": 0.25, "Black": -0.55, "Hispanic": -0.35, "Native": -0.60, "White": 0.15}
"""How far a history of unequal chances moved income, housing and education."""

HARSHNESS = {"Asian": 0.0, "Black": 0.45, "Hispanic": 0.25, "Native": 0.50, "White": 0.0}
"""How much worse the past label is at equal ability."""

RECORDED = {
    "Asian": (0.88, 0.01, 0.03, 0.01, 0.07),
    "Black": (0.01, 0.89, 0.04, 0.01, 0.05),
    "Hispanic": (0.02, 0.03, 0.82, 0.02, 0.11),
    "Native": (0.03, 0.05, 0.10, 0.70, 0.12),
    "White": (0.02, 0.03, 0.04, 0.01, 0.90),
}
"""P(recorded race | race): the recorded column is wrong for about one in eight."""

AGES = ("18-29", "30-44", "45-59", "60+")
PRODUCTS = ("car", "home", "personal")
EDUCATION = ("primary", "secondary", "college", "graduate")
HOUSING = ("rent", "mortgage", "own")

FEATURES = (
    "product",
    "loan_amount",
    "income",
    "debt_ratio",
    "employment_years",
    "education",
    "home_ownership",
    "late_payments",
    "has_guarantor",
)
"""What the scoring model sees."""

BEFORE = (*FEATURES, "race", "sex")
"""What the model before it saw."""


def applicants(rows: int, rng: np.random.Generator, prefix: str) -> pd.DataFrame:
    """Return applicants with features and label, no score."""
    race = rng.choice(RACES, rows, p=RACE_SHARES)
    sex = rng.choice(("female", "male"), rows, p=(0.47, 0.53))
    age = rng.choice(AGES, rows, p=(0.22, 0.36, 0.28, 0.14))
    advantage = pd.Series(race).map(ADVANTAGE).to_numpy(float) + np.where(sex == "male", 0.12, -0.12)
    advantage += np.where((race == "Black") & (sex == "female"), -0.30, 0.0)  # more than the sum of its parts
    ability = rng.normal(0.25 * advantage, 1.0)
    features = _features(rows, rng, advantage, ability, age)
    harsh = pd.Series(race).map(HARSHNESS).to_numpy(float) + np.where(sex == "female", 0.08, 0.0)
    product_effect = features["product"].map({"car": 0.2, "home": 0.6, "personal": -0.5}).to_numpy(float)
    logit = 0.35 + 1.0 * ability + 0.45 * advantage + product_effect - harsh
    label = (rng.random(rows) < 1 / (1 + np.exp(-logit))).astype(np.int64)
    who = {
        "applicant_id": [f"{prefix}{i:06d}" for i in range(1, rows + 1)],
        "race": race,
        "sex": sex,
        "age_band": age,
        "race_recorded": _recorded(race, rng),
    }
    return pd.DataFrame(who).join(features).assign(label=label)


def _features(
    rows: int,
    rng: np.random.Generator,
    advantage: npt.NDArray[Any],
    ability: npt.NDArray[Any],
    age: npt.NDArray[Any],
) -> pd.DataFrame:
    def ordered(names: tuple[str, ...], lean: npt.NDArray[Any], cuts: tuple[float, ...]) -> npt.NDArray[Any]:
        return np.array(names)[np.searchsorted(cuts, lean + rng.normal(0, 1, rows))]

    older = pd.Series(age).map(dict(zip(AGES, (0, 1, 2, 3), strict=True))).to_numpy()
    product = ordered(PRODUCTS, 0.35 * advantage, (-0.4, 0.45))
    income = np.exp(10.55 + 0.38 * advantage + 0.22 * ability + 0.06 * older + rng.normal(0, 0.35, rows))
    base = np.select([product == "car", product == "home"], [14_000.0, 180_000.0], 8_000.0)
    years = np.maximum(rng.gamma(2.0, 1.5 + 1.6 * older) + 0.8 * ability, 0)
    late = rng.poisson(np.exp(-0.2 - 0.55 * ability - 0.15 * advantage))
    frame = pd.DataFrame(
        {
            "product": product,
            "loan_amount": (base * np.exp(rng.normal(0, 0.4, rows))).round(-2).astype(np.int64),
            "income": income.round(-2),
            "debt_ratio": np.clip(rng.beta(2, 4, rows) - 0.05 * ability - 0.03 * advantage, 0, 1).round(3),
            "employment_years": years.round(1),
            "education": ordered(EDUCATION, 0.6 * advantage + 0.3 * ability, (-1.1, 0.2, 1.3)),
            "home_ownership": ordered(HOUSING, 0.7 * advantage + 0.25 * older - 0.4, (0.1, 0.9)),
            "late_payments": late.astype(np.int64),
            "has_guarantor": rng.random(rows) < 0.18,
        }
    )
    frame.loc[rng.random(rows) < 0.06, "income"] = np.nan
    frame.loc[rng.random(rows) < 0.09, "employment_years"] = np.nan
    frame.loc[rng.random(rows) < 0.03, "education"] = None
    return frame


def _recorded(race: npt.NDArray[Any], rng: np.random.Generator) -> npt.NDArray[Any]:
    cumulated = np.cumsum([RECORDED[r] for r in RACES], axis=1)[np.searchsorted(RACES, race)]
    return np.array(RACES)[(rng.random(len(race))[:, None] > cumulated).sum(axis=1).clip(0, len(RACES) - 1)]


def fitted_model(features: tuple[str, ...] = FEATURES) -> Any:
    """Return the scoring model, or the one before it, trained on applicants who are in none of the files."""
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = ["loan_amount", "income", "debt_ratio", "employment_years", "late_payments", "has_guarantor"]
    known = {  # a missing name is none of them, in any file format
        "product": list(PRODUCTS),
        "education": list(EDUCATION),
        "home_ownership": list(HOUSING),
        "race": list(RACES),
        "sex": ["female", "male"],
    }
    names = [name for name in known if name in features]
    columns = ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), numbers),
            (
                "names",
                OneHotEncoder(categories=[known[name] for name in names], handle_unknown="ignore"),
                names,
            ),
        ]
    )
    data = applicants(TRAINING, np.random.default_rng(SEED + 1), "T")
    return make_pipeline(columns, LogisticRegression(C=1.0, max_iter=1000)).fit(
        data[list(features)], data["label"]
    )


def noise_table(rng: np.random.Generator) -> pd.DataFrame:
    """Return counts of (true, recorded) race from a separate survey."""
    race = rng.choice(RACES, SURVEY, p=RACE_SHARES)
    counts = pd.crosstab(race, _recorded(race, rng)).reindex(index=RACES, columns=RACES, fill_value=0)
    table = counts.rename_axis(index="true", columns="noisy").stack().rename("count").reset_index()
    return table.astype({"count": np.int64})


def build() -> dict[str, pd.DataFrame]:
    """Return file name -> content."""
    model = fitted_model()
    audited = applicants(AUDITED, np.random.default_rng(SEED + 2), "A")
    new = applicants(NEW, np.random.default_rng(SEED + 3), "N").drop(columns="label")
    before = fitted_model(BEFORE).predict_proba(audited[list(BEFORE)])[:, 1].round(5)
    for frame in (audited, new):
        frame["score"] = model.predict_proba(frame[list(FEATURES)])[:, 1].round(5)
    return {
        "loans.parquet": audited,
        "loans.csv": audited.head(CSV_ROWS),
        "new_applicants.csv": new,
        "old_model.parquet": audited[["applicant_id", "race", "sex", "label"]].assign(score=before),
        "race_noise.csv": noise_table(np.random.default_rng(SEED + 4)),
    }


def write(folder: Path) -> None:
    """Write all files into a folder."""
    for name, frame in build().items():
        if name.endswith(".parquet"):
            small: dict[str, Any] = {"compression": "zstd", "compression_level": 19}
            if name == "old_model.parquet":  # few digits change from one id to the next
                small |= {"use_dictionary": ["race", "sex"]}
                small |= {"column_encoding": {"applicant_id": "DELTA_BYTE_ARRAY"}}
            else:
                small |= {"row_group_size": 4_000}
            frame.to_parquet(folder / name, index=False, **small)
        else:
            frame.to_csv(folder / name, index=False, lineterminator="\n")
        print(f"{name}: {len(frame):,} rows, {(folder / name).stat().st_size:,} bytes")


if __name__ == "__main__":
    write(Path(__file__).parent)
