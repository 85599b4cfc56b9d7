"""Takes where a site stands; gives its address: one text that no other site or block has.

Names are the user's: they may have a ``/`` (``handlers.scope`` puts one in), or look like a block.
So a name is written as in a JSON pointer (RFC 6901), ``~`` as ``~0`` and ``/`` as ``~1``, and a
block's own address ends in ``/``, which no site's does. Nobody reads a name out of an address: who
has one looks the site up.

>>> address_of(("scan0",), "x"), address_of((), "scan0/x"), block_address(("scan0",))
('scan0/x', 'scan0~1x', 'scan0/')
"""

from __future__ import annotations

__all__ = ["address_of", "block_address", "is_inside"]


def address_of(block: tuple[str, ...], name: str) -> str:
    """Address of the site called ``name`` in the control-flow block at this path."""
    return block_address(block) + name.replace("~", "~0").replace("/", "~1")


def block_address(block: tuple[str, ...]) -> str:
    """Address of a control-flow block: how the addresses of all its sites begin."""
    return "".join(f"{part}/" for part in block)


def is_inside(address: str, path: tuple[str, ...]) -> bool:
    """Whether a site of this address stands in the block at ``path``, however deep.

    >>> is_inside(address_of(("scan0",), "x"), ("scan0",)), is_inside("x", ("scan0",))
    (True, False)
    """
    return address.startswith(block_address(path))
