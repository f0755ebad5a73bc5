"""The fused kernels compiled for the GPUs of two generations, which needs no GPU."""

import re
from importlib.util import find_spec

import pytest
import torch

from onn_runner import ops
from onn_runner.ops import gop

if find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)

OPERATORS = [
    ops.Multiply(),
    ops.Cubic(),
    ops.Quadratic(),
    ops.Sine(),
    ops.Exponential(),
    ops.Sinh(),
    ops.Sinc(),
    ops.Chirp(k=10000.0),
    ops.Gaussian(),
    ops.DoG(),
    ops.Log(),
    gop.Exponential(),
    gop.Quadratic(),
    gop.Gaussian(),
    gop.DoG(),
]
TYPES = {torch.float32: "*fp32", torch.float64: "*fp64", torch.uint8: "*u8"}
CAPABILITIES = pytest.mark.parametrize("capability", [80, 90])


@pytest.fixture(scope="module", autouse=True)
def empty_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        yield


def launches(case, nodal, pool, dtype=torch.float32, size=(40, 40), channels=(16, 32), **sizes):
    """The three launches of a layer with one operator."""
    from onn_runner.compute.fused.launch import Layer

    layer = case([nodal], pool=ops.named(pool), channels=channels, size=size, batch=1, **sizes)
    made = Layer.of(layer.call, layer.x.to(dtype), layer.weight.to(dtype))
    y = torch.empty(1, channels[1], *made.sizes, dtype=dtype)
    index = None if pool == "sum" else torch.empty(1, *layer.weight.shape[:2], made.positions, dtype=torch.uint8)
    (block,) = layer.call.blocks
    gradient = made.backward_x(block, y, index, made.x)
    forward = made.forward(block, layer.gain.to(dtype), layer.bias.to(dtype), y, index)
    return forward, gradient, made.backward_w(block, y, index)[0]


def compiled(launch, capability):
    """The assembly of a launch, specialised as Triton does it: whole numbers that are 1 are constants."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    parameters = launch.kernel.params
    assert {p.name for p in parameters} == set(launch.arguments)
    signature, constants, hints = {}, {}, {}
    for i, parameter in enumerate(parameters):
        value = launch.arguments[parameter.name]
        if isinstance(value, torch.Tensor):
            signature[parameter.name] = TYPES[value.dtype]
        elif parameter.is_constexpr or value == 1:
            signature[parameter.name], constants[parameter.name] = "constexpr", value
        else:
            signature[parameter.name] = "i32"
        if signature[parameter.name] != "constexpr" and (isinstance(value, torch.Tensor) or value % 16 == 0):
            hints[(i,)] = [["tt.divisibility", 16]]
    source = ASTSource(fn=launch.kernel, signature=signature, constexprs=constants, attrs=hints)
    options = {"num_warps": launch.warps}
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options).asm


def check(launch, capability):
    assembly = compiled(launch, capability)
    assert re.search(rf"\.target sm_{capability}", assembly["ptx"])
    assert len(assembly["cubin"]) > 1000
    return assembly["ptx"]


@CAPABILITIES
@pytest.mark.parametrize(
    "nodal", OPERATORS, ids=lambda n: f"{type(n).__module__.rpartition('.')[2]}.{type(n).__name__}"
)
def test_operators(case, nodal, capability):
    for launch in launches(case, nodal, "sum"):
        check(launch, capability)


@CAPABILITIES
@pytest.mark.parametrize("pool", ["median", "maximum", "minimum"])
def test_pools(case, pool, capability):
    forward, *backward = launches(case, ops.Sine(), pool)
    # NaN is to stay NaN, which the plain minimum and maximum would drop
    assert re.search(r"(min|max)\.NaN\.f32", check(forward, capability))
    for launch in backward:
        check(launch, capability)


@CAPABILITIES
def test_double_precision(case, capability):
    for launch in launches(case, ops.Sinh(), "median", torch.float64):
        check(launch, capability)


SHAPES = {
    "stride and dilation": {"kernel": (3, 2), "stride": (2, 3), "dilation": (1, 2)},
    "1-D": {"size": (50,), "kernel": (5,), "channels": (1, 1)},
    "3-D": {"size": (5, 6, 7), "kernel": (1, 2, 3), "stride": (1, 2, 1), "groups": 16},
    "one pixel": {"size": (1, 1), "kernel": (1, 1), "channels": (1, 1)},
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("pool", ["sum", "maximum"])
def test_shapes(case, shape, pool):
    for launch in launches(case, ops.Log(), pool, **SHAPES[shape]):
        check(launch, 80)


def test_the_sine_reduces_large_arguments_exactly(case):
    """The hardware's own sine is wrong by 1e-7 |u| and more; a library sine ends in a polynomial."""
    assert "sin.approx" not in check(launches(case, ops.Sine(), "sum")[0], 90)
    assert "ex2.approx" not in check(launches(case, ops.Exponential(), "sum")[0], 90)
