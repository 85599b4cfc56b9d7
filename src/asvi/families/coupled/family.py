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

f are features of the globals' residuals (:func:`gain_features`): themselves, squares and tails, of
the noise as drawn and as warped.

r is a function of values already drawn, so each site is an ordinary conditional distribution with
an exact density. With all weights at 0, where they start, it is the convex update; with every
earlier residual in the context it contains every Gaussian over the noise, and so, at λ=0, every
full-rank Gaussian over the unconstrained latents. The skew a, the scales C and the shifts Q (see
:func:`product_features`), which take globals and the same member of a plate as input, hold what no
Gaussian can. So do the *input gain* L and the *output gain* V, how much a number takes from others
and passes on: how the noise of a chain hangs together is another matter where its scale is large.
Large models go without. S, at the
globals of small models, is a monotone spline (:mod:`asvi.distributions.spline`), elsewhere w is z.

In small models, and in large ones whose plates say what is apart
(:mod:`asvi.density.block_structure`), there is a second coupling, the *frame*: with
:math:`\\epsilon` what the noise became above, :math:`x = T(m + s(\\epsilon + F
\\epsilon_{earlier}))`. It is not trained. ``fit`` writes the Gaussian that it found into it, and
the rest is learned in coordinates in which that Gaussian is the standard one: posteriors with
correlations of 0.9999 are no harder than others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution, biject_to

from asvi.distributions.registry import Parameterization
from asvi.distributions.spline import N_SPLINE_WEIGHTS
from asvi.distributions.standardize import noise_shape
from asvi.distributions.warped_noise import Residual, WarpedNoise
from asvi.errors import FamilyError
from asvi.families.convex import ConvexUpdate, free_leaves
from asvi.families.coupled.coupling_graph import (
    CouplingSettings,
    Inputs,
    ResidualSpec,
    choose_inputs,
)
from asvi.families.coupled.features import (
    CROSSED,
    applied,
    blocks,
    gain_features,
    n_gain_features,
    n_shift_features,
    product_features,
    shift_features,
)
from asvi.families.gaussian_share import GaussianShare, Held
from asvi.families.parameter import Parameter, Role
from asvi.program.control_flow.lookback import look_back
from asvi.program.program import Program
from asvi.program.site import Site

__all__ = ["Coupled"]

MOST_SKEWED = 0.95
BOUND = 0.99  # of a prior weight near 1: any nearer, and its gradient vanishes
GATED = 64  # numbers of a site that hear each other as loud as globals say
STEERED = ("coupling/stretch_gates", "coupling/loudness", "coupling/voice")
GATE_STEP = 0.25  # of weights that steer a gate or a data term: the gate's own gain is 4
SPLINE_STEP = 0.3  # logarithms of heights and slopes: each is felt by a few draws only


class Coupled(ConvexUpdate):
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

    # --------------------------------------------------------------------------------- inputs

    def inputs(self, program: Program, sites: list[Site]) -> dict[str, Inputs]:
        """What each site listens to, by address."""
        shapes = {}
        for site in sites:
            shape = noise_shape(site)
            moves = shape is not None
            value = site.full_batch_shape + site.event_shape
            shapes[site.address] = ResidualSpec(shape if moves else value, moves, site.is_discrete)
        if self.context == "none":
            return {a: Inputs(noise.shape, moves=noise.moves) for a, noise in shapes.items()}
        limits = CouplingSettings(self.max_edges, window=self.window)
        chosen = choose_inputs(program, shapes, limits)
        if self.context == "globals":
            return {
                a: Inputs(
                    c.shape, c.moves, c.gates, dense=c.gates if c.moves else (), sizes=c.sizes
                )
                for a, c in chosen.items()
            }
        return chosen

    # ----------------------------------------------------------------------------- parameters

    def declare_with(self, site: Site, inputs: Inputs) -> dict[str, Parameter]:
        declared = ConvexUpdate.declare(self, site)
        gates = inputs.size(inputs.gates)
        features = n_gain_features(gates, inputs.rich)
        if gates:
            for name, parameter in list(declared.items()):
                is_term = parameter.role is Role.DATA_TERM
                if not site.parents and not (is_term and parameter.leaf_kind == "scale"):
                    # θ is constant: its weight says nothing that α does not; and a moving
                    # location is what the shift is for.
                    continue
                free = biject_to(parameter.constraint).inverse_shape(parameter.shape)
                role = Role.DATA_TERM_COUPLING if is_term else Role.PRIOR_WEIGHT_COUPLING
                step = GATE_STEP / np.sqrt(features)
                declared[f"{name}_coupling"] = _zeros(
                    (*free, features), role, step, leaf=parameter.leaf
                )
        if not inputs.moves:
            return declared
        declared["coupling/offset"] = _zeros(inputs.shape)
        declared["coupling/stretch"] = _zeros(inputs.shape)
        if inputs.bent:
            declared["coupling/skew"] = _zeros(inputs.shape)
        alone = not site.steps and not site.plates
        if inputs.rich and alone and prod(inputs.shape) <= CROSSED:
            declared["coupling/spline"] = _zeros(
                (*inputs.shape, N_SPLINE_WEIGHTS), Role.SPLINE, SPLINE_STEP
            )
        for name, size in _steered_sizes(inputs, gates, features).items():
            declared[f"coupling/{name}"] = _row(inputs.shape, size)
        numbers = {
            "dense": inputs.size(inputs.dense),
            "aligned": inputs.size(inputs.aligned),
            "window": inputs.window_size,
            "within": inputs.within,
        }
        for kind, size in numbers.items():
            if size:
                declared[f"coupling/{kind}"] = _row(inputs.shape, size)
                if inputs.frame:
                    declared[f"frame/{kind}"] = _zeros((*inputs.shape, size), trained=False)
        return declared

    def update_with(
        self,
        prior: Distribution,
        parameters: dict[str, jax.Array],
        site: Site,
        residuals: dict[str, Residual],
    ) -> Distribution:
        heard = residuals
        constraint = {n: p.constraint for n, p in ConvexUpdate.declare(self, site).items()}
        coupling = {n: v for n, v in parameters.items() if n not in constraint}
        own = {name: value for name, value in parameters.items() if name in constraint}
        steered = _steered(coupling, [f"{name}_coupling" for name in constraint], heard)
        for name in own:
            if f"{name}_coupling" in steered:
                to_domain = biject_to(constraint[name])
                own[name] = to_domain(to_domain.inv(own[name]) + steered[f"{name}_coupling"])
        base = ConvexUpdate.update(self, prior, own, site)
        if "coupling/offset" not in parameters:
            return base
        # It is not trained: without this its gradient would be computed, and left unused.
        frame = {
            n: jax.lax.stop_gradient(coupling[n])
            for n in map("frame/{}".format, KINDS)
            if n in coupling
        }
        offset = parameters["coupling/offset"] + steered.get("coupling/bend_gates", 0.0)
        log_scale = parameters["coupling/stretch"] + steered.get("coupling/stretch_gates", 0.0)
        if "coupling/bend_cell" in parameters:
            bend, widen = parameters["coupling/bend_cell"], parameters["coupling/stretch_cell"]
            cell = heard["cell"]
            rich = widen.shape[-1] > cell.drawn.shape[-1]
            offset = offset + applied(
                bend, shift_features(cell) if rich else product_features(cell.drawn)
            )
            log_scale = log_scale + applied(widen, gain_features(cell) if rich else cell.drawn)
        said, shift = jnp.zeros(()), None
        for kind, hear in LISTENS.items():
            if f"coupling/{kind}" in parameters:
                said = said + hear(parameters[f"coupling/{kind}"], heard[kind].drawn)
            if f"frame/{kind}" in frame:
                more = hear(frame[f"frame/{kind}"], heard[kind].warped)
                shift = more if shift is None else shift + more
        input_gain, output_gain = (
            jnp.exp(steered[f"coupling/{n}"]) if f"coupling/{n}" in steered else None
            for n in ("loudness", "voice")
        )
        if input_gain is not None:
            said, shift = input_gain * said, None if shift is None else input_gain * shift
        within = parameters.get("coupling/within")
        # A triangle of its own for each draw is dear where it is large, or in a loop.
        gated = within is not None and within.shape[-1] <= GATED and not site.steps
        return WarpedNoise(
            base,
            offset + said,
            log_scale,
            blocks(within),
            shift,
            blocks(frame.get("frame/within")),
            _skew(parameters.get("coupling/skew")),
            input_gain if gated else None,
            output_gain,
            parameters.get("coupling/spline"),
        )

    # ----------------------------------------------------------------------------- a Gaussian

    def holds_gaussian(self, site: Site, declared: Mapping[str, Parameter]) -> bool:
        return "coupling/offset" in declared or super().holds_gaussian(site, declared)

    def from_gaussian(
        self,
        share: GaussianShare,
        declared: Mapping[str, Parameter],
        steps: Mapping[str, np.ndarray],
    ) -> Held:
        """A site of its own location and scale takes mean and scale in these.

        The others keep their prior (scaled down, where they have a scale) and take it as offset
        and stretch of their noise.
        """
        if "coupling/offset" not in declared:
            return super().from_gaussian(share, declared, steps)
        if share.is_located:
            values = free_leaves(share)
        else:
            values = {"coupling/offset": share.offset, "coupling/stretch": np.log(share.stretch)}
            if share.is_direct:
                values |= _in_the_noise(share)
        kept = {name: x for name, x in values.items() if name in declared}
        return Held(kept, _slowed_down(share, declared, steps))


def _in_the_noise(share: GaussianShare) -> dict[str, Any]:
    """Location at the prior's, scale a fraction of it.

    A prior weight cannot be 1. What is left of it draws to the location at the mean, and is so
    small that it does no harm where the location moves with the parents.
    """
    own, scale = share.own, share.scale
    weight = np.clip(own, 1e-3, BOUND)
    left = share.slack * own * scale
    return {
        "loc/prior_weight": np.clip(1 - left, BOUND, 0.9999),
        "loc/data_term": share.loc,
        "scale/prior_weight": weight,
        "scale/data_term": (np.maximum(own - weight, 0.0) / (1 - weight) + 1e-3 * own) * scale,
    }


def _slowed_down(
    share: GaussianShare, declared: Mapping[str, Parameter], steps: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Steps of a site's own leaves, which multiply all that it hears.

    A location and scale that took the Gaussian are held: offset, stretch and weights say all but
    how the scale follows other sites.
    """
    found, reach = dict(steps), share.reach
    for name, parameter in declared.items():
        if parameter.leaf is None:
            continue
        follows = parameter.role is Role.DATA_TERM_COUPLING and parameter.leaf == "scale"
        if share.is_located and not follows:
            found[name] = 0.0 * steps[name]
        elif parameter.leaf == "scale" and steps[name].shape[: reach.ndim] == reach.shape:
            wide = reach[..., None] if parameter.role.couples else reach
            found[name] = steps[name] * wide**-0.5
        elif parameter.leaf_kind != "loc":
            found[name] = steps[name] / np.sqrt(reach.max())
    return found


def _skew(free: jax.Array | None) -> jax.Array | None:
    return None if free is None else MOST_SKEWED * jnp.tanh(free)


def _steered(
    weights: dict[str, jax.Array], of_leaves: Collection[str], heard: dict[str, Residual]
) -> dict[str, jax.Array]:
    """What the globals add to each of the numbers that they steer, by the weights' names.

    ``of_leaves`` names the weights that steer leaves.
    """
    rows = {n: w for n, w in weights.items() if n in STEERED or n in of_leaves}
    if not rows:
        return {}
    globals_ = heard["gates"]
    size = next(iter(rows.values())).shape[-1]
    # One product for all: many small ones cost more than what they compute.
    flat = jnp.concatenate([jnp.reshape(w, (-1, size)) for w in rows.values()])
    ends = np.cumsum([w.size // size for w in rows.values()])[:-1]
    rich = size > globals_.drawn.shape[-1]
    parts = jnp.split(flat @ (gain_features(globals_) if rich else globals_.drawn), ends)
    found = {n: jnp.reshape(x, rows[n].shape[:-1]) for n, x in zip(rows, parts, strict=True)}
    if "coupling/bend_gates" in weights:
        features = shift_features(globals_) if rich else product_features(globals_.drawn)
        found["coupling/bend_gates"] = weights["coupling/bend_gates"] @ features
    return found


def _steered_sizes(inputs: Inputs, gates: int, features: int) -> dict[str, int]:
    """Features that weigh in what globals and a plate's cell steer, by the weights' names."""
    found = {}
    if gates and inputs.bent:
        found = {"bend_gates": n_shift_features(gates, inputs.rich), "stretch_gates": features}
    if gates and inputs.rich:
        found |= {"loudness": features, "voice": features}
    if inputs.cell_size and inputs.bent:
        cell = inputs.cell_size
        found |= {
            "bend_cell": n_shift_features(cell, inputs.rich),
            "stretch_cell": n_gain_features(cell, inputs.rich),
        }
    return found


def _zeros(
    shape: tuple[int, ...], role: Role = Role.OTHER, step: float = 1.0, **more: Any
) -> Parameter:
    def initial(_key: jax.Array, _prior: Distribution) -> jax.Array:
        return jnp.zeros(shape)

    return Parameter(shape, initial=initial, role=role, step_size=step, **more)


def _row(shape: tuple[int, ...], size: int) -> Parameter:
    """Weights of so many things that each number hears: they add up."""
    return _zeros((*shape, size), Role.COUPLING, 1.0 / np.sqrt(size))


KINDS = ("dense", "aligned", "window", "within")  # of edges
LISTENS = {"dense": applied, "aligned": applied, "window": look_back}
