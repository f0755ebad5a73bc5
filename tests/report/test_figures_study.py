"""Figures of a study: valid SVG in the page's colours, text of unknown origin as text, which methods are told apart."""

import math
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from PIL import Image

from onn_runner.report import figures_study_base as base
from onn_runner.report.figures_study_base import MOST, Mark, clean, worth_showing
from onn_runner.report.figures_study_costs import Point, front, plain, quality_and_cost
from onn_runner.report.figures_study_curves import POINTS, MethodCurve, Panel, learning_curves
from onn_runner.report.figures_study_images import confusions_svg, error_png, picture_png, scale_png, signal_svg
from onn_runner.report.figures_study_scores import MethodDifference, MethodScores, box_plots, differences

HOSTILE = "<script>alert(1)</script>\x00\x1b[31m\ud800 $x^2$ \"&' onerror=alert(1) " + "long " * 40
SVG = "{http://www.w3.org/2000/svg}"


def parsed(svg):
    """The root, after what every figure of a page must be."""
    assert "<script" not in svg
    assert "#fe00" not in svg, "a colour that the page does not know"
    root = ElementTree.fromstring(svg)
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    assert root.get("aria-label")
    assert not list(root.iter(f"{SVG}style")), "a style sheet would be one of the whole page"
    assert not any(key.lower().startswith("on") for element in root.iter() for key in element.attrib)
    names = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(names) == len(set(names))
    referred = re.findall(r'(?:href="|url\()#([^")]+)', svg)
    assert set(referred) <= set(names)
    assert all(target.startswith(("#", "data:image/png;base64")) for target in re.findall(r'href="([^"]*)"', svg))
    return root


def texts(svg):
    return ["".join(element.itertext()) for element in parsed(svg).iter(f"{SVG}text")]


def curve(number, values, place=None, label=None):
    mean = np.asarray(values, float)
    epochs = np.arange(1, len(mean) + 1, dtype=float)
    return MethodCurve(Mark(number, label or f"m{number}", place), epochs, mean, mean - 0.1, mean + 0.1)


def figures(label):
    """One of every kind, with `label` wherever text is taken."""
    marked = [curve(1, [1, 2, 3], 0, label), curve(2, [2, 3, 1], None, label)]
    yield learning_curves([Panel(label, marked, True), Panel(label, marked, False, True)], alternative=label)
    scores = [
        MethodScores(1, label, [[1.0, 2.0, math.nan]] * 2, 1.5, (0, 1)),
        MethodScores(2, "b", [[2.0]], None, (None,)),
    ]
    yield box_plots(scores, label=label, higher=True, alternative=label)
    rows = [MethodDifference(1, label, 0.5, 0.1, 0.9, label), MethodDifference(2, label, None, None, None, label)]
    yield differences(rows, label=label, higher=True, alternative=label)
    points = [Point(1, label, 1e3, 20.0), Point(2, label, 2e3, 19.0)]
    yield quality_and_cost(points, higher=True, score=label, cost=label, alternative=label)
    yield confusions_svg(np.array([[3, 1], [0, 0]]), [label, "b"], alternative=label)
    yield signal_svg(np.arange(3.0), np.arange(6.0), np.arange(6.0), span=(0, 6), alternative=label)


def test_text_of_unknown_origin_stays_text():
    for svg in figures(HOSTILE):
        assert "\x00" not in svg
        svg.encode()
        parsed(svg)


def test_the_same_figure_is_the_same_text_and_names_its_parts_apart_from_others():
    first, again = list(figures("a")), list(figures("a"))
    assert first == again
    names = [set(re.findall(r' id="([^"]+)"', svg)) for svg in first]
    for number, own in enumerate(names):
        assert all(not own & other for other in names[number + 1 :])


def test_clean():
    assert clean("a\tb\nc é 中 ±") == "a\tb\nc é 中 ±"
    assert clean("\x00\x1b\x7f\x85\ud800\uffff") == "\ufffd" * 6


@pytest.mark.parametrize("count", [1, 2, 40])
def test_curves_of_one_and_many_methods_and_epochs(count):
    curves = [curve(n + 1, np.linspace(20, 30 + n, 1000), n if n < MOST else None) for n in range(count)]
    svg = learning_curves([Panel("PSNR", curves, True)], alternative="curves")
    shown = texts(svg)
    assert [text for text in shown if text.startswith("1 m1")]
    assert ("32 others" in shown) == (count == 40)
    longest = max(len(re.findall("L", path.get("d"))) for path in parsed(svg).iter(f"{SVG}path"))
    assert longest < 2.5 * POINTS, "a band has twice as many points as a line"


def test_a_single_epoch_and_a_loss_that_is_not_positive_are_drawn():
    panel = Panel("loss", [curve(1, [0.5], 0), curve(2, [-1.0], 1), curve(3, [2.0])], False, True)
    assert "epoch" in texts(learning_curves([panel], alternative="curves"))


def test_what_is_far_worse_is_left_out_and_only_that():
    assert worth_showing([30.0, 29.5, 29.0, 28.5], higher=True) is None
    assert worth_showing([30.0, 29.99, 28.0, 27.0], higher=True) is None, "no two of three are near by chance"
    low, high = worth_showing([30.0, 29.5, 29.0, -170.0], higher=True)
    assert low < 29.0 < 30.0 < high
    assert low > 20
    low, high = worth_showing([0.01, 0.011, 0.012, 5.0], higher=False)
    assert low < 0.01 < 0.012 < high < 0.1
    assert worth_showing([30.0, 29.5, -5.0], higher=True, within=[8.0, 8.0, 8.0]) is None, "folds are as far apart"
    assert worth_showing([30.0, -170.0, 1.0], higher=None) is None
    assert worth_showing([30.0, -170.0], higher=True) is None
    assert worth_showing([math.nan, 3.0, 3.0, math.inf], higher=True) is None


def test_boxes_show_every_value_and_name_means_beyond_the_border():
    methods = [
        MethodScores(n, f"m{n}", [[20.0 + n, 21.0 + n, 22.0 + n], [20.5 + n, 21.5 + n, 22.2 + n]], 21.0 + n, (0, 7))
        for n in range(4)
    ]
    plain_boxes = box_plots(methods, label="PSNR", higher=True, alternative="boxes")
    assert {"a fold, seed 0", "seed 7", "mean", "quartiles, median"} <= set(texts(plain_boxes))
    markers = [use for use in parsed(plain_boxes).iter(f"{SVG}use") if "--hue" in (use.get("style") or "")]
    assert len(markers) == 24 + 2, "every fold of every seed, and two in the legend"
    worse = MethodScores(9, "failed", [[-170.0, -171.0, -172.0]], -171.0, (0,))
    shown = texts(box_plots([*methods, worse], label="PSNR", higher=True, alternative="boxes"))
    assert any("-171" in text and "←" in text for text in shown)


def test_few_values_have_no_box_and_many_seeds_one_colour():
    few = [MethodScores(1, "a", [[1.0], [2.0]], 1.5, (0, 1))]
    assert "quartiles, median" not in texts(box_plots(few, label="x", higher=None, alternative="x"))
    many = [MethodScores(1, "a", [[float(seed)] for seed in range(20)], 9.5, tuple(range(20)))]
    assert "a fold of a seed" in texts(box_plots(many, label="x", higher=None, alternative="x"))


def test_differences_say_which_side_is_better_and_how_far_off_the_others_are():
    near = [MethodDifference(n, f"m{n}", 0.1 * n, 0.1 * n - 0.05, 0.1 * n + 0.05, "n = 6") for n in range(3)]
    far = MethodDifference(8, "far", -150.0, -150.1, -149.9)
    up = texts(differences([*near, far], label="d", higher=True, alternative="d"))
    assert up.index("← worse") < up.index("better →")
    assert any("-150" in text for text in up)
    assert "← better" in texts(differences(near, label="d", higher=False, alternative="d"))
    assert not any("better" in text for text in texts(differences(near, label="d", higher=None, alternative="d")))


def test_the_front_holds_what_none_beats_in_both():
    points = [Point(n, str(n), cost, score) for n, cost, score in
              [(1, 10, 20), (2, 5, 19), (3, 10, 19.5), (4, 20, 20), (5, 4, 21), (6, 30, 22), (7, 30, 22)]]  # fmt: skip
    assert [point.number for point in front(points, higher=True)] == [5, 6, 7]
    assert [point.number for point in front(points, higher=False)] == [5, 2]
    assert [point.number for point in front(points[:4], higher=True)] == [2, 1]


def test_the_front_by_brute_force():
    chance = np.random.default_rng(0)
    for higher in (True, False):
        values = chance.integers(1, 8, (40, 2))
        points = [Point(n, str(n), float(cost), float(score)) for n, (cost, score) in enumerate(values)]
        sign = 1 if higher else -1

        def beats(a, b, sign=sign):
            no_worse = a.cost <= b.cost and sign * a.score >= sign * b.score
            return no_worse and (a.cost < b.cost or sign * a.score > sign * b.score)

        expected = {p.number for p in points if not any(beats(other, p) for other in points)}
        assert {p.number for p in front(points, higher=higher)} == expected


@pytest.mark.parametrize("costs", [(5.0, 5.0), (5.0, 6.0), (1.0, 1e3), (1e-3, 1e12)])
def test_names_stay_inside_and_apart_on_any_scale(costs):
    points = [Point(1, "a", costs[0], 1.0), Point(2, "b", costs[1], 2.0), Point(3, "c", costs[1], 2.0)]
    shown = texts(quality_and_cost(points, higher=True, score="PSNR", cost="MACs", alternative="x"))
    assert {"PSNR", "MACs"} <= set(shown)
    assert any(text.startswith("2 b") for text in shown)


def test_plain_numbers():
    assert [plain(value) for value in (0.5, 999, 1500, 2.25e6, 3e9, 4e12)] == [
        "0.5",
        "999",
        "1.5 k",
        "2.25 M",
        "3 G",
        "4 T",
    ]


def pixels(png):
    import io

    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


def test_pictures_have_their_own_size_and_cyan_where_not_finite():
    values = np.array([[[0.0, 1.0, 2.0], [-1.0, np.nan, 0.5]]], np.float16)
    found = pixels(picture_png(values))
    assert found.shape == (2, 3, 3)
    assert found[0].tolist() == [[0] * 3, [255] * 3, [255] * 3]
    assert found[1].tolist() == [[0] * 3, [0, 255, 255], [128] * 3]
    colours = pixels(picture_png(np.array([[[1.0]], [[0.5]], [[0.0]]])))
    assert colours[0, 0].tolist() == [255, 128, 0]


def test_errors_are_on_the_given_scale():
    found = pixels(error_png(np.array([[0.0, 0.1, 0.2, 9.0, np.inf]]), 0.2))
    scale = pixels(scale_png())
    assert found[0, 0].tolist() == scale[0, 0].tolist()
    assert found[0, 2].tolist() == found[0, 3].tolist() == scale[0, -1].tolist()
    assert found[0, 4].tolist() == [0, 255, 255]
    assert found[0, 0].sum() < found[0, 1].sum() < found[0, 2].sum()


@pytest.mark.parametrize("classes", [1, 2, 12, 13, 31])
def test_confusions_of_few_and_many_classes(classes):
    counts = np.eye(classes, dtype=np.int64) * 3
    shown = texts(confusions_svg(counts, [f"class {n}" for n in range(classes)], alternative="confusions"))
    assert shown.count("100") == (classes if classes <= 12 else 0)
    assert ("class 0" in shown) == (classes <= 30)


def test_methods_are_told_apart_by_more_than_colour():
    looks = [(Mark(1, "m", place).dashes, Mark(1, "m", place).marker) for place in range(base.MOST)]
    assert len(set(map(str, looks))) == base.MOST
    assert len({marker for _, marker in looks}) == base.MOST
