"""Takes an exception out of a model run; gives an error with the line, the site and the mending."""

from __future__ import annotations

import ast
import linecache
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from jax.errors import (
    ConcretizationTypeError,
    NonConcreteBooleanIndexError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
)
from numpyro.primitives import plate

from asvi.errors import (
    AsviError,
    ModelError,
    SiteError,
    is_library_file,
    name_used_twice,
    with_mended,
)

__all__ = ["differentiating", "explain_failure"]


class _Place(NamedTuple):
    """A statement of the model: its text, file and line, and the file's text on both sides.

    Texts are empty where there is no source, as for code made by ``exec``.
    """

    statement: str
    where: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.where}: `{self.statement}`" if self.statement else self.where


def explain_failure(failure: Exception) -> Exception:
    """The same failure, with the line of the model, and the site, where it happened."""
    twice = re.search(r"unique names but got `(.*)` duplicated", str(failure))
    if twice:
        return name_used_twice(twice[1])
    place = _place_in_model(failure)
    if place is None:
        return ModelError(
            with_mended(
                f"the model could not be called ({type(failure).__name__}: {failure})",
                "svi.init(key, *args, **kwargs)   # with the arguments of the model",
            )
        )
    for explain in (_value_needed, _shapes_differ, _carry_differs):
        explained = explain(failure, place)
        if explained is not None:
            return explained
    return _error_at(
        _site_made_in(place),
        f"the model failed ({place}) with {type(failure).__name__}: {str(failure).rstrip('.')}",
        advice="`numpyro.handlers.seed(model, 0)(*args)` runs the model alone.",
    )


@contextmanager
def differentiating() -> Iterator[None]:
    """Within it, an operation of the model that has no derivative is named with its line."""
    try:
        yield
    except ValueError as failure:
        text = str(failure)
        if isinstance(failure, AsviError) or not re.search("JVP|differentiation", text):
            raise
        cause = failure.__cause__
        place = _place_in_model(failure) or (cause and _place_in_model(cause))
        where = f" ({place})" if place else ""
        raise ModelError(
            with_mended(
                f"its density has no derivative{where}: {text.rstrip('.')}",
                "jax.lax.scan(step, init, xs)   # of a length that is known, for a while_loop\n"
                "f = jax.custom_jvp(callback)   # with f.defjvp(...), for a callback",
            )
        ) from failure


def _error_at(
    site: str | None, problem: str, mended: str | None = None, advice: str = ""
) -> Exception:
    if site is None:
        return ModelError(with_mended(problem, mended, advice))
    return SiteError(site, problem, mended, advice)


def _shapes_differ(failure: Exception, place: _Place) -> Exception | None:
    """The error for arrays that do not broadcast, if it is one."""
    text = str(failure)
    if not re.search("incompatible shapes|the same shape", text, re.IGNORECASE):
        return None
    shapes = [ast.literal_eval(shape) for shape in re.findall(r"\([\d, ]*\)", text)]
    shapes = [shape for shape in dict.fromkeys(shapes) if shape]
    if len(shapes) < 2:
        return None
    around = _plate_at(failure)
    if around is not None and len(shapes[-1]) >= -around.dim:
        problem = (
            f"its batch shape {shapes[-1]} does not fit plate {around.name!r} of shape {shapes[0]}"
        )
        mended = f'with numpyro.plate("{around.name}", {shapes[-1][around.dim]}):'
    else:
        problem = f"arrays of shapes {' and '.join(map(str, shapes))} meet and do not broadcast"
        arrays = place.statement or "dist.Normal(a, b)"
        mended = f"{arrays}   # all of shape {shapes[0]}, or one of them as a[:, None]"
    return _error_at(_site_made_in(place), f"{problem} ({place.where})", mended)


def _carry_differs(failure: Exception, place: _Place) -> Exception | None:
    """The error for a ``scan`` whose body gives back another carry than it got, if it is one."""
    if "carry input and carry output must have equal types" not in str(failure):
        return None
    details = " ".join(line for line in str(failure).splitlines() if "has type" in line).strip(" .")
    return _error_at(
        None,
        f"the body of a `scan` gives back another carry than it got ({place.where}): {details}",
        "scan(body, init, xs)   # with init of the shape and dtype that the body gives back",
    )


def _plate_at(failure: Exception) -> plate | None:
    """The plate that broadcast a site when it failed, if one did."""
    for frame, _ in traceback.walk_tb(failure.__traceback__):
        owner = frame.f_locals.get("self")
        if isinstance(owner, plate) and frame.f_code.co_name == "process_message":
            return owner
    return None


def _value_needed(failure: Exception, place: _Place) -> Exception | None:
    """The error for Python code that asks for a value which is not known yet, if it is one."""
    if isinstance(failure, TracerBoolConversionError):
        test = _test_in(place.statement) or "x > 0"
        wish = "decides on"
        mended = (
            "from numpyro.contrib.control_flow import cond\n"
            f"cond({test}, if_true, if_false, operand)   # or jnp.where({test}, a, b)"
        )
    elif isinstance(failure, NonConcreteBooleanIndexError):
        wish = "picks entries by"
        mended = "jnp.where(keep, x, 0.0)   # instead of x[keep]"
    elif isinstance(failure, TracerIntegerConversionError):
        wish = "counts with"
        mended = (
            "for i in range(largest):\n    x = jnp.where(i < n, step(x), x)   # n: the latent count"
        )
    elif isinstance(failure, TracerArrayConversionError):
        wish = "asks, through NumPy, for"
        mended = "jnp.sin(x)   # the function of jax.numpy, not of numpy"
    elif isinstance(failure, ConcretizationTypeError):
        wish = "makes a plain number of"
        mended = "x   # instead of float(x), int(x) or x.item()"
    else:
        return None
    site = _site_read_in(place)
    what = "its value" if site else "a value"
    return _error_at(
        site,
        f"Python {wish} {what} ({place}), which is not known while the program is built",
        mended,
    )


def _place_in_model(failure: BaseException) -> _Place | None:
    """The statement of the innermost frame that is neither ours nor a library's."""
    found = None
    for frame in traceback.extract_tb(failure.__traceback__):
        if not is_library_file(frame.filename) and frame.lineno is not None:
            found = frame.filename, frame.lineno, frame.line or ""
    if found is None:
        return None
    filename, number, line = found
    lines = linecache.getlines(filename)
    where = f"{Path(filename).name}, line {number}"
    before, after = "".join(lines[:number]), "".join(lines[number:])
    return _Place(_statement(lines, number) or line, where, before, after)


def _statement(lines: list[str], line: int) -> str:
    """The simple statement, or the head of the compound one, that this line belongs to."""
    try:
        tree = ast.parse("".join(lines))
    except SyntaxError:  # a notebook's cell with magics, or half a file
        return ""
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or line)
    ]
    if not around:
        return ""
    innermost = max(around, key=lambda node: node.lineno)
    if hasattr(innermost, "body"):
        return lines[line - 1].strip()
    source = "".join(lines[innermost.lineno - 1 : innermost.end_lineno])
    return " ".join(source.split())


def _test_in(statement: str) -> str | None:
    """What an ``if`` or ``while`` asks: ``"x > 0"`` for ``if x > 0:``."""
    found = re.match(r"(?:el)?(?:if|while)\s+(.*?):(?!\=)", statement)
    return found[1] if found else None


def _site_made_in(place: _Place) -> str | None:
    """The site that a statement samples, or whose distribution it makes."""
    here = re.search(r"""sample\(\s*f?["']([^"']+)["']""", place.statement)
    if here:
        return here[1]
    made = re.match(r"(\w+)\s*=", place.statement)
    if made:
        later = re.search(
            rf"""sample\(\s*f?["']([^"']+)["']\s*,\s*(?:fn=)?{made[1]}\b""", place.after
        )
        return later[1] if later else None
    return None


def _site_read_in(place: _Place) -> str | None:
    """The site that gave a variable which a statement reads, as far as the source says."""
    made_by = r"""(\w+)\s*=\s*(?:\w+\.)*sample\(\s*f?["']([^"']+)["']"""
    earlier = dict(re.findall(made_by, place.before))
    is_assignment = re.match(r"\w+\s*=[^=]", place.statement)
    read = place.statement.partition("=")[2] if is_assignment else place.statement
    for name in re.findall(r"\w+", read):
        if name in earlier:
            return earlier[name]
    return None
