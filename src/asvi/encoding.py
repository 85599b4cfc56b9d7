"""Takes a program with amortised sites; gives their encoders, checked, and what these are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from numpyro import handlers

from asvi.bodies import alone
from asvi.errors import AsviError, FamilyError, SiteError, with_mended
from asvi.families.amortized import Amortized, Encoding, Head, _named
from asvi.families.convex import ConvexUpdate, PriorWeight, data_terms, prior_weight_shape
from asvi.families.encoders import SetEncoder, as_network
from asvi.gathering import Gathered, gather
from asvi.program import Plate, Program, Site

__all__ = ["data_of", "encodings_of"]


def encodings_of(
    program: Program, family_of: Mapping[str, Any], model: Callable, args: tuple, kwargs: dict
) -> list[Encoding]:
    """One encoding for each amortised family of a guide, in the order of the program's sites."""
    found: list[Amortized] = []
    for family in family_of.values():
        if isinstance(family, Amortized) and not any(family is other for other in found):
            found.append(family)
    made = []
    for k, family in enumerate(found):
        sites = [program.with_parents(s) for s in program.latent if family_of[s.address] is family]
        label = "encoder" if k == 0 else f"encoder{k + 1}"
        made.append(_encoding(family, label, program, sites, model, args, kwargs))
    return made


def _encoding(
    family: Amortized,
    label: str,
    program: Program,
    sites: list[Site],
    model: Callable,
    args: tuple,
    kwargs: dict[str, Any],
) -> Encoding:
    plate = _plate_of(family, program, sites)
    heads, names = {}, {}
    for site in sites:
        own = [p for p in site.plates if p.name == plate]
        if own:
            _check_site(site, plate)
            heads[site.address] = _heads(family, site, own[0])
            names[site.address] = site.name
    key = jax.random.key(0)
    network: Any = None

    def look(key: jax.Array) -> tuple[Any, Any]:
        nonlocal network
        with alone(), handlers.seed(rng_seed=key):
            gathered = gather(model, args, kwargs)
        data = data_of(family, plate, gathered, args, kwargs)
        if isinstance(family.encoder, SetEncoder):
            network = family.encoder.over(_inner(family, plate, gathered, data))
        else:
            network = as_network(family.encoder)
        try:
            params = network.init(key, data)
            return params, network.apply(params, data)
        except AsviError:
            raise
        except Exception as failure:
            shapes = jax.tree.map(lambda x: tuple(x.shape), data)
            raise FamilyError(
                with_mended(
                    f"plate {plate!r}: the encoder fails on its data, of shape {shapes} "
                    f"({type(failure).__name__}: {str(failure).splitlines()[0]})",
                    "Amortized(encoder, features=lambda y: y.reshape(len(y), -1))",
                    advice="It is given the plate's axis first"
                    + (
                        ", one point at a time."
                        if type(family.encoder).__module__.startswith("equinox")
                        else "."
                    ),
                )
            ) from failure

    params, given = jax.eval_shape(look, key)
    flat, tree = jax.tree_util.tree_flatten_with_path(params)
    paths = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in flat]
    encoding = Encoding(family, plate, label, network, heads, names, paths, tree)
    points = _points(program, plate)
    encoding.direct = frozenset(_direct(encoding, given, points))
    for address in heads:
        if address not in encoding.direct:
            continue
        own = _named(given[names[address]])
        kept = {name: head for name, head in heads[address].items() if name in own}
        encoding.heads[address] = kept
    return encoding


# ------------------------------------------------------------------------ which plate, which sites


def _plate_of(family: Amortized, program: Program, sites: list[Site]) -> str:
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
    if site.block:
        raise SiteError(
            site.name,
            f"it stands in plate {plate!r} inside a `{site.block[-1].rstrip('0123456789')}`, where "
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


def _heads(family: Amortized, site: Site, plate: Plate) -> dict[str, Head]:
    """The parameters of one point that an encoder may give."""
    axis = len(site.batch_shape) + plate.dim
    found = {}
    follows = family.followed(site)
    for name, (leaf, _term) in data_terms(family.base, site).items():
        shape = leaf.value.shape[:axis] + leaf.value.shape[axis + 1 :]
        found[f"{name}/data_term"] = Head(shape, leaf.constraint, axis)
        if family.prior_weights == "encoder" and name in follows:
            base = family.base
            gain = base.gate_gain if isinstance(base, ConvexUpdate) else 1.0
            weights = prior_weight_shape(leaf.constraint, shape)
            found[f"{name}/prior_weight"] = Head(weights, PriorWeight(gain), axis)
    return found


# -------------------------------------------------------------------------------- its data


def data_of(
    family: Amortized, plate: str, gathered: Gathered, args: tuple, kwargs: dict[str, Any]
) -> Any:
    """What the encoder is given in this run: arrays whose first axis is the plate's."""
    if family.features is not None:
        return _features(family, plate, gathered, args, kwargs)
    inside = {n: o for n, o in gathered.observed.items() if plate in o.plates}
    missing = [name for name in gathered.missing if name not in inside]
    if missing:
        raise SiteError(
            missing[0],
            f"it holds no data in this call, and the encoder of plate {plate!r} needs them",
            "guide.sample_posterior(key, params, y)   # with the data of these points",
        )
    if not inside:
        where = ", ".join(gathered.observed) or "none"
        raise FamilyError(
            with_mended(
                f"plate {plate!r} holds no observed site (observed outside it: {where}), and the "
                "encoder has no data to read",
                "asvi.families.Amortized(features=lambda y: y)   # a function of the model's "
                "arguments",
            )
        )
    data = {name: observation.along(plate) for name, observation in inside.items()}
    return next(iter(data.values())) if len(data) == 1 else data


def _features(
    family: Amortized, plate: str, gathered: Gathered, args: tuple, kwargs: dict[str, Any]
) -> Any:
    assert family.features is not None
    try:
        given = family.features(*args, **kwargs)
    except TypeError as failure:
        raise FamilyError(
            with_mended(
                f"plate {plate!r}: features could not be called with the model's arguments "
                f"({failure})",
                "features=lambda *args, **kwargs: args[0]",
                advice="It takes what the model takes.",
            )
        ) from failure
    here = gathered.plates[plate]

    def rows(x: Any) -> jax.Array:
        x = jnp.asarray(x)
        if x.ndim and len(x) == here.size and here.rows is not None:
            return x[here.rows]
        if x.ndim and len(x) == here.taken:
            return x
        sizes = f"{here.size}" if here.rows is None else f"{here.size} or {here.taken}"
        raise FamilyError(
            with_mended(
                f"plate {plate!r}: features gave an array of shape {x.shape}, whose first axis is "
                f"not the plate's, of {sizes} points",
                "features=lambda y: y.T   # the plate's axis first",
            )
        )

    return jax.tree.map(rows, given)


def _inner(family: Amortized, plate: str, gathered: Gathered, data: Any) -> Any:
    """How many axes after the first hold a point's several observations, for each array."""
    if family.features is not None:
        return jax.tree.map(lambda _: 0, data)
    inner = {n: o.inner() for n, o in gathered.observed.items() if plate in o.plates}
    return next(iter(inner.values())) if len(inner) == 1 else inner


# ------------------------------------------------------------------------ what the encoder gives


def _direct(encoding: Encoding, given: Any, points: int) -> list[str]:
    """Addresses of the sites whose data terms the encoder gives itself; raise where it errs."""
    direct, plate = [], encoding.plate
    for address, heads in encoding.heads.items():
        name = encoding.names[address]
        wanted = {_output(parameter): (points, *head.shape) for parameter, head in heads.items()}
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
        lacking = [n for n in wanted if n not in own and not n.endswith("/prior_weight")]
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


def _output(parameter: str) -> str:
    return parameter.removesuffix("/data_term")


def _mended(site: str, wanted: dict[str, tuple[int, ...]]) -> str:
    inner = ", ".join(f'"{leaf}": ...' for leaf in wanted)
    shapes = "; ".join(f"{leaf} {shape}" for leaf, shape in wanted.items())
    return f'return {{"{site}": {{{inner}}}}}   # of shapes: {shapes}'
