"""Takes a network of any kind, or none; gives an encoder: ``init(key, data)`` and ``apply``.

An amortised family needs of a network two things: parameters to start from, and features of a batch
of points at given parameters. :func:`as_network` finds both in what users have:

- a flax ``nnx.Module`` (made, called on a batch) or a ``linen.Module`` (called on a batch);
- an ``equinox.Module``, called on one point and vectorised here, as is equinox's custom;
- a pair ``(function, params)``, called as ``function(params, batch)``; in place of ``params`` a
  function ``init(key, batch)`` that makes them;
- an object with ``init(key, batch)`` and ``apply(params, batch)``, as :class:`SetEncoder` is;
- a function of the batch, with nothing to learn.

Neither flax nor equinox is imported unless the object is theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from asvi.errors import FamilyError
from asvi.families.protocol import Comparable

__all__ = ["Network", "SetEncoder", "as_network"]

Params = Any


class Network(NamedTuple):
    """``init(key, data)`` gives parameters, a tree of arrays; ``apply(params, data)`` features."""

    init: Callable[[jax.Array, Any], Params]
    apply: Callable[[Params, Any], Any]


class SetEncoder(Comparable):
    r"""A network for points that each hold one observation, or a set of them.

    .. math:: h(y) = \rho\Big(\big[\tfrac1m \sum_{j=1}^m \phi_k(y_{kj})\big]_k\Big)

    with one :math:`\phi_k` for each array k of the data and :math:`\rho` after them, both ReLU
    networks. The mean runs over the observations that a point has several of (Zaheer et al. 2017),
    so that their order does not matter. Numbers are standardised by the mean and standard deviation
    of the first batch; what is missing (NaN) counts as the mean.

    :param width: units of each layer.
    :param depth: layers of :math:`\phi` and of :math:`\rho`.
    :param pool: axes after the first that the mean runs over. None: those of the plates inside the
        amortised one; and none, where the data come from ``features``.

    >>> encoder = SetEncoder(width=8).over({"y": 1})
    >>> y = jax.random.normal(jax.random.key(0), (5, 7, 2))      # 5 points of 7 pairs each
    >>> params = encoder.init(jax.random.key(1), {"y": y})
    >>> encoder.apply(params, {"y": y}).shape
    (5, 8)
    >>> reordered = encoder.apply(params, {"y": y[:, ::-1]})
    >>> bool(jnp.allclose(encoder.apply(params, {"y": y}), reordered, atol=1e-5))
    True
    """

    def __init__(self, width: int = 64, depth: int = 2, pool: int | None = None):
        for name, value in (("width", width), ("depth", depth)):
            if not isinstance(value, int) or value < 1:
                raise FamilyError(f"{name} must be a whole number from 1 up, got {value!r}.")
        if pool is not None and (not isinstance(pool, int) or pool < 0):
            raise FamilyError(f"pool must be None or a whole number from 0 up, got {pool!r}.")
        self.width, self.depth, self.pool = width, depth, pool

    def over(self, inner: Any) -> Network:
        """The network for data whose arrays hold sets along these many axes after the first."""
        axes = [self.pool if self.pool is not None else n for n in jax.tree.leaves(inner)]

        def elements(data: Any) -> list[jax.Array]:
            arrays = [jnp.asarray(x, jnp.result_type(float)) for x in jax.tree.leaves(data)]
            return [_as_sets(x, n) for x, n in zip(arrays, axes, strict=True)]

        def init(key: jax.Array, data: Any) -> Params:
            sets = elements(data)
            keys = jax.random.split(key, len(sets) + 1)
            each = [_start(k, x, self.width, self.depth) for k, x in zip(keys[1:], sets)]
            rest = _layers(keys[0], self.width * len(sets), self.width, self.depth)
            return {"each": each, "rest": rest}

        def apply(params: Params, data: Any) -> jax.Array:
            pooled = []
            for own, x in zip(params["each"], elements(data), strict=True):
                # What standardises is not learned.
                loc, scale = map(jax.lax.stop_gradient, (own["loc"], own["scale"]))
                x = (x - loc) / scale
                x = jnp.where(jnp.isfinite(x), x, 0.0)
                pooled.append(jnp.mean(_run(own["layers"], x), 1))
            return _run(params["rest"], jnp.concatenate(pooled, -1))

        return Network(init, apply)


def _as_sets(x: jax.Array, axes: int) -> jax.Array:
    """Shape (points, elements of the set, numbers of an element)."""
    if axes >= x.ndim:
        raise FamilyError(
            f"SetEncoder(pool={axes}) was asked to pool {axes} axes of data of shape {x.shape}, "
            f"whose first axis is the plate's.\nWrite SetEncoder(pool={x.ndim - 1}), or fewer."
        )
    size = 1
    for n in x.shape[1 : 1 + axes]:
        size *= n
    return x.reshape((x.shape[0], size, -1))


def _start(key: jax.Array, x: jax.Array, width: int, depth: int) -> Params:
    known = jnp.isfinite(x)
    count = jnp.maximum(jnp.sum(known, (0, 1)), 1)
    loc = jnp.sum(jnp.where(known, x, 0.0), (0, 1)) / count
    variance = jnp.sum(jnp.where(known, (x - loc) ** 2, 0.0), (0, 1)) / count
    scale = jnp.where(variance > 0, jnp.sqrt(variance), 1.0)
    return {"loc": loc, "scale": scale, "layers": _layers(key, x.shape[-1], width, depth)}


def _layers(key: jax.Array, size: int, width: int, depth: int) -> list[dict[str, jax.Array]]:
    layers = []
    for k in jax.random.split(key, depth):
        kernel = jax.random.normal(k, (size, width)) * (2.0 / size) ** 0.5
        layers.append({"kernel": kernel, "bias": jnp.zeros(width)})
        size = width
    return layers


def _run(layers: list[dict[str, jax.Array]], x: jax.Array) -> jax.Array:
    for layer in layers:
        x = jax.nn.relu(x @ layer["kernel"] + layer["bias"])
    return x


# ------------------------------------------------------------------------------ users' networks


def as_network(encoder: Any) -> Network:
    """``init`` and ``apply`` of a user's network; see the module's text for what may be given.

    >>> network = as_network((lambda params, y: params["w"] * y, {"w": jnp.ones(())}))
    >>> params = network.init(jax.random.key(0), jnp.ones(3))
    >>> network.apply(params, jnp.ones(3)).tolist()
    [1.0, 1.0, 1.0]
    """
    if isinstance(encoder, type):
        pass  # a class, not yet made
    elif _is_from("flax.nnx", encoder):
        return _nnx(encoder)
    elif _is_from("flax.linen", encoder):
        return _linen(encoder)
    elif _is_from("equinox", encoder):
        return _equinox(encoder)
    elif isinstance(encoder, tuple) and len(encoder) == 2 and callable(encoder[0]):
        function, params = encoder
        init = params if callable(params) else lambda _key, _data: params
        return Network(init, function)
    elif callable(getattr(encoder, "init", None)) and callable(getattr(encoder, "apply", None)):
        return Network(encoder.init, encoder.apply)
    elif callable(encoder):
        return Network(lambda _key, _data: {}, lambda _params, data: encoder(data))
    shown = f"the class {encoder.__name__}" if isinstance(encoder, type) else repr(encoder)
    raise FamilyError(
        f"encoder={shown} is no network.\nWrite one of:\n"
        "    Amortized()                          # a network of asvi's own\n"
        "    Amortized(MLP(rngs=nnx.Rngs(0)))     # flax nnx, made\n"
        "    Amortized(eqx.nn.MLP(784, 64, 64, 2, key=key))\n"
        "    Amortized((function, params))        # called as function(params, batch)"
    )


def _is_from(package: str, x: Any) -> bool:
    return any(
        cls.__module__ == package or cls.__module__.startswith(f"{package}.")
        for cls in type(x).__mro__
    )


def _nnx(module: Any) -> Network:
    from flax import nnx

    graph, params, rest = nnx.split(module, nnx.Param, ...)
    leaves, tree = jax.tree.flatten(params)
    paths = [jax.tree_util.keystr(p, simple=True, separator="/") for p, _ in _paths(params)]
    start = dict(zip(paths, leaves, strict=True))

    def apply(given: Params, data: Any) -> Any:
        state = jax.tree.unflatten(tree, [given[path] for path in paths])
        return nnx.merge(graph, state, rest, copy=True)(data)

    return Network(lambda _key, _data: start, apply)


def _paths(tree: Any) -> list[tuple[Any, Any]]:
    return jax.tree_util.tree_flatten_with_path(tree)[0]


def _linen(module: Any) -> Network:
    def init(key: jax.Array, data: Any) -> Params:
        variables = module.init(key, data)
        others = sorted(set(variables) - {"params"})
        if others:
            raise FamilyError(
                f"the encoder {type(module).__name__} keeps state ({', '.join(others)}), which a "
                "guide does not.\nWrite it with nn.LayerNorm in place of nn.BatchNorm."
            )
        return variables.get("params", {})

    return Network(init, lambda params, data: module.apply({"params": params}, data))


def _equinox(module: Any) -> Network:
    import equinox as eqx

    params, static = eqx.partition(module, eqx.is_inexact_array)

    def apply(given: Params, data: Any) -> Any:
        return jax.vmap(eqx.combine(given, static))(data)

    return Network(lambda _key, _data: params, apply)
