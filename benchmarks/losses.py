"""The bars of the logistic loss, printed by one command: python benchmarks/losses.py --data DIR

a9a (two classes) and MNIST (ten): passes over the rows, time beside the squared-loss fit of the same size; log-loss,
AUC and calibration beside scikit-learn's Nystroem + LogisticRegression (as it comes: at most 100 iterations) with the
same kernel, as many centers and the same penalty, lambda = 1e-6 and what the peer's default C = 1 stands for, 1 / n.
First, on a part of a9a, agreement with a dense solve in float64. Last, hard negatives: one digit against all others, a
growing set of negatives that the model gets wrong beside negatives drawn uniformly, at the same time budget. The data
are a9a.npz and mnist.npz in DIR. `--only a9a` runs one section, `--quick` a tenth of the rows.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _common import table
from scipy.sparse import csr_matrix
from scipy.special import logsumexp, softmax
from sklearn.decomposition import PCA
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, log_loss, roc_auc_score
from sklearn.pipeline import make_pipeline

import gyrfalcon
from gyrfalcon import FalkonClassifier
from gyrfalcon.kernels import Gaussian

ROOT = Path(__file__).resolve().parents[1]
PENALTY = 1e-6
EQUAL = 5e-4  # less than another draw of the centers changes
Data = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def load(folder: Path, name: str, quick: bool) -> Data:
    """Rows for training and for testing, in float32."""
    with np.load(folder / f"{name}.npz") as file:
        parts = dict(file)
    X, X_test = (rows(parts, key) for key in ("X", "X_test"))
    n = len(X) // 10 if quick else len(X)
    return X[:n], parts["y"][:n], X_test, parts["y_test"]


def rows(parts: dict[str, np.ndarray], key: str) -> np.ndarray:
    """Pixels between 0 and 1, or a dense array of the parts of a sparse one."""
    if key in parts:
        return parts[key].astype(np.float32) / 255
    sparse = csr_matrix((parts[f"{key}_data"], parts[f"{key}_indices"], parts[f"{key}_indptr"]), parts[f"{key}_shape"])
    return sparse.toarray().astype(np.float32)


def calibration_error(y: np.ndarray, p: np.ndarray, bins: int = 15) -> float:
    """ECE: the distance of confidence in a prediction from how often it is right, mean over bins of confidence."""
    confidence, right = p.max(axis=1), p.argmax(axis=1) == y
    at = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = [abs((confidence[at == b] - right[at == b]).sum()) for b in range(bins)]
    return float(sum(gaps) / len(y))


def auc(y: np.ndarray, p: np.ndarray) -> float:
    """Area under the ROC curve; of each class against the rest, their mean, if there are more than two."""
    return float(roc_auc_score(y, p[:, 1] if p.shape[1] == 2 else p, multi_class="ovr"))


def classifier(width: float, penalty: float, **params: Any) -> FalkonClassifier:
    """Widths are in the units that `load` gives the features."""
    given = {"scale": False, "fit_intercept": True, "preconditioner": "falkon", "random_state": 0}
    return FalkonClassifier(Gaussian(width), penalty=penalty, **(given | params))


def timed(fit: Callable[[], Any], rounds: int) -> tuple[Any, float]:
    best, model = float("inf"), None
    for _ in range(rounds):
        start = time.perf_counter()
        model = fit()
        best = min(best, time.perf_counter() - start)
    return model, best


def compare(name: str, M: int, width: float, most_passes: int, folder: Path, quick: bool) -> None:
    X, y, X_test, y_test = load(folder, name, quick)
    n, M = len(X), M // 4 if quick else M
    classes, codes = np.unique(y_test, return_inverse=True)

    def falkon(penalty: float, **params: Any) -> Callable[[], Any]:
        model = classifier(width, penalty, n_centers=M, **params)
        return lambda: model.fit(X, y)

    def peer(penalty: float) -> Callable[[], Any]:
        features = Nystroem(gamma=0.5 / width**2, n_components=M, random_state=0)
        model = make_pipeline(features, LogisticRegression(C=1 / (penalty * n)))
        return lambda: model.fit(X, y)

    contenders = {"squared loss, 1e-6": (falkon(PENALTY), 2)}
    for label, penalty in {"1e-6": PENALTY, "1/n": 1 / n}.items():
        contenders[f"logistic, {label}"] = (falkon(penalty, loss="logistic"), 2)
        if len(classes) > 2:
            contenders[f"one-vs-rest, {label}"] = (falkon(penalty, loss="logistic", multi_class="ovr"), 1)
        contenders[f"peer, {label}"] = (peer(penalty), 1)
    wall, passes, scores, rows = {}, {}, {}, []
    for label, (fit, rounds) in contenders.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the peer's iterations end before it has converged
            model, wall[label] = timed(fit, rounds)
        passes[label] = model.history_[-1]["passes"] if hasattr(model, "history_") else ""
        if hasattr(model, "predict_proba"):
            p = model.predict_proba(X_test)
            scores[label] = (log_loss(codes, p), auc(codes, p), calibration_error(codes, p))
        wrong = f"{100 * np.mean(model.predict(X_test) != y_test):.2f}%"
        numbers = [f"{value:.4f}" for value in scores.get(label, ())] or ["", "", ""]
        rows.append([label, f"{wall[label]:.1f}", passes[label], *numbers, wrong])
    title = f"{name}: n = {n:,}, M = {M:,}, Gaussian({width:g}), float32"
    table(title, ["loss, penalty", "seconds", "passes", "log-loss", "AUC", "ECE", "wrong"], rows)

    count, ratio = passes["logistic, 1e-6"], wall["logistic, 1e-6"] / wall["squared loss, 1e-6"]
    bars: list[list[Any]] = [
        ["passes, 1e-6", count, f"<= {most_passes}", count <= most_passes],
        ["time / squared loss, 1e-6", ratio, "<= 6", ratio <= 6],
    ]
    for label in ("1e-6", "1/n"):
        ours, theirs = f"logistic, {label}", f"peer, {label}"
        faster = wall[theirs] / wall[ours]
        bars.append([f"times faster than {theirs}", faster, ">= 4", faster >= 4])
        for i, what in enumerate(("log-loss", "AUC")):
            worse = (scores[ours][i] - scores[theirs][i]) * (1 if i == 0 else -1)
            bars.append([f"{what} beside {theirs}", f"{-worse:+.4f} better", ">= -0.0005", worse <= EQUAL])
    table(f"{name}: bars", ["what", "value", "bar", "met"], bars)


def agreement(folder: Path, quick: bool) -> None:
    """The fit beside Newton's method on a dense Hessian in float64, on a part of a9a (two classes, and four)."""
    X, y, _, _ = load(folder, "a9a", quick)
    X, y = X[:3_000].astype(np.float64), (y[:3_000] > 0).astype(int)
    # a second label, by the feature that splits most evenly, and wrong for one row in five
    second = X[:, np.argmin(np.abs(X.mean(axis=0) - 0.5))] > 0
    four = y + 2 * (second ^ (np.random.default_rng(0).random(len(X)) < 0.2))
    rows = []
    for k, target in ((2, y), (4, four)):
        for penalty in (1e-3, 1e-6, 1e-9):
            passes, ours, best = beside_dense(X, target, 5.0, 300, penalty)
            difference = abs(ours - best)
            rows.append([k, penalty, passes, ours, difference, "<= 1e-6", difference <= 1e-6])
    table(
        "part of a9a, n = 3,000, M = 300, float64: beside a dense solve",
        ["classes", "penalty", "passes", "log-loss", "difference", "bar", "met"],
        rows,
    )


def beside_dense(X: np.ndarray, y: np.ndarray, width: float, M: int, penalty: float) -> tuple[float, float, float]:
    """Passes and log-loss of a fit without an intercept, and the log-loss of a dense solve with the same centers."""
    model = classifier(
        width, penalty, loss="logistic", n_centers=M, fit_intercept=False, tol=1e-13, max_iter=100
    ).fit(X, y)  # fmt: skip
    kernel, C = Gaussian(width), model.centers_
    values, vectors = np.linalg.eigh(kernel(C, C))
    F = kernel(X, C) @ vectors / np.sqrt(np.maximum(values, 1e-13 * values[-1]))  # of orthonormal functions
    best = dense_newton(F, y, len(model.classes_), penalty)
    return model.history_[-1]["passes"], float(log_loss(y, model.predict_proba(X))), best


def dense_newton(F: np.ndarray, y: np.ndarray, k: int, penalty: float) -> float:
    """The log-loss of the least of mean log-loss + penalty / 2 |beta|^2; as softmax, two classes as +f/2 and -f/2."""
    n, r = F.shape
    c = 1 if k == 2 else k
    beta, Y = np.zeros((r, c)), np.eye(k)[y]

    def spread(f: np.ndarray) -> np.ndarray:
        return np.hstack([-f / 2, f / 2]) if k == 2 else f

    def objective(beta: np.ndarray) -> float:
        f = spread(F @ beta)
        return float((logsumexp(f, axis=1) - (Y * f).sum(axis=1)).mean() + penalty / 2 * np.square(beta).sum())

    for mu in [*10.0 ** np.arange(-1, np.log10(penalty), -1), *[penalty] * 30]:
        p = softmax(spread(F @ beta), axis=1)
        residual = (p - Y)[:, 1:] if k == 2 else p - Y
        g = F.T @ residual / n + mu * beta
        H = np.empty((c, r, c, r))
        for i in range(c):
            for j in range(c):
                w = p[:, 0] * p[:, 1] if k == 2 else p[:, i] * ((i == j) - p[:, j])
                H[i, :, j] = F.T @ (w[:, None] * F) / n
        H = H.reshape(c * r, c * r)
        H.flat[:: c * r + 1] += mu
        d = np.linalg.solve(H, -g.T.ravel()).reshape(c, r).T
        t = 1.0
        while mu == penalty and t > 1e-3 and objective(beta + t * d) > objective(beta):
            t /= 2
        beta = beta + t * d
    return float(log_loss(y, softmax(spread(F @ beta), axis=1)))


def hard_negatives(folder: Path, quick: bool) -> None:
    """The digit 8 among digits shifted by up to a pixel: 4,000 positives and half a million negatives."""
    X, y, X_test, y_test = load(folder, "mnist", quick)
    pca = PCA(50, random_state=0).fit(X[:10_000])

    def shifted(X: np.ndarray) -> np.ndarray:
        images = X.reshape(-1, 28, 28)
        moves = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
        return np.concatenate([pca.transform(np.roll(images, m, (1, 2)).reshape(X.shape)) for m in moves])

    X, y, X_test, y_test = shifted(X), np.tile(y, 9) == 8, shifted(X_test), np.tile(y_test, 9) == 8
    rng = np.random.default_rng(0)
    positives, negatives = rng.permutation(np.flatnonzero(y))[:4_000], rng.permutation(np.flatnonzero(~y))
    M = 500 if quick else 1_500

    def fit(model: FalkonClassifier, chosen: np.ndarray) -> FalkonClassifier:
        both = np.r_[positives, chosen]
        return model.fit(X[both], y[both])

    def detector(chosen: np.ndarray) -> FalkonClassifier:
        centers = X[np.r_[positives[: M // 2], chosen[: M // 2]]]
        return classifier(5.0, PENALTY, loss="logistic", centers=centers, warm_start=True)

    def note(name: str, model: FalkonClassifier, number: int, seconds: float) -> list[Any]:
        values = model.decision_function(X_test)
        precision, area = average_precision_score(y_test, values), roc_auc_score(y_test, values)
        return [name, f"{number:,}", f"{seconds:.1f}", f"{precision:.4f}", f"{area:.5f}"]

    start = time.perf_counter()
    hard, others = negatives[:4_000], negatives[4_000:]
    model = fit(detector(hard), hard)
    for batch in np.array_split(others, 6):
        unsure = batch[model.predict_proba(X[batch])[:, 1] > 0.02]
        hard = np.r_[hard, unsure]
        fit(model, hard)
    budget = time.perf_counter() - start
    rows = [note("hard", model, len(hard), budget)]
    number, seconds = len(hard), 0.0
    while seconds < budget and number <= len(negatives):
        start = time.perf_counter()
        model = fit(detector(negatives[:number]), negatives[:number])
        seconds = time.perf_counter() - start
        rows.append(note("uniform", model, number, seconds))
        number *= 2
    title = f"digit 8 against the rest: {len(positives):,} positives, {len(negatives):,} negatives, M = {M:,}"
    table(title, ["negatives", "number", "seconds", "average precision", "AUC"], rows)
    best = max(float(row[3]) for row in rows[1:])
    table(
        "hard negatives: bar",
        ["what", "value", "bar", "met"],
        [["average precision, hard - best uniform", float(rows[0][3]) - best, "> 0", float(rows[0][3]) > best]],
    )


SECTIONS: dict[str, Callable[[Path, bool], None]] = {
    "agreement": agreement,
    "a9a": lambda folder, quick: compare("a9a", 1_000, 5.0, 60, folder, quick),
    "mnist": lambda folder, quick: compare("mnist", 2_000, 5.0, 80, folder, quick),
    "hard": hard_negatives,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="folder of the .npz files")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, a quarter of the centers")
    arguments = parser.parse_args()
    gyrfalcon.show_versions()
    for name in arguments.only:
        try:
            SECTIONS[name](arguments.data, arguments.quick)
        except FileNotFoundError as error:
            print(f"\n{error.filename} is missing: {name} is left out (see --data)")


if __name__ == "__main__":
    main()
