"""What the fused kernels refuse; that they are right, by the interpreter in a process of its own and on a GPU."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from onn_runner import compute, ops
from onn_runner.compute import Block, Call, Memory, fused
from onn_runner.errors import ConfigError

HERE = Path(__file__).parent
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")


@pytest.fixture(autouse=True)
def by_name(monkeypatch):
    """compute=fused, also where `auto` does not know it."""
    monkeypatch.setitem(compute.KERNELS, "fused", fused)


class OwnSine(ops.Sine):
    def __call__(self, w, x):
        return 2 * super().__call__(w, x)


class OwnSum(ops.Sum):
    pass


def call_of(nodal, pool=None, **rest):
    return Call((Block("one", ops.Sine(), 0, 1), Block("two", nodal, 1, 2)), pool or ops.Sum(), (1, 1), (1, 1), **rest)


@needs_triton
def test_it_refuses_what_is_not_the_catalogues():
    assert fused.refuse(call_of(ops.Log(), ops.Median(scale_by_taps=True))) is None
    reason = "two is not an operator of the catalogue, and only those have fused kernels"
    assert fused.refuse(call_of(OwnSine())) == reason
    assert fused.refuse(call_of(ops.FunctionNodal(function=torch.mul))) == reason
    assert fused.refuse(call_of(ops.Log(), ops.Correlation2())) == "the pool correlation2 has no fused kernel"
    assert fused.refuse(call_of(ops.Log(), OwnSum())) == "the pool sum has no fused kernel"
    assert fused.refuse(call_of(ops.Log(), transposed=True)) == "there are no fused kernels for transposed layers"


@needs_triton
def test_it_refuses_kernels_that_registers_or_a_byte_cannot_hold():
    assert fused.refuse_shape(call_of(ops.Log(), ops.Median()), (7, 7)) is None
    assert (
        fused.refuse_shape(call_of(ops.Log(), ops.Median()), (51,)) == "the fused median takes at most 49 taps, not 51"
    )
    assert fused.refuse_shape(call_of(ops.Log(), ops.Maximum()), (16, 16)) is None
    assert fused.refuse_shape(call_of(ops.Log(), ops.Maximum()), (17, 16)) == (
        "the fused maximum takes at most 256 taps, not 272"
    )
    assert fused.refuse_shape(call_of(ops.Log(), ops.Mean()), (99, 99)) is None


@needs_triton
def test_it_refuses_tensors_on_the_cpu(case):
    layer = case([ops.Sine()])
    assert fused.refuse_values(layer.x, layer.weight) == "the fused kernels need a CUDA device, and the input is on cpu"
    assert fused.trusted(layer.call, layer.x, layer.weight, Memory()) == fused.refuse_values(layer.x, layer.weight)
    with pytest.raises(ConfigError, match=r"compute=fused cannot serve this layer: .* CUDA device.*; use compute=auto"):
        layer.run("fused")


def test_it_can_be_imported_without_triton():
    program = (
        "import sys; sys.modules['triton'] = None\n"
        "from onn_runner import ops\n"
        "from onn_runner.compute import Block, Call, fused\n"
        "print(fused.refuse(Call((Block('sine', ops.Sine(), 0, 1),), ops.Sum(), (1,), (1,))))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.strip() == "triton is not installed"


@pytest.mark.slow
@needs_triton
def test_by_the_interpreter():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header", "--durations=0"]
    done = subprocess.run(
        [*command, str(HERE / "test_compute_fused_interpreted.py")],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        cwd=HERE.parent.parent,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert "skipped" not in done.stdout.splitlines()[-1]


@pytest.mark.gpu
@needs_triton
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("pool", ["sum", "mean", "median", "maximum", "minimum"])
def test_on_the_gpu(case, pool):
    compare_with_tapwise(case, pool, "cuda")


def compare_with_tapwise(case, pool, device):
    nodals = [ops.Sine(), ops.Exponential(), ops.Sinh(), ops.Sinc(), ops.Gaussian(), ops.DoG(), ops.Log(), ops.Chirp()]
    layer = case(nodals, pool=ops.named(pool), channels=(4, 16), size=(13, 20), groups=2, stride=(1, 2), batch=3)
    x, weight, gain, bias = (t.to(device) for t in (layer.x, layer.weight, layer.gain, layer.bias))
    assert fused.trusted(layer.call, x, weight, Memory()) is None
    upstream = torch.randn(3, 16, 11, 9, generator=torch.Generator().manual_seed(5)).to(device)

    def results(kernel):
        leaves = [t.clone().requires_grad_() for t in (x, weight, bias)]
        y = kernel.run(layer.call, *leaves[:2], gain, leaves[2], Memory())
        return [y.detach(), *torch.autograd.grad(y, leaves, upstream)]

    first, second, expected = results(fused), results(fused), results(compute.tapwise)
    for which, (one, again, other) in enumerate(zip(first, second, expected, strict=True)):
        assert torch.equal(one, again)
        # either may err by 1e-6 and by 3e-6 in gradients, and take another one of two taps that are equal to rounding
        allowed = 2e-6 if which == 0 else 6e-6 if pool in ("sum", "mean") else 1e-3
        assert (one - other).norm() <= allowed * other.norm()
