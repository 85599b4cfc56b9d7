"""Takes where a site stands; gives its address: one text that no other site or body has.

Names are the user's: they may have a ``/`` (``handlers.scope`` puts one in), or look like a body.
So a name is written as in a JSON pointer (RFC 6901), ``~`` as ``~0`` and ``/`` as ``~1``, and a
body's own address ends in ``/``, which no site's does. Nobody reads a name out of an address: who
has one asks the program for the site (:meth:`asvi.program.Program.site_at`).

>>> scan = (BodyKey("scan", 0),)
>>> address_of(scan, "x"), address_of((), "scan0/x"), body_address(scan)
('scan0/x', 'scan0~1x', 'scan0/')
"""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["BodyKey", "BodyPath", "address_of", "body_address", "is_inside"]


class BodyKey(NamedTuple):
    """A control-flow body: the how-many-th block of its parent it is, and which branch of it.

    Without a ``branch`` the key of a ``cond`` is that of the whole block, predicate included.

    >>> str(BodyKey("scan", 1)), str(BodyKey("cond", 0, "true"))
    ('scan1', 'cond0/true')
    """

    kind: Literal["scan", "cond"]
    index: int
    branch: Literal["", "true", "false"] = ""

    def __str__(self) -> str:
        block = f"{self.kind}{self.index}"
        return f"{block}/{self.branch}" if self.branch else block


#: The bodies around a statement, outermost first.
BodyPath = tuple[BodyKey, ...]


def address_of(path: BodyPath, name: str) -> str:
    """Address of the site called ``name`` in the control-flow body at this path."""
    return body_address(path) + name.replace("~", "~0").replace("/", "~1")


def body_address(path: BodyPath) -> str:
    """Address of a control-flow body: how the addresses of all its sites begin."""
    return "".join(f"{key}/" for key in path)


def is_inside(address: str, path: BodyPath) -> bool:
    """Whether a site of this address stands in the body at ``path``, however deep.

    >>> scan = (BodyKey("scan", 0),)
    >>> is_inside(address_of(scan, "x"), scan), is_inside("x", scan)
    (True, False)
    """
    return address.startswith(body_address(path))
