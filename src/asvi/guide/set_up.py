"""Takes a program and families; gives what the guide does at each site, checked in shapes alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import Distribution, biject_to

from asvi.errors import FamilyError
from asvi.families.convex import ConvexUpdate
from asvi.families.parameter import Parameter
from asvi.families.protocol import Family, JointFamily
from asvi.program.dependence.terms import Dependence, find_plate_crossings
from asvi.program.program import Program
from asvi.program.site import Site

__all__ = ["SurrogateSites", "as_patterns", "find_dependence", "set_up_sites"]


@dataclass(frozen=True)
class SurrogateSites:
    """What a guide does at the latent sites of a program, by address."""

    family_of: dict[str, Family]
    declared: dict[str, dict[str, Parameter]]
    """Parameters by the family's own names."""
    surrogates: dict[str, Distribution]
    """In shapes alone."""
    inputs: dict[str, Any]
    """What each site listens to."""
    encoders: list[Any]
    """What makes parameters of sites from the data."""


def as_patterns(family: Family | Mapping[str, Family] | None) -> dict[str, Family]:
    """Families by the names that they are for, where a name may be a pattern."""
    if family is None:
        return {}
    if isinstance(family, Family):
        return {"*": family}
    if isinstance(family, Mapping) and all(isinstance(f, Family) for f in family.values()):
        return dict(family)
    if isinstance(family, JointFamily):
        raise FamilyError(
            f"{type(family).__name__} is a family of the whole model, not of its sites.\n"
            f"Write asvi.autoguide(model, family={family!r})."
        )
    raise FamilyError(
        f"family={family!r} is neither a family nor a dict of them.\n"
        "Write family=asvi.families.MeanField(), or family={'theta*': asvi.families.MeanField()}."
    )


def set_up_sites(
    program: Program,
    families: Mapping[str, Family],
    model: Callable,
    args: tuple,
    kwargs: dict[str, Any],
) -> SurrogateSites:
    """What families, by patterns of names, do at the sites of a program."""
    family_of = {site.address: _choose_family(families, site) for site in program.latent}
    _check_patterns(families, program)
    inputs = _choose_inputs(program, family_of)
    encoders = _make_encoders(program, family_of, model, args, kwargs)
    declared, surrogates = {}, {}
    for site in map(program.with_parents, program.latent):
        family, address = family_of[site.address], site.address
        encoder = next((e for e in encoders if address in e.heads), None)
        if encoder is not None:
            own = declared[address] = encoder.declare(site)
            own = {**own, **encoder.as_declared(site)}
        else:
            declared[address] = family.declare_with(site, inputs.get(address))
            # In shapes a moved surrogate is the family's own, unmoved.
            own = family.declare(site)
        surrogates[address] = _abstract_surrogate(family, site, own)
    return SurrogateSites(family_of, declared, surrogates, inputs, encoders)


def find_dependence(
    program: Program,
    surrogates: Mapping[str, Distribution],
    score_sites: frozenset[str],
    model: Callable,
    run: Callable,
    args: tuple,
    kwargs: dict[str, Any],
) -> Dependence | None:
    """Who depends on sites without reparameterised draws; None where there are none.

    ``run`` is the guide's own run of the model.
    """
    hard = {s.name for s in program.latent if not surrogates[s.address].has_rsample}
    sources = frozenset(hard | score_sites)
    if not sources:
        return None
    return Dependence(
        program, sources, find_plate_crossings(program, model, run, args, kwargs, sources)
    )


def _choose_family(families: Mapping[str, Family], site: Site) -> Family:
    for pattern, family in families.items():
        if _is_match(site.name, pattern):
            return family
    return ConvexUpdate()


def _check_patterns(families: Mapping[str, Family], program: Program) -> None:
    names = [site.name for site in program.latent]
    for pattern in families:
        if not any(_is_match(name, pattern) for name in names):
            raise FamilyError(
                f"family={{{pattern!r}: ...}} fits no latent site; the latent sites are "
                f"{', '.join(names)}."
            )


def _is_match(name: str, pattern: str) -> bool:
    """Whether a pattern is this name, or fits it: a name may have brackets of its own."""
    return name == pattern or fnmatchcase(name, pattern)


def _choose_inputs(program: Program, family_of: Mapping[str, Family]) -> dict[str, Any]:
    """What the sites listen to of earlier sites' noise, by address."""
    found: dict[str, Any] = {}
    for family, sites in _group_by_family(program, family_of):
        found |= family.inputs(program, [program.with_parents(s) for s in sites])
    return found


def _make_encoders(
    program: Program,
    family_of: Mapping[str, Family],
    model: Callable,
    args: tuple,
    kwargs: dict[str, Any],
) -> list[Any]:
    """What makes parameters from the data, in the order of the program's sites."""
    found: list[Any] = []
    for family, some in _group_by_family(program, family_of):
        label = f"encoder{len(found) + 1}" if found else "encoder"
        sites = [program.with_parents(site) for site in some]
        made = family.from_data(program, sites, label, model, args, kwargs)
        found += [] if made is None else [made]
    return found


def _group_by_family(
    program: Program, family_of: Mapping[str, Family]
) -> Iterator[tuple[Family, list[Site]]]:
    """Families with their latent sites, in the order of the sites; one object is one family."""
    seen: list[Family] = []
    for family in family_of.values():
        if not any(family is other for other in seen):
            seen.append(family)
            yield family, [s for s in program.latent if family_of[s.address] is family]


def _abstract_surrogate(family: Family, site: Site, declared: dict[str, Parameter]) -> Distribution:
    """The family's surrogate in shapes alone; raise if its shapes are not the site's."""
    batch, full = site.batch_shape, site.full_batch_shape

    def make(prior: Distribution) -> Distribution:
        parameters = {}
        for name, parameter in declared.items():
            shape = batch + parameter.shape[len(full) :]
            transform = biject_to(parameter.constraint)
            parameters[name] = transform(jnp.zeros(transform.inverse_shape(shape)))
        return family.update(prior, parameters, site)

    surrogate = jax.eval_shape(make, site.distribution)
    if surrogate.shape() != batch + site.event_shape:
        raise FamilyError(
            f"site {site.name!r}: {type(family).__name__} gave a surrogate of shape "
            f"{surrogate.shape()}, the site has shape {batch + site.event_shape}.\n"
            "`update` must keep the prior's batch and event shape."
        )
    return surrogate
