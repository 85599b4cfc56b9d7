"""Takes a model and families; gives the guide: the model program under another interpretation."""

from asvi.guide.auto_asvi import AutoASVI, autoguide

__all__ = ["AutoASVI", "autoguide"]
