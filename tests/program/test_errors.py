"""Errors come whole out of another process."""

from __future__ import annotations

import copy
import pickle

import pytest

from asvi import errors
from asvi.errors import AsviError, InternalError, SiteError

MADE = {
    SiteError: lambda: SiteError("tau", "its prior is improper", "dist.HalfNormal(5.0)", "Or so."),
    InternalError: lambda: InternalError("the loss rose", result=lambda: None),
}
CLASSES = [
    found
    for name in errors.__all__
    if isinstance(found := getattr(errors, name), type) and issubclass(found, AsviError)
]


@pytest.mark.parametrize("again", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy])
@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_can_be_pickled(kind, again):
    error = MADE.get(kind, lambda: kind("what is wrong"))()
    error.add_note("in the second chain")
    found = again(error)
    assert type(found) is kind
    assert str(found) == str(error)
    assert found.args == error.args
    assert vars(found) == {n: None if n == "result" else x for n, x in vars(error).items()}


def test_of_each_class_there_is_one():
    assert len(CLASSES) == 8
    assert set(MADE) <= set(CLASSES)
