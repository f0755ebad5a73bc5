"""Sizes along a chain of layers and samplings, and what has to be added behind an input so that its size comes back."""

from __future__ import annotations

import math
from dataclasses import dataclass

from onn_runner.errors import ConfigError
from onn_runner.model import padding as geometry
from onn_runner.model.base import LayerSpec
from onn_runner.network.options import Size, by, check_kernel
from onn_runner.network.sampling import Sampling


@dataclass(frozen=True)
class Chain:
    """Geometry of a network without branches."""

    specs: tuple[LayerSpec, ...]
    samplings: tuple[Sampling, ...]
    around: int
    """Zeros around the whole input."""

    def check_kernels(self, size: Size) -> None:
        """Raises ConfigError for a kernel larger than what its layer sees of an input of that size."""
        steps = self._sizes(size, self.extra(size))
        for spec, seen in zip(self.specs, [tuple(s + 2 * self.around for s in size), *(after for _, after in steps)],
                              strict=False):  # fmt: skip
            check_kernel(spec.index, spec.kernel_size, seen)

    def positions(self, size: Size) -> list[int]:
        """How many output positions each layer has."""
        return [math.prod(before) for before, _ in self._sizes(size, self.extra(size))]

    def _sizes(self, size: Size, extra: Size) -> list[tuple[Size, Size]]:
        """(after the layer, after its sampling) of each, for an input of that size with `extra` behind it."""
        whole = tuple(s + e for s, e in zip(size, extra, strict=True))
        result, seen = [], tuple(length + 2 * self.around for length in whole)
        for spec, sampling in zip(self.specs, self.samplings, strict=True):
            before = geometry.output_size(spec, seen)
            seen = sampling.size(before, whole)
            if min(seen) < 1:
                raise ConfigError(
                    f"network.sampling={sampling} leaves nothing of {by(before)} positions; use less sampling or a "
                    "larger input"
                )
            result.append((before, seen))
        return result

    def extra(self, size: Size) -> Size:
        """How much to add behind each axis so that sampling gives back at least the input's size.

        Raises ConfigError where the layers do not give back that size.
        """
        factor = math.prod([sampling.down for sampling in self.samplings])
        extra = tuple(max(0, factor - length - 2 * self.around) for length in size)
        after = self._sizes(size, extra)[-1][1]
        for _ in range(factor - 1):
            if all(a >= s for a, s in zip(after, size, strict=True)):
                break
            extra = tuple(e + (a < s) for e, a, s in zip(extra, after, size, strict=True))
            after = self._sizes(size, extra)[-1][1]
        if any(not 0 <= a - s < factor for a, s in zip(after, size, strict=True)):
            raise ConfigError(
                f"the network's output (={by(after)}) must have the input's size (={by(size)}); {self._remedy()}"
            )
        return extra

    def _remedy(self) -> str:
        if any(sampling.target for sampling in self.samplings):
            return "end network.sampling with to_input"
        return "use padding=same, or set network.input_padding so that padding=valid comes back to it"
