"""Which columns a prediction is due to
====================================

Shapley values attribute a prediction to the columns of its row. For a sum of
Gaussian kernels they are computed exactly, without sampling permutations. The
values of a row add up to the prediction minus the mean prediction of the
background.
"""

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from gyrfalcon import FalkonRegressor, shapley_values
from gyrfalcon.plots import ShapleyDisplay

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
model = FalkonRegressor("gaussian", penalty="auto", random_state=0).fit(
    X_train, y_train
)
print(f"R2 on test rows: {model.score(X_test, y_test):.2f}")

# %%
# The values of all test rows, and their mean size for each column.

why = shapley_values(model, X_test, background=X_train[:100])
sums = why.values.sum(axis=1) + why.base_values
print(
    f"exact: {why.exact}; largest difference from the predictions: "
    f"{np.abs(sums - model.predict(X_test)).max():.1e}"
)
for name, size in sorted(
    zip(why.feature_names, np.abs(why.values).mean(axis=0), strict=True),
    key=lambda one: -one[1],
):
    print(f"{name:>4} {size:6.2f}")

# %%
# Plots of all rows, and of the row with the highest prediction.

ShapleyDisplay(explanation=why).plot()
highest = int(np.argmax(model.predict(X_test)))
ShapleyDisplay(explanation=why, kind="waterfall", row=highest).plot()
