"""Takes a prior conditional and the noise of earlier sites; gives a convex update that listens.

The convex update follows a site's parents and nothing else. What the data couple afterwards, two
coefficients of one regression, a group's effect and the effects of all others, it cannot hold. Here
the same update listens to the *residuals* r of earlier sites, the standardised noise of their
draws:

.. math::

    \\lambda &= \\sigma(\\lambda_0 + W^\\lambda f), \\quad \\alpha = \\alpha_0 + W^\\alpha f,
    \\qquad \\theta' = \\lambda\\odot\\theta + (1-\\lambda)\\odot\\alpha, \\\\
    x &= T(m_{\\theta'} + s_{\\theta'}\\,(e^{c + Cf} v + h + e^{Lf} B\\,(e^{Vf} r)
    + Q\\varphi(r))), \\qquad v = w + a(\\sqrt{1 + w^2} - 1), \\quad w = S(z), \\quad
    z \\sim p_{\\theta'}.

f are features of the globals' residuals (:func:`steering`): themselves, squares and tails, of the
noise as drawn and as moved.

r is a function of values already drawn, so each site is an ordinary conditional distribution with
an exact density. With all weights at 0, where they start, it is the convex update; with every
earlier residual in the context it contains every Gaussian over the noise, and so, at λ=0, every
full-rank Gaussian over the unconstrained latents. The skew a, the stretches C and the bends Q (see
:func:`curved`), which listen to globals and to the same cell of a plate, hold what no Gaussian can.
So do *loudness* L and *voice* V, how much a number hears and how loud it speaks: how the noise of a
chain hangs together is another matter where its scale is large. Large models go without. S, at the
globals of small models, is a monotone spline (:mod:`asvi.families.spline`), elsewhere w is z.

In small models, and in large ones whose plates say what is apart (:mod:`asvi.families.cells`),
there is a second coupling, the *frame*: with :math:`\\epsilon` what the noise became above,
:math:`x = T(m + s(\\epsilon + F \\epsilon_{earlier}))`. It is not trained.
``fit`` writes the Gaussian that it found into it, and the rest is learned in coordinates in which
that Gaussian is the standard one: posteriors with correlations of 0.9999 are no harder than others.
"""

from __future__ import annotations

from math import prod

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution, biject_to

from asvi.errors import FamilyError
from asvi.families.base import ContextFamily, Parameter
from asvi.families.context import Context, Limits, Noise, choose_contexts
from asvi.families.convex import ConvexUpdate
from asvi.families.moved import Heard, MovedNoise
from asvi.families.noise import noise_shape
from asvi.families.parameters import Parameterization
from asvi.families.spline import WEIGHTS
from asvi.program import Program, Site
from asvi.windows import look_back

__all__ = ["Coupled"]

CROSSED = 6  # numbers whose products and tails are features too, and that have a spline
MOST_SKEWED = 0.95
GATED = 64  # numbers of a site that hear each other as loud as globals say
STEERED = ("_coupling", "coupling/stretch_gates", "coupling/loudness", "coupling/voice")


class Coupled(ConvexUpdate, ContextFamily):
    r"""The convex update, coupled to the noise of earlier sites; see the module's text.

    :param context: ``"auto"`` chooses by the program's graph and the sizes; ``"globals"`` listens
        to low-dimensional sites alone; ``"none"`` is the convex update with an offset.
    :param max_edges: coupling weights that may be spent in all; models with more than a sixth as
        many latent numbers may have six per number, and models of many groups as many as there are
        pairs of a number of a group and one that all groups have in common, up to 100,000.
    :param window: steps that a chain looks back on; by default as many as fit.
    :param initial_prior_weight, start, gate_gain, parameterization: as for
        :class:`~asvi.families.convex.ConvexUpdate`.

    Two coefficients of one regression, which the convex update makes independent:

    >>> import jax, jax.numpy as jnp, numpyro, numpyro.distributions as dist, asvi
    >>> def model(y):
    ...     a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    ...     b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    ...     numpyro.sample("y", dist.Normal(a + b, 0.1), obs=y)
    >>> result = asvi.fit(model, 1.0, family=Coupled(), progress=False, steps=4000)
    >>> draws = result.posterior.sample(jax.random.key(1), (1000,))
    >>> bool(jnp.corrcoef(draws["a"], draws["b"])[0, 1] < -0.97)
    True
    """

    def __init__(
        self,
        context: str = "auto",
        *,
        max_edges: int = 20_000,
        window: int | None = None,
        initial_prior_weight: float = 0.999,
        start: str = "prior_mean",
        gate_gain: float = 4.0,
        parameterization: Parameterization = "expectation",
    ):
        super().__init__(
            initial_prior_weight=initial_prior_weight,
            start=start,
            gate_gain=gate_gain,
            parameterization=parameterization,
        )
        if context not in ("auto", "globals", "none"):
            raise FamilyError(f"context={context!r} is not known; choose auto, globals or none.")
        if not isinstance(max_edges, int) or max_edges < 0:
            raise FamilyError(f"max_edges must be a whole number from 0 up, got {max_edges!r}.")
        if window is not None and (not isinstance(window, int) or window < 0):
            raise FamilyError(f"window must be None or a whole number from 0 up, got {window!r}.")
        self.context, self.max_edges, self.window = context, max_edges, window

    # ------------------------------------------------------------------------------- contexts

    def contexts(self, program: Program, sites: list[Site]) -> dict[str, Context]:
        shapes = {}
        for site in sites:
            shape = noise_shape(site)
            moves = shape is not None
            value = site.full_batch_shape + site.event_shape
            shapes[site.address] = Noise(shape if moves else value, moves, site.is_discrete)
        if self.context == "none":
            return {a: Context(noise.shape, moves=noise.moves) for a, noise in shapes.items()}
        limits = Limits(self.max_edges, window=self.window)
        chosen = choose_contexts(program, shapes, limits)
        if self.context == "globals":
            return {
                a: Context(
                    c.shape, c.moves, c.gates, dense=c.gates if c.moves else (), sizes=c.sizes
                )
                for a, c in chosen.items()
            }
        return chosen

    # ----------------------------------------------------------------------------- parameters

    def declare_in(self, site: Site, context: Context) -> dict[str, Parameter]:
        declared = ConvexUpdate.declare(self, site)
        gates = context.size(context.gates)
        features = steers(gates, context.rich)
        if gates:
            for name, parameter in list(declared.items()):
                if not site.parents and not name.endswith("scale/data_term"):
                    # θ is constant: its weight says nothing that α does not; and a moving
                    # location is what the shift is for.
                    continue
                free = biject_to(parameter.constraint).inverse_shape(parameter.shape)
                declared[f"{name}_coupling"] = _weights((*free, features))
        if not context.moves:
            return declared
        declared["coupling/offset"] = _weights(context.shape)
        declared["coupling/stretch"] = _weights(context.shape)
        if context.bent:
            declared["coupling/skew"] = _weights(context.shape)
        alone = not site.steps and not site.plates
        if context.rich and alone and prod(context.shape) <= CROSSED:
            declared["coupling/spline"] = _weights((*context.shape, WEIGHTS))
        steered = {}
        if gates and context.bent:
            steered = {"bend_gates": bends(gates, context.rich), "stretch_gates": features}
        if gates and context.rich:
            steered |= {"loudness": features, "voice": features}
        if context.cell_size and context.bent:
            cell = context.cell_size
            steered |= {
                "bend_cell": bends(cell, context.rich),
                "stretch_cell": steers(cell, context.rich),
            }
        for name, size in steered.items():
            declared[f"coupling/{name}"] = _weights((*context.shape, size))
        numbers = {
            "dense": context.size(context.dense),
            "aligned": context.size(context.aligned),
            "window": context.window_size,
            "within": context.within,
        }
        for kind, size in numbers.items():
            if size:
                declared[f"coupling/{kind}"] = _weights((*context.shape, size))
                if context.frame:
                    declared[f"frame/{kind}"] = _weights((*context.shape, size))
        return declared

    def update_in(
        self,
        prior: Distribution,
        parameters: dict[str, jax.Array],
        site: Site,
        heard: dict[str, Heard],
    ) -> Distribution:
        constraint = {n: p.constraint for n, p in ConvexUpdate.declare(self, site).items()}
        coupling = {n: v for n, v in parameters.items() if n not in constraint}
        own = {name: value for name, value in parameters.items() if name in constraint}
        steered = _steered(coupling, heard)
        for name in own:
            if f"{name}_coupling" in steered:
                to_domain = biject_to(constraint[name])
                own[name] = to_domain(to_domain.inv(own[name]) + steered[f"{name}_coupling"])
        base = ConvexUpdate.update(self, prior, own, site)
        if "coupling/offset" not in parameters:
            return base
        # It is not trained: without this its gradient would be computed, and left unused.
        frame = {n: jax.lax.stop_gradient(v) for n, v in coupling.items() if n[:6] == "frame/"}
        offset = parameters["coupling/offset"] + steered.get("coupling/bend_gates", 0.0)
        stretch = parameters["coupling/stretch"] + steered.get("coupling/stretch_gates", 0.0)
        if "coupling/bend_cell" in parameters:
            bend, widen = parameters["coupling/bend_cell"], parameters["coupling/stretch_cell"]
            cell = heard["cell"]
            rich = widen.shape[-1] > cell.drawn.shape[-1]
            offset = offset + _applied(bend, bending(cell) if rich else curved(cell.drawn))
            stretch = stretch + _applied(widen, steering(cell) if rich else cell.drawn)
        said, shift = jnp.zeros(()), None
        for kind, hear in LISTENS.items():
            if f"coupling/{kind}" in parameters:
                said = said + hear(parameters[f"coupling/{kind}"], heard[kind].drawn)
            if f"frame/{kind}" in frame:
                more = hear(frame[f"frame/{kind}"], heard[kind].moved)
                shift = more if shift is None else shift + more
        loudness, voice = (
            jnp.exp(steered[f"coupling/{n}"]) if f"coupling/{n}" in steered else None
            for n in ("loudness", "voice")
        )
        if loudness is not None:
            said, shift = loudness * said, None if shift is None else loudness * shift
        within = parameters.get("coupling/within")
        # A triangle of its own for each draw is dear where it is large, or in a loop.
        gated = within is not None and within.shape[-1] <= GATED and not site.steps
        return MovedNoise(
            base,
            offset + said,
            stretch,
            _blocks(within),
            shift,
            _blocks(frame.get("frame/within")),
            _skew(parameters.get("coupling/skew")),
            loudness if gated else None,
            voice,
            parameters.get("coupling/spline"),
        )


def _skew(free: jax.Array | None) -> jax.Array | None:
    return None if free is None else MOST_SKEWED * jnp.tanh(free)


def _steered(weights: dict[str, jax.Array], heard: dict[str, Heard]) -> dict[str, jax.Array]:
    """What the globals add to each of the numbers that they steer, by the weights' names."""
    rows = {n: w for n, w in weights.items() if n.endswith(STEERED)}
    if not rows:
        return {}
    globals_ = heard["gates"]
    size = next(iter(rows.values())).shape[-1]
    # One product for all: many small ones cost more than what they compute.
    flat = jnp.concatenate([jnp.reshape(w, (-1, size)) for w in rows.values()])
    ends = np.cumsum([w.size // size for w in rows.values()])[:-1]
    rich = size > globals_.drawn.shape[-1]
    parts = jnp.split(flat @ (steering(globals_) if rich else globals_.drawn), ends)
    found = {n: jnp.reshape(x, rows[n].shape[:-1]) for n, x in zip(rows, parts, strict=True)}
    if "coupling/bend_gates" in weights:
        features = bending(globals_) if rich else curved(globals_.drawn)
        found["coupling/bend_gates"] = weights["coupling/bend_gates"] @ features
    return found


def steers(count: int, rich: bool) -> int:
    """How many features of this many numbers steer others."""
    return 8 * count if rich and count <= CROSSED else count


def steering(heard: Heard) -> jax.Array:
    """What k numbers steer others by, (..., 8k): curves of their noise, as drawn and as moved.

    Moved noise is where a number lies, whatever moved it there: a width that follows the *value* of
    an observation scale must know that, where the scale itself is wider or narrower as others say.
    """
    return jnp.concatenate([curves(heard.drawn), curves(heard.moved)], -1)


def curves(noise: jax.Array) -> jax.Array:
    r"""Noise (..., k), its squares and its tails, (..., 4k).

    Squares are :math:`r^2 / \sqrt{1 + 2r^2}`, so that everything is straight far out, with slopes
    of its own on either side.
    """
    return jnp.concatenate([noise, noise**2 / jnp.sqrt(1 + 2 * noise**2), tails(noise)], -1)


def tails(noise: jax.Array) -> jax.Array:
    """How far noise (..., k) is beyond 1.5 to the right, and to the left, (..., 2k).

    What few draws tell is learned slowly: the factor makes its steps as large as the others'.
    """
    return 4 / 3 * jax.nn.softplus(3 * (jnp.concatenate([noise, -noise], -1) - 1.5))


def bending(heard: Heard) -> jax.Array:
    """What a few numbers bend others by: products and tails of their noise; curves of it, moved."""
    return jnp.concatenate([curved(heard.drawn), tails(heard.drawn), curves(heard.moved)], -1)


def bends(count: int, rich: bool) -> int:
    """How many curved features this many numbers have, with tails and the rest where ``rich``."""
    if count > CROSSED:
        return count
    return count * (count + 1) // 2 + (6 * count if rich else 0)


def curved(noise: jax.Array) -> jax.Array:
    r"""Second-order features of noise (..., k): :math:`r_i r_j / \sqrt{1 + r_i^2 + r_j^2}`.

    They are products near 0 and grow like their factors far out, so that no draw is thrown far off.
    Of more than a few numbers the squares alone are taken.
    """
    count = noise.shape[-1]
    if count <= CROSSED:
        first, second = (noise[..., i] for i in np.triu_indices(count))
    else:
        first = second = noise
    return first * second / jnp.sqrt(1 + first**2 + second**2)


def _weights(shape: tuple[int, ...]) -> Parameter:
    return Parameter(shape, initial=lambda _key, _prior: jnp.zeros(shape))


def _applied(weights: jax.Array, noise: jax.Array) -> jax.Array:
    """``weights`` (..., k) on noise (k,), or on (plates..., k) cell by cell."""
    if noise.ndim == 1:
        return weights @ noise
    between = weights.ndim - noise.ndim
    noise = jnp.reshape(noise, noise.shape[:-1] + (1,) * between + noise.shape[-1:])
    return jnp.sum(weights * noise, -1)


def _blocks(within: jax.Array | None) -> jax.Array | None:
    """Weights (..., k) of all numbers of a site as square blocks (blocks, k, k)."""
    if within is None:
        return None
    size = within.shape[-1]
    return jnp.reshape(within, (-1, size, size))


LISTENS = {"dense": _applied, "aligned": _applied, "window": look_back}
