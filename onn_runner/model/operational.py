"""y_o = f(A_o sum_c P_t psi_o(w[o,c,t], x[c,p+t]) + b_o): operational neurons, several operators in one layer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from onn_runner import compute as kernels
from onn_runner.compute import Block, Call, Handle, Memory
from onn_runner.errors import ConfigError, unknown
from onn_runner.model import activation, padding, small_signal
from onn_runner.model.base import LayerFacts, LayerSpec, Unrepresentable
from onn_runner.model.conv import SpatialLayer, convolve, fill_uniform
from onn_runner.ops import pool as pools
from onn_runner.ops.base import Nodal, Pool, as_nodal
from onn_runner.ops.calibrate import Calibration, calibrate, neuron_means
from onn_runner.ops.examine import examine

INITIALISATIONS = ("calibrated", "fastonn", "gop")

LIMIT = 4.0
"""FastONN rescales a sample whose largest pre-activation exceeds this."""


def split_evenly(operators: Mapping[str, Nodal], neurons: int) -> tuple[Block, ...]:
    """Consecutive neurons per operator in written order, the remainder to the first; none, no block."""
    share, remainder = divmod(neurons, len(operators))
    blocks, start = [], 0
    for position, (name, nodal) in enumerate(operators.items()):
        stop = start + share + (position < remainder)
        if stop > start:
            blocks.append(Block(name, nodal, start, stop))
        start = stop
    return tuple(blocks)


def rescale(
    u: Tensor,  # [B, O, *S']
    blocks: Sequence[Block],
) -> Tensor:  # [B, O, *S']
    """u min(1, 4 / max|u|) per sample, the maximum over one operator's neurons and all positions, without gradient."""
    factors = []
    for block in blocks:
        largest = u[:, block.start : block.stop].detach().abs().flatten(1).amax(1, keepdim=True)
        factors.append((LIMIT / largest.clamp_min(LIMIT)).expand(-1, block.stop - block.start))
    return u * torch.cat(factors, dim=1).reshape(*u.shape[:2], *[1] * (u.dim() - 2))


class OperationalLayer(SpatialLayer):
    """Operational neurons; what the kernels remember between calls travels in the state_dict.

    The w of psi(w, x) is `unit * weight`, the unit fixed per neuron so that calibrated weights start with the spread of
    a convolution's: one learning rate then suits every operator and size (denoising, equal rate: 1.6 dB better than
    unit 1). With the presets `fastonn` and `gop` there is no unit.
    """

    gain: Tensor | None
    unit: Tensor | None

    def __init__(self, spec: LayerSpec, blocks: Sequence[Block], *, model: Operational) -> None:
        super().__init__(spec, "onn", model.activation)
        self.blocks = tuple(blocks)
        self.initialisation = model.initialisation
        self.call = Call(
            self.blocks, model.pooling, spec.stride, spec.dilation, spec.groups, spec.input_bound, spec.transposed
        )
        self.memory = Memory(requested=model.compute)
        self.handle = Handle(self.call, self.memory)
        self.weight = nn.Parameter(torch.empty(self.weight_shape))
        self.bias = self.make_bias()
        calibrated = self.initialisation == "calibrated"
        self.register_buffer("gain", torch.ones(spec.out_channels) if calibrated else None)
        self.register_buffer("unit", torch.ones(spec.out_channels) if calibrated else None)
        self.is_convolution = False
        """Whether it started as the one with these weights, and is one whatever it learns."""
        self.nonlinearity = self._initialise()

    @torch.no_grad()
    def _initialise(self) -> float:
        """Fill weight, bias and gain; the mean over neurons of the non-linearity index of what was filled in."""
        taps, phases, total = padding.taps(self.spec), padding.phases(self.spec), 0.0
        spread = 3 / math.sqrt(self.fan_in / phases)
        for block in self.blocks:
            part = slice(block.start, block.stop)
            bound = 1 / taps if self.unit is None else block.nodal.weight_bound
            if self.unit is not None:
                self.unit[part] = bound / spread
            fill_uniform(self.weight[part], (bound if self.unit is None else spread) ** 2 / 3)
            calibration = self._calibration(block, taps, bound)
            total += 0.0 if calibration is None else calibration.nonlinearity * (block.stop - block.start)
            if self.gain is None or calibration is None:
                if self.bias is not None:
                    fill_uniform(self.bias[part], bound**2 / 3)
            else:
                # transposed, the variance and mean of a sum over taps are shared out among the phases
                gain = calibration.gain * math.sqrt(phases)
                self.gain[part] = gain
                if self.bias is not None:
                    means = neuron_means(block.nodal, self.call.pool, self.nodal_weight()[part])
                    self.bias[part] = -gain * means / phases
        return total / self.spec.out_channels

    def _calibration(self, block: Block, taps: int, bound: float) -> Calibration | None:
        """None where the weights of a preset are too small for psi to change at all; only calibrated ones need it."""
        channels = self.weight.shape[1]
        examine(block.nodal, bound)
        try:
            return calibrate(block.nodal, self.call.pool, taps=taps, channels=channels, weight_bound=bound)
        except ConfigError:
            if self.initialisation == "calibrated":
                raise
            return None

    def nodal_weight(self) -> Tensor:  # [O, C/G, *k]
        """The w of psi(w, x)."""
        return self.weight if self.unit is None else self.weight * self.unit.reshape(-1, *[1] * (self.spec.dims + 1))

    def respond(self, x: Tensor) -> Tensor:
        self.memory.training = self.training
        if self.is_convolution and self.memory.requested == "auto":
            self.memory.chosen, self.memory.reason = "convolution", "all operators are w x"
            return convolve(x, self.weight, spec=self.spec, bias=self.bias)
        if self.initialisation != "fastonn":
            return self._pooled(x, self.bias)
        y = rescale(self._pooled(x, None), self.blocks)
        return y if self.bias is None else y - self.bias.reshape(-1, *[1] * self.spec.dims)

    def _pooled(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """The kernel's result, and of a transposed layer its part that is not cropped."""
        late = padding.extends(self.spec)
        inner = None if late else bias
        y = kernels.run(self.call, x, self.nodal_weight(), self.gain, inner, self.memory, handle=self.handle)
        if self.spec.transposed:
            y = padding.crop(y, self.spec)
        return y + bias.reshape(-1, *[1] * self.spec.dims) if late and bias is not None else y

    @torch.no_grad()
    def load_first_order(
        self, weight: Tensor, bias: Tensor | None = None, *, near: bool = False, reach: float | None = None
    ) -> None:
        """Operators that are w x take the weights over. With `near`, others start with arguments so small that they
        are within 1 % of it for |x| up to `reach` (1, or what the spec knows), by a small unit and a large gain.
        """
        self.check_first_order(weight, bias)
        if self.initialisation == "fastonn":
            raise Unrepresentable("initialisation=fastonn rescales large outputs: use operators=default or gop")
        reach = reach or max(map(abs, self.spec.input_bound or (1.0,))) or 1.0
        start = small_signal.start(self.call, weight.detach().cpu(), near=near, reach=reach)
        start.check(calibrated=self.gain is not None, bias=self.bias is not None, transposed=self.spec.transposed)
        self.weight.copy_(weight)
        if self.gain is not None and self.unit is not None:
            self.gain.copy_(start.gain)
            self.unit.copy_(start.unit)
        if self.bias is not None:
            self.bias.copy_(-start.offset.to(self.bias) + (0.0 if bias is None else bias.to(self.bias)))
        self.is_convolution, self.nonlinearity = start.exact, start.nonlinearity

    def facts(self) -> LayerFacts:
        operators = tuple((block.name, block.stop - block.start) for block in self.blocks)
        return LayerFacts("onn", operators, self.nonlinearity, self.memory.chosen, self.memory.reason)

    def get_extra_state(self) -> dict[str, Any]:
        return {**self.memory.plain(), "operators": self._operators(), "is_convolution": self.is_convolution}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Raises ConfigError for weights of a layer with other operators, which would mean other neurons."""
        own = self._operators()
        if state["operators"] != own:
            theirs = " ".join(state["operators"])
            raise ConfigError(f"these weights are of a layer with {theirs}, this one has {' '.join(own)}: use its ops")
        self.memory.restore(state)
        self.is_convolution = state.get("is_convolution", False)

    def _operators(self) -> list[str]:
        """["sine:8", "exp:8"], in the order of the channels."""
        return [f"{block.name}:{block.stop - block.start}" for block in self.blocks]

    def extra_repr(self) -> str:
        counts = ", ".join(f"{block.stop - block.start} {block.name}" for block in self.blocks)
        return f"{super().extra_repr()}, {counts}"


@dataclass(frozen=True)
class Operational:
    """Factory of operational layers. `operators` serve every layer that `layers` does not name others for."""

    operators: Mapping[str, Any]
    _: KW_ONLY
    pool: str | Pool = "sum"
    layers: Sequence[Any] | None = None
    """Per layer (LayerSpec.index) the names of its operators, or None for `operators`."""
    activation: str | None = "tanh"
    catalogue: Mapping[str, Any] | None = None
    """Operators that `layers` may name besides `operators`."""
    compute: str = "auto"
    initialisation: str = "calibrated"

    def __post_init__(self) -> None:
        if not self.operators:
            raise ConfigError("ops is empty: an operational layer needs at least one operator, such as ops=sine,exp")
        activation.named(self.activation)
        kernels.check(self.compute)
        if self.initialisation not in INITIALISATIONS:
            raise unknown("initialisation", str(self.initialisation), INITIALISATIONS)
        if not isinstance(self.pool, Pool):
            pools.named(self.pool)
        _check_layers(self.layers)
        for index in range(len(self.layers or ())):
            self.operators_of(index)

    @property
    def pooling(self) -> Pool:
        return self.pool if isinstance(self.pool, Pool) else pools.named(self.pool)

    def expect(self, count: int) -> None:
        """Told by a network how many layers it will ask for."""
        if self.layers is not None and len(self.layers) != count:
            raise ConfigError(
                f"model.layers has {len(self.layers)} entries, the network has {count} operational layers; "
                "write one list of operators (or null for ops) per layer"
            )

    def operators_of(self, index: int) -> dict[str, Nodal]:
        """The operators of one layer, in written order."""
        names = None if self.layers is None or index >= len(self.layers) else self.layers[index]
        if names is None:
            return {name: as_nodal(nodal) for name, nodal in self.operators.items()}
        names = [names] if isinstance(names, str) else list(names)
        if not names:
            raise ConfigError(f"model.layers[{index}] is empty: name at least one operator, or null for ops")
        if len(set(names)) < len(names):
            raise ConfigError(f"model.layers[{index}] (={names}) names an operator twice; name each once")
        known = {**(self.catalogue or {}), **self.operators}
        for name in names:
            if name not in known:
                raise unknown(f"operator in model.layers[{index}]:", str(name), known)
        return {name: as_nodal(known[name]) for name in names}

    def __call__(self, spec: LayerSpec) -> OperationalLayer:
        padding.check(spec, "onn")
        if spec.transposed and not isinstance(self.pooling, pools.Linear):
            raise ConfigError(
                f"layer {spec.index} is transposed: its positions see different numbers of taps, which "
                f"model.pool={self.pooling.name} cannot pool; use sum or mean"
            )
        operators = self.operators_of(spec.index)
        if spec.role == "hidden" and len(operators) > spec.out_channels:
            raise ConfigError(
                f"layer {spec.index} has {spec.out_channels} neurons for {len(operators)} operators "
                f"({', '.join(operators)}): every operator needs a neuron; raise network.channels or name fewer"
            )
        blocks = split_evenly(operators, spec.out_channels)
        return OperationalLayer(spec, blocks, model=self)


def _check_layers(layers: Any) -> None:
    """Each entry of model.layers: None, a name, or a list of names."""
    listed = isinstance(layers, Sequence) and not isinstance(layers, str)
    if layers is None or (listed and all(_is_entry(entry) for entry in layers)):
        return
    raise ConfigError(
        f"model.layers (={layers}) must be a list with one entry per operational layer, each a list of operators or "
        "null, such as [[sine,exp],[mul],null]"
    )


def _is_entry(entry: Any) -> bool:
    names = [entry] if isinstance(entry, str) else entry
    return entry is None or (isinstance(names, Sequence) and all(isinstance(name, str) for name in names))
