"""Takes an improper prior; gives it as a distribution that can be drawn from, its density left out.

``dist.ImproperUniform`` has a support and no more. Here it is a normal number behind the support's
map from the real line, under a mask: its term in the model's density is 0, as NumPyro has it, and a
guide has something to begin with. Where the data make the posterior proper nothing else is needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpyro.distributions import (
    Distribution,
    ImproperUniform,
    MaskedDistribution,
    Normal,
    TransformedDistribution,
    biject_to,
    constraints,
)

from asvi.program.checks.supports import shown, words
from asvi.program.unwrapping import bare_constraint, bare_distribution

__all__ = ["FlatPrior", "asked_support", "flat_prior", "is_flat", "is_improper"]


class FlatPrior(MaskedDistribution):
    """A proper distribution whose density does not count."""

    pytree_aux_fields = ("asked",)
    asked: tuple[str, str | None, str | None] = ("", None, None)
    """The support that was asked for: its kind in words, its lower and upper bound.

    A program knows a distribution by its shapes, and a support by what can be told of these.
    """


def is_improper(dist: Any) -> bool:
    """Whether this is an ``ImproperUniform``, however wrapped."""
    return isinstance(bare_distribution(dist), ImproperUniform)


def is_flat(dist: Any) -> bool:
    """Whether a latent site's prior was one."""
    return isinstance(bare_distribution(dist, FlatPrior), FlatPrior)


def asked_support(dist: Any) -> tuple[str, str | None, str | None]:
    """Kind and bounds of the support of a latent site whose prior is flat."""
    return bare_distribution(dist, FlatPrior).asked


def flat_prior(dist: Distribution) -> FlatPrior:
    """The same support and shape, to be drawn from.

    >>> from numpyro.distributions import ImproperUniform
    >>> prior = flat_prior(ImproperUniform(constraints.positive, (2,), ()))
    >>> prior.batch_shape, prior.log_prob(np.ones(2)).tolist()
    ((2,), [0.0, 0.0])
    """
    support: Any = bare_constraint(dist.support)
    transform = biject_to(support)
    inner = transform.inverse_shape(dist.shape())
    base: Any = Normal(np.zeros(inner, np.float32), np.float32(1.0))
    base = base.to_event(len(inner) - len(dist.batch_shape))
    if not isinstance(support, type(constraints.real)):
        base = TransformedDistribution(base, transform)
    prior = FlatPrior(base, False)
    bounds = (getattr(support, f"{side}_bound", None) for side in ("lower", "upper"))
    low, high = (None if bound is None else shown(bound) for bound in bounds)
    prior.asked = (words(support), low, high)
    return prior
