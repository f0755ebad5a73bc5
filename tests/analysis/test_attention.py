"""Attention maps against the formula in float64; `onn explain` on a run, its baseline and another run."""

import shutil

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.nn import functional
from typer.testing import CliRunner

from onn_runner.analysis.attention import attention, maps_of
from onn_runner.cli.onn import app
from onn_runner.errors import ConfigError
from onn_runner.model.conv import Conv
from onn_runner.model.vectors import VectorLayer, vector_spec
from onn_runner.network.compact import Compact


def test_a_map_is_the_mean_of_squares_enlarged_and_scaled():
    a = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    (first, second) = maps_of(a, (8, 10))
    energy = torch.einsum("bcij,bcij->bij", a.double(), a.double()) / 3
    wanted = functional.interpolate(energy[:, None], size=(8, 10), mode="bilinear", align_corners=False)[1, 0]
    wanted = (wanted - wanted.min()) / (wanted.max() - wanted.min())
    np.testing.assert_allclose(second, wanted.numpy(), atol=1e-12)
    assert (first.min(), first.max()) == (0.0, 1.0)


def test_an_even_response_is_zero_everywhere_and_bad_values_stay_bad():
    assert not maps_of(torch.ones(1, 2, 3, 3), (6, 6)).any()
    bad = torch.zeros(2, 1, 2, 2)
    bad[0, 0, 0, 0] = torch.nan
    first, second = maps_of(bad, (2, 2))
    assert np.isnan(first).all()
    assert not second.any()


@pytest.mark.parametrize("size", [(7,), (6, 9)])
def test_each_layer_with_positions_has_a_map_of_the_inputs_size(size):
    network = Compact(Conv(), 1, out_channels=1, channels=[2, 3], input_size=size, sampling=["max2", "up2", "none"])
    x = torch.rand(2, 1, *size)
    found = attention(network, lambda: network(x), size)
    assert [layer.name for layer in found] == ["layers.0", "layers.1", "layers.2"]
    assert all(layer.maps.shape == (2, *size) for layer in found)
    assert found[1].size == tuple(-(-length // 2) for length in size)


def test_layers_on_vectors_have_none():
    network = VectorLayer(Conv(), vector_spec(4, 2))
    with pytest.raises(ConfigError, match="no layer of this network has positions"):
        attention(network, lambda: network(torch.rand(3, 4)), (8, 8))


def onn(*words):
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_picture_lies_with_the_folds_and_its_event_is_not_doubled(finished):
    for _ in range(2):
        assert "attention.png" in onn("explain", str(finished), "--items", "2", "--device", "cpu")
    pictures = finished / "fold_00" / "pictures"
    assert (pictures / "attention.png").read_bytes().startswith(b"\x89PNG")
    events = EventAccumulator(str(pictures / "attention"))
    events.Reload()
    assert [len(events.Images(tag)) for tag in events.Tags()["images"]] == [1]


def test_two_runs_are_shown_the_same_items_and_what_is_unfair_is_said(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "other")
    words = ("explain", str(finished), "--against", "other", "--output", "shown", "--items", "1000")
    text = onn(*words)
    assert "was trained on" not in text
    assert (tmp_path / "shown" / "attention.png").is_file()
    config = tmp_path / "other" / "config.yaml"
    config.write_text(config.read_text().replace("sigma: 25", "sigma: 26"))
    split = tmp_path / "other" / "split.json"
    split.write_text(split.read_text().replace('"fingerprint": "', '"fingerprint": null, "was": "'))
    assert "other was trained on some of these items, or on other data" in onn(*words)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--method", "atention"), "Did you mean attention?"),
        (("--items", "0"), "--items (=0)"),
        (("--fold", "9"), "has no fold 9; its folds: 0, 1"),
        (("--against", "nowhere"), "nowhere: there is no such folder"),
        (("--device", "cuda:7"), "cuda:7 is not available"),
    ],
)
def test_what_cannot_be_explained_is_refused(finished, words, told):
    with pytest.raises(ConfigError) as caught:
        CliRunner().invoke(app, ["explain", str(finished), *words], catch_exceptions=False)
    assert told in str(caught.value)
