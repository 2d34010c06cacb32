"""Each display is drawn, and what was drawn is compared with what was fitted."""

from __future__ import annotations

import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pytest
import scipy.sparse
from matplotlib.colors import Normalize
from sklearn.calibration import CalibrationDisplay
from sklearn.datasets import make_circles, make_friedman1
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import gyrfalcon
from gyrfalcon import (
    AutoRegressor,
    ConformalRegressor,
    ExactRegressor,
    FalkonClassifier,
    FalkonRegressor,
    HierarchicalRegressor,
    KernelKMeans,
    KernelPCA,
    LearnedMetric,
    NystromRegressor,
    RandomFeaturesRegressor,
)
from gyrfalcon.kernels import Gaussian
from gyrfalcon.plots import (
    CentersDisplay,
    ConvergenceDisplay,
    ImportanceDisplay,
    IntervalDisplay,
    KernelPCADisplay,
    PenaltyPathDisplay,
    SearchSurfaceDisplay,
    SpectrumDisplay,
)
from gyrfalcon.plots import __all__ as names
from gyrfalcon.plots._drawing import COLORS

mpl.use("Agg")

X, y = make_friedman1(400, n_features=6, noise=0.5, random_state=0)
PENALTIES = np.logspace(-6, 0, 7)


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    from matplotlib import pyplot

    pyplot.close("all")


@pytest.fixture
def axes():
    """Three axes of one figure, the first of which has a title."""
    from matplotlib.figure import Figure

    found = Figure(layout="constrained").subplots(1, 3)
    found[0].set_title("mine")
    return found


@pytest.fixture(scope="module")
def falkon():
    model = FalkonRegressor(n_centers=60, penalty=1e-6, early_stopping=True, max_iter=30, random_state=0)
    return model.fit(X, y)


@pytest.fixture(scope="module")
def nystrom():
    return NystromRegressor(n_centers=60, penalties=PENALTIES, uncertainty=True, random_state=0).fit(X[:300], y[:300])


def words(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def drawn(display):
    """Draw the whole figure, as saving it would."""
    display.figure_.canvas.draw()
    if not isinstance(display, ImportanceDisplay):  # whose other axes have names of features
        assert all(ax.get_ylabel() for ax in display.axes_)
        assert display.axes_[-1].get_xlabel()
    return display


# ---- what all have ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("display", "unfitted", "arguments"),
    [
        (ConvergenceDisplay, FalkonRegressor(), ()),
        (PenaltyPathDisplay, NystromRegressor(), ()),
        (SearchSurfaceDisplay, GridSearchCV(FalkonRegressor(), {"penalty": [1.0]}), ()),
        (IntervalDisplay, ConformalRegressor(FalkonRegressor()), (X, y)),
        (ImportanceDisplay, LearnedMetric(), ()),
        (CentersDisplay, FalkonClassifier(), (X,)),
        (SpectrumDisplay, FalkonRegressor(), (X,)),
        (KernelPCADisplay, KernelPCA(), (X,)),
    ],
)
def test_estimators_that_cannot_be_drawn(display, unfitted, arguments):
    with pytest.raises(NotFittedError):
        display.from_estimator(unfitted, *arguments)
    for wrong in (Ridge(), make_pipeline(StandardScaler(), Ridge()), None):
        with pytest.raises(TypeError, match=f"{display.__name__} is drawn from .* got .*(Ridge|Pipeline|NoneType)"):
            display.from_estimator(wrong, *arguments)
    assert display.__name__ in names


@pytest.mark.parametrize("skewed", [False, True])
def test_automatic_estimators_are_drawn_of_their_largest_model(skewed):
    target = np.exp(3 * y) if skewed else y
    model = AutoRegressor(time_budget=0.5, random_state=0).fit(X[:100], target[:100])
    best = model.models_[int(np.argmax(model.weights_))]
    display = drawn(ConvergenceDisplay.from_estimator(model))
    np.testing.assert_array_equal(
        display.residual_line_.get_ydata(), drawn(ConvergenceDisplay.from_estimator(best)).residual_line_.get_ydata()
    )
    with pytest.raises(TypeError, match=r"is drawn from a KernelPCA: got TableEncoder .*, of AutoRegressor"):
        KernelPCADisplay.from_estimator(model, X)
    with pytest.raises(NotFittedError):
        ConvergenceDisplay.from_estimator(AutoRegressor())


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.axes", None)
    with pytest.raises(ImportError, match="SpectrumDisplay needs matplotlib: pip install matplotlib"):
        SpectrumDisplay(eigenvalues=[1.0]).plot()


def test_matplotlib_waits():
    code = "import sys, gyrfalcon.plots; print('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


@pytest.mark.parametrize("background", ["#ffffff", "#14181e"])
def test_colors_stand_out(background):
    """The contrast that WCAG asks of graphics, 3 : 1, against white and against the dark of web pages."""

    def luminance(color):
        value = np.array(mpl.colors.to_rgb(color))
        linear = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
        return linear @ [0.2126, 0.7152, 0.0722] + 0.05

    for color in COLORS:
        ratio = luminance(color) / luminance(background)
        assert max(ratio, 1 / ratio) > 3, color


def test_panels_go_where_they_are_told(axes, falkon):
    from matplotlib.figure import Figure

    given = ConvergenceDisplay.from_estimator(falkon, ax=axes[1:])
    assert list(given.axes_) == list(axes[1:])
    assert given.figure_ is axes[0].figure
    divided = given.plot(axes[0])
    assert not axes[0].axison
    assert [ax.get_title() for ax in (axes[0], *divided.axes_)] == ["", "mine", ""]
    upper, lower = (ax.get_position() for ax in drawn(divided).axes_)
    assert upper.y0 > lower.y1
    assert upper.x1 < axes[1].get_position().x0
    for wrong in (axes, "here", [axes[0], None]):
        with pytest.raises(ValueError, match="must be None, one matplotlib Axes, or a list of 2"):
            given.plot(wrong)
    with pytest.raises(ValueError, match="pass a list of 2 axes"):
        given.plot(Figure().add_axes((0, 0, 1, 1)))


# ---- convergence -----------------------------------------------------------------------------------------------------


def test_convergence(falkon):
    display = drawn(ConvergenceDisplay.from_estimator(make_pipeline(StandardScaler(), falkon)))
    upper, lower = display.axes_
    records = falkon.history_
    best = min(records, key=lambda record: record["validation_error"])
    assert display.best_iteration == best["iteration"] < falkon.n_iter_
    np.testing.assert_array_equal(display.best_line_.get_xdata(), [best["passes"]] * 2)
    np.testing.assert_array_equal(display.residual_line_.get_xdata(), [record["passes"] for record in records])
    np.testing.assert_array_equal(display.residual_line_.get_ydata(), [record["residual"] for record in records])
    np.testing.assert_array_equal(display.error_line_.get_ydata(), [record["validation_error"] for record in records])
    assert (upper.get_yscale(), lower.get_xlabel()) == ("log", "passes over the rows")
    assert words(lower) == [f"best: {best['validation_error']:.4g} in iteration {best['iteration']}"]
    assert len(upper.lines) == len(lower.lines) == 2
    assert upper.get_xlim() == lower.get_xlim()


def test_convergence_of_parts():
    residuals = ConvergenceDisplay.from_history([{"residual": 0.5}, {"residual": 0.0}, {"residual": None}])
    assert residuals.best_iteration is residuals.best_line_ is None
    assert len(residuals.axes_) == 1
    np.testing.assert_array_equal(residuals.residual_line_.get_ydata(), [0.5, np.nan, np.nan])
    np.testing.assert_array_equal(residuals.residual_line_.get_xdata(), [1, 2, 3])
    assert residuals.ax_.get_xlabel() == "iteration"
    assert residuals.figure_.get_figheight() < residuals.figure_.get_figwidth()
    metric = LearnedMetric(n_rounds=2, random_state=0).fit(X, y)
    rounds = drawn(ConvergenceDisplay.from_estimator(metric))
    assert rounds.best_iteration == metric.best_round_
    assert rounds.residual_line_ is None
    assert ConvergenceDisplay(steps=[1, 2], validation_errors=[np.nan, np.nan]).plot().best_line_ is None


def test_convergence_of_what_has_no_iterations(nystrom):
    with pytest.raises(ValueError, match="of penalties and not of iterations: draw it with PenaltyPathDisplay"):
        ConvergenceDisplay.from_estimator(nystrom)
    with pytest.raises(TypeError, match="KernelPCA keeps no history_"):
        ConvergenceDisplay.from_estimator(KernelPCA(n_components=2).fit(X[:50]))
    with pytest.raises(ValueError, match="history is empty"):
        ConvergenceDisplay.from_history([])
    with pytest.raises(ValueError, match="neither residuals nor validation errors nor inertias"):
        ConvergenceDisplay.from_history([{"iteration": 1}])
    for wrong in ([1, 2], None, "abc"):
        with pytest.raises(TypeError, match="must be a list of records"):
            ConvergenceDisplay.from_history(wrong)
    with pytest.raises(ValueError, match=r"residuals must be a list of 2 numbers, got an array of shape \(3,\)"):
        ConvergenceDisplay(steps=[1, 2], residuals=[1, 2, 3])
    with pytest.raises(ValueError, match="there is nothing to draw"):
        ConvergenceDisplay(steps=[1, 2])


def test_convergence_of_newton():
    """Its records have penalties, which it lowers from one iteration to the next, and residuals."""
    label = (y > np.median(y)).astype(int)
    model = FalkonClassifier(loss="logistic", n_centers=30, early_stopping=True, random_state=0).fit(X, label)
    display = drawn(ConvergenceDisplay.from_estimator(model))
    assert len({record["penalty"] for record in model.history_}) > 1
    np.testing.assert_array_equal(display.residual_line_.get_ydata(), [record["residual"] for record in model.history_])
    assert display.error_line_.get_ydata()[display.best_iteration - 1] == display.validation_errors.min()


def test_convergence_of_a_clustering():
    model = KernelKMeans(n_clusters=3, random_state=0).fit(X)
    display = drawn(ConvergenceDisplay.from_estimator(model))
    np.testing.assert_array_equal(display.inertia_line_.get_ydata(), [record["inertia"] for record in model.history_])
    assert display.inertia_line_.get_ydata()[-1] == model.inertia_
    assert (len(display.axes_), display.ax_.get_ylabel(), display.ax_.get_xlabel()) == (1, "inertia", "iteration")
    both = ConvergenceDisplay.from_history([{"residual": 0.5, "inertia": 2.0, "validation_error": 1.0}])
    assert [ax.get_ylabel() for ax in both.axes_] == ["relative residual", "inertia", "validation error"]


def test_ticks_of_one_iteration():
    display = drawn(ConvergenceDisplay.from_history([{"residual": 0.5, "passes": 2}]))
    low, high = display.ax_.get_xlim()
    assert [tick for tick in display.ax_.get_xticks() if low <= tick <= high] == [2.0]


# ---- penalties -------------------------------------------------------------------------------------------------------


def test_penalty_path(nystrom):
    display = drawn(PenaltyPathDisplay.from_estimator(nystrom))
    upper, lower = display.axes_
    np.testing.assert_allclose(display.error_line_.get_xdata(), PENALTIES)
    np.testing.assert_allclose(display.error_line_.get_ydata(), [record["loo_error"] for record in nystrom.history_])
    np.testing.assert_allclose(display.df_line_.get_ydata(), [record["df"] for record in nystrom.history_])
    assert (np.diff(display.df_line_.get_ydata()) < 0).all()
    assert display.chosen_line_.get_xdata()[0] == nystrom.penalty_ == PENALTIES[display.errors.argmin()]
    assert (upper.get_xscale(), upper.get_ylabel(), lower.get_xlabel()) == ("log", "leave-one-out error", "penalty")
    assert words(upper) == [f"chosen: {nystrom.penalty_:.3g}"]


@pytest.mark.parametrize(
    ("choose_by", "name"), [("gcv", "GCV error"), ("evidence", "log evidence"), ("validation", "validation error")]
)
def test_penalty_path_by_other_criteria(choose_by, name):
    model = ExactRegressor(penalties=[1e-2, 1e-4, 1e-3], choose_by=choose_by, random_state=0).fit(X[:80], y[:80])
    display = PenaltyPathDisplay.from_estimator(model)
    assert display.ax_.get_ylabel() == name
    np.testing.assert_array_equal(display.penalties, [1e-4, 1e-3, 1e-2])
    best = display.errors.argmax() if choose_by == "evidence" else display.errors.argmin()
    assert display.chosen == display.penalties[best]


@pytest.mark.parametrize(("choose_by", "name"), [(None, "leave-one-out error"), ("evidence", "log evidence")])
def test_penalty_path_of_trees(choose_by, name):
    model = HierarchicalRegressor(penalties=[1e-1, 1e-5, 1e-3], choose_by=choose_by, leaf_size=20, random_state=0)
    display = drawn(PenaltyPathDisplay.from_estimator(model.fit(X[:80], y[:80])))
    assert display.ax_.get_ylabel() == name
    errors = model.history_[-1]["log_evidences" if choose_by else "loo_errors"]
    np.testing.assert_array_equal(display.errors, [errors[1], errors[2], errors[0]])
    assert display.chosen == model.penalty_
    assert display.df_line_ is None


def test_intervals_and_convergence_of_trees():
    model = HierarchicalRegressor(penalty=1e-3, leaf_size=20, uncertainty=True, random_state=0)
    model.fit(X[:80], y[:80], X_val=X[80:120], y_val=y[80:120])
    drawn(IntervalDisplay.from_estimator(model, X[80:120], y[80:120]))
    display = drawn(ConvergenceDisplay.from_estimator(model))
    np.testing.assert_array_equal(display.validation_errors, [record["validation_error"] for record in model.history_])


def test_penalty_path_of_one_penalty():
    with pytest.raises(ValueError, match=r"fit with penalties=\[...\]"):
        PenaltyPathDisplay.from_estimator(NystromRegressor(n_centers=10, penalty=1e-3).fit(X[:50], y[:50]))
    display = drawn(PenaltyPathDisplay(penalties=[1.0], errors=[1.0]).plot())
    assert display.chosen_line_ is display.df_line_ is None


def test_penalty_path_with_a_penalty_of_0():
    model = NystromRegressor(n_centers=20, penalties=[1e-3, 0, 10.0], random_state=0).fit(X[:200], y[:200])
    display = drawn(PenaltyPathDisplay.from_estimator(model))
    for ax, line, key in zip(display.axes_, (display.error_line_, display.df_line_), ("loo_error", "df"), strict=True):
        shown = {record["penalty"]: record[key] for record in model.history_}
        np.testing.assert_array_equal(line.get_xdata(), [0, 1, 2])
        np.testing.assert_array_equal(line.get_ydata(), [shown[0.0], shown[1e-3], shown[10.0]])
        assert ax.get_xscale() == "linear"
    assert [text.get_text() for text in display.axes_[-1].get_xticklabels()] == ["0", "0.001", "10"]
    assert display.chosen_line_.get_xdata()[0] == [0.0, 1e-3, 10.0].index(model.penalty_)
    chosen = PenaltyPathDisplay(penalties=[0.0, 1e-3], errors=[1.0, 2.0], chosen=0.0).plot()
    assert chosen.chosen_line_.get_xdata()[0] == 0
    assert words(chosen.ax_) == ["chosen: 0"]
    many = drawn(PenaltyPathDisplay(penalties=[0.0, *np.logspace(-9, 0, 20)], errors=np.ones(21), chosen=0.5).plot())
    assert len(many.ax_.get_xticks()) == 8
    assert many.chosen_line_.get_xdata()[0] == 20  # between the last two
    with pytest.raises(ValueError, match="must be a list of finite numbers of at least 0"):
        PenaltyPathDisplay(penalties=[-1.0, 1.0], errors=[1.0, 2.0])


# ---- a search --------------------------------------------------------------------------------------------------------


def test_grid(axes):
    grid = {"kernel__length_scale": [0.5, 2.0, 16.0], "penalty": [1e-6, 1e-3], "n_centers": [10, 40]}
    search = GridSearchCV(FalkonRegressor(Gaussian(), random_state=0), grid, cv=2).fit(X[:150], y[:150])
    display = drawn(SearchSurfaceDisplay.from_estimator(search, ax=axes[0]))
    assert display.surface_.get_array().shape == (2, 3)  # the better number of centers of two
    assert display.surface_.get_array().max() == search.best_score_
    best = (search.best_params_["kernel__length_scale"], search.best_params_["penalty"])
    assert display.best == best
    assert (*display.best_point_.get_xdata(), *display.best_point_.get_ydata()) == best
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("length_scale", "penalty")
    assert [text.get_text() for text in display.ax_.get_xticklabels()] == ["0.5", "2", "16"]
    assert display.colorbar_.ax.get_ylabel() == "mean test score"
    at = {}
    for params, score in zip(search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True):
        pair = params["kernel__length_scale"], params["penalty"]
        at[pair] = max(score, at.get(pair, -np.inf))
    for (i, a), (j, b) in [((i, a), (j, b)) for i, a in enumerate([0.5, 2, 16]) for j, b in enumerate([1e-6, 1e-3])]:
        assert display.surface_.get_array()[j, i] == at[a, b]
    assert SearchSurfaceDisplay.from_estimator(search, x="n_centers").ax_.get_xscale() == "linear"
    with pytest.raises(ValueError, match=r"x='length' names 0 .* choose among \['kernel__length_scale'"):
        SearchSurfaceDisplay.from_estimator(search, x="length")
    with pytest.raises(ValueError, match="score='r2' is no column of cv_results_: it has mean_test_score"):
        SearchSurfaceDisplay.from_estimator(search, score="r2")


def test_random_search():
    ranges = {"kernel__length_scale": list(np.geomspace(1, 9, 30)), "penalty": list(np.logspace(-6, -2, 30))}
    model = FalkonRegressor(Gaussian(), n_centers=20, random_state=0)
    search = RandomizedSearchCV(model, ranges, n_iter=5, cv=2, random_state=0).fit(X[:100], y[:100])
    display = drawn(SearchSurfaceDisplay.from_estimator(search))
    assert display.surface_.get_offsets().shape == (5, 2)
    assert display.best[1] == search.best_params_["penalty"]
    with pytest.raises(ValueError, match="x is not given, and 'length_scale' ends 0"):
        SearchSurfaceDisplay.from_estimator(GridSearchCV(model, {"penalty": [1e-3]}, cv=2).fit(X[:50], y[:50]))
    # no point on the frame
    corners = display.ax_.transAxes.inverted().transform(
        display.ax_.transData.transform(np.asarray(display.surface_.get_offsets()))
    )
    assert corners.min() > 0.05
    assert corners.max() < 0.95


def test_list_of_grids():
    """What a grid does not set has no place: below the mask there is anything."""
    grids = [{"kernel__length_scale": [1, 2], "penalty": [1e-5]}, {"penalty": [1e-3]}]
    model = FalkonRegressor(Gaussian(), n_centers=20, random_state=0)
    search = GridSearchCV(model, grids, cv=2).fit(X[:60], y[:60])
    display = drawn(SearchSurfaceDisplay.from_estimator(search))
    np.testing.assert_array_equal(display.x, [1, 2])
    np.testing.assert_array_equal(display.y, [1e-5, 1e-5])
    np.testing.assert_array_equal(display.scores, search.cv_results_["mean_test_score"][:2])
    apart = GridSearchCV(model, [{"kernel__length_scale": [1]}, {"penalty": [1e-3]}], cv=2).fit(X[:60], y[:60])
    with pytest.raises(ValueError, match="no candidate of the search sets both kernel__length_scale and penalty"):
        SearchSurfaceDisplay.from_estimator(apart)


def test_values_that_have_no_place_on_a_logarithmic_axis():
    grid = {"kernel__length_scale": ["scale", 4.0, 1.0], "penalty": [1e-6, 0, 1e-3]}
    model = FalkonRegressor(Gaussian(), n_centers=10, random_state=0)
    search = GridSearchCV(model, grid, cv=2).fit(X[:60], y[:60])
    display = drawn(SearchSurfaceDisplay.from_estimator(search))
    assert [text.get_text() for text in display.ax_.get_xticklabels()] == ["1", "4", "scale"]
    assert [text.get_text() for text in display.ax_.get_yticklabels()] == ["0", "1e-06", "0.001"]
    np.testing.assert_array_equal(display.surface_.get_coordinates()[0, :, 0], [-0.5, 0.5, 1.5, 2.5])
    for params, score in zip(search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True):
        i = [1.0, 4.0, "scale"].index(params["kernel__length_scale"])
        j = [0, 1e-6, 1e-3].index(params["penalty"])
        assert display.surface_.get_array()[j, i] == score
    assert display.best == (search.best_params_["kernel__length_scale"], search.best_params_["penalty"])
    points = drawn(SearchSurfaceDisplay(x=["b", "a", "b"], y=[1, 2, 3], scores=[1, 2, 3]).plot())
    np.testing.assert_array_equal(points.surface_.get_offsets(), [[0, 1], [1, 2], [0, 3]])
    assert points.best == ("b", 3.0)
    scattered = SearchSurfaceDisplay(x=np.linspace(-1, 1, 12), y=np.arange(1, 13), scores=np.arange(12.0)).plot()
    np.testing.assert_array_equal(scattered.surface_.get_offsets()[:, 0], np.linspace(-1, 1, 12))


def test_search_without_refit():
    search = GridSearchCV(FalkonRegressor(n_centers=10), {"penalty": [1e-3]}, cv=2, refit=False).fit(X[:60], y[:60])
    with pytest.raises(ValueError, match=r"ConvergenceDisplay is drawn from a fitted .* refit=False keeps none"):
        ConvergenceDisplay.from_estimator(search)


def test_scores_near_the_best_have_different_colours():
    scores = [0.90, 0.89, 0.87, 0.5, -40.0, -3.0]
    display = drawn(SearchSurfaceDisplay(x=[1, 2, 3, 1, 2, 3], y=[1, 1, 1, 2, 2, 2], scores=scores).plot())
    norm = display.surface_.norm
    shades = np.asarray(norm(sorted(scores)))
    assert (np.diff(shades) > 0.03).all()  # of the scale, on which 0.90 and 0.89 are 0.0002 apart if it is linear
    assert shades[[0, -1]] == pytest.approx([0, 1])
    np.testing.assert_allclose(norm.inverse(shades), sorted(scores))
    ticks = display.colorbar_.get_ticks()
    np.testing.assert_allclose(np.diff(np.asarray(norm(ticks))), 0.2)


@pytest.mark.parametrize("scores", [[0.5, 0.5], [0.5]])
def test_scores_without_a_logarithmic_scale(scores):
    display = drawn(SearchSurfaceDisplay(x=[1, 2][: len(scores)], y=[1, 1][: len(scores)], scores=scores).plot())
    assert type(display.surface_.norm) is Normalize
    assert display.best == (1.0, 1.0)


def test_surface_of_arrays():
    display = drawn(SearchSurfaceDisplay(x=[1, 1, 2], y=[3, 3, 3], scores=[0.1, 0.2, np.nan]).plot())
    assert display.best == (1.0, 3.0)
    np.testing.assert_array_equal(display.scores, [0.2])
    with pytest.raises(ValueError, match="every score is NaN"):
        SearchSurfaceDisplay(x=[1], y=[1], scores=[np.nan])
    with pytest.raises(ValueError, match=r"y must be a list of 2 values, as scores is: got an array of shape \(3,\)"):
        SearchSurfaceDisplay(x=[1, 2], y=[1, 2, 3], scores=[1, 2])


# ---- intervals -------------------------------------------------------------------------------------------------------


def test_intervals(nystrom, axes):
    display = drawn(IntervalDisplay.from_estimator(nystrom, X[300:], y[300:], coverage=0.8, max_rows=40, ax=axes[2]))
    low, high = nystrom.predict_interval(X[300:], coverage=0.8).T
    share = np.mean((low <= y[300:]) & (y[300:] <= high))
    assert display.ax_ is axes[2]
    assert display.observed_coverage == share
    assert words(axes[2]) == [f"inside: {100 * share:.3g}% of 100 rows, 80% asked for", "outside"]
    inside, outside = display.inside_[1], display.outside_[1]
    assert len(inside.get_xdata()) + len(outside.get_xdata()) == 40
    for bars, points in (display.inside_, display.outside_):
        for (x, low_end), (_, high_end), value in zip(
            *np.reshape(bars.get_segments(), (-1, 2, 2)).swapaxes(0, 1), points.get_ydata(), strict=True
        ):
            assert x in points.get_xdata()
            assert (low_end <= value <= high_end) == (points is inside)


def test_intervals_over_a_feature(nystrom):
    table = pytest.importorskip("pandas").DataFrame(X, columns=list("abcdef"))
    model = ConformalRegressor(FalkonRegressor(n_centers=50, random_state=0), random_state=0).fit(table[:300], y[:300])
    display = IntervalDisplay.from_estimator(model, table[300:], y[300:], feature=3)
    assert display.ax_.get_xlabel() == "d"
    np.testing.assert_array_equal(display.x, X[300:, 3])
    named = IntervalDisplay.from_estimator(model, table[300:], y[300:], feature="c")
    assert named.ax_.get_xlabel() == "c"
    np.testing.assert_array_equal(named.x, X[300:, 2])
    with pytest.raises(ValueError, match="feature='g' is not one of the 6 features of the fit: a, b, c, d"):
        IntervalDisplay.from_estimator(model, table[300:], y[300:], feature="g")
    with pytest.raises(ValueError, match="feature=6 must be an integer from 0 to 5"):
        IntervalDisplay.from_estimator(nystrom, X, y, feature=6)
    with pytest.raises(ValueError, match="fit with uncertainty=True"):
        IntervalDisplay.from_estimator(FalkonRegressor(n_centers=5).fit(X[:50], y[:50]), X, y)
    with pytest.raises(ValueError, match=r"of shape \(n, 2\), got \(1, 2, 2\)"):
        IntervalDisplay.from_predictions([1.0], np.zeros((1, 2, 2)))
    one = drawn(IntervalDisplay.from_predictions([1.0], [[0.0, 1.0]]))
    assert words(one.ax_) == ["inside: 100% of 1 row", "outside"]


# ---- importances -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["diagonal", "full"])
def test_importances_and_metric(kind):
    metric = LearnedMetric(kind=kind, n_rounds=1, random_state=0).fit(X, y)
    model = make_pipeline(metric, FalkonRegressor(n_centers=20))
    display = drawn(ImportanceDisplay.from_estimator(model, max_features=4))
    left, right = display.axes_
    order = np.argsort(-metric.feature_importances_)[:4]
    np.testing.assert_array_equal(display.order, order)
    np.testing.assert_array_equal([bar.get_width() for bar in display.bars_], metric.feature_importances_[order])
    assert [text.get_text() for text in left.get_yticklabels()] == [f"feature {i}" for i in order]
    assert left.get_ylim()[0] > left.get_ylim()[1], "the largest is on top"
    if kind == "diagonal":
        np.testing.assert_array_equal([bar.get_width() for bar in display.metric_], metric.scales_[order])
        assert right.get_xlabel() == "scale in the learnt metric"
    else:
        np.testing.assert_array_equal(display.metric_.get_array(), metric.matrix_[np.ix_(order, order)])


def test_importances_of_a_table():
    table = pytest.importorskip("pandas").DataFrame(X, columns=list("abcdef"))
    model = AutoRegressor(time_budget=0.5, random_state=0).fit(table[:100], y[:100])
    for feature in ("c", 2):  # the columns of a table have any order
        intervals = IntervalDisplay.from_estimator(model, table[list("fedcba")][300:], y[300:], feature=feature)
        np.testing.assert_array_equal(intervals.x, X[300:, 2])
    display = drawn(ImportanceDisplay.from_estimator(model))
    assert len(display.axes_) == 1
    assert display.metric_ is None
    assert sum(bar.get_width() for bar in display.bars_) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="names has 1 entries, and there are 2 importances"):
        ImportanceDisplay(importances=[1, 2], names=["a"])
    with pytest.raises(ValueError, match=r"metric must be of shape \(2,\) or \(2, 2\), got \(3,\)"):
        ImportanceDisplay(importances=[1, 2], metric=[1, 2, 3])


# ---- centers, spectrum, components -----------------------------------------------------------------------------------


def test_centers_in_the_units_of_the_rows():
    rows = X[:, :2] * [1.0, 100.0] + [5.0, 0.0]
    model = FalkonRegressor(n_centers=25, random_state=0).fit(rows, y)
    display = drawn(CentersDisplay.from_estimator(model, rows, max_rows=150))
    assert display.points.shape == (150, 2)
    assert len(display.centers_.get_xdata()) == 25
    assert all(np.isclose(rows, center).all(axis=1).any() for center in display.centers)
    assert words(display.ax_) == ["rows", "25 centers"]
    assert display.ax_.get_ylabel() == "feature 1"
    with pytest.raises(ValueError, match="needs at least two features"):
        CentersDisplay.from_estimator(FalkonRegressor(n_centers=5).fit(X[:, :1], y), X[:, :1])


@pytest.mark.parametrize("sparse", [False, True])
def test_centers_in_a_plane(sparse):
    rows = scipy.sparse.csr_array(np.where(X > 0.5, X, 0.0)) if sparse else X
    model = FalkonRegressor(n_centers=20, random_state=0).fit(rows, y)
    display = drawn(CentersDisplay.from_estimator(model, rows))
    assert display.points.shape == (400, 2)
    # centers are rows, also in the plane
    distances = np.linalg.norm(display.points[:, None] - display.centers, axis=2).min(axis=0)
    assert distances.max() < 1e-6
    assert display.ax_.get_xlabel().startswith("principal component 1: ")
    assert drawn(CentersDisplay.from_estimator(model, rows[:2])).points.shape == (2, 2)
    with pytest.raises(ValueError, match="X has 1 row, which has no principal components"):
        CentersDisplay.from_estimator(model, rows[:1])


def test_rows_from_elsewhere(tmp_path, nystrom):
    np.save(tmp_path / "X.npy", X)
    rows = gyrfalcon.open(tmp_path / "X.npy").X
    spectra = [SpectrumDisplay.from_estimator(nystrom, given).eigenvalues for given in (rows, X)]
    np.testing.assert_allclose(*spectra)
    planes = [CentersDisplay.from_estimator(nystrom, given).points for given in (rows, X)]
    np.testing.assert_allclose(*planes, atol=1e-12)
    displays = [IntervalDisplay.from_estimator(nystrom, given, y, feature=2) for given in (rows, X, X.tolist())]
    assert all(np.array_equal(display.x, X[:, 2]) for display in displays)
    same = np.ones((20, 3))
    model = FalkonRegressor(n_centers=3, penalty=1e-3, random_state=0).fit(same, y[:20])
    assert (
        drawn(CentersDisplay.from_estimator(model, same)).ax_.get_xlabel()
        == "principal component 1: 0% of the variance"
    )


def test_spectrum(nystrom):
    display = drawn(SpectrumDisplay.from_estimator(nystrom, X[:300]))
    # the dense matrix: K_nM K_MM^-1 K_Mn / n
    rows = (X[:300] - nystrom.mean_) / nystrom.scale_
    K, K_MM = nystrom.kernel_(rows, nystrom.centers_), nystrom.kernel_(nystrom.centers_, nystrom.centers_)
    dense = np.linalg.eigvalsh(K @ np.linalg.solve(K_MM, K.T) / 300)[::-1][:60]
    np.testing.assert_allclose(display.eigenvalues, dense[: len(display.eigenvalues)], rtol=1e-6, atol=1e-10)
    np.testing.assert_array_equal(display.eigenvalue_line_.get_ydata(), display.eigenvalues)
    expected = [(dense / (dense + penalty)).sum() for penalty in display.penalties]
    np.testing.assert_allclose(display.dimension_line_.get_ydata(), expected, rtol=1e-5)
    assert display.penalty_line_.get_xdata()[0] == nystrom.penalty_
    assert display.centers_line_.get_ydata()[0] == 60
    assert [ax.get_xscale() for ax in display.axes_] == ["log", "log"]
    # the degrees of freedom of the fit are the same number, but for the intercept
    record = next(record for record in nystrom.history_ if record["penalty"] == nystrom.penalty_)
    at_penalty = (dense / (dense + nystrom.penalty_)).sum()
    assert at_penalty == pytest.approx(record["df"], abs=1.0)


def test_spectrum_of_a_constant_kernel():
    model = FalkonRegressor("linear", n_centers=10, penalty=1e-3, fit_intercept=False, scale=False, random_state=0)
    rows = np.ones((30, 2))
    display = drawn(SpectrumDisplay.from_estimator(model.fit(rows, np.ones(30)), rows))
    np.testing.assert_allclose(display.eigenvalues, [2.0], rtol=1e-6)
    with pytest.raises(ValueError, match="at least one of them greater than 0"):
        SpectrumDisplay(eigenvalues=[0.0])
    with pytest.raises(ValueError, match=r"penalties=.*must be a list of finite numbers greater than 0"):
        SpectrumDisplay(eigenvalues=[1.0], penalties=[0.0])
    with pytest.raises(TypeError, match="Nyström centers, such as FalkonRegressor or KernelPCA: got RandomFeatures"):
        SpectrumDisplay.from_estimator(RandomFeaturesRegressor(), X)


def test_kernel_pca():
    rings, ring = make_circles(200, factor=0.3, noise=0.05, random_state=0)
    model = KernelPCA(n_components=4, random_state=0).fit(rings)
    display = drawn(KernelPCADisplay.from_estimator(model, rings, ring, components=(0, 2)))
    scores = model.transform(rings)[:, [0, 2]]
    for kind, points in enumerate(display.points_):
        np.testing.assert_array_equal(points.get_offsets(), scores[ring == kind])
    assert words(display.ax_) == ["0", "1"]
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("component 1", "component 3")
    np.testing.assert_allclose(display.share_line_.get_ydata(), np.cumsum(model.explained_variance_ratio_))
    colored = drawn(KernelPCADisplay.from_estimator(model, rings, rings[:, 0]))
    (points,) = colored.points_
    np.testing.assert_array_equal(points.get_array(), rings[:, 0])
    assert len(KernelPCADisplay(scores=scores, y=np.array(list("abcdefgh") * 25)).plot().points_) == 8
    assert len(KernelPCADisplay(scores=scores).plot().axes_) == 1
    with pytest.raises(ValueError, match="components=4 must be an integer from 0 to 3"):
        KernelPCADisplay.from_estimator(model, rings, components=(0, 4))
    with pytest.raises(ValueError, match="fit with n_components=2"):
        KernelPCADisplay.from_estimator(KernelPCA(n_components=1).fit(rings), rings)
    with pytest.raises(ValueError, match=r"y must be of shape \(200,\), got \(3,\)"):
        KernelPCADisplay(scores=scores, y=[1, 2, 3])


def test_calibration_is_left_to_scikit_learn():
    label = (y > np.median(y)).astype(int)
    model = FalkonClassifier(loss="logistic", n_centers=30, random_state=0).fit(X, label)
    display = CalibrationDisplay.from_estimator(model, X, label, n_bins=5)
    assert 2 <= len(display.prob_true) <= 5
    assert display.line_.get_label() == "FalkonClassifier"
