# %% [markdown]
# # Audit of a census file
#
# The Adult data: people of the US census of 1994, with whether they earned more than 50,000 dollars. A model is fitted to a
# half, scores the other half, and is audited by sex and race. No model is meant to be used here: the page shows how an audit
# is read.

# %%
import os
from pathlib import Path

import fairfix
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import train_test_split

adult = pd.read_parquet(Path(os.environ.get("PUBLIC_DATA", "../shared/data")) / "adult.parquet")
numbers = ["age", "education_num", "capital_gain", "capital_loss", "hours_per_week"]
fit, rest = train_test_split(adult, test_size=0.5, random_state=0)
model = HistGradientBoostingClassifier(random_state=0, max_iter=60).fit(fit[numbers], fit.income)
people = rest[["sex", "race", "income"]].assign(score=model.predict_proba(rest[numbers])[:, 1])
people.head()

# %% [markdown]
# The whole report is the result itself. `protected` names the columns whose groups are compared, `check` the limits.

# %%
audit = fairfix.audit(
    people,
    protected=["sex", "race"],
    label="income",
    check=["dp.difference<=0.1", "true_positive_rate.difference<=0.1"],
)
audit

# %% [markdown]
# Groups with their 95 % intervals, which hold for all groups at once. The smaller a group, the wider its interval: a limit
# inside of it leaves a check undecided, which is no pass.

# %%
audit.plot()

# %%
audit.to_frame("checks")[["check", "attribute", "verdict", "value", "low", "high", "groups"]]

# %% [markdown]
# Neither race nor sex is a feature of the model. Its scores differ all the same, because what they are made of differs.
# Fewer women than men have the label 1, so equal selection and equal true positive rates are two different demands;
# the base rates say how far apart these are.

# %%
rates = audit.to_frame().query(
    "attribute == 'sex' and metric in ['base_rate', 'selection_rate', 'true_positive_rate']"
)
rates.pivot(index="metric", columns="group", values="value").round(3)

# %% [markdown]
# A metric of one's own: a missed high earner costs three times a wrong one.

# %%
cost = {"cost": lambda c: (3 * c.false_negatives + c.false_positives) / c.rows}
own = fairfix.audit(people, protected="sex", label="income", metrics=cost)
own.to_frame().query("metric == 'cost'")[["group", "value", "low", "high", "rows"]]
