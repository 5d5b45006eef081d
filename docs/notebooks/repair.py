# %% [markdown]
# # A repair and its proof
#
# Students of US law schools, with whether they passed the bar examination at the first attempt. A score from grades and the
# admission test is repaired so that it selects equally by race, and the repair is proven on rows that it has not seen.

# %%
import os
from pathlib import Path

import fairfix
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

students = pd.read_parquet(Path(os.environ.get("PUBLIC_DATA", "../shared/data")) / "lawschool.parquet")
students = students.assign(
    race=students.white.map({0: "not White", 1: "White"}), student=range(len(students))
)
fit, rest = train_test_split(students, test_size=0.6, random_state=0)
model = LogisticRegression(max_iter=1000).fit(fit[["lsat", "ugpa"]], fit.pass_bar)
scored = rest[["student", "race", "pass_bar"]].assign(score=model.predict_proba(rest[["lsat", "ugpa"]])[:, 1])

# %% [markdown]
# At a threshold of 0.9 the difference is large:

# %%
before = fairfix.audit(scored, protected="race", label="pass_bar", threshold=0.9)
before.to_frame().query("metric == 'selection_rate'")[["group", "value", "low", "high", "rows"]]

# %% [markdown]
# The ramp moves the threshold of each group, and near it lets a draw decide, which belongs to the student and not to the order
# of the rows.

# %%
repair = fairfix.repair(
    scored, protected="race", label="pass_bar", threshold=0.9, method="ramp", slack=0.02, id="student"
)
repair

# %% [markdown]
# Before and after on held-out rows. What the repair costs in accuracy stands beside what it gains.

# %%
repair.plot()

# %%
proof = repair.to_frame().query("rows == 'holdout'")
proof[["number", "before_value", "after_value", "change_low", "change_high"]].round(3)

# %% [markdown]
# The repaired predictor decides on a row as a service has it.

# %%
repair.repaired.predict({"student": 1_000_001, "race": "not White", "score": 0.88})

# %% [markdown]
# How much accuracy does each slack cost? Every method beside its slacks, on one split:

# %%
comparison = fairfix.compare(
    scored, protected="race", label="pass_bar", threshold=0.9, methods=["ramp"], slacks=[0.0, 0.02, 0.05, 0.1]
)
comparison.plot()
