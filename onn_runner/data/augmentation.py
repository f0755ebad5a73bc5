"""Random changes of training pictures, as torchvision.transforms.v2 has them, drawn from a key and the item alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onn_runner.errors import ConfigError, RunError
from onn_runner.seeding import Part, derive

KEY = "data.transforms"
EXAMPLE = "{_target_: torchvision.transforms.v2.RandomHorizontalFlip}"
FAILURES = (TypeError, ValueError, RuntimeError, LookupError, ArithmeticError, AttributeError, AssertionError)
"""What a transform raises for a picture that it cannot take."""
FAR = 1.0
"""Float values further than this outside [0, 1] were standardised or not scaled."""


class Augmentation:
    """`transforms` one after the other, each a callable from one [C, H, W] to another.

    They draw from the global generators of torch, Python and numpy; these are seeded for each item and set back after.

    Raises: ConfigError for what is no transform, and for one that fails on `example` or changes its size.
    """

    def __init__(self, transforms: object, example: Tensor) -> None:
        if transforms is None:
            transforms = []
        listed: Sequence[Any] = (
            transforms if isinstance(transforms, Sequence) and not isinstance(transforms, str) else [transforms]
        )
        for number, transform in enumerate(listed):
            if not callable(transform):
                raise ConfigError(f"{KEY}[{number}] (={transform!r}) is no transform: write one as {EXAMPLE}")
        self.transforms: list[Callable[[Tensor], Any]] = list(listed)
        try:
            self([example], [("check",)])
        except RunError as error:
            raise ConfigError(str(error)) from error

    def __bool__(self) -> bool:
        return bool(self.transforms)

    def __call__(self, pictures: Sequence[Tensor], keys: Sequence[tuple[Part, ...]]) -> list[Tensor]:
        """Each picture [C, H, W], uint8 or float32 in [0, 1], changed as its key says. Raises: RunError."""
        with _generators_kept():
            return [self._changed(picture, key) for picture, key in zip(pictures, keys, strict=True)]

    def _changed(self, picture: Tensor, key: tuple[Part, ...]) -> Tensor:
        seed = derive("augmentation", *key)
        torch.default_generator.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        changed: Any = picture
        for transform in self.transforms:
            try:
                changed = transform(changed)
            except FAILURES as error:
                text = " ".join(str(error).split()) or type(error).__name__
                raise RunError(
                    f"{KEY}: {_name(transform)} fails on a picture of {_size(picture)} ({picture.dtype}): {text}"
                ) from error
        return self._checked(changed, picture)

    def _checked(self, changed: Any, picture: Tensor) -> Tensor:
        names = ", ".join(map(_name, self.transforms))
        if not isinstance(changed, Tensor):
            raise RunError(f"{KEY} ({names}) make {type(changed).__name__}, not a tensor: leave ToPILImage out")
        if changed.shape != picture.shape:
            raise RunError(
                f"{KEY} ({names}) make {_size(changed)} of {_size(picture)}: the size must stay, since validation and "
                "test have it too"
            )
        if changed.dtype == torch.uint8:
            return changed
        if not changed.is_floating_point():
            raise RunError(f"{KEY} ({names}) make {changed.dtype}: leave uint8, or floats in [0, 1]")
        low, high = float(changed.min()), float(changed.max())
        if low < -FAR or high > 1 + FAR:
            raise RunError(
                f"{KEY} ({names}) make values from {low:.3g} to {high:.3g}, where floats must be in [0, 1]: scale with "
                "ToDtype(scale=true), and leave standardising to data.standardise"
            )
        return changed

    def describe(self) -> str:
        return ", ".join(map(_name, self.transforms))


@contextmanager
def _generators_kept() -> Iterator[None]:
    """The global generators afterwards as they were before."""
    kept = torch.get_rng_state(), random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        torch.set_rng_state(kept[0])
        random.setstate(kept[1])
        np.random.set_state(kept[2])


def _name(transform: object) -> str:
    return getattr(transform, "__name__", type(transform).__name__)


def _size(picture: Tensor) -> str:
    return " x ".join(map(str, picture.shape))
