"""The steps that lead to a subspace, each alone: plan, penalty, centers, precision, operator, targets."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from gyrfalcon._utils.compute import Compute
from gyrfalcon.centers import Given, Selection
from gyrfalcon.fitting.auto_penalty import as_penalty
from gyrfalcon.fitting.data import FitData
from gyrfalcon.fitting.plan import Needs, Plan, check_memory
from gyrfalcon.fitting.precision import in_suitable_precision
from gyrfalcon.fitting.subspace import (
    CenterSettings,
    ChosenCenters,
    WarmStart,
    choose_centers,
    choose_operator,
    choose_subspace,
    default_n_centers,
    moderate_targets,
)
from gyrfalcon.kernels import Gaussian, Linear
from gyrfalcon.operators.keeping import FEW_PASSES
from gyrfalcon.sources import as_rows
from gyrfalcon.storage.checkpoints import CheckpointError

KERNEL = Gaussian(1.0)
ONE = Compute(n_jobs=1)


def data(n=200, dtype=np.float64, **more):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 3))
    return FitData(as_rows(X.astype(dtype)), np.sin(X[:, :1]), **more)


def seed():
    return np.random.RandomState(0)


# ---- plan ------------------------------------------------------------------------------------------------------------


def test_the_plan_counts_bytes_by_purpose():
    rows = data(1000).rows
    needs = Plan(rows, 2, Needs(buffers=3, row_vectors=5, held=lambda M: 7 * M), ONE).bytes_needed(50)
    assert needs["the factors"] == 3 * 50 * 50 * 8
    assert needs["the centers"] == 2 * 50 * 3 * 8
    assert needs["vectors"] == 5 * 1000 * 2 * 8 + 12 * 8 * 50 * 2 + 7 * 50
    assert needs["reading"] == 0


def test_the_number_of_centers_that_a_refusal_names_is_the_largest_that_fits():
    plan = Plan(data(2000).rows, 1, Needs(), Compute(1, "1MB"))
    with pytest.raises(MemoryError, match=r"2000 centers take .* n_centers=") as refused:
        plan.check(2000)
    fits = int(str(refused.value).split("n_centers=")[1].split()[0])
    plan.check(fits)
    with pytest.raises(MemoryError):
        plan.check(fits + 1)


def test_factors_of_few_centers_are_made_in_float64():
    plan = Plan(data(dtype=np.float32).rows, 1, Needs(), ONE)
    assert [plan.factors(M) for M in (100, 1_500, 1_501)] == [np.float64, np.float64, np.float32]


def test_what_is_left_is_what_the_budget_has_beside_the_plan():
    plan = Plan(data().rows, 1, Needs(), Compute(1, 10**7))
    total = sum(plan.bytes_needed(20).values())
    assert plan.left(20) == plan.spare(20) == 10**7 - total
    assert Plan(data().rows, 1, Needs(), Compute(1, 10)).left(20) == 0


def test_memory_is_refused_with_its_purposes():
    assert check_memory(100, {"a": 60, "b": 40}, "this takes", "take less") == 100
    with pytest.raises(
        MemoryError, match=r"^this takes 101 bytes \(60 bytes for a, 41 bytes for b\), and .*: take less$"
    ):
        check_memory(100, {"a": 60, "b": 41}, "this takes", "take less")
    with pytest.raises(MemoryError, match=r"^this takes 101 bytes, and .*: 10 would fit$"):
        check_memory(100, {"a": 101}, "this takes", lambda limit: f"{limit // 10} would fit")


# ---- penalty ---------------------------------------------------------------------------------------------------------


def test_a_penalty_that_is_given_is_returned():
    assert as_penalty(1e-3, KERNEL, data(), seed(), ONE) == 1e-3


def test_noise_asks_for_a_larger_penalty():
    clean = data(600)
    noisy = FitData(clean.rows, clean.targets + np.random.default_rng(1).standard_normal(clean.targets.shape))
    assert as_penalty("auto", KERNEL, noisy, seed(), ONE) > 10 * as_penalty("auto", KERNEL, clean, seed(), ONE) > 0


# ---- centers ---------------------------------------------------------------------------------------------------------


def test_how_many_centers_are_asked_for():
    assert CenterSettings(KERNEL, 7).wanted(1000) == 7
    assert CenterSettings(KERNEL).wanted(10**7) == default_n_centers(10**7) == 6324
    assert CenterSettings(KERNEL, 7, np.eye(3)).wanted(1000) == 3
    assert CenterSettings(KERNEL, 7, Given(np.eye(4))).wanted(1000) == 4


def test_centers_are_rows_with_their_weights():
    weight = np.random.default_rng(1).uniform(0.5, 1.5, 200)
    given = data(weight=weight)
    chosen = choose_centers(CenterSettings(KERNEL, 9), given, 0.0, seed(), ONE)
    at = chosen.selection.indices
    assert len(set(at.tolist())) == 9
    assert_array_equal(chosen.selection.points, given.rows.take(at))
    assert_array_equal(chosen.weight, weight[at])


def test_given_centers_are_scaled_as_the_rows():
    mean, scale = np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 8.0])
    chosen = choose_centers(CenterSettings(KERNEL, None, np.eye(3)), data(mean=mean, scale=scale), 0.0, seed(), ONE)
    assert_allclose(chosen.selection.points, (np.eye(3) - mean) / scale)


def test_a_warm_start_keeps_its_centers_while_the_same_are_asked_for():
    given, known = data(), np.full((4, 3), 0.5)
    warm = WarmStart(ChosenCenters(Selection(known), None, 4, "uniform"), np.arange(4.0))
    same = choose_centers(CenterSettings(KERNEL, 4), given, 0.0, seed(), ONE, warm)
    assert_array_equal(same.selection.points, known)
    other = choose_centers(CenterSettings(KERNEL, 5), given, 0.0, seed(), ONE, warm)
    assert other.selection.points.shape == (5, 3)


def test_coefficients_are_those_of_the_same_centers_and_targets_alone():
    known = np.eye(3)
    warm = WarmStart(ChosenCenters(Selection(known), None, 3, "uniform"), np.arange(6.0))
    assert_array_equal(warm.coef_at(known, 2), np.arange(6.0).reshape(3, 2))
    assert warm.coef_at(known, 1) is None
    assert warm.coef_at(2 * known, 2) is None


# ---- precision -------------------------------------------------------------------------------------------------------


def test_precision_follows_the_penalty_unless_it_was_given():
    points = data().rows.take(np.arange(20)).astype(np.float32)
    assert in_suitable_precision(data(dtype=np.float32), KERNEL, points, 1e-2).rows.dtype == np.float32
    assert in_suitable_precision(data(dtype=np.float32), KERNEL, points, 1e-12).rows.dtype == np.float64
    with pytest.warns(UserWarning, match="penalty=1e-12 is below the rounding errors of float32"):
        kept = in_suitable_precision(data(dtype=np.float32, dtype_given=True), KERNEL, points, 1e-12)
    assert kept.rows.dtype == np.float32


# ---- operator --------------------------------------------------------------------------------------------------------


def test_the_operator_keeps_its_matrix_only_within_the_budget():
    rows = data().rows
    points, size = rows.take(np.arange(10)), 8 * 200 * 10
    many, given = FEW_PASSES + 1, Compute(1, "1GB")
    assert not choose_operator(KERNEL, rows, points, given, size - 1, many).keeps
    kept = choose_operator(KERNEL, rows, points, given, size, many)
    assert kept.keeps
    assert_allclose(kept.matmat(np.ones(10)), KERNEL(rows.take(np.arange(200)), points).sum(axis=1))


def test_a_resumed_fit_keeps_what_it_kept():
    given, needs = data(), Needs(passes=FEW_PASSES + 1)
    settings = CenterSettings(KERNEL, 10)
    first = choose_subspace(settings, needs, given, Compute(1, 0), seed())
    begun = first.beginning({})
    more = choose_subspace(settings, needs, given, Compute(1, "1GB"), np.random.RandomState(1), begun=begun)
    assert not more.operator.keeps
    assert_array_equal(more.operator.centers, first.operator.centers)
    kept = choose_subspace(settings, needs, given, Compute(1, "1GB"), seed()).beginning({})
    with pytest.raises(CheckpointError, match="raise memory_budget=0"):
        choose_subspace(settings, needs, given, Compute(1, 0), seed(), begun=kept)


# ---- targets ---------------------------------------------------------------------------------------------------------


def test_moderate_targets_stay_as_they_are():
    y = np.array([[1.0, -1000.0], [0.25, 3.0]])
    targets, scale = moderate_targets(y, np.dtype(np.float64))
    assert targets is y
    assert_array_equal(scale, 1.0)


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_large_and_small_targets_are_divided_by_powers_of_two(size):
    y = np.array([[size, 1.0], [-size / 3, 0.5]])
    targets, scale = moderate_targets(y, np.dtype(np.float32))
    assert targets.dtype == np.float32
    assert np.abs(targets).max() <= 2
    assert_array_equal(np.frexp(scale)[0], 0.5)
    assert_allclose(targets * scale, y, rtol=np.finfo(np.float32).eps)


# ---- all of them -----------------------------------------------------------------------------------------------------


def test_a_subspace_is_what_the_steps_have_found():
    given = data(600, dtype=np.float32)
    space = choose_subspace(
        CenterSettings(KERNEL, 30), Needs(penalty="auto", resolves_penalty=True), given, ONE, seed()
    )
    draws = seed()
    penalty = as_penalty("auto", KERNEL, given, draws, ONE)
    chosen = choose_centers(CenterSettings(KERNEL, 30), given, penalty, draws, ONE)
    assert space.penalty == penalty
    assert_array_equal(space.selection.indices, chosen.selection.indices)
    assert space.start is None


def test_a_term_that_float32_would_lose_makes_all_of_it_float64():
    points = np.random.default_rng(0).standard_normal((100, 2)).astype(np.float32)
    kernel = Linear() + 1e-6 * Gaussian(1.0)
    space = choose_subspace(
        CenterSettings(kernel, 10), Needs(), FitData(as_rows(100 * points), points[:, :1]), ONE, seed()
    )
    kinds = {space.data.rows.dtype, space.operator.dtype, space.selection.points.dtype, space.targets.dtype}
    assert kinds == {np.dtype(np.float64)}
