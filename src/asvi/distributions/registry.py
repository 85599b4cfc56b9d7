"""Takes a distribution; gives its leaves (each parameter's value and domain) and its rebuilding.

A *leaf* is one parameter of one distribution, broadcast to the distribution's batch shape. Only
what may be learned is a leaf: bounds of the support (``low``, ``high``, ``total_count``, a Pareto's
``scale``) stay as the model sets them at each draw.

>>> import numpyro.distributions as dist
>>> parts = decompose(dist.Normal(0.0, 2.0).expand([3]).to_event(1))
>>> {name: (leaf.value.shape, str(leaf.constraint)) for name, leaf in parts.leaves.items()}
{'loc': ((3,), 'Real()'), 'scale': ((3,), 'Positive(lower_bound=0.0)')}
>>> parts.rebuild({name: leaf.value + 1.0 for name, leaf in parts.leaves.items()}).event_shape
(3,)

The *parameterisation* is expectation-like by default: probabilities rather than logits, location
and scale. ``"logits"`` and ``"natural"`` can be asked for where a family has them:

>>> list(decompose(dist.Bernoulli(logits=0.0)).leaves)
['probs']
>>> list(decompose(dist.Bernoulli(probs=0.5), parameterization="logits").leaves)
['logits']
>>> list(decompose(dist.Normal(0.0, 1.0), parameterization="natural").leaves)
['precision_mean', 'precision']
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
from numpyro.distributions import Distribution, constraints

from asvi.errors import SiteError

__all__ = [
    "Decomposition",
    "Leaf",
    "Parameterization",
    "constructed_from",
    "decompose",
    "decomposer",
    "is_registered",
    "refuse",
    "register_parameters",
]

Parameterization = Literal["expectation", "logits", "natural"]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Leaf:
    """One parameter: its value, shape ``batch_shape + own event shape``, and its domain."""

    value: jax.Array
    constraint: constraints.Constraint


@dataclass(frozen=True)
class Decomposition:
    """A distribution taken apart: ``rebuild({name: value})`` puts it together again."""

    leaves: dict[str, Leaf]
    rebuild: Callable[[dict[str, jax.Array]], Any]

    def under(self, prefix: str) -> Decomposition:
        """The same parts with ``prefix`` before each leaf's name."""
        return Decomposition(
            {prefix + name: leaf for name, leaf in self.leaves.items()},
            lambda values: self.rebuild(take(values, prefix)),
        )


Decomposer = Callable[[Distribution, Shape, Parameterization], Decomposition]

_DECOMPOSERS: dict[tuple[type, str], Decomposer] = {}
_REFUSED: dict[type, tuple[str, str]] = {}


def decompose(
    dist: Distribution,
    batch_shape: Shape | None = None,
    *,
    parameterization: Parameterization = "expectation",
    site: str = "?",
) -> Decomposition:
    """Take ``dist`` apart, its leaves broadcast to ``batch_shape`` (default: its own).

    Raises :class:`~asvi.errors.SiteError` for a distribution that has no leaves to learn or is not
    known; the text says what to write instead.

    >>> from numpyro.distributions import Gamma
    >>> sorted(decompose(Gamma(2.0, 1.0)).leaves)
    ['concentration', 'rate']
    """
    batch_shape = dist.batch_shape if batch_shape is None else batch_shape
    cls = type(dist)
    if cls in _REFUSED:
        problem, mended = _REFUSED[cls]
        raise SiteError(site, f"{cls.__name__} {problem}", mended)
    found = _DECOMPOSERS.get((cls, parameterization)) or _DECOMPOSERS.get((cls, "expectation"))
    if found is None:
        raise SiteError(
            site,
            f"asvi does not know the parameters of {cls.__name__}",
            _registration_of(cls),
            advice="Tell it once, before the guide is made.",
        )
    if parameterization != "expectation" and (cls, parameterization) not in _DECOMPOSERS:
        known = sorted(how for known_cls, how in _DECOMPOSERS if known_cls is cls)
        raise SiteError(
            site,
            f"{cls.__name__} has no {parameterization!r} parameterisation (it has: "
            f"{', '.join(known)})",
            'ConvexUpdate(parameterization="expectation")',
        )
    try:
        parts = found(dist, batch_shape, parameterization)
    except SiteError as error:  # an inner distribution: name the site
        raise SiteError(site, error.problem, error.mended, error.advice) from None

    def rebuild(values: dict[str, jax.Array]) -> Distribution:
        own = {name: values[name] for name in parts.leaves}  # a wrapper passes all it has
        return _with_batch(parts.rebuild(own), batch_shape)

    return Decomposition(parts.leaves, rebuild)


def register_parameters(
    cls: type[Distribution],
    leaves: Mapping[str, constraints.Constraint],
    fixed: tuple[str, ...] = (),
    rebuild: Callable[..., Distribution] | None = None,
) -> None:
    """Tell `asvi` what a distribution class is made of.

    :param leaves: the parameters to learn, by the name of the attribute that holds them, each with
        its domain. The domain must be convex; where it is not a product of intervals (a simplex,
        say) one prior weight is learned per event.
    :param fixed: further constructor arguments, kept as the model sets them: whatever bounds the
        support.
    :param rebuild: called with all of these by name; the class itself if not given.

    >>> import numpyro.distributions as dist
    >>> class Cosine(dist.Distribution):
    ...     arg_constraints = {"loc": constraints.real, "width": constraints.positive}
    ...     def __init__(self, loc, width):
    ...         self.loc, self.width = loc, width
    ...         super().__init__(jnp.broadcast_shapes(jnp.shape(loc), jnp.shape(width)))
    >>> register_parameters(Cosine, {"loc": constraints.real, "width": constraints.positive})
    >>> list(decompose(Cosine(0.0, 1.0)).leaves)
    ['loc', 'width']
    """
    decomposer(cls)(constructed_from(dict(leaves), fixed, rebuild))
    _REFUSED.pop(cls, None)


def decomposer(*classes: type, parameterization: str = "expectation"):
    """Decorator: this function takes distributions of these classes apart."""

    def register(function: Decomposer) -> Decomposer:
        for cls in classes:
            _DECOMPOSERS[cls, parameterization] = function
        return function

    return register


def refuse(cls: type, problem: str, mended: str) -> None:
    """Distributions of this class raise an error with this text."""
    _REFUSED[cls] = (problem, mended)


def is_registered(cls: type) -> Literal["supported", "refused"] | None:
    """Whether `asvi` takes this class apart, refuses it with advice, or does not know it."""
    if cls in _REFUSED:
        return "refused"
    return "supported" if (cls, "expectation") in _DECOMPOSERS else None


def constructed_from(
    leaves: dict[str, Any],
    fixed: tuple[str, ...] = (),
    rebuild: Callable[..., Distribution] | None = None,
) -> Decomposer:
    """A decomposer for classes whose constructor arguments are attributes of the instance.

    A leaf's domain may be a function of the distribution.
    """

    def take_apart(dist: Distribution, batch_shape: Shape, _: Parameterization) -> Decomposition:
        found = {}
        for name, domain in leaves.items():
            if not isinstance(domain, constraints.Constraint):
                domain = domain(dist)
            found[name] = Leaf(expand_leaf(getattr(dist, name), domain, batch_shape), domain)
        kept = {name: getattr(dist, name) for name in fixed}
        make = type(dist) if rebuild is None else rebuild
        return Decomposition(found, lambda values: make(**values, **kept))

    return take_apart


def expand_leaf(value: Any, domain: constraints.Constraint, batch_shape: Shape) -> jax.Array:
    """``value`` broadcast to ``batch_shape`` on the left of its own event axes."""
    value = jnp.asarray(value)
    if not jnp.issubdtype(value.dtype, jnp.inexact):
        value = value.astype(jnp.result_type(float))
    own = value.shape[value.ndim - domain.event_dim :]
    return jnp.broadcast_to(value, batch_shape + own)


def take(values: dict[str, jax.Array], prefix: str) -> dict[str, jax.Array]:
    """The entries whose name starts with ``prefix``, without it."""
    return {name[len(prefix) :]: v for name, v in values.items() if name.startswith(prefix)}


def _with_batch(dist: Distribution, batch_shape: Shape) -> Distribution:
    return dist if dist.batch_shape == batch_shape else dist.expand(batch_shape)


def _code_for(domain: constraints.Constraint) -> str:
    """How to write a domain; ``...`` where it has bounds of its own."""
    for name in constraints.__all__:
        if getattr(constraints, name) is domain:
            return f"constraints.{name}"
    return "constraints..."


def _registration_of(cls: type) -> str:
    known = cls.arg_constraints if isinstance(cls.arg_constraints, dict) else {}
    inner = ", ".join(f'"{name}": {_code_for(domain)}' for name, domain in known.items())
    return f"asvi.register_parameters({cls.__name__}, {{{inner or '...'}}})"
