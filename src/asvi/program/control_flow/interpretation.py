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
from asvi.program.addresses import BodyPath
from asvi.program.control_flow import hoisting
from asvi.program.control_flow.body import Body
from asvi.program.control_flow.branches import (
    BRANCHES,
    check_branches,
    evaluate_sites,
    merge_evaluated,
)
from asvi.program.control_flow.handlers import BodySubstitutions, handler_stack, handlers_outside
from asvi.program.settings import HoistingSettings
from asvi.program.statements.ordinary import make_ordinary
from asvi.program.statements.stacked import Stacked

__all__ = ["Interpretation"]


class Interpretation(Messenger):
    """Runs a program, its control flow included; subclasses say what happens at a site.

    Override :meth:`visit` to act on a ``sample`` message before its value is drawn, :meth:`thread`
    to pass arrays into a body, :meth:`reports` to keep a site from the handlers outside.

    >>> from numpyro import handlers, sample, distributions as dist
    >>> found = Interpretation(lambda: sample("x", dist.Normal(0.0, 1.0)))
    >>> list(handlers.trace(handlers.seed(found, 0)).get_trace())
    ['x']
    """

    #: Run both branches of every ``cond`` and select the result (to look at a program's structure).
    both_branches = False

    def __init__(self, fn: Callable | None = None, hoisting: HoistingSettings = HoistingSettings()):
        super().__init__(fn)
        self.body, self.hoisting = Body(), hoisting

    # ------------------------------------------------------------------ what subclasses override

    def visit(self, msg: dict[str, Any]) -> None:
        """Act on a ``sample`` message that has not been drawn yet."""

    def visit_other(self, msg: dict[str, Any]) -> None:
        """Act on a message that is neither ``sample`` nor ``control_flow``."""

    def thread(self, path: BodyPath, length: int, reverse: bool) -> Any:
        """Arrays with leading axis ``length`` that the body of the ``scan`` at ``path`` needs."""
        return None

    def first_lookback(self, path: BodyPath) -> Any:
        """Registers, (steps, ...), that this interpretation keeps in the ``scan`` at ``path``."""
        return ()

    def next_lookback(self, body: Body) -> Any:
        """What a step of the body adds to them."""
        return body.lookback

    def thread_branch(self, path: BodyPath) -> Any:
        """Arrays that the branch at ``path`` needs."""
        return None

    def decide(self, path: BodyPath, pred: Any) -> None:
        """Called with the predicate of the ``cond`` at ``path`` before a branch is taken."""

    def reports(self, msg: dict[str, Any]) -> bool:
        """Whether this site of a body is reported to the handlers outside."""
        return True

    # ---------------------------------------------------------------------------- the messenger

    def __enter__(self):
        self.body = Body()
        super().__enter__()
        return self

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "control_flow":
            self._take_over(msg)
        elif msg["type"] == "sample":
            if not msg.get("_control_flow_done"):
                make_ordinary(msg)
                self.visit(msg)
        elif msg["type"] == "param" and not self.body.is_root:
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
        if self.body.is_root or msg["type"] not in ("sample", "deterministic", "plate"):
            return
        if msg["type"] == "plate" and not _is_subsampled(msg):
            return
        if not msg.get("_control_flow_done") and self.reports(msg):
            self.body.record(msg)

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
        path = self.body.next_block("scan")
        values = BodySubstitutions(inside, substitute_stack[known:], length)
        index = jnp.arange(length)
        keys = None if rng_key is None else jax.random.split(rng_key, length)
        own_keys = None if own_key is None else _keys_of_steps(own_key, length, reverse)
        statics: dict[str, dict[str, Any]] = {}

        def step(carry, inputs):
            key, (x, scanned, sliced, i, own) = inputs
            carry, lookback = carry
            stack = values.handlers(self, key, sliced, i, own)
            with self._inside(path, scanned, stack) as body:
                body.lookback = lookback
                carry, y = f(carry, x)
            statics.clear()
            statics.update(body.sites)
            return (carry, self.next_lookback(body)), (y, body.collect())

        inputs = (xs, self.thread(path, length, reverse), values.sliced, index, own_keys)
        carry, (ys, (arrays, outputs)) = hoisting.scan(
            step,
            init,
            keys,
            inputs,
            registers=self.first_lookback(path),
            length=length,
            reverse=reverse,
            settings=self.hoisting,
        )
        self.body.outputs.update(outputs)
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
        path = self.body.next_block("cond")
        self.decide(path, pred)
        values = BodySubstitutions(inside, substitute_stack[known:], None)
        statics: dict[str, dict[str, dict[str, Any]]] = {}

        paths = {label: (*path[:-1], path[-1]._replace(branch=label)) for label in BRANCHES}

        def branch(label: str, fun: Callable):
            def run(inputs):
                key, own, passed, operand = inputs
                stack = values.handlers(self, key, values.sliced, None, own)
                with self._inside(paths[label], passed[label], stack) as body:
                    value = fun(operand)
                statics[label] = body.sites
                return value, evaluate_sites(body.collect()[0], body.sites), body.outputs

            return run

        passed = {label: self.thread_branch(paths[label]) for label in BRANCHES}
        inputs = (rng_key, own_key, passed, operand)
        runs = (branch("true", true_fun), branch("false", false_fun))
        if self.both_branches:
            results = [run(inputs) for run in runs]
            for _value, _sites, outputs in results:
                self.body.outputs.update(outputs)
            check_branches(statics)
            value, arrays = jax.tree.map(
                lambda a, b: jnp.where(pred, a, b), results[0][:2], results[1][:2]
            )
        else:
            value, arrays, _ = lax.cond(pred, *runs, inputs)
        for name, static in statics["true"].items():
            self._report(merge_evaluated(static, arrays[name]))
        return value, PytreeTrace({})

    @contextmanager
    def _inside(self, path: BodyPath, scanned: Any, stack: list[Messenger]) -> Iterator[Body]:
        outside = self.body
        self.body = Body(path, scanned, outside)
        try:
            with handler_stack(stack):
                yield self.body
        finally:
            self.body = outside

    def _report(self, site: dict[str, Any]) -> None:
        """Hand a site of a body to the body around it, or to the handlers outside."""
        if not self.body.is_root:
            if site["type"] == "sample" and site["name"] in self.body.sites:
                raise name_used_twice(site["name"])
            self.body.sites[site["name"]] = site
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
