"""Draw the pictures of the documentation into docs/images.

    python docs/make_figures.py how_it_works      the diagram
    python docs/make_figures.py parameters        the effect of length_scale and n_centers, on data in one dimension
    python docs/make_figures.py growing_centers   errors and seconds by the number of centers that "auto" tries
    python docs/make_figures.py learned_metric    errors and scales of features, round by round
    python docs/make_figures.py uncertainty       deviations, samples and intervals, on data in one dimension
    python docs/make_figures.py unsupervised      circles: scores, clusters, novelty, a witness
    python docs/make_figures.py regimes           which method is the fastest, by dimension and signal-to-noise ratio
    python docs/make_figures.py hierarchical      cells of a tree, and differences from the exact kernel
    python docs/make_figures.py less_is_more      error against the number of centers, for several penalties
    python docs/make_figures.py plots             the pictures of docs/plots.md, by its own code
    python docs/make_figures.py output            what stands for an example without a picture
    python docs/make_figures.py demo              the demo's picture: a million rows, best on an idle machine

Without a name all but the last are drawn.
"""

from __future__ import annotations

import re
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Polygon, Rectangle
from PIL import Image

IMAGES = Path(__file__).parent / "images"
INK, MUTED, ROWS, CENTERS, FACTOR, TILE = "#22303c", "#66737f", "#dbe7f1", "#e07b39", "#f6dcc8", "#3b7fb5"


def save(figure: Any, name: str) -> None:
    """Save a figure with twice the pixels of its size on a page (`pictures.py`), in 256 colours."""
    drawn = BytesIO()
    figure.savefig(drawn, dpi=220, facecolor=figure.get_facecolor())
    plt.close(figure)
    picture = Image.open(drawn).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    picture.save(IMAGES / name, optimize=True, dpi=(220, 220))


def how_it_works() -> None:
    """FALKON in three steps: centers, factors, passes."""
    figure = plt.figure(figsize=(11, 5.4))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, 110), ylim=(0, 54))
    ax.axis("off")

    def text(x: float, y: float, words: str, size: float = 10, **options: Any) -> None:
        ax.text(x, y, words, **({"size": size, "color": INK, "ha": "center", "va": "center"} | options))

    def arrow(start: tuple[float, float], end: tuple[float, float], color: str = INK, bend: float = 0.0) -> None:
        ax.add_patch(
            FancyArrowPatch(
                start, end, arrowstyle="-|>", mutation_scale=14, linewidth=1.5, color=color,
                connectionstyle=f"arc3,rad={bend}", zorder=4,
            )
        )  # fmt: skip

    def box(x: float, y: float, width: float, height: float, **options: Any) -> None:
        ax.add_patch(Rectangle((x, y), width, height, **({"edgecolor": INK, "linewidth": 1.2} | options)))

    def round_box(x: float, y: float, width: float, height: float, face: str, edge: str) -> None:
        style = "round,pad=0.4,rounding_size=1.2"
        ax.add_patch(FancyBboxPatch((x, y), width, height, boxstyle=style, facecolor=face, edgecolor=edge))

    def step(x: float, number: int, title: str, cost: str) -> None:
        ax.plot(x, 50.5, "o", markersize=19, color=INK)
        text(x, 50.4, str(number), 12, color="white", weight="bold")
        text(x + 2.6, 50.5, title, 12, ha="left", weight="bold")
        text(x + 2.6, 47.4, cost, 9.5, ha="left", color=MUTED)

    # 1: the rows, some of which are centers
    step(4, 1, "Choose M centers", "among n rows; n may be millions")
    bottom, top, chosen = 6, 42, (39.2, 33.6, 25.4, 19.0, 12.2, 8.0)
    box(8, bottom, 10, top - bottom, facecolor=ROWS)
    for y in chosen:
        box(8, y, 10, 0.9, facecolor=CENTERS, linewidth=0)
        arrow((18.3, y + 0.45), (24.6, 30.0 + (y - 23) / 5.5), CENTERS)
    text(13, 4, "rows  X", 11)
    text(13, 1.6, "n × d", 9.5, color=MUTED)
    text(6.2, 24, "n", 11, style="italic")
    box(25, 26.6, 8, 6.8, facecolor=CENTERS)
    text(29, 24.5, "centers  C", 11)
    text(29, 22.1, "M × d", 9.5, color=MUTED)

    # 2: what the centers alone tell
    step(37, 2, "Factor once", "M² memory, M³ time")
    box(42, 32, 9.2, 9.2, facecolor=FACTOR)
    text(46.6, 36.6, r"$K_{MM}$", 13)
    text(53, 36.6, "k(C, C)", 10, color=MUTED, ha="left")
    arrow((33.4, 30.6), (41.4, 35.4))
    arrow((46.6, 31.4), (46.6, 28.2))
    ax.add_patch(Polygon([(42, 27.6), (51.2, 27.6), (51.2, 18.4)], facecolor=FACTOR, edgecolor=INK, linewidth=1.2))
    ax.add_patch(Polygon([(42, 26.8), (42, 18.4), (50.4, 18.4)], facecolor="#edc09c", edgecolor=INK, linewidth=1.2))
    text(48.3, 24.8, "T", 12, style="italic")
    text(44.7, 21.2, "A'", 12, style="italic")
    text(53, 23, "two triangles\nin one buffer", 9.5, color=MUTED, ha="left")
    arrow((46.6, 17.8), (46.6, 14.6))
    text(46.6, 12.4, r"$B = T^{-1}A^{-1}/\sqrt{n}$", 13)
    text(46.6, 8.2, "with B, all directions are\nabout equally easy to learn", 9.5, color=MUTED)

    # 3: passes over the rows
    step(66, 3, "Pass over the rows", "t iterations are t + 1 passes; n·M time each")
    # behind the kernel matrix, which it has nothing to do with
    ax.add_patch(
        FancyArrowPatch((55, 12.2), (86.3, 19.0), arrowstyle="-|>", mutation_scale=14, linewidth=1.5, color=INK,
                        connectionstyle="arc3,rad=0.1", zorder=0)
    )  # fmt: skip
    box(68, bottom, 11, top - bottom, facecolor="white", linestyle=(0, (4, 3)), edgecolor=MUTED)
    box(68, 31.2, 11, 4.6, facecolor=TILE, linewidth=0)
    text(73.5, 33.5, "a tile", 10.5, color="white", weight="bold")
    text(73.5, 22.5, "K = k(X, C)\nnever needed\nas a whole", 10.5, color=MUTED, linespacing=1.5)
    text(73.5, 4, "n × M", 9.5, color=MUTED)
    round_box(87, 29.4, 20.6, 8.2, "#e8f1f8", TILE)
    text(97.3, 35.0, r"$K^{\top}(K\,v)$, tile by tile", 12)
    text(97.3, 31.7, "made in cache, used twice,\nthrown away", 9, color=MUTED)
    arrow((79.3, 33.5), (86.3, 33.5), TILE)
    round_box(87, 16.0, 20.6, 6.4, "#f4f4f4", INK)
    text(97.3, 20.5, "conjugate gradient", 12)
    text(97.3, 17.7, "preconditioned by B", 9.5, color=MUTED)
    arrow((93, 28.7), (93, 23.1))
    arrow((101.6, 23.1), (101.6, 28.7))
    text(92.2, 25.9, r"$K^\top K v$", 10.5, ha="right")
    text(102.4, 25.9, r"next $v$", 10.5, ha="left")
    arrow((97.3, 15.4), (97.3, 11.2))
    text(97.3, 8.6, r"$f(x)=\sum_j\, \alpha_j\, k(x, c_j)$", 13)
    text(97.3, 4.0, "3 to 20 passes are usual", 9.5, color=MUTED)
    save(figure, "how_it_works.png")


def parameters() -> None:
    """Too short, right, too long; too few centers and enough."""
    from gyrfalcon import FalkonRegressor
    from gyrfalcon.kernels import Gaussian

    random = np.random.default_rng(0)
    X = np.sort(random.uniform(0, 10, size=(400, 1)), axis=0)
    truth = np.sin(X[:, 0] * (0.5 + 0.15 * X[:, 0]))
    y = truth + 0.25 * random.standard_normal(len(X))
    grid = np.linspace(0, 10, 600)[:, None]
    panels = [
        ("length_scale too small", {"kernel": Gaussian(0.04), "n_centers": 300, "penalty": 1e-6}),
        ("a good length_scale", {"kernel": Gaussian(0.8), "n_centers": 100, "penalty": 1e-4}),
        ("length_scale too large", {"kernel": Gaussian(8.0), "n_centers": 100, "penalty": 1e-4}),
        ("too few centers", {"kernel": Gaussian(0.8), "n_centers": 6, "penalty": 1e-4}),
    ]
    figure, axes = plt.subplots(1, 4, figsize=(11, 2.7), sharey=True, layout="constrained")
    for ax, (title, options) in zip(axes, panels, strict=True):
        model = FalkonRegressor(**options, random_state=1, max_iter=50).fit(X, y)
        ax.plot(X[:, 0], y, ".", color="0.75", markersize=3)
        ax.plot(grid[:, 0], np.sin(grid[:, 0] * (0.5 + 0.15 * grid[:, 0])), color=MUTED, linewidth=1, linestyle="--")
        ax.plot(grid[:, 0], model.predict(grid), color=TILE, linewidth=1.6)
        ax.plot(model.centers_[:, 0], np.full(len(model.centers_), -1.95), "|", color=CENTERS, markersize=6)
        ax.set(title=title, ylim=(-2.1, 2.1), xticks=[], yticks=[])
        ax.title.set_fontsize(10.5)
    save(figure, "parameters.png")


def growing_centers() -> None:
    """n_centers="auto": held-out errors and seconds by the number of centers, until more of them gain too little."""
    from gyrfalcon import FalkonRegressor
    from gyrfalcon.cli.demo import make_arm
    from gyrfalcon.kernels import Gaussian, Laplacian

    X, y = make_arm(6_000)
    y = (y - y.mean()) / y.std()
    noisy = y + 0.5 * np.random.default_rng(0).standard_normal(len(y))
    fits = {
        "Gaussian": (Gaussian(), y, TILE),
        "Laplacian": (Laplacian(), y, CENTERS),
        "Gaussian, half a deviation of noise": (Gaussian(), noisy, MUTED),
    }
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.6), layout="constrained")
    for name, (kernel, targets, color) in fits.items():
        model = FalkonRegressor(kernel, n_centers="auto", random_state=0).fit(X, targets)
        M, loss, seconds = (
            np.array([record[key] for record in model.growth_]) for key in ("n_centers", "validation_loss", "seconds")
        )
        left.plot(M, loss / loss[0], "o-", color=color, label=f"{name}: {model.growth_[-1]['stopped']}", markersize=4)
        left.plot(len(model.centers_), loss.min() / loss[0], "o", color=color, markersize=11, fillstyle="none")
        right.plot(M, seconds, "o-", color=color, markersize=4)
    left.set(ylabel="error of held-out rows / that with 1,000", ylim=(0, 1.1))
    right.set(ylabel="seconds", yscale="log")
    for ax in (left, right):
        ax.set(xlabel="n_centers", xscale="log", xticks=(ticks := [1_000, 2_000, 4_000]))
        ax.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        ax.xaxis.minorticks_off()
    left.legend(frameon=False, title="why it stopped")
    save(figure, "growing_centers.png")


def learned_metric() -> None:
    """Friedman's first function with ten features of noise: errors and scales, round by round."""
    from sklearn.datasets import make_friedman1

    from gyrfalcon import FalkonRegressor, LearnedMetric
    from gyrfalcon.kernels import Gaussian, Laplacian, Matern

    X, y = make_friedman1(4_000, n_features=15, noise=0.5, random_state=0)
    y -= y.mean()
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained", width_ratios=(1, 1.25))
    named = {"Gaussian": Gaussian(), "Matern 3/2": Matern(), "Laplacian, 1-norm": Laplacian(norm=1)}
    for (name, kernel), color in zip(named.items(), (TILE, CENTERS, MUTED), strict=True):
        metric = LearnedMetric(FalkonRegressor(kernel, penalty=1e-5), random_state=0).fit(X, y)
        left.plot([record["validation_error"] for record in metric.history_], "o-", color=color, label=name)
    left.axhline(0.5 / y.std(), color=INK, linewidth=1, linestyle=":")
    left.text(5.1, 0.5 / y.std() - 0.004, "noise", ha="right", va="top", color=INK)
    left.set(xlabel="round (0: no metric)", ylabel="validation error, in deviations of y", ylim=(0, None))
    left.legend(frameon=False)

    estimator = FalkonRegressor(penalty=1e-5)
    at = np.arange(X.shape[1])
    for i, (n_rounds, color) in enumerate(zip((1, 2, 4), (ROWS, CENTERS, TILE), strict=True)):
        metric = LearnedMetric(estimator, n_rounds=n_rounds, random_state=0).fit(X, y)
        right.bar(at + 0.27 * (i - 1), metric.scales_, 0.27, color=color, label=f"round {n_rounds}")
    right.set(xlabel="feature", ylabel="scale", xticks=at, ylim=(0, 1.15))
    right.axvline(4.5, color=INK, linewidth=1, linestyle=":")
    right.text(4.4, 1.07, "y depends on these", ha="right", color=INK)
    right.text(4.6, 1.07, "and not on these", ha="left", color=INK)
    right.legend(frameon=False, loc="upper right", bbox_to_anchor=(1, 0.93))
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    save(figure, "learned_metric.png")


def uncertainty() -> None:
    """Where there are no rows f is not known, and where y is noisy intervals are wide."""
    from gyrfalcon import NystromRegressor
    from gyrfalcon.kernels import Gaussian

    random = np.random.default_rng(1)
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.5, 3.4), sharey=True, layout="constrained")
    grid = np.linspace(-0.6, 10.6, 500)[:, None]

    X = np.concatenate([random.uniform(0, 4, size=(60, 1)), random.uniform(7, 10, size=(40, 1))])
    y = np.sin(1.3 * X[:, 0]) + 0.2 * random.standard_normal(len(X))
    common = {"n_centers": 100, "penalties": np.logspace(-6, 0, 25), "choose_by": "evidence", "scale": False}
    model = NystromRegressor(Gaussian(1.0), uncertainty=True, random_state=0, **common).fit(X, y)
    mean, std = model.predict(grid, return_std=True)
    left.fill_between(grid[:, 0], mean - 2 * std, mean + 2 * std, color=ROWS, label="f, two deviations each way")
    drawn = model.sample_y(grid, 4, random_state=3)
    left.plot(grid[:, 0], drawn, color=TILE, linewidth=0.7, alpha=0.7)
    left.plot([], [], color=TILE, linewidth=0.7, label="sample_y")
    left.plot(grid[:, 0], mean, color=TILE, linewidth=2, label="predict")
    left.plot(X[:, 0], y, ".", color=INK, markersize=4)
    left.set_title("predict(X, return_std=True)", fontsize=10.5)

    X = random.uniform(0, 10, size=(1500, 1))
    y = np.sin(1.3 * X[:, 0]) + (0.1 + 0.05 * X[:, 0]) * random.standard_normal(len(X))
    model = NystromRegressor(Gaussian(1.0), uncertainty=True, random_state=0, **common).fit(X, y)
    low, high = model.predict_interval(grid, coverage=0.9).T
    right.fill_between(grid[:, 0], low, high, color=FACTOR, label="y, nine of ten")
    right.plot(grid[:, 0], model.predict(grid), color=CENTERS, linewidth=2, label="predict")
    right.plot(X[:, 0], y, ".", color=INK, markersize=1.5)
    right.set_title("predict_interval(X, coverage=0.9)", fontsize=10.5)
    for ax in (left, right):
        ax.set(xlim=(-0.6, 10.6), ylim=(-3.2, 3.2), xticks=[], yticks=[])
        ax.legend(frameon=False, loc="lower left", ncols=3, fontsize=9, columnspacing=0.8, handlelength=1.2)
        ax.spines[["top", "right"]].set_visible(False)
    save(figure, "uncertainty.png")


def unsupervised() -> None:
    """Two circles: scores of kernel PCA, clusters, novelty, and the witness of a two-sample test."""
    from sklearn.datasets import make_circles

    from gyrfalcon import KernelKMeans, KernelPCA, NoveltyDetector, mmd_test
    from gyrfalcon.kernels import Gaussian

    X, y = make_circles(1_500, factor=0.3, noise=0.06, random_state=0)
    side = np.linspace(-1.7, 1.7, 160)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)

    def values(ax: Any, z: Any, colors: str, **options: Any) -> None:
        ax.contourf(side, side, z.reshape(160, 160), levels=24, cmap=colors, alpha=0.85, **options)

    figure, axes = plt.subplots(1, 4, figsize=(11, 3), layout="constrained")
    scores = KernelPCA(kernel=Gaussian(0.5), n_components=3, random_state=0).fit_transform(X)
    radial = int(np.argmax(np.abs([np.corrcoef(scores[:, j], y)[0, 1] for j in range(3)])))
    other = 0 if radial else 1
    for kind, color in ((0, TILE), (1, CENTERS)):
        axes[0].plot(scores[y == kind, other], scores[y == kind, radial], ".", color=color, markersize=3)
    axes[0].set(
        title="KernelPCA: two scores", xlabel=f"component {other + 1}", ylabel=f"component {radial + 1}", box_aspect=1
    )
    clusters = KernelKMeans(2, random_state=0).fit(X)
    axes[1].contourf(side, side, clusters.predict(grid).reshape(160, 160), levels=1, colors=[ROWS, FACTOR])
    axes[1].plot(*X.T, ".", color=INK, markersize=1.5)
    axes[1].set_title("KernelKMeans: two clusters")
    detector = NoveltyDetector(Gaussian(0.15), contamination=0.02, random_state=0).fit(X)
    novelty = detector.decision_function(grid)
    values(axes[2], np.log10(-detector.score_samples(grid)), "Blues_r")
    axes[2].contour(side, side, novelty.reshape(160, 160), levels=[0.0], colors=CENTERS, linewidths=1.5)
    axes[2].plot(*X.T, ".", color=INK, markersize=1.5)
    axes[2].set_title("NoveltyDetector: the border")
    wider = 1.15 * make_circles(1_500, factor=0.3, noise=0.06, random_state=1)[0]
    test = mmd_test(X, wider, Gaussian(0.2), random_state=0)
    witness = test.witness(grid)
    most = float(np.abs(witness).max())
    values(axes[3], witness, "RdBu_r", vmin=-most, vmax=most)
    axes[3].plot(*X[::3].T, ".", color="#7a2018", markersize=1.5)
    axes[3].plot(*wider[::3].T, ".", color="#10345c", markersize=1.5)
    axes[3].set_title(f"mmd_test: witness, p = {test.pvalue:.3f}")
    for ax in axes[1:]:
        ax.set(xlim=(-1.7, 1.7), ylim=(-1.7, 1.7), xticks=[], yticks=[], aspect="equal")
    for ax in axes:
        ax.title.set_fontsize(10.5)
    axes[0].set(xticks=[], yticks=[])
    save(figure, "unsupervised.png")


def regimes() -> None:
    """Figure 1 of the NYTRO paper: the four methods in the plane of signal-to-noise ratio and dimension."""
    from gyrfalcon.centers.regimes import regime, regime_curves

    n = 10_000
    snr = np.geomspace(1e-4, 1e5, 1_201)
    c1, c2 = (np.clip(curve, 1, n) for curve in regime_curves(n, snr))
    figure, ax = plt.subplots(figsize=(6.6, 4.4), layout="constrained")
    high = np.maximum(c1, c2)
    colours = {"NYTRO": "#b9a5cf", "Early Stopping": "#a9c8e4", "KRLS": "#f0b27a", "NKRLS": "#f4e2a1"}
    ax.fill_between(snr, 1, np.minimum(c1, c2), color=colours["NKRLS"], linewidth=0)
    ax.fill_between(snr, c2, c1, where=c1 >= c2, color=colours["NYTRO"], linewidth=0)
    ax.fill_between(snr, c1, c2, where=c2 >= c1, color=colours["KRLS"], linewidth=0)
    ax.fill_between(snr, high, n, color=colours["Early Stopping"], linewidth=0)
    ax.plot(snr, c1, color=INK, linewidth=1.2)
    ax.plot(snr, c2, color=INK, linewidth=1.2, linestyle="--")
    for x, y, words in ((1e-2, 30, "NYTRO"), (2e3, 10, "NKRLS"), (1e-2, 4_500, "Early Stopping"), (4e4, 1_400, "KRLS")):
        assert regime(n, y, x) == words
        ax.text(x, y, words, ha="center", va="center", size=11, color=INK)
    ax.text(2e1, 1.1 * regime_curves(n, 2e1)[0], "c1", va="bottom", size=9, color=INK)
    ax.text(2e1, 4.2, "c2", va="top", size=9, color=INK)
    ax.set(xscale="log", yscale="log", xlim=(snr[0], snr[-1]), ylim=(1, n))
    ax.set(xlabel="signal-to-noise ratio", ylabel="dimension d~", title=f"The fastest method for n = {n:,}")
    save(figure, "theory_regimes.png")


def hierarchical() -> None:
    """Cells of a tree, and how far one tree and the mean of four are from the exact kernel."""
    from gyrfalcon import ExactRegressor, HierarchicalRegressor
    from gyrfalcon.kernels import Laplacian

    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, size=(2_000, 2))
    y = np.sin(12 * X[:, 0]) * np.cos(9 * X[:, 1]) + 0.1 * rng.standard_normal(len(X))
    side = np.linspace(0, 1, 240)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    shared: Any = {"kernel": Laplacian(0.5), "penalty": 1e-4}
    exact = ExactRegressor(**shared).fit(X, y).predict(grid)
    trees = {"leaf_size": 128, "n_centers": 0, "split": "random", "random_state": 0}
    one, four = (HierarchicalRegressor(n_trees=n, **trees, **shared).fit(X, y) for n in (1, 4))
    errors = {"one tree": np.abs(one.predict(grid) - exact), "the mean of four": np.abs(four.predict(grid) - exact)}
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.9), layout="constrained")
    leaves = one.trees_[0].tree.route(grid).reshape(240, 240)
    for number in range(one.trees_[0].tree.n_leaves):
        axes[0].contour(side, side, leaves == number, levels=[0.5], colors=TILE, linewidths=1)
    axes[0].plot(*X.T, ".", color=INK, markersize=1.5)
    pivots = X[one.trees_[0].pivots[0]]
    axes[0].plot(*pivots.T, "o", color=CENTERS, markersize=3.5)
    axes[0].set_title(f"a tree: {one.trees_[0].tree.n_leaves} cells")
    blues = plt.get_cmap("Blues", 20)  # in steps, which take half of the bytes
    most = float(np.quantile(errors["one tree"], 0.995))
    for ax, (name, error) in zip(axes[1:], errors.items(), strict=True):
        drawn = ax.imshow(
            error.reshape(240, 240),
            origin="lower",
            extent=(0, 1, 0, 1),
            cmap=blues,
            vmin=0,
            vmax=most,
            interpolation="nearest",
        )
        ax.set_title(f"{name}: {np.sqrt(np.mean(error**2)):.3f} from the exact fit")
    figure.colorbar(drawn, ax=axes[1:], shrink=0.8, label="difference from the exact fit")
    for ax in axes:
        ax.set(xticks=[], yticks=[], aspect="equal")
        ax.title.set_fontsize(10.5)
    save(figure, "hierarchical.png")


def less_is_more() -> None:
    """Error against the number of centers, each curve by one fit, for little and for much noise."""
    from gyrfalcon import NystromRegressor
    from gyrfalcon.cli.demo import make_arm

    X, y = make_arm(6_000)
    sizes = np.unique(np.geomspace(10, 1_500, 40).astype(int)).tolist()
    penalties = {1e-2: CENTERS, 1e-3: TILE, 1e-4: "#5a9e54", 1e-8: MUTED}
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 3.8), layout="constrained")
    for ax, noise in zip(axes, (0.1, 2.0), strict=True):
        noisy = y + noise * np.random.default_rng(0).standard_normal(len(y))
        model = NystromRegressor(n_centers=sizes, penalties=list(penalties), random_state=0)
        model.fit(X[:3_000], noisy[:3_000], X_val=X[3_000:], y_val=y[3_000:])
        for penalty, colour in penalties.items():
            errors = [record["validation_error"] for record in model.history_ if record["penalty"] == penalty]
            ax.plot(sizes, errors, color=colour, label=f"penalty {penalty:g}")
            best = int(np.argmin(errors))
            ax.plot(sizes[best], errors[best], "o", color=colour, markersize=5)
        ax.set(xscale="log", yscale="log", xlabel="number of centers", title=f"noise of deviation {noise:g}")
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("error (without the noise)")
    axes[0].legend(frameon=False)
    save(figure, "less_is_more.png")


def plots() -> None:
    """The pictures of docs/plots.md: what the block of code before each of them has drawn."""
    page, namespace = (IMAGES.parent / "plots.md").read_text(), {}
    for code, name in re.findall(r"^```python\n(.*?)^```$|^!\[.*?\]\(images/(\S+)\)$", page, re.MULTILINE | re.DOTALL):
        if code:
            exec(code, namespace)
        else:
            plt.gcf().set_layout_engine("constrained")  # scikit-learn's display leaves wide margins
            save(plt.gcf(), name)


def explaining() -> None:
    """The picture of docs/explaining.md: what its code has drawn."""
    page, namespace = (IMAGES.parent / "explaining.md").read_text(), {}
    for code in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        exec(code, namespace)
    save(namespace["figure"], "explaining.png")


def output() -> None:
    """A terminal, for examples that print and draw nothing."""
    figure = plt.figure(figsize=(4, 2.8))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, 40), ylim=(0, 28))
    ax.axis("off")
    ax.add_patch(
        FancyBboxPatch((3, 3), 34, 22, boxstyle="round,pad=0,rounding_size=1.5", facecolor=ROWS, edgecolor=MUTED)
    )
    for x, color in zip((5.5, 8, 10.5), (CENTERS, MUTED, TILE), strict=True):
        ax.plot(x, 22.5, "o", color=color, markersize=6)
    for y, words, color in ((17, "$ python example.py", INK), (12, "rows   8,000", MUTED), (7, "R2     0.975", MUTED)):
        ax.text(6, y, words, family="monospace", size=13, color=color, va="center")
    save(figure, "output.png")


def demo() -> None:
    from gyrfalcon.cli.main import main

    main(["demo", "--output", str(IMAGES / "demo.png")])


FIGURES = {
    "how_it_works": how_it_works,
    "parameters": parameters,
    "growing_centers": growing_centers,
    "learned_metric": learned_metric,
    "explaining": explaining,
    "uncertainty": uncertainty,
    "unsupervised": unsupervised,
    "regimes": regimes,
    "hierarchical": hierarchical,
    "less_is_more": less_is_more,
    "plots": plots,
    "output": output,
    "demo": demo,
}

if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    for name in sys.argv[1:] or [name for name in FIGURES if name != "demo"]:
        FIGURES[name]()
