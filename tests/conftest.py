"""A fixed seed per test, from the test's name; float64 where a test asks for it."""

from __future__ import annotations

import os
import zlib

# Tests compile much and compute little: leave out the compiler's expensive passes.
os.environ.setdefault(
    "XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
)

import jax
import pytest
from hypothesis import settings

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


def pytest_collection_modifyitems(items):
    """Tests that share an expensive fixture go to one worker, so that it is made once."""
    shared = ("groups", "finished", "schools", "demo", "fits")
    for item in items:
        for name in shared:
            if name in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.xdist_group(f"{item.module.__name__}.{name}"))
