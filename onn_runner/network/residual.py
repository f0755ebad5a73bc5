"""f(shortcut(x) + branch(x)): a residual block of any neurons, and a shortcut without parameters."""

from __future__ import annotations

from collections.abc import Mapping

import torch.nn.functional as F
from torch import Tensor, nn

from onn_runner.errors import ConfigError
from onn_runner.model import activation
from onn_runner.model.base import Factory, Layer


class ResidualBlock(nn.Module):
    """The layers of the branch, one after another under their names; the last one has no activation of its own."""

    def __init__(self, branch: Mapping[str, Layer], shortcut: nn.Module, *, after_sum: str) -> None:
        super().__init__()
        self.names = tuple(branch)
        for name, layer in branch.items():
            self.add_module(name, layer)
        self.shortcut, self.activation = shortcut, activation.named(after_sum)

    def start_at_zero(self) -> None:
        """The block starts as its shortcut: the norm of the branch's last layer gives 0."""
        nn.init.zeros_(self.get_parameter(f"{self.names[-1]}.norm.weight"))

    def forward(
        self,
        x: Tensor,  # [B, C, *S]
    ) -> Tensor:  # [B, O, *S']
        y = x
        for name in self.names:
            y = self.get_submodule(name)(y)
        result: Tensor = self.activation(self.shortcut(x) + y)
        return result


class Subsampled(nn.Module):
    """Every stride-th position, and as many channels as wanted: missing ones are 0, surplus ones left out.

    Source: He et al., Deep residual learning (2016), option A.
    """

    def __init__(self, channels: int, stride: int) -> None:
        super().__init__()
        self.channels, self.stride = channels, stride

    def forward(self, x: Tensor) -> Tensor:
        kept = x[(slice(None), slice(self.channels), *(slice(None, None, self.stride),) * (x.dim() - 2))]
        return F.pad(kept, [0, 0] * (x.dim() - 2) + [0, self.channels - kept.shape[1]])

    def extra_repr(self) -> str:
        return f"{self.channels} channels, stride {self.stride}"


def name_after_sum(factory: Factory, name: str | None) -> str:
    """The activation behind a block's sum: of that name; None for the factory's own.

    Raises ConfigError for an unknown name, or a factory that does not tell its own.
    """
    if name is None and not hasattr(factory, "activation"):
        raise ConfigError(
            "network.activation=null takes the activation of the neurons, which these do not tell; name one, such as "
            "network.activation=relu"
        )
    try:
        return activation.named(getattr(factory, "activation", None) if name is None else name).name
    except ConfigError as error:
        raise ConfigError(f"network.activation: {error}") from error
