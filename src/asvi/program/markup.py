"""Takes rows and words; gives HTML that a notebook shows, on a light ground and on a dark one.

No scripts, nothing from elsewhere: colours of text and ground are the notebook's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["badge", "box", "escape", "folded", "item_list", "paragraph", "table"]

_STYLE = """
.asvi { font-size: 13px; line-height: 1.45; color: inherit; max-width: 60em; }
.asvi table { border-collapse: collapse; margin: .4em 0; color: inherit; font-size: inherit;
  background: transparent; }
.asvi th, .asvi td { padding: .15em .8em; text-align: right; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
.asvi th:first-child, .asvi td:first-child, .asvi .words th, .asvi .words td { text-align: left; }
.asvi thead th { border-bottom: 1px solid rgba(128, 128, 128, .5); font-weight: 600; }
.asvi td.fold { text-align: left; }
.asvi details { margin: .2em 0; } .asvi summary { cursor: pointer; opacity: .8; }
.asvi p, .asvi ul { margin: .3em 0; }
.asvi .badge { border-radius: 3px; padding: .1em .5em; font-weight: 600; color: #fff; }
.asvi .good { background: #2b8a3e; } .asvi .usable { background: #a35c00; }
.asvi .not { background: #c92a2a; } .asvi .unknown { background: #666; }
.asvi .faint { opacity: .75; }
"""


def box(*parts: str) -> str:
    """Parts in one block that has its style with it."""
    return f'<div class="asvi"><style>{_STYLE}</style>{"".join(parts)}</div>'


def badge(verdict: str) -> str:
    """A verdict on its colour.

    >>> badge("good")
    '<span class="badge good">good</span>'
    """
    return f'<span class="badge {escape(verdict.split()[0])}">{escape(verdict)}</span>'


def paragraph(text: str, kind: str = "") -> str:
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def item_list(texts: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in texts)}</ul>"


def folded(title: str, *parts: str, is_open: bool = False) -> str:
    """Parts that are seen once their title is clicked."""
    state = " open" if is_open else ""
    return f"<details{state}><summary>{escape(title)}</summary>{''.join(parts)}</details>"


def table(head: Sequence[str], rows: Iterable[Sequence[str] | str], of_words: bool = False) -> str:
    """A table; a row that is a string alone is HTML over the whole width.

    >>> table(["site"], [["mu"]])[-36:]
    '<tr><td>mu</td></tr></tbody></table>'
    """
    lines = []
    for row in rows:
        if isinstance(row, str):
            lines.append(f'<tr><td class="fold" colspan="{len(head)}">{row}</td></tr>')
        else:
            lines.append(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>")
    heads = "".join(f"<th>{escape(name)}</th>" for name in head)
    kind = ' class="words"' if of_words else ""
    return f"<table{kind}><thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
