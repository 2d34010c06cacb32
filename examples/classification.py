"""Rare classes and thresholds
===========================

Classify rows with string labels, of which one is rare. Class weights move the
decision threshold.

Run it with ``python examples/classification.py [rows]``.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from sklearn.model_selection import train_test_split

from gyrfalcon import FalkonClassifier

rows = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
random = np.random.default_rng(0)
X = random.standard_normal((rows, 4)).astype(np.float32)
# a shell in four dimensions: no hyperplane separates it
radius = np.linalg.norm(X, axis=1) + 0.1 * random.standard_normal(rows)
y = np.where(radius > 3.0, "outside", "inside")
X_train, X_test, y_train, y_test = train_test_split(
    X, y, stratify=y, random_state=0
)
print(f"{np.mean(y == 'outside'):.1%} of the rows are outside")

# %%
# With balanced weights, more rows of the rare class are recognised.

for class_weight in (None, "balanced"):
    model = FalkonClassifier(
        n_centers=300, class_weight=class_weight, random_state=0
    ).fit(X_train, y_train)
    values = model.decision_function(X_test)  # positive: classes_[1]
    accuracy = balanced_accuracy_score(y_test, model.predict(X_test))
    area = roc_auc_score(y_test == model.classes_[1], values)
    print(
        f"class_weight={class_weight}: balanced accuracy {accuracy:.3f}, "
        f"area under the ROC curve {area:.3f}"
    )

# %%
# The border between the classes along the first two features, with the others
# at 0. The true border is a circle of radius 3 (dashed).

grid = np.stack(
    np.meshgrid(np.linspace(-4, 4, 80), np.linspace(-4, 4, 80)), axis=-1
).reshape(-1, 2)
values = model.decision_function(
    np.c_[grid, np.zeros_like(grid)].astype(np.float32)
).reshape(80, 80)
figure, panel = plt.subplots(figsize=(5, 4.3), layout="constrained")
shown = panel.contourf(
    np.linspace(-4, 4, 80),
    np.linspace(-4, 4, 80),
    values,
    levels=15,
    cmap="coolwarm",
)
panel.contour(
    np.linspace(-4, 4, 80),
    np.linspace(-4, 4, 80),
    values,
    levels=[0],
    colors="black",
)
panel.add_patch(plt.Circle((0, 0), 3.0, fill=False, linestyle="--"))
panel.set(title="the border, and the truth (dashed)", aspect="equal")
figure.colorbar(shown, label="positive: outside")
plt.show()
