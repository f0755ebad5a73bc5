"""Plans: found once, left when ranges are, the same after a checkpoint, untouched by evaluation."""

import io
import re

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from onn_runner import compute, ops
from onn_runner.compute import Memory, plan
from onn_runner.compute.shortest import Ranges, grid
from onn_runner.model.base import LayerSpec
from onn_runner.model.operational import Operational

MIXED = [ops.Sine(), ops.Exponential(), ops.Gaussian(), ops.Multiply()]


@pytest.fixture
def made(monkeypatch):
    """Counts the plans made."""
    found = []
    original = plan.make

    def counting(*args):
        result = original(*args)
        found.append(result)
        return result

    monkeypatch.setattr(plan, "make", counting)
    return found


def test_grid():
    for value in (1e-6, 0.3, 1.0, 1.19, 50.0):
        top = grid(value)
        assert value <= top <= value * 2**0.25 * (1 + 1e-5)
    assert grid(0.0) == 0


def test_reason_tells_terms_ranges_error_and_costs(case):
    memory = case([ops.Sine()], bound=(-1.0, 1.0)).check("auto")
    assert re.fullmatch(
        r"\d terms, \|w\| <= 3.36, \|x\| <= 1, error \de-07, est. [\d.]+ ms against [\d.]+ ms tapwise for 2 samples",
        memory.reason,
    )
    memory = case(MIXED).check("auto")
    assert re.match(r"\d+ terms \(\d+ odd, \d+ even\), \|w\| <= 3.36, \|x\| <= 1, error ", memory.reason)


TINY = {"channels": (1, 1), "kernel": (1, 1), "size": (2, 3), "batch": 1}


def test_the_exact_kernel_serves_where_it_is_clearly_cheaper(case, made):
    layer = case([ops.Gaussian()], **TINY)
    memory = layer.check("auto")
    assert memory.chosen == "tapwise"
    assert re.fullmatch(
        r"exact and faster than \d+ terms, .*, est. [\d.]+ ms against [\d.]+ ms chebyshev for 1 sample", memory.reason
    )
    # by name the expansion serves, with the same plan
    memory.requested = "chebyshev"
    layer.check("chebyshev", memory=memory)
    assert memory.chosen == "chebyshev"
    assert len(made) == 1


def test_what_is_cheaper_is_weighed_again_for_larger_batches(case, made):
    small = case([ops.Gaussian()], **{**TINY, "channels": (1, 8)})
    large = case([ops.Gaussian()], **{**TINY, "channels": (1, 8), "size": (200, 200), "batch": 8})
    for layer in (small, large):
        # so that one plan covers both
        layer.weight, layer.x = torch.ones(8, 1, 1, 1), layer.x.clamp(-0.5, 0.5)
        layer.x[0, 0, 0, :2] = torch.tensor([0.5, -0.5])
    memory = Memory()
    chosen = []
    for layer in (small, large, small):
        compute.run(layer.call, layer.x, layer.weight, None, None, memory)
        chosen.append(memory.chosen)
    assert len(made) == 1
    assert chosen == ["tapwise", "chebyshev", "tapwise"]


def test_plans_of_earlier_versions_are_understood(case):
    layer = case([ops.Sine()])
    memory = layer.run("auto").memory
    (stored,) = memory.plans["train"]
    memory.plans["train"] = [{k: v for k, v in stored.items() if k not in ("mixes", "costs", "cheaper", "size")}]
    layer.check("auto", memory=memory)
    assert memory.chosen == "chebyshev"


def test_one_plan_serves_many_steps(case, made):
    layer = case(MIXED)
    memory = Memory()
    for step in range(20):
        layer.weight *= 1 + 0.01 * (-1) ** step
        layer.x = layer.x.flip(0) * 0.999
        layer.check("auto", memory=memory)
    assert len(made) == 1


@pytest.mark.parametrize("nodal", [ops.Sine(), ops.Multiply()], ids=["sine", "mul"])
def test_inputs_whose_common_part_cancels(case, made, nodal):
    layer = case([nodal], reach=0.5, channels=(4, 8), size=(16, 16))
    layer.bias.zero_()
    memory = layer.check("auto")
    # within the ranges, but far from zero, and neurons that see differences only: another plan
    layer.x = 0.8 + 0.1 * layer.x
    layer.weight = 0.8 * (layer.weight - layer.weight.mean((1, 2, 3), keepdim=True))
    layer.check("auto", memory=memory)
    assert len(made) == 2


def test_a_known_bound_needs_no_new_plan(case, made):
    layer = case([ops.Sine()], bound=(-1.0, 1.0), span=0.6)
    memory = Memory()
    for scale in (1.0, 1.2, 1.6, 0.5):
        layer.x = case([ops.Sine()], span=0.6).x * scale
        layer.check("auto", memory=memory)
    assert len(made) == 1


def test_weights_that_grow_tenfold(case, made):
    layer = case([ops.Sine(), ops.Exponential()], reach=0.3)
    memory = Memory()
    for _ in range(24):
        layer.weight *= 10 ** (1 / 24)
        layer.check("auto", memory=memory)
    assert memory.chosen == "chebyshev"
    # the grid has 13.3 steps in a factor of ten, for each of two operators
    assert 10 <= len(made) <= 24
    assert len(memory.plans["train"]) <= plan.KEPT


def test_weights_that_grow_out_of_reach_are_served_exactly(case, made):
    layer = case([ops.Sine()])
    memory = Memory()
    chosen = []
    for _ in range(12):
        layer.weight *= 2
        chosen.append(layer.check("auto", memory=memory).chosen)
    assert chosen[0] == "chebyshev"
    assert chosen[-1] == "tapwise"
    assert chosen == sorted(chosen)


@pytest.mark.parametrize("factor", [1.5, 30.0, 1e4, 0.01])
@pytest.mark.parametrize("training", [True, False])
def test_inputs_outside_the_range(case, factor, training):
    layer = case([ops.Sine()])
    memory = layer.check("auto")
    x = layer.x * factor
    exact = compute.run(layer.call, x.double(), layer.weight.double(), None, None, Memory(requested="reference"))
    plain = compute.run(layer.call, x, layer.weight, None, None, Memory(requested="reference"))
    memory.training = training
    with torch.set_grad_enabled(training):
        y = compute.run(layer.call, x, layer.weight, None, None, memory)
    error, inherent = (relative(r, exact) for r in (y, plain))
    assert bool((error <= torch.clamp(2 * inherent, min=1e-6)).all())


def relative(got, exact):
    difference, exact = ((t.double().transpose(0, 1).flatten(1)) for t in (got - exact, exact))
    return difference.norm(dim=1) / exact.norm(dim=1)


def test_a_refusal_is_remembered(case, made):
    layer = case([ops.Chirp(k=10000.0, omega=5000.0)])
    memory = Memory()
    for _ in range(3):
        assert layer.check("auto", memory=memory).chosen == "tapwise"
    assert len(made) == 1
    assert made[0].refused
    assert memory.reason.startswith("64 nodes are too few for chirp where |w| <= ")


def test_alternating_ranges_are_not_planned_again_and_again(case, made):
    layer = case([ops.Sine()])
    memory = Memory()
    original = layer.x
    for _ in range(5):
        for scale in (1.0, 0.05, 1.15, 0.003):
            layer.x = original * scale
            layer.check("auto", memory=memory)
    assert len(made) <= 4


@pytest.mark.parametrize("gradients", [False, True])
def test_evaluation_never_changes_training(case, gradients):
    layer = case([ops.Sine(), ops.Exponential()])
    quiet, disturbed = Memory(), Memory()
    for scale in (1.0, 3.0, 2.0):
        layer.x = layer.x * scale
        first = layer.run("auto", memory=quiet)
        disturbed.training = False
        with torch.set_grad_enabled(gradients):
            for other in (1.4, 10.0, 1000.0, 0.01):
                compute.run(layer.call, layer.x * other, layer.weight, layer.gain, layer.bias, disturbed)
        disturbed.training = True
        second = layer.run("auto", memory=disturbed)
        assert torch.equal(first.y, second.y)
        assert torch.equal(first.to_weight, second.to_weight)
    assert quiet.plans["train"] == disturbed.plans["train"]
    assert set(disturbed.plans) == {"train", "evaluation"}


def test_training_without_gradients_plans_for_training(case, made):
    # as the forward pass of activation checkpoints does
    layer = case([ops.Sine()])
    memory = Memory()
    with torch.no_grad():
        compute.run(layer.call, layer.x, layer.weight, layer.gain, layer.bias, memory)
    layer.check("auto", memory=memory)
    assert len(made) == 1
    assert set(memory.plans) == {"train"}


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpoints(reentrant):
    # the first forward pass plans, the second one does not, and the two have to keep as many tensors
    spec = LayerSpec(in_channels=2, out_channels=4, kernel_size=(3, 3), stride=(1, 1), dilation=(1, 1))
    torch.manual_seed(0)
    layer = Operational({"sine": ops.Sine(), "exp": ops.Exponential()})(spec)
    x = torch.rand(2, 2, 8, 8, requires_grad=True)
    found = []
    for _ in range(2):
        x.grad = None
        checkpoint(layer, x, use_reentrant=reentrant).sum().backward()
        found.append(x.grad)
    (expected,) = torch.autograd.grad(layer(x).sum(), x)
    assert torch.equal(found[0], expected)
    assert torch.equal(found[1], expected)
    assert len(layer.memory.plans["train"]) == 1


def test_a_layer_tells_its_mode():
    spec = LayerSpec(in_channels=2, out_channels=4, kernel_size=(3, 3), stride=(1, 1), dilation=(1, 1))
    layer = Operational({"sine": ops.Sine()})(spec)
    x = torch.rand(2, 2, 8, 8)
    layer.eval()(x)
    assert set(layer.memory.plans) == {"evaluation"}
    layer.train()(x)
    assert set(layer.memory.plans) == {"evaluation", "train"}


def test_evaluation_uses_the_plan_of_training(case, made):
    layer = case([ops.Sine()])
    memory = layer.run("auto").memory
    memory.training = False
    with torch.no_grad():
        compute.run(layer.call, layer.x * 0.9, layer.weight, None, None, memory)
    assert len(made) == 1
    assert set(memory.plans) == {"train"}


@pytest.mark.parametrize("nodals", [[ops.Sine()], MIXED], ids=["sine", "mixed"])
def test_a_checkpoint_gives_identical_numbers(case, nodals):
    layer = case(nodals)
    memory = layer.run("auto").memory
    file = io.BytesIO()
    torch.save(memory.plain(), file)
    file.seek(0)
    restored = Memory()
    restored.restore(torch.load(file, weights_only=True))
    assert restored == memory
    # within the ranges, but not what the plan was made from
    layer.x, layer.weight = layer.x.flip(2) * 0.7, layer.weight * 0.8
    straight, resumed = layer.run("auto", memory=memory), layer.run("auto", memory=restored)
    fresh = layer.run("auto")
    for name in ("y", "to_x", "to_weight"):
        assert torch.equal(getattr(straight, name), getattr(resumed, name))
    assert not torch.equal(straight.y, fresh.y)


def test_a_copy_of_the_memory_does_not_change_later(case):
    layer = case([ops.Sine()])
    memory = layer.run("auto").memory
    plain = memory.plain()
    layer.x = layer.x * 5
    layer.run("auto", memory=memory)
    assert len(plain["plans"]["train"]) == 1
    assert len(memory.plans["train"]) == 2


def test_planning_is_a_function_of_its_arguments(case):
    layer = case(MIXED)
    torch.manual_seed(1)
    first = layer.run("auto").memory
    torch.manual_seed(2)
    state = torch.get_rng_state()
    second = layer.run("auto").memory
    assert first == second
    assert torch.equal(state, torch.get_rng_state())


def test_inference_mode_plans_and_computes(case):
    layer = case(MIXED)
    memory = Memory()
    with torch.inference_mode():
        x, weight = layer.x * 1, layer.weight * 1
        y = compute.run(layer.call, x, weight, layer.gain, layer.bias, memory)
    assert memory.chosen == "chebyshev"
    torch.testing.assert_close(y.clone(), layer.run("reference").y, rtol=1e-4, atol=1e-4)
    # what was cached in inference mode serves training
    layer.check("auto")


def test_precisions_are_planned_apart(case):
    layer = case([ops.Sine()])
    memory = Memory()
    layer.check("auto", memory=memory)
    layer.check("auto", torch.float64, memory=memory)
    assert [p["dtype"] for p in memory.plans["train"]] == ["torch.float32", "torch.float64"]


def test_values_beyond_what_single_precision_holds_are_refused(case):
    layer = case([ops.Exponential()], reach=100.0)
    memory = layer.run("auto").memory
    assert memory.chosen == "tapwise"
    assert memory.reason == "exponential has values that are not finite or beyond 1e30"


def test_covers_is_false_outside_each_range():
    made = plan.Plan("torch.float32", [2.0], 1.0, -1.0, 1.0, False, [["odd", 3]], "")
    for ranges in (Ranges((2.1,), -1, 1), Ranges((0.4,), -1, 1), Ranges((2.0,), -1.1, 1), Ranges((2.0,), 0, 0.2)):
        assert not made.covers(ranges, torch.float32, bounded=False)
    assert made.covers(Ranges((2.0,), -1, 1), torch.float32, bounded=False)
    assert not made.covers(Ranges((2.0,), -1, 1), torch.float64, bounded=False)
