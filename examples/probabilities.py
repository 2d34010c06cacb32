"""Probabilities of classes
========================

Compare the probabilities of the logistic loss with calibrated ones of the
squared loss, for several classes.

Run it with ``python examples/probabilities.py [rows]``.
"""

import sys
import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.calibration import CalibratedClassifierCV, calibration_curve
from sklearn.datasets import make_classification
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from gyrfalcon import FalkonClassifier

rows = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
X, y = make_classification(
    rows,
    n_features=10,
    n_informative=6,
    n_classes=4,
    class_sep=1.0,
    flip_y=0.1,
    random_state=0,
)
X_train, X_test, y_train, y_test = train_test_split(
    X.astype(np.float32), y, random_state=0
)

common = {"n_centers": 500, "penalty": 1e-5, "random_state": 0}
models = {
    "logistic, multinomial": FalkonClassifier(loss="logistic", **common),
    "logistic, one against the rest": FalkonClassifier(
        loss="logistic", multi_class="ovr", **common
    ),
    "squared, calibrated": CalibratedClassifierCV(
        FalkonClassifier(**common), cv=3
    ),
}
for name, model in models.items():
    start = time.perf_counter()
    model.fit(X_train, y_train)
    seconds = time.perf_counter() - start
    p = model.predict_proba(X_test)
    right, sure = p.argmax(axis=1) == y_test, p.max(axis=1)
    print(
        f"{name}: log-loss {log_loss(y_test, p):.3f}, wrong "
        f"{1 - right.mean():.1%}, {seconds:.1f} s"
    )
    for low in (0.5, 0.8, 0.95):
        these = (sure > low) & (sure <= {0.5: 0.8, 0.8: 0.95, 0.95: 1.0}[low])
        if these.any():
            print(
                f"  said {sure[these].mean():.2f} on {these.sum()} rows, and "
                f"was right on {right[these].mean():.2f}"
            )

print("\nNewton's method, step by step:")
for record in models["logistic, multinomial"].history_:
    print(
        f"  penalty {record['penalty']:.1e}, {record['cg_steps']} steps of "
        "CG, "
        f"objective {record['objective']:.4f}, decrement "
        f"{record['decrement']:.1e}"
    )

# %%
# Of the rows with a probability of 70%, 70% should belong to the class. A good
# curve is close to the diagonal.

figure, panel = plt.subplots(figsize=(5, 4.5), layout="constrained")
panel.axline((0, 0), slope=1, color="grey", linestyle="--")
for name, model in models.items():
    happened, promised = calibration_curve(
        y_test == 0, model.predict_proba(X_test)[:, 0], n_bins=8
    )
    panel.plot(promised, happened, marker="o", label=name)
panel.set(
    xlabel="probability of the first class", ylabel="share of rows in it"
)
panel.legend()
plt.show()
