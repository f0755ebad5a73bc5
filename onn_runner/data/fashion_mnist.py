"""Fashion-MNIST, 70,000 pictures of clothes of 28 x 28 in ten classes: from Debian's package, or a folder."""

from __future__ import annotations

from onn_runner.data.idx import MnistFiles
from onn_runner.data.published import Published

CLASSES = (
    *("T-shirt", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)
STANDARDISE = (0.286, 0.353)
"""Mean and deviation of the 60,000 training pictures."""
FILES = Published(
    option="fashion_mnist",
    torchvision="FashionMNIST",
    folders=("", "FashionMNIST/raw", "raw"),
    mark=("train-images-idx3-ubyte", "train-images-idx3-ubyte.gz"),
    size="30 MB",
    system=("/usr/share/datasets/fashion-mnist", "/usr/share/dataset-fashion-mnist"),
    package="Debian's dataset-fashion-mnist",
)


class FashionMnist(MnistFiles):
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
            "Fashion-MNIST",
            part=part,
            items=items,
            colour=colour,
            standardise=standardise,
            transforms=transforms,
            seed=seed,
        )
