"""Takes a prior conditional; gives the same family with free parameters, parents ignored."""

from __future__ import annotations

import jax
from numpyro.distributions import Distribution

from asvi.distributions.registry import Parameterization, decompose
from asvi.families.convex import check_choice, data_terms
from asvi.families.parameter import Parameter
from asvi.families.protocol import Family
from asvi.program.site import Site

__all__ = ["MeanField"]


class MeanField(Family):
    r"""Every site independent: :math:`q(x) = p(x \mid \alpha)`, the convex update with λ=0.

    The support is still the model's: bounds that depend on a parent follow it.

    :param start: where α starts; see :class:`~asvi.families.convex.ConvexUpdate`.
    :param parameterization: as there.

    >>> import numpyro, numpyro.distributions as dist
    >>> from asvi.program import Program
    >>> site = Program.of(lambda: numpyro.sample("x", dist.Normal(0.0, 2.0)))["x"]
    >>> sorted(MeanField().declare(site))
    ['loc/data_term', 'scale/data_term']
    """

    def __init__(
        self, *, start: str = "prior_mean", parameterization: Parameterization = "expectation"
    ):
        check_choice("start", start, ("prior_mean", "prior_draw", "random"))
        check_choice("parameterization", parameterization, ("expectation", "logits", "natural"))
        self.start = start
        self.parameterization: Parameterization = parameterization

    def declare(self, site: Site) -> dict[str, Parameter]:
        return {f"{name}/data_term": term for name, (_, term) in data_terms(self, site).items()}

    def update(
        self, prior: Distribution, parameters: dict[str, jax.Array], site: Site
    ) -> Distribution:
        parts = decompose(prior, parameterization=self.parameterization, site=site.name)
        return parts.rebuild({name: parameters[f"{name}/data_term"] for name in parts.leaves})

    def follows_parents(self, site: Site) -> bool:
        return False
