"""y[b, ..., :] = layer(x[b, ..., :]): neurons of any type on vectors, as a convolution of one tap over their places."""

from __future__ import annotations

from torch import Tensor, nn

from onn_runner.errors import ConfigError
from onn_runner.model.base import Factory, LayerSpec, Role


def vector_spec(
    in_channels: int,
    out_channels: int,
    *,
    bias: bool = True,
    activation: str | None = None,
    index: int = 0,
    role: Role = "hidden",
    input_bound: tuple[float, float] | None = None,
) -> LayerSpec:
    """What a network asks of a layer on vectors: one axis, one tap."""
    return LayerSpec(
        in_channels=in_channels,
        out_channels=out_channels,
        kernel_size=(1,),
        stride=(1,),
        dilation=(1,),
        bias=bias,
        activation=activation,
        index=index,
        role=role,
        input_bound=input_bound,
    )


class VectorLayer(nn.Module):
    """As torch's Linear: the last axis holds the channels, the ones between it and the batch are places."""

    def __init__(self, factory: Factory, spec: LayerSpec) -> None:
        super().__init__()
        self.layer = factory(spec)
        self.in_features, self.out_features = spec.in_channels, spec.out_channels

    def forward(
        self,
        x: Tensor,  # [B, *, C]
    ) -> Tensor:  # [B, *, O]
        if x.dim() < 2 or x.shape[-1] != self.in_features:
            raise ConfigError(
                f"layer {self.layer.spec.index}: the input has shape {tuple(x.shape)}; "
                f"it must be [batch, ..., {self.in_features}]"
            )
        places = x.shape[1:-1]
        y: Tensor = self.layer(x.reshape(x.shape[0], places.numel(), x.shape[-1]).transpose(1, 2))
        return y.transpose(1, 2).reshape(x.shape[0], *places, self.out_features)
