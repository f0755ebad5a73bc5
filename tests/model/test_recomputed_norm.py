"""model.memory=recompute with a norm behind the neurons: the same numbers, less kept, the batch counted once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from onn_runner.model.base import LayerSpec
from onn_runner.model.quadratic import Quadratic
from onn_runner.model.quadratic_layer import QuadraticLayer


def spec(**changes: Any) -> LayerSpec:
    given = {"in_channels": 4, "out_channels": 6, "kernel_size": (3, 3), "stride": (1, 1), "dilation": (1, 1)}
    return LayerSpec(**given | {"bias": False, "norm": "batch"} | changes)


def pair(form: str, spec: LayerSpec, **options: Any) -> list[QuadraticLayer]:
    """Layers with the same weights that keep what plain autograd keeps, and x only."""
    layers = []
    for memory in ("keep", "recompute"):
        torch.manual_seed(0)
        layers.append(Quadratic(form, memory=memory, **options)(spec))
    return layers


def gradients(layer: nn.Module, x: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    y = layer(x)
    return [y, *torch.autograd.grad(y.square().sum(), [x, *layer.parameters()])]


CASES = [
    ("quadralib", {}, {}),
    ("quadralib", {"stride": (2, 1), "groups": 2, "padding_mode": "circular"}, {"activation": "relu"}),
    ("quadralib", {"norm": None}, {"output_norm": "batch"}),
    ("t4", {"norm": None, "bias": True}, {}),
    ("t1", {}, {}),
    ("compact", {}, {}),
    ("quadralib", {}, {"norm": "batch"}),
]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("form", "asked", "options"), CASES)
def test_the_gradients_of_plain_autograd(form: str, asked: Any, options: Any, training: bool) -> None:
    keep, recompute = (layer.train(training) for layer in pair(form, spec(**asked), **options))
    x = torch.randn(3, 4, 7, 5)
    # the products' own backward sums in another order; values of up to a hundred
    for ours, theirs in zip(gradients(recompute, x), gradients(keep, x), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    for (name, ours), theirs in zip(recompute.named_buffers(), keep.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs, msg=name)
    counted = [value for name, value in recompute.named_buffers() if name.endswith("tracked")]
    assert {int(value) for value in counted} == {int(training)}


@pytest.mark.parametrize("autocast", [False, True])
def test_the_same_to_the_bit_as_where_the_norm_keeps_its_input(autocast: bool) -> None:
    torch.manual_seed(0)
    auto = Quadratic()(spec())
    recompute = Quadratic(memory="recompute")(spec())
    recompute.load_state_dict(auto.state_dict())
    x = torch.randn(3, 4, 7, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        losses = [layer(x).square().sum() for layer in (auto, recompute)]
    for loss in losses:
        loss.backward()
    for (name, ours), theirs in zip(recompute.named_parameters(), auto.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad), name


def test_gradients_of_gradients() -> None:
    layer = Quadratic(memory="recompute")(spec(in_channels=2, out_channels=2)).double()
    x = torch.randn(2, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(layer, x)
    assert torch.autograd.gradgradcheck(layer, x)


@pytest.mark.parametrize("asked", [{}, {"norm": None}])
def test_what_is_kept(asked: Any) -> None:
    options = {} if not asked else {"output_norm": "batch"}
    x = torch.randn(3, 4, 7, 5)
    for memory, told, outputs in [("keep", "keeps x and 3 outputs", 4), ("auto", "keeps x and 1 output", 2),
                                  ("recompute", "keeps x only", 1)]:  # fmt: skip
        layer = Quadratic(memory=memory, **options)(spec(**asked))
        sizes: dict[int, int] = {}

        def note(saved: Tensor, sizes: dict[int, int] = sizes) -> Tensor:
            sizes[saved.data_ptr()] = saved.numel()
            return saved

        with torch.autograd.graph.saved_tensors_hooks(note, lambda saved: saved):
            y = layer(x)
        # of the output's size; one of them is the activation's, which the next layer reads
        assert sum(size == y.numel() for size in sizes.values()) == outputs
        assert layer.facts().reason.endswith(told)


def test_without_gradients_nothing_is_computed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = Quadratic(memory="recompute")(spec())
    calls = []
    respond = layer.respond
    monkeypatch.setattr(layer, "respond", lambda x: calls.append(1) or respond(x))
    with torch.no_grad():
        layer(torch.randn(2, 4, 5, 5))
    assert len(calls) == 1
    layer(torch.randn(2, 4, 5, 5)).sum().backward()
    assert len(calls) == 3


def test_compiled_and_exported() -> None:
    layer = Quadratic(memory="recompute")(spec()).eval()
    x = torch.randn(2, 4, 7, 5)
    exported = torch.export.export(layer, (x,))
    torch.testing.assert_close(exported.module()(x), layer(x))
    functional = torch.func.grad(lambda x: layer(x).square().sum())(x)
    torch.testing.assert_close(functional, gradients(layer, x)[1])
