"""Batch norms that are computed elsewhere: whether that is possible, and their running statistics."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from onn_runner.errors import ConfigError
from onn_runner.model.base import LayerSpec

BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d
MADE: dict[int, type[nn.BatchNorm1d] | type[nn.BatchNorm2d] | type[nn.BatchNorm3d]] = {
    1: nn.BatchNorm1d,
    2: nn.BatchNorm2d,
    3: nn.BatchNorm3d,
}
"""By the number of spatial axes."""


def make(spec: LayerSpec) -> nn.Module:
    """The norm that the spec asks for, the identity where it asks for none."""
    return nn.Identity() if spec.norm is None else MADE[spec.dims](spec.out_channels)


def applied(
    norm: nn.Module,
    y: Tensor,  # [B, O, *S]
    where: str,
) -> Tensor:
    """The norm of y. Raises ConfigError where a batch in training has one value per channel."""
    if not isinstance(norm, nn.Identity):
        check_spread(y, norm, where)
    result: Tensor = norm(y)
    return result


def plain(norms: Sequence[nn.Module]) -> list[BatchNorm] | None:
    """`norms`, where they are as they were made: not replaced by others, without hooks, not frozen one by one."""
    known = [norm for norm in norms if isinstance(norm, BatchNorm) and type(norm) in MADE.values()]
    if len(known) < len(norms):
        return None
    for norm in known:
        same = (norm.training, norm.eps) == (known[0].training, known[0].eps)
        hooks = norm._forward_hooks or norm._forward_pre_hooks or norm._backward_hooks or norm._backward_pre_hooks
        if not same or hooks or not norm.affine or norm.running_mean is None:
            return None
    return known


@torch.no_grad()
def remember(
    norm: BatchNorm,
    mean: Tensor,  # [O]
    variance: Tensor,  # [O], unbiased
) -> None:
    """The running statistics after a batch with these, as the norm itself would have them."""
    assert norm.num_batches_tracked is not None
    norm.num_batches_tracked.add_(1)
    for running, value in ((norm.running_mean, mean), (norm.running_var, variance)):
        assert running is not None
        share = 1 / norm.num_batches_tracked.to(running.dtype) if norm.momentum is None else norm.momentum
        running.lerp_(value.to(running.dtype), share)


def check_spread(
    y: Tensor,  # [B, O, *S], what the norm sees
    norm: nn.Module,
    where: str,
) -> None:
    """Raises ConfigError where there is nothing to take a variance of."""
    if norm.training and y.numel() == y.shape[1]:
        raise ConfigError(
            f"{where}: a batch norm in training needs more than one value per channel, and this batch has one; use "
            "larger batches, or no norm"
        )
