"""Padding: `same` means ceil(size / stride) for every kernel; every impossible spec is refused by name and number."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from onn_runner.errors import ConfigError
from onn_runner.model import padding
from onn_runner.model.conv import Conv


@pytest.mark.parametrize("size", [1, 2, 7, 8, 33])
@pytest.mark.parametrize("kernel", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2])
def test_same_gives_ceil_of_size_over_stride(
    definition: Any, size: int, kernel: int, stride: int, dilation: int
) -> None:
    spec = definition.spec(kernel_size=(kernel,), stride=(stride,), dilation=(dilation,))
    assert padding.output_size(spec, (size,)) == (math.ceil(size / stride),)
    assert Conv()(spec)(torch.zeros(1, 4, size)).shape == (1, 4, math.ceil(size / stride))


def test_the_odd_one_is_behind(definition: Any) -> None:
    assert padding.amounts(definition.spec(kernel_size=(2, 4), dilation=(1, 3))) == ((0, 1), (4, 5))
    assert padding.amounts(definition.spec(padding="valid")) == ((0, 0), (0, 0))
    assert padding.amounts(definition.spec(padding=(2, 0))) == ((2, 2), (0, 0))


@pytest.mark.parametrize("size", [1, 2, 7])
@pytest.mark.parametrize("kernel", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("stride", [1, 2, 3, 5])
@pytest.mark.parametrize("dilation", [1, 2])
def test_same_gives_size_times_stride_where_transposed(
    definition: Any, size: int, kernel: int, stride: int, dilation: int
) -> None:
    spec = definition.spec(kernel_size=(kernel,), stride=(stride,), dilation=(dilation,), transposed=True)
    full = (size - 1) * stride + dilation * (kernel - 1) + 1
    assert padding.output_size(spec, (size,)) == (size * stride,)
    assert Conv()(spec)(torch.zeros(1, 4, size)).shape == (1, 4, size * stride)
    assert padding.crop(torch.ones(1, 4, full), spec).shape == (1, 4, size * stride)
    assert padding.extends(spec) == (full < size * stride)
    before, after = padding.amounts(spec)[0]
    assert before == max(full - size * stride, 0) // 2
    assert before + after == full - size * stride


def test_explicit_cropping_is_torchs_padding(definition: Any) -> None:
    spec = definition.spec(kernel_size=(4, 3), stride=(2, 1), padding=(2, 0), transposed=True)
    torchs = torch.nn.ConvTranspose2d(4, 4, (4, 3), stride=(2, 1), padding=(2, 0))
    x = torch.rand(1, 4, 5, 6)
    assert Conv()(spec)(x).shape == torchs(x).shape == (1, 4, *padding.output_size(spec, (5, 6)))
    assert padding.pad(x, spec) is x


REFUSED = {
    r"layer 0 \(conv\): groups \(=3\) must divide in_channels \(=4\)": {"groups": 3},
    r"groups \(=4\) must divide out_channels \(=6\)": {"groups": 4, "out_channels": 6},
    r"in_channels \(=0\) must be a positive whole number": {"in_channels": 0},
    r"out_channels \(=-2\) must be a positive whole number": {"out_channels": -2},
    r"groups \(=1.5\) must be a positive whole number": {"groups": 1.5},
    r"kernel_size \(=0\) must be a positive whole number": {"kernel_size": (3, 0)},
    r"stride \(=0\) must be a positive whole number": {"stride": (0, 1)},
    r"dilation \(=True\) must be a positive whole number": {"dilation": (1, True)},
    r"stride \(=\(1,\)\) must have one number per axis, 2 as kernel_size": {"stride": (1,)},
    r"must have 1, 2 or 3 axes": {"kernel_size": (1, 1, 1, 1)},
    r"unknown padding_mode 'reflekt'. Did you mean reflect": {"padding_mode": "reflekt"},
    r"unknown padding 'sam'. Did you mean same": {"padding": "sam"},
    r"padding \(=\(-1, 0\)\) must be": {"padding": (-1, 0)},
    r"padding \(=\(1,\)\) must be 'same', 'valid' or 2 numbers": {"padding": (1,)},
    r"output_padding \(=\(1, 0\)\) is of transposed layers with numbers for padding only": {"output_padding": (1, 0)},
    r"output_padding \(=\(1, 2\)\) must be 2 numbers from 0 on, each smaller than the stride": {
        "transposed": True,
        "padding": (0, 0),
        "stride": (2, 2),
        "output_padding": (1, 2),
    },
    r"a transposed layer crops its output .* padding_mode \(=reflect\) has no meaning; use padding_mode=zeros": {
        "transposed": True,
        "padding_mode": "reflect",
    },
}


@pytest.mark.parametrize(("message", "changes"), REFUSED.items(), ids=REFUSED)
def test_refused_spec(definition: Any, message: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=message):
        Conv()(definition.spec(**changes))


REFUSED_INPUTS = {
    r"the kernel spans 5 positions .* more than the input's 4 on axis 1": (
        {"kernel_size": (3, 5), "padding": "valid"},
        (6, 4),
    ),
    r"kernel spans 9 positions \(kernel_size 5, dilation 2\)": (
        {"kernel_size": (5,), "dilation": (2,), "padding": (0,)},
        (8,),
    ),
    r"padding \(=3\) must be less than the input's size \(=3\) with padding_mode=reflect; use zeros": (
        {"kernel_size": (7,), "padding_mode": "reflect"},
        (3,),
    ),
    r"padding \(=4\) must be at most the input's size \(=3\) with padding_mode=circular": (
        {"kernel_size": (8,), "padding_mode": "circular"},
        (3,),
    ),
    r"it must be \[batch, 4 channels, 2 spatial axes\]": ({}, (5,)),
    r"padding \(=\(0, 2\)\) of a transposed layer crops 4 of its output's 4 positions on axis 1, which leaves none": (
        {"transposed": True, "padding": (0, 2)},
        (2, 2),
    ),
    r"padding \(=valid\) of a transposed layer crops 0 of its output's 0 positions": (
        {"transposed": True, "padding": "valid"},
        (2, 0),
    ),
}


@pytest.mark.parametrize(("message", "case"), REFUSED_INPUTS.items(), ids=REFUSED_INPUTS)
def test_refused_input(definition: Any, message: str, case: tuple[dict[str, Any], tuple[int, ...]]) -> None:
    layer = Conv()(definition.spec(**case[0]))
    with pytest.raises(ConfigError, match=message):
        layer(torch.zeros(1, 4, *case[1]))
