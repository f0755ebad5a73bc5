"""Figures are drawn whatever the values are, and say what they show; what they look like was looked at."""

import io
import math

import matplotlib
import numpy as np
import pytest
from PIL import Image

from onn_runner.report.figures import BAD, blank, plain_style, png, shortened, text_at
from onn_runner.report.figures_curves import Curve, _make_logarithmic, learning_curves
from onn_runner.report.figures_strips import _explained, _notes, _signal_notes, strips
from onn_runner.report.pixels import Strip, error_of, error_scale, part_of, picture, reduced, shown, window_of


def opened(content):
    image = Image.open(io.BytesIO(content))
    image.load()
    return image


def values(*shape, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def strip(given, output, target, name="item", scores=("PSNR 20.0 → 25.0 dB",)):
    return Strip("worst", name, scores, given, output, target)


NAMES = ["a=1 [3,4]", "$x_{", "zwölf Bäume.png", "日本", "", "x" * 400, "line\nbreak", "bad\udcff"]


def test_any_name_can_be_written():
    items = [strip(*[values(1, 5, 7)] * 3, name=name, scores=[name]) for name in NAMES]
    assert opened(strips(items, title=" ".join(NAMES), data_range=(-1, 1))).width > 500


@pytest.mark.parametrize(
    "shapes",
    [
        [(1, 1, 1)] * 3,
        [(1, 9, 5)] * 3,
        [(3, 4, 60)] * 3,
        [(1, 6, 4), (1, 12, 8), (1, 12, 8)],
        [(5, 6, 4), (2, 6, 4), (2, 6, 4)],
        [(1, 300, 700)] * 3,
        [(2, 3, 8, 9)] * 3,
        [(1, 50)] * 3,
        [(2, 25), (1, 50), (1, 50)],
        [(1, 1)] * 3,
    ],
)
@pytest.mark.parametrize("broken", [False, True])
def test_any_shape_and_values_that_are_not_finite_can_be_drawn(shapes, broken):
    given, output, target = (values(*shape, seed=seed).copy() for seed, shape in enumerate(shapes))
    if broken:
        output[:] = np.nan
    assert opened(strips([strip(given, output, target)] * 2, title="t", data_range=(-1, 1))).height > 100


def test_the_same_picture_is_the_same_bytes():
    items = [strip(*[values(3, 6, 6)] * 3)]
    first, second = (strips(items, title="t", data_range=(-1, 1)) for _ in range(2))
    assert first == second


def test_a_perfect_output_has_a_scale_too():
    flat = np.zeros((1, 4, 4), np.float32)
    assert error_scale([flat[0]]) == (1.0, False)
    assert opened(strips([strip(flat, flat, flat)], title="t", data_range=(0, 255)))


def test_the_scale_covers_all_but_single_errors():
    error = np.full((100, 100), 0.25, np.float32)
    error[0, 0] = 9.0
    limit, beyond = error_scale([error])
    assert (limit, beyond) == (0.25, True)
    assert error_scale([np.array([[np.nan, 0.5]], np.float32)]) == (pytest.approx(0.5, rel=1e-6), False)


def test_values_are_shown_in_the_data_range_and_bad_ones_are_marked():
    image = np.array([[[-1.0, 0.0, 1.0], [3.0, np.nan, np.inf]]], np.float32)
    drawn = picture(image, (-1.0, 1.0))
    assert drawn[0, :, 0].tolist() == [0.0, 0.5, 1.0]
    assert drawn[1, 0].tolist() == [1.0, 1.0, 1.0]
    assert drawn[1, 1].tolist() == drawn[1, 2].tolist() == list(BAD)


def test_large_images_are_averaged_down_and_that_is_said():
    image = values(1, 300, 520)
    small = reduced(image)
    assert small.shape == (1, 100, 173)
    np.testing.assert_allclose(
        small[0, 3, 5], image[0, 9:12, 15:18].mean(), rtol=1e-5
    )  # a sum of 9 in single precision
    assert _notes(strip(image, image, image)) == ["300 x 520, shown at 1/3"]


def test_channels_that_are_no_colours_are_shown_side_by_side_and_each_with_its_error():
    image = values(5, 4, 6)
    tiles = shown(image)
    assert tiles.shape == (1, 8, 18)
    for channel in range(5):
        row, column = divmod(channel, 3)
        tile = tiles[0, row * 4 : row * 4 + 4, column * 6 : column * 6 + 6]
        assert np.array_equal(tile, image[channel])
    assert not tiles[0, 4:, 12:].any(), "no sixth channel"
    error = error_of(strip(image, image + np.arange(5, dtype=np.float32)[:, None, None], image))
    np.testing.assert_allclose(error[4:, 6:12], 4, rtol=1e-6)  # a difference in single precision
    colour = values(3, 4, 6)
    assert shown(colour) is colour


def test_of_large_images_the_part_with_the_largest_error_is_shown_at_full_size():
    target = values(1, 300, 520)
    output = target.copy()
    output[0, 120:200, 380:460] += 1
    item = strip(target[:, ::2, ::2], output, target)
    part = part_of(item, window_of(item))
    assert part.target.shape == (1, 128, 128)
    assert part.input.shape == (1, 64, 64)
    # All of the 80 x 80 errors lie in it.
    assert int((part.output != part.target).sum()) == 80 * 80
    small = strip(*[values(1, 100, 200)] * 3)
    assert window_of(small) is None
    drawn = [opened(strips([one], title="t", data_range=(-1, 1))) for one in (small, item)]
    assert drawn[1].height > drawn[0].height + 200
    tiled = strip(*[values(9, 120, 200)] * 3)
    assert shown(part_of(tiled, window_of(tiled)).target).shape == (1, 255, 255)


def test_only_what_is_to_be_seen_is_explained():
    grey, colour = values(1, 4, 4), values(3, 4, 4)
    assert _explained([strip(grey, grey, grey)], (0, 1)) == "Values from 0 to 1 are shown."
    assert "errors of colours are means of three" in _explained([strip(colour, colour, colour)], (0, 1))
    assert _explained([strip(grey, grey * np.nan, grey)], (-1, 1)).endswith("; cyan: not finite.")


def test_it_is_said_what_of_an_item_is_not_shown():
    many, two = values(5, 4, 4), values(2, 8, 8)
    assert _notes(strip(many, two, two)) == ["4 x 4 to 8 x 8", "input: 5 channels", "output: 2 channels"]
    assert _notes(strip(values(1, 4, 4), *[values(31, 4, 4)] * 2)) == ["4 x 4", "output: 31 channels, 1-9 shown"]
    assert _notes(strip(values(1, 4, 4), *[values(3, 4, 4)] * 2)) == ["4 x 4", "output: 3 channels as a colour"]
    assert _notes(strip(*[values(4, 200, 90)] * 3)) == [
        "200 x 90, shown at 1/2", "input: 4 channels", "output: 4 channels",
    ]  # fmt: skip
    volume = values(1, 3, 4, 5)
    assert "middle slice" in _notes(strip(volume, volume, volume))
    broken = values(1, 9)
    broken[0, 4] = math.nan
    assert _signal_notes(strip(values(2, 9), broken, values(1, 9))) == [
        "9 samples", "channel 1 of 2 in, 1 out", "gaps: not finite",
    ]  # fmt: skip


def test_long_names_lose_their_middle():
    assert shortened("abc", 3) == "abc"
    assert shortened("abcdefgh", 5) == "ab…gh"
    assert len(shortened("x" * 99, 20)) == 20


def test_the_readers_own_matplotlib_settings_do_not_matter():
    def drawn():
        with plain_style():
            figure = blank(1, 1)
            text_at(figure, 0.1, 0.1, "$x$")
            return png(figure)

    expected = drawn()
    with matplotlib.rc_context({"text.usetex": True, "figure.facecolor": "red", "font.size": 30.0}):
        assert drawn() == expected
        assert matplotlib.rcParams["text.usetex"], "the settings around it come back"


def curve(fold=0, start=0, epochs=5, **changes):
    points = {
        f"{split}/{m}": {e: 1 / e for e in range(1, epochs + 1)} for split in ("train", "val") for m in ("loss", "psnr")
    }
    standard = {"fold": fold, "start": start, "values": points, "best_epoch": epochs, "diverged": False, "chosen": True}
    return Curve(**{**standard, **changes})


@pytest.mark.parametrize(
    "curves",
    [
        [curve()],
        [curve(epochs=1)],
        [curve(0), curve(1, epochs=3), curve(1, 1, chosen=False)],
        [curve(0, diverged=True, chosen=False, best_epoch=None)],
        [curve(values={})],
        [curve(values={"train/loss": {1: -1.0, 2: 0.0}})],
        [curve(values={"train/loss": {1: math.inf, 2: math.nan}, "val/psnr": {1: math.inf}})],
        [curve(values={"train/loss": {e: 10.0 ** (-e) for e in range(1, 9)}})],
    ],
)
@pytest.mark.parametrize("metric", ["psnr", "loss"])
def test_any_course_of_training_can_be_drawn(curves, metric):
    drawn = learning_curves(curves, metric=metric, label="PSNR [dB]", title="run")
    assert (opened(drawn).width > 700) == (metric == "psnr"), "the loss is not drawn twice"


@pytest.mark.parametrize("span", [1.001, 1.5, 12.0, 1e5])
def test_a_logarithmic_axis_has_ticks_in_plain_numbers(span):
    figure = blank(4, 3)
    axes = figure.add_axes((0.2, 0.2, 0.7, 0.7))
    axes.plot([1, 2], [0.0031, 0.0031 * span])
    _make_logarithmic(axes)
    figure.canvas.draw()
    low, high = axes.get_ylim()
    shown = [
        label.get_text()
        for at, label in zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)
        if low <= at <= high
    ]
    assert len(shown) >= 2
    assert all(float(text) > 0 for text in shown)


def test_one_epoch_alone_is_a_dot_in_the_legend_too(monkeypatch):
    seen = []
    monkeypatch.setattr("matplotlib.figure.Figure.legend", lambda self, handles, **rest: seen.extend(handles))
    keys = {"train/loss": {1: 0.5}, "val/loss": {1: 0.4}}
    learning_curves([Curve(fold, 0, keys, 1, False, True) for fold in (0, 1)], metric="loss", label="loss", title="t")
    assert [(line.get_label(), line.get_linestyle(), line.get_marker()) for line in seen[:2]] == [
        ("training", "None", "."), ("validation", "None", "."),
    ]  # fmt: skip
    assert not any("bold" in line.get_label() for line in seen)
