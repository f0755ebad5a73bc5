"""Values from a config: what passes, and the sentence that says what would have."""

from __future__ import annotations

import math

import pytest

from onn_runner import checks
from onn_runner.errors import ConfigError


def test_what_fits_is_given_back() -> None:
    assert checks.whole_number("a.b", 0, least=0) == 0
    assert checks.positive("a.b", 3, "x") == 3.0
    assert checks.flag("a.b", False) is False
    assert checks.choice("a.b", "one", ["one", "two"]) == "one"
    assert checks.pair("a.b", 5, least=1) == (5, 5)
    assert checks.pair("a.b", [5, 7], least=1) == (5, 7)


@pytest.mark.parametrize("value", [-1, 1.0, "1", True, None, [1]])
def test_whole_numbers(value: object) -> None:
    with pytest.raises(ConfigError, match=r"^a\.b \(=.*\) must be a whole number of at least 0$"):
        checks.whole_number("a.b", value, least=0)


@pytest.mark.parametrize("value", [0, -0.5, "1", True, None, math.nan, math.inf, 2])
def test_positive_numbers(value: object) -> None:
    with pytest.raises(ConfigError, match=r"^a\.b \(=.*\) must be in \(0, 1\]$"):
        checks.positive("a.b", value, "in (0, 1]", most=1)


@pytest.mark.parametrize("value", [0, 1, "true", None])
def test_flags(value: object) -> None:
    with pytest.raises(ConfigError, match=r"must be true or false"):
        checks.flag("a.b", value)


@pytest.mark.parametrize("value", [0, [3], [3, 4, 5], [3, 0], "34", [3.0, 4], None])
def test_pairs(value: object) -> None:
    with pytest.raises(ConfigError, match=r"must be a whole number of at least 1, or two: \[height, width\]"):
        checks.pair("a.b", value, least=1)


def test_choices_give_the_close_match() -> None:
    with pytest.raises(ConfigError, match=r"unknown a.b 'tow'. Did you mean two\? Options: one, two."):
        checks.choice("a.b", "tow", ["one", "two"])


def test_amounts_in_words() -> None:
    assert [checks.amount(count, "fold") for count in (0, 1, 1250)] == ["0 folds", "1 fold", "1,250 folds"]
    assert [checks.amount(count, "patch", several="patches") for count in (1, 2)] == ["1 patch", "2 patches"]
