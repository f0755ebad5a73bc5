"""The window with the largest mean error against a sum over every window; the same part of inputs of another size."""

import numpy as np
import pytest

from onn_runner.report.closeup import Window, worst_window


@pytest.mark.parametrize(("size", "side"), [((9, 13), 4), ((5, 5), 5), ((3, 8), 5), ((1, 1), 7), ((40, 3), 6)])
def test_the_window_has_the_largest_sum(size: tuple[int, int], side: int) -> None:
    error = np.random.default_rng(0).random(size).astype(np.float32)
    found = worst_window(error, side=side)
    height, width = min(side, size[0]), min(side, size[1])
    assert (found.height, found.width) == (height, width)
    places = [(top, left) for top in range(size[0] - height + 1) for left in range(size[1] - width + 1)]
    best = max(places, key=lambda at: error[at[0] : at[0] + height, at[1] : at[1] + width].sum(dtype=np.float64))
    assert (found.top, found.left) == best


def test_flat_errors_and_none_begin_at_the_corner() -> None:
    for value in (0.0, 0.1):
        assert worst_window(np.full((50, 60), value, np.float32), side=16) == Window(0, 0, 16, 16)


def test_what_is_not_finite_counts_as_large() -> None:
    error = np.zeros((20, 20), np.float32)
    error[12:15, 13:16] = np.nan
    error[0, 0] = 0.5
    found = worst_window(error, side=5)
    assert found.top <= 12
    assert found.top + 5 >= 15
    assert found.left <= 13
    assert found.left + 5 >= 16


def test_the_same_part_of_an_image_of_another_size() -> None:
    image = np.arange(12 * 16, dtype=np.float32).reshape(1, 12, 16)
    window = Window(4, 6, 6, 8)
    assert np.array_equal(window.of(image, (12, 16)), image[:, 4:10, 6:14])
    assert np.array_equal(window.of(image[:, ::2, ::2], (12, 16)), image[:, 4:10:2, 6:14:2])
    assert window.of(image[:, :1, :1], (12, 16)).shape == (1, 1, 1)
