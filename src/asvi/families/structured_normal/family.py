"""Takes a whole model; gives the family of Gaussians over the numbers its values are made from."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from asvi.families.protocol import JointFamily
from asvi.families.structured_normal.guide import AutoStructuredNormal

__all__ = ["StructuredNormal"]


class StructuredNormal(JointFamily):
    r"""A Gaussian over the program's noise, with any correlations; ``fit`` finds it in a second.

    :func:`asvi.fit` climbs by natural gradients, with nothing random in it, and writes hierarchies
    as far centred as the data ask for: number by number, :math:`c = 1 - \mathrm{Var}(z)`, given
    what sets its scale. There are no steps to wait for and little to compile, so that this is the
    family for a first look, and the default's first step. It does not hold posteriors that no
    Gaussian describes: the verdict says so, and :class:`~asvi.families.Coupled` goes further.

    :param blocks: take groups that plates keep apart (of models with more than 64 latent numbers)
        as dependent through what they have in common alone. ``fit`` looks whether they are.
    :param cells: the old name of ``blocks``.

    Discrete sites of finitely many values are summed out of the density, and drawn from what they
    are given the others. Outside of branches; at most 250 continuous numbers, or groups of plates.

    >>> import jax, jax.numpy as jnp, numpyro, numpyro.distributions as dist, asvi
    >>> def model(y):
    ...     mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    ...     tau = numpyro.sample("tau", dist.HalfNormal(5.0))
    ...     with numpyro.plate("group", 4):
    ...         theta = numpyro.sample("theta", dist.Normal(mu, tau))
    ...         numpyro.sample("y", dist.Normal(theta, 1.0), obs=y)
    >>> y = jnp.array([1.0, 2.0, 4.0, 7.0])
    >>> result = asvi.fit(model, y, family=StructuredNormal())
    >>> bool(abs(result.posterior.mean()["mu"] - 3.4) < 0.2)
    True
    """

    is_searched = True

    def __init__(self, *, blocks: bool = True, cells: bool | None = None):
        if cells is not None:
            warnings.warn(
                "StructuredNormal(cells=...) is now StructuredNormal(blocks=...)",
                FutureWarning,
                stacklevel=2,
            )
            blocks = cells
        self.blocks = blocks

    @classmethod
    def from_config(cls, settings: Mapping[str, Any]) -> StructuredNormal:
        """The family with this config, of files of 0.1, too."""
        return cls(blocks=settings.get("blocks", settings.get("cells", True)))

    def guide(self, model: Callable, prefix: str = "auto") -> AutoStructuredNormal:
        return AutoStructuredNormal(model, self, prefix)
