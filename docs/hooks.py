"""Takes the site as mkdocs reads it; gives links where doc-strings have Sphinx roles, and the pages
that stand at the root of the repository.

Inventories of other libraries are asked for over the network, so only where ``ASVI_DOCS_ONLINE`` is
set; without them their names are plain text, and the build passes offline.
"""

from __future__ import annotations

import html
import os
import re
from pathlib import Path
from posixpath import normpath, relpath
from typing import Any

from mkdocs.plugins import event_priority
from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
PAGES_OF_THE_ROOT = {  # where they stand on the site
    "CONTRIBUTING.md": "contributing/index.md",
    "CHANGELOG.md": "contributing/changelog.md",
}
PICTURES = {"benchmarks/results/race/race.png": "contributing/race.png"}
ROLE = re.compile(r":(?:py:)?(?:class|func|meth|mod|attr|data|exc|obj):<code>(~?)([\w.]+)</code>")
LINK = re.compile(r"\[([^\]]*)\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")


@event_priority(100)  # before mkdocstrings reads its settings
def on_config(config: Any) -> Any:
    """Ask for the inventories of other libraries, if the network may be asked."""
    if os.environ.get("ASVI_DOCS_ONLINE"):
        python = config.plugins["mkdocstrings"].config.handlers.setdefault("python", {})
        python["inventories"] = config.extra["inventories"]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of the root, with links as seen from where they stand, and pictures."""
    for name, place in PAGES_OF_THE_ROOT.items():
        content = moved_links((ROOT / name).read_text(), place)
        files.append(File.generated(config, place, content=content))
    for name, place in PICTURES.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / name)))
    return files


def on_page_content(content: str, **_: Any) -> str:
    """Turn the roles of a page's doc-strings into links, where there is something to link to."""
    return ROLE.sub(_link, content)


def moved_links(text: str, place: str) -> str:
    """A page of the root at ``place``: a link to what is not on the site keeps its words alone."""
    folder = os.path.dirname(place)

    def one(match: re.Match) -> str:
        words, path, anchor = match[1], normpath(match[2]), match[3] or ""
        on_site = PAGES_OF_THE_ROOT.get(path)
        if on_site is None and path.startswith("docs/") and (ROOT / path).is_file():
            on_site = path.removeprefix("docs/")
        return f"[{words}]({relpath(on_site, folder)}{anchor})" if on_site else words

    return LINK.sub(one, text)


def _link(match: re.Match) -> str:
    short, target = match[1], match[2]
    name = target if target.partition(".")[0] in OUTSIDE else f"asvi.{target}"
    words = target.rpartition(".")[2] if short else target
    where = html.escape(name)
    return f'<autoref identifier="{where}" optional><code>{html.escape(words)}</code></autoref>'


OUTSIDE = {"arviz", "asvi", "jax", "numpy", "numpyro", "optax", "python", "xarray"}
