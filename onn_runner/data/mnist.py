"""MNIST, 70,000 handwritten digits of 28 x 28: from a folder in the layout of its authors, or torchvision's."""

from __future__ import annotations

from onn_runner.data.idx import MnistFiles
from onn_runner.data.mnist5k import STANDARDISE
from onn_runner.data.published import Published

CLASSES = tuple(str(digit) for digit in range(10))
FILES = Published(
    option="mnist",
    torchvision="MNIST",
    folders=("", "MNIST/raw", "raw"),
    mark=("train-images-idx3-ubyte", "train-images-idx3-ubyte.gz"),
    size="12 MB",
)


class Mnist(MnistFiles):
    """Raises: ConfigError for each value that cannot be carried out, and for files that are missing or damaged."""

    def __init__(
        self,
        *,
        path: str | None = None,
        download: bool = False,
        part: str = "all",
        items: int | None = None,
        colour: bool | None = None,
        standardise: object = STANDARDISE,
        transforms: object = (),
        seed: int = 0,
    ) -> None:
        super().__init__(
            FILES.folder(path, download),
            CLASSES,
            "MNIST",
            part=part,
            items=items,
            colour=colour,
            standardise=standardise,
            transforms=transforms,
            seed=seed,
        )
