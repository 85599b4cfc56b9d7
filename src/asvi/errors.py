"""Takes what went wrong and where; gives errors that name the site and show the mended line.

Every error that `asvi` raises on purpose derives from :class:`AsviError`. Each text has three
parts: *where* (the site), *what* is wrong, and *how to mend it*, with code where code helps.
"""

from __future__ import annotations

__all__ = ["AsviError", "FamilyError", "LossError", "ModelError", "SiteError"]


class AsviError(ValueError):
    """Base class of all errors raised on purpose by `asvi`."""


class ModelError(AsviError):
    """The model as a whole cannot be used (it has no latent site, it fails while it runs, ...)."""


class SiteError(AsviError):
    """One site cannot be used.

    **Example**

    >>> str(SiteError("tau", "its prior is improper", "dist.HalfNormal(5.0)"))
    "site 'tau': its prior is improper.\\nWrite instead:\\n    dist.HalfNormal(5.0)"
    """

    def __init__(self, site: str, problem: str, mended: str | None = None, advice: str = ""):
        self.site, self.problem, self.mended = site, problem, mended
        text = f"site {site!r}: {problem}."
        if advice:
            text += f" {advice}"
        if mended:
            text += "\nWrite instead:\n" + "\n".join("    " + line for line in mended.splitlines())
        super().__init__(text)


class FamilyError(AsviError):
    """A variational family was asked for something that it cannot do."""


class LossError(AsviError):
    """The loss would be silently wrong on this model."""
