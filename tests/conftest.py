"""A fixed seed per test, from the test's name; float64 where a test asks for it."""

from __future__ import annotations

import os
import sys
import zlib
from importlib.metadata import version

# Tests compile much and compute little: leave out the compiler's expensive passes. (A flag that the
# compiler does not know is fatal, and later versions do not know the last one.)
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    + (" --xla_cpu_use_fusion_emitters=false" if version("jax").startswith("0.10.") else ""),
)

# What one worker or one run has compiled, the others need not: kept beside the code, not in git.
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR",
    os.path.join(os.path.dirname(os.path.dirname(__file__)), ".jax_cache"),
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.05")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")

import jax
import pytest
from hypothesis import settings
from numpyro.primitives import _PYRO_STACK

from asvi.fitting.rungs import trained

settings.register_profile("asvi", deadline=None, max_examples=5, derandomize=True, database=None)
settings.load_profile("asvi")


@pytest.fixture
def seed(request) -> int:
    return zlib.crc32(request.node.name.encode()) % 2**31


@pytest.fixture
def key(seed) -> jax.Array:
    return jax.random.key(seed)


@pytest.fixture
def float64():
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


@pytest.fixture(autouse=True)
def close_figures():
    """Figures are pyplot's, which keeps them all."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture
def no_first_look(monkeypatch):
    """The default call without the Gaussian that is all there is to find of simple posteriors."""
    monkeypatch.setattr("asvi.fitting.ladder.RUNGS", (trained.climb,))


@pytest.fixture
def clean_handlers():
    """No handler of NumPyro's is left behind, whatever was raised."""
    assert _PYRO_STACK == []
    yield
    left = list(_PYRO_STACK)
    _PYRO_STACK.clear()  # do not let one failure pull down the tests after it
    assert left == []
