"""Baselines: the input's score is the noise's, parameters come from the training part, and every item has its score."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from onn_runner.data.base import Shape
from onn_runner.data.denoise import Denoise
from onn_runner.metric.base import ItemMetric
from onn_runner.metric.image import Mse, Psnr, Snr
from onn_runner.partition.base import Fold
from onn_runner.partition.kfold import GroupKFold
from onn_runner.task.baseline import (
    BaselineResult,
    Method,
    estimated_deviation,
    evaluate,
    item_rows,
    measure,
    methods,
    non_local_means,
)

SIGMA_25 = 20 * np.log10(255 / 25)


def metrics() -> dict[str, ItemMetric]:
    return {"psnr": Psnr(), "snr": Snr(), "mse": Mse()}


@pytest.fixture(scope="module")
def source() -> Denoise:
    return Denoise(photographs=["camera", "coins", "page", "text"], patches=8, max_side=160, patch=40)


@pytest.fixture(scope="module")
def fold(source: Denoise) -> Fold:
    return GroupKFold(folds=2, validation=0).split(source)[0]


@pytest.fixture(scope="module")
def results(source: Denoise, fold: Fold) -> dict[str, BaselineResult]:
    return measure(source, fold, metrics)


def test_the_untouched_input_scores_what_the_noise_says(results: dict[str, BaselineResult]) -> None:
    untouched = results["untouched input"]
    # Mean over few patches of 1600 values: the mse of one has deviation sqrt(2/1600) = 3.5 % = 0.15 dB.
    assert untouched.means["test/psnr"] == pytest.approx(SIGMA_25, abs=0.3)
    assert untouched.means["photo/psnr"] == pytest.approx(SIGMA_25, abs=0.3)


def test_filters_improve_on_it_and_non_local_means_most(results: dict[str, BaselineResult]) -> None:
    names = ["untouched input", "gaussian blur", "non-local means"]
    assert list(results) == names
    for key in ("test/psnr", "photo/psnr"):
        values = [results[name].means[key] for name in names]
        assert values == sorted(values)
        assert values[-1] > values[0] + 4


def test_every_test_item_and_photograph_has_its_score(
    source: Denoise, fold: Fold, results: dict[str, BaselineResult]
) -> None:
    photographs = source.whole([source.groups[index] for index in fold.test])
    for result in results.values():
        assert set(result.means) == {f"{split}/{name}" for split in ("test", "photo") for name in metrics()}
        assert len(result.items["test/psnr"]) == len(fold.test)
        assert len(result.items["photo/psnr"]) == len(photographs)
        assert result.means["test/psnr"] == pytest.approx(np.mean(result.items["test/psnr"]))
        assert result.left_out["test/snr"] == 0
    item = source.fixed(fold.test[3:4])[0]
    expected = -10 * np.log10(float((item["input"] - item["target"]).square().mean()))
    assert results["untouched input"].items["test/psnr"][3] == pytest.approx(expected, abs=1e-4)


def test_parameters_are_chosen_without_the_test_part(
    source: Denoise, fold: Fold, results: dict[str, BaselineResult]
) -> None:
    other = measure(source, replace(fold, test=fold.test[:1]), metrics)
    assert [result.note for result in other.values()] == [result.note for result in results.values()]
    assert results["gaussian blur"].note.endswith("pixels")


def test_baselines_are_clipped_like_predictions(source: Denoise, fold: Fold) -> None:
    result = measure(source, replace(fold, test=fold.test[3:4]), metrics, clip=(0.2, 0.6))["untouched input"]
    item = source.fixed(fold.test[3:4])[0]
    expected = float((item["input"].clamp(0.2, 0.6) - item["target"]).square().mean())
    assert result.means["test/mse"] == pytest.approx(expected, rel=1e-5)


def test_the_parameter_is_chosen_on_clipped_results(
    source: Denoise, fold: Fold, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Unclipped, 40 is far from any picture; clipped to [0, 1] it is white, and better than black on bright paper.
    constant = Method(lambda noisy, value: np.full_like(noisy, value), (0.0, 40.0), "{:g}")
    monkeypatch.setattr("onn_runner.task.baseline.methods", lambda _: {"constant": constant})
    bright = replace(fold, train=tuple(index for index, group in enumerate(source.groups) if group == "page"))
    assert measure(source, bright, metrics)["constant"].note == "0"
    assert measure(source, bright, metrics, clip=(0.0, 1.0))["constant"].note == "40"


def test_rows_name_every_item(source: Denoise, fold: Fold, results: dict[str, BaselineResult]) -> None:
    undefined = replace(results["gaussian blur"], items={"test/snr": (float("nan"),) * len(fold.test)})
    rows = item_rows(2, {**results, "gaussian blur": undefined}, source, fold)
    names = [source.names[index] for index in fold.test]
    photographs = list(dict.fromkeys(source.groups[index] for index in fold.test))
    assert [row[2] for row in rows if row[1:2] + row[3:5] == ("untouched input", "test", "psnr")] == names
    assert sorted(row[2] for row in rows if row[1:2] + row[3:5] == ("untouched input", "photo", "snr")) == sorted(
        photographs
    )
    first = results["untouched input"].items["test/psnr"][0]
    assert (2, "untouched input", names[0], "test", "psnr", repr(first)) in rows
    assert [row for row in rows if row[1] == "gaussian blur"] == [
        (2, "gaussian blur", name, "test", "snr", "") for name in names
    ]


def test_only_photographs_that_lie_wholly_in_the_test_part_are_scored_as_wholes(source: Denoise, fold: Fold) -> None:
    (shared, *test), group = fold.test, source.groups[fold.test[0]]
    mixed = replace(fold, train=(*fold.train, shared), test=tuple(test))
    results = measure(source, mixed, metrics)
    wholes = {row[2] for row in item_rows(0, results, source, mixed) if row[3] == "photo"}
    assert wholes == {source.groups[index] for index in test} - {group}


def test_more_noise_chooses_a_wider_blur(fold: Fold) -> None:
    widths = []
    for sigma in (5, 80):
        noisy = Denoise(photographs=["camera", "coins", "page", "text"], patches=8, max_side=160, patch=40, sigma=sigma)
        widths.append(float(measure(noisy, fold, metrics)["gaussian blur"].note.split()[1]))
    assert widths[0] < widths[1]


def test_evaluate_gives_the_means_and_tells_progress(
    source: Denoise, fold: Fold, results: dict[str, BaselineResult]
) -> None:
    told: list[str] = []
    means = evaluate(source, replace(fold, test=fold.test[:2]), metrics, told.append)
    assert told == list(means) == list(results)
    whole = evaluate(source, fold, metrics)
    assert whole == {name: result.means for name, result in results.items()}


def test_impulses_are_met_with_a_median(fold: Fold) -> None:
    options = {"photographs": ["camera", "coins", "page", "text"], "patches": 8, "max_side": 160, "patch": 40}
    scores = evaluate(Denoise(**options, noise="salt_and_pepper"), fold, metrics)  # type: ignore[arg-type]
    assert max(scores, key=lambda name: scores[name]["test/psnr"]) == "median filter"


def test_colour(fold: Fold) -> None:
    source = Denoise(photographs=["astronaut", "coffee"], patches=3, max_side=100, patch=40, colour=True)
    scores = evaluate(source, GroupKFold(folds=2, validation=0).split(source)[0], metrics)
    assert scores["non-local means"]["test/psnr"] > scores["untouched input"]["test/psnr"] + 4


def test_a_target_of_another_shape_has_no_baseline(source: Denoise) -> None:
    class Classes:
        shape = Shape((1, 8, 8), (10,))

    assert methods(Classes()) == {}  # type: ignore[arg-type]


def test_a_signal_is_blurred_and_has_no_non_local_means() -> None:
    class Signals:
        shape = Shape((2, 64), (2, 64))

    found = methods(Signals())  # type: ignore[arg-type]
    assert list(found) == ["untouched input", "gaussian blur"]
    signal = np.zeros((2, 9), dtype=np.float32)
    signal[1, 4] = 1
    result = found["gaussian blur"].function(signal, 1.0)
    assert result[0].max() == 0
    assert result[1].sum() == pytest.approx(1, abs=1e-3)
    assert result[1].argmax() == 4


@pytest.mark.parametrize("deviation", [5 / 255, 25 / 255, 60 / 255])
def test_the_deviation_of_noise_is_estimated(deviation: float) -> None:
    source = Denoise(photographs=["moon"], sigma=255 * deviation)
    # Texture adds to the detail: within a sixth on a smooth photograph.
    assert estimated_deviation(source.whole(["moon"])[0]["input"].numpy()) == pytest.approx(deviation, rel=1 / 6)


def test_the_estimate_of_next_to_nothing_is_one_grey_level() -> None:
    assert estimated_deviation(np.zeros((1, 9, 7), dtype=np.float32)) == 1 / 255
    assert estimated_deviation(np.zeros((1, 1, 7), dtype=np.float32)) == 1 / 255


def test_non_local_means_takes_channels_together() -> None:
    grey = torch.rand(1, 24, 24, generator=torch.Generator().manual_seed(0)).numpy()
    assert non_local_means(grey, 0.8, 0.1).shape == (1, 24, 24)
    assert non_local_means(np.repeat(grey, 3, 0), 0.8, 0.1).shape == (3, 24, 24)
