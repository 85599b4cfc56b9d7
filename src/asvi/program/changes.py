"""Takes a model and its program; gives an error where it is no more what it was.

A model may read globals, defaults, attributes and arrays that are changed after a fit. What is
asked of the fit then would be of another model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from asvi.errors import ModelError, changed, with_mended
from asvi.program.program import Program

__all__ = ["Changes"]

_IMPURE = (
    "def model(data):\n"
    "    data = dict(data)   # a copy, before anything is taken out of it or put into it\n"
    "    # and no counters, no iterators, no numpy.random: draw such numbers before the fit"
)

_AGAIN = (
    "result = asvi.fit(model, ...)   # again: a global, a default, an attribute, or an array that\n"
    "                                # the model reads was changed after the first fit"
)


class Changes:
    """A model as it is now, by ``survey_again``, against its program as it was."""

    def __init__(self, program: Program, survey_again: Callable[[], Program]):
        self.program, self.survey_again = program, survey_again
        self._is_one_call, self._is_sure = False, False

    def refuse_another(self) -> None:
        """Raise where the model gives another program each time."""
        self._refuse("it gives another program each time that it is called", _IMPURE)

    def refuse_since_fit(self) -> None:
        """Raise where a fitted model reads other numbers now than it did then."""
        if not self._is_sure:
            self._refuse("what it reads is not what it was when it was fitted", _AGAIN)
            self._is_sure = self._is_one_call

    @contextmanager
    def one_call(self) -> Iterator[None]:
        """The model is surveyed once, for all that is recorded meanwhile."""
        self._is_one_call = True
        try:
            yield
        finally:
            self._is_one_call = self._is_sure = False

    def _refuse(self, what: str, mended: str) -> None:
        try:
            differs = self.program.differs(self.survey_again())
        except ModelError as error:
            raise ModelError(with_mended(f"{what}: {str(error).rstrip('.')}", mended)) from error
        if differs is not None:
            raise changed(what, differs, mended)
