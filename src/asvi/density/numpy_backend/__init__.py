"""Takes functions of arrays; gives them as NumPy computes them: traced by JAX, not compiled."""

from asvi.density.numpy_backend.tape import NumpyFunction, Tape

__all__ = ["NumpyFunction", "Tape"]
