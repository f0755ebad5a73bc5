"""(white Gaussian noise, photographs) pairs: a network that is asked to make pictures out of nothing."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.utils.data import Dataset

from onn_runner.checks import amount, positive, refuse, whole_number
from onn_runner.data.base import Item, Shape
from onn_runner.data.patches import Cutting, cutting
from onn_runner.data.photographic import loaded
from onn_runner.data.photographs import Photograph
from onn_runner.errors import ConfigError
from onn_runner.seeding import Part, generator

RANGES = ((-1, 1), (0, 1))


class Synthesis:
    """Noise images [1, h, w], each with `data.targets` patches of photographs as the channels of its target.

    There is nothing in the input to be generalised: what is measured is how much a network can hold. Everything is
    fixed by `data.seed`; the group of an item is its noise image.

    Source: Kiranyaz, Ince, Iosifidis, Gabbouj, Operational neural networks, 2020, image synthesis.

    Raises: ConfigError for each value that cannot be carried out.
    """

    labels: Sequence[int] | None = None

    def __init__(
        self,
        *,
        path: str | None = None,
        photographs: Sequence[str] | None = None,
        max_side: int = 256,
        patch: int | Sequence[int] = 60,
        inputs: int = 20,
        targets: int = 4,
        deviation: float = 0.3,
        scale_to: Sequence[float] = (-1.0, 1.0),
        seed: int = 0,
    ) -> None:
        self.seed = whole_number("data.seed", seed, least=0)
        self.inputs = whole_number("data.inputs", inputs, least=1)
        self.targets = whole_number("data.targets", targets, least=1)
        self.deviation = positive("data.deviation", deviation, "a share of half the span greater than 0, such as 0.3")
        self.data_range = _span(scale_to)
        self.max_side = whole_number("data.max_side", max_side, least=1)
        self.origin = "scikit-image" if path is None else str(path)
        found, _ = loaded(path, photographs, False, self.max_side)
        leave_out = "leave it out with data.photographs" if path is None else "take its file out of data.path"
        each = math.ceil(self.inputs * self.targets / len(found))
        cuts = cutting(patch, each, "random", self.seed, leave_out=leave_out)
        self.pictures, self._places = self._chosen(found, cuts)
        self.size = cuts.size
        self.names = [f"noise {number}" for number in range(self.inputs)]
        self.groups = list(self.names)
        self.shape = Shape(input=(1, *cuts.size), target=(self.targets, *cuts.size))

    def _chosen(self, found: Sequence[Photograph], cuts: Cutting) -> tuple[Tensor, list[str]]:
        """[inputs, targets, h, w] in [0, 1], neighbours from different photographs; and the patches' names."""
        cuts.check_sizes(found)
        places = {photograph.name: cuts.positions(photograph)[0] for photograph in found}
        wanted = self.inputs * self.targets
        rounds: list[tuple[Photograph, tuple[int, int]]] = []
        for turn in range(max(map(len, places.values()))):
            order = torch.randperm(len(found), generator=generator("synthesis", self.seed, turn)).tolist()
            fresh = [found[number] for number in order if turn < len(places[found[number].name])]
            rounds += [(photograph, places[photograph.name][turn]) for photograph in fresh]
        if len(rounds) < wanted:
            raise ConfigError(
                f"data.inputs (={self.inputs}) times data.targets (={self.targets}) needs {wanted} patches, and the "
                f"photographs give {len(rounds)} of {cuts.size[0]} x {cuts.size[1]}: lower them or data.patch"
            )
        patches = [cuts.cut(photograph.pixels, place)[0] for photograph, place in rounds[:wanted]]
        names = [f"{photograph.name}[{place[0]},{place[1]}]" for photograph, place in rounds[:wanted]]
        return torch.stack(patches).unflatten(0, (self.inputs, self.targets)), names

    def __len__(self) -> int:
        return self.inputs

    def item(self, index: int) -> Item:
        low, high = self.data_range
        source = generator("synthesis", self.seed, self.names[index])
        noise = torch.randn(1, *self.size, generator=source).mul_(self.deviation)
        return Item(
            input=noise.mul_((high - low) / 2).add_((low + high) / 2),
            target=self.pictures[index] * (high - low) + low,
            index=index,
        )

    def training(self, indices: Sequence[int], key: tuple[Part, ...]) -> Dataset[Item]:
        return _Items(self, tuple(indices))

    def fixed(self, indices: Sequence[int]) -> Dataset[Item]:
        return _Items(self, tuple(indices))

    def whole(self, groups: Sequence[str]) -> Dataset[Item] | None:
        return None

    def describe(self) -> list[str]:
        (h, w), (low, high) = self.size, self.data_range
        many = f"{self.targets} patches each" if self.targets > 1 else "a patch each"
        return [
            f"{amount(self.inputs, 'image')} of white gaussian noise of {h} x {w}, deviation {self.deviation:g} of "
            "half the span",
            f"targets: {many} of photographs from {self.origin}, sides at most {self.max_side}, as channels",
            f"values scaled to [{low:g}, {high:g}]; everything is fixed by data.seed={self.seed}",
        ]

    def fingerprint(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        digest.update(repr((self.deviation, self.data_range, self.seed, self._places)).encode())
        digest.update(str(tuple(self.pictures.shape)).encode())
        digest.update(self.pictures.numpy().tobytes())
        return digest.hexdigest()


class _Items(Dataset[Item]):
    def __init__(self, source: Synthesis, indices: tuple[int, ...]) -> None:
        self.source, self.indices = source, indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, place: int) -> Item:
        return self.source.item(self.indices[place])


def _span(scale_to: object) -> tuple[float, float]:
    span = tuple(scale_to) if isinstance(scale_to, Sequence) and not isinstance(scale_to, str) else ()
    if span not in RANGES or any(isinstance(end, bool) for end in span):
        raise refuse("data.scale_to", scale_to, "[-1, 1] or [0, 1]")
    return float(span[0]), float(span[1])
