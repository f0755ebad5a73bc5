"""(input image, target image) pairs from two folders of the user's own files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from torch import Tensor

from onn_runner.data.collection import Collection, Files
from onn_runner.data.pairing import Paired, paired
from onn_runner.data.reading import BadImage, size
from onn_runner.errors import ConfigError
from onn_runner.seeding import Part


class Pairs(Collection):
    """Degraded images and what they should become, in [0, 1]; the name of a pair is its target's.

    Targets may be larger than their inputs, all by the same whole number; patches are then cut in proportion, and
    `patch` is the target's.

    Raises: ConfigError for each value that cannot be carried out, and for files that cannot be used.
    """

    def __init__(
        self,
        *,
        inputs: str | None = None,
        targets: str | None = None,
        input_mark: str | None = None,
        target_mark: str | None = None,
        groups: str = "file",
        colour: bool | None = None,
        max_side: int | None = None,
        patch: int | Sequence[int] = 48,
        patches: int | None = 80,
        placement: str = "grid",
        whole: bool = True,
        skip_bad: bool = False,
        in_memory: bool | None = None,
        augmentation: bool = True,
        seed: int = 0,
    ) -> None:
        if inputs is None or targets is None:
            raise ConfigError("data=pairs needs data.inputs and data.targets: folders of images whose names agree")
        found = paired(inputs, targets, input_mark, target_mark)
        factor = _factor(found)
        if factor > 1 and max_side is not None:
            raise ConfigError(
                f"data.max_side (={max_side}) reduces pairs of equal sizes only, and these targets are {factor} times "
                "as large as their inputs: set data.max_side=null"
            )
        origin = inputs if inputs == targets else f"{inputs} and {targets}"
        names = [file.name for file in found.targets]
        super().__init__(
            Files(names, found.targets, found.inputs, found.bad, found.others, origin, "data.inputs", factor),
            groups=groups,
            colour=colour,
            max_side=max_side,
            patch=patch,
            patches=patches,
            placement=placement,
            whole=whole,
            skip_bad=skip_bad,
            in_memory=in_memory,
            augmentation=augmentation,
            seed=seed,
        )

    def degrade(self, prepared: Tensor, *key: Part) -> Tensor:
        """A copy: what degraded the images is in the files."""
        return prepared.clone()

    def settings(self) -> tuple[object, ...]:
        return self.augmentation, self.cutting.size, self.factor

    def describe(self) -> list[str]:
        larger = [] if self.factor == 1 else [f"targets are {self.factor} times as large as inputs"]
        return [
            *self.describe_files(),
            *larger,
            f"{self.describe_cutting()}; {self.describe_memory()}",
            self.describe_draws(""),
        ]


def _factor(found: Paired) -> int:
    """The whole number that is the ratio of sizes in most pairs, by the files' headers; 1 where none has one."""
    ratios: Counter[int] = Counter()
    for input, target in zip(found.inputs, found.targets, strict=True):
        try:
            (height, width), (h, w) = size(target.path), size(input.path)
        except BadImage:
            # Named when the files are read.
            continue
        if height % h == 0 and height // h * w == width:
            ratios[height // h] += 1
    return ratios.most_common(1)[0][0] if ratios else 1
