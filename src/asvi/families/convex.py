"""Takes a prior conditional; gives the same family with every leaf moved to λ⊙θ + (1-λ)⊙α.

λ, the *prior weight*, says how far the site still follows its parents; α, the *data term*, is where
the data pull it. λ=1 is the prior, λ=0 is mean field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution, constraints
from numpyro.distributions.transforms import biject_to

from asvi.distributions.domains import PriorWeight, inside, mix, prior_weight_shape
from asvi.distributions.registry import Leaf, Parameterization, decompose
from asvi.distributions.standardize import is_direct, noise_shape
from asvi.errors import FamilyError
from asvi.families.gaussian_share import GaussianShare, Held
from asvi.families.parameter import PRIOR_SCALE, Parameter, Role
from asvi.families.protocol import Family
from asvi.families.settings import ParameterSettings
from asvi.program.site import Site

__all__ = ["ConvexUpdate", "check_choice", "data_terms", "free_leaves"]


class ConvexUpdate(Family):
    r"""The convex-update family of Ambrogioni et al. (2021).

    At a site :math:`x \sim p(x \mid \theta(\text{parents}))` the guide samples from

    .. math:: q(x) = p(x \mid \lambda\odot\theta(\text{parents}) + (1-\lambda)\odot\alpha),

    with :math:`\lambda\in(0,1)` and :math:`\alpha` in the domain of :math:`\theta`, both learned.
    λ is elementwise where the domain is a product of intervals, and one number per event where it
    is convex but not a product (simplex, ordered vectors, positive-definite matrices, ...).

    :param initial_prior_weight: λ at the start of sites that have parents. Near 1 the guide starts
        as the prior, which is always finite and keeps chains in their basin. Sites without parents
        start at 0.5: they lose nothing, and their α moves sooner. See ``docs/start.md``.
    :param start: where α starts: ``"prior_mean"``, the parameters that the prior's centre gives
        (deterministic); ``"prior_draw"``, those of one draw from the prior; ``"random"``, standard
        normal in unconstrained space.
    :param gate_gain: steepness of the gate that λ is optimised through, λ = sigmoid(gain · x). A
        steeper gate moves sooner, and jitters more at a constant learning rate; 1 is the plain
        sigmoid of the paper.
    :param parameterization: ``"expectation"`` (probabilities, location and scale), ``"logits"`` or
        ``"natural"``.
    :param settings: numbers that need no tuning; see :mod:`asvi.families.settings`.

    >>> import numpyro.distributions as dist
    >>> from asvi.program import Program
    >>> import numpyro
    >>> site = Program.of(lambda: numpyro.sample("x", dist.Normal(0.0, 2.0)))["x"]
    >>> family = ConvexUpdate()
    >>> sorted(family.declare(site))
    ['loc/data_term', 'loc/prior_weight', 'scale/data_term', 'scale/prior_weight']
    >>> surrogate = family.update(
    ...     dist.Normal(1.0, 2.0),
    ...     {"loc/prior_weight": 0.5, "loc/data_term": 3.0,
    ...      "scale/prior_weight": 1.0, "scale/data_term": 9.0}, site)
    >>> float(surrogate.loc), float(surrogate.scale)
    (2.0, 2.0)
    """

    def __init__(
        self,
        *,
        initial_prior_weight: float = 0.999,
        start: str = "prior_mean",
        gate_gain: float = 4.0,
        parameterization: Parameterization = "expectation",
        settings: ParameterSettings = ParameterSettings(),
    ):
        if not gate_gain > 0:
            raise FamilyError(f"gate_gain must be positive, got {gate_gain}; write gate_gain=4.0.")
        if not 0.0 < initial_prior_weight < 1.0:
            raise FamilyError(
                f"initial_prior_weight must lie strictly between 0 and 1, got "
                f"{initial_prior_weight}.\nWrite ConvexUpdate(initial_prior_weight=0.999); for a "
                "weight of 0 use MeanField()."
            )
        check_choice("start", start, ("prior_mean", "prior_draw", "random"))
        check_choice("parameterization", parameterization, ("expectation", "logits", "natural"))
        self.initial_prior_weight = initial_prior_weight
        self.start = start
        self.gate_gain = gate_gain
        self.parameterization: Parameterization = parameterization
        self.settings = settings

    def declare(self, site: Site) -> dict[str, Parameter]:
        declared = {}
        for name, (leaf, term) in data_terms(self, site).items():
            shape = prior_weight_shape(leaf.constraint, term.shape)
            # Without parents θ is constant and α starts there: any λ starts at the prior.
            weight = self.initial_prior_weight if site.parents else 0.5
            declared[f"{name}/prior_weight"] = Parameter(
                shape,
                PriorWeight(self.gate_gain),
                lambda _key, _prior, shape=shape, weight=weight: jnp.full(shape, weight),
                Role.PRIOR_WEIGHT,
                name,
                upper=self.settings.max_prior_weight,
            )
            declared[f"{name}/data_term"] = term
        return declared

    def update(
        self, prior: Distribution, parameters: dict[str, jax.Array], site: Site
    ) -> Distribution:
        parts = decompose(prior, parameterization=self.parameterization, site=site.name)
        return parts.rebuild(
            {
                name: mix(
                    parameters[f"{name}/prior_weight"],
                    leaf,
                    parameters[f"{name}/data_term"],
                )
                for name, leaf in parts.leaves.items()
            }
        )

    def holds_gaussian(self, site: Site, declared: Mapping[str, Parameter]) -> bool:
        """Where location and scale are the site's own."""
        return not site.parents and noise_shape(site) is not None and is_direct(site)

    def from_gaussian(
        self,
        share: GaussianShare,
        declared: Mapping[str, Parameter],
        steps: Mapping[str, np.ndarray],
    ) -> Held:
        values = free_leaves(share)
        kept = {name: x for name, x in values.items() if name in declared}
        return Held(kept, {**steps, "loc/data_term": share.scale * share.own})


def free_leaves(share: GaussianShare) -> dict[str, Any]:
    """A location and scale of its own: prior weights near 0."""
    loc, scale, free = share.loc, share.scale, share.free_prior_weight
    middle, own_scale = loc + scale * share.middle, scale * share.own
    weight = np.minimum(free, 0.5 * own_scale / scale)
    return {
        "loc/prior_weight": free,
        "loc/data_term": (middle - free * loc) / (1 - free),
        "scale/prior_weight": weight,
        "scale/data_term": (own_scale - weight * scale) / (1 - weight),
    }


def data_terms(family: Any, site: Site) -> dict[str, tuple[Leaf, Parameter]]:
    """The abstract leaves of a site and, for each, the declaration of its data term.

    ``family`` says the start and the parameterisation.
    """
    how, start = family.parameterization, family.start
    domains: dict[str, constraints.Constraint] = {}

    def values(prior: Distribution) -> dict[str, jax.Array]:
        parts = decompose(prior, parameterization=how, site=site.name)
        domains.update({name: leaf.constraint for name, leaf in parts.leaves.items()})
        return {name: leaf.value for name, leaf in parts.leaves.items()}

    found = {}
    for name, value in jax.eval_shape(values, site.distribution).items():
        shape = site.full_batch_shape + value.shape[len(site.batch_shape) :]
        domain = domains[name]

        def initial(key, prior, name=name, shape=shape, domain=domain):
            to_domain = biject_to(domain)
            if start == "random":
                return to_domain(jax.random.normal(key, to_domain.inverse_shape(shape)))
            value = inside(values(prior)[name], domain)
            return to_full_size(value, site, shape)

        step = PRIOR_SCALE if name == "loc" else 1.0
        term = Parameter(shape, domain, initial, Role.DATA_TERM, name, step)
        found[name] = (Leaf(value, domain), term)
    return found


def to_full_size(value: jax.Array, site: Site, shape: tuple[int, ...]) -> jax.Array:
    """A value for the minibatch, its mean over subsampled plates spread over the full plates.

    The mean of points of a convex domain lies in the domain.
    """
    trailing = len(shape) - len(site.full_batch_shape)
    for plate in site.plates:
        if plate.size != plate.subsample_size:
            value = jnp.mean(value, axis=plate.dim - trailing, keepdims=True)
    return jnp.broadcast_to(value, shape)


def check_choice(argument: str, value: str, known: tuple[str, ...]) -> None:
    """Raise unless ``value`` is one of ``known``."""
    if value not in known:
        raise FamilyError(f"{argument}={value!r} is not known; choose one of {', '.join(known)}.")
