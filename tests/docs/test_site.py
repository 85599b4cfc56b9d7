"""`docs/hooks.py`: roles of doc-strings become links, pages of the root keep theirs."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("mkdocs")
HOOKS = Path(__file__).parents[2] / "docs" / "hooks.py"


@pytest.fixture(scope="module")
def hooks():
    spec = importlib.util.spec_from_file_location("hooks", HOOKS)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("role", "name", "words"),
    [
        (":class:<code>~asvi.families.Coupled</code>", "asvi.families.Coupled", "Coupled"),
        (":func:<code>autoguide</code>", "asvi.autoguide", "autoguide"),
        (":class:<code>numpyro.infer.SVI</code>", "numpyro.infer.SVI", "numpyro.infer.SVI"),
    ],
)
def test_a_role_is_a_link_where_there_is_something_to_link_to(hooks, role, name, words):
    expected = f'<autoref identifier="{name}" optional><code>{words}</code></autoref>'
    assert hooks.on_page_content(f"<p>see {role}.</p>") == f"<p>see {expected}.</p>"


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("[a](docs/index.md)", "[a](../index.md)"),
        ("[a](docs/guides/errors.md#data)", "[a](../guides/errors.md#data)"),
        ("[a](CHANGELOG.md)", "[a](changelog.md)"),
        ("[a](LICENSE)", "a"),
        ("[a](https://num.pyro.ai)", "[a](https://num.pyro.ai)"),
    ],
)
def test_links_of_a_page_of_the_root_hold_on_the_site(hooks, link, expected):
    assert hooks.moved_links(link, "contributing/index.md") == expected
