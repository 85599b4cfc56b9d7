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
(:mod:`asvi.density.block_structure`), there is a second, *fixed* coupling: with
:math:`\\epsilon` what the noise became above, :math:`x = T(m + s(\\epsilon + F
\\epsilon_{earlier}))`. It is not trained. ``fit`` writes the Gaussian that it found into it, and
the rest is learned in coordinates in which that Gaussian is the standard one: posteriors with
correlations of 0.9999 are no harder than others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution, biject_to

from asvi.density.settings import BlockSettings
from asvi.distributions.registry import Parameterization
from asvi.distributions.spline import N_SPLINE_WEIGHTS
from asvi.distributions.standardize import noise_shape
from asvi.distributions.warped_noise import Residual, WarpedNoise
from asvi.errors import FamilyError
from asvi.families.convex import ConvexUpdate, free_leaves
from asvi.families.coupled.coupling_graph import Inputs, ResidualSpec, choose_inputs
from asvi.families.coupled.edges import (
    fixed_name,
    fixed_weights,
    row_sizes,
    sum_edges,
    weight_name,
)
from asvi.families.coupled.features import as_blocks, n_gain_features
from asvi.families.coupled.settings import CouplingSettings
from asvi.families.coupled.steering import member_terms, steer, steering_sizes
from asvi.families.gaussian_share import GaussianShare, Held
from asvi.families.parameter import Parameter, Role
from asvi.program.program import Program
from asvi.program.site import Site

__all__ = ["Coupled"]


class Coupled(ConvexUpdate):
    r"""The convex update, coupled to the noise of earlier sites; see the module's text.

    :param context: ``"auto"`` chooses by the program's graph and the sizes; ``"globals"`` listens
        to low-dimensional sites alone; ``"none"`` is the convex update with an offset.
    :param max_edges: coupling weights that may be spent in all, by default 20,000; models with more
        than a sixth as many latent numbers may have six per number, and models of many groups as
        many as there are pairs of a number of a group and one that all groups have in common, up to
        100,000.
    :param window: steps that a chain looks back on; by default as many as fit.
    :param initial_prior_weight, start, gate_gain, parameterization: as for
        :class:`~asvi.families.convex.ConvexUpdate`.
    :param settings: numbers that need no tuning; see :mod:`asvi.families.coupled.settings`.

    Two coefficients of one regression, which the convex update makes independent:

    >>> import jax, jax.numpy as jnp, numpyro, numpyro.distributions as dist, asvi
    >>> def model(y):
    ...     a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    ...     b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    ...     numpyro.sample("y", dist.Normal(a + b, 0.1), obs=y)
    >>> result = asvi.fit(model, 1.0, family=Coupled(), training=asvi.Training(num_steps=4000))
    >>> draws = result.posterior.sample(jax.random.key(1), (1000,))
    >>> bool(jnp.corrcoef(draws["a"], draws["b"])[0, 1] < -0.97)
    True
    """

    block_settings = BlockSettings()

    def __init__(
        self,
        context: str = "auto",
        *,
        max_edges: int | None = None,
        window: int | None = None,
        initial_prior_weight: float = 0.999,
        start: str = "prior_mean",
        gate_gain: float = 4.0,
        parameterization: Parameterization = "expectation",
        settings: CouplingSettings = CouplingSettings(),
    ):
        super().__init__(
            initial_prior_weight=initial_prior_weight,
            start=start,
            gate_gain=gate_gain,
            parameterization=parameterization,
            settings=settings,
        )
        max_edges = settings.max_edges if max_edges is None else max_edges
        window = settings.window if window is None else window
        if context not in ("auto", "globals", "none"):
            raise FamilyError(f"context={context!r} is not known; choose auto, globals or none.")
        if not isinstance(max_edges, int) or max_edges < 0:
            raise FamilyError(f"max_edges must be a whole number from 0 up, got {max_edges!r}.")
        if window is not None and (not isinstance(window, int) or window < 0):
            raise FamilyError(f"window must be None or a whole number from 0 up, got {window!r}.")
        self.context, self.max_edges, self.window = context, max_edges, window
        self.settings: CouplingSettings

    # --------------------------------------------------------------------------------- inputs

    def inputs(self, program: Program, sites: list[Site]) -> dict[str, Inputs]:
        """What each site listens to, by address."""
        residuals = {}
        for site in sites:
            noise, value = noise_shape(site), site.full_batch_shape + site.event_shape
            residuals[site.address] = ResidualSpec(
                value if noise is None else noise, noise is not None, site.is_discrete
            )
        if self.context == "none":
            return {a: Inputs(s.shape, is_warpable=s.is_warpable) for a, s in residuals.items()}
        settings = replace(self.settings, max_edges=self.max_edges, window=self.window)
        chosen = choose_inputs(program, residuals, settings, self.block_settings)
        if self.context == "globals":
            return {
                a: Inputs(
                    c.shape,
                    c.is_warpable,
                    c.globals,
                    dense=c.globals if c.is_warpable else (),
                    sizes=c.sizes,
                )
                for a, c in chosen.items()
            }
        return chosen

    # ----------------------------------------------------------------------------- parameters

    def declare_with(self, site: Site, inputs: Inputs) -> dict[str, Parameter]:
        declared = ConvexUpdate.declare(self, site)
        declared |= self._steered_leaves(declared, site, inputs)
        if inputs.is_warpable:
            declared |= self._noise_parameters(site, inputs)
        return declared

    def _steered_leaves(
        self, declared: Mapping[str, Parameter], site: Site, inputs: Inputs
    ) -> dict[str, Parameter]:
        """How globals steer the weights and data terms of the site's leaves."""
        found, numbers = {}, inputs.size(inputs.globals)
        if not numbers:
            return found
        features = n_gain_features(numbers, inputs.has_curves, self.settings)
        step = self.settings.global_step / np.sqrt(features)
        for name, parameter in declared.items():
            is_term = parameter.role is Role.DATA_TERM
            if not site.parents and not (is_term and parameter.leaf_kind == "scale"):
                # θ is constant: its weight says nothing that α does not; and a moving location is
                # what the shift is for.
                continue
            free = biject_to(parameter.constraint).inverse_shape(parameter.shape)
            role = Role.DATA_TERM_COUPLING if is_term else Role.PRIOR_WEIGHT_COUPLING
            shape = (*free, features)
            found[f"{name}_coupling"] = _zeros(shape, role, step, leaf=parameter.leaf)
        return found

    def _noise_parameters(self, site: Site, inputs: Inputs) -> dict[str, Parameter]:
        """What is done with the site's noise, and how others move it."""
        shape, settings = inputs.shape, self.settings
        found = {"coupling/offset": _zeros(shape), "coupling/stretch": _zeros(shape)}
        if inputs.has_warp:
            found["coupling/skew"] = _zeros(shape)
        alone = not site.steps and not site.plates
        if inputs.has_curves and alone and prod(shape) <= settings.max_product_numbers:
            found["coupling/spline"] = _zeros(
                (*shape, N_SPLINE_WEIGHTS), Role.SPLINE, settings.spline_step
            )
        for name, size in steering_sizes(inputs, settings).items():
            found[name] = _row(shape, size)
        for kind, size in row_sizes(inputs).items():
            found[weight_name(kind)] = _row(shape, size)
            if inputs.fixed_coupling:
                found[fixed_name(kind)] = _zeros((*shape, size), trained=False, edge_kind=kind)
        return found

    # -------------------------------------------------------------------------- the surrogate

    def update_with(
        self,
        prior: Distribution,
        parameters: dict[str, jax.Array],
        site: Site,
        residuals: dict[str, Residual],
    ) -> Distribution:
        constraint = {n: p.constraint for n, p in ConvexUpdate.declare(self, site).items()}
        own = {name: value for name, value in parameters.items() if name in constraint}
        coupling = {name: value for name, value in parameters.items() if name not in constraint}
        of_leaves = [f"{name}_coupling" for name in constraint]
        steered = steer(coupling, of_leaves, residuals, self.settings)
        for name in own:
            if f"{name}_coupling" in steered:
                to_domain = biject_to(constraint[name])
                own[name] = to_domain(to_domain.inv(own[name]) + steered[f"{name}_coupling"])
        base = ConvexUpdate.update(self, prior, own, site)
        if "coupling/offset" not in coupling:
            return base
        return self._warp(base, coupling, steered, site, residuals)

    def _warp(
        self,
        base: Distribution,
        coupling: dict[str, jax.Array],
        steered: dict[str, jax.Array],
        site: Site,
        residuals: dict[str, Residual],
    ) -> WarpedNoise:
        """The convex update with its noise moved."""
        settings, fixed = self.settings, fixed_weights(coupling)
        offset = coupling["coupling/offset"] + steered.get("coupling/bend_gates", 0.0)
        log_scale = coupling["coupling/stretch"] + steered.get("coupling/stretch_gates", 0.0)
        member = member_terms(coupling, residuals, settings)
        if member is not None:
            offset, log_scale = offset + member[0], log_scale + member[1]
        added, shift = sum_edges(coupling, fixed, residuals)
        input_gain, output_gain = (
            jnp.exp(steered[name]) if name in steered else None
            for name in ("coupling/loudness", "coupling/voice")
        )
        if input_gain is not None:
            added, shift = input_gain * added, None if shift is None else input_gain * shift
        within, skew = coupling.get("coupling/within"), coupling.get("coupling/skew")
        # A triangle of its own for each draw is dear where it is large, or in a loop.
        is_small = within is not None and within.shape[-1] <= settings.max_gated_numbers
        return WarpedNoise(
            base,
            offset + added,
            log_scale,
            as_blocks(within),
            shift,
            as_blocks(fixed.get("within")),
            None if skew is None else settings.max_skew * jnp.tanh(skew),
            input_gain if is_small and not site.steps else None,
            output_gain,
            coupling.get("coupling/spline"),
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
    own, scale, least = share.own, share.scale, share.bound_prior_weight
    weight = np.clip(own, 1e-3, least)
    left = share.slack * own * scale
    return {
        "loc/prior_weight": np.clip(1 - left, least, 0.9999),
        "loc/data_term": share.loc,
        "scale/prior_weight": weight,
        "scale/data_term": (np.maximum(own - weight, 0.0) / (1 - weight) + 1e-3 * own) * scale,
    }


def _slowed_down(
    share: GaussianShare, declared: Mapping[str, Parameter], steps: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Steps of a site's own leaves, which multiply all that it listens to.

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


def _zeros(
    shape: tuple[int, ...], role: Role = Role.OTHER, step: float = 1.0, **more: Any
) -> Parameter:
    def initial(_key: jax.Array, _prior: Distribution) -> jax.Array:
        return jnp.zeros(shape)

    return Parameter(shape, initial=initial, role=role, step_size=step, **more)


def _row(shape: tuple[int, ...], size: int) -> Parameter:
    """Weights of so many things that each number listens to: they add up."""
    return _zeros((*shape, size), Role.COUPLING, 1.0 / np.sqrt(size))
