"""Files with the names, codes, marks and layout of twenty public ones; every value is drawn, no row is theirs.

:data:`FILES` is the table. :meth:`Real.write` makes a file; ``scored`` adds the column that a user has after
predicting.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import erf
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

COLUMNS = (Path(__file__).parent / "columns.txt").read_text(encoding="utf-8")


def expanded(word: str) -> list[str]:
    """Return the names of ``a{1..3}`` and ``{A,B}_C``, in the order of the file."""
    if not (ends := re.search(r"\{([^}]*)\}", word)):
        return [word]
    first, _, last = ends[1].partition("..")
    inner = [str(i) for i in range(int(first), int(last) + 1)] if last else ends[1].split(",")
    tails = expanded(word[ends.end() :])
    return [f"{word[: ends.start()]}{one}{tail}" for tail in tails for one in inner]


def names_of(file: str) -> list[str]:
    """Return the column names of a public file, repeated ones too."""
    (body,) = re.findall(rf"^{file}: (.*(?:\n  .*)*)", COLUMNS, re.MULTILINE)
    return [name for word in body.split() for name in expanded(word)]


@dataclass
class Drawn:
    """What a file's columns are drawn from: the latent quality of a row, its outcome, group and score."""

    rng: np.random.Generator
    group: np.ndarray
    z: np.ndarray
    yes: np.ndarray
    score: np.ndarray

    def column(self, spec: Any) -> Any:
        """Return a column of texts.

        ``spec`` is ``a|b|c`` (choices), ``%Y`` (dates; ``%Y|``: some missing), ``#P%d`` (the row's number),
        (low, high[, digits[, missing mark]]) for numbers that follow the quality of the row, or a function.
        """
        n = len(self.z)
        if callable(spec):
            return np.asarray(spec(self)).astype(str)
        if isinstance(spec, str):
            if spec.startswith("#"):
                return np.array([spec[1:] % i for i in range(1, n + 1)])
            if spec.startswith("%"):
                days = pd.Timestamp("2013-01-01") + pd.to_timedelta(self.rng.integers(0, 16_800, n), unit="h")
                texts = np.array(days.strftime(spec.rstrip("|")))
                return np.where(self.rng.random(n) < 0.2, "", texts) if spec.endswith("|") else texts
            return self.rng.choice(spec.split("|"), n)
        low, high, digits, mark = (*spec, *(0, "")[len(spec) - 2 :])
        rank = np.array([0.5 + erf(x / 2**0.5) / 2 for x in 0.5 * self.z + self.rng.normal(size=n)])
        texts = np.array([f"{low + (high - low) * u:.{digits}f}" for u in rank], dtype=object)
        if len(spec) > 3:
            texts[self.rng.random(n) < 0.2] = mark
        return texts


@dataclass(frozen=True)
class Text:
    """The layout of a text file."""

    sep: str = ","
    header: bool = True
    quoting: Any = csv.QUOTE_MINIMAL
    encoding: str = "utf-8"
    before: str = ""
    """Lines before the table, in which {pad} is the separators of a row."""
    after: str = ""
    end: str = "\n"
    tail: str = ""
    """What ends each line."""

    def __call__(self, path: Path, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Write a file."""
        path.write_bytes(self.bytes(names, rows))

    def bytes(self, names: Sequence[str], rows: Sequence[Sequence[str]]) -> bytes:
        """Return the content of a file."""
        out = io.StringIO()
        mark = self.sep[0] if len(self.sep) == 1 else "\x1f"
        writer = csv.writer(out, delimiter=mark, quoting=self.quoting, lineterminator=self.tail + self.end)
        if self.header:
            writer.writerow(names)
        numeric = self.quoting == csv.QUOTE_NONNUMERIC
        writer.writerows([[number(cell) if numeric else cell for cell in row] for row in rows])
        pad = self.sep * (len(names) + len(self.tail) - 1)
        text = self.before.replace("{pad}", pad) + out.getvalue().replace(mark, self.sep) + self.after
        return text.encode(self.encoding)


def number(cell: str) -> Any:
    """Return a number as such, so that no quotes are put around it."""
    return cell if not re.fullmatch(r"-?\d+(\.\d+)?", cell) else float(cell) if "." in cell else int(cell)


def zipped(path: Path, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write a ZIP with the table and the read-me that the Census Bureau puts beside it."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("ACS2018_PUMS_README.pdf", b"%PDF-1.4 no table")
        archive.writestr("psam_p06.csv", Text().bytes(names, rows))


def gzipped(path: Path, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write a CSV file with texts in quotes, packed."""
    path.write_bytes(gzip.compress(Text(quoting=csv.QUOTE_NONNUMERIC).bytes(names, rows), mtime=0))


def workbook(path: Path, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write a workbook whose first sheet is the table."""
    import openpyxl

    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    for row in [names, *rows]:
        sheet.append([float(cell) if re.fullmatch(r"-?\d+(\.\d+)?", cell) else cell for cell in row])
    book.save(path)


def transport(path: Path, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write a SAS transport file of version 5."""
    import pyreadstat

    frame = pd.DataFrame(rows, columns=list(names))
    numbers = {name: pd.to_numeric(frame[name]) for name in names if name != "DUPERSID"}
    pyreadstat.write_xport(frame.assign(**numbers), str(path), file_format_version=5, table_name="H181")


def arff(path: Path, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write an ARFF file whose attributes are nominal but for the score."""
    lines = ["% Dutch census, drawn", "@relation dutch_census_2001", ""]
    for name, column in zip(names, zip(*rows, strict=True), strict=True):
        kind = "numeric" if name == "score" else "{" + ",".join(sorted(set(column))) + "}"
        lines.append(f"@attribute {name} {kind}")
    path.write_text("\n".join([*lines, "", "@data", *map(",".join, rows), ""]), encoding="utf-8")


@dataclass(frozen=True)
class Real:
    """A public file: how it is written, what a person types first, and what that person knows when asked."""

    name: str
    file: str
    asks: str
    protected: str
    label: str
    positives: tuple[str, ...]
    values: Mapping[str, Any]
    """Column -> how it is drawn; the label is given by all of its values."""
    write_rows: Callable[[Path, Sequence[str], Sequence[Sequence[str]]], None] = field(default_factory=Text)
    other: Any = (0, 9)
    rows: int = 600
    score: str = ""
    """The score that the public file has itself."""
    knows: Mapping[str, str] = field(default_factory=dict)
    """Option -> what the person answers when a message asks for it."""
    repairs: tuple[str, ...] = ("logloss", "ramp")
    leaks: frozenset[str] = frozenset()
    """Columns that say the outcome in other words, which no repair may learn from."""
    real: bool = False
    """Whether the label is a real number, of which ``positives`` has the least that is positive."""

    @cached_property
    def drawn(self) -> tuple[list[str], list[list[str]], list[float]]:
        """The names, rows and scores: always the same."""
        names, n = names_of(self.name), self.rows
        rng = np.random.default_rng([ord(letter) for letter in self.name])
        group = rng.choice(self.values[self.protected].split("|"), n) if self.named_groups else np.full(n, "")
        order = sorted(set(group))
        z = rng.normal(size=n) + np.array([0.8 * (order.index(one) % 2) for one in group]) - 0.4
        chance = 1 / (1 + np.exp(-1.5 * z))
        score = np.round(1 / (1 + np.exp(-1.5 * z - 0.5 * rng.normal(size=n))), 4)
        drawn = Drawn(rng, group, z, rng.random(n) < chance, score)
        columns: dict[str, Any] = {}  # of a name that is there twice, both are equal, as in the public file
        for name in dict.fromkeys(names):
            spec = self.values.get(name, self.other)
            if name == self.protected and self.named_groups:
                columns[name] = group
            elif name == self.label and not self.real and isinstance(spec, str):
                bad = [value for value in spec.split("|") if value not in self.positives]
                columns[name] = np.where(drawn.yes, rng.choice(self.positives, n), rng.choice(bad, n))
            else:
                columns[name] = drawn.column(spec)
        rows = [[str(cell) for cell in row] for row in zip(*(columns[name] for name in names), strict=True)]
        return names, rows, list(score)

    @property
    def named_groups(self) -> bool:
        """Whether the protected column holds names, not numbers."""
        return isinstance(self.values[self.protected], str)

    def path(self, folder: Path, *, scored: bool) -> Path:
        """Return where the file is, or that with scores."""
        name = re.sub(r"((\.\w+)?(\.gz)?)$", r"-scored\1", self.file, count=1)
        return folder / (name if scored and not self.score else self.file)

    def write(self, folder: Path, *, scored: bool) -> Path:
        """Write the file, or that with a last column ``score``."""
        names, rows, scores = self.drawn
        path = self.path(folder, scored=scored)
        if scored and not self.score:
            sign = "," if self.name == "export" else "."
            texts = [f"{one:.4f}".replace(".", sign) for one in scores]
            names, rows = [*names, "score"], [[*row, one] for row, one in zip(rows, texts, strict=True)]
        self.write_rows(path, names, rows)
        return path

    def base_rates(self) -> list[float]:
        """Return the fractions of positive labels for the first positive value, for the first two, and so on."""
        names, rows, _ = self.drawn
        at = len(names) - 1 - names[::-1].index(self.label)
        cells = [row[at] for row in rows]
        if self.real:
            return [sum(float(cell) >= float(self.positives[0]) for cell in cells) / len(cells)]
        some = [set(self.positives[: i + 1]) for i in range(len(self.positives))]
        return [sum(cell in chosen for cell in cells) / len(cells) for chosen in some]


def above(cut: float, low: float, high: float, digits: int = 0) -> Callable[[Drawn], list[str]]:
    """Return how a real-valued outcome is drawn, which is at least ``cut`` where the outcome is positive."""
    return lambda d: [
        f"{(cut + (high - cut) * u) if yes else (low + (cut - 10**-digits - low) * u):.{digits}f}"
        for yes, u in zip(d.yes, d.rng.random(len(d.yes)), strict=True)
    ]


def decile(d: Drawn) -> np.ndarray:
    """Return scores of 1 to 10."""
    return np.clip(np.ceil(10 * d.score), 1, 10).astype(int)


def outcome(yes: str, no: str) -> Callable[[Drawn], np.ndarray]:
    """Return how a copy of the outcome is written."""
    return lambda d: np.where(d.yes, yes, no)


HEADLESS = Text(header=False)
QUESTIONED = (0, 1, 2, "?")
RACES = "African-American|Caucasian|Hispanic|Other"
ADULT = {
    "1": (17, 90), "2": "Private|Self-emp-not-inc|State-gov|?", "3": (12285, 1484705), "4": "HS-grad|Bachelors|11th",
    "5": (1, 16), "6": "Never-married|Married-civ-spouse|Divorced", "7": "Sales|Adm-clerical|?",
    "8": "Husband|Wife|Own-child", "9": "White|Black|Asian-Pac-Islander", "10": "Male|Female", "11": (0, 9999),
    "12": (0, 4356), "13": (1, 99), "14": "United-States|Mexico|?", "15": ">50K|<=50K",
}  # fmt: skip
DRUGS = "No|No|No|Steady|Up|Down"
DAY = "%Y-%m-%d %H:%M:%S"

FILES = [
    Real(
        "compas", "compas-scores-two-years.csv", "--protected race", "race", "two_year_recid", ("1",),
        {
            "id": "#%d", "name": "#first%05d last", "first": "#first%05d",
            "last": "#last%05d", "compas_screening_date": "%Y-%m-%d", "sex": "Male|Female", "dob": "%Y-%m-%d",
            "age": (18, 80), "age_cat": "25 - 45|Greater than 45|Less than 25", "race": RACES, "decile_score": decile,
            "days_b_screening_arrest": (-1, 30, 0, ""), "c_jail_in": DAY, "c_jail_out": DAY, "c_case_number":
            "#13%06dCF10A", "c_offense_date": "%Y-%m-%d|", "c_arrest_date": "%Y-%m-%d|", "c_charge_degree": "F|M",
            "c_charge_desc": "Battery|Possession of Cocaine|arrest case no charge|",
            "is_recid": lambda d: (d.yes | (d.rng.random(len(d.z)) < 0.05)).astype(int),
            "r_case_number": "#13%06dMM10A", "r_charge_degree": "(F3)|(M1)|", "r_days_from_arrest": (0, 300, 0, ""),
            "r_offense_date": "%Y-%m-%d|", "r_charge_desc": "Driving License Suspended|Battery|",
            "r_jail_in": "%Y-%m-%d|",
            "r_jail_out": "%Y-%m-%d|", "violent_recid": lambda d: [""] * len(d.z), "is_violent_recid": "0|0|0|1",
            "vr_case_number": "|||1300CF", "vr_charge_degree": "|||(F2)", "vr_offense_date": "|||2014-07-07",
            "vr_charge_desc": "|||Felony Battery", "type_of_assessment": "Risk of Recidivism",
            "score_text": lambda d: np.where(d.score > 0.7, "High", np.where(d.score > 0.4, "Medium", "Low")),
            "screening_date": "%Y-%m-%d", "v_type_of_assessment": "Risk of Violence", "v_decile_score": (1, 10),
            "v_score_text": "Low|Medium|High", "v_screening_date": "%Y-%m-%d", "in_custody": "%Y-%m-%d",
            "out_custody": "%Y-%m-%d", "event": "0|1", "two_year_recid": outcome("1", "0"), "priors_count": (0, 38),
        },
        score="decile_score", knows={"score-scale": "raw", "threshold": "5", "method": "logloss"},
    ),
    Real(
        "german", "german.data", "--protected 9 --label 21", "9", "21", ("1",),
        {
            "1": "A11|A12|A13|A14", "2": (4, 72), "3": "A30|A32|A34", "4": "A40|A43|A410", "5": (250, 18424),
            "6": "A61|A65", "7": "A71|A73|A75", "9": "A91|A92|A93|A94", "10": "A101|A103", "12": "A121|A124",
            "13": (19, 75), "14": "A141|A143", "15": "A151|A152", "17": "A172|A173", "19": "A191|A192",
            "20": "A201|A202", "21": "1|2",
        },
        Text(sep=" ", header=False), (1, 4), 1000,
    ),
    Real(
        "adult", "adult.data", "--protected 9 --label 15", "9", "15", (">50K",), ADULT,
        Text(sep=", ", header=False, after="\n"), rows=1500,
    ),
    Real(
        "adult", "adult.test", "--protected 10 --label 15", "10", "15", (">50K.",), ADULT | {"15": ">50K.|<=50K."},
        Text(sep=", ", header=False, before="|1x3 Cross validator\n", after="\n"),
    ),
    Real(
        "bank", "bank-full.csv", "--protected marital", "marital", "y", ("yes",),
        {
            "age": (18, 95), "job": "admin.|blue-collar|unknown", "marital": "married|single|divorced",
            "education": "primary|secondary|unknown", "default": "no|no|yes", "balance": (-8019, 102127),
            "housing": "yes|no", "loan": "yes|no", "contact": "cellular|unknown", "month": "may|jun|nov",
            "duration": (0, 4918), "pdays": (-1, 871), "poutcome": "unknown|failure|success", "y": "yes|no",
        },
        Text(sep=";", quoting=csv.QUOTE_NONNUMERIC),
    ),
    Real(
        "student", "student-mat.csv", "--protected sex --label 'G3>=10'", "sex", "G3", ("10",),
        {
            "school": "GP|MS", "sex": "F|M", "age": (15, 22), "address": "U|R", "famsize": "GT3|LE3", "Pstatus": "A|T",
            "Mjob": "at_home|other", "Fjob": "teacher|other", "reason": "course|home", "guardian": "mother|father",
            **dict.fromkeys(names_of("student")[15:23], "yes|no"),
            "absences": (0, 75), "G1": (3, 19), "G2": (0, 19), "G3": above(10, 0, 20),
        },
        Text(sep=";", quoting=csv.QUOTE_NONNUMERIC), (1, 5), 395, real=True,
    ),
    Real(
        "hmda", "2022_public_lar.csv", "--protected derived_race --label action_taken", "derived_race", "action_taken",
        ("1", "2"),
        {
            "activity_year": "2022", "lei": "#549300LEI%010d", "derived_msa-md": "99999|41884",
            "state_code": "CA|NY|NA",
            "county_code": "06037|NA", "census_tract": "06037980100|NA", "conforming_loan_limit": "C|NC|NA",
            "derived_loan_product_type": "Conventional:First Lien|FHA:First Lien",
            "derived_dwelling_category": "Single Family (1-4 Units):Site-Built", "derived_ethnicity":
            "Hispanic or Latino|Not Hispanic or Latino|Ethnicity Not Available", "derived_race":
            "White|Black or African American|Asian|Race Not Available", "derived_sex": "Male|Female|Joint",
            "action_taken": "1|2|3|4|5|6|7|8", "loan_amount": (5000, 955000, 1), "loan_to_value_ratio":
            (20, 100, 2, "Exempt"), "interest_rate": (2, 9, 3, "NA"), "rate_spread": (-1, 3, 2, "NA"),
            "total_loan_costs": (0, 9000, 2, "Exempt"), "loan_term": "360|180|Exempt|NA", "property_value":
            (55000, 985000, 0, "Exempt"), "total_units": "1|2|3|4|5-24", "multifamily_affordable_units": "NA",
            "income": (12, 900, 0, "NA"), "debt_to_income_ratio": "<20%|20%-<30%|36|44|50%-60%|>60%|NA|Exempt",
            **{f"applicant_ethnicity-{i}": "2|1|11|" for i in range(1, 6)},
            **{f"applicant_race-{i}": "5|3|27|" for i in range(1, 6)}, "applicant_age": "25-34|35-44|>74|8888",
            "co-applicant_age": "25-34|9999", "applicant_age_above_62": "Yes|No|NA",
            **{f"aus-{i}": "1|2|1111|" for i in range(1, 6)}, **{f"denial_reason-{i}": "10||3" for i in range(2, 5)},
        },
        other="1|2|3|1111", rows=2000,
    ),
    Real(
        "lawschool", "bar_pass_prediction.csv", "--protected race1 --label pass_bar", "race1", "pass_bar", ("1",),
        {
            "ID": "#%d", "race1": "white|black|asian|hisp|other", "race2": "white|black|", "gender": "male|female|",
            "lsat": (11, 48, 1), "ugpa": (1.5, 4, 1), "gpa": (1.5, 4, 1), "zgpa": (-3, 3, 2, ""), "grad": "Y|X|O",
            "bar1": outcome("P", "F"), "bar1_yr": (90, 96, 1, ""), "bar2": "P|F|", "bar": outcome("a Passed 1st time",
            "e non-Grad"), "bar_passed": outcome("True", "False"), "pass_bar": outcome("1", "0"), "Dropout": "NO|YES",
            "DOB_yr": (40, 75, 1, ""), "indxgrp": "a under 400|g 700+", "indxgrp2": "a under 400|g 820+",
            "dnn_bar_pass_prediction": lambda d: d.score, "fam_inc": (1, 5, 1, ""), "age": (-75, -40, 1, ""),
        },
        score="dnn_bar_pass_prediction", rows=800, leaks=frozenset({"bar", "bar_passed"}),
    ),
    Real(
        "acs", "csv_pca.zip", "--protected RAC1P --label 'PINCP>=50000'", "RAC1P", "PINCP", ("50000",),
        {
            "RT": "P", "SERIALNO": "#2018HU%07d", "AGEP": (17, 94), "ADJINC": "1013097", "RAC1P": "1|2|6|8|9",
            "SEX": "1|2", "PINCP": above(50000, 0, 250000), "SOCP": "1191XX|43XXXX|", "NAICSP": "722Z|6111|",
            "SCHL": (1, 24), "WKHP": (1, 99, 0, ""), "FOD2P": "||3600", "OCCP": "0010|4720|", "INDP": "0770|",
            **{f"PWGTP{i}": (1, 200) for i in range(1, 81)},
        },
        zipped, real=True,
    ),
    Real(
        "diabetic", "diabetic_data.csv", "--protected race --label readmitted", "race", "readmitted", ("<30", ">30"),
        {
            "encounter_id": "#2278%05d", "patient_nbr": lambda d: d.rng.integers(8000000, 8000400, len(d.z)),
            "race": "Caucasian|AfricanAmerican|Hispanic|?", "gender": "Female|Male",
            "age": "[40-50)|[50-60)|[70-80)", "weight": "?|?|?|[75-100)", "payer_code": "?|MC|HM",
            "medical_specialty": "?|Cardiology|Family/GeneralPractice", "diag_1": "250.83|V27|E878|428", "diag_2":
            "250.01|V15|?", "diag_3": "255|V27|?", "max_glu_serum": "None|>200|Norm", "A1Cresult": "None|>7|>8|Norm",
            **dict.fromkeys(names_of("diabetic")[24:47], DRUGS), "examide": "No", "citoglipton": "No",
            "change": "Ch|No", "diabetesMed": "Yes|No", "readmitted": "<30|>30|NO",
        },
        rows=1500,
    ),
    Real(
        "heart", "processed.cleveland.data", "--protected 2 --label 14", "2", "14", ("1", "2", "3", "4"),
        {
            "1": (29, 77, 1), "2": "1.0|0.0", "3": "1.0|2.0|3.0|4.0", "4": (94, 200, 1), "5": (126, 564, 1),
            "6": "1.0|0.0", "7": "0.0|1.0|2.0", "8": (71, 202, 1), "9": "0.0|1.0", "10": (0, 6, 1),
            "11": "1.0|2.0|3.0", "12": "0.0|1.0|?", "13": "3.0|7.0|?", "14": "0|1|2|3|4",
        },
        HEADLESS, rows=303,
    ),
    Real(
        "meps", "h181.ssp", "--protected RACETHX --label HIBPDX", "RACETHX", "HIBPDX", ("1",),
        {
            "DUPERSID": "#6000%04d101", "RACETHX": "1|2|3|4|5", "SEX": "1|2", "AGE31X": (-1, 85),
            "HIBPDX": "1|2|-1|-9",
            "PERWT15F": (0, 80000, 6), "POVCAT15": "1|2|3|4|5", "INSCOV15": "1|2|3", "OBTOTV15": (0, 60),
        },
        transport, "-1|-7|-8|-9|1|2|3",
    ),
    Real(
        "communities", "communities.data", "--task regression --protected 8 --bands 8=quartiles --label 128", "8",
        "128", ("0.5",),
        {
            "1": "1|6|42", "2": "?|?|27", "3": "?|?|70000", "4": "#Lakewood%dcity", "5": "1|2|3",
            "8": (0, 1, 2), "31": QUESTIONED, **{str(i): QUESTIONED for i in range(102, 119)},
            "128": above(0.5, 0, 1, 2),
        },
        HEADLESS, (0, 1, 2), knows={"constraint": "covariance[8]"}, repairs=("fair-regression",), real=True,
    ),
    Real(
        "crx", "crx.data", "--protected 1 --label 16", "1", "16", ("+",),
        {
            "1": "b|a|b|?", "2": (13, 80, 2, "?"), "3": (0, 28, 3), "4": "u|y|?", "5": "g|p|gg", "6": "c|q|aa|?",
            "7": "v|h|bb", "8": (0, 28, 3), "9": "t|f", "10": "t|f", "11": (0, 67), "12": "t|f", "13": "g|s|p",
            "14": "00202|00043|?", "15": (0, 100000), "16": "+|-",
        },
        HEADLESS, rows=690,
    ),
    Real(
        "dutch", "dutch_census_2001.arff", "--protected sex --label occupation", "sex", "occupation", ("2_1",),
        {
            "sex": "1|2", "age": (4, 15), "household_position": "1110|1122|1131", "household_size": "111|112|113",
            "country_birth": "1|2|3", "edu_level": (0, 5), "economic_status": "111|112", "cur_eco_activity": "131|138",
            "occupation": "2_1|5_4_9",
        },
        arff, (1, 2), 1000,
    ),
    Real(
        "lending", "LoanStats3d.csv", "--protected home_ownership --label loan_status", "home_ownership", "loan_status",
        ("Fully Paid",),
        {
            "id": "", "member_id": "", "loan_amnt": (1000, 40000), "term": " 36 months| 60 months", "int_rate":
            " 13.56%|  8.19%| 17.97%", "grade": "A|B|C", "sub_grade": "A1|C5", "emp_title": "Teacher|Manager, Sales|",
            "emp_length": "10+ years|< 1 year|n/a", "home_ownership": "RENT|MORTGAGE|OWN", "annual_inc":
            (4000, 200000, 2), "verification_status": "Verified|Source Verified", "issue_d": "%b-%Y", "loan_status":
            "Fully Paid|Charged Off|Late (31-120 days)", "pymnt_plan": "n", "url": "", "desc": "",
            "purpose": "car|house",
            "title": "Car financing|", "zip_code": "940xx|100xx", "addr_state": "CA|NY", "earliest_cr_line": "%b-%Y",
            "revol_util": "30.1%|7.4%|", "initial_list_status": "w|f", "last_pymnt_d": "%b-%Y", "next_pymnt_d": "",
            "last_credit_pull_d": "%b-%Y", "application_type": "Individual|Joint App", "verification_status_joint": "",
            "dti": (0, 40, 2, ""), "sec_app_earliest_cr_line": "", "hardship_flag": "N", "disbursement_method": "Cash",
            "debt_settlement_flag": "N|Y", **dict.fromkeys(names_of("lending")[130:143], ""),
            **dict.fromkeys(names_of("lending")[145:], ""),
        },
        Text(
            quoting=csv.QUOTE_ALL,
            before="Notes offered by Prospectus (https://www.lendingclub.com/info/prospectus.action)\n",
            after="\n\n" + "".join(f'"Total amount funded in policy code {i}: 6417608175"\n' for i in (1, 2)),
        ),
        (0, 90, 0, ""), 800,
    ),
    Real(
        "homecredit", "application_train.csv", "--protected CODE_GENDER", "CODE_GENDER", "TARGET", ("1",),
        {
            "SK_ID_CURR": "#1%05d", "TARGET": "0|1", "NAME_CONTRACT_TYPE": "Cash loans|Revolving loans",
            "CODE_GENDER": "F|F|F|F|F|F|M|M|M|M|M|XNA", "FLAG_OWN_CAR": "N|Y", "FLAG_OWN_REALTY": "N|Y",
            "AMT_CREDIT": (45000, 4050000, 1), "NAME_TYPE_SUITE": "Unaccompanied|Family|",
            "NAME_INCOME_TYPE": "Working",
            "NAME_EDUCATION_TYPE": "Higher education|Secondary / secondary special",
            "NAME_FAMILY_STATUS": "Married|Widow",
            "NAME_HOUSING_TYPE": "House / apartment|Rented apartment", "DAYS_BIRTH": (-25229, -7489), "DAYS_EMPLOYED":
            "365243|-637|-1188", "OCCUPATION_TYPE": "Laborers||Managers",
            "WEEKDAY_APPR_PROCESS_START": "MONDAY|FRIDAY",
            "ORGANIZATION_TYPE": "School|XNA|Business Entity Type 3", "FONDKAPREMONT_MODE": "|reg oper account",
            "HOUSETYPE_MODE": "|block of flats", "WALLSMATERIAL_MODE": "|Panel|Stone, brick",
            "EMERGENCYSTATE_MODE": "|No",
            **{name: (0, 1, 4, "") for name in names_of("homecredit") if name.endswith(("_AVG", "_MEDI"))},
        },
    ),
    Real(
        "nypd", "sqf-2022.csv", "--protected SUSPECT_RACE_DESCRIPTION --label SUSPECT_ARRESTED_FLAG",
        "SUSPECT_RACE_DESCRIPTION", "SUSPECT_ARRESTED_FLAG", ("Y",),
        {
            **{name: "Y|N|(null)" for name in names_of("nypd") if name.endswith("_FLAG")}, "STOP_ID": "#%d",
            "STOP_FRISK_DATE": "%-m/%-d/%Y", "STOP_FRISK_TIME": "0:37:00|23:05:00", "YEAR2": "2022",
            "MONTH2": "May|June",
            "SUSPECT_ARRESTED_FLAG": "Y|N", "SUSPECT_ARREST_OFFENSE": "(null)|CPW – FIREARM|PETIT LARCENY",
            "SUSPECT_REPORTED_AGE": (14, 70, 0, "(null)"), "SUSPECT_SEX": "MALE|FEMALE|(null)", "SUSPECT_HEIGHT":
            "5.10|6.2|(null)", "SUSPECT_WEIGHT": (90, 300, 0, "(null)"), "SUSPECT_RACE_DESCRIPTION":
            "BLACK|WHITE|WHITE HISPANIC|BLACK HISPANIC|(null)",
            "DEMEANOR_OF_PERSON_STOPPED": "NERVOUS|CALM, THEN “ANGRY”",
            "STOP_LOCATION_STREET_NAME": "BROADWAY|PEÑA PLAZA|CAFÉ ST", "STOP_LOCATION_X": (913357, 1067185),
        },
        Text(encoding="cp1252", end="\r\n"), "(null)|M|U",
    ),
    Real(
        "nypd", "sqf-2023.xlsx", "--protected SUSPECT_SEX --label SUSPECT_ARRESTED_FLAG", "SUSPECT_SEX",
        "SUSPECT_ARRESTED_FLAG", ("Y",),
        {
            **{name: "Y|N|(null)" for name in names_of("nypd") if name.endswith("_FLAG")}, "STOP_ID": "#%d",
            "STOP_FRISK_DATE": "%Y-%m-%d", "SUSPECT_ARRESTED_FLAG": "Y|N", "SUSPECT_SEX": "MALE|FEMALE",
            "SUSPECT_REPORTED_AGE": (14, 70, 0, "(null)"), "STOP_LOCATION_X": (913357, 1067185),
        },
        workbook, "(null)|M|U", 300,
    ),
    Real(
        "mimic", "ADMISSIONS.csv.gz", "--protected ETHNICITY --label HOSPITAL_EXPIRE_FLAG", "ETHNICITY",
        "HOSPITAL_EXPIRE_FLAG", ("1",),
        {
            "ROW_ID": "#%d", "SUBJECT_ID": lambda d: d.rng.integers(1, 400, len(d.z)), "HADM_ID": "#1%05d",
            **dict.fromkeys(("ADMITTIME", "DISCHTIME", "EDREGTIME", "EDOUTTIME"), f"{DAY}|"), "DEATHTIME": "",
            "ADMISSION_TYPE": "EMERGENCY|ELECTIVE", "ADMISSION_LOCATION": "EMERGENCY ROOM ADMIT", "DISCHARGE_LOCATION":
            "HOME|SNF|DEAD/EXPIRED", "INSURANCE": "Medicare|Private", "LANGUAGE": "ENGL|SPAN|", "RELIGION":
            "CATHOLIC|NOT SPECIFIED|", "MARITAL_STATUS": "MARRIED|SINGLE|", "ETHNICITY":
            "WHITE|BLACK/AFRICAN AMERICAN|HISPANIC/LATINO - PUERTO RICAN|UNKNOWN/NOT SPECIFIED",
            "DIAGNOSIS": "SEPSIS|CHEST PAIN|S/P FALL, ?BLEED", "HOSPITAL_EXPIRE_FLAG": "0|1",
            "HAS_CHARTEVENTS_DATA": "0|1",
        },
        gzipped, rows=900,
    ),
    Real(
        "oulad", "studentInfo.csv", "--protected disability --label final_result", "disability", "final_result",
        ("Pass", "Distinction"),
        {
            "code_module": "AAA|BBB", "code_presentation": "2013J|2014B", "id_student":
            lambda d: d.rng.integers(11391, 11800, len(d.z)), "gender": "M|F", "region": "Scotland|Wales",
            "highest_education": "HE Qualification|A Level or Equivalent", "imd_band": "0-10%|20-Oct|20-30%|90-100%|",
            "age_band": "0-35|35-55|55<=", "studied_credits": "60|120", "disability": "N|Y", "final_result":
            "Pass|Distinction|Fail|Withdrawn",
        },
        Text(quoting=csv.QUOTE_ALL), rows=900,
    ),
    Real(
        "export", "Bewerbungen.csv", "--protected Geschlecht --label Bewilligt", "Geschlecht", "Bewilligt", ("ja",),
        {
            "Bewerbung_Nr": "#%d", "Geschlecht": "männlich|weiblich", "Straße": "Königsallee 3|Bäckerweg 12",
            "Geburtsjahr": (1950, 2003), "Einkommen": "1.250,50|2.480,00|12.300,75", "Größe": "1,72|1,80|1,65",
            "Abteilung": "Köln|München", "Bewilligt": "ja|nein",
        },
        Text(
            sep=";", encoding="cp1252", end="\r\n", tail=";;;",
            before="sep=;\r\nBewerbungen – Übersicht{pad}\r\nStand: 01.03.2024{pad}\r\n{pad}\r\n",
        ),
    ),
]  # fmt: skip
"""The files, in the order of the issue; some are two."""
