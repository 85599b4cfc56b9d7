"""Takes a model; gives a Gaussian with full covariance over its unconstrained latents."""

from __future__ import annotations

from collections.abc import Callable

from numpyro.infer import autoguide
from numpyro.infer.autoguide import AutoGuide

from asvi.families.guide_protocol import JointGuide
from asvi.families.joint.common import at_zero, positive_scale
from asvi.families.protocol import JointFamily

__all__ = ["MultivariateNormal"]


class MultivariateNormal(JointFamily):
    r"""A Gaussian with full covariance over all unconstrained latents: P + P(P+1)/2 parameters.

    NumPyro's ``AutoMultivariateNormal``, started at mean 0 and covariance ``init_scale**2 * I``.

    >>> import jax, numpyro, numpyro.distributions as dist, optax, asvi
    >>> def model():
    ...     x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    ...     numpyro.sample("y", dist.Normal(x, 1.0))
    >>> guide = asvi.autoguide(model, family=MultivariateNormal())
    >>> svi = numpyro.infer.SVI(model, guide, optax.adam(0.05), asvi.ELBO(num_particles=16))
    >>> fit = svi.run(jax.random.key(0), 500, progress_bar=False)
    >>> bool(abs(fit.losses[-1]) < 0.2)     # the model itself is Gaussian
    True
    """

    def __init__(self, *, init_scale: float = 0.1):
        self.init_scale = positive_scale(init_scale)

    def guide(self, model: Callable, prefix: str = "auto") -> AutoGuide:
        return AutoMultivariateNormal(model, self, prefix)


class AutoMultivariateNormal(JointGuide, autoguide.AutoMultivariateNormal):
    """NumPyro's, with answers to what this library asks of guides."""

    def __init__(self, model: Callable, family: MultivariateNormal, prefix: str):
        scale = family.init_scale
        super().__init__(model, prefix=prefix, init_scale=scale, init_loc_fn=at_zero())
        self.family = family
