"""Takes one operation of a program; says where the axes of its inputs are in its output.

An axis is *kept* if entry i along it in the output depends on entry i of the input alone: a sum
with other arrays keeps all axes, a sum over an axis loses that one. What is not listed here keeps
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Any

import numpy as np

__all__ = ["RULES"]

#: The output's axis for each kept axis of an input; the same for all outputs.
Places = dict[int, int]


def _same(ndim: int, lost: Iterable[int] = ()) -> Places:
    return {a: a for a in range(ndim) if a not in lost}


def _elementwise(shapes: list[tuple[int, ...]], out: tuple[int, ...], _: Any) -> list[Places]:
    # Arrays of one number of axes, or scalars; an axis of size 1 goes with any other.
    return [
        {a: a for a, size in enumerate(shape) if size == out[a]} if len(shape) == len(out) else {}
        for shape in shapes
    ]


def _losing(parameter: str) -> Callable:
    """Along the axis (or axes) of this parameter everything meets; the others stay."""

    def rule(shapes: list[tuple[int, ...]], out: Any, params: Any) -> list[Places]:
        lost = np.ravel(params[parameter]).tolist()
        return [_same(len(shape), lost) for shape in shapes]

    return rule


def _reduction(shapes: list[tuple[int, ...]], out: Any, params: Any) -> list[Places]:
    return [_without(len(shape), params["axes"]) for shape in shapes]


def _squeeze(shapes: list[tuple[int, ...]], out: Any, params: Any) -> list[Places]:
    return [_without(len(shapes[0]), params["dimensions"])]


def _without(ndim: int, gone: Iterable[int]) -> Places:
    kept = [a for a in range(ndim) if a not in tuple(gone)]
    return {a: k for k, a in enumerate(kept)}


def _stack(shapes: list[tuple[int, ...]], out: Any, params: Any) -> list[Places]:
    new = params["axis"]
    return [{a: a + (a >= new) for a in range(len(shape))} for shape in shapes]


def _unstack(shapes: list[tuple[int, ...]], out: Any, params: Any) -> list[Places]:
    return [_without(len(shapes[0]), (params["axis"],))]


def _broadcast(shapes: list[tuple[int, ...]], out: tuple[int, ...], params: Any) -> list[Places]:
    where = params["broadcast_dimensions"]
    own = {a: where[a] for a, size in enumerate(shapes[0]) if out[where[a]] == size}
    return [own] + [{}] * (len(shapes) - 1)


def _reshape(shapes: list[tuple[int, ...]], out: tuple[int, ...], params: Any) -> list[Places]:
    if params.get("dimensions") is not None:
        return [{}] * len(shapes)
    places = {}
    for a, size in enumerate(shapes[0]):
        before = prod(shapes[0][:a])
        for b, other in enumerate(out):
            if other == size and prod(out[:b]) == before:
                places[a] = b
                break
    return [places] + [{}] * (len(shapes) - 1)


def _transpose(shapes: Any, out: Any, params: Any) -> list[Places]:
    return [{a: k for k, a in enumerate(params["permutation"])}]


def _slice(shapes: list[tuple[int, ...]], out: tuple[int, ...], params: Any) -> list[Places]:
    step = params["strides"] or (1,) * len(out)
    kept = [n == m and s == 1 for n, m, s in zip(shapes[0], out, step, strict=True)]
    return [{a: a for a, whole in enumerate(kept) if whole}]


def _dynamic_slice(shapes: list[tuple[int, ...]], out: Any, params: Any) -> list[Places]:
    own = {a: a for a, size in enumerate(shapes[0]) if size == out[a]}
    return [own] + [{}] * (len(shapes) - 1)


def _dynamic_update(shapes: list[tuple[int, ...]], out: Any, params: Any) -> list[Places]:
    whole, part, *rest = shapes
    update = {a: a for a, size in enumerate(part) if size == whole[a]}
    return [_same(len(whole)), update] + [{}] * len(rest)


def _pad(shapes: list[tuple[int, ...]], out: Any, params: Any) -> list[Places]:
    untouched = (0, 0, 0)
    wide = [a for a, how in enumerate(params["padding_config"]) if tuple(how) != untouched]
    return [_same(len(shapes[0]), wide), {}]


def _product(shapes: list[tuple[int, ...]], out: Any, params: Any) -> list[Places]:
    contracted, batch = params["dimension_numbers"]
    found, begin = [], len(batch[0])
    for shape, over, shared in zip(shapes, contracted, batch, strict=True):
        places = {a: k for k, a in enumerate(shared)}
        free = [a for a in range(len(shape)) if a not in (*over, *shared)]
        found.append(places | {a: begin + k for k, a in enumerate(free)})
        begin += len(free)
    return found


def _gather(shapes: list[tuple[int, ...]], out: tuple[int, ...], params: Any) -> list[Places]:
    """A row for each index: the axes of the indices stay, and those that are taken whole."""
    numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
    operand, indices = shapes
    rows = [a for a in range(len(out)) if a not in numbers.offset_dims]
    shared = tuple(numbers.operand_batching_dims)
    gone = (*numbers.collapsed_slice_dims, *shared)
    taken = [a for a in range(len(operand)) if a not in gone]
    own = {
        a: place
        for a, place in zip(taken, numbers.offset_dims, strict=True)
        if sizes[a] == operand[a]
    }
    own |= {a: rows[i] for a, i in zip(shared, numbers.start_indices_batching_dims, strict=True)}
    return [own, {i: rows[i] for i in range(len(indices) - 1)}]


def _scatter(shapes: list[tuple[int, ...]], out: Any, params: Any) -> list[Places]:
    numbers = params["dimension_numbers"]
    operand, _indices, updates = shapes
    shared = tuple(numbers.operand_batching_dims)
    gone = (*numbers.inserted_window_dims, *shared)
    window = [a for a in range(len(operand)) if a not in gone]
    said = {
        w: a
        for w, a in zip(numbers.update_window_dims, window, strict=True)
        if updates[w] == operand[a]
    }
    rows = [a for a in range(len(updates)) if a not in numbers.update_window_dims]
    by_index = dict(zip(numbers.scatter_indices_batching_dims, shared, strict=True))
    said |= {rows[i]: a for i, a in by_index.items()}
    return [_same(len(operand)), by_index, said]


def _matrices(shapes: list[tuple[int, ...]], out: Any, params: Any) -> list[Places]:
    """Linear algebra on the last two axes, for each of the others."""
    return [_same(len(shape) - 2) for shape in shapes]


def _triangular(shapes: list[tuple[int, ...]], out: Any, params: Any) -> list[Places]:
    """The same, and right-hand sides do not meet each other."""
    ndim = len(out)
    return [_same(ndim - 2), _same(ndim, [ndim - 2 if params["left_side"] else ndim - 1])]


_ELEMENTWISE = """
    abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt ceil
    clamp clz complex conj convert_element_type copy copy_p cos cosh digamma div eq erf erf_inv
    erfc exp exp2 expm1 floor ge gt igamma igamma_grad_a igammac imag integer_pow is_finite le
    lgamma log log1p logistic lt max min mul name ne neg nextafter noise_of not or polygamma
    population_count pow quantile_at random_gamma random_gamma_grad real reduce_precision
    regularized_incomplete_beta rem round rsqrt select_n shift_left shift_right_arithmetic
    shift_right_logical sign sin sinh sqrt square stop_gradient sub tan tanh xor zeta
"""

#: By the operation's name, a function of input shapes, output shape and parameters: the places of
#: each input's axes.
RULES: dict[str, Callable[[list[tuple[int, ...]], tuple[int, ...], Any], list[Places]]] = {
    **dict.fromkeys(_ELEMENTWISE.split(), _elementwise),
    **dict.fromkeys(
        [f"reduce_{n}" for n in ("sum", "max", "min", "prod", "and", "or", "xor")], _reduction
    ),
    **dict.fromkeys(("argmax", "argmin"), _reduction),
    **dict.fromkeys(
        [f"cum{n}" for n in ("sum", "prod", "max", "min", "logsumexp")], _losing("axis")
    ),
    **dict.fromkeys(("sort", "concatenate"), _losing("dimension")),
    "rev": _losing("dimensions"),
    "split": _losing("axis"),
    "stack": _stack,
    "unstack": _unstack,
    "squeeze": _squeeze,
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update,
    "pad": _pad,
    "triangular_solve": _triangular,
    "dot_general": _product,
    "gather": _gather,
    "scatter": _scatter,
    **dict.fromkeys([f"scatter-{n}" for n in ("add", "sub", "mul", "min", "max")], _scatter),
    **dict.fromkeys(("cholesky", "lu", "qr", "eigh", "svd"), _matrices),
}
