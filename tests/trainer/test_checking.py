"""trainer.checks: each check finds its fault and names it; a sound training is the same with them, bit by bit."""

import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_fold import FOLD, Net, Pictures, Tiny, make_job
from torch import nn
from torch.utils.data import Dataset

from onn_runner.compute import chebyshev, tapwise
from onn_runner.data.base import Shape
from onn_runner.errors import RunError
from onn_runner.model.operational import Operational
from onn_runner.network.compact import Compact
from onn_runner.ops import Exponential, Multiply, Sine
from onn_runner.partition.base import Fold
from onn_runner.trainer import FoldResult, QuietReporter, StopRequest, checkpoint, train_fold


def run(folder: Path, **changes: Any) -> tuple[FoldResult, list[str]]:
    job = make_job(folder, **{"epochs": 2, "checks": True, **changes})
    reporter = QuietReporter()
    return train_fold(job, reporter=reporter, stop=StopRequest()), reporter.warnings


def operational(**options: Any) -> nn.Module:
    neurons = Operational({"sine": Sine(), "exp": Exponential(), "mul": Multiply()}, **options)
    return Compact(neurons, 1, out_channels=1, channels=[5], input_size=(8, 8))


MAXIMUM = partial(operational, pool="maximum")


def bits(folder: Path) -> dict[str, Any]:
    state = checkpoint.load(folder / "last.pt")
    return {name: value.tolist() if isinstance(value, torch.Tensor) else value for name, value in state.network.items()}


@pytest.mark.parametrize(
    "build", [Net, operational, lambda: operational(pool="median"), lambda: operational(pool="maximum")]
)
def test_a_sound_training_has_no_warning_and_the_same_numbers(build: Any, tmp_path: Path) -> None:
    result, told = run(tmp_path / "checked", build_network=build)
    assert result.status == "done"
    assert told == []
    assert torch.is_anomaly_enabled() is torch.are_deterministic_algorithms_enabled() is False
    run(tmp_path / "plain", build_network=build, checks=False)
    assert bits(tmp_path / "checked") == bits(tmp_path / "plain")
    assert (tmp_path / "checked/metrics.csv").read_bytes() == (tmp_path / "plain/metrics.csv").read_bytes()


def test_anomaly_detection_and_determinism_are_on_while_training(tmp_path: Path) -> None:
    seen = []

    class Looking(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append((torch.is_anomaly_enabled(), torch.are_deterministic_algorithms_enabled()))
            return super().forward(x)

    run(tmp_path, build_network=Looking, epochs=1)
    assert set(seen) == {(True, True)}


def test_the_function_whose_gradient_is_not_a_number_is_named(tmp_path: Path) -> None:
    class Rooted(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + torch.sqrt((0 * self.layers[0].bias).sum())

    result, told = run(tmp_path, build_network=Rooted)
    diverged = result.starts[0].diverged
    assert diverged is not None
    line = "return super().forward(x) + torch.sqrt((0 * self.layers[0].bias).sum())"
    assert diverged.what == f"Function 'MulBackward0' returned nan values in its 0th output: {line}"
    assert len(told) == 1


def test_other_warnings_and_errors_of_a_step_are_passed_on(tmp_path: Path) -> None:
    class Telling(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            warnings.warn("hm", stacklevel=1)
            return super().forward(x)

    class Failing(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("no such thing")

    with pytest.warns(UserWarning, match="hm"):
        run(tmp_path, build_network=Telling, epochs=1)
    with pytest.raises(RuntimeError, match="no such thing"):
        run(tmp_path / "failing", build_network=Failing)


def test_parameters_without_gradient_and_without_change_are_named(tmp_path: Path) -> None:
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Conv2d(1, 1, 3, padding=1)
            self.unused = nn.Parameter(torch.ones(2))
            self.dead = nn.Linear(1, 1)
            self.tiny = nn.Parameter(torch.full((1,), 1e6))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x) + 0 * self.dead(x.mean().reshape(1)) + 1e-12 * self.tiny

    _, told = run(tmp_path, build_network=Idle, build_optimizer=lambda groups: torch.optim.SGD(groups, lr=1e-3))
    assert told == [
        "trainer.checks: fold 0, start 0: unused, dead.weight, dead.bias got no gradient in 4 updates.",
        "trainer.checks: fold 0, start 0: tiny got gradients but did not change in 4 updates.",
    ]


class Spoilt(Tiny):
    """Item 5 of the training view, or item 17 of the fixed one, is spoilt by a function."""

    def __init__(self, spoil: Any, *, fixed: bool = False) -> None:
        super().__init__()
        self.spoil, self.spoilt = spoil, fixed

    def training(self, indices: Sequence[int], key: tuple[Any, ...]) -> Dataset:
        return self._view(super().training(indices, key), 5)

    def fixed(self, indices: Sequence[int]) -> Dataset:
        return self._view(super().fixed(indices), 17 if self.spoilt else -1)

    def _view(self, view: Dataset, bad: int) -> Dataset:
        spoil = self.spoil

        class View(Pictures):
            def __getitem__(self, position: int) -> dict[str, Any]:
                item = super().__getitem__(position)
                return spoil(item) if item["index"] == bad else item

        assert isinstance(view, Pictures)
        return View(view.indices, view.key, view.sizes)


@pytest.mark.parametrize("name", ["input", "target"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_values_that_are_not_finite_name_their_item(name: str, value: float, tmp_path: Path) -> None:
    def spoil(item: dict[str, Any]) -> dict[str, Any]:
        changed = item[name].clone()
        changed[0, 2, 3] = value
        return {**item, name: changed}

    result, _ = run(tmp_path, source=Spoilt(spoil))
    diverged = result.starts[0].diverged
    assert diverged is not None
    assert (diverged.what, diverged.layer) == (f"train {name}s are not finite", "the data (items 5)")


def test_targets_beyond_the_range_and_inputs_far_beyond_it_are_told_once(tmp_path: Path) -> None:
    shifted = Spoilt(lambda item: {**item, "target": item["target"] + 0.3, "input": 255 * item["input"]}, fixed=True)
    _, told = run(tmp_path, source=shifted, batch_size=7, build_network=lambda: nn.Conv2d(1, 1, 1))
    assert told == [
        "trainer.checks: train inputs reach far beyond the data's range of 0 to 1.",
        "trainer.checks: train targets reach beyond the data's range of 0 to 1.",
        "trainer.checks: test inputs reach far beyond the data's range of 0 to 1.",
        "trainer.checks: test targets reach beyond the data's range of 0 to 1.",
    ]


def test_items_of_another_shape_than_the_source_says_are_refused(tmp_path: Path) -> None:
    class Lying(Tiny):
        def __init__(self) -> None:
            super().__init__()
            self.shape = Shape((1, 8, 8), (1, 8, 9))

    with pytest.raises(RunError, match=r"targets of the train items are \(1, 8, 8\), the data says \(1, 8, 9\)"):
        run(tmp_path, source=Lying())


@pytest.mark.parametrize(("kernel", "options"), [(chebyshev, {}), (tapwise, {"compute": "tapwise"})])
def test_a_layer_that_is_less_exact_than_promised_is_named(
    kernel: Any, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "perform" if kernel is chebyshev else "run"
    original = getattr(kernel, name)

    def worse(*arguments: Any, **keywords: Any) -> torch.Tensor:
        y = original(*arguments, **keywords).clone()
        y[:, 1] = y[:, 1] * (1 + 1e-5)
        return y

    monkeypatch.setattr(kernel, name, worse)
    message = rf"layer .*0.*, channel 1, computed by {kernel.__name__.rpartition('.')[2]}, differs .* by 1\.0e-05"
    with pytest.raises(RunError, match=message):
        run(tmp_path, build_network=lambda: operational(**options))


def test_with_half_precision_layers_are_compared_in_single_precision(tmp_path: Path) -> None:
    result, told = run(tmp_path, build_network=operational, precision="bf16", epochs=1)
    assert (result.status, told) == ("done", [])


def test_limited_to_a_few_batches_every_part_is_cut_and_the_results_say_so(tmp_path: Path) -> None:
    result, told = run(tmp_path, limit_batches=2, batch_size=4, eval_batch_size=3, score_training=True)
    assert told[0].startswith("trainer.limit_batches=2: the scores are of the first batches of every part only")
    assert result.best is not None
    rows = [line.split(",") for line in (tmp_path / "test_items.csv").read_text().splitlines()[1:]]
    counts = {split: sum(row[3:5] == [split, "psnr"] for row in rows) for split in ("test", "photo", "fitted")}
    # Two batches of three items; of whole pictures, one by one, there is a single one.
    assert counts == {"test": 6, "photo": 1, "fitted": 6}
    assert checkpoint.load(tmp_path / "last.pt").schedules["main"] == {"steps": 2 * 2}


def test_training_items_are_scored_as_test_items_are(tmp_path: Path) -> None:
    result, _ = run(tmp_path, score_training=True, checks=False)
    assert result.best is not None
    names = {"loss", "psnr", "mae"}
    assert {key.partition("/")[2] for key in result.best.test if key.startswith("fitted/")} == names
    swapped = Fold(0, FOLD.train, FOLD.validation, FOLD.train)
    other, _ = run(tmp_path / "swapped", fold=swapped, checks=False)
    assert other.best is not None
    assert all(result.best.test[f"fitted/{name}"] == other.best.test[f"test/{name}"] for name in names)


def test_a_fold_that_tests_nothing_ends_well(tmp_path: Path) -> None:
    fold = Fold(0, tuple(range(14)), (), ())
    result, _ = run(tmp_path, fold=fold, monitor="train/psnr", score_training=True)
    assert result.best is not None
    assert set(result.best.test) == {"fitted/loss", "fitted/psnr", "fitted/mae"}
    nothing, _ = run(tmp_path / "nothing", fold=fold, monitor="train/psnr")
    assert nothing.status == "done"
    assert nothing.best is not None
    assert nothing.best.test == {}


def test_a_single_update_says_nothing_about_what_learns(tmp_path: Path) -> None:
    """The last layer of a residual network begins with zeros: nothing passes through it before it has learnt."""
    residual = partial(Compact, Operational({"sine": Sine()}), 1, out_channels=1, channels=[3], input_size=(8, 8))
    _, told = run(tmp_path / "one", build_network=residual, batch_size=14, epochs=1)
    assert told == []
    _, told = run(tmp_path / "two", build_network=residual, batch_size=7, epochs=1)
    assert told == []
