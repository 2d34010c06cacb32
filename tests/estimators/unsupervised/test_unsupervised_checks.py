"""scikit-learn's checks of the estimators without targets."""

from __future__ import annotations

from sklearn.utils.estimator_checks import parametrize_with_checks

from gyrfalcon import KernelKMeans, KernelPCA, NoveltyDetector

# a weight of 2 is a row that is there twice, but another one is drawn to start from
DRAWN = "rows to start from are drawn, and others from repeated rows"
EXPECTED = {
    "KernelKMeans": {
        "check_sample_weight_equivalence_on_dense_data": DRAWN,
        "check_sample_weight_equivalence_on_sparse_data": DRAWN,
    }
}


@parametrize_with_checks(
    [KernelPCA(n_components=2), KernelKMeans(n_clusters=2), NoveltyDetector()],
    expected_failed_checks=lambda estimator: EXPECTED.get(type(estimator).__name__, {}),
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
