"""Which items of a labelled data set are used: a part of it, and of that a share with every class in proportion."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onn_runner.checks import choice, whole_number
from onn_runner.errors import ConfigError
from onn_runner.seeding import derive

PARTS = ("all", "train", "test")


def select(labels: Sequence[int], *, test: Sequence[int] | None, part: object, items: object, seed: int) -> list[int]:
    """Numbers of the items, ascending.

    `test`: those of the data set's own test part, None where it has none. `items`: so many, drawn by `seed` with the
    classes, and the test part, in the proportions that they have.

    Raises: ConfigError for a part that the data has not, and for more items than there are.
    """
    chosen = choice("data.part", part, PARTS)
    tested = np.zeros(len(labels), dtype=bool)
    tested[list(test or ())] = True
    if chosen != "all" and test is None:
        raise ConfigError(
            f"data.part (={chosen}) needs data with a test part of its own, and this has none: set it all"
        )
    inside = np.arange(len(labels)) if chosen == "all" else np.flatnonzero(tested == (chosen == "test"))
    if items is None:
        return [int(number) for number in inside]
    classes = len(set(np.asarray(labels)[inside].tolist()))
    wanted = whole_number("data.items", items, least=1)
    if not classes <= wanted <= len(inside):
        raise ConfigError(
            f"data.items (={wanted}) must be from {classes} (one of each class) to the {len(inside)} items that there "
            "are; null takes all"
        )
    order = np.random.RandomState(derive("items", seed) % 2**32).permutation(inside)
    strata = np.asarray(labels)[order] + (int(max(labels)) + 1) * tested[order]
    order = order[np.argsort(strata, kind="stable")]
    places = ((np.arange(wanted) + 0.5) * len(order) / wanted).astype(int)
    return sorted(int(number) for number in order[places])
