"""Takes what went wrong and where; gives errors that name the site and show the mended line.

Every error that `asvi` raises on purpose derives from :class:`AsviError`. Each text has three
parts: *where* (the site), *what* is wrong, and *how to mend it*, with code where code helps:

    site 'tau': its prior is improper.
    Write instead:
        dist.HalfNormal(5.0)
"""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path
from types import FrameType
from typing import Any

import jax
import numpyro

__all__ = [
    "AsviError",
    "AsviWarning",
    "DataWarning",
    "FamilyError",
    "InternalError",
    "LossError",
    "ModelError",
    "NotHeldError",
    "PerformanceWarning",
    "SiteError",
    "StoredFitError",
    "VerdictWarning",
    "changed",
    "is_library_file",
    "name_used_twice",
    "warn_user",
    "with_mended",
]


def __dir__() -> list[str]:
    """What is for users: errors and warnings."""
    return [name for name in __all__ if isinstance(globals()[name], type)]


_LIBRARIES = tuple(
    Path(module).parent
    for module in (Path(__file__).parent, numpyro.__file__, jax.__file__, inspect.__file__)
)


class AsviError(ValueError):
    """Base class of all errors raised on purpose by `asvi`.

    They can be pickled, so that they come whole out of another process:

    >>> import pickle
    >>> error = pickle.loads(pickle.dumps(SiteError("tau", "its prior is improper")))
    >>> error.site, str(error)
    ('tau', "site 'tau': its prior is improper.")
    """

    def __reduce__(self) -> Any:
        # Python would call the class with the text alone, which is not what it is made of.
        return _restored, (type(self), self.args, self.__dict__)


def _restored(cls: type[AsviError], args: tuple[Any, ...], state: dict[str, Any]) -> AsviError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


class ModelError(AsviError):
    """The model as a whole cannot be used (it has no latent site, it fails while it runs, ...).

    >>> import asvi
    >>> asvi.check(lambda y: None, 1.0)
    Traceback (most recent call last):
    ...
    asvi.errors.ModelError: ...
    """


class SiteError(AsviError):
    """One site cannot be used.

    **Example**

    >>> str(SiteError("tau", "its prior is improper", "dist.HalfNormal(5.0)"))
    "site 'tau': its prior is improper.\\nWrite instead:\\n    dist.HalfNormal(5.0)"
    """

    def __init__(self, site: str, problem: str, mended: str | None = None, advice: str = ""):
        self.site, self.problem, self.mended, self.advice = site, problem, mended, advice
        super().__init__(with_mended(f"site {site!r}: {problem}", mended, advice))


class FamilyError(AsviError):
    """A variational family was asked for something that it cannot do.

    >>> import asvi
    >>> asvi.AutoASVI(lambda: None, family="Normal")
    Traceback (most recent call last):
    ...
    asvi.errors.FamilyError: ...
    """


class NotHeldError(FamilyError):
    """A family is not for this model: another one is."""


class LossError(AsviError):
    """The loss would be silently wrong on this model.

    >>> issubclass(LossError, AsviError)
    True
    """


class StoredFitError(AsviError):
    """A file is not what it should be: of another model, of another version, or broken.

    >>> import asvi
    >>> asvi.load("nowhere.asvi", lambda: None)
    Traceback (most recent call last):
    ...
    asvi.errors.StoredFitError: There is no file nowhere.asvi.
    """


class InternalError(AsviError):
    """`asvi` contradicts itself: a fault of the library, not of the model.

    ``result`` is the fit as it stands, where there is one. It stays in its process: a fit is saved
    by its own ``save``.

    >>> str(InternalError("two densities differ")).splitlines()[0]
    'two densities differ.'
    """

    def __init__(self, what: str, result: object = None):
        self.what, self.result = what, result
        super().__init__(
            f"{what}.\nThis is a fault of asvi, not of your model; the result is not to be "
            "trusted.\nPlease report the model with this text, and meanwhile try another family:\n"
            "    asvi.fit(model, y, family=asvi.families.ConvexUpdate())"
        )

    def __reduce__(self) -> Any:
        return _restored, (type(self), self.args, {**self.__dict__, "result": None})


class AsviWarning(UserWarning):
    """Base class of all warnings of `asvi`, but for old names (``FutureWarning``).

    >>> import warnings
    >>> warnings.simplefilter("ignore", AsviWarning)   # to silence them all
    >>> warnings.simplefilter("error", VerdictWarning)   # to stop at a bad fit
    """


class VerdictWarning(AsviWarning):
    """The verdict on a fit is *not trustworthy*.

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", VerdictWarning)
    """


class PerformanceWarning(AsviWarning):
    """The model can be written so that it runs faster, or that gradients have less noise.

    >>> issubclass(PerformanceWarning, AsviWarning)
    True
    """


class DataWarning(AsviWarning):
    """Something is left out of a result, or taken for something else, because of the data.

    >>> issubclass(DataWarning, AsviWarning)
    True
    """


def with_mended(problem: str, mended: str | None = None, advice: str = "") -> str:
    """The text of an error: the problem, advice after it, the mended code below.

    >>> print(with_mended("y is too long", "y = y[:3]", "Cut it."))
    y is too long. Cut it.
    Write instead:
        y = y[:3]
    """
    text = f"{problem}." if not advice else f"{problem}. {advice}"
    if mended:
        text += "\nWrite instead:\n" + "\n".join("    " + line for line in mended.splitlines())
    return text


def changed(what: str, sites: tuple[str, ...], mended: str) -> AsviError:
    """The error for a model that is not what it was, at these sites if it is known at which."""
    if not sites:
        return ModelError(with_mended(f"the model changed: {what}", mended))
    others = f" (and {', '.join(map(repr, sites[1:]))})" if sites[1:] else ""
    return SiteError(sites[0], f"the model changed here{others}: {what}", mended)


def name_used_twice(name: str) -> SiteError:
    """The error for a name that stands in the model more than once."""
    return SiteError(
        name,
        "this name is used twice",
        f'numpyro.sample("{name}_2", ...)   # in a loop: numpyro.sample(f"{name}_{{i}}", ...)',
        advice="Every site needs a name of its own.",
    )


def warn_user(text: str, category: type[Warning] = AsviWarning) -> None:
    """Warn, and show as the place the user's own line, not a line of a library."""
    frame: FrameType | None = inspect.currentframe()
    level = 0
    while frame is not None and is_library_file(frame.f_code.co_filename):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level + 1)


def is_library_file(filename: str) -> bool:
    """Whether a source file belongs to this package or to what runs a model for it.

    >>> is_library_file(numpyro.__file__), is_library_file("my_model.py")
    (True, False)
    """
    path = Path(filename)
    return "site-packages" in path.parts or any(home in path.parents for home in _LIBRARIES)
