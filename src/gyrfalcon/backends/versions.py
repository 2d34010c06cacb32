"""A report of what is installed and which instruction set, threads and BLAS run blocks: for bug reports."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys

__all__ = ["show_versions", "versions"]

_REQUIRED = ("numpy", "scipy", "scikit-learn", "threadpoolctl", "tqdm", "safetensors")
_OPTIONAL = ("matplotlib", "pandas", "polars", "pyarrow", "h5py", "zarr", "dask", "distributed", "torch")


def versions() -> dict[str, str]:
    """Collect the versions of gyrfalcon and of its dependencies, and properties of the machine.

    Packages are not imported for this, and optional ones are listed only if installed.
    """
    found = {"gyrfalcon": _version("gyrfalcon") or "unknown", "python": sys.version.replace("\n", " ")}
    found |= {name: _version(name) or "not installed" for name in _REQUIRED}
    found |= {name: version for name in _OPTIONAL if (version := _version(name))}
    found["platform"] = platform.platform()
    found["processors"] = str(os.cpu_count() or "unknown")
    found["instruction set"] = _instruction_set()
    found["threads"] = _threads()
    found["blas"] = _blas()
    return found


def show_versions() -> None:
    """Print `versions`, one per line, to be pasted into a bug report.

    Examples
    --------
    >>> import gyrfalcon
    >>> gyrfalcon.show_versions()  # doctest: +ELLIPSIS
    gyrfalcon...
    """
    found = versions()
    width = max(map(len, found))
    for name, value in found.items():
        print(f"{name:>{width}}: {value}")


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


# A broken installation is when this report matters most, so what can be broken is imported only here.


def _instruction_set() -> str:
    try:
        from .native import instruction_set

        return instruction_set()
    except ImportError as error:
        return f"none: the native core cannot be imported ({error}), NumPy is used"
    except ValueError as error:
        return f"none: {error}"


def _threads() -> str:
    try:
        from .._utils.threads import effective_n_jobs
    except ImportError as error:
        return f"unknown ({error})"
    return str(effective_n_jobs(None))


def _blas() -> str:
    try:
        # threadpoolctl sees only the libraries that are loaded, and SciPy brings one of its own.
        import scipy.linalg  # noqa: F401
        from threadpoolctl import threadpool_info
    except ImportError as error:
        return f"unknown ({error})"
    libraries = [
        f"{library['internal_api']} {library.get('version') or '(unknown version)'}"
        f" ({library.get('architecture') or 'unknown architecture'}, {library['num_threads']} threads)"
        for library in threadpool_info()
        if library.get("user_api") == "blas"
    ]
    return "; ".join(dict.fromkeys(libraries)) or "none found"
