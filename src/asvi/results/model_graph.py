"""Takes a program; gives a picture of its sites and arrows."""

from __future__ import annotations

from collections.abc import Iterable

from matplotlib.axes import Axes

from asvi.program.program import Program
from asvi.program.site import Site
from asvi.results.panels import axes_or_new

__all__ = ["draw_graph"]


def draw_graph(program: Program, missed: Iterable[tuple[str, str]], ax: Axes | None) -> Axes:
    """Sites in layers, parents above; grey are data, dashed red pairs are ``missed``."""
    sites = [program.with_parents(site) for site in program.sites if site.kind != "factor"]
    place = _places(sites)
    widest = max(sum(y == row for _, y in place.values()) for _, row in place.values())
    depth = 1 - min(y for _, y in place.values())
    ax = axes_or_new(ax, min(14.0, max(3.0, 1.5 * widest)), max(2.0, 1.1 * depth))
    boxes = {}
    for site in sites:
        colour = "0.85" if site.kind == "observed" else "white"
        box = {"boxstyle": "round,pad=0.4", "fc": colour, "ec": "0.3"}
        x, y = place[site.name]
        boxes[site.name] = ax.text(
            x, y, _label(site), ha="center", va="center", bbox=box, fontsize=9, zorder=3, color="k"
        )
    for site in sites:
        for parent in site.parents:
            if parent != site.name and parent in place:
                _line(ax, boxes, place, parent, site.name, arrowstyle="-|>", color="0.4")
    for a, b in missed:
        _line(ax, boxes, place, a, b, "arc3,rad=0.3", arrowstyle="-", ls="--", color="C3")
    ax.set_xlim(0, 1)
    ax.set_ylim(0.5 - depth, 0.5)
    ax.set_axis_off()
    return ax


def _places(sites: list[Site]) -> dict[str, tuple[float, float]]:
    level: dict[str, int] = {}
    for site in sites:
        above = [level[p] for p in site.parents if p in level and p != site.name]
        level[site.name] = 1 + max(above, default=-1)
    # A root stands right above its first child.
    for site in sites:
        children = [level[s.name] for s in sites if site.name in s.parents and s is not site]
        if not any(p in level for p in site.parents if p != site.name) and children:
            level[site.name] = max(level[site.name], min(children) - 1)
    place: dict[str, tuple[float, float]] = {}
    children = {s.name: [c.name for c in sites if s.name in c.parents] for s in sites}

    def beneath(name: str) -> float:
        found = [place[child][0] for child in children[name] if child in place]
        return sum(found) / len(found) if found else 0.5

    # From the bottom: each stands above its children, in their order.
    for depth in sorted(set(level.values()), reverse=True):
        row = sorted((name for name in level if level[name] == depth), key=beneath)
        for i, name in enumerate(row):
            place[name] = ((i + 0.5) / len(row), -depth)
    return place


def _label(site: Site) -> str:
    shape = " × ".join(map(str, site.shape))
    return f"{site.name}\n{shape}" if shape else site.name


def _line(ax, boxes, place, start, end, connection="arc3", **style) -> None:
    ax.annotate(
        "",
        place[end],
        place[start],
        arrowprops={
            **style,
            "patchA": boxes[start].get_bbox_patch(),
            "patchB": boxes[end].get_bbox_patch(),
            "shrinkA": 2,
            "shrinkB": 2,
            "connectionstyle": connection,
        },
    )
