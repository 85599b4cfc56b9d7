"""Takes a Markdown page; runs its Python blocks, and compares what they print with what it shows.

A ``text`` block that stands right below a ``python`` block, with no prose between them, is what
that block prints.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

RELATIVE, ABSOLUTE = 0.1, 0.2  # how far a printed number may be from the page's: either will do
NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[-+]?\d+)?")
SECONDS = re.compile(NUMBER.pattern + r"\s?(?:seconds|second|ms|s)\b")
RULE = re.compile(r"[─━═-]{3,}")  # a line under a head is as wide as its numbers
BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:\n*^```text\n(?P<shown>.*?)^```)?", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True)
class Block:
    """A piece of Python, the line of its page where it begins, and what the page says it prints."""

    code: str
    line: int
    shown: str | None


def blocks(text: str) -> Iterator[Block]:
    """The Python blocks of a page, from top to bottom."""
    for match in BLOCK.finditer(text):
        yield Block(match["code"], text[: match.start()].count("\n") + 1, match["shown"])


def run_page(page: Path, most: int | None = None) -> dict:
    """Run the blocks of ``page`` in one namespace, its first ``most`` only if given."""
    module = sys.modules.setdefault(f"page_{page.stem}", type(sys)(f"page_{page.stem}"))
    names = vars(module)  # a module of its own, so that its classes can be pickled
    for block in list(blocks(page.read_text()))[:most]:
        code = compile("\n" * block.line + block.code, str(page), "exec")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        if block.shown is not None:
            differs = difference(printed.getvalue(), block.shown)
            assert differs is None, f"{page.name}, line {block.line}: {differs}"
    return names


def difference(printed: str, shown: str) -> str | None:
    """Where two outputs differ by more than their numbers' tolerance; None where they do not."""
    (ours, our_numbers), (theirs, their_numbers) = _taken_apart(printed), _taken_apart(shown)
    if ours != theirs:
        return f"the words differ.\nprinted:\n{printed}\nthe page shows:\n{shown}"
    for ours, theirs in zip(our_numbers, their_numbers):
        if abs(ours - theirs) > max(ABSOLUTE, RELATIVE * abs(theirs)):
            return f"{ours:g} is printed, the page shows {theirs:g}.\nprinted:\n{printed}"
    return None


def _taken_apart(text: str) -> tuple[str, list[float]]:
    """A text without its numbers, seconds and widths of columns; and its numbers."""
    text = RULE.sub("---", SECONDS.sub("<seconds>", text))
    numbers = [float(number.replace(",", "")) for number in NUMBER.findall(text)]
    return " ".join(NUMBER.sub(" # ", text).split()), numbers
