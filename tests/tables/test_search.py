"""The search: samples whose rows are judged honestly, exact fits of them, and metrics that do not follow noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.model_selection import TimeSeriesSplit

from gyrfalcon._utils.compute import Compute
from gyrfalcon.kernels import Laplacian, Matern
from gyrfalcon.tables import search as _search
from gyrfalcon.tables.blending import best_temperature, greedy_log_weights
from gyrfalcon.tables.budget import Budget
from gyrfalcon.tables.screening import SearchSample, screen
from gyrfalcon.tables.search import Search, View
from gyrfalcon.tables.transforms import Target, targets_of
from gyrfalcon.tables.validation import Split, plan_folds


def random_state(seed=0):
    return np.random.RandomState(seed)


def plan(n, cv=5, n_validation=0, groups=None, largest=60_000):
    return plan_folds(cv, n, n_validation, np.zeros((n + n_validation, 1)), groups, None, largest, random_state())


def drawn(given, sizes=(300, 800), n=None):
    counted = np.ones(len(given.fold) if n is None else n, dtype=bool)
    return given.draw(sizes, counted, random_state(1))


def rows(sample, positions):
    return set(sample.indices[positions].tolist())


# ---- samples ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 7, 40, 200, 700, 1_500, 5_000])
def test_no_split_judges_by_what_it_learnt_from(n):
    first, second = drawn(plan(n))
    held = set()
    for sample in [one for one in (first, second) if one is not None]:
        for split in sample.splits:
            assert len(split.train) > 0
            assert len(split.held) > 0
            assert not rows(sample, split.train) & rows(sample, split.held)
            assert not held & rows(sample, split.held)  # no row judges twice
            held |= rows(sample, split.held)
    assert sum(len(split.train) ** 2 for split in first.splits) <= 1.36 * 300**2


@pytest.mark.parametrize(("n", "times"), [(100, 5), (400, 3), (600, 2), (2_000, 1)])
def test_small_tables_are_judged_by_more_folds(n, times):
    first, _ = drawn(plan(n))
    assert len(first.splits) == times
    assert sum(len(split.held) for split in first.splits) >= min(0.95 * n, 200)


@pytest.mark.parametrize("n", [600, 2_000])
def test_the_second_sample_is_judged_by_rows_the_first_has_not_seen(n):
    first, second = drawn(plan(n))
    assert second is not None
    for split in second.splits:
        assert not rows(second, split.held) & set(first.indices.tolist())


def test_groups_are_on_one_side():
    groups = np.arange(3_000) // 10
    for sample in drawn(plan(3_000, groups=groups)):
        for split in sample.splits:
            assert not set(groups[list(rows(sample, split.train))]) & set(groups[list(rows(sample, split.held))])


@pytest.mark.parametrize("given", [plan(2_000, n_validation=1_200), plan(3_000, largest=2_000)], ids=["given", "large"])
def test_rows_that_always_judge_are_shared_out(given):
    first, second = drawn(given)
    always = set(np.flatnonzero(given.fold == 0).tolist())
    assert second is not None or len(always) < 1_000
    for sample in [one for one in (first, second) if one is not None]:
        (split,) = sample.splits
        assert rows(sample, split.held) <= always
        assert not rows(sample, split.train) & always
    if second is not None:
        assert not rows(first, first.splits[0].held) & rows(second, second.splits[0].held)


def test_time_is_not_turned_back():
    first, _ = drawn(plan(500, cv=TimeSeriesSplit(3)))
    (split,) = first.splits
    assert max(rows(first, split.train)) < min(rows(first, split.held))


# ---- exact fits ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_screening_solves_each_split(weighted):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((90, 3)).astype(np.float32), rng.standard_normal((90, 2))
    weight = rng.uniform(0.5, 1.5, 90) if weighted else None
    splits = (Split(np.arange(60), np.arange(60, 75)), Split(np.arange(15, 75), np.arange(75, 90)))
    kernels = [Laplacian(3.0, norm=1), Matern(2.0, nu=1.5)]
    ridges = np.array([0.1, 3.0])
    found = screen(
        kernels, [X, X], SearchSample(y, splits, weight), ridges, random_state=random_state(), compute=Compute(1)
    )
    errors, expected = np.zeros(2), np.zeros((2, 90, 2))
    for kernel, split in zip(kernels, splits, strict=True):
        Z = X[split.train].astype(np.float64)
        K = kernel(Z, Z)
        inverse = np.ones(len(Z)) if weight is None else 1 / weight[split.train]
        for place, mu in enumerate(ridges):
            coef = np.linalg.solve(K + mu * np.diag(inverse), y[split.train])
            expected[place, split.held] = kernel(X[split.held].astype(np.float64), Z) @ coef
            off = np.square(expected[place, split.held] - y[split.held]).sum(axis=1)
            errors[place] += off.sum() if weight is None else (off * weight[split.held]).sum()
    best = int(errors.argmin())
    assert found.mu == ridges[best]
    # a residual of a hundredth of the deviation of y bounds what fitted values are off by
    assert_allclose(found.predictions, expected[best], atol=0.03)
    assert not found.predictions[:60].any()
    assert [coef.shape for coef in found.coefs] == [(60, 2), (60, 2)]


def searched(X, y, sizes=(400, 1_000), budget=60.0):
    given = plan(len(X))
    first, second = drawn(given, sizes)
    targets = ((y - y.mean()) / y.std())[:, None]

    def search(sample):
        own = SearchSample(targets[sample.indices], sample.splits)
        return Search(
            [View("robust", X[sample.indices].astype(np.float32))], own, [Target()], Budget(budget), random_state(),
            Compute(1), lambda candidate: None,
        )  # fmt: skip

    finder = search(first)
    finder.run()
    if second is None:
        return finder, None
    refiner = search(second)
    refiner.refine(finder.finalists[:3])
    return finder, refiner


def test_logarithms_of_numbers_that_are_lost_beside_the_mean():
    y = 10.0 ** np.linspace(-20, 20, 101)
    _, log = targets_of(y)
    found = log.standard_forward((y - log.mean) / log.deviation)
    assert np.isfinite(found).all()
    large = y > 1e8  # what is smaller is less than the rounding of the largest
    assert_allclose(found[large], (np.log(y[large]) - log.center) / log.width, rtol=0, atol=0.01)


def skewed(n=200):
    return np.exp(2 * np.random.default_rng(0).standard_normal(n))


@pytest.mark.parametrize("y", [skewed(), 1e9 + skewed(), np.column_stack([skewed(), 1e12 * skewed()])])
def test_targets_go_forward_and_back(y):
    for target in targets_of(y):
        there = target.forward(y)
        assert there.shape == y.shape
        assert_allclose(target.inverse(there), y.reshape(len(y), -1), rtol=1e-12)


def test_standardised_targets_go_forward_and_back():
    y = skewed()
    plain, log = targets_of(y)
    codes = ((y - y.mean()) / y.std())[:, None]
    assert plain.standard_forward(codes) is codes
    there = log.standard_forward(codes)
    assert_allclose([there.mean(), there.std()], [0, 1], atol=1e-12)
    assert_allclose(log.standard_inverse(there), codes, rtol=0, atol=1e-12)
    assert_allclose(log.standard_inverse(there) * log.deviation + log.mean, log.inverse(log.forward(y)), rtol=1e-11)


def test_logarithms_are_clipped_far_outside_the_training_targets_alone():
    """A bound around the mean of log y cut off targets of training that span many orders of magnitude."""
    y = 10.0 ** np.linspace(-20, 20, 101)
    _, log = targets_of(y)
    assert_allclose(log.inverse(log.forward(y))[:, 0], y, rtol=1e-12)
    assert np.isfinite(log.inverse(np.array([-1e6, 1e6]))).all()


def test_a_cancelled_budget_ends_its_parts_and_not_the_whole():
    whole = Budget(1000.0)
    search = whole.until(500.0)
    part = search.until(100.0)
    assert 0 < part.left <= 100
    search.cancel()
    assert (search.left, part.left) == (0, 0)
    assert part.cancelled
    assert not whole.cancelled
    assert whole.left > 500


def test_a_cancelled_search_tries_one_candidate():
    X = np.random.default_rng(0).standard_normal((100, 2))
    first, _ = drawn(plan(100))
    budget, told = Budget(600.0), []
    budget.cancel()
    sample = SearchSample(X[first.indices, :1], first.splits)
    view = View("robust", X[first.indices].astype(np.float32))
    search = Search([view], sample, [Target()], budget, random_state(), Compute(1), told.append)
    search.run()
    assert told == search.candidates
    assert len(told) == 1


def test_noise_is_not_learnt():
    # with the metric learnt from all rows, and the same rows held out in turn, this error was 0.93
    rng = np.random.default_rng(0)
    finder, _ = searched(rng.standard_normal((300, 30)), rng.standard_normal(300))
    assert finder.best.error > 0.98


def test_the_best_is_worth_another_look_also_where_nothing_is_left_to_learn():
    """Where y is constant, or rows of the other class are all elsewhere, errors are 0."""
    rng = np.random.default_rng(0)
    finder, _ = searched(rng.standard_normal((300, 2)), rng.standard_normal(300), budget=0.5)
    finder.candidates = [replace(one, error=0.0) for one in finder.candidates]
    assert finder.shortlist(3)[0] is finder.best


@pytest.mark.parametrize(("n", "gain"), [(300, 0.8), (3_000, 0.7)])
def test_a_direction_is_found_by_a_matrix(n, gain):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 8))
    y = np.sin(2 * X @ np.ones(8) / np.sqrt(8)) + 0.1 * rng.standard_normal(n)
    finder, refiner = searched(X, y)
    search = finder if refiner is None else refiner
    assert (refiner is None) == (n == 300)
    assert search.best.mixing is not None
    straight = min(one.error for one in search.candidates if one.mixing is None)
    assert search.best.error < gain * straight
    vectors = np.linalg.eigh(search.best.metric)[1]
    assert abs(vectors[:, -1] @ np.ones(8)) / np.sqrt(8) > 0.98


def test_a_split_without_a_gradient_keeps_its_scales_beside_matrices(monkeypatch):
    """Matrices of other splits are averaged with its own, which must be one."""
    found, matrices = _search.mean_square_gradient, []

    def vanishing(*arguments, full, **options):
        squares = found(*arguments, full=full, **options)
        matrices.extend([squares] if full else [])
        return np.zeros_like(squares) if full and len(matrices) % 2 else squares

    monkeypatch.setattr(_search, "mean_square_gradient", vanishing)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 4))
    finder, _ = searched(X, np.sin(2 * X.sum(axis=1)))
    assert len(matrices) > 1
    mixed = [one for one in finder.candidates if one.mixing is not None]
    assert mixed
    for candidate in mixed:
        assert {metric.shape for metric in candidate.metrics} == {(4, 4)}


def test_columns_that_do_not_matter_shrink():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2_000, 12))
    finder, refiner = searched(X, np.sin(2 * X[:, 0]) * X[:, 1])
    assert refiner is not None
    metric = min((one for one in refiner.candidates if one.mixing is None), key=lambda one: one.error).metric
    assert metric[2:].max() < 0.1 * metric[:2].min()
    assert refiner.best.error < finder.best.error


# ---- averages of classes ---------------------------------------------------------------------------------------------


def test_weights_of_classes_are_those_of_the_least_log_loss():
    rng = np.random.default_rng(0)
    z = rng.standard_normal(4_000)
    labels = (rng.uniform(size=len(z)) < 1 / (1 + np.exp(-2 * z))).astype(int)
    members = [np.stack([np.zeros(len(z)), 2 * z + rng.standard_normal(len(z))], axis=1) for _ in range(2)]
    members.append(np.stack([np.zeros(len(z)), rng.standard_normal(len(z))], axis=1))
    weights = greedy_log_weights(members, labels)
    assert weights.sum() == pytest.approx(1)

    def loss(weights, T=1.0):
        score = np.einsum("m,mn->n", weights, np.stack(members)[:, :, 1]) / T
        return np.mean(np.logaddexp(0, score) - labels * score)

    grid = [(a, b, 1 - a - b) for a in np.linspace(0, 1, 21) for b in np.linspace(0, 1, 21) if a + b <= 1]
    assert loss(weights) <= min(loss(one) for one in grid) + 1e-3  # weights are multiples of a fortieth
    found = best_temperature(np.einsum("m,mnk->nk", weights, np.stack(members)), labels)
    assert loss(weights, found) <= min(loss(weights, T) for T in np.linspace(0.4, 2.9, 60)) + 1e-9
