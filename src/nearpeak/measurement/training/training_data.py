"""Data sets of the training benchmark, made on this machine from a seed: memory-mapped arrays and image files."""

import importlib
import importlib.util
import io
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nearpeak.base.folders import whole_file
from nearpeak.errors import SpecError

_MARK = "complete"
"""File that says that all others of its folder are there."""
_SIDE, _CROP = 256, 224
"""Edge of the image files, and of what a model sees of them."""
_JPEG_QUALITY = 40
"""Quality at which the noise of these images takes about 27 kB, as the files of GLD-23k do (630 MB / 23,080)."""


class DataKind(NamedTuple):
    """Shape of a data set."""

    name: str
    """What it is shaped like."""
    width: int
    """Edge of the images that a model sees."""
    channel_count: int
    """Colours."""
    class_count: int
    """Labels."""
    is_files: bool
    """Whether each image is a file of its own."""


KINDS = {
    "lenet5": DataKind("mnist-shaped", 28, 1, 10, False), "resnet18": DataKind("cifar-shaped", 32, 3, 10, False),
    "mobilenetv3": DataKind("gld-shaped", _CROP, 3, 203, True),
}  # fmt: skip
"""Data set by model."""


class Item(NamedTuple):
    """One image, ready for the model, and what it took."""

    image: npt.NDArray[np.float32]
    """Values [channels, rows, columns], about −1 to 1."""
    label: int
    """Class."""
    read_ns: int
    """Time until its bytes were in the process."""
    prep_ns: int
    """Time of decoding and transforms."""
    size_bytes: int
    """Bytes that were read."""


def image_form() -> str:
    """Return `jpeg` where Pillow is installed, else `ppm`, which needs no library but is seven times as large."""
    return "jpeg" if importlib.util.find_spec("PIL") else "ppm"


def make_data(kind: DataKind, count: int, seed: int, folder: Path) -> Path:
    """Return the folder of a data set, made if it is not there; the same arguments give the same bytes."""
    form = f"-{image_form()}" if kind.is_files else ""
    place = folder / f"{kind.name}{form}-{count}-seed{seed}"
    if (place / _MARK).is_file():
        return place
    place.mkdir(parents=True, exist_ok=True)
    labels = _random(seed, 0).integers(0, kind.class_count, count)
    if kind.is_files:
        for number, label in enumerate(labels):
            _write_image(place / f"{number:06d}.{image_form()}", _picture(kind, int(label), seed, number, _SIDE))
    else:
        shape = (count, kind.width, kind.width, kind.channel_count)
        with whole_file(place / "images.npy") as part:
            images = np.lib.format.open_memmap(part, mode="w+", dtype=np.uint8, shape=shape)
            for number, label in enumerate(labels):
                images[number] = _picture(kind, int(label), seed, number, kind.width)
            images.flush()
            del images
    with whole_file(place / "labels.txt") as part:
        part.write_text("\n".join(map(str, labels.tolist())), encoding="ascii")
    with whole_file(place / _MARK) as part:
        part.write_text(f"{count}\n", encoding="ascii")
    return place


def _random(seed: int, number: int) -> np.random.Generator:
    return np.random.default_rng([seed, number])


def _picture(kind: DataKind, label: int, seed: int, number: int, side: int) -> npt.NDArray[np.uint8]:
    """Return an image: a pattern of its class with noise, so that a model can learn it."""
    pattern = _random(seed, 1_000_000_000 + label).integers(40, 216, (8, 8, kind.channel_count))
    edge = -(-side // 8)
    coarse = np.repeat(np.repeat(pattern, edge, axis=0), edge, axis=1)[:side, :side]
    noise = _random(seed, 1 + number).integers(-40, 40, (side, side, kind.channel_count))
    picture: npt.NDArray[np.uint8] = (coarse + noise).astype(np.uint8)
    return picture


def _write_image(path: Path, picture: npt.NDArray[np.uint8]) -> None:
    with whole_file(path) as part:
        if path.suffix == ".jpeg":
            _pillow().fromarray(picture).save(part, format="jpeg", quality=_JPEG_QUALITY)
        else:
            head = f"P6\n{picture.shape[1]} {picture.shape[0]}\n255\n".encode()
            part.write_bytes(head + picture.tobytes())


def _pillow() -> Any:
    """Return Pillow's module of images, which no extra of nearpeak installs."""
    return importlib.import_module("PIL.Image")


class TrainingItems:
    """Items of a data set in the way PyTorch's loader takes them; files are opened by whoever reads first."""

    def __init__(self, kind: DataKind, place: Path, seed: int) -> None:
        """Find the files of a folder that `make_data` has filled.

        Raises:
            SpecError: it is no such folder.
        """
        if not (place / _MARK).is_file():
            raise SpecError(f"{place}: is no data set of train-bench")
        self._kind, self._seed, self.epoch = kind, seed, 0
        self.labels = [int(word) for word in (place / "labels.txt").read_text(encoding="ascii").split()]
        self.files = sorted(place.glob("[0-9]*.*")) if kind.is_files else [place / "images.npy"]
        self._images: npt.NDArray[np.uint8] | None = None

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self.labels)

    def __getitem__(self, number: int) -> Item:
        """Return an item: read, decoded, cropped or shifted, mirrored at random, scaled."""
        begun_ns = time.monotonic_ns()
        if self._kind.is_files:
            data = self.files[number].read_bytes()
            read_ns, size = time.monotonic_ns(), len(data)
            picture = _decoded(data, self.files[number].suffix)
        else:
            if self._images is None:
                self._images = np.load(self.files[0], mmap_mode="r")
            picture = np.array(self._images[number])
            read_ns, size = time.monotonic_ns(), picture.nbytes
        image = self._transformed(picture, np.random.default_rng([self._seed, self.epoch, number]))
        return Item(image, self.labels[number], read_ns - begun_ns, time.monotonic_ns() - read_ns, size)

    def close(self) -> None:
        """Unmap the file: mapped pages cannot be dropped from the page cache."""
        self._images = None

    def _transformed(self, picture: npt.NDArray[np.uint8], draw: np.random.Generator) -> npt.NDArray[np.float32]:
        width = self._kind.width
        spare = picture.shape[0] - width
        if spare:
            top, left = draw.integers(0, spare + 1, 2)
            picture = picture[top : top + width, left : left + width]
        else:
            picture = np.roll(picture, draw.integers(-2, 3, 2), axis=(0, 1))
        scaled = picture.transpose(2, 0, 1).astype(np.float32) / np.float32(127.5) - np.float32(1)
        return np.ascontiguousarray(scaled)


def _decoded(data: bytes, suffix: str) -> npt.NDArray[np.uint8]:
    if suffix == ".jpeg":
        return np.asarray(_pillow().open(io.BytesIO(data)).convert("RGB"))
    _, size, _, pixels = data.split(b"\n", 3)
    columns, rows = map(int, size.split())
    return np.frombuffer(pixels, np.uint8).reshape(rows, columns, 3)


def gather(items: list[Item]) -> tuple[Any, Any, tuple[int, int, int, int]]:
    """Return a batch: images and labels as tensors, and (reading time, preparation time, worker, bytes).

    Gathering counts as preparation. The worker is −1 where the trainer loads itself.
    """
    import torch

    begun_ns = time.monotonic_ns()
    images = torch.from_numpy(np.stack([item.image for item in items]))
    labels = torch.tensor([item.label for item in items])
    worker = torch.utils.data.get_worker_info()
    prep_ns = sum(item.prep_ns for item in items) + time.monotonic_ns() - begun_ns
    loaded = sum(item.read_ns for item in items), prep_ns, -1 if worker is None else worker.id
    return images, labels, (*loaded, sum(item.size_bytes for item in items))
