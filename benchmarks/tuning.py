"""Length scales by gradients, beside GPyTorch's SGPR and scikit-learn: python benchmarks/tuning.py --data DIR

Gaussian kernel with a length scale for each feature, M centers, the evidence's bound as the objective. Features and y
are standardised. RMSE and the negative log density of y (NLL) of the test rows, in units of y's standard deviation, and
the seconds of each fit with its predictions. Peers run if they are installed (`pip install torch gpytorch higp`):

- GPyTorch's SGPR takes `--steps` steps of Adam with rate 0.1 over all rows in float32, with its default noise and
  random rows as centers, which it trains as well. Every `--every` steps there is a line, without the seconds that the
  predictions for earlier lines took.
- GPyTorch's SVGP: `--epochs` epochs of Adam with rate 0.01, in batches of 1,024 rows.
- HiGP: an exact Gaussian process by preconditioned iterations, with one length scale for all features and its own
  settings (100 steps), on `--few` rows.
- scikit-learn's GaussianProcessRegressor, on `--few` rows.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from _common import table

from gyrfalcon import NystromRegressor, tune
from gyrfalcon.kernels import Gaussian

Result = tuple[np.ndarray, np.ndarray]  # means and standard deviations of y


def ours(X: np.ndarray, y: np.ndarray, T: np.ndarray, M: int, tune_centers: bool) -> Result:
    model = NystromRegressor(Gaussian(), n_centers=M, uncertainty=True, random_state=0)
    model = tune(model, X, y, tune_centers=tune_centers, random_state=0)
    mean, std = model.predict(T, return_std=True)
    return mean, np.sqrt(std**2 + model.noise_variance_)


def gpytorch_sgpr(
    X: np.ndarray, y: np.ndarray, T: np.ndarray, M: int, steps: int, every: int
) -> Iterator[tuple[str, float, Result]]:
    """Yield a label, seconds and predictions, every few steps."""
    import gpytorch
    import torch

    began, paused = time.perf_counter(), 0.0
    torch.manual_seed(0)
    rows, targets = torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(y, dtype=torch.float32)

    class Model(gpytorch.models.ExactGP):  # type: ignore[misc]
        def __init__(self, likelihood: Any) -> None:
            super().__init__(rows, targets, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=X.shape[1]))
            start = rows[torch.randperm(len(rows))[:M]].clone()
            self.covar_module = gpytorch.kernels.InducingPointKernel(
                kernel, inducing_points=start, likelihood=likelihood
            )

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Model(likelihood)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
    bound = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    for step in range(1, steps + 1):
        model.train(), likelihood.train()
        optimiser.zero_grad()
        loss = -bound(model(rows), targets)
        loss.backward()
        optimiser.step()
        if step % every == 0 or step == steps:
            before = time.perf_counter()
            model.eval(), likelihood.eval()
            with torch.no_grad():
                found = likelihood(model(torch.as_tensor(T, dtype=torch.float32)))
                result = found.mean.numpy(), found.variance.sqrt().numpy()
            seconds = time.perf_counter() - began - paused
            paused += time.perf_counter() - before
            yield f"GPyTorch SGPR, {step} steps", seconds, result


def gpytorch_svgp(X: np.ndarray, y: np.ndarray, T: np.ndarray, M: int, epochs: int) -> Result:
    import gpytorch
    import torch

    torch.manual_seed(0)
    rows, targets = torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(y, dtype=torch.float32)

    class Model(gpytorch.models.ApproximateGP):  # type: ignore[misc]
        def __init__(self) -> None:
            start = rows[torch.randperm(len(rows))[:M]].clone()
            law = gpytorch.variational.CholeskyVariationalDistribution(M)
            super().__init__(gpytorch.variational.VariationalStrategy(self, start, law, learn_inducing_locations=True))
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=X.shape[1]))

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    likelihood, model = gpytorch.likelihoods.GaussianLikelihood(), Model()
    optimiser = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.01)
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(rows))
    for _ in range(epochs):
        for at in torch.randperm(len(rows)).split(1024):
            optimiser.zero_grad()
            loss = -bound(model(rows[at]), targets[at])
            loss.backward()
            optimiser.step()
    model.eval(), likelihood.eval()
    with torch.no_grad():
        found = likelihood(model(torch.as_tensor(T, dtype=torch.float32)))
    return found.mean.numpy(), found.variance.sqrt().numpy()


def higp_gaussian_process(X: np.ndarray, y: np.ndarray, T: np.ndarray, few: int) -> Result:
    import higp

    at = np.random.default_rng(0).permutation(len(X))[:few]
    found = higp.ezgpr_torch(X[at].T, y[at], T.T, np.zeros(len(T)), adam_lr=0.1, print_info=False)
    return found.prediction_mean, found.prediction_stddev


def scikit_learn(X: np.ndarray, y: np.ndarray, T: np.ndarray, few: int) -> Result:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    at = np.random.default_rng(0).permutation(len(X))[:few]
    kernel = ConstantKernel() * RBF(np.ones(X.shape[1])) + WhiteKernel(0.1)
    model = GaussianProcessRegressor(kernel, random_state=0).fit(X[at], y[at])
    return model.predict(T, return_std=True)


def timed(label: str, run: Callable[[], Result]) -> Iterator[tuple[str, float, Result]]:
    began = time.perf_counter()
    result = run()
    yield label, time.perf_counter() - began, result


def measures(found: Result, y: np.ndarray) -> list[str]:
    mean, std = found
    errors = (np.asarray(mean, dtype=float) - y) / std
    nll = 0.5 * np.mean(errors**2 + np.log(2 * np.pi * np.asarray(std, dtype=float) ** 2))
    return [f"{np.sqrt(np.mean((mean - y) ** 2)):.4f}", f"{nll:.3f}"]


def split(folder: Path, name: str) -> list[np.ndarray]:
    sys.path.insert(0, str(folder))
    from load import load

    data = load(name)
    X, y = data["X"].astype(np.float64), data["y"].astype(np.float64)
    if "X_test" in data:
        T, u = data["X_test"].astype(np.float64), data["y_test"].astype(np.float64)
    else:
        order = np.random.default_rng(0).permutation(len(X))
        few = len(X) // 10
        T, u, X, y = X[order[:few]], y[order[:few]], X[order[few:]], y[order[few:]]
    mean, std, middle, unit = X.mean(axis=0), X.std(axis=0), y.mean(), y.std()
    return [(X - mean) / std, (y - middle) / unit, (T - mean) / std, (u - middle) / unit]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--sets", nargs="+", default=["kin40k", "protein_raw", "california_housing"])
    parser.add_argument("--centers", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=60, help="steps of GPyTorch's SGPR")
    parser.add_argument("--every", type=int, default=20, help="steps of GPyTorch's SGPR between two lines")
    parser.add_argument("--epochs", type=int, default=10, help="epochs of GPyTorch's SVGP")
    parser.add_argument("--few", type=int, default=2000, help="rows of scikit-learn and HiGP")
    parser.add_argument("--rows", type=int, default=None, help="use fewer training rows")
    parser.add_argument("--only", nargs="+", help="contenders: ours ours_centers sgpr svgp higp sklearn")
    options = parser.parse_args()
    for name in options.sets:
        if not (options.data / f"{name}.npz").exists():
            print(f"{options.data / name}.npz is missing: left out")
            continue
        X, y, T, u = split(options.data, name)
        X, y, M = X[: options.rows], y[: options.rows], min(options.centers, len(X) // 5)
        contenders = {
            "ours": partial(timed, "gyrfalcon", partial(ours, X, y, T, M, False)),
            "ours_centers": partial(timed, "gyrfalcon, centers tuned", partial(ours, X, y, T, M, True)),
            "sgpr": partial(gpytorch_sgpr, X, y, T, M, options.steps, options.every),
            "svgp": partial(timed, "GPyTorch SVGP", partial(gpytorch_svgp, X, y, T, M, options.epochs)),
            "higp": partial(timed, "HiGP", partial(higp_gaussian_process, X, y, T, options.few)),
            "sklearn": partial(timed, "scikit-learn", partial(scikit_learn, X, y, T, options.few)),
        }
        rows = []
        for contender, run in contenders.items():
            package = {"sgpr": "gpytorch", "svgp": "gpytorch", "higp": "higp"}.get(contender)
            if options.only and contender not in options.only:
                continue
            if package is not None and find_spec(package) is None:
                print(f"{package} is not installed: left out")
                continue
            for label, seconds, found in run():
                rows.append([label, *measures(found, u), f"{seconds:.1f}"])
                print(name, *rows[-1], sep="  ", flush=True)
        table(f"{name}: {len(X):,} rows, M = {M:,}", ["", "RMSE", "NLL", "seconds"], rows)


if __name__ == "__main__":
    main()
