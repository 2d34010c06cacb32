"""KernelOperator
==============

Use `KernelOperator` directly: power iteration for the largest eigenvalue of
K'K, and a solver in ten lines.

Run it with ``python examples/kernel_operator.py [rows]``.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

from gyrfalcon import KernelOperator
from gyrfalcon.cli.demo import make_arm
from gyrfalcon.kernels import Gaussian

rows = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
X, y = make_arm(rows)
y = y - y.mean()
centers = X[:: max(1, rows // 300)][:300]
K = KernelOperator(Gaussian(length_scale=2.0), X, centers)
print(
    f"K has {K.shape[0]:,} x {K.shape[1]:,} entries; it is made block by block"
)

# %%
# Power iteration for the largest eigenvalue of K'K.

v = np.ones(len(centers))
for _ in range(5):
    v = K.sandwich(v)  # K'(K v): every block of K is made once and used twice
    largest = np.linalg.norm(v)
    v /= largest
print(f"largest eigenvalue of K'K / n: {largest / rows:.2f}")

# %%
# Gradient descent on the mean squared error. With a function as weight, K'(y -
# K alpha) takes one pass.

alpha, errors = np.zeros(len(centers)), []
for _ in range(20):
    step = K.sandwich(alpha, lambda at, T: y[at, None] - T) / largest
    alpha += step
    errors.append(
        np.sqrt(np.mean((K.matmat(alpha) - y) ** 2))
    )  # one more pass, for the picture
error = errors[-1]
print(
    f"{K.passes} passes, training error {error:.3f} (the target's standard "
    f"deviation is {y.std():.3f})"
)
print("slow: this is what the preconditioner of FalkonRegressor is for")

# %%
# The error decreases more and more slowly. Preconditioners prevent this.

figure, ax = plt.subplots(figsize=(8, 4), layout="constrained")
ax.plot(range(1, 21), errors, marker="o")
ax.axhline(y.std(), color="gray", linestyle="--", label="a constant")
ax.set(xlabel="iteration", ylabel="training error", ylim=(0, None))
ax.legend()
plt.show()
