"""Text as sparse rows
===================

Predict ratings from n-grams of text: four million sparse columns, which are
never converted to dense ones.

Run it with ``python examples/sparse_text.py [reviews]``.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import Ridge

from gyrfalcon import FalkonRegressor
from gyrfalcon.kernels import Gaussian

n = int(sys.argv[1]) if len(sys.argv) > 1 else 2_400

# %%
# Reviews of a dozen words. "not" reverses the next opinion, so that phrases
# contain more information than single words.

rng = np.random.default_rng(0)
opinions = {"good": 1.0, "lovely": 2.0, "bad": -1.0, "dreadful": -2.0}
words = [f"word{i}" for i in range(2_000)]
reviews, ratings = [], []
for _ in range(n):
    text, rating = list(rng.choice(words, 8)), 0.0
    for opinion in rng.choice(list(opinions), 3):
        negated = rng.random() < 0.5
        text.insert(
            rng.integers(len(text) + 1),
            f"not {opinion}" if negated else opinion,
        )
        rating += -opinions[opinion] if negated else opinions[opinion]
    reviews.append(" ".join(text))
    ratings.append(rating)
y = np.array(ratings)

# %%
# Words, pairs and triples are hashed to 2^22 columns. No vocabulary is fitted,
# so texts can be processed in parts.

X = HashingVectorizer(
    ngram_range=(1, 3), n_features=2**22, dtype=np.float32
).transform(reviews)
train, test = slice(0, 2 * n // 3), slice(2 * n // 3, n)
print(
    f"{X.shape[0]:,} x {X.shape[1]:,}, {X.nnz / X.shape[0]:.0f} numbers a row"
)


def error(model):
    return np.sqrt(np.mean((model.predict(X[test]) - y[test]) ** 2))


model = FalkonRegressor(
    Gaussian(2.0), n_centers=800, penalty=1e-6, random_state=0
).fit(X[train], y[train])
ridge = Ridge(alpha=0.1, solver="sparse_cg", fit_intercept=False).fit(
    X[train], y[train]
)
print(
    f"ratings deviate by {y.std():.2f}; test error {error(model):.2f}, of "
    f"scikit-learn's Ridge {error(ridge):.2f}"
)
print(
    f"the model is {model.centers_.nnz:,} numbers in "
    f"{model.centers_.shape[0]:,} sparse centers, and their weights"
)

# %%
# Predicted ratings for each true rating.

levels = np.unique(y[test])
figure, axes = plt.subplots(
    1, 2, figsize=(9, 4), sharey=True, layout="constrained"
)
for ax, (name, fitted) in zip(
    axes, {"FalkonRegressor": model, "Ridge": ridge}.items(), strict=True
):
    predicted = fitted.predict(X[test])
    ax.boxplot(
        [predicted[y[test] == level] for level in levels],
        tick_labels=[f"{level:.0f}" for level in levels],
    )
    ax.set(title=f"{name}: error {error(fitted):.2f}", xlabel="rating")
axes[0].set_ylabel("prediction")
plt.show()
