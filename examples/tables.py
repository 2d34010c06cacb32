"""A table as it is
================

Fit `AutoRegressor` to a table with text, dates and missing values, and compare
it with gradient-boosted trees. Then compute intervals and the importance of
each column.

Run it with ``python examples/tables.py``.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.metrics import r2_score
from sklearn.model_selection import train_test_split

from gyrfalcon import AutoRegressor

# %%
# The table contains 4,000 flats that were sold. The city is a category, the
# agent is text, and a tenth of the floors is missing.

n = 4_000
rng = np.random.default_rng(0)
cities = ["Genova", "Roma", "Torino"]
days = rng.integers(1500, size=n)
table = pd.DataFrame(
    {
        "size": rng.lognormal(4.2, 0.4, n),
        "city": pd.Categorical(rng.choice(cities, n)),
        "distance": rng.exponential(3.0, n),
        "floor": rng.integers(0, 8, n).astype(float),
        "lift": rng.random(n) < 0.5,
        "sold": pd.Timestamp("2020-01-01") + pd.to_timedelta(days, unit="D"),
        "agent": [f"agent {number}" for number in rng.integers(60, size=n)],
    }
)
location = table["city"].map(dict(zip(cities, [0.0, 0.5, 0.1], strict=True)))
logarithm = (
    7.5
    + 0.9 * np.log(table["size"])
    + location.to_numpy(dtype=float)
    - 0.15 * table["distance"] ** 0.7
    + np.where(table["lift"], 0.02, -0.06) * table["floor"]
    + 0.05 * days / 365
)
price = np.exp(logarithm + 0.1 * rng.standard_normal(n)).to_numpy()
table.loc[rng.random(n) < 0.1, "floor"] = np.nan
train, test, price_train, price_test = train_test_split(
    table, price, random_state=0
)
print(table.head())

# %%
# `AutoRegressor` accepts the table as it is.

model = AutoRegressor(time_budget=10, random_state=0).fit(train, price_train)
print(f"R2 of AutoRegressor: {model.score(test, price_test):.4f}")

# %%
# For boosted trees, dates are converted to numbers, and the agents are left
# out, which have no effect on the price.

numbers = [
    part.assign(sold=part["sold"].astype("int64")).drop(columns="agent")
    for part in (train, test)
]
boosted = HistGradientBoostingRegressor(
    random_state=0, categorical_features=["city"]
).fit(numbers[0], price_train)
trees = r2_score(price_test, boosted.predict(numbers[1]))
print(f"R2 of boosted trees: {trees:.4f}")

# %%
# Intervals should contain the price of 90% of the new flats.

low, high = model.predict_interval(test, coverage=0.9).T
inside = np.mean((low <= price_test) & (price_test <= high))
print(f"90% intervals contain the price of {inside:.1%} of the flats")

# %%
# The importance of a column is the increase of the error if its values are
# shuffled.

importances = pd.Series(model.feature_importances_, table.columns)
print(importances.sort_values(ascending=False).round(3))

# %%
# The model with the largest weight is a pipeline of public classes.

print(model.best_estimator_)

# %%
# The importances, and intervals for some of the new flats.

_, panels = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
importances.sort_values().plot.barh(ax=panels[0], title="importance")
some = np.argsort(price_test)[::20]
panels[1].vlines(
    price_test[some], low[some], high[some], alpha=0.5, label="90% intervals"
)
panels[1].plot(price_test[some], price_test[some], color="C1", label="price")
panels[1].set(xlabel="price")
panels[1].ticklabel_format(style="sci", scilimits=(0, 0))
panels[1].legend()
plt.show()
