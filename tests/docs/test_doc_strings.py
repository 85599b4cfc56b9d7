"""Each public name has an example in its doc-string, and a place in the API reference."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

import asvi
from asvi.families import baselines

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
MODULES = {"asvi": asvi, "asvi.families": asvi.families, "asvi.plot": asvi.plot}
NAMES = [
    f"{path}.{name}"
    for path, module in {**MODULES, "asvi.families.baselines": baselines}.items()
    for name in module.__all__
    if not isinstance(getattr(module, name), ModuleType)
]


def named(path: str) -> object:
    module, _, name = path.rpartition(".")
    found = {**MODULES, "asvi.families.baselines": baselines}[module]
    return getattr(found, name)


def has_example(thing: object) -> bool:
    """Whether the doc-string of a function or class, or of one of its methods, has an example."""
    texts = [inspect.getdoc(thing)]
    if inspect.isclass(thing):
        texts += [getattr(member, "__doc__", None) for member in vars(thing).values()]
    return any(">>> " in (text or "") for text in texts)


@pytest.mark.parametrize("path", NAMES)
def test_each_public_name_has_an_example(path):
    assert has_example(named(path))


def test_each_public_name_is_in_the_reference():
    text = "".join(page.read_text() for page in REFERENCE.glob("*.md"))
    shown = set(re.findall(r"^::: (\S+)", text, re.MULTILINE))
    listed = set(re.findall(r"^ +- (\w+)$", text, re.MULTILINE))
    missing = [
        path
        for path in NAMES
        if path not in shown
        and not path.startswith("asvi.plot.")  # the module is shown whole
        and path.rpartition(".")[2] not in listed
    ]
    assert not missing
