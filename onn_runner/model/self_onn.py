"""y_o = f(b_o + sum_{q=1..Q} conv(x^q, W_q)[o]): generative neurons, one convolution over the powers of x."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor, nn

from onn_runner.errors import ConfigError, unknown
from onn_runner.model import activation, padding
from onn_runner.model.base import LayerFacts, LayerSpec
from onn_runner.model.conv import SpatialLayer, UnboundedInputWarning, convolve, fill_uniform, input_moments
from onn_runner.model.powers import convolve_powers

INITIALISATIONS = ("calibrated", "fastonn")


class SelfONNLayer(SpatialLayer):
    """`weight` is [O, Q C/G, *k]: all channels of the first power, then of the second, and so on."""

    def __init__(self, spec: LayerSpec, *, model: SelfONN) -> None:
        super().__init__(spec, f"self_onn q={model.q}", model.activation)
        self.q = model.q
        if self.q > 1 and spec.index > 0 and spec.input_bound is None:
            # the same words for every layer, so that a network tells them once; norms do not bound single inputs
            warnings.warn(
                f"generative layers take powers up to {self.q} of inputs without bounds: use a bounded activation "
                "before them (model.activation=tanh)",
                UnboundedInputWarning,
                stacklevel=3,
            )
        outputs, inputs, *kernel = self.weight_shape
        self.weight = nn.Parameter(torch.empty(outputs, self.q * inputs, *kernel))
        self.bias = self.make_bias()
        if model.init == "fastonn":
            self._fill_xavier()
        else:
            self._fill_calibrated(model.activation)

    def _fill_xavier(self) -> None:
        """Xavier's uniform with tanh's gain, over the whole tensor. Source: FastONN."""
        inputs = self.q * self.spec.in_channels / padding.phases(self.spec)
        fans = (inputs + self.spec.out_channels) / self.spec.groups * padding.taps(self.spec)
        fill_uniform(self.weight, nn.init.calculate_gain("tanh") ** 2 * 2 / fans)

    @torch.no_grad()
    def _fill_calibrated(self, own_activation: str | None) -> None:
        """Equal parts of the pre-activation's unit variance to each power, and a bias that removes the mean."""
        inputs, phases = self.weight_shape[1], padding.phases(self.spec)
        second, _ = input_moments(self.spec, own_activation)
        for power in range(1, self.q + 1):
            part = self._slice(power)
            variance = second if self.q == 1 else _moment(2 * power) - _moment(power) ** 2
            fill_uniform(self.weight[:, part], 1 / (self.q * self.reads * variance))
            if self.bias is not None:
                self.bias.sub_(_moment(power) / phases * self.weight[:, part].flatten(1).sum(1))
        assert self.weight.shape[1] == self.q * inputs

    def _slice(self, power: int) -> slice:
        inputs = self.weight_shape[1]
        return slice((power - 1) * inputs, power * inputs)

    def respond(self, x: Tensor) -> Tensor:
        if self.q == 1:
            return convolve(x, self.weight, spec=self.spec, bias=self.bias)
        return convolve_powers(x, self.weight, self.bias, q=self.q, spec=self.spec)

    @torch.no_grad()
    def load_first_order(self, weight: Tensor, bias: Tensor | None = None, *, near: bool = False) -> None:
        """Take over a convolution [O, C/G, *k] as the first power; the higher ones become 0, the output unchanged."""
        self.check_first_order(weight, bias)
        self.weight.zero_()
        self.weight[:, self._slice(1)] = weight
        if self.bias is not None:
            self.bias.zero_() if bias is None else self.bias.copy_(bias)

    def macs(self, positions: int) -> int:
        return self.q * super().macs(positions)

    def facts(self) -> LayerFacts:
        return LayerFacts(self.kind, (), self.nonlinearity(), "convolution", f"one, over {self.q} powers of the input")

    @torch.no_grad()
    def nonlinearity(self) -> float:
        """Share of the variance that the best linear fit leaves, weights as they are, x uniform on [-1, 1]."""
        orders = range(1, self.q + 1)
        covariance = torch.tensor([[_moment(p + q) - _moment(p) * _moment(q) for q in orders] for p in orders])
        terms = self.weight.detach().cpu().double().unflatten(1, (self.q, -1)).movedim(1, -1).reshape(-1, self.q)
        covariance = covariance.double()
        total = ((terms @ covariance) * terms).sum()
        linear = (terms @ covariance[0]).square().sum() / covariance[0, 0]
        return float((1 - linear / total).clamp(0, 1)) if total > 0 and self.q > 1 else 0.0


def _moment(order: int) -> float:
    """E x^order for x uniform on [-1, 1]."""
    return 0.0 if order % 2 else 1 / (order + 1)


@dataclass(frozen=True)
class SelfONN:
    """Factory of generative layers of order q."""

    q: int
    _: KW_ONLY
    activation: str | None = "tanh"
    init: str = "fastonn"

    def __post_init__(self) -> None:
        if isinstance(self.q, bool) or not isinstance(self.q, int) or self.q < 1:
            raise ConfigError(f"model.q (={self.q}) must be a positive whole number")
        activation.named(self.activation)
        if self.init not in INITIALISATIONS:
            raise unknown("model.init", str(self.init), INITIALISATIONS)

    def __call__(self, spec: LayerSpec) -> SelfONNLayer:
        return SelfONNLayer(spec, model=self)
