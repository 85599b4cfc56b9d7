"""Takes a program with amortised sites; gives their encoders, checked, and what these are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from numpyro import handlers

from asvi.distributions.domains import PriorWeight, prior_weight_shape
from asvi.errors import AsviError, FamilyError, SiteError, with_mended
from asvi.families.amortized.data import collect_model_data
from asvi.families.amortized.encoder_input import encoder_input, inner_axes
from asvi.families.amortized.networks import Network, SetEncoder, as_network
from asvi.families.amortized.plate_encoder import (
    Head,
    PlateEncoder,
    followed_leaves,
    is_weight,
    named_outputs,
)
from asvi.families.convex import data_terms
from asvi.program.control_flow.handlers import without_handlers
from asvi.program.program import Program
from asvi.program.site import Plate, Site

__all__ = ["plate_encoder"]


def plate_encoder(
    family: Any,
    program: Program,
    sites: list[Site],
    label: str,
    model: Callable,
    args: tuple,
    kwargs: dict[str, Any],
) -> PlateEncoder:
    """The family at work on those of its ``sites`` that stand in its plate, checked."""
    plate = _plate_of(family, program, sites)
    heads, names = {}, {}
    for site in sites:
        own = [p for p in site.plates if p.name == plate]
        if own:
            _check_site(site, plate)
            heads[site.address] = _heads(family, site, own[0])
            names[site.address] = site.name
    network, params, outputs = _try_network(family, plate, model, args, kwargs)
    flat, tree = jax.tree_util.tree_flatten_with_path(params)
    paths = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in flat]
    shapes = [tuple(leaf.shape) for _, leaf in flat]
    encoder = PlateEncoder(family, plate, label, network, heads, names, paths, shapes, tree)
    encoder.direct = frozenset(_direct(encoder, outputs, _points(program, plate)))
    for address, name in names.items():
        own = outputs[name] if isinstance(outputs, Mapping) else outputs
        if address in encoder.direct:
            given = named_outputs(own)
            kept = {leaf: head for leaf, head in heads[address].items() if leaf in given}
            encoder.heads[address] = kept
        else:
            encoder.features[address] = own.shape[-1]
    return encoder


def _try_network(
    family: Any, plate: str, model: Callable, args: tuple, kwargs: dict[str, Any]
) -> tuple[Network, Any, Any]:
    """The network, and in shapes alone its parameters and what it gives at these data."""
    made: list[Network] = []

    def run(key: jax.Array) -> tuple[Any, Any]:
        with without_handlers(), handlers.seed(rng_seed=key):
            gathered = collect_model_data(model, args, kwargs)
        data = encoder_input(family, plate, gathered, args, kwargs)
        if isinstance(family.encoder, SetEncoder):
            network = family.encoder.over(inner_axes(family, plate, gathered, data))
        else:
            network = as_network(family.encoder)
        made.append(network)
        try:
            params = network.init(key, data)
            return params, network.apply(params, data)
        except AsviError:
            raise
        except Exception as failure:
            raise _network_fault(family, plate, data, failure) from failure

    params, outputs = jax.eval_shape(run, jax.random.key(0))
    return made[-1], params, outputs


def _network_fault(family: Any, plate: str, data: Any, failure: Exception) -> FamilyError:
    shapes = jax.tree.map(lambda x: tuple(x.shape), data)
    by_point = type(family.encoder).__module__.startswith("equinox")
    return FamilyError(
        with_mended(
            f"plate {plate!r}: the encoder fails on its data, of shape {shapes} "
            f"({type(failure).__name__}: {str(failure).splitlines()[0]})",
            "Amortized(encoder, features=lambda y: y.reshape(len(y), -1))",
            advice="It is given the plate's axis first"
            + (", one point at a time." if by_point else "."),
        )
    )


# ------------------------------------------------------------------------ which plate, which sites


def _plate_of(family: Any, program: Program, sites: list[Site]) -> str:
    known = list(dict.fromkeys(p.name for site in program.sites for p in site.plates))
    served = list(dict.fromkeys(p.name for site in sites for p in site.plates))
    if family.plate is None:
        part = {p.name for site in sites for p in site.plates if p.size != p.subsample_size}
        likely = [name for name in served if name in part] or served
        if len(likely) == 1:
            return likely[0]
        if not served:
            where = f"its plates are {', '.join(known)}" if known else "the model has no plate"
            raise FamilyError(
                with_mended(
                    f"no site of this family stands in a plate ({where})",
                    'with numpyro.plate("point", len(y)):\n    z = numpyro.sample("z", ...)',
                )
            )
        raise FamilyError(
            with_mended(
                f"latents stand in the plates {', '.join(likely)}, and one of them must be chosen",
                f'asvi.families.Amortized(plate="{likely[0]}")',
            )
        )
    if family.plate in served:
        return family.plate
    if family.plate in known:
        raise FamilyError(
            with_mended(
                f"plate {family.plate!r} holds no latent site of this family (its sites are "
                f"{', '.join(s.name for s in sites)})",
                f'asvi.families.Amortized(plate="{served[0]}")' if served else None,
                advice="There is nothing to amortise in it.",
            )
        )
    near = served or known
    raise FamilyError(
        with_mended(
            f"the model has no plate {family.plate!r}; its plates are {', '.join(known) or 'none'}",
            f'asvi.families.Amortized(plate="{near[0]}")' if near else None,
        )
    )


def _points(program: Program, name: str) -> int:
    for site in program.sites:
        for plate in site.plates:
            if plate.name == name:
                return plate.subsample_size
    raise KeyError(name)


def _check_site(site: Site, plate: str) -> None:
    if site.bodies:
        raise SiteError(
            site.name,
            f"it stands in plate {plate!r} inside a `{site.bodies[-1].kind}`, where "
            "an encoder does not reach it",
            f'family={{"{site.name}": asvi.families.ConvexUpdate(), ...}}',
            advice="Write a short series per point as a Python loop, or give the site a family "
            "with parameters of its own.",
        )
    others = [p for p in site.plates if p.name != plate and p.size != p.subsample_size]
    if others:
        raise SiteError(
            site.name,
            f"it stands in plate {plate!r} and in plate {others[0].name!r}, which is subsampled "
            "too; the encoder of one point would have to give numbers for rows that it cannot know",
            f'with numpyro.plate("{others[0].name}", {others[0].size}):   # without subsample_size',
        )


def _heads(family: Any, site: Site, plate: Plate) -> dict[str, Head]:
    """The parameters of one point that an encoder may give."""
    axis = len(site.batch_shape) + plate.dim
    found = {}
    follows = followed_leaves(family, site)
    for name, (leaf, _term) in data_terms(family.base, site).items():
        shape = leaf.value.shape[:axis] + leaf.value.shape[axis + 1 :]
        found[f"{name}/data_term"] = Head(name, shape, leaf.constraint, axis)
        if family.prior_weights == "encoder" and name in follows:
            gate = PriorWeight(family.base.gate_gain)
            weights = prior_weight_shape(leaf.constraint, shape)
            found[f"{name}/prior_weight"] = Head(name, weights, gate, axis)
    return found


# ------------------------------------------------------------------------ what the encoder gives


def _direct(encoder: PlateEncoder, given: Any, points: int) -> list[str]:
    """Addresses of the sites whose data terms the encoder gives itself; raise where it errs."""
    direct, plate = [], encoder.plate
    for address, heads in encoder.heads.items():
        name = encoder.names[address]
        wanted = {
            parameter if is_weight(parameter) else head.leaf: (points, *head.shape)
            for parameter, head in heads.items()
        }
        mended = _mended(name, wanted)
        own = given
        if isinstance(given, Mapping):
            if name not in given:
                raise SiteError(
                    name,
                    f"the encoder of plate {plate!r} gives nothing for it, only for "
                    f"{', '.join(map(str, given))}",
                    mended,
                )
            own = given[name]
        if not isinstance(own, Mapping):
            shape = jnp.shape(own)
            if len(shape) != 2 or shape[0] != points:
                raise SiteError(
                    name,
                    f"the encoder of plate {plate!r} gives features of shape {shape}; wanted is "
                    f"({points}, any number), a row for each point",
                    "return h.reshape(len(h), -1)   # or the data terms: " + mended,
                )
            continue
        lacking = [n for n in wanted if n not in own and not is_weight(n)]
        strange = [n for n in own if n not in wanted]
        if lacking or strange:
            odd = f"lacks {', '.join(lacking)}" if lacking else f"has {', '.join(strange)}"
            raise SiteError(
                name,
                f"the encoder of plate {plate!r} {odd}; its leaves are {', '.join(wanted)}",
                mended,
            )
        for leaf, value in own.items():
            if jnp.shape(value) != wanted[leaf]:
                raise SiteError(
                    name,
                    f"the encoder of plate {plate!r} gives {leaf} of shape {jnp.shape(value)}; "
                    f"wanted is {wanted[leaf]}",
                    mended,
                )
        direct.append(address)
    return direct


def _mended(site: str, wanted: dict[str, tuple[int, ...]]) -> str:
    inner = ", ".join(f'"{leaf}": ...' for leaf in wanted)
    shapes = "; ".join(f"{leaf} {shape}" for leaf, shape in wanted.items())
    return f'return {{"{site}": {{{inner}}}}}   # of shapes: {shapes}'
