"""Sampling words: sizes, ranges and values by hand, and chains of them that come back to the input's size."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from onn_runner.errors import ConfigError
from onn_runner.model.base import LayerSpec
from onn_runner.model.conv import Conv
from onn_runner.network.compact import Compact
from onn_runner.network.sampling import Sampling, parse, resize
from onn_runner.network.slots import spec_of

WORDS = ["none", "max2", "avg3", "up2", "bilinear3", "bicubic2", "strided2", "transposed4", "to7", "to5x9", "to_input"]


@pytest.mark.parametrize("word", WORDS)
def test_a_word_is_written_as_it_is_read_and_gives_the_size_that_it_says(word: str) -> None:
    sampling = parse(word)
    assert str(sampling) == word
    x = torch.rand(1, 2, 13, 10)
    assert tuple(sampling(x, (20, 21)).shape[2:]) == sampling.size((13, 10), (20, 21))


@pytest.mark.parametrize(("word", "axes"), [("bilinear2", 1), ("bilinear2", 3), ("to6", 1), ("to6", 3), ("to4x5x6", 3)])
def test_other_numbers_of_axes(word: str, axes: int) -> None:
    sampling = parse(word)
    sampling.check(axes)
    x = torch.rand(1, 2, *(5, 7, 4)[:axes])
    assert tuple(sampling(x).shape[2:]) == sampling.size(tuple(x.shape[2:]))


@pytest.mark.parametrize("word", ["to", "to0", "to6x", "tox6", "max", "up0", "cubic2", "strided", "to_output", "to6.5"])
def test_what_is_no_word(word: str) -> None:
    with pytest.raises(ConfigError, match=f"network.sampling holds '{word}'; write none, max2"):
        parse(word)


def test_axes_that_shrink_are_averaged_and_axes_that_grow_are_interpolated() -> None:
    x = torch.rand(1, 1, 6, 4)
    rows = x.reshape(1, 1, 3, 2, 4).mean(3)
    torch.testing.assert_close(resize(x, (3, 4)), rows)
    torch.testing.assert_close(resize(x, (3, 9)), F.interpolate(rows, size=(3, 9), mode="bilinear"))
    assert torch.equal(resize(x, (6, 4)), x)


def test_cubic_interpolation_overshoots_by_no_more_than_its_bound() -> None:
    sampling = Sampling("bicubic", 2)
    assert sampling.bound((-1.0, 3.0), 2) == (1 - 2 * 1.375**2, 1 + 2 * 1.375**2)
    x = (torch.rand(1, 64, 9, 9) > 0.5).float() * 4 - 1
    for factor in (2, 3, 5, 8):
        low, high = Sampling("bicubic", factor).bound((-1.0, 3.0), 2) or (0.0, 0.0)
        y = Sampling("bicubic", factor)(x)
        assert low <= y.min() < -1
        assert 3 < y.max() <= high
    assert Sampling("bicubic", 2).bound(None, 2) is None
    assert Sampling("bilinear", 2).bound((-1.0, 3.0), 2) == (-1.0, 3.0)


def test_the_layer_itself_samples() -> None:
    spec = spec_of(0, 1, 2, kernel=(3, 3), padding_mode="reflect")
    strided, transposed = parse("strided3").in_layer(spec), parse("transposed2").in_layer(spec)
    assert (strided.stride, strided.transposed, strided.padding_mode) == ((3, 3), False, "reflect")
    assert (transposed.stride, transposed.transposed, transposed.padding_mode) == ((2, 2), True, "zeros")
    assert isinstance(spec, LayerSpec)
    assert parse("max2").in_layer(spec) is spec


def chain(words: list[Any], **changes: Any) -> Compact:
    given = {"channels": [2] * (len(words) - 1), "input_size": (16, 16), "residual": False} | changes
    return Compact(Conv("tanh"), 1, out_channels=1, sampling=words, **given)


@pytest.mark.parametrize(
    "words",
    [
        ["strided2", "transposed2", "none"],
        ["strided2", "strided2", "bilinear4", "none"],
        ["max2", "bicubic2", "none"],
        ["to8", "none", "to_input", "none"],
        ["to8x5", "up2", "to_input"],
        ["avg3", "none", "to_input", "max2", "up2"],
        ["none", "none", "transposed2", "avg2"],
    ],
)
def test_any_size_comes_back(words: list[Any]) -> None:
    network = chain(words)
    for size in [(16, 16), (37, 53), (3, 2), (17, 1)]:
        assert network(torch.rand(1, 1, *size)).shape == (1, 1, *size)


def test_strided_and_transposed_by_hand() -> None:
    network = chain(["strided2", "transposed2", "none"], kernels=[3, 2, 1], centre=False)
    a, b, c = network.layers
    x = torch.rand(1, 1, 6, 8)
    z = torch.tanh(F.conv2d(x, a.weight, a.bias, stride=2, padding=1))
    z = torch.tanh(F.conv_transpose2d(z, b.weight.transpose(0, 1), b.bias, stride=2))
    torch.testing.assert_close(network(x), F.conv2d(z, c.weight, c.bias))


@pytest.mark.parametrize(
    ("message", "words", "changes"),
    [
        ("multiplies it by 1 after to_input; both must be equal", ["to_input", "max2", "none"], {}),
        ("divides the size by 1 and multiplies it by 2", ["transposed2", "none"], {}),
        (r"output \(=8x8\) must have the input's size \(=16x16\); end network.sampling with to_input",
         ["to8", "none"], {}),
        ("network.sampling=to8x8 names 2 axes, the data has 1", ["to8x8", "to_input"], {"input_size": (16,)}),
        ("network.sampling=bicubic2 is for images, the data has 1 axes", ["avg2", "bicubic2"], {"input_size": (16,)}),
    ],
)  # fmt: skip
def test_refused(message: str, words: list[Any], changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=message):
        chain(words, **changes)


def test_a_size_that_training_had_may_not_fit_another_input() -> None:
    network = chain(["to16", "none"])
    assert network(torch.rand(1, 1, 16, 16)).shape == (1, 1, 16, 16)
    with pytest.raises(ConfigError, match=r"output \(=16x16\) must have the input's size \(=20x16\); end"):
        network(torch.rand(1, 1, 20, 16))
