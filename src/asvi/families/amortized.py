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

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import Distribution, biject_to, constraints

from asvi.errors import FamilyError
from asvi.families.base import Family, Parameter, inside
from asvi.families.convex import (
    ConvexUpdate,
    PriorWeight,
    check_choice,
    data_terms,
    mix,
    prior_weight_shape,
)
from asvi.families.encoders import Network, SetEncoder, as_network
from asvi.families.mean_field import MeanField
from asvi.families.parameters import decompose
from asvi.program import Site

__all__ = ["Amortized", "Encoding", "Head"]

Ask = Callable[[str, Callable[[jax.Array], Any]], jax.Array]
SMALL = 0.01  # spread of the heads' weights at the start, over that of a usual layer


class Amortized(Family):
    r"""Latents of a plate get their data terms from a network; see the module's text.

    :param encoder: a flax ``nnx`` or ``linen`` module, an equinox module, a pair ``(function,
        params)``, an object with ``init`` and ``apply``, or a function with nothing to learn.
        Without one, :class:`~asvi.families.encoders.SetEncoder`.
    :param plate: the plate whose points are amortised. Without it, the one plate that holds latents
        and, where there are several, is subsampled.
    :param base: what is done with the data terms: ``ConvexUpdate(...)``, which mixes them with what
        the parents say, or ``MeanField()``, which does not. Sites outside the plate get this family
        with parameters of their own. λ starts at 1/2 by default.
    :param features: a function of the model's arguments that picks what the encoder is given.
    :param prior_weights: ``"shared"``, one λ for all points, or ``"encoder"``, λ(y).
    :param follow: the leaves that follow the parents; ``("loc",)`` gives every other leaf, the
        scale say, to the encoder alone. By default all. Sites without parents follow nobody.

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
        if not isinstance(self.encoder, SetEncoder):
            as_network(self.encoder)  # say at once what is no network

    def __repr__(self) -> str:
        # A network is known by its identity: another of the same make has other weights.
        known = {**vars(self), "encoder": _shown(self.encoder), "features": _shown(self.features)}
        told = {k: v if k in ("encoder", "features") else repr(v) for k, v in known.items()}
        return f"Amortized({', '.join(f'{name}={value}' for name, value in told.items())})"

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: Any) -> bool:
        return type(self) is type(other) and repr(self) == repr(other)

    @property
    def start(self) -> str:
        return self.base.start

    @property
    def parameterization(self) -> Any:
        return self.base.parameterization

    # -------------------------------------------------------------------------- as any family

    def declare(self, site: Site) -> dict[str, Parameter]:
        """The parameters of a site outside the plate: the base's own."""
        return self.base.declare(site)

    def declare_shared(self, site: Site, heads: Mapping[str, Head]) -> dict[str, Parameter]:
        """The parameters of a site in the plate that no head gives: λ, one for all points."""
        if not isinstance(self.base, ConvexUpdate):
            return {}
        declared = {}
        for name in self.followed(site):
            if (weight := f"{name}/prior_weight") in heads:
                continue
            head = heads[f"{name}/data_term"]
            point = prior_weight_shape(head.constraint, head.shape)
            shape = (*point[: head.axis], 1, *point[head.axis :])
            declared[weight] = Parameter(
                shape,
                PriorWeight(self.base.gate_gain),
                lambda _key, _prior, shape=shape: jnp.full(shape, self.base.initial_prior_weight),
            )
        return declared

    def followed(self, site: Site) -> list[str]:
        """The leaves of a site in the plate that follow its parents."""
        if not isinstance(self.base, ConvexUpdate) or not site.parents:
            return []
        leaves = list(data_terms(self.base, site))
        return leaves if self.follow is None else [n for n in leaves if n in self.follow]

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


# ----------------------------------------------------------------------- the encoder in a guide


@dataclass(frozen=True)
class Head:
    """One parameter of one point: its shape and domain, and where the plate's axis goes."""

    shape: tuple[int, ...]
    constraint: constraints.Constraint
    axis: int

    @property
    def free_shape(self) -> tuple[int, ...]:
        return biject_to(self.constraint).inverse_shape(self.shape)


@dataclass
class Encoding:
    """An amortised family at work in one guide; made by :func:`asvi.encoding.encoding_of`."""

    family: Amortized
    plate: str
    label: str
    network: Network
    heads: dict[str, dict[str, Head]]
    """By the site's address and the parameter's name."""
    names: dict[str, str]
    """The sites' names by address."""
    paths: list[str] = field(default_factory=list)
    tree: Any = None
    direct: frozenset[str] = frozenset()
    """Addresses of sites whose data terms the encoder gives itself."""

    def asked(self) -> dict[str, str]:
        """What each parameter is that :meth:`encode` asks for, by its name."""
        roles = {f"{self.label}/{path}": "layer" for path in self.paths}
        for address, heads in self.heads.items():
            if address not in self.direct:
                for parameter in heads:
                    for role in ("head_kernel", "head_bias"):
                        roles[f"{self.names[address]}/{parameter}/{role}"] = role
        return roles

    def encode(
        self, data: Any, ask: Ask, priors: Callable[[jax.Array], dict[str, Distribution]]
    ) -> dict[str, dict[str, jax.Array]]:
        """The parameters that come from the data, by address and name, at the minibatch's size.

        ``ask(name, initial)`` gives the value of a parameter of the guide; ``priors`` the sites'
        priors at the start.
        """
        made: list[Any] = []

        def start(key: jax.Array, i: int) -> jax.Array:
            if not made:
                made.extend(jax.tree.leaves(self.network.init(key, data)))
            return made[i]

        params = jax.tree.unflatten(
            self.tree,
            [
                ask(f"{self.label}/{path}", lambda key, i=i: start(key, i))
                for i, path in enumerate(self.paths)
            ],
        )
        given = self.network.apply(params, data)
        found = {}
        for address, heads in self.heads.items():
            name = self.names[address]
            own = given[name] if isinstance(given, Mapping) else given
            found[address] = {
                parameter: jnp.moveaxis(value, 0, heads[parameter].axis)
                for parameter, value in (
                    _named(own).items()
                    if address in self.direct
                    else self._through_heads(own, address, ask, priors).items()
                )
            }
        return found

    def _through_heads(
        self, features: jax.Array, address: str, ask: Ask, priors: Callable
    ) -> dict[str, jax.Array]:
        found = {}
        for parameter, head in self.heads[address].items():
            shape = head.free_shape
            size = features.shape[-1]
            prefix = f"{self.names[address]}/{parameter}"

            def kernel(key: jax.Array, shape=shape, size=size) -> jax.Array:
                return SMALL * jax.random.normal(key, (size, *shape)) / size**0.5

            def bias(key: jax.Array, parameter=parameter, head=head) -> jax.Array:
                return self._start(parameter, head, address, priors(key))

            weights = ask(f"{prefix}/head_kernel", kernel)
            free = jnp.tensordot(features, weights, 1) + ask(f"{prefix}/head_bias", bias)
            found[parameter] = biject_to(head.constraint)(free)
        return found

    def _start(
        self, parameter: str, head: Head, address: str, priors: dict[str, Distribution]
    ) -> jax.Array:
        """Where a head's bias starts: the prior's own leaf, its mean over the minibatch."""
        to_domain = biject_to(head.constraint)
        leaf, _, kind = parameter.rpartition("/")
        if kind == "prior_weight":
            weight = self.family.base.initial_prior_weight  # type: ignore[attr-defined]
            return to_domain.inv(jnp.full(head.shape, weight))
        parts = decompose(
            priors[address],
            parameterization=self.family.parameterization,
            site=self.names[address],
        )
        value = inside(parts.leaves[leaf].value, head.constraint)
        return to_domain.inv(jnp.mean(value, axis=head.axis))


def _named(given: Mapping[str, Any]) -> dict[str, jax.Array]:
    """The encoder's names for its outputs (``loc``, ``loc/prior_weight``) as parameters' names."""
    return {
        name if name.endswith("/prior_weight") else f"{name}/data_term": value
        for name, value in given.items()
    }
