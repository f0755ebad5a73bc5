"""A user's torchmetrics metric, scored item by item; and every metric that conf/metric offers."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch
import yaml
from torchmetrics import MeanSquaredError, Metric
from torchmetrics.image import PeakSignalNoiseRatio, UniversalImageQualityIndex

from onn_runner.errors import ConfigError
from onn_runner.metric.adapt import adapt
from onn_runner.metric.base import ItemMetric
from onn_runner.metric.image import Mse, Psnr

OPTIONS = sorted((Path(__file__).parents[2] / "conf" / "metric").glob("*.yaml"))


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    target = torch.rand(4, 1, 20, 20, generator=torch.Generator().manual_seed(0))
    return target * torch.tensor([0.9, 0.5, 0.8, 1.1]).reshape(4, 1, 1, 1), target


def test_items_are_what_the_metric_gives_for_each_alone(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    adapted = adapt(PeakSignalNoiseRatio(data_range=1.0))
    adapted.update(*batch)
    own = Psnr()
    own.update(*batch)
    assert adapted.items().tolist() == pytest.approx(own.items().tolist(), rel=1e-6)
    assert adapted.compute().item() == pytest.approx(own.compute().item(), rel=1e-6)


def test_the_direction_is_the_metrics_own(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    assert adapt(MeanSquaredError()).higher_is_better is False
    assert adapt(UniversalImageQualityIndex()).higher_is_better is True


def test_the_given_metric_is_left_alone_and_reset_forgets(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    inner = MeanSquaredError()
    adapted = adapt(inner)
    adapted.update(*batch)
    assert inner.total == 0
    adapted.reset()
    adapted.update(batch[1], batch[1])
    assert adapted.items().tolist() == [0] * 4


def test_item_metrics_pass_through() -> None:
    own = Mse()
    assert adapt(own) is own


def test_what_is_no_metric_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"a metric must be a torchmetrics.Metric, not int: check its _target_"):
        adapt(3)  # type: ignore[arg-type]


def test_a_metric_of_many_numbers_is_refused(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    with pytest.raises(ConfigError, match=r"metric MeanSquaredError gives \(400,\) numbers for one item"):
        adapt(MeanSquaredError(num_outputs=400)).update(*(values.flatten(1) for values in batch))


@pytest.mark.parametrize("path", OPTIONS, ids=lambda path: path.stem)
def test_every_option_makes_a_metric_of_its_name(path: Path) -> None:
    text = path.read_text()
    assert text.startswith("# @package _global_\n# ")
    (name, node), *more = yaml.safe_load(text)["metrics"].items()
    assert (name, more) == (path.stem, [])
    module, _, kind = node.pop("_target_").rpartition(".")
    if "data_range" in node:
        # A run puts the span of its data there.
        assert node["data_range"] is None
        node["data_range"] = 1.0
    metric = getattr(importlib.import_module(module), kind)(**node)
    assert isinstance(metric, Metric)
    assert isinstance(adapt(metric), ItemMetric)
    assert metric.higher_is_better is not None
