"""Each noise against its distribution; bounds are five standard errors: one seed in a million would fail."""

from __future__ import annotations

import math

import pytest
import torch

from onn_runner.data.noise import Gaussian, Noise, Poisson, SaltAndPepper, Speckle, named
from onn_runner.errors import ConfigError
from onn_runner.seeding import generator

N = 40_000
LEVELS = {"sigma": 25, "amount": 0.1, "peak": 30, "spread": 0.2}


def noisy(noise: Noise, value: float) -> torch.Tensor:
    return noise(torch.full((1, 200, 200), value), generator("test")).double()


def assert_moments(values: torch.Tensor, *, mean: float, deviation: float, kurtosis: float) -> None:
    assert values.mean().item() == pytest.approx(mean, abs=5 * deviation / math.sqrt(N))
    spread = deviation**2 * math.sqrt((kurtosis - 1) / N)
    assert values.var().item() == pytest.approx(deviation**2, abs=5 * spread)


@pytest.mark.parametrize("value", [0.0, 0.3, 1.0])
def test_gaussian_has_sigma_of_255_grey_levels_and_is_not_clipped(value: float) -> None:
    result = noisy(Gaussian(25), value)
    assert_moments(result, mean=value, deviation=25 / 255, kurtosis=3)
    if value in (0.0, 1.0):
        assert ((result < 0) | (result > 1)).double().mean().item() == pytest.approx(0.5, abs=5 * 0.5 / math.sqrt(N))


@pytest.mark.parametrize("value", [0.2, 0.8])
def test_salt_and_pepper_replaces_its_share_by_black_and_white_alike(value: float) -> None:
    result = noisy(SaltAndPepper(0.1), value)
    error = 5 * math.sqrt(0.05 * 0.95 / N)
    assert (result == 0).double().mean().item() == pytest.approx(0.05, abs=error)
    assert (result == 1).double().mean().item() == pytest.approx(0.05, abs=error)
    assert set(result.unique().tolist()) == {0.0, torch.tensor(value).item(), 1.0}


@pytest.mark.parametrize("value", [0.1, 0.9])
def test_poisson_counts_photons(value: float) -> None:
    result = noisy(Poisson(30), value)
    photons = 30 * value
    assert_moments(result, mean=value, deviation=math.sqrt(value / 30), kurtosis=3 + 1 / photons)
    assert torch.allclose(result * 30, (result * 30).round(), atol=1e-5)


@pytest.mark.parametrize("value", [0.2, 0.9])
def test_speckle_is_in_proportion_to_the_value(value: float) -> None:
    assert_moments(noisy(Speckle(0.2), value), mean=value, deviation=0.2 * value, kurtosis=3)
    assert noisy(Speckle(0.2), 0.0).abs().max() == 0


@pytest.mark.parametrize("kind", ["gaussian", "salt_and_pepper", "poisson", "speckle"])
def test_same_generator_same_noise_and_the_clean_values_stay(kind: str) -> None:
    noise, clean = named(kind, **LEVELS), torch.rand(3, 16, 18, generator=generator("clean"))
    before = clean.clone()
    first, again, other = (noise(clean, generator("n", key)) for key in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(clean, before)
    assert first.dtype == torch.float32
    assert first.shape == clean.shape


def test_descriptions_name_the_level_in_its_units() -> None:
    assert Gaussian(25).describe() == "gaussian noise, sigma 25 of 255 grey levels"
    assert SaltAndPepper(0.1).describe() == "salt-and-pepper noise, 10 % of the values"
    assert Poisson(30).describe() == "poisson noise, 30 photons at white"
    assert Speckle(0.2).describe() == "speckle noise, deviation 20 % of the value"


@pytest.mark.parametrize("key", ["sigma", "amount", "peak", "spread"])
@pytest.mark.parametrize("value", [-1, 0, "25", True, None, math.nan, math.inf])
def test_impossible_levels_are_named(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"data\.{key} \(={value!r}\) must be "):
        named("gaussian", **{**LEVELS, key: value})  # type: ignore[arg-type]


def test_a_share_above_one_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"data\.amount \(=1\.5\) must be the share of values that are replaced"):
        named("salt_and_pepper", **{**LEVELS, "amount": 1.5})


def test_unknown_noise_lists_what_there_is() -> None:
    with pytest.raises(ConfigError, match=r"unknown data.noise 'gausian'. Did you mean gaussian\?.*salt_and_pepper"):
        named("gausian", **LEVELS)
    with pytest.raises(ConfigError, match=r"data.noise \(=3\) must be one of gaussian"):
        named(3, **LEVELS)


def test_more_photons_than_can_be_counted_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"data.peak .* at most 1e9"):
        named("poisson", **{**LEVELS, "peak": 1e20})
