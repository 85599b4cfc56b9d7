"""Takes a fit; gives a file that holds it in an open format, and the fit back from such a file.

The file has the parameters and the few arrays of the model's arguments that the guide's draws
depend on (covariates, not data): a loaded posterior draws without the training data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import partial_eval

from asvi import families
from asvi.errors import AsviError, ModelError
from asvi.families import Amortized, Family, SetEncoder
from asvi.files import read_file, write_file
from asvi.fitting.problem import Problem
from asvi.fitting.run import Run
from asvi.objective import trace_of
from asvi.posterior import Posterior

__all__ = ["load", "model_path_of", "need_data", "save"]

KIND = "an asvi fit"
FORMAT = 1
_NUMBERS = ("elbo", "elbo_se", "converged", "message", "steps", "skipped_steps", "seconds", "info")


def save(path: str | Path, posterior: Posterior, run: Any, about: dict[str, Any]) -> None:
    """Write parameters, what is needed to draw, and the run's account of itself."""
    problem = posterior.problem
    used = arrays_that_draws_need(posterior)
    header = {
        "kind": KIND,
        "format": FORMAT,
        "family": _family_to_json(problem.family),
        "sites": _fingerprint(problem),
        "arguments": _arguments_to_json(problem),
        "arrays": [
            {"shape": list(np.shape(a)), "dtype": str(a.dtype), "kept": bool(keep)}
            for a, keep in zip(posterior.arrays, used, strict=True)
        ],
        "run": {name: _plain(getattr(run, name)) for name in _NUMBERS},
        "about": about,
    }
    arrays = {}
    for name, value in posterior.params.items():
        leaves = jax.tree.leaves(value)
        if hasattr(value, "shape"):
            arrays[f"params/{name}"] = value
        else:  # a network of the model's own
            arrays |= {f"params/{name}#{i}": leaf for i, leaf in enumerate(leaves)}
    arrays["losses"] = run.losses
    for i, (array, keep) in enumerate(zip(posterior.arrays, used, strict=True)):
        if keep:
            arrays[f"arguments/{i}"] = array
    write_file(path, header, arrays)


def load(
    path: str | Path, model: Callable, family: Any = None
) -> tuple[Run, Problem, list[Any], dict[str, Any]]:
    """The run, its problem for ``model``, and arguments enough to draw."""
    header, stored = read_file(path, KIND)
    if header.get("format") != FORMAT:
        raise AsviError(
            f"{path} has format {header.get('format')}; this version reads format {FORMAT}."
        )
    family = _family_from_json(header["family"], path) if family is None else family
    arrays = []
    for i, about in enumerate(header["arrays"]):
        blank = np.zeros(about["shape"], about["dtype"])
        arrays.append(jnp.asarray(stored[f"arguments/{i}"] if about["kept"] else blank))
    args, kwargs = _arguments_from_json(header["arguments"], arrays)
    try:
        problem = Problem(model, family, args, kwargs, check=False)
    except ModelError as error:
        name = getattr(model, "__name__", "the model given")
        raise AsviError(
            f"{path} belongs to another model: {name} cannot be called as the saved one was "
            f"({str(error).splitlines()[0]})"
        ) from error
    found = _fingerprint(problem)
    if found != header["sites"]:
        there, here = set(header["sites"]), set(found)
        differs = sorted(there ^ here)[:4] or ["the order of the sites"]
        raise AsviError(
            f"{path} belongs to another model; differing sites: {'; '.join(differs)}.\n"
            "Give asvi.load the model that was fitted."
        )
    params = _params(problem, stored, path)
    run = Run(losses=stored["losses"], params=params, **header["run"])
    return run, problem, arrays, header["about"]


def _params(problem: Problem, stored: Mapping[str, Any], path: str | Path) -> dict[str, Any]:
    """The file's parameters, where they are those of this problem."""
    params, differs = {}, []

    def read(name: str, example: Any) -> jax.Array:
        value = stored.get(f"params/{name}")
        if value is None or np.shape(value) != np.shape(example):
            differs.append(name)
            return example
        return jnp.asarray(value)

    # constrained: a simplex has one number more than what is optimised for it
    blank = jax.ShapeDtypeStruct((problem.size,), problem.dtype)
    for name, example in jax.eval_shape(problem.params, blank).items():
        if hasattr(example, "shape"):
            params[name] = read(name, example)
        else:
            leaves, tree = jax.tree.flatten(example)
            found = [read(f"{name}#{i}", leaf) for i, leaf in enumerate(leaves)]
            params[name] = jax.tree.unflatten(tree, found)
    if differs:
        more = " and more" if len(differs) > 3 else ""
        raise AsviError(
            f"{path} was written with another family, or by another version of asvi whose family "
            f"had other parameters: {', '.join(differs[:3])}{more}.\n"
            "Load it with the family and the version that wrote it, or call asvi.fit again."
        )
    return params


def model_path_of(path: str | Path) -> str | None:
    """Where the model of a stored fit was found, if it was said."""
    return read_file(path, KIND)[0].get("about", {}).get("model_path")


def need_data(there: bool, what: str) -> None:
    """Raise where ``what`` was asked of a loaded fit."""
    if not there:
        raise AsviError(
            f"{what} needs the training data, and this fit was loaded from a file, which has none."
            "\nCall it on the result of asvi.fit, before saving."
        )


def arrays_that_draws_need(posterior: Posterior) -> list[bool]:
    """Which arrays of the arguments the guide's draws, and deterministic sites, depend on."""
    problem = posterior.problem
    if problem.static_data:
        return [True] * len(posterior.arrays)

    def draw(arrays):
        args, kwargs = problem.arguments(arrays)
        key = jax.random.key(0)
        drawn = trace_of(problem.guide, key, posterior.params, {}, args, kwargs)
        latent = {
            name: site["value"]
            for name, site in drawn.items()
            if site["type"] == "sample" and not site["infer"].get("is_auxiliary")
        }
        met = trace_of(problem.model, key, posterior.params, latent, args, kwargs)
        return latent, {n: s["value"] for n, s in met.items() if s["type"] == "deterministic"}

    jaxpr = jax.make_jaxpr(draw)(posterior.arrays).jaxpr
    _, used = partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    return list(used)


def _fingerprint(problem: Problem) -> list[str]:
    return [
        f"{site.address} {type(site.distribution).__name__} {tuple(site.shape)}"
        for site in problem.program.sites
    ]


# ---------------------------------------------------------------------------- families, arguments


def _family_to_json(family: Any) -> Any:
    if family is None:
        return None
    if isinstance(family, dict):
        return {"sites": {pattern: _family_to_json(f) for pattern, f in family.items()}}
    settings = {}
    for name, value in vars(family).items():
        if isinstance(value, Family | SetEncoder):
            value = _family_to_json(value)
        elif isinstance(family, Amortized) and name in ("encoder", "features"):
            value = None if value is None else {"own": name}
        settings[name] = value
    return {"class": type(family).__name__, "settings": settings}


def _family_from_json(stored: Any, path: Any) -> Any:
    if stored is None:
        return None
    if "sites" in stored:
        return {pattern: _family_from_json(f, path) for pattern, f in stored["sites"].items()}
    known = getattr(families, stored["class"], None)
    if known is None:
        raise AsviError(
            f"{path} was fitted with the family {stored['class']}, which is not one of asvi's own "
            "and cannot be made again from a file."
        )
    settings = {}
    for name, value in stored["settings"].items():
        if isinstance(value, dict) and "own" in value:
            raise AsviError(
                f"{path} was fitted with {value['own']} of your own, whose weights it has, and not "
                "the code.\nWrite instead:\n    "
                f"asvi.load({str(path)!r}, model, family=Amortized({value['own']}=..., ...))"
            )
        settings[name] = _family_from_json(value, path) if isinstance(value, dict) else value
    return known(**settings)


def _arguments_to_json(problem: Problem) -> Any:
    count = iter(range(10**9))

    def walk(x: Any) -> Any:
        if isinstance(x, dict):
            return {"dict": {str(k): walk(v) for k, v in x.items()}}
        if isinstance(x, list | tuple):
            return {type(x).__name__ if type(x) in (list, tuple) else "tuple": [walk(v) for v in x]}
        if x is _MARK:
            return {"array": next(count)}
        if x is None or isinstance(x, bool | int | float | str):
            return {"value": x}
        raise AsviError(
            f"an argument of the model is a {type(x).__name__}, which cannot be stored.\n"
            "Pass it by functools.partial instead: asvi.fit(partial(model, network=network), data)"
        )

    # Arrays are numbered in the order of the flattened arguments.
    marked = problem.layout.join([_MARK] * len(problem.layout.shapes))
    return walk(marked)


class _Mark:
    pass


_MARK = _Mark()


def _arguments_from_json(stored: Any, arrays: list[Any]) -> Any:
    ((kind, content),) = stored.items()
    if kind == "dict":
        return {k: _arguments_from_json(v, arrays) for k, v in content.items()}
    if kind in ("list", "tuple"):
        found = [_arguments_from_json(v, arrays) for v in content]
        return found if kind == "list" else tuple(found)
    return arrays[content] if kind == "array" else content


def _plain(x: Any) -> Any:
    if isinstance(x, dict):
        return {k: _plain(v) for k, v in x.items()}
    return x.item() if isinstance(x, np.generic) else x
