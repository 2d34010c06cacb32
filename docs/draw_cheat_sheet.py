"""Draw docs/images/cheat_sheet.svg: one page, A4 across, with the lines that are needed most often.

python docs/draw_cheat_sheet.py

The background is part of the picture, so that it can be printed and is legible in light and in dark themes.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

# title of a box, and its lines; a line that begins with # is a remark
BOXES = [
    [
        (
            "A table as it is",
            [
                "from gyrfalcon import AutoRegressor",
                "model = AutoRegressor(time_budget=60)",
                "model.fit(table, y)  # text, dates, gaps",
                "model.predict(new)",
                "model.predict_interval(new, coverage=0.9)",
                "model.feature_importances_",
                "# AutoClassifier has predict_proba",
                "# validate in time: cv=TimeSeriesSplit()",
                "# hold out groups: fit(..., groups=who)",
            ],
        ),
        (
            "On the command line",
            [
                "gyrfalcon fit a.csv --target y -o a.gyr",
                "gyrfalcon report a.gyr test.csv",
                "gyrfalcon predict a.gyr new.csv -o p.csv",
                "gyrfalcon explain a.gyr new.csv -o w.csv",
            ],
        ),
        (
            "Save, load, export",
            [
                'model.save("model.gyr")  # no pickle',
                'gyrfalcon.load("model.gyr")',
                'gyrfalcon.to_onnx(model, "model.onnx")',
            ],
        ),
        (
            "Something is wrong",
            [
                "model.history_  # of each iteration",
                "pandas.DataFrame(auto.candidates_)",
                "verbose=1       # columns, progress",
                "gyrfalcon.show_versions()",
            ],
        ),
    ],
    [
        (
            "Many rows, one kernel",
            [
                "from gyrfalcon import FalkonRegressor",
                "model = FalkonRegressor(n_centers=2_000)",
                "model.fit(X, y, sample_weight=w)",
                "# time: rows x centers x 3 to 20 passes",
                "# more centers: more accurate, slower",
                "# float32 rows: twice as fast",
            ],
        ),
        (
            "Rows in files, larger than memory",
            [
                "rows = gyrfalcon.open(",
                '    "data/*.parquet", target="y")',
                "model.fit(rows)",
                '# checkpoint="folder": survives a kill',
            ],
        ),
        (
            "Kernels and length scales",
            [
                "from gyrfalcon.kernels import Gaussian,",
                "    Laplacian, Matern",
                "Gaussian(2.0)           # smooth",
                "Matern(2.0, nu=1.5)     # less smooth",
                "Laplacian(2.0, norm=1)  # rough, tables",
                "Gaussian([1.0, 5.0])    # one per feature",
            ],
        ),
        (
            "Parameters",
            [
                "# length scale: the first thing to try",
                'GridSearchCV(model, {"kernel": [...]})',
                "# all length scales, by gradients",
                "gyrfalcon.tune(model, X, y)",
                "# penalty: chosen by itself",
                "model.penalty_",
                "# every row a center, up to 50,000 rows",
                'ExactRegressor(method="pcg")',
            ],
        ),
    ],
    [
        (
            "What do you want to know?",
            [
                "# probabilities",
                'FalkonClassifier(loss="logistic")',
                "# quantiles",
                'FalkonRegressor(loss="quantile",',
                "    quantiles=[0.1, 0.5, 0.9])",
                "# counts; outliers in y",
                'loss="poisson"; loss="huber"',
                "# deviations",
                "FalkonRegressor(uncertainty=True)",
                "model.predict(X, return_std=True)",
                "# intervals around any model",
                "ConformalRegressor(model)",
                "# why this prediction",
                "shapley_values(model, X, background=X)",
            ],
        ),
        (
            "Without a target",
            [
                "KernelPCA(); KernelKMeans()",
                "NoveltyDetector(); mmd_test(A, B)",
                "sample_dpp(X, Gaussian(1.0), size=10)",
            ],
        ),
        (
            "New rows every day",
            [
                "FalkonRegressor(incremental=True)",
                "model.update(X_new, y_new)",
                "model.forget(X_old, y_old)",
                "# has the world changed?",
                "mmd_test(X_train, X_new).pvalue",
            ],
        ),
    ],
]
WIDTH, HEIGHT, MARGIN, TOP, GAP = 1123, 794, 28, 76, 14
LEADING, SIZE, HEAD, LONGEST = 19, 13, 34, 41
INK, SOFT, BLUE, PAPER, CARD = "#1b2733", "#566370", "#0b4f8a", "#ffffff", "#eef3f8"
MONO = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


def box(x: float, y: float, width: float, title: str, lines: list[str]) -> tuple[str, float]:
    """Return a card with a title and lines of code, and its height."""
    if too_long := [line for line in lines if len(line) > LONGEST]:
        raise ValueError(f"longer than {LONGEST} characters: {too_long}")
    height = HEAD + LEADING * len(lines) + 12
    words = "".join(
        f'<text x="{x + 12}" y="{y + HEAD + LEADING * (at + 0.75):g}" xml:space="preserve" '
        f'fill="{SOFT if line.startswith("#") else INK}">{escape(line)}</text>'
        for at, line in enumerate(lines)
    )
    return (
        f'<rect x="{x}" y="{y:g}" width="{width:g}" height="{height:g}" rx="9" fill="{CARD}"/>'
        f'<text x="{x + 12}" y="{y + 24:g}" font-family="sans-serif" font-size="16.5" font-weight="bold" '
        f'fill="{BLUE}">{escape(title)}</text>'
        f'<g font-family="{MONO}" font-size="{SIZE}">{words}</g>'
    ), height


def draw() -> str:
    """Return the picture."""
    width = (WIDTH - 2 * MARGIN - GAP * (len(BOXES) - 1)) / len(BOXES)
    parts = []
    for at, column in enumerate(BOXES):
        y = float(TOP)
        for title, lines in column:
            drawn, height = box(MARGIN + at * (width + GAP), y, width, title, lines)
            parts.append(drawn)
            y += height + GAP
        if y - GAP > HEIGHT - MARGIN / 2:
            raise ValueError(f"column {at} ends at {y - GAP:.0f}, below the page")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img"><title>Gyrfalcon on one page: the code of the guide that is needed most often</title>'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{PAPER}"/>'
        f'<text x="{MARGIN}" y="48" font-family="sans-serif" font-size="30" font-weight="bold" fill="{INK}">Gyrfalcon'
        f'</text><text x="{MARGIN + 168}" y="48" font-family="sans-serif" font-size="17" fill="{SOFT}">Accurate models '
        f"of tables with nothing to tune, and kernel learning from millions of rows, for scikit-learn</text>"
        f"{''.join(parts)}</svg>\n"
    )


if __name__ == "__main__":
    (Path(__file__).parent / "images" / "cheat_sheet.svg").write_text(draw(), encoding="utf-8")
