"""The sample data is small, described, and made by its script."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

from tests.scripts import script

FOLDER = Path(__file__).parents[1] / "sample_data"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    """The script that makes the data."""
    return script("sample_data/generate.py")


def test_it_is_small() -> None:
    """All committed files together stay well under a megabyte."""
    assert sum(path.stat().st_size for path in FOLDER.iterdir() if path.is_file()) < 800_000


@pytest.mark.slow
def test_the_script_makes_the_files(generator: ModuleType, tmp_path: Path) -> None:
    generator.write(tmp_path)
    for path in tmp_path.iterdir():
        read = pd.read_parquet if path.suffix == ".parquet" else pd.read_csv
        pd.testing.assert_frame_equal(
            read(path), read(FOLDER / path.name), check_exact=False, atol=2e-5, rtol=0
        )


def test_the_model_gives_the_scores(generator: ModuleType) -> None:
    """The model that the demo builds is the one that scored every file, whatever the format makes of gaps."""
    model = generator.fitted_model()
    for name in ("loans.parquet", "loans.csv", "new_applicants.csv"):
        rows = pd.read_parquet(FOLDER / name) if name.endswith("parquet") else pd.read_csv(FOLDER / name)
        score = model.predict_proba(rows[list(generator.FEATURES)])[:, 1]

        np.testing.assert_allclose(score, rows.score, atol=2e-5)


def test_the_old_model_gives_its_scores(generator: ModuleType) -> None:
    """Its file has the same people; it is as accurate as the new one, and its gap by race is twice as large."""
    old, new = (pd.read_parquet(FOLDER / f"{name}.parquet") for name in ("old_model", "loans"))
    score = generator.fitted_model(generator.BEFORE).predict_proba(new[list(generator.BEFORE)])[:, 1]
    np.testing.assert_allclose(score, old.score, atol=2e-5)
    assert all(old[name].equals(new[name]) for name in ("applicant_id", "race", "sex", "label"))

    gaps = [(frame.score >= 0.5).groupby(frame.race).mean().agg(np.ptp) for frame in (old, new)]
    right = [((frame.score >= 0.5) == frame.label).mean() for frame in (old, new)]
    assert gaps[0] > 2 * gaps[1]
    assert abs(right[0] - right[1]) < 0.01


def test_the_tables_of_the_readme_are_true() -> None:
    """Group sizes and rates in the README are those of the file."""
    loans = pd.read_parquet(FOLDER / "loans.parquet")
    text = (FOLDER / "README.md").read_text()
    for race, part in loans.groupby("race"):
        row = f"| {race} | {len(part):,} | {part.label.mean():.3f} | {(part.score >= 0.5).mean():.3f} |"
        assert row in text


def test_every_column_is_described() -> None:
    """The README lists every column and every file."""
    text = (FOLDER / "README.md").read_text()
    names = [
        *pd.read_parquet(FOLDER / "loans.parquet").columns,
        *(p.name for p in FOLDER.iterdir() if p.is_file()),
    ]

    assert [name for name in names if f"`{name}`" not in text and name != "README.md"] == []


def test_history_treats_groups_differently() -> None:
    """There is something to find: a clear gap by race, and every group has both outcomes."""
    loans = pd.read_parquet(FOLDER / "loans.parquet")
    rate = (loans.score >= 0.5).groupby(loans.race).mean()

    assert rate.max() - rate.min() > 0.15
    assert loans.groupby("race").label.nunique().eq(2).all()
    assert loans.groupby("race").size().min() > 300
    assert loans[["income", "employment_years", "education"]].isna().any().all()
    assert 0.05 < (loans.race != loans.race_recorded).mean() < 0.2
