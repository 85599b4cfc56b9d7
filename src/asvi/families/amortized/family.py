r"""Takes a network; gives the data terms of a plate's latents as a function of the data.

With many points, a data term α for each does not scale, and says nothing about a new point. Here α
and the scales come from an *encoder*, a network applied to the points of the minibatch:

.. math:: q(z_i \mid \text{parents}) = p\big(z_i \mid
    \lambda\odot\theta(\text{parents}) + (1-\lambda)\odot\alpha(y_i)\big).

λ is shared by all points, one number per number of a leaf, or comes from the encoder too. The
guide's parameters are the encoder's, the λs and those of sites outside the plate: their number does
not depend on the plate's size, and a guide that was trained on some points serves others.

**What the encoder is given.** By default the values of the observed sites inside the plate, at the
rows of this minibatch, the plate's axis first: the array itself where there is one such site, a
dictionary by site name where there are several. With ``features=`` it is what that function makes
of the model's arguments: arrays (in any tree) whose first axis is the plate's. Arrays as long as
the plate are cut to the minibatch; arrays as long as the minibatch are taken as they are.

**What the encoder gives.** For all sites, or for each in a dictionary by site name, one of

- an array of features, (points, any number): `asvi` adds a linear head for each leaf of the site,
  mapped to the leaf's domain, that starts at the prior's own parameters;
- a dictionary by leaf name of the data terms themselves, each of shape (points, leaf's shape) and
  in the leaf's domain: ``{"z": {"loc": ..., "scale": ...}}``; λ from the encoder is called
  ``"loc/prior_weight"``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from numpyro.distributions import Distribution

from asvi.distributions.domains import mix
from asvi.distributions.registry import decompose
from asvi.errors import FamilyError
from asvi.families.amortized.encode import plate_encoder
from asvi.families.amortized.networks import SetEncoder, as_network
from asvi.families.amortized.plate_encoder import PlateEncoder
from asvi.families.amortized.settings import AmortizedSettings
from asvi.families.convex import ConvexUpdate, check_choice
from asvi.families.mean_field import MeanField
from asvi.families.parameter import Parameter
from asvi.families.protocol import Family, OwnObject
from asvi.program.program import Program
from asvi.program.site import Site

__all__ = ["Amortized"]


class Amortized(Family):
    r"""Latents of a plate get their data terms from a network; see the module's text.

    :param encoder: a flax ``nnx`` or ``linen`` module, an equinox module, a pair ``(function,
        params)``, an object with ``init`` and ``apply``, or a function with nothing to learn.
        Without one, :class:`~asvi.families.amortized.networks.SetEncoder`.
    :param plate: the plate whose points are amortised. Without it, the one plate that holds latents
        and, where there are several, is subsampled.
    :param base: what is done with the data terms: ``ConvexUpdate(...)``, which mixes them with what
        the parents say, or ``MeanField()``, which does not. Sites outside the plate get this family
        with parameters of their own. λ starts at 1/2 by default.
    :param features: a function of the model's arguments that picks what the encoder is given.
    :param prior_weights: ``"shared"``, one λ for all points, or ``"encoder"``, λ(y).
    :param follow: the leaves that follow the parents; ``("loc",)`` gives every other leaf, the
        scale say, to the encoder alone. By default all. Sites without parents follow nobody.
    :param settings: numbers that need no tuning; see :mod:`asvi.families.amortized.settings`.

    >>> import jax, jax.numpy as jnp, numpyro, numpyro.distributions as dist, optax, asvi
    >>> def model(y, batch=None):
    ...     mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    ...     with numpyro.plate("point", len(y), subsample_size=batch) as rows:
    ...         z = numpyro.sample("z", dist.Normal(mu, 1.0))
    ...         numpyro.sample("y", dist.Normal(z, 1.0), obs=y[rows])
    >>> y = 1.0 + jax.random.normal(jax.random.key(0), (1000,))
    >>> guide = asvi.AutoASVI(model, family=Amortized(plate="point"))
    >>> svi = numpyro.infer.SVI(model, guide, optax.adam(1e-2), asvi.ELBO())
    >>> result = svi.run(jax.random.key(1), 1000, y, 50, progress_bar=False)
    >>> new = jnp.array([-1.0, 1.0, 3.0])              # points that were never seen
    >>> draws = guide.sample_posterior(jax.random.key(2), result.params, new, sample_shape=(500,))
    >>> [bool(abs(z - (1 + y) / 2) < 0.4) for z, y in zip(draws["z"].mean(0), new)]
    [True, True, True]
    """

    def __init__(
        self,
        encoder: Any = None,
        *,
        plate: str | None = None,
        base: Family | None = None,
        features: Callable[..., Any] | None = None,
        prior_weights: str = "shared",
        follow: tuple[str, ...] | None = None,
        settings: AmortizedSettings = AmortizedSettings(),
    ):
        base = ConvexUpdate(initial_prior_weight=0.5) if base is None else base
        if type(base) not in (ConvexUpdate, MeanField):
            raise FamilyError(
                f"base={base!r} cannot be amortised.\nWrite Amortized(..., base=ConvexUpdate()) or "
                "Amortized(..., base=MeanField())."
            )
        check_choice("prior_weights", prior_weights, ("shared", "encoder"))
        if features is not None and not callable(features):
            raise FamilyError(
                f"features={features!r} is no function.\nWrite a function of the model's "
                "arguments: Amortized(..., features=lambda x, y: (x, y))."
            )
        if isinstance(follow, str):
            raise FamilyError(f"follow={follow!r} is one name.\nWrite follow=({follow!r},).")
        self.encoder: Any = SetEncoder() if encoder is None else encoder
        self.plate, self.base, self.features = plate, base, features
        self.prior_weights = prior_weights
        self.follow = None if follow is None else tuple(follow)
        self.settings = settings
        if not isinstance(self.encoder, SetEncoder):
            as_network(self.encoder)  # say at once what is no network

    def __repr__(self) -> str:
        # A network is known by its identity: another of the same make has other weights.
        own = {"encoder": _shown(self.encoder), "features": _shown(self.features)}
        shown = {name: own.get(name, repr(value)) for name, value in self._given().items()}
        return f"Amortized({', '.join(f'{name}={value}' for name, value in shown.items())})"

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: Any) -> bool:
        return type(self) is type(other) and repr(self) == repr(other)

    @property
    def start(self) -> str:  # type: ignore[override]
        return self.base.start

    @property
    def name(self) -> str:
        return f"Amortized {self.base.name}"

    def config(self) -> dict[str, Any]:
        """Settings; a network and a function of a user's own are named, and no more."""
        own = {"encoder": self.encoder, "features": self.features}
        given: dict[str, Any] = {n: OwnObject(n) for n, x in own.items() if x is not None}
        if isinstance(self.encoder, SetEncoder):
            given["encoder"] = self.encoder
        return {**self._given(), **given}

    @property
    def parameterization(self) -> Any:
        return self.base.parameterization

    # -------------------------------------------------------------------------- as any family

    def declare(self, site: Site) -> dict[str, Parameter]:
        """The parameters of a site outside the plate: the base's own."""
        return self.base.declare(site)

    def from_data(
        self,
        program: Program,
        sites: list[Site],
        label: str,
        model: Callable,
        args: tuple,
        kwargs: dict[str, Any],
    ) -> PlateEncoder:
        return plate_encoder(self, program, sites, label, model, args, kwargs)

    def follows_parents(self, site: Site) -> bool:
        return self.base.follows_parents(site)

    def update(
        self, prior: Distribution, parameters: dict[str, jax.Array], site: Site
    ) -> Distribution:
        parts = decompose(prior, parameterization=self.parameterization, site=site.name)
        values = {}
        for name, leaf in parts.leaves.items():
            term = parameters[f"{name}/data_term"]
            weight = parameters.get(f"{name}/prior_weight")
            values[name] = term if weight is None else mix(weight, leaf, term)
        return parts.rebuild(values)


def _shown(x: Any) -> str:
    if x is None or isinstance(x, SetEncoder):
        return repr(x)
    name = getattr(x, "__name__", type(x).__name__)
    return f"<{name} at {id(x):#x}>"
