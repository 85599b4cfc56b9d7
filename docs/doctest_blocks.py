"""Takes doc-strings as mkdocstrings reads them; gives their examples as blocks of code.

Markdown takes ``>>>`` for three quotations, one in the other. So each example is put between fences
before it is rendered.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)


class DoctestBlocks(Extension):
    """Puts the examples of each doc-string between fences."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Asked once for each class, function, module and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """A doc-string whose examples stand between fences.

    >>> print(fenced("Adds.\\n\\n>>> 1 + 1\\n2"))
    Adds.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    """
    return EXAMPLE.sub(lambda match: f"```pycon\n{match[0]}\n```", text)
