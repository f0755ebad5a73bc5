"""Means of weights: the running one over steps (trainer.ema), and that of a few epochs (trainer.average)."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel


class RunningMean:
    """mean <- d mean + (1 - d) weights after every update; buffers too, counts are taken over.

    d is min(decay, (1 + n) / (10 + n)) after n updates, so that short trainings do not remember their first weights.
    The mean has a network of its own, with what its layers remember between calls.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay = decay
        self.model = AveragedModel(network, multi_avg_fn=self._blend, use_buffers=True)
        self.model.requires_grad_(False)

    @property
    def network(self) -> nn.Module:
        return self.model.module

    def update(self, network: nn.Module) -> None:
        self.model.update_parameters(network)

    def _blend(self, means: Any, values: Any, count: Any) -> None:
        """In place; tensors of one dtype on one device."""
        n = float(count)
        if means[0].is_floating_point():
            torch._foreach_lerp_(means, values, 1 - min(self.decay, (1 + n) / (10 + n)))
        else:
            torch._foreach_copy_(means, values)


def mean_of(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of state_dicts of one network: the mean of what is floating point, summed in double precision.

    Counts, and what layers remember, are those of the first.
    """
    found: dict[str, Any] = {}
    for key, first in states[0].items():
        if isinstance(first, Tensor) and first.is_floating_point():
            found[key] = torch.stack([state[key].double() for state in states]).mean(0).to(first.dtype)
        else:
            found[key] = copy.deepcopy(first)
    return found
