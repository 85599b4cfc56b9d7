"""Quantiles of priors at normal noise: by JAX, by NumPy, and their slopes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from asvi.density.numpy_backend import NumpyFunction
from asvi.distributions.prior_quantiles import noise_of, quantile_at

KNOWN = {
    "half_normal": stats.halfnorm,
    "half_cauchy": stats.halfcauchy,
    "exponential": stats.expon,
    "uniform": stats.uniform,
}
Z = np.linspace(-8, 8, 33)


@pytest.mark.parametrize("kind", KNOWN)
def test_they_are_those_of_the_prior_and_lead_back(kind):
    prior = KNOWN[kind]
    wanted = np.where(Z < 0, prior.ppf(stats.norm.cdf(Z)), prior.isf(stats.norm.sf(Z)))
    with jax.enable_x64(True):
        u = quantile_at(kind, jnp.asarray(Z))
        np.testing.assert_allclose(u, wanted, 1e-9, 1e-15)  # SciPy has no more digits there
        some = abs(Z) < (6 if kind == "uniform" else 9)  # near 1 there are no more digits
        np.testing.assert_allclose(noise_of(kind, u)[some], Z[some], 1e-7, 1e-7)


@pytest.mark.parametrize("kind", KNOWN)
@pytest.mark.parametrize("function", [quantile_at, noise_of])
def test_numpy_and_the_compiler_agree_up_to_second_derivatives(kind, function):
    with jax.enable_x64(True):
        x = Z / 4 if function is quantile_at else np.linspace(0.02, 0.98, 33)
        slope = jax.vmap(jax.value_and_grad(lambda x: function(kind, x)))
        found, moved = NumpyFunction(slope, x, moving=1).jvp((x,), (np.ones(33),))
        values, tangents = jax.jvp(jax.jit(slope), (x,), (np.ones(33),))
    for here, there in zip((*found, *moved), (*values, *tangents), strict=True):
        np.testing.assert_allclose(here, there, 1e-9, 1e-12)


def test_single_precision_and_plain_numbers_stay():
    assert quantile_at("half_normal", 0.5).dtype == jnp.float32
    assert quantile_at("exponential", jnp.ones(2, jnp.float32)).dtype == jnp.float32
    in_numpy = NumpyFunction(lambda z: quantile_at("uniform", z), np.ones(2, np.float32))
    assert in_numpy(np.zeros(2, np.float32)).tolist() == [0.5, 0.5]
