"""What quadratic layers keep for backward: values, gradients and statistics are equal in every mode, bytes are not."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from onn_runner.errors import ConfigError
from onn_runner.model import tiles
from onn_runner.model.base import LayerSpec
from onn_runner.model.quadratic import TYPES, Quadratic, QuadraticLayer
from onn_runner.model.quadratic_types import is_factor

MODES = ("save_conv", "recompute")
NORMS = ("none", "batch")
ROUNDING = {"rtol": 1e-11, "atol": 1e-12}
"""Float64, over a few hundred terms of which a batch norm's gradient cancels most."""


def pair(form: str, mode: str, spec: LayerSpec, **options: Any) -> tuple[QuadraticLayer, QuadraticLayer]:
    """A layer that keeps all, and one of that mode with the same weights; biases and norms away from their start."""
    keep = Quadratic(form, memory="keep", **({"output_norm": "none"} | options))(spec).double()
    with torch.no_grad():
        for name, parameter in keep.named_parameters():
            if not name.startswith("weight"):
                parameter.add_(0.3 * torch.randn_like(parameter))
        for name, buffer in keep.named_buffers():
            if "running" in name:
                buffer.copy_(torch.rand_like(buffer) + 0.5)
    other = copy.deepcopy(keep)
    other.memory_mode = mode
    return keep, other


def gradients(layer: nn.Module, x: Tensor) -> list[Tensor]:
    y = layer(x)
    keyed = torch.Generator().manual_seed(1)
    cotangent = torch.randn(y.shape, generator=keyed, dtype=torch.float64).to(y.dtype)
    return [y, *torch.autograd.grad(y, [x, *layer.parameters()], cotangent)]


def assert_close(mine: list[Tensor], right: list[Tensor], **limits: float) -> None:
    for one, other in zip(mine, right, strict=True):
        torch.testing.assert_close(one, other, **(limits or ROUNDING))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("form", TYPES)
def test_the_same_as_keep(definition: Any, form: str, training: bool, groups: int, norm: str, mode: str) -> None:
    keep, other = pair(form, mode, definition.spec(groups=groups, out_channels=8, kernel_size=(3, 2)), norm=norm)
    for layer in (keep, other):
        layer.train(training)
    x = definition.example((5, 7), batch=3)
    assert_close(gradients(other, x), gradients(keep, x))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("norm", NORMS)
def test_the_same_in_every_geometry(definition: Any, geometry: dict[str, Any], norm: str, mode: str) -> None:
    for form in ("t2_4", "quadralib"):
        keep, other = pair(form, mode, definition.spec(**geometry), norm=norm)
        x = definition.example(geometry["size"])
        assert_close(gradients(other, x), gradients(keep, x))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("norm", NORMS)
def test_transposed(definition: Any, norm: str, mode: str) -> None:
    spec = definition.spec(stride=(2, 1), kernel_size=(1, 4), transposed=True, groups=2)
    keep, other = pair("quadralib", mode, spec, norm=norm)
    x = definition.example((3, 4))
    assert_close(gradients(other, x), gradients(keep, x))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", TYPES)
def test_gradients_to_any_order(definition: Any, form: str, mode: str, norm: str) -> None:
    """To x and every parameter, in training: the norms' statistics depend on x."""
    spec = definition.spec(kernel_size=(2, 2), groups=2)
    layer = Quadratic(form, norm=norm, output_norm="none", memory=mode)(spec).double()
    names = [name for name, _ in layer.named_parameters()]

    def call(x: Tensor, *values: Tensor) -> Tensor:
        # statistics that follow the calls would change what the check compares
        state = {name: buffer.clone() for name, buffer in layer.named_buffers()}
        result = torch.func.functional_call(layer, {**dict(zip(names, values, strict=True)), **state}, (x,))
        assert isinstance(result, Tensor)
        return result

    values = [(p.detach() + 0.1 * torch.randn_like(p)).requires_grad_() for p in layer.parameters()]
    inputs = (definition.example((2, 3), batch=2), *values)
    assert torch.autograd.gradcheck(call, inputs)
    assert torch.autograd.gradgradcheck(call, inputs)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("mode", MODES)
def test_a_gradient_penalty_in_single_precision(definition: Any, mode: str, norm: str) -> None:
    """d/dw of |dy/dx|^2, as networks with such a penalty train."""

    def penalty(layer: nn.Module, x: Tensor) -> list[Tensor]:
        (slope,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
        # the biases of terms that x does not multiply have none
        return [t for t in torch.autograd.grad(slope.square().sum(), list(layer.parameters()), allow_unused=True)
                if t is not None]  # fmt: skip

    keep, other = (layer.float() for layer in pair("quadralib", mode, definition.spec(), norm=norm))
    x = definition.example((6, 5)).detach().float().requires_grad_()
    for mine, right in zip(penalty(other, x), penalty(keep, x), strict=False):
        # single precision, sums of about 100 terms twice
        torch.testing.assert_close(mine, right, rtol=1e-4, atol=1e-4 * float(right.abs().max()))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("mode", MODES)
def test_as_accurate_as_keep_in_single_precision(definition: Any, mode: str, norm: str) -> None:
    """Against float64, as a share of the norm: 3e-6 is the promise for gradients, and none is far worse than keep's."""
    spec = definition.spec(in_channels=16, out_channels=24)
    exact, other = pair("quadralib", mode, spec, norm=norm)
    x = definition.example((17, 16), channels=16, batch=4)
    keep, other = copy.deepcopy(exact).float(), other.float()
    single = x.detach().float().requires_grad_()
    for right, plain, mine in zip(gradients(exact, x), gradients(keep, single), gradients(other, single), strict=True):
        errors = [float((value.double() - right).detach().norm() / right.detach().norm()) for value in (plain, mine)]
        assert errors[1] <= max(3e-6, 2 * errors[0])


@pytest.mark.parametrize("momentum", [0.1, 0.9, None])
@pytest.mark.parametrize("mode", MODES)
def test_running_statistics_are_updated_once_a_step(definition: Any, mode: str, momentum: float | None) -> None:
    keep, other = pair("t2_4", mode, definition.spec(), norm="batch")
    for layer in (keep, other):
        for norm in layer.norms.values():
            norm.momentum = momentum
    for step in range(3):
        x = definition.example((4, 5), seed=step)
        assert_close(gradients(other, x), gradients(keep, x))
    for (name, mine), (_, right) in zip(other.named_buffers(), keep.named_buffers(), strict=True):
        torch.testing.assert_close(mine, right, rtol=1e-14, atol=0, msg=name)
    assert int(other.norms["a"].num_batches_tracked) == 3
    for layer in (keep, other):
        layer.eval()
        layer(x)
    assert int(other.norms["a"].num_batches_tracked) == 3
    assert_close(gradients(other, x), gradients(keep, x))


def kept_bytes(layer: nn.Module, x: Tensor) -> tuple[int, int]:
    """Bytes kept for backward besides x and the parameters: in storages larger than a few channels, and in others."""
    storages: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    given = {t.untyped_storage().data_ptr() for t in (x, *layer.parameters())}
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        y = layer(x)
    del y
    sizes = [size for place, size in storages.items() if place not in given]
    return sum(size for size in sizes if size > 1000), sum(size for size in sizes if size <= 1000)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("form", TYPES)
def test_bytes_kept(definition: Any, form: str, norm: str) -> None:
    spec = definition.spec(padding="valid", out_channels=8, kernel_size=(3, 3))
    x = torch.rand(2, 4, 16, 15, requires_grad=True)
    plane, seen = 2 * 8 * 14 * 13 * 4, x.numel() * 4
    names = Quadratic(form, norm=norm, output_norm="none")(spec).branches
    branches = len(names)
    factors = sum(is_factor(name) for name in names)
    squares = seen if "square" in names else 0
    normed = norm == "batch"
    wanted = {
        "recompute": 0,
        "save_conv": (branches if normed else factors) * plane,
        "keep": (factors + (branches if normed else 0)) * plane + squares,
    }
    if form == "t3" and normed:
        wanted["keep"] = 2 * plane
    if "matrix" in names:
        # the matrix, both halves, and where its numbers lie: nothing that grows with the input but what its norm keeps
        matrix = 8 * 36 * 36 * 4 + 36 * 37 // 2 * 8 + (plane if normed else 0)
        wanted = {mode: size + matrix for mode, size in wanted.items() if mode == "recompute"}
    for mode, size in wanted.items():
        layer = Quadratic(form, norm=norm, output_norm="none", memory=mode)(spec)
        large, small = kept_bytes(layer, x)
        assert large == size, mode
        # of each norm the mean and the deviation, 8 numbers each, and of t2_4 a shift that is a sum
        assert small <= branches * 4 * 8 * 4
        with torch.no_grad():
            assert kept_bytes(layer, x) == (0, 0)
    assert wanted.get("save_conv", 0) <= 3 * plane


def test_auto_keeps_the_least_at_about_the_time_of_keep(definition: Any) -> None:
    assert Quadratic()(definition.spec()).memory_mode == "recompute"
    assert Quadratic(norm="batch")(definition.spec()).memory_mode == "save_conv"
    assert Quadratic(norm="batch", memory="recompute")(definition.spec()).memory_mode == "recompute"
    told = {
        ("quadralib", "none", "recompute"): "3 of them; recompute: keeps x only",
        ("quadralib", "batch", "save_conv"): "3 of them; save_conv: keeps x and 3 outputs",
        ("quadralib", "batch", "keep"): "3 of them; keep: keeps x and 5 outputs",
        ("t2_4", "none", "keep"): "3 of them; keep: keeps x, x^2 and 2 outputs",
        ("t2", "none", "keep"): "one; keep: keeps x and x^2",
        ("t2", "none", "save_conv"): "one; save_conv: keeps x only",
    }
    for (form, norm, memory), reason in told.items():
        layer = Quadratic(form, norm=norm, output_norm="none", memory=memory)(definition.spec())
        assert layer.facts().reason == reason


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(definition: Any, mode: str, norm: str, dtype: torch.dtype) -> None:
    """Convolutions in half precision, as with keep, and everything after them in single precision."""
    for form in ("t2_4", "quadralib"):
        keep, other = (layer.float() for layer in pair(form, mode, definition.spec(), norm=norm))
        x = definition.example((6, 5)).detach().float().requires_grad_()
        with torch.autocast("cpu", dtype=dtype):
            results = [gradients(layer, x) for layer in (other, keep)]
        assert all(result.dtype == torch.float32 for result in results[0])
        for mine, right in zip(*results, strict=True):
            # the same rounded convolutions; sums in another order of gradients that bfloat16 rounds to 8 bits
            torch.testing.assert_close(mine, right, rtol=0.02, atol=0.02 * float(right.detach().abs().max()))
        torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-5, atol=1e-5)


def test_half_precision_inputs_are_kept_as_they_are(definition: Any) -> None:
    layer = Quadratic("t2_4", output_norm="none", memory="recompute")(definition.spec(padding="valid"))
    x = torch.rand(1, 4, 20, 20).bfloat16().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert kept_bytes(layer, x)[0] == 0
        (grad,) = torch.autograd.grad(layer(x).sum(), x)
    assert grad.dtype == torch.bfloat16


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("mode", MODES)
def test_frozen_parts_get_no_gradient(definition: Any, mode: str, norm: str) -> None:
    keep, other = pair("t2_4", mode, definition.spec(), norm=norm)
    x = definition.example((5, 4)).detach()
    for frozen in (["weight_a", "bias_b"], ["weight_square", "bias"], ["weight_a", "weight_b", "weight_square"]):
        for layer in (keep, other):
            layer.zero_grad()
            for name, parameter in layer.named_parameters():
                parameter.requires_grad_(name not in frozen)
            layer(x).square().sum().backward()
        for (name, mine), right in zip(other.named_parameters(), keep.parameters(), strict=True):
            assert (mine.grad is None) == (right.grad is None) == (name in frozen)
            if mine.grad is not None:
                torch.testing.assert_close(mine.grad, right.grad, **ROUNDING)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(
    ("form", "mode"),
    [("t3", "recompute"), ("t2_4", "recompute"), ("quadralib", "recompute"), ("t2_4", "save_conv")],
)
def test_compiled_without_a_break(definition: Any, form: str, mode: str, norm: str) -> None:
    torch.compiler.reset()
    _, layer = pair(form, mode, definition.spec(), norm=norm)
    eager = copy.deepcopy(layer)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x = definition.example((5, 4))
    for training in (True, False):
        layer.train(training)
        eager.train(training)
        y = compiled(x)
        grads = torch.autograd.grad(y.square().sum(), [x, *layer.parameters()])
        expected = eager(x)
        right = torch.autograd.grad(expected.square().sum(), [x, *eager.parameters()])
        assert_close([y, *grads], [expected, *right])
    for mine, other in zip(layer.buffers(), eager.buffers(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-13, atol=0)


@pytest.mark.parametrize("form", TYPES)
def test_transforms_of_torch_func(definition: Any, form: str) -> None:
    """vmap over stacked weights, and grad, equal a loop; norms in evaluation mode, as torch's own allow."""
    layers = [Quadratic(form, norm=norm, output_norm="none")(definition.spec()).double().eval()
              for norm in ("none", "none", "batch", "batch")]  # fmt: skip
    x = definition.example((4, 5)).detach()
    for two in (layers[:2], layers[2:]):
        parameters, buffers = torch.func.stack_module_state(two)  # type: ignore[arg-type]
        base = two[0]

        def call(p: dict[str, Tensor], b: dict[str, Tensor], base: nn.Module = base) -> Tensor:
            result = torch.func.functional_call(base, (p, b), (x,))
            assert isinstance(result, Tensor)
            return result

        def loss(p: dict[str, Tensor], b: dict[str, Tensor], call: Any = call) -> Tensor:
            result = call(p, b).square().sum()
            assert isinstance(result, Tensor)
            return result

        y = torch.vmap(call)(parameters, buffers)
        grads = torch.vmap(torch.func.grad(loss))(parameters, buffers)
        for i, layer in enumerate(two):
            expected = layer(x)
            torch.testing.assert_close(y[i], expected, **ROUNDING)
            right = torch.autograd.grad(expected.square().sum(), list(layer.parameters()))
            for (name, _), value in zip(layer.named_parameters(), right, strict=True):
                torch.testing.assert_close(grads[name][i], value, **ROUNDING)


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_checkpointed(definition: Any, mode: str, reentrant: bool) -> None:
    keep, other = pair("quadralib", mode, definition.spec(), norm="none")
    x = definition.example((5, 4))
    mine = torch.autograd.grad(checkpoint(other, x, use_reentrant=False).square().sum(), [x, *other.parameters()])
    right = torch.autograd.grad(keep(x).square().sum(), [x, *keep.parameters()])
    assert_close(list(mine), list(right))
    if reentrant:
        checkpoint(other, x, use_reentrant=True).square().sum().backward()
        torch.testing.assert_close(x.grad, right[0], **ROUNDING)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("mode", MODES)
def test_tiles_do_not_change_the_result(definition: Any, monkeypatch: pytest.MonkeyPatch, mode: str, norm: str) -> None:
    _, layer = pair("t2_4", mode, definition.spec(), norm=norm)
    x = definition.example((5, 4), batch=5)
    whole = gradients(layer, x)
    for samples in (1, 2, 3):
        monkeypatch.setattr(tiles, "VALUES", samples * x[0].numel() + 1)
        assert_close(gradients(layer, x), whole)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("mode", MODES)
def test_an_empty_batch_and_non_finite_values(definition: Any, mode: str, norm: str) -> None:
    keep, other = pair("t2_4", mode, definition.spec(), norm=norm)
    for layer in (keep, other):
        layer.eval()
    x = definition.example((5, 4), batch=0)
    assert_close(gradients(other, x), gradients(keep, x))
    bad = definition.example((7, 4)).detach()
    bad[0, 0, 0, 0], bad[1, 1, 6, 3] = math.nan, math.inf
    assert torch.equal(other(bad).isfinite(), keep(bad).isfinite())
    assert not other(bad).isfinite().all()


@pytest.mark.parametrize("mode", ["keep", *MODES])
def test_one_value_per_channel_has_no_spread(definition: Any, mode: str) -> None:
    layer = Quadratic(norm="batch", memory=mode)(definition.spec(index=3, kernel_size=(3,)))
    before = copy.deepcopy(layer.state_dict())
    with pytest.raises(ConfigError, match="layer 3: a batch norm in training needs more than one value per channel"):
        layer(torch.rand(1, 4, 1))
    assert mode == "keep" or all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())
    layer.eval()(torch.rand(1, 4, 1))
    with pytest.raises(ConfigError, match="layer 0: a batch norm in training"):
        Quadratic("t4", memory=mode)(definition.spec(kernel_size=(3,)))(torch.rand(1, 4, 1))


@pytest.mark.parametrize("mode", MODES)
def test_norms_that_were_changed_are_left_to_autograd(definition: Any, mode: str) -> None:
    """Frozen one by one, with a hook, or replaced: computed as they are, the factors kept."""
    x = definition.example((5, 4))

    def froze(layer: QuadraticLayer) -> None:
        layer.norms["a"].eval()

    def replaced(layer: QuadraticLayer) -> None:
        layer.norms["b"] = nn.GroupNorm(2, 4).double()

    def coarser(layer: QuadraticLayer) -> None:
        layer.norms["linear"].eps = 0.1

    for change in (froze, replaced, coarser):
        keep, other = pair("quadralib", mode, definition.spec(), norm="batch")
        for layer in (keep, other):
            change(layer)
        assert_close(gradients(other, x), gradients(keep, x))
        for mine, right in zip(other.buffers(), keep.buffers(), strict=True):
            torch.testing.assert_close(mine, right)
    seen = []
    _, layer = pair("quadralib", mode, definition.spec(), norm="batch")
    layer.norms["a"].register_forward_hook(lambda *_: seen.append(1))
    layer(x)
    assert seen


def test_refused() -> None:
    with pytest.raises(ConfigError, match=r"unknown model.memory 'recomput'. Did you mean recompute"):
        Quadratic(memory="recomput")
