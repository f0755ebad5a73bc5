"""Mixtures of a basis: fewer channels, and the same accuracy for large and tiny weights."""

import pytest
import torch

from onn_runner import ops
from onn_runner.compute import Memory
from onn_runner.compute.basis import Interval
from onn_runner.compute.convolution import convolve
from onn_runner.compute.expansion import Expansion, Mix, Series, banks, emphasis
from onn_runner.compute.plan import Plan

WIDE = {"channels": (4, 32), "size": (12, 13)}


def plan_of(memory):
    return Plan(**memory.plans["train"][0])


def channels(memory, groups=1):
    expansion = plan_of(memory).choice().expansion
    return sum(bank.count for bank in banks(expansion, groups)), sum(b.members for b in banks(expansion, groups))


@pytest.mark.parametrize(
    ("nodals", "most"),
    [
        ([ops.Sine(omega=1.5)], 4),
        ([ops.Exponential(omega=1.5)], 8),
        ([ops.Chirp(omega=1.5)], 4),
        ([ops.Gaussian(omega=1.5)], 7),
        ([ops.Sine(omega=1.5), ops.Exponential(omega=1.5), ops.Sinh(omega=1.5), ops.Multiply()], 10),
    ],
    ids=["sine", "exp", "chirp", "gaussian", "four"],
)
@pytest.mark.parametrize("groups", [1, 2])
def test_wide_layers_read_fewer_channels(case, nodals, most, groups):
    memory = case(nodals, groups=groups, channels=(4, 32 * groups), size=(12, 13)).check("chebyshev")
    count, members = channels(memory, groups)
    assert count <= most
    assert count <= members
    assert memory.reason.startswith(f"{count} terms")


def test_narrow_layers_do_not_pay_for_mixing(case):
    memory = case([ops.Sine(omega=1.5)], channels=(4, 2), kernel=(1, 1)).check("chebyshev")
    assert not plan_of(memory).mixes


def test_neurons_of_all_sizes_are_served_by_the_same_mixtures(case):
    layer = case([ops.Sine(omega=1.5)], **WIDE)
    layer.weight *= torch.logspace(-6, 0, 32)[:, None, None, None]
    assert plan_of(layer.check("chebyshev")).mixes


def test_a_polynomial_product_reads_the_basis_of_others(case):
    memory = case([ops.Sine(), ops.Multiply(), ops.Cubic(), ops.Quadratic(), ops.Exponential()], **WIDE).check("auto")
    assert {bank.form for bank in banks(plan_of(memory).choice().expansion, 1)} == {"odd", "even"}
    memory = case([ops.Sine(), ops.Log()], **WIDE).check("auto")
    assert {bank.form for bank in banks(plan_of(memory).choice().expansion, 1)} == {"odd", "product"}


def test_an_invertible_mixture_changes_nothing(case):
    layer = case([ops.Sine(), ops.Exponential()], **WIDE)
    series = (Series("odd", 7), Series("line", 13))
    plain = Expansion(Interval(-1.0, 1.0), series, centred=True)
    keyed = torch.Generator().manual_seed(2)
    mixes = []
    for bank in banks(plain, 1):
        scale = emphasis(bank.kind, bank.members)
        turned, _ = torch.linalg.qr(torch.randn(bank.members, bank.members, generator=keyed, dtype=torch.float64))
        mixes.append(Mix(bank.form, tuple(tuple(row) for row in (turned / scale).tolist())))
    mixed = Expansion(Interval(-1.0, 1.0), series, True, tuple(mixes))
    found = []
    for expansion in (plain, mixed):
        x, weight = layer.x.double().requires_grad_(), layer.weight.double().requires_grad_()
        y = convolve(x, weight, None, None, layer.call, expansion)
        found.append((y.detach(), *torch.autograd.grad(y.square().sum(), (x, weight))))
    for a, b in zip(*found, strict=True):
        # double precision, sums of some hundred terms
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10 * float(b.abs().max()))


def test_plans_keep_their_mixtures(case):
    layer = case([ops.Sine(omega=1.5)], **WIDE)
    memory = layer.check("chebyshev")
    again = Memory(requested="chebyshev")
    again.restore(memory.plain())
    assert torch.equal(layer.run("chebyshev", memory=again).y, layer.run("chebyshev", memory=memory).y)
    assert len(again.plans["train"]) == 1
