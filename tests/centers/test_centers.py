"""Who may be a center."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

import gyrfalcon
from gyrfalcon import FalkonRegressor
from gyrfalcon.centers import (
    KDPP,
    Bless,
    Given,
    KMeansPlusPlus,
    LeverageScores,
    RPCholesky,
    Selection,
    Uniform,
    as_centers,
    sampling,
)
from gyrfalcon.centers.leverage import Scoring, leverage_scores
from gyrfalcon.centers.leverage_sampling import _draw_distinct, resolvable_penalty
from gyrfalcon.kernels import Gaussian, Kernel, Linear, Sigmoid
from gyrfalcon.sources import ArrayRows

ROWS = ArrayRows(np.arange(200.0, dtype=np.float32).reshape(100, 2))
KERNEL = Gaussian(1.0)
SELECTORS = [
    LeverageScores(),
    LeverageScores(approximate=False),
    Bless(),
    RPCholesky(),
    RPCholesky(accelerated=False),
    KMeansPlusPlus(),
    KDPP(),
]
NAMES = {
    "uniform": Uniform,
    "leverage": LeverageScores,
    "bless": Bless,
    "rpcholesky": RPCholesky,
    "kmeans++": KMeansPlusPlus,
    "dpp": KDPP,
}
every_selector = pytest.mark.parametrize("selector", SELECTORS, ids=repr)


def crowd(n, seed=0, share=0.04):
    """Most rows in a crowd, a few far from it and from each other."""
    rng = np.random.default_rng(seed)
    rare = rng.random(n) < share
    return np.where(rare[:, None], 3 * rng.standard_normal((n, 2)), 0.3 * rng.standard_normal((n, 2)))


def choose(n_centers, candidates=None, seed=0, selector=None, rows=ROWS, kernel=KERNEL, penalty=1e-3):
    selector = selector or Uniform()
    return selector.select(
        rows, n_centers, kernel=kernel, penalty=penalty, candidates=candidates, random_state=seed, n_jobs=1
    )


def test_uniform_centers_are_rows_without_repetition():
    selection = choose(30)
    assert len(set(selection.indices)) == 30
    assert (np.diff(selection.indices) > 0).all()
    assert_array_equal(selection.points, ROWS.X[selection.indices])
    assert selection.points.dtype == np.float32
    assert selection.D is None


def test_uniform_centers_depend_on_the_seed_alone():
    assert_array_equal(choose(30).indices, choose(30).indices)
    assert (choose(30, seed=1).indices != choose(30).indices).any()


@pytest.mark.parametrize("n_centers", [100, 101, 10**6])
def test_all_rows_in_their_order_where_as_many_are_asked_for(n_centers):
    for selector in [Uniform(), *SELECTORS]:
        selection = choose(n_centers, selector=selector)
        assert_array_equal(selection.indices, np.arange(100))
        assert_array_equal(selection.points, ROWS.X)


def test_uniform_centers_are_uniform():
    counts = sum(np.bincount(choose(10, seed=seed).indices, minlength=100) for seed in range(1000))
    # 100 each on average, with a standard deviation of sqrt(1000 * 0.1 * 0.9) = 9.5
    assert 55 < counts.min() <= counts.max() < 150


def test_candidates_alone_are_chosen():
    candidates = np.array([3, 50, 51, 99])
    for selector in [Uniform(), *SELECTORS]:
        assert_array_equal(choose(10, candidates, selector=selector).indices, candidates)
        assert set(choose(2, candidates, selector=selector).indices) < set(candidates)
        assert_array_equal(choose(10, candidates, selector=selector).points, ROWS.X[candidates])


def test_given_points_are_copied_in_the_dtype_of_the_rows():
    points = np.asfortranarray(np.random.default_rng(0).standard_normal((5, 2)))
    selection = choose(3, selector=Given(points))
    assert selection.points.dtype == np.float32
    assert selection.points.flags.c_contiguous
    assert selection.indices is None
    assert not selection.sampled
    assert_array_equal(selection.points, points.astype(np.float32))
    same = points.astype(np.float32)
    selection = choose(3, selector=Given(same))
    same[:] = 7
    assert (selection.points != 7).all()


def test_given_points_may_say_that_they_were_drawn_uniformly():
    assert choose(3, selector=Given(ROWS.X[:5], sampled="uniform")).sampled
    with pytest.raises(ValueError, match="sampled='leverage' must be"):
        choose(3, selector=Given(ROWS.X[:5], sampled="leverage"))


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (np.ones(3), r"2-D array of numbers with at least one row, not .*shape \(3,\)"),
        (np.ones((0, 2)), r"shape \(0, 2\)"),
        (np.ones((4, 3)), "centers have 3 features, X has 2"),
        (np.full((4, 2), np.nan), "centers contain NaN or infinity"),
        (np.full((4, 2), np.inf), "centers contain NaN or infinity"),
        (np.array([["a", "b"]]), "2-D array of numbers"),
        (np.array([[1, None]], dtype=object), "2-D array of numbers"),
    ],
)
def test_wrong_points(points, message):
    with pytest.raises(ValueError, match=message):
        choose(3, selector=Given(points))
    for scale in (True, False):
        with pytest.raises(ValueError, match=message):
            FalkonRegressor(centers=points, scale=scale).fit(ROWS.X, ROWS.X[:, 0])


@pytest.mark.parametrize("sparse_rows", [True, False])
@pytest.mark.parametrize("layout", ["csr", "csc", "coo"])
def test_sparse_points_of_any_layout_are_scaled(layout, sparse_rows):
    X = scipy.sparse.random(60, 4, density=0.5, format="csr", random_state=0)
    points, y, rows = X[:20], X.toarray()[:, 0], X if sparse_rows else X.toarray()
    model = FalkonRegressor(KERNEL, centers=points.asformat(layout), penalty=1e-3, scale=True, random_state=0)
    model.fit(rows, y)
    found = model.centers_.toarray() if sparse_rows else model.centers_
    mean = 0 if sparse_rows else model.mean_  # sparse rows keep their zeros
    assert_allclose(found, (points.toarray() - mean) / model.scale_, rtol=1e-12, atol=1e-14)


def test_what_is_meant():
    for name, kind in NAMES.items():
        assert type(as_centers(name)) is kind
    assert isinstance(as_centers([[1.0, 2.0]]), Given)
    selector = Uniform()
    assert as_centers(selector) is selector
    with pytest.raises(
        ValueError, match=r"centers='best' is not known: use \"uniform\", .*, an array of points, or a selector"
    ):
        as_centers("best")
    with pytest.raises(ValueError, match="did you mean 'rpcholesky'"):
        as_centers("rp_cholesky")


def test_a_selector_of_ones_own():
    class First:
        def select(self, rows, n_centers, **options):
            indices = np.arange(n_centers)
            return Selection(rows.take(indices), indices)

    X = np.random.default_rng(0).standard_normal((300, 2))
    model = FalkonRegressor(n_centers=40, centers=First(), scale=False).fit(X, X[:, 0])
    assert_array_equal(model.centers_, X[:40])
    model = FalkonRegressor(n_centers=40, centers=First()).fit(X, X[:, 0])  # rows come to it scaled
    assert_allclose(model.centers_, (X[:40] - X.mean(axis=0)) / X.std(axis=0), rtol=1e-12, atol=1e-14)


# ---- what all that look at the data have in common -------------------------------------------------------------------


class Streamed:
    """A source that is no array."""

    def __init__(self, X):
        self.X, self.shape, self.dtype = X, X.shape, X.dtype

    def blocks(self, size):
        return (np.ascontiguousarray(self.X[start : start + size]) for start in range(0, len(self.X), size))

    def take(self, indices):
        return self.X[indices]


@every_selector
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_distinct_rows_in_their_order(selector, dtype):
    X = crowd(400).astype(dtype)
    selection = choose(40, selector=selector, rows=Streamed(X))
    assert len(selection.indices) == 40
    assert (np.diff(selection.indices) > 0).all()
    assert_array_equal(selection.points, X[selection.indices])
    assert selection.points.dtype == dtype
    assert selection.D.shape == (40,)
    assert (selection.D > 0).all()
    assert selection.n_draws >= 40
    assert selection.sampled is isinstance(selector, LeverageScores | Bless)
    assert_array_equal(choose(40, selector=selector, rows=X).indices, selection.indices)


@every_selector
def test_seeds(selector):
    X = crowd(400)
    first, again, other = (choose(30, selector=selector, rows=X, seed=seed) for seed in (0, 0, 1))
    assert_array_equal(first.indices, again.indices)
    assert_array_equal(first.D, again.D)
    assert not np.array_equal(first.indices, other.indices)
    assert_array_equal(choose(30, selector=selector, rows=X, seed=np.random.RandomState(0)).indices, first.indices)


@every_selector
def test_many_candidates_alone_are_chosen(selector):
    X = crowd(500)
    candidates = np.arange(7, 500, 3)
    selection = choose(30, candidates, selector=selector, rows=X)
    assert set(selection.indices) <= set(candidates)
    # as if the others were not there
    alone = choose(30, selector=selector, rows=X[candidates])
    assert_array_equal(selection.points, alone.points)
    assert_allclose(selection.D, alone.D)


@every_selector
@pytest.mark.parametrize("kernel", ["gaussian", Linear() + 1.0, lambda A, B: np.exp(-((A[:, None] - B) ** 2).sum(2))])
def test_kernels_of_all_kinds(selector, kernel):
    selection = choose(3, selector=selector, rows=crowd(200), kernel=kernel)
    assert len(selection.indices) == 3


@every_selector
def test_fewer_distinct_rows_than_centers(selector):
    X = np.repeat(np.random.default_rng(0).standard_normal((5, 2)), 40, axis=0)
    selection = choose(20, selector=selector, rows=X)
    assert len(np.unique(selection.points, axis=0)) == 5
    if not selection.sampled:
        assert len(selection.points) == 5


@every_selector
@pytest.mark.parametrize("penalty", [0.0, 1e-12, 1e3])
def test_any_penalty(selector, penalty):
    """Far below what 20 centers can resolve, and so large that every row is as good as another."""
    selection = choose(20, selector=selector, rows=crowd(300), penalty=penalty)
    assert len(selection.points) == 20
    assert np.isfinite(selection.D).all()


@every_selector
def test_rank_deficient(selector):
    X = np.random.default_rng(0).standard_normal((300, 3))
    selection = choose(30, selector=selector, rows=X, kernel=Linear(), penalty=0.0)
    assert np.linalg.matrix_rank(selection.points) == 3


@every_selector
def test_a_kernel_that_is_not_positive(selector):
    X = np.random.default_rng(0).standard_normal((300, 3))
    if isinstance(selector, Bless):  # whose weighted set has nothing but negative scores to give
        with pytest.raises(ValueError, match=r"Sigmoid\(.*is not positive at the rows drawn; choose"):
            choose(20, selector=selector, rows=X, kernel=Sigmoid(gamma=1.0, coef0=-0.5))
        return
    selection = choose(20, selector=selector, rows=X, kernel=Sigmoid(gamma=1.0, coef0=-0.5))
    assert 1 <= len(selection.points) <= 20
    assert np.isfinite(selection.D).all()


class Negative(Kernel):
    geometry = "distance"

    def profile(self, s):
        return -np.exp(-s)


@pytest.mark.parametrize("selector", [LeverageScores(), LeverageScores(approximate=False), Bless(), RPCholesky()])
def test_no_positive_score_at_all(selector):
    with pytest.raises(ValueError, match=r"every leverage score is zero: Negative\(\)"):
        choose(5, selector=selector, rows=np.eye(20), kernel=Negative())


@every_selector
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_centers": 0}, "n_centers=0 must be an integer of at least 1"),
        ({"n_centers": 2.5}, "n_centers=2.5"),
        ({"penalty": -1.0}, "penalty=-1.0 must be a finite number, not negative"),
        ({"penalty": np.nan}, "penalty=nan"),
        ({"kernel": "best"}, "kernel='best' is not known"),
        ({"rows": np.full((50, 2), np.nan)}, "NaN or infinity"),
        ({"rows": np.zeros(5)}, "2-D array"),
    ],
)
def test_bad_input(selector, options, message):
    with pytest.raises(ValueError, match=message):
        choose(**{"n_centers": 10, "rows": crowd(50), "selector": selector} | options)


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        (LeverageScores(penalty=0.0), "penalty=0.0 must be a positive finite number, or None"),
        (Bless(penalty=-1.0), "penalty=-1.0"),
        (LeverageScores(n_pilot=0), "n_pilot=0 must be an integer of at least 1"),
        (Bless(oversampling=0.5), "oversampling=0.5 must be a finite number of at least 1"),
        (Bless(max_rows=0), "max_rows=0"),
        (RPCholesky(block_size=0), "block_size=0"),
        (RPCholesky(max_rows=-3), "max_rows=-3"),
        (KMeansPlusPlus(max_rows=2.5), "max_rows=2.5"),
    ],
)
def test_bad_parameters(selector, message):
    with pytest.raises(ValueError, match=message):
        choose(10, selector=selector, rows=crowd(50))


@pytest.mark.parametrize("selector", [Uniform(), Given(np.eye(2)), *SELECTORS], ids=lambda s: type(s).__name__)
def test_selectors_are_plain_objects(selector, tmp_path):
    assert repr(clone(selector)) == repr(selector) == repr(pickle.loads(pickle.dumps(selector)))
    X = crowd(200)
    model = FalkonRegressor(KERNEL, centers=selector, n_centers=20, random_state=0).fit(X, np.sin(X[:, 0]))
    model.save(tmp_path / "model")
    loaded = gyrfalcon.load(tmp_path / "model")
    assert repr(loaded.centers) == repr(selector)
    assert_array_equal(loaded.predict(X), model.predict(X))
    assert_array_equal(clone(model).fit(X, np.sin(X[:, 0])).centers_, model.centers_)


@pytest.mark.parametrize("name", NAMES)
def test_names_fit(name):
    X = crowd(2000)
    y = np.sin(2 * X[:, 0]) + X[:, 1]
    # unscaled: scaling would spread the rows, and a length of 1 would reach fewer of them
    options = {"n_centers": 200, "penalty": 1e-6, "fit_intercept": False, "scale": False, "random_state": 0}
    model = FalkonRegressor(KERNEL, centers=name, **options).fit(X, y)
    # a few rows far from the others, which uniform centers miss, have most of the variance
    assert model.score(X, y) > (0.6 if name == "uniform" else 0.99)


# ---- drawn with known probabilities ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "selector",
    [LeverageScores(), LeverageScores(approximate=False), Bless(penalty=0.3), Bless(penalty=0.3, max_rows=150)],
    ids=repr,
)
def test_D_makes_the_estimate_unbiased(selector):
    """The mean over many draws of K_NM D^2 K_MN / M is K_NN K_NN / n, here on every fourth row."""
    X = crowd(200)
    K = KERNEL(X, X)
    seen = K[::4]
    total = np.zeros((50, 50))
    runs = 120
    for seed in range(runs):
        selection = choose(40, selector=selector, rows=X, seed=seed)
        columns = seen[:, selection.indices] * selection.D
        total += columns @ columns.T / selection.n_draws
    expected = seen @ seen.T / len(X)
    assert np.linalg.norm(total / runs - expected) < 0.05 * np.linalg.norm(expected)
    assert np.trace(total / runs) == pytest.approx(np.trace(expected), rel=0.05)


def test_rows_are_drawn_in_proportion_to_their_scores():
    X = crowd(100)
    scores = leverage_scores(X, KERNEL, 1e-2)
    counts = np.zeros(100)
    for seed in range(150):
        selection = choose(5, selector=LeverageScores(penalty=1e-2, approximate=False), rows=X, seed=seed)
        # at a dimension above M / 2 the scores are taken at a larger penalty: see the next test
        counts[selection.indices] += 1
    rare = scores > 3 * np.median(scores)
    assert rare.any()
    assert counts[rare].mean() > 3 * counts[~rare].mean()


def test_scores_are_taken_where_the_centers_can_resolve_them():
    X = crowd(400)
    scoring = Scoring(X, KERNEL, 0)
    for M in (10, 40):
        penalty = resolvable_penalty(scoring, X, 1e-12, M)
        assert leverage_scores(X, KERNEL, penalty).sum() == pytest.approx(M / 2, rel=1e-3)
    assert resolvable_penalty(scoring, X, 0.5, 40) == 0.5


def test_rare_rows_are_found():
    """Ten rows of a thousand far from all others: uniform centers would have one of them in ten at most."""
    near = 0.1 * np.random.default_rng(0).standard_normal((990, 2))
    X = np.concatenate([near, 10 + 5.0 * np.arange(20).reshape(10, 2)])
    for selector in SELECTORS:
        found = choose(40, selector=selector, rows=X, penalty=1e-4).indices
        assert np.sum(found >= 990) >= 9, selector


def test_a_skewed_distribution_ends():
    """One row has nearly all of the scores: then there may be fewer centers than asked for, not a draw without end."""
    X = np.full((50, 1), 1e-6)
    X[7] = 1.0
    selection = choose(20, selector=LeverageScores(), rows=X, kernel=Linear(), penalty=1e-1)
    assert 7 in selection.indices
    assert selection.n_draws <= 100 * 20 + 5 * np.sqrt(100 * 20)  # a Poisson number of draws
    assert (selection.D > 0).all()


def test_draws_while_rows_are_read_are_draws_with_replacement():
    """Which rows, and how many draws until there are three of them: as often as NumPy's draws have them."""
    scores, M, times = np.array([0.9, 0.02, 0.3, 0.0, 0.5, 0.1, 0.25]), 3, 2_000
    X = np.arange(7.0)[:, None]
    scored = [(slice(start, min(start + 3, 7)), X[start : start + 3], scores[start : start + 3]) for start in (0, 3, 6)]
    random = np.random.RandomState(0)
    found, expected = np.zeros((2, 7, 2)), np.zeros((2, 7, 2))  # means of presence and count, and of their squares
    for _ in range(times):
        choice = _draw_distinct(random, scored, M, ValueError())
        assert_array_equal(choice.points[:, 0], choice.places)
        counts = np.zeros(7)
        counts[choice.places] = np.rint(choice.D**2 * 7 * scores[choice.places] / scores.sum())
        assert counts.sum() == choice.n_draws
        draws = random.choice(7, 60, p=scores / scores.sum())
        seen = np.sort(np.unique(draws, return_index=True)[1])
        direct = np.bincount(draws[: seen[M - 1] + 1], minlength=7)
        for means, drawn in ((found, counts), (expected, direct)):
            both = np.stack([drawn > 0, drawn], axis=1)
            means += np.stack([both, np.square(both)]) / times
    deviation = np.sqrt((expected[1] - expected[0] ** 2) / times * 2)
    assert (np.abs(found[0] - expected[0]) <= 4.5 * deviation + 1e-12).all()


# ---- RPCholesky and k-means++ ----------------------------------------------------------------------------------------


def trace_error(K, S):
    """trace(K - K_NS K_SS^+ K_SN), relative."""
    nystrom = K[:, S] @ np.linalg.lstsq(K[np.ix_(S, S)], K[S], rcond=1e-13)[0]
    return np.trace(K - nystrom) / np.trace(K)


@pytest.mark.parametrize("accelerated", [True, False])
def test_trace_error_of_rpcholesky_is_within_the_published_bound(accelerated):
    """Theorem 5.1 of Chen, Epperly, Tropp and Webber: r / eps + r log(1 / (eps eta)) pivots make the expected trace
    error at most (1 + eps) times that of the best approximation of rank r, eta being its relative error."""
    X = crowd(300)
    K = KERNEL(X, X)
    eigenvalues = np.sort(np.maximum(np.linalg.eigvalsh(K), 0))[::-1]
    for r, eps in [(4, 1.0), (8, 1.0), (8, 0.5)]:
        eta = eigenvalues[r:].sum() / eigenvalues.sum()
        M = int(np.ceil(r / eps + r * np.log(1 / (eps * eta))))
        errors = [
            trace_error(K, choose(M, selector=RPCholesky(accelerated=accelerated), rows=X, seed=seed).indices)
            for seed in range(10)
        ]
        assert np.mean(errors) <= (1 + eps) * eta


def test_accelerated_and_plain_draw_alike():
    X = crowd(300)
    K = KERNEL(X, X)
    errors = {
        block: np.array(
            [
                trace_error(K, choose(25, selector=RPCholesky(block_size=block), rows=X, seed=seed).indices)
                for seed in range(60)
            ]
        )
        for block in (1, 10, 60)
    }
    plain = errors.pop(1)
    for accelerated in errors.values():
        deviation = np.hypot(plain.std(), accelerated.std()) / np.sqrt(60)
        assert abs(plain.mean() - accelerated.mean()) < 3.5 * deviation
    assert plain.mean() < 0.5 * np.mean([trace_error(K, choose(25, rows=X, seed=seed).indices) for seed in range(20)])


def test_rpcholesky_stops_where_float64_sees_no_more():
    X = np.random.default_rng(0).standard_normal((400, 1))
    selection = choose(300, selector=RPCholesky(), rows=X, kernel=Gaussian(2.0))
    assert len(selection.points) < 60
    assert trace_error(Gaussian(2.0)(X, X), selection.indices) < 1e-10


@pytest.mark.parametrize("selector", [RPCholesky(max_rows=60), KMeansPlusPlus(max_rows=60)], ids=repr)
def test_weights_are_shares_of_the_rows(selector):
    X = crowd(400)
    selection = choose(20, selector=selector, rows=X)
    assert np.sum(selection.D**2) == pytest.approx(20)
    whole = clone(selector).set_params(max_rows=None).select(X, 20, kernel=KERNEL, penalty=1e-3, random_state=0)
    distance = ((X[:, None] - whole.points) ** 2).sum(axis=2)
    share = np.bincount(distance.argmin(axis=1), minlength=20) / 400
    assert_allclose(whole.D**2, 20 * share)


def test_fewer_rows_in_the_pool_than_centers_are_not_taken_at_their_word():
    assert len(choose(20, selector=KMeansPlusPlus(max_rows=3), rows=crowd(400)).points) == 20


def test_kmeans_covers_the_data():
    """The largest squared distance in feature space from a row to its center, against uniform centers."""
    X = crowd(400)
    K = KERNEL(X, X)

    def cost(selection):
        return np.mean((2 - 2 * K[:, selection.indices]).min(axis=1))

    seeds = range(10)
    kmeans = [cost(choose(20, selector=KMeansPlusPlus(), rows=X, seed=seed)) for seed in seeds]
    assert np.mean(kmeans) < 0.8 * np.mean([cost(choose(20, rows=X, seed=seed)) for seed in seeds])


def test_pool_of_rpcholesky_fits_in_memory(monkeypatch):
    monkeypatch.setattr(sampling, "available_memory", lambda: 4 * 8 * 50 * 200)
    assert sampling.pool_size(None, 50, 10**6, numbers_a_row=50) == 200
    assert sampling.pool_size(None, 50, 10**6) == 20_000
    assert sampling.pool_size(None, 5_000, 10**6) == 100_000


@pytest.mark.parametrize(
    ("name", "readings"),
    [
        ("uniform", ["take"]),
        ("bless", ["take"]),
        ("rpcholesky", ["take"]),
        ("kmeans++", ["take"]),
        ("leverage", ["take", "blocks"]),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_file_is_read_once_or_for_scores_of_all_rows_again(name, readings, dtype, monkeypatch):
    """The points and their indices agree whether they come from the pool in memory or from the source."""
    monkeypatch.setattr("gyrfalcon.centers.leverage._SCALE_ROWS", 100)
    monkeypatch.setattr("gyrfalcon.centers.leverage_sampling._SPECTRUM_ROWS", 100)
    monkeypatch.setattr("gyrfalcon.centers.leverage_sampling.LARGEST_POOL", 500)
    monkeypatch.setattr(sampling, "_POOL", 500)
    seen = []

    class Read(ArrayRows):
        def blocks(self, size):
            seen.append("blocks")
            yield from super().blocks(size)

        def take(self, indices):
            if len(indices):
                seen.append("take")
            return super().take(indices)

    X = crowd(3_000).astype(dtype)
    selection = choose(20, rows=Read(X), selector=as_centers(name))
    assert seen == readings
    assert selection.points.dtype == dtype
    assert_array_equal(selection.points, X[selection.indices])
    assert_array_equal(np.unique(selection.indices), selection.indices)


@pytest.mark.parametrize("kind", [RPCholesky, KMeansPlusPlus, Bless])
def test_no_more_rows_are_chosen_from_than_asked_for(kind, monkeypatch):
    sizes = []
    indices = Scoring.indices

    def watched(self, size):
        found = indices(self, size)
        sizes.append(len(found))
        return found

    monkeypatch.setattr(Scoring, "indices", watched)
    choose(20, rows=ArrayRows(crowd(3_000)), selector=kind(max_rows=40))
    assert sizes[-1] == 40


def test_sparse_rows_come_from_the_pool_too():
    X = scipy.sparse.csr_array(np.round(crowd(300), 1))
    selection = choose(20, rows=gyrfalcon.sources.as_rows(X), selector=KMeansPlusPlus())
    assert_array_equal(selection.points.toarray(), X[selection.indices].toarray())
