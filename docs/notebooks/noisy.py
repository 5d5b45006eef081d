# %% [markdown]
# # Groups that are recorded wrongly
#
# Credit card clients of a bank in Taiwan. Suppose that education were known from a form that some fill in carelessly: 15 % of
# the clients are recorded in another group than their own. An audit by the recorded groups can hide a difference or make one.
# What can be said of the true groups?

# %%
import os
from pathlib import Path

import fairfix
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import train_test_split

clients = pd.read_parquet(Path(os.environ.get("PUBLIC_DATA", "../shared/data")) / "credit_default.parquet")
clients = clients.assign(repaid=1 - clients.default)
names = {1: "graduate school", 2: "university"}
clients["true_group"] = clients.EDUCATION.map(names).fillna("school or other")
features = ["LIMIT_BAL", "PAY_0", "PAY_2", "PAY_3", "BILL_AMT1", "PAY_AMT1"]
fit, rest = train_test_split(clients, test_size=0.5, random_state=0)
model = HistGradientBoostingClassifier(random_state=0, max_iter=40).fit(fit[features], fit.repaid)
scored = rest[["true_group", "repaid"]].assign(score=model.predict_proba(rest[features])[:, 1])

# %% [markdown]
# The noise is ours, so that the truth is known: it depends on nothing but the true group.

# %%
rng = np.random.default_rng(0)
groups = sorted(scored.true_group.unique())
wrong = rng.random(len(scored)) < 0.15
other = [rng.choice([name for name in groups if name != mine]) for mine in scored.true_group]
scored["recorded"] = np.where(wrong, other, scored.true_group)

# %% [markdown]
# A table of how groups are recorded, as a survey of a few clients would give it:

# %%
survey = (
    scored.sample(3000, random_state=1)
    .groupby(["true_group", "recorded"])
    .size()
    .rename("count")
    .reset_index()
)
survey = survey.rename(columns={"true_group": "true", "recorded": "noisy"})
survey

# %%
audit = fairfix.audit(
    scored.drop(columns="true_group"),
    protected="recorded",
    label="repaid",
    threshold=0.8,
    noise=survey,
    assume="class-conditional",
)
audit

# %% [markdown]
# Every bound rests on an assumption, from N1 (the table alone) to N4 (noise has nothing to do with outcomes). Stronger
# assumptions give narrower bounds, and only the user can say which of them is true.

# %%
bounds = audit.to_frame("true_groups").query("group == '' and number == 'selection_rate.difference'")
bounds[["number", "assumption", "low", "high"]].round(3)

# %% [markdown]
# Here the truth can be looked at. It lies inside.

# %%
truth = fairfix.audit(scored, protected="true_group", label="repaid", threshold=0.8)
gap = (
    truth.to_frame("comparisons")
    .query("comparison == 'selection_rate.difference.between_groups'")
    .value.item()
)
assert ((bounds.low <= gap) & (gap <= bounds.high)).all()
round(gap, 3)
