"""Forty first guesses of new users: each leads on if it runs, or if its answer has one line that runs when pasted."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import warnings
from contextlib import chdir, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path

import pandas as pd

from tests.real.first_lines import CODE, proposed, ran

SAMPLE = Path(__file__).parents[2] / "sample_data"
CALL = re.compile(r"fairfix\.(?:audit|repair|predict|compare|explore|count)\(.*\)")

ASKED = r"race"
"""What is in the line or the report of nearly every guess that went on as it was meant."""

GUESSES = [
    ("fairfix audit loans.csv", ASKED),
    ("fairfix audit loans.csv --sensitive race", ASKED),
    ("fairfix audit loans.csv --sensitive-features race", ASKED),
    ("fairfix audit loans.csv --protected-attribute race", ASKED),
    ("fairfix audit loans.csv --group race", ASKED),
    ("fairfix audit loans.csv --protected Race", ASKED),
    ("fairfix audit loans.csv race", ASKED),
    ("fairfix loans.csv --protected race", ASKED),
    ("fairfix audit loans.xlsx --protected race", ASKED),
    ("fairfix audit loans.jsonl --protected race", ASKED),
    ("fairfix audit loans.zip --protected race", ASKED),
    ("fairfix audit loans.duckdb --protected race", ASKED),
    ("fairfix audit df.pkl --protected race", ASKED),
    ("cat loans.csv | fairfix audit - --protected race", ASKED),
    ("fairfix audit --protected race < loans.csv", ASKED),
    ("fairfix audit words.csv --protected race --label class=good", "good"),
    ("fairfix audit words.csv --protected race --label class --pos-label good", "good"),
    ("fairfix audit words.csv --protected race --label class --positive-label Good", "good"),
    ("fairfix audit words.csv --protected age --label class", r"age.*(good|bad)"),
    ("fairfix audit loans.csv --protected race --target label --y-pred score", ASKED),
    ("fairfix audit loans.csv --protected race --check 'dp<=0.1'", "dp|demographic"),
    ("fairfix audit loans.csv --protected race --check 'dp.difference <= 0.1'", "dp|demographic"),
    ("fairfix audit loans.csv --protected race --check 'dp.difference<=0.1'", "dp|demographic"),
    ("fairfix audit loans.csv --protected race --check 'demographic_parity_difference<=0.1'", "0.1"),
    ("fairfix audit loans.csv --protected race --metrics equalized_odds", "odds"),
    ("fairfix audit loans.csv --protected race -o report.html", r"report\.html"),
    ("fairfix audit loans.csv --protected race --where \"sex=='female'\"", "female"),
    ("fairfix repair loans.csv --protected race", ASKED),
    ("fairfix repair loans.csv --method threshold-optimizer --protected race", ASKED),
    ("fairfix repair loans.csv --method ramp --protected race --constraint dp", ASKED),
    ("fairfix fix loans.csv --protected race", ASKED),
    ("fairfix audit model.pkl loans.csv --protected race", r"model\.pkl"),
    ("fairfix audit loans.csv --model model.pkl --protected race", r"model\.pkl"),
    ("fairfix.audit(df, 'sex')", ""),
    ("fairfix.audit(df, sensitive_features='sex')", ""),
    ("fairfix.audit(df, protected='Sex')", ""),
    ("fairfix.audit(X, model=clf, protected='sex', label=y)", ""),
    ("fairfix.audit(y, df['score'], sensitive_features=df['sex'])", ""),
    ("fairfix.repair(df, protected='sex')", ""),
    ("fairfix.audit(polars_frame, protected='sex')", ""),
]
"""What is typed, and a pattern of what a line or its report has if it does what was meant."""


PREAMBLE = """
import fairfix, pandas as pd, polars
from sklearn.tree import DecisionTreeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.compose import make_column_transformer
df = pd.read_csv('loans.csv')
X, y = df[['sex', 'loan_amount', 'employment_years']], df['label']
shaped = make_column_transformer((OneHotEncoder(), ['sex']), remainder='passthrough')
clf = make_pipeline(shaped, DecisionTreeClassifier(max_depth=3)).fit(X, y)
polars_frame = polars.from_pandas(df)
"""


def files(folder: Path) -> None:
    """Write what the guesses name."""
    import duckdb
    import joblib

    data = pd.read_csv(SAMPLE / "loans.csv")
    shutil.copy(SAMPLE / "loans.csv", folder / "loans.csv")
    data.to_excel(folder / "loans.xlsx", index=False)
    data.to_json(folder / "loans.jsonl", orient="records", lines=True)
    data.to_csv(folder / "loans.zip", index=False)
    data.to_pickle(folder / "df.pkl")
    with duckdb.connect(folder / "loans.duckdb") as base:
        base.register("rows", data)
        base.execute("CREATE TABLE loans AS FROM rows")
    words = data["label"].map({1: "good", 0: "bad"})
    age = data.index.to_series() % 60 + 20
    data.drop(columns=["label", "age_band"]).assign(age=age, **{"class": words}).to_csv(
        folder / "words.csv", index=False
    )
    with chdir(folder):
        joblib.dump(scope()["clf"], folder / "model.pkl")


@cache
def scope() -> dict[str, object]:
    """Return what the person's notebook has defined; the working folder has ``loans.csv``."""
    defined: dict[str, object] = {}
    exec(PREAMBLE, defined)  # noqa: S102  ours
    return defined


def tried(line: str) -> tuple[bool, str, str]:
    """Run a line of the shell or of Python; return whether it made a report, what it printed and what it said."""
    if not line.startswith("fairfix."):
        by_shell = line.startswith("python") or re.search(r"\| fairfix|< \S+$", line)
        if by_shell:
            path = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
            done = subprocess.run(
                ["bash", "-c", line], env=os.environ | path, capture_output=True, text=True, timeout=60, check=False
            )  # fmt: skip
            status, out, err = done.returncode, done.stdout, done.stderr
        else:
            status, out, err = ran(line)
        return status in (0, 1, 3) and bool(out.strip() or by_shell or "report.html" in line), out, err
    out_of, err_of = io.StringIO(), io.StringIO()
    with redirect_stdout(out_of), redirect_stderr(err_of), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exec(line, dict(scope()))  # noqa: S102  a guess of ours, or what fairfix proposes
        except Exception as error:  # a person sees any of them
            return False, "", f"{type(error).__name__}: {error}"
    return True, out_of.getvalue(), err_of.getvalue()


def lines_in(line: str, said: str) -> list[str]:
    """Return what an answer proposes to a line; calls with the name of the person's own data in them."""
    if not line.startswith("fairfix."):
        return proposed(CODE.sub("", said))
    data = line.partition("(")[2].partition(",")[0]
    return [re.sub(r"\(data\b", f"({data}", call) for call in CALL.findall(said) if "..." not in call]


def leads_on(line: str, means: str) -> bool:
    """Return whether a guess in the working folder, or a line that its answer proposes, does what is meant."""
    runs, out, said = tried(line)
    if runs and re.search(means, f"{line}\n{out}"):
        return True
    for pasted in dict.fromkeys(lines_in(line, said)[:3]):
        runs, out, _ = tried(pasted)
        if runs and re.search(means, f"{pasted}\n{out}"):
            return True
    return False
