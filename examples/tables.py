"""A table as it is
===================

A table as people have it: text, dates, gaps. AutoRegressor beside gradient boosting, with intervals and importances.

Run it with ``python examples/tables.py``.
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.metrics import r2_score
from sklearn.model_selection import train_test_split

from gyrfalcon import AutoRegressor


def flats(n: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Flats and what they were sold for."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "size": rng.lognormal(4.2, 0.4, n),
            "city": pd.Categorical(rng.choice(["Genova", "Roma", "Torino"], n)),
            "distance": rng.exponential(3.0, n),
            "floor": rng.integers(0, 8, n).astype(float),
            "lift": rng.random(n) < 0.5,
            "sold": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(1500, size=n), unit="D"),
            "agent": [f"agent {number}" for number in rng.integers(60, size=n)],
        }
    )
    city = table["city"].map({"Genova": 0.0, "Roma": 0.5, "Torino": 0.1}).to_numpy(dtype=float)
    stairs = np.where(table["lift"], 0.02, -0.06) * table["floor"]
    years = (table["sold"] - pd.Timestamp("2020-01-01")).dt.days / 365
    logarithm = 7.5 + 0.9 * np.log(table["size"]) + city - 0.15 * table["distance"] ** 0.7 + stairs + 0.05 * years
    price = np.exp(logarithm + 0.1 * rng.standard_normal(n))
    table.loc[rng.random(n) < 0.1, "floor"] = np.nan
    return table, price.to_numpy()


def main() -> None:
    table, price = flats(4_000)
    train, test, price_train, price_test = train_test_split(table, price, random_state=0)
    model = AutoRegressor(time_budget=10, random_state=0).fit(train, price_train)
    low, high = model.predict_interval(test, coverage=0.9).T
    boosted = HistGradientBoostingRegressor(random_state=0, categorical_features=["city"])
    numbers = [part.assign(sold=part["sold"].astype("int64"), agent=0) for part in (train, test)]
    print(f"R2 of AutoRegressor:        {model.score(test, price_test):.4f}")
    trees = boosted.fit(numbers[0], price_train).predict(numbers[1])
    print(f"R2 of boosted trees:        {r2_score(price_test, trees):.4f}")
    print(f"90% intervals hold the price of {np.mean((low <= price_test) & (price_test <= high)):.1%} of the flats")
    print("what matters:", pd.Series(model.feature_importances_, table.columns).round(3).to_dict())
    print("the model with the largest weight:", model.best_estimator_, sep="\n")

    _, panels = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    order = np.argsort(model.feature_importances_)
    panels[0].barh(table.columns[order], model.feature_importances_[order])
    panels[0].set_title("what matters")
    some = np.argsort(price_test)[::20]
    panels[1].vlines(price_test[some], low[some], high[some], alpha=0.5, label="90% intervals")
    panels[1].plot(price_test[some], price_test[some], color="C1", label="the price itself")
    panels[1].set(xlabel="price")
    panels[1].ticklabel_format(style="sci", scilimits=(0, 0))
    panels[1].legend()
    plt.show()


if __name__ == "__main__":
    main()
