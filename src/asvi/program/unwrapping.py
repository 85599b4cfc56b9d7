"""Takes a constraint or a distribution; gives what is inside its wrappers.

``to_event``, ``expand`` and ``mask`` wrap a distribution, and ``constraints.independent`` a domain,
without a change of its kind.
"""

from __future__ import annotations

from typing import Any

from numpyro.distributions import (
    ExpandedDistribution,
    Independent,
    MaskedDistribution,
    constraints,
)

__all__ = ["WRAPPERS", "bare_constraint", "bare_distribution"]

WRAPPERS = (ExpandedDistribution, Independent, MaskedDistribution)


def bare_constraint(constraint: Any) -> Any:
    """The domain of one entry or event, its axes of independent ones left out.

    >>> bare_constraint(constraints.independent(constraints.positive, 1)) is constraints.positive
    True
    """
    while isinstance(constraint, constraints.independent):
        constraint = constraint.base_constraint
    return constraint


def bare_distribution(dist: Any, until: type | tuple[type, ...] = ()) -> Any:
    """The distribution inside; a wrapper of a class ``until`` is taken for one itself.

    >>> import numpyro.distributions as dist
    >>> type(bare_distribution(dist.Normal(0.0, 1.0).expand([3]).mask(False).to_event(1))).__name__
    'Normal'
    """
    while isinstance(dist, WRAPPERS) and not isinstance(dist, until):
        dist = dist.base_dist
    return dist
