"""Takes a guide's families and parameters; gives one run of the model in which they are at work."""

from __future__ import annotations

from typing import Any

import jax
import numpyro
from numpyro import handlers
from numpyro.primitives import _PYRO_STACK, apply_stack

from asvi.distributions.warped_noise import Residual, residual
from asvi.errors import ModelError, SiteError
from asvi.families.amortized.data import PlateSubsample, collect_model_data
from asvi.families.parameter import Parameter
from asvi.guide.residuals import (
    collect_inputs,
    empty_register,
    find_lookback,
    join_residuals,
    publish_residual,
    published_addresses,
)
from asvi.program.addresses import BodyPath, address_of
from asvi.program.control_flow.body import Body
from asvi.program.control_flow.handlers import handler_stack, handlers_outside
from asvi.program.control_flow.interpretation import Interpretation
from asvi.program.site import Site
from asvi.program.statements.masks import unmasked

__all__ = ["SurrogateRun"]

_OTHER_SIZE = (
    "Its parameters have the shape of the first call. Call guide and Predictive with data of that "
    "size, or predict from draws: Predictive(model, guide.sample_posterior(...))."
)


class SurrogateRun(Interpretation):
    """One run of the model as a guide: latent sites updated, data and factors left out."""

    def __init__(self, guide: Any, args: tuple, kwargs: dict[str, Any]):
        super().__init__()
        self.guide, self.args, self.kwargs = guide, args, kwargs
        self.program = guide.program
        self.sites = {site.address: site for site in guide.program.latent}
        self.observed = {site.name for site in guide.program.sites if site.kind != "latent"}
        self.inputs: dict[str, Any] = guide.inputs
        self._published = published_addresses(self.inputs)
        self.deterministic: dict[str, jax.Array] = {}
        self._plate_sizes: dict[str, int] = {}
        self._start_key: jax.Array | None = None
        self._priors: dict[str, Any] = {}
        self._amortized = {encoder.plate for encoder in guide.encoders}
        self._encoded: dict[str, dict[str, jax.Array]] = {}
        self._plates: dict[str, PlateSubsample] = {}

    # -------------------------------------------------------------------------------- encoders

    def __enter__(self):
        if self.guide.encoders:
            self._encode()  # before this reading is at work, under the handlers outside
        return super().__enter__()

    def _encode(self) -> None:
        """Find which rows and data this run has, and let the encoders read them."""
        observed = frozenset(s.name for s in self.program.observed)
        gathered = collect_model_data(self.guide.model, self.args, self.kwargs, observed)
        self._plates = gathered.plates

        def priors(key: jax.Array) -> dict[str, Any]:
            return self.guide.priors_at_start(self._one_key(key), self.args, self.kwargs)

        def ask(name: str, initial: Any) -> jax.Array:
            return numpyro.param(f"{self.guide.prefix}/{name}", initial)

        for encoder in self.guide.encoders:
            data = encoder.read(gathered, self.args, self.kwargs)
            self._encoded |= encoder.encode(data, ask, priors)

    def _one_key(self, key: jax.Array) -> jax.Array:
        """One key, so that all sites start from the same draw of the prior."""
        if self._start_key is None:
            self._start_key = key
        return self._start_key

    # -------------------------------------------------------------------------------- sites

    def visit(self, msg: dict[str, Any]) -> None:
        # The observed set is the one of the first call: `Predictive(..., y=None)` must not turn
        # data into latent sites.
        if msg["is_observed"] or msg["name"] in self.observed:
            self._hide(msg)
            return
        site = self.sites.get(address_of(self.body.path, msg["name"]))
        if site is None:
            raise ModelError(
                f"site {msg['name']!r} was not in the model when the guide was set up (its latent "
                f"sites were {', '.join(s.name for s in self.program.latent)}).\n"
                "Make a new guide for a model of another structure: guide = AutoASVI(model)."
            )
        self._check_shape(msg, site)
        prior = unmasked(msg["fn"])
        parameters = {
            name: self._subsampled(self._parameter(site, name), site, parameter)
            for name, parameter in self.guide.declared(site).items()
        }
        parameters |= self._encoded.get(site.address, {})
        residuals = collect_inputs(self.body, self.inputs.get(site.address), self.sites)
        msg["fn"] = self.guide.family_of(site).update_with(prior, parameters, site, residuals)
        msg["_drawn_from"] = msg["fn"]  # handlers outside may wrap it: `Predictive` masks guides
        # What the model says of its site is no property of the guide's.
        msg["infer"] = {k: v for k, v in msg["infer"].items() if k != "is_auxiliary"}
        _keep_plate_scale_only(msg)
        if msg["value"] is None and not msg["fn"].has_rsample:
            self._draw_without_gradient(msg)

    # ------------------------------------------------------------------ residuals, for other sites

    def postprocess_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "sample" and msg["name"] in self.guide.score_sites:
            # Its gradient comes by the score function, and by nothing else.
            for part in ("value", "intermediates"):
                msg[part] = jax.lax.stop_gradient(msg[part])
        super().postprocess_message(msg)
        if msg["type"] != "sample" or msg.get("_control_flow_done"):
            return
        address = address_of(self.body.path, msg["name"])
        if address in self._published and address in self.sites:
            publish_residual(self.body, address, self._residual(address, msg))

    def _residual(self, address: str, msg: dict[str, Any]) -> Residual:
        """The noise of a site, standardised; shape batch + unconstrained event."""
        del address
        return residual(msg["_drawn_from"], msg["value"], msg["intermediates"])

    def first_lookback(self, path: BodyPath) -> Any:
        return empty_register(find_lookback(self.program, self.inputs, path))

    def next_lookback(self, body: Body) -> Any:
        lookback = find_lookback(self.program, self.inputs, body.path)
        if not lookback.steps:
            return ()
        return join_residuals([body.residuals[a] for a in lookback.sources])

    # ------------------------------------------------------------------ what is no latent site

    def visit_other(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "plate":
            self._plate_sizes[msg["name"]] = msg["args"][0]
            known = self._plates.get(msg["name"])
            if known is not None and known.rows is not None:
                msg["value"] = known.rows  # those that the encoders have read
        elif msg["type"] in ("param", "mutable"):
            self._borrow(msg)
        elif msg["type"] == "deterministic" and self.body.is_root:
            self.deterministic[msg["name"]] = msg["value"]
            msg["stop"] = True

    def _borrow(self, msg: dict[str, Any]) -> None:
        """Take the value of a parameter or state of the model's own without declaring it.

        They are the model's to declare: a guide that declared a network's parameters, but not its
        state, would leave the model with half of it.
        """
        outside = _PYRO_STACK[: _PYRO_STACK.index(self)]
        asked = {**msg, "kwargs": dict(msg["kwargs"])}
        with handler_stack([h for h in outside if not isinstance(h, handlers.trace)]):
            apply_stack(asked)
        msg["value"], msg["stop"] = asked["value"], True

    def reports(self, msg: dict[str, Any]) -> bool:
        return msg["type"] != "sample" or msg["name"] not in self.observed

    def _report(self, site: dict[str, Any]) -> None:
        if site["type"] == "deterministic" and self.body.is_root:
            self.deterministic[site["name"]] = site["value"]
        else:
            super()._report(site)

    def _hide(self, msg: dict[str, Any]) -> None:
        if not self.body.is_root:
            return  # bodies report only what `reports` lets through
        if msg["value"] is None:
            with handlers_outside(self):
                msg["kwargs"]["rng_key"] = numpyro.prng_key()
        msg["stop"] = True

    def _draw_without_gradient(self, msg: dict[str, Any]) -> None:
        """Draw a site that has no reparameterised draws; JAX cannot differentiate every sampler."""
        with handlers_outside(self):
            key = numpyro.prng_key()
        if key is not None:
            fixed = jax.tree.map(jax.lax.stop_gradient, msg["fn"])
            msg["value"] = fixed.sample(key)
            msg["kwargs"]["rng_key"] = key  # handlers outside may want to draw again

    def _check_shape(self, msg: dict[str, Any], site: Site) -> None:
        now = list(msg["fn"].batch_shape)
        full = list(site.full_batch_shape)
        for plate in msg["cond_indep_stack"]:
            now[plate.dim] = self._plate_sizes.get(plate.name, plate.size)
            if plate.name in self._amortized and site.address in self._encoded:
                full[plate.dim] = now[plate.dim]  # other points, or another number of them
        then = tuple(full) + site.event_shape
        if (shape := tuple(now) + msg["fn"].event_shape) != then:
            raise SiteError(
                site.name,
                f"it has shape {shape} now and had {then} when the guide was set up",
                advice=_OTHER_SIZE,
            )

    # ------------------------------------------------------------------------- its parameters

    def _parameter(self, site: Site, name: str) -> jax.Array:
        """This run's value of a parameter, plates at full size."""
        if self.body.is_root:
            return self._declare(site, name)
        return self.body.scanned["parameter", site.address, name]

    def _declare(self, site: Site, name: str) -> jax.Array:
        parameter = self.guide.declared(site)[name]

        def initial(key: jax.Array) -> jax.Array:
            one = self._one_key(key)
            return self.guide.initial_value(site, name, one, self.args, self.kwargs, self._priors)

        with handlers_outside(self):
            return numpyro.param(
                self.guide.parameter_name(site, name),
                initial,
                constraint=parameter.constraint,
            )

    def _subsampled(self, value: jax.Array, site: Site, parameter: Parameter) -> jax.Array:
        if all(plate.size == plate.subsample_size for plate in site.plates):
            return value
        event_dim = len(parameter.shape) - len(site.full_batch_shape)
        return numpyro.subsample(value, event_dim=event_dim)

    def thread(self, path: BodyPath, length: int, reverse: bool) -> dict[Any, Any]:
        depth = sum(part.kind == "scan" for part in path) - 1
        for site in self.program.in_block(path):
            if site.steps[depth] != length:
                raise SiteError(
                    site.name,
                    f"its scan has {length} steps now and had {site.steps[depth]} when the guide "
                    "was set up",
                    advice=_OTHER_SIZE,
                )
        return self._parameters_within(path)

    def thread_branch(self, path: BodyPath) -> dict[Any, Any]:
        return self._parameters_within(path)

    def _parameters_within(self, path: BodyPath) -> dict[Any, jax.Array]:
        """The parameters of all latent sites in a block, declared out here or passed on inwards."""
        return {
            ("parameter", site.address, name): self._parameter(site, name)
            for site in self.program.in_block(path)
            for name in self.guide.declared(site)
        }


def _keep_plate_scale_only(msg: dict[str, Any]) -> None:
    """Undo ``handlers.scale`` at a latent site: it tempers the model's density, not the guide's."""
    by_hand = msg.get("plate_to_scale", {}).get(None)
    if by_hand is not None and msg["scale"] is not None:
        msg["scale"] = msg["scale"] / by_hand
