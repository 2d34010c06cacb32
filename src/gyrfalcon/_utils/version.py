"""The version of the installed package."""

from importlib.metadata import PackageNotFoundError, version


def package_version() -> str:
    """Return the version, or "unknown" for a checkout that is not installed."""
    try:
        return version("gyrfalcon")
    except PackageNotFoundError:
        return "unknown"
