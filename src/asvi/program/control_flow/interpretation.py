"""Takes a program with control flow; gives it run under another interpretation of its sites.

NumPyro's handlers do not reach into the bodies of ``scan`` and ``cond``: a body runs under
``block`` and its sites are reported afterwards. An :class:`Interpretation` runs the bodies itself,
so one piece of code decides what happens at a site wherever the site stands:

- what it needs inside a body (variational parameters, values to substitute) travels as scanned
  inputs: cost and memory grow linearly with the length, and ``reverse=True`` and nesting need no
  special care;
- the model's own handlers (``mask``, ``scale``, ``scope``, ``reparam``, ``condition``, ``do``) act
  on the body's sites where they are sampled;
- afterwards each body site is reported once to the handlers outside, with time as leading axis.

>>> import jax, jax.numpy as jnp, numpyro, numpyro.distributions as dist
>>> from numpyro.contrib.control_flow import scan
>>> from numpyro.handlers import seed, trace
>>> def walk():
...     def step(x, _):
...         x = numpyro.sample("x", dist.Normal(x, 1.0))
...         return x, x
...     return scan(step, 0.0, None, length=4)
>>> sites = trace(seed(Interpretation(walk), 0)).get_trace()
>>> sites["x"]["fn"].batch_shape, sites["x"]["value"].shape
((4,), (4,))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from numpyro.contrib.control_flow.cond import cond_wrapper
from numpyro.contrib.control_flow.scan import scan_wrapper
from numpyro.ops.pytree import PytreeTrace
from numpyro.primitives import _PYRO_STACK, Messenger, apply_stack

from asvi.errors import SiteError, name_used_twice
from asvi.program.control_flow import hoisting
from asvi.program.control_flow.handlers import BodySubstitutions, handler_stack, handlers_outside
from asvi.program.statements.ordinary import make_ordinary
from asvi.program.statements.stacked import Evaluated, Stacked, log_prob_at

__all__ = ["Body", "Interpretation"]

_STATIC = ("type", "name", "is_observed", "cond_indep_stack", "infer")
_ARRAYS = ("fn", "value", "intermediates", "scale")


class Body:
    """One activation of a body: where it is, what was threaded into it, which sites it met.

    ``path`` names the enclosing blocks, e.g. ``("scan0", "cond0", "true")``; the program's top
    level has the empty path. ``extras`` are further arrays that an interpretation wants carried
    out of the body; ``memory`` is what it carries from step to step of a scan,
    ``noise`` what the sites of this frame tell each other.
    """

    def __init__(self, path: tuple[str, ...] = (), threaded: Any = None, outside: Any = None):
        self.path = path
        self.threaded = threaded
        self.outside: Body | None = outside
        self.memory: Any = ()
        self.noise: dict[str, Any] = {}
        self.records: dict[str, dict[str, Any]] = {}
        self.extras: dict[Any, Any] = {}
        self._blocks = 0

    @property
    def is_root(self) -> bool:
        return not self.path

    def next_block(self, kind: str) -> tuple[str, ...]:
        """The path of the next control-flow block met in this frame."""
        path = (*self.path, f"{kind}{self._blocks}")
        self._blocks += 1
        return path

    def collect(self) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
        """The arrays of this frame's sites, to be returned from a traced body."""
        arrays = {}
        for name, record in self.records.items():
            arrays[name] = {key: record[key] for key in _ARRAYS if record.get(key) is not None}
            if record["type"] != "sample":
                arrays[name].pop("fn", None)
        return arrays, self.extras


class Interpretation(Messenger):
    """Runs a program, its control flow included; subclasses say what happens at a site.

    Override :meth:`visit` to act on a ``sample`` message before its value is drawn, :meth:`thread`
    to pass arrays into a body, :meth:`reports` to keep a site from the handlers outside.
    """

    #: Run both branches of every ``cond`` and select the result (to look at a program's structure).
    both_branches = False

    def __init__(self, fn: Callable | None = None):
        super().__init__(fn)
        self.frame = Body()

    # ------------------------------------------------------------------ what subclasses override

    def visit(self, msg: dict[str, Any]) -> None:
        """Act on a ``sample`` message that has not been drawn yet."""

    def visit_other(self, msg: dict[str, Any]) -> None:
        """Act on a message that is neither ``sample`` nor ``control_flow``."""

    def thread(self, path: tuple[str, ...], length: int, reverse: bool) -> Any:
        """Arrays with leading axis ``length`` that the body of the ``scan`` at ``path`` needs."""
        return None

    def first_memory(self, path: tuple[str, ...]) -> Any:
        """Registers, (steps, ...), that this interpretation keeps in the ``scan`` at ``path``."""
        return ()

    def to_remember(self, frame: Body) -> Any:
        """What a step of the body adds to them."""
        return frame.memory

    def thread_branch(self, path: tuple[str, ...]) -> Any:
        """Arrays that the branch at ``path`` needs."""
        return None

    def decide(self, path: tuple[str, ...], pred: Any) -> None:
        """Called with the predicate of the ``cond`` at ``path`` before a branch is taken."""

    def reports(self, msg: dict[str, Any]) -> bool:
        """Whether the handlers outside hear of this site of a body."""
        return True

    # ---------------------------------------------------------------------------- the messenger

    def __enter__(self):
        self.frame = Body()
        super().__enter__()
        return self

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "control_flow":
            self._take_over(msg)
        elif msg["type"] == "sample":
            if not msg.get("_control_flow_done"):
                make_ordinary(msg)
                self.visit(msg)
        elif msg["type"] == "param" and not self.frame.is_root:
            raise SiteError(
                msg["name"],
                "a `numpyro.param` stands inside the body of a `scan` or `cond`, where no "
                "optimiser can reach it",
                f'value = numpyro.param("{msg["name"]}", ...)   # before the scan\n'
                "scan(body, init, xs)                # and use `value` inside the body",
            )
        else:
            self.visit_other(msg)

    def postprocess_message(self, msg: dict[str, Any]) -> None:
        if self.frame.is_root or msg["type"] not in ("sample", "deterministic", "plate"):
            return
        if msg["type"] == "plate" and not _is_subsampled(msg):
            return
        if not msg.get("_control_flow_done") and self.reports(msg):
            self._record(msg)

    def _record(self, msg: dict[str, Any]) -> None:
        name = msg["name"]
        if msg["type"] == "sample" and name in self.frame.records:
            raise name_used_twice(name)
        record = {key: msg.get(key) for key in (*_STATIC, *_ARRAYS)}
        if record["scale"] is not None:
            record["scale"] = jnp.asarray(record["scale"], jnp.result_type(float))
        if not record["intermediates"]:
            record["intermediates"] = None
        self.frame.records[name] = record

    # ---------------------------------------------------------------------------- control flow

    def _take_over(self, msg: dict[str, Any]) -> None:
        kwargs = msg["kwargs"]
        if msg.get("_interpreted") or kwargs.get("enum"):
            return
        if msg["fn"] not in (scan_wrapper, cond_wrapper):
            return
        inside = _PYRO_STACK[_PYRO_STACK.index(self) + 1 :]
        known = len(kwargs["substitute_stack"])
        run = self._run_scan if msg["fn"] is scan_wrapper else self._run_cond
        # What a seed of the model's own gave is for its `prng_key` alone; draws get other keys.
        own, kwargs["rng_key"] = kwargs["rng_key"], None
        msg["fn"] = partial(run, inside, known, own)
        msg["_interpreted"] = True

    def _run_scan(
        self,
        inside,
        known,
        own_key,
        f,
        init,
        xs,
        length,
        reverse,
        rng_key=None,
        substitute_stack=(),
        **_,
    ):
        if length is None:
            length = jnp.shape(jax.tree.leaves(xs)[0])[0]
        path = self.frame.next_block("scan")
        values = BodySubstitutions(inside, substitute_stack[known:], length)
        index = jnp.arange(length)
        keys = None if rng_key is None else jax.random.split(rng_key, length)
        own_keys = None if own_key is None else _keys_of_steps(own_key, length, reverse)
        statics: dict[str, dict[str, Any]] = {}

        def body(carry, step):
            key, (x, threaded, sliced, i, own) = step
            carry, memory = carry
            stack = values.handlers(self, key, sliced, i, own)
            with self._inside(path, threaded, stack) as frame:
                frame.memory = memory
                carry, y = f(carry, x)
            statics.clear()
            statics.update(frame.records)
            return (carry, self.to_remember(frame)), (y, frame.collect())

        inputs = (xs, self.thread(path, length, reverse), values.sliced, index, own_keys)
        carry, (ys, (arrays, extras)) = hoisting.scan(
            body,
            init,
            keys,
            inputs,
            registers=self.first_memory(path),
            length=length,
            reverse=reverse,
        )
        self.frame.extras.update(extras)
        for name, static in statics.items():
            site = {**static, "scale": None, "intermediates": None, **arrays[name]}
            if static["type"] == "sample":
                site["fn"] = Stacked(site["fn"], length)
                if site["scale"] is not None:
                    site["scale"] = _expand_right(site["scale"], len(site["fn"].batch_shape))
            self._report(site)
        return (length, rng_key, carry), (PytreeTrace({}), ys)

    def _run_cond(
        self,
        inside,
        known,
        own_key,
        pred,
        true_fun,
        false_fun,
        operand,
        rng_key=None,
        substitute_stack=(),
        **_,
    ):
        path = self.frame.next_block("cond")
        self.decide(path, pred)
        values = BodySubstitutions(inside, substitute_stack[known:], None)
        statics: dict[str, dict[str, dict[str, Any]]] = {}

        def branch(label: str, fun: Callable):
            def run(inputs):
                key, own, threaded, operand = inputs
                stack = values.handlers(self, key, values.sliced, None, own)
                with self._inside((*path, label), threaded[label], stack) as frame:
                    value = fun(operand)
                statics[label] = frame.records
                return value, _evaluated(frame.collect()[0], frame.records), frame.extras

            return run

        threaded = {label: self.thread_branch((*path, label)) for label in ("true", "false")}
        inputs = (rng_key, own_key, threaded, operand)
        runs = (branch("true", true_fun), branch("false", false_fun))
        if self.both_branches:
            results = [run(inputs) for run in runs]
            for _value, _sites, extras in results:
                self.frame.extras.update(extras)
            _check_branches(statics)
            value, arrays = jax.tree.map(
                lambda a, b: jnp.where(pred, a, b), results[0][:2], results[1][:2]
            )
        else:
            value, arrays, _ = lax.cond(pred, *runs, inputs)
        for name, static in statics["true"].items():
            self._report(_merge_evaluated(static, arrays[name]))
        return value, PytreeTrace({})

    @contextmanager
    def _inside(self, path, threaded, stack) -> Iterator[Body]:
        outside = self.frame
        self.frame = Body(path, threaded, outside)
        try:
            with handler_stack(stack):
                yield self.frame
        finally:
            self.frame = outside

    def _report(self, site: dict[str, Any]) -> None:
        """Tell the frame around a body, or the handlers outside, of a site of that body."""
        if not self.frame.is_root:
            if site["type"] == "sample" and site["name"] in self.frame.records:
                raise name_used_twice(site["name"])
            self.frame.records[site["name"]] = site
            return
        msg = {
            **site,
            "args": (),
            "kwargs": {"rng_key": None, "sample_shape": ()},
            "intermediates": site.get("intermediates") or [],
            "_control_flow_done": True,
        }
        with handlers_outside(self):
            apply_stack(msg)


# -------------------------------------------------------------------------------- small helpers


def _is_subsampled(msg: dict[str, Any]) -> bool:
    size, subsample_size = msg["args"]
    return subsample_size is not None and subsample_size != size


def _keys_of_steps(key: jax.Array, length: int, reverse: bool) -> jax.Array:
    """The keys of a scan's steps, as NumPyro's own ``scan`` derives them from one."""

    def step(key, _):
        key, own = jax.random.split(key)
        return key, own

    return lax.scan(step, key, None, length=length, reverse=reverse)[1]


def _expand_right(x: jax.Array, ndim: int) -> jax.Array:
    return jnp.reshape(x, jnp.shape(x) + (1,) * (ndim - jnp.ndim(x)))


def _evaluated(arrays: dict[str, Any], records: dict[str, Any]) -> dict[str, Any]:
    """Sites of one branch, reduced to value and log density: the families may differ."""
    out = {}
    for name, site in arrays.items():
        out[name] = {key: value for key, value in site.items() if key in ("value", "scale")}
        if records[name]["type"] == "sample":
            fn = site["fn"]
            log_prob = log_prob_at(fn, site["value"], site.get("intermediates"))
            # Data may be larger than one draw: keep the density's own shape.
            shape = jnp.broadcast_shapes(jnp.shape(log_prob), fn.batch_shape)
            out[name]["log_prob"] = jnp.broadcast_to(log_prob, shape)
    return out


def _merge_evaluated(static: dict[str, Any], arrays: dict[str, Any]) -> dict[str, Any]:
    site = {**static, "intermediates": None, "scale": None, **arrays}
    log_prob = site.pop("log_prob", None)
    if log_prob is not None:
        site["fn"] = Evaluated.like(static["fn"], log_prob)
    return site


def _check_branches(statics: dict[str, dict[str, dict[str, Any]]]) -> None:
    names = {label: sorted(sites) for label, sites in statics.items()}
    if names["true"] == names["false"]:
        for name, site in statics["true"].items():
            shapes = [jnp.shape(statics[label][name]["value"]) for label in ("true", "false")]
            if shapes[0] != shapes[1]:
                raise SiteError(
                    name,
                    f"it has shape {shapes[0]} in the true branch of a `cond` and {shapes[1]} in "
                    "the false one",
                    f'numpyro.{site["type"]}("{name}", ...)   # of one shape in both branches',
                )
        return
    missing = sorted(set(names["true"]) ^ set(names["false"]))[0]
    where = "true" if missing in names["true"] else "false"
    raise SiteError(
        missing,
        f"it stands in the {where} branch of a `cond` alone; both branches must have the same "
        "sites, as for `numpyro.contrib.control_flow.cond`",
        f'# in the other branch as well:\nnumpyro.sample("{missing}", ...)',
    )
