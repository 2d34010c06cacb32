"""Length scales by gradients, beside GPyTorch's SGPR and scikit-learn: python benchmarks/tuning.py --data DIR

Gaussian kernel with a length scale for each feature, M centers, the evidence's bound as the objective. Features and y
are standardised. RMSE and the negative log density of y (NLL) of the test rows, in units of y's standard deviation, and
the seconds of each fit. GPyTorch needs `pip install torch gpytorch`, and runs `--steps` steps of Adam with rate 0.1
over all rows, with its default noise and the same centers to begin with, which it trains as well. scikit-learn's
GaussianProcessRegressor gets 2,000 rows.
"""

from __future__ import annotations

import argparse
import sys
import time
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


def gpytorch_sgpr(X: np.ndarray, y: np.ndarray, T: np.ndarray, M: int, steps: int) -> Result:
    import gpytorch
    import torch

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
    model.train(), likelihood.train()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
    bound = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    for _ in range(steps):
        optimiser.zero_grad()
        loss = -bound(model(rows), targets)
        loss.backward()
        optimiser.step()
    model.eval(), likelihood.eval()
    with torch.no_grad():
        found = likelihood(model(torch.as_tensor(T, dtype=torch.float32)))
    return found.mean.numpy(), found.variance.sqrt().numpy()


def scikit_learn(X: np.ndarray, y: np.ndarray, T: np.ndarray) -> Result:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    few = np.random.default_rng(0).permutation(len(X))[:2000]
    kernel = ConstantKernel() * RBF(np.ones(X.shape[1])) + WhiteKernel(0.1)
    model = GaussianProcessRegressor(kernel, random_state=0).fit(X[few], y[few])
    return model.predict(T, return_std=True)


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
    parser.add_argument("--steps", type=int, default=100, help="steps of GPyTorch")
    parser.add_argument("--rows", type=int, default=None, help="use fewer training rows")
    parser.add_argument("--only", nargs="+", help="names of contenders")
    options = parser.parse_args()
    for name in options.sets:
        if not (options.data / f"{name}.npz").exists():
            print(f"{options.data / name}.npz is missing: left out")
            continue
        X, y, T, u = split(options.data, name)
        X, y, M = X[: options.rows], y[: options.rows], options.centers
        contenders = {
            "gyrfalcon": lambda X=X, y=y, T=T, M=M: ours(X, y, T, M, False),
            "gyrfalcon, centers tuned": lambda X=X, y=y, T=T, M=M: ours(X, y, T, M, True),
            "scikit-learn": lambda X=X, y=y, T=T: scikit_learn(X, y, T),
        }
        if find_spec("gpytorch") is None:
            print("gpytorch is not installed: left out")
        else:
            contenders["GPyTorch SGPR"] = lambda X=X, y=y, T=T, M=M: gpytorch_sgpr(X, y, T, M, options.steps)
        rows = []
        for contender, run in contenders.items():
            if options.only and contender not in options.only:
                continue
            start = time.perf_counter()
            found = run()
            rows.append([contender, *measures(found, u), f"{time.perf_counter() - start:.1f}"])
        table(f"{name}: {len(X):,} rows, M = {M:,}", ["", "RMSE", "NLL", "seconds"], rows)


if __name__ == "__main__":
    main()
