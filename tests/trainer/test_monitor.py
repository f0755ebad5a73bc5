"""Which values may choose the best epoch."""

import math

import pytest
from tiny_fold import Mae, Psnr, metrics, settings

from onn_runner.errors import ConfigError
from onn_runner.trainer.monitor import Monitor, monitors


def test_directions_and_files() -> None:
    found = monitors(settings(keep_best=["val/mae", "train/loss"]), metrics(), validation=True)
    assert found == (
        Monitor("val/psnr", True, "best.pt"),
        Monitor("val/mae", False, "best_mae.pt"),
        Monitor("train/loss", False, "best_loss.pt"),
    )


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_never_better(value: float) -> None:
    for higher in (True, False):
        assert not Monitor("val/x", higher, "best.pt").better(value, None)
        assert not Monitor("val/x", higher, "best.pt").better(value, 0.0)


def test_better_is_strict_and_has_a_direction() -> None:
    up, down = Monitor("val/x", True, "best.pt"), Monitor("val/x", False, "best.pt")
    assert up.better(2, 1)
    assert down.better(1, 2)
    assert not up.better(1, 1)
    assert not down.better(1, 1)
    assert up.better(-5, None)


@pytest.mark.parametrize(
    ("changes", "validation", "message"),
    [
        ({"monitor": "val/psnr"}, False, r"monitor=val/psnr needs a validation part.*trainer\.monitor=train/psnr"),
        ({"keep_best": ["val/mae"], "monitor": "train/loss"}, False, r"keep_best=val/mae needs a validation part"),
        ({"monitor": "val/pnsr"}, True, r"metric in trainer\.monitor=val/pnsr: 'pnsr'\. Did you mean psnr"),
        ({"monitor": "test/psnr"}, True, r"'test/psnr'.*The test part never chooses anything\."),
        ({"monitor": "psnr"}, True, r"unknown trainer\.monitor 'psnr'.*val/psnr"),
        ({"keep_best": ["val/psnr", "train/psnr"]}, True, r"two keys for best_psnr\.pt"),
    ],
)
def test_impossible_monitors_are_refused(changes: dict, validation: bool, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        monitors(settings(**changes), metrics(), validation=validation)


def test_metric_without_direction_cannot_choose() -> None:
    class Size(Mae):
        higher_is_better = None

    with pytest.raises(ConfigError, match="metric size has no better direction"):
        monitors(settings(monitor="val/size"), {"size": Size(), "psnr": Psnr()}, validation=True)
