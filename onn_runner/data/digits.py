"""1,797 handwritten digits of 8 x 8, which scikit-learn's wheel holds: nothing is downloaded."""

from __future__ import annotations

import torch

from onn_runner.data.held import Held
from onn_runner.data.labelled import Labelled, Labels

WHITE = 16
"""The largest of the values, which count the pixels of a 4 x 4 block that are ink."""


class Digits(Labelled):
    """Raises: ConfigError for each value that cannot be carried out."""

    def __init__(
        self,
        *,
        items: int | None = None,
        colour: bool | None = None,
        standardise: object = None,
        transforms: object = (),
        seed: int = 0,
    ) -> None:
        from sklearn.datasets import load_digits

        loaded = load_digits()
        values = torch.from_numpy(loaded.images).to(torch.float32).div_(WHITE)[:, None]
        labels = loaded.target.tolist()
        about = Labels(
            labels, [str(digit) for digit in range(10)], [f"digit[{n}]" for n in range(len(labels))], "scikit-learn"
        )
        super().__init__(
            Held(values),
            about,
            items=items,
            colour=colour,
            standardise=standardise,
            transforms=transforms,
            seed=seed,
        )
