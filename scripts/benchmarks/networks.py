"""One training step of FastONN's README network: ours, in FastONN's formulation, and as a first-order network."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.gate import GateError
from benchmarks.layer import Step, broadcast
from benchmarks.measure import Settings, interleaved, milliseconds, peak, ratio
from benchmarks.report import Table, beside, megabytes
from onn_runner import ops
from onn_runner.model.base import Factory, Layer, LayerSpec
from onn_runner.model.conv import Conv
from onn_runner.model.operational import Operational, OperationalLayer, rescale
from onn_runner.network.compact import Compact

NAME = "network"
CATALOGUE = {"mul": ops.Multiply(), "sine": ops.Sine(k=100.0), "exp": ops.Exponential()}
"""With FastONN's constants."""
LAYERS = {
    "mul / sine / exp by layer": [["mul"], ["sine"], ["exp"]],
    "all three in each hidden layer": [["mul", "sine", "exp"], ["mul", "sine", "exp"], ["mul"]],
}
FASTER = {"mul / sine / exp by layer": 35.0, "all three in each hidden layer": 18.0}
AGAINST_CNN = 2.5
ACCURACY = 1e-5
"""Of the network's output: errors of 1e-6 from each of three layers, which the slopes of the next ones enlarge."""
HEADER = (
    "operators", "error", "× faster than FastONN's", "target", "× the same CNN", "target", "ms", "FastONN's peak MB",
    "peak MB", "CNN's peak MB",
)  # fmt: skip


class _AsFastONN(nn.Module):
    """An operational layer computed in FastONN's formulation."""

    def __init__(self, layer: OperationalLayer) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        layer = self.layer
        u = rescale(broadcast(x, layer.nodal_weight(), layer.call), layer.blocks)
        assert layer.bias is not None
        y: Tensor = layer.activation(u - layer.bias.view(-1, 1, 1))
        return y


def network(operators: str, method: str, size: int) -> Compact:
    """The network with FastONN's initial weights; `method` is ours, broadcast or cnn.

    Input `size` (60) squared, grey, zero-padded by 17; 16, 32 and 1 neurons; kernels 21, 7 and 3 without padding;
    maximum over 2 x 2 after the first layer, nearest neighbours after the second.
    """
    torch.manual_seed(0)
    factory: Factory = Conv()
    if method != "cnn":
        factory = Operational(CATALOGUE, layers=LAYERS[operators], initialisation="fastonn")

    def with_tanh(spec: LayerSpec) -> Layer:
        return factory(dataclasses.replace(spec, activation="tanh"))

    made = Compact(
        with_tanh,
        1,
        out_channels=1,
        channels=[16, 32],
        input_size=(size, size),
        kernels=[21, 7, 3],
        sampling=["max2", "up2", "none"],
        residual=False,
        output="same",
        centre=False,
        padding="valid",
        input_padding=17,
    )
    if method == "broadcast":
        for index, layer in enumerate(made.layers):
            assert isinstance(layer, OperationalLayer)
            # the network asks its layers for their specs
            wrapped = _AsFastONN(layer)
            wrapped.spec = layer.spec  # type: ignore[assignment]
            made.layers[index] = wrapped
    return made


def batch(size: int, device: str) -> tuple[Tensor, Tensor]:
    """A noisy image in [-1, 1] and its target."""
    keyed = torch.Generator().manual_seed(0)
    target = F.interpolate(torch.rand((1, 1, 6, 6), generator=keyed), size=(size, size), mode="bilinear") * 2 - 1
    noisy = (target + 0.3 * torch.randn(target.shape, generator=keyed)).clamp(-1, 1)
    return noisy.to(device), target.to(device)


def training(operators: str, method: str, size: int, device: str) -> Step:
    """A step: forward, mean square error, backward, Adam; so slow that the weights stay FastONN's initial ones."""
    made = network(operators, method, size).to(device)
    x, target = batch(size, device)
    optimizer = torch.optim.Adam(made.parameters(), lr=1e-9)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        F.mse_loss(made(x), target).backward()
        optimizer.step()

    return step


def check(operators: str, size: int, device: str) -> float:
    """The relative error of the output against FastONN's formulation in float64.

    Raises GateError where it is above the promise and above twice that of the formulation in float32.
    """
    x, _ = batch(size, device)
    with torch.no_grad():
        exact = network(operators, "broadcast", size).to(device).double()(x.double())
        plain, own = (
            float((network(operators, method, size).to(device)(x).double() - exact).norm() / exact.norm())
            for method in ("broadcast", "ours")
        )
    if not own <= max(ACCURACY, 2 * plain):
        raise GateError(f"the network with {operators} misses its accuracy: {own:.1e}")
    return own


def tables(settings: Settings, say: Callable[[str], None]) -> list[Table]:
    """One row for each way to spread the operators over the layers."""
    size = 8 if settings.size == "tiny" else 60
    rows, data = [], []
    for operators in list(LAYERS)[: None if settings.size == "full" else 1]:
        error = check(operators, size, settings.device)
        names = ("broadcast", "ours", "cnn")
        seconds = interleaved({name: training(operators, name, size, settings.device) for name in names}, settings)
        case = {"table": NAME, "operators": operators, "size": size}
        peaks = {name: peak({**case, "method": name}, settings) for name in names}
        faster, against = ratio(seconds, "broadcast", "ours"), ratio(seconds, "ours", "cnn")
        rows.append([
            operators,
            f"{error:.0e}",
            *beside(faster, FASTER[operators]),
            *beside(against, AGAINST_CNN, at_least=False),
            f"{milliseconds(seconds)['ours']:.1f}",
            *(megabytes(peaks[name]) for name in names),
        ])  # fmt: skip
        data.append({
            "operators": operators, "error": error, "milliseconds": milliseconds(seconds), "peaks": peaks,
            "faster": dataclasses.asdict(faster), "against_cnn": dataclasses.asdict(against),
        })  # fmt: skip
        say(" | ".join(rows[-1]))
    title = "One training step (forward, MSE, backward, Adam) of FastONN's README network, batch 1, float32"
    return [Table(NAME, title, HEADER, rows, (), data)]


def memory_case(case: dict[str, Any]) -> tuple[Step, Callable[[], Step]]:
    """A warm-up that loads the code, and what makes the step whose peak is asked for."""

    def made(size: int) -> Step:
        return training(case["operators"], case["method"], size, case["device"])

    return made(8), lambda: made(case["size"])
