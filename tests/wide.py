"""Wide files as people have them, drawn: names, dates, IDs, model outputs and leaks beside features."""

from __future__ import annotations

import numpy as np
import pandas as pd

Frame = pd.DataFrame


def _days(rng: np.random.Generator, rows: int, form: str = "%Y-%m-%d") -> pd.Series:
    days = pd.Timestamp("2013-01-01") + pd.to_timedelta(rng.integers(0, 700 * 86400, rows), "s")
    return pd.Series(days.strftime(form), dtype=object)


def _names(rng: np.random.Generator, rows: int, many: int, word: str) -> list[str]:
    return [f"{word}{i}" for i in rng.zipf(1.2, rows) % many]


def _decile(number: np.ndarray) -> np.ndarray:
    return np.ceil(pd.Series(number).rank(pct=True) * 10).astype(int).to_numpy()


def recidivism(rows: int = 2500, seed: int = 0) -> tuple[Frame, set[str], set[str]]:
    """Return a file like ProPublica's, its leaks, and its features; race is protected, two_year_recid the label."""
    rng = np.random.default_rng(seed)
    race = rng.choice(["African-American", "Caucasian", "Other"], rows, p=[0.5, 0.35, 0.15])
    age, priors = 18 + rng.gamma(2, 8, rows).astype(int), rng.poisson(3, rows) * rng.integers(0, 3, rows)
    risk = 0.12 * priors - 0.05 * (age - 30) + 0.3 * (race == "African-American")
    label = (rng.random(rows) < 1 / (1 + np.exp(-risk))).astype(int)
    again = np.where((label == 0) & (rng.random(rows) < 0.05), 1, label) == 1
    violent, jail = again & (rng.random(rows) < 0.25), _days(rng, rows, "%Y-%m-%d %H:%M:%S")
    first, last, later = _names(rng, rows, 9000, "a"), _names(rng, rows, 20000, "b"), _days(rng, rows)
    decile, violence = _decile(risk + rng.normal(0, 0.7, rows)), _decile(risk + rng.normal(0, 1, rows))
    bands = {"bins": [0, 4, 7, 10], "labels": ["Low", "Medium", "High"]}
    case = [f"13{i:07d}CF10A" for i in rng.integers(0, 10**7, rows)]
    frame = pd.DataFrame(
        {
            "id": np.sort(rng.choice(2 * rows, rows, replace=False)),
            "name": [f"{a} {b}" for a, b in zip(first, last, strict=True)],
            "last": last,
            "compas_screening_date": later,
            "sex": rng.choice(["Male", "Female"], rows, p=[0.8, 0.2]),
            "dob": _days(rng, rows),
            "age": age,
            "age_cat": np.where(age < 25, "Less than 25", np.where(age > 45, "Greater than 45", "25 - 45")),
            "race": race,
            "juv_fel_count": rng.poisson(0.1, rows),
            "decile_score": decile,
            "priors_count": priors,
            "days_b_screening_arrest": np.where(rng.random(rows) < 0.05, np.nan, rng.integers(-30, 30, rows)),
            "c_jail_in": jail,
            "c_case_number": case,
            "c_charge_degree": rng.choice(["F", "M"], rows),
            "c_charge_desc": _names(rng, rows, 60, "charge "),
            "is_recid": again.astype(int),
            "r_case_number": np.where(again, case[::-1], None),
            "r_charge_degree": np.where(again, rng.choice(["(F3)", "(M1)"], rows), None),
            "r_days_from_arrest": np.where(again, rng.poisson(20, rows), np.nan),
            "r_offense_date": np.where(again, later, None),
            "violent_recid": np.full(rows, np.nan),
            "is_violent_recid": violent.astype(int),
            "vr_charge_degree": np.where(violent, rng.choice(["(F3)", "(M1)"], rows), None),
            "type_of_assessment": "Risk of Recidivism",
            "decile_score.1": decile,
            "score_text": pd.cut(decile, **bands).astype(str),
            "v_decile_score": violence,
            "v_score_text": pd.cut(violence, **bands).astype(str),
            "priors_count.1": priors,
            "event": (again & (rng.random(rows) < 0.8)).astype(int),
            "two_year_recid": label,
        }
    )
    leaks = {"is_recid", "r_case_number", "r_charge_degree", "r_days_from_arrest", "is_violent_recid"}
    leaks |= {"vr_charge_degree", "event"}
    features = {"sex", "age", "age_cat", "juv_fel_count", "priors_count", "days_b_screening_arrest"}
    features |= {"c_charge_degree", "c_charge_desc", "priors_count.1"}
    return frame, leaks, features


def loans(rows: int = 2500, seed: int = 0) -> tuple[Frame, set[str], set[str]]:
    """Return a file like Lending Club's with 150 columns; home is protected, default the label."""
    rng = np.random.default_rng(seed)
    income, rate = np.round(np.exp(rng.normal(11, 0.5, rows)), 2), np.round(rng.normal(12, 3, rows), 2)
    home = rng.choice(["RENT", "OWN", "MORTGAGE"], rows, p=[0.45, 0.15, 0.4])
    risk = -1.3 + 0.15 * (rate - 12) - 0.4 * (np.log(income) - 11) + 0.3 * (home == "RENT")
    label = rng.random(rows) < 1 / (1 + np.exp(-risk))
    amount = rng.integers(10, 400, rows) * 100
    back = np.where(label & (rng.random(rows) < 0.7), np.round(rng.random(rows) * amount / 5, 2), 0.0)
    frame = pd.DataFrame(
        {
            "Unnamed: 0": np.arange(rows),
            "id": rng.permutation(10**7)[:rows],
            "member_id": np.full(rows, np.nan),
            "url": [f"https://example.com/{i}" for i in range(rows)],
            "emp_title": [f"job {i}" for i in rng.zipf(1.1, rows) % 10**6],
            "desc": [f"I need {a} for {b}" for a, b in zip(amount, income, strict=True)],
            "issue_d": _days(rng, rows, "%b-%Y"),
            "earliest_cr_line": _days(rng, rows, "%b-%Y"),
            "zip_code": [f"{i:03d}xx" for i in rng.integers(0, 80, rows)],
            "loan_amnt": amount,
            "annual_inc": income,
            "income_cents": np.sort((income * 100).astype(int)),
            "int_rate": rate,
            "home": home,
            "home_code": pd.Series(home).map({"RENT": 3, "OWN": 1, "MORTGAGE": 2}),
            "policy_code": 1,
            "recoveries": back,
            "collection_recovery_fee": np.round(back * 0.18, 2),
            "loan_status": np.where(label, "Charged Off", "Fully Paid"),
            "hardship_dates": None,
            "fico_score": (650 + 50 * rng.normal(size=rows)).astype(int),
            "default": label.astype(int),
        }
    )
    features = {"zip_code", "loan_amnt", "annual_inc", "income_cents", "int_rate", "fico_score"}
    more = {f"ratio_{i}": rng.normal(size=rows) for i in range(64)}
    more |= {f"count_{i}": rng.poisson(3, rows) for i in range(64)}
    features |= {*more}
    frame = pd.concat([frame, pd.DataFrame(more)], axis=1)
    return frame, {"recoveries", "collection_recovery_fee", "loan_status"}, features


def expenses(rows: int = 2500, seed: int = 0) -> tuple[Frame, set[str], set[str]]:
    """Return a file like MEPS with codes for missing values; RACE is protected, UTILIZATION the label."""
    rng = np.random.default_rng(seed)
    race, age = rng.choice(["White", "Non-White"], rows, p=[0.6, 0.4]), rng.integers(0, 86, rows)
    visits = rng.poisson(np.exp(0.5 + age / 60 + 0.3 * (race == "White")))
    frame = pd.DataFrame(
        {
            "DUPERSID": 6 * 10**7 + np.sort(rng.choice(5 * rows, rows, replace=False)),
            "PANEL": 19,
            "REGION": rng.integers(1, 5, rows),
            "AGE": age,
            "SEX": rng.integers(1, 3, rows),
            "RACE": race,
            "INTVDATE": 20150000 + rng.integers(1, 13, rows) * 100 + rng.integers(1, 29, rows),
            "TOTALVISITS": visits,
            "UTILIZATION": (visits >= 5).astype(int),
        }
    )
    codes = {f"DX{i}": rng.choice([-9, -1, 1, 2], rows, p=[0.1, 0.1, 0.3, 0.5]) for i in range(40)}
    frame = pd.concat([frame, pd.DataFrame(codes)], axis=1)
    return frame, {"TOTALVISITS"}, {"REGION", "AGE", "SEX", *codes}
