"""Takes nothing; gives the versions of what a result depends on, for a report of a fault."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

__all__ = ["show_versions"]

PACKAGES = ("asvi", "numpyro", "jax", "jaxlib", "optax", "numpy", "scipy", "arviz", "matplotlib")


def show_versions() -> None:
    """Print the versions of asvi and of what it stands on; give them when you report a fault.

    >>> show_versions()
    python      3...
    asvi        0...
    """
    print(f"{'python':12}{platform.python_version()} on {platform.platform()}")
    for name in PACKAGES:
        try:
            print(f"{name:12}{version(name)}")
        except PackageNotFoundError:
            print(f"{name:12}not installed")
