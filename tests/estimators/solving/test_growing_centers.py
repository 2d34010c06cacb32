"""n_centers="auto": more centers until held-out rows gain no more."""

import io
import itertools
from functools import partial

import numpy as np
import pytest
import scipy.sparse

import gyrfalcon
from gyrfalcon import Checkpoint, FalkonClassifier, FalkonRegressor
from gyrfalcon.callbacks import Callback, TimeLimit
from gyrfalcon.callbacks.progress import ProgressBar
from gyrfalcon.fitting import falkon, growth, subspace


@pytest.fixture(autouse=True)
def _from_fifty(monkeypatch):
    monkeypatch.setattr(subspace, "_FIRST", 50)


def _data(n=1_500, noise=0.1, dtype=np.float32):
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(n, 3)).astype(dtype)
    return X, np.sin(2 * X[:, 0]) * np.cos(X[:, 1]) + noise * rng.standard_normal(n).astype(dtype)


_AUTO = partial(FalkonRegressor, n_centers="auto", random_state=0)


class _StopAt(Callback):
    """Refuse a number of centers, and remember those that were announced."""

    def __init__(self, refused=None):
        self.refused = refused
        self.announced = []

    def on_round_start(self, info):
        self.announced.append(info["n_centers"])
        assert info["expected_seconds"] >= 0
        return info["n_centers"] == self.refused


def test_centers_double_until_the_loss_falls_too_little():
    X, y = _data()
    seen = _StopAt()
    model = _AUTO(callbacks=seen).fit(X, y)
    tried = [record["n_centers"] for record in model.growth_]
    loss = [record["validation_loss"] for record in model.growth_]
    assert tried == [50 * 2**i for i in range(len(tried))]
    assert tried[1:] == seen.announced
    assert len(model.centers_) == tried[np.argmin(loss)]
    assert [record["stopped"] for record in model.growth_] == [None] * (len(tried) - 1) + ["error"]
    falls = [1 - (after / before) ** 2 for before, after in itertools.pairwise(loss)]
    assert all(fall > growth._SHARE for fall in falls[:-1])
    assert falls[-1] <= growth._SHARE
    assert loss == [record["validation_error"] for record in model.growth_]
    assert model.history_[-1]["validation_error"] == pytest.approx(min(loss))
    assert model.n_iter_ == len(model.history_)


def test_the_model_is_the_fit_with_that_many_centers():
    X, y = _data(dtype=np.float64)
    model = _AUTO(tol=1e-12, max_iter=200, penalty=1e-5, kernel="laplacian").fit(
        X[:1200], y[:1200], None, X[1200:], y[1200:]
    )
    again = FalkonRegressor(
        "laplacian", centers=model.centers_ * model.scale_ + model.mean_, penalty=1e-5, tol=1e-12, max_iter=200
    )
    again.fit(X[:1200], y[:1200])
    assert np.allclose(model.predict(X), again.predict(X), atol=1e-6)


def test_noise_stops_at_once():
    X, _ = _data()
    model = _AUTO(penalty=1e-3).fit(X, np.random.default_rng(1).standard_normal(len(X)))
    assert len(model.growth_) == 2
    assert model.growth_[-1]["stopped"] == "error"


def test_uniform_centers_are_nested():
    X, y = _data(dtype=np.float64)
    small, large = (_AUTO(callbacks=_StopAt(M)).fit(X, y) for M in (100, 200))
    assert (len(small.centers_), len(large.centers_)) == (50, 100)
    assert small.growth_[-1]["stopped"] == "callback"
    assert {row.tobytes() for row in small.centers_} < {row.tobytes() for row in large.centers_}


@pytest.mark.parametrize("n", [7, 60, 2_000_000])
def test_added_rows_are_others(n):
    X, y = _data(300)
    rows = gyrfalcon.sources.as_rows(np.zeros((n, 1), dtype=np.float32))
    rng = np.random.RandomState(0)
    m = min(5, n - 2)
    taken = np.sort(rng.choice(n, m, replace=False)) if n < 100 else np.array([0, 1, 2, 3, n - 1])
    before = _AUTO(callbacks=_StopAt(100))
    first = []

    def solved(*given):
        first.append(found := real(*given))
        return found

    real = growth._solved
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(growth, "_solved", solved)
        before.fit(X, y)
    chosen = first[0].space.chosen
    selection = subspace.Selection(rows.take(taken), taken)
    coef = np.arange(1.0, m + 1)[:, None]
    known = growth.replace(
        first[0],
        space=growth.replace(first[0].space, chosen=growth.replace(chosen, selection=selection)),
        solution=growth.replace(first[0].solution, coef=coef),
    )
    M = min(2 * m, n)
    data = growth.replace(first[0].space.data, rows=rows, weight=np.arange(n) + 1.0)
    start = growth._start(known, M, before._settings, data, rng)
    indices = start.chosen.selection.indices
    assert len(np.unique(indices)) == M
    assert np.isin(taken, indices).all()
    assert indices.max() < n
    assert np.array_equal(start.coef[np.isin(indices, taken), 0], coef[:, 0])
    assert np.array_equal(start.chosen.weight, indices + 1.0)


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_same_bits_for_any_number_of_threads(loss):
    X, y = _data(700)
    one, two = (_AUTO(loss=loss, n_jobs=n_jobs).fit(X, y) for n_jobs in (1, 2))
    assert np.array_equal(one.dual_coef_, two.dual_coef_)
    assert np.array_equal(one.centers_, two.centers_)


@pytest.mark.parametrize("killed_at", [3, 10, 13])
def test_a_killed_fit_goes_on_with_the_same_bits(tmp_path, killed_at):
    X, y = _data(500)
    fit = partial(_AUTO, max_iter=6, penalty=1e-5)
    whole = fit(random_state=np.random.RandomState(3)).fit(X, y)
    seen = itertools.count(1)

    def kill(record):
        if next(seen) == killed_at:
            raise KeyboardInterrupt

    checkpoint = Checkpoint(tmp_path, every=0)
    with pytest.raises(KeyboardInterrupt):
        fit(random_state=np.random.RandomState(3), checkpoint=checkpoint, callbacks=kill).fit(X, y)
    records = []
    again = fit(random_state=np.random.RandomState(3), checkpoint=checkpoint, callbacks=records.append).fit(X, y)
    assert np.array_equal(whole.dual_coef_, again.dual_coef_)
    assert np.array_equal(whole.centers_, again.centers_)
    assert len(records) == sum(record["n_iter"] for record in whole.growth_) - killed_at + 1
    assert [record["validation_loss"] for record in again.growth_] == [
        record["validation_loss"] for record in whole.growth_
    ]
    finished = []
    fit(random_state=np.random.RandomState(3), checkpoint=checkpoint, callbacks=finished.append).fit(X, y)
    assert not finished


def test_every_row_a_center():
    X, y = _data(180, noise=0.0)
    model = _AUTO(kernel="laplacian", penalty=1e-7).fit(X, y)
    assert [record["n_centers"] for record in model.growth_] == [50, 100, 162]
    assert model.growth_[-1]["stopped"] == "rows"


def test_memory_ends_the_growth_and_keeps_the_last_model():
    X, y = _data(5_000)
    model = _AUTO(memory_budget=6_000_000).fit(X, y)
    assert model.growth_[-1]["stopped"] == "memory"
    assert len(model.centers_) == model.growth_[-1]["n_centers"] > 50
    with pytest.raises(MemoryError, match="50 centers take"):
        _AUTO(memory_budget=60_000).fit(X, y)


def test_a_limit_ends_the_growth(monkeypatch):
    monkeypatch.setattr(growth, "_MOST", 80)
    X, y = _data()
    model = _AUTO().fit(X, y)
    assert [record["n_centers"] for record in model.growth_] == [50, 80]
    assert model.growth_[-1]["stopped"] == "limit"


def test_a_callback_that_stops_an_iteration_ends_the_growth():
    X, y = _data()
    model = _AUTO(callbacks=lambda record: record["iteration"] == 2).fit(X, y)
    assert len(model.growth_) == 1
    assert model.growth_[0]["stopped"] == "callback"
    patient = _AUTO(early_stopping=True, n_iter_no_change=1).fit(X, y)
    assert len(patient.growth_) > 1


def test_a_time_limit_refuses_a_round_that_would_take_longer():
    limit = TimeLimit(1_000)
    assert not limit.on_round_start({"expected_seconds": 1e9})  # of no fit
    limit.on_fit_start(None, {})
    assert limit.on_round_start({"n_centers": 100, "expected_seconds": 1e9})
    assert not limit.on_round_start({"n_centers": 100, "expected_seconds": 1.0})


def test_the_bar_shows_the_number_of_centers():
    X, y = _data()
    out = io.StringIO()
    model = _AUTO(callbacks=ProgressBar(file=out)).fit(X, y)
    for record in model.growth_[1:]:
        assert f"FalkonRegressor, {record['n_centers']} centers" in out.getvalue()


def test_only_the_model_that_is_kept_is_judged(monkeypatch):
    X, y = _data()
    judged = []
    monkeypatch.setattr(falkon, "warn", lambda settings, data, solution: judged.append(len(solution.coef)))
    model = _AUTO().fit(X, y)
    assert judged == [len(model.centers_)]


@pytest.mark.parametrize("centers", ["leverage", "kmeans++"])
def test_other_selectors_choose_anew(centers):
    X, y = _data(700)
    model = _AUTO(centers=centers, penalty=1e-5).fit(X, y)
    losses = [record["validation_loss"] for record in model.growth_]
    assert len(losses) > 1
    assert min(losses) < losses[0]
    assert len(model.centers_) == model.growth_[int(np.argmin(losses))]["n_centers"]


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_classes_are_chosen_by_the_loss(loss):
    X, y = _data(noise=0.3)
    labels = np.where(y > 0.4, "high", np.where(y > -0.4, "middle", "low"))
    weight = np.random.default_rng(0).uniform(0.5, 2, len(y))
    model = FalkonClassifier(n_centers="auto", loss=loss, random_state=0).fit(X, labels, weight)
    losses = [record["validation_loss"] for record in model.growth_]
    assert len(model.centers_) == model.growth_[int(np.argmin(losses))]["n_centers"]
    assert model.score(X, labels) > 0.7
    # the share of wrong classes is shown, too
    if loss == "squared":
        assert all(0 <= record["validation_error"] <= 1 for record in model.growth_)


def test_rows_from_elsewhere(tmp_path):
    X, y = _data(600)
    plain = _AUTO(scale=False, kernel=gyrfalcon.kernels.Gaussian(1.0), penalty=1e-5)
    expected = plain.fit(X, y).predict(X)
    np.save(tmp_path / "rows.npy", X)
    assert np.allclose(plain.fit(gyrfalcon.open(tmp_path / "rows.npy"), y).predict(X), expected, atol=1e-4)
    assert np.allclose(plain.fit(scipy.sparse.csr_array(X), y).predict(X), expected, atol=2e-3)
    dask = pytest.importorskip("dask.array")
    chunks = dask.from_array(X, chunks=(200, 3)), dask.from_array(y, chunks=200)
    assert np.allclose(np.asarray(plain.fit(*chunks).predict(X)), expected, atol=1e-3)


def test_warm_start_grows_further():
    X, y = _data()
    model = _AUTO(warm_start=True, callbacks=_StopAt(100)).fit(X, y)
    first = model.centers_
    model.set_params(callbacks=_StopAt(200)).fit(X, y)
    assert model.growth_[0]["n_centers"] == len(first)


def test_model_files_keep_the_curve_and_other_fits_have_none(tmp_path):
    X, y = _data(400)
    model = _AUTO(uncertainty=True).fit(X, y)
    model.save(tmp_path / "model.gyr")
    loaded = gyrfalcon.load(tmp_path / "model.gyr")
    assert loaded.growth_ == model.growth_
    assert loaded.n_centers == "auto"
    assert np.array_equal(loaded.predict(X, return_std=True)[1], model.predict(X, return_std=True)[1])
    assert not hasattr(model.set_params(n_centers=20).fit(X, y), "growth_")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"centers": np.zeros((20, 3))},
            'n_centers="auto" chooses how many centers to draw, and centers has 20 points',
        ),
        ({"n_centers": "all"}, "n_centers='all' must be None, \"auto\" or an integer of at least 1"),
        ({"n_centers": 0}, "n_centers=0 must be"),
    ],
)
@pytest.mark.parametrize("Estimator", [FalkonRegressor, FalkonClassifier])
def test_bad_parameters(Estimator, parameters, message):
    X, y = _data(50)
    with pytest.raises(ValueError, match=message.replace("(", "\\(")):
        Estimator(**{"n_centers": "auto", **parameters}).fit(X, y > 0)


@pytest.mark.parametrize("n", [2, 3, 9])
def test_few_rows(n):
    X, y = _data(n)
    assert _AUTO().fit(X, y).growth_[-1]["stopped"] == "rows"


def test_one_row_leaves_none_to_hold_out():
    X, y = _data(1)
    with pytest.raises(ValueError, match=r"no rows to hold out.*give X_val and y_val"):
        _AUTO().fit(X, y)


def test_large_targets_are_judged_as_others():
    X, y = _data(400, dtype=np.float64)
    small, large = (_AUTO(penalty=1e-6).fit(X, size * y) for size in (1.0, 2.0**300))
    assert [record["n_centers"] for record in small.growth_] == [record["n_centers"] for record in large.growth_]
