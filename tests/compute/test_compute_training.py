"""200 steps of training while weights grow tenfold: the kernel is as near to float64 as plain single precision is."""

import pytest
import torch

from onn_runner import compute, ops
from onn_runner.compute import Block, Call, Memory

FIRST = [ops.Sine(), ops.Exponential(), ops.Multiply()]
SECOND = [ops.Sinh(omega=1.0), ops.Sine()]
STEPS = 200
# a number of single precision, so that growing is the same in both
GROWTH = torch.tensor(10 ** (1 / STEPS)).item()


def call_of(nodals, neurons):
    edges = [round(i * neurons / len(nodals)) for i in range(len(nodals) + 1)]
    blocks = tuple(Block(str(i), n, edges[i], edges[i + 1]) for i, n in enumerate(nodals))
    return Call(blocks, ops.Sum(), (1, 1), (1, 1))


def losses(requested, dtype, seed):
    """The loss curve, and the numbers of terms that the first layer had."""
    keyed = torch.Generator().manual_seed(seed)

    def uniform(*shape):
        return torch.rand(shape, generator=keyed) * 2 - 1

    x = uniform(4, 2, 12, 11).to(dtype)
    target = torch.sin(3 * x[:, :1, 2:-2, 2:-2])
    first, second = call_of(FIRST, 6), call_of(SECOND, 2)
    weights = [(uniform(6, 2, 3, 3) * 0.3).to(dtype), (uniform(2, 6, 3, 3) * 0.1).to(dtype)]
    memories = [Memory(requested), Memory(requested)]
    found, terms = [], set()
    for _ in range(STEPS):
        leaves = [weight.requires_grad_() for weight in weights]
        hidden = torch.tanh(compute.run(first, x, leaves[0], None, None, memories[0]))
        y = torch.tanh(compute.run(second, hidden, leaves[1], None, None, memories[1]))
        loss = (y.mean(1, keepdim=True) - target).square().mean()
        grads = torch.autograd.grad(loss, leaves)
        weights = [(w.detach() - 0.05 * g) * GROWTH for w, g in zip(weights, grads, strict=True)]
        found.append(loss.item())
        terms.add(memories[0].reason.split(" terms")[0])
    return torch.tensor(found, dtype=torch.float64), terms


@pytest.mark.parametrize("seed", [0, 1])
def test_changing_terms_do_not_disturb_training(seed):
    exact, _ = losses("reference", torch.float64, seed)
    plain, _ = losses("reference", torch.float32, seed)
    curve, terms = losses("chebyshev", torch.float32, seed)
    assert len(terms) >= 4, terms
    deviations = [((c - exact).abs() / exact).max() for c in (curve, plain)]
    # the promise; over six seeds the ratio was 0.9 to 1.3
    assert deviations[0] <= 2 * deviations[1]
