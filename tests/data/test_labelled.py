"""Pictures with classes: values against float64, items at once against one by one, subsets, and what is refused."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from onn_runner.data.digits import Digits
from onn_runner.data.held import Held
from onn_runner.data.labelled import Labelled, Labels
from onn_runner.errors import ConfigError

N = 60


def source(pictures: torch.Tensor | None = None, *, test: range | None = range(40, N), **keys: Any) -> Labelled:
    """Sixty colour pictures of 5 x 7 in three classes; the last twenty are the test part."""
    if pictures is None:
        pictures = torch.randint(0, 256, (N, 3, 5, 7), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    labels = [index % 3 for index in range(len(pictures))]
    names = [f"picture[{index}]" for index in range(len(pictures))]
    return Labelled(Held(pictures), Labels(labels, ["a", "b", "c"], names, "a test", test=test), **keys)


def batch(items: Any) -> torch.Tensor:
    return torch.stack([item["input"] for item in items])


def test_values_are_those_of_float64() -> None:
    means, deviations = [0.4, 0.5, 0.6], [0.2, 0.25, 0.3]
    data = source(standardise=[means, deviations])
    view = data.fixed([3, 59, 0])
    pixels = data.pictures.take([3, 59, 0]).numpy().astype(np.float64) / 255  # type: ignore[union-attr]
    wanted = (pixels - np.reshape(means, (3, 1, 1))) / np.reshape(deviations, (3, 1, 1))
    # Two roundings in float32 of values up to 3.
    assert np.abs(batch([view[place] for place in range(3)]).numpy() - wanted).max() < 1e-6
    low, high = data.data_range
    assert (low, high) == pytest.approx((-2.0, 3.0))
    assert [view[place]["index"] for place in range(3)] == [3, 59, 0]


def test_an_item_has_a_picture_in_float32_and_the_number_of_its_class() -> None:
    data = source()
    item = data.training([4], ("key",))[0]
    assert item["input"].dtype == torch.float32
    assert item["input"].shape == data.shape.input == (3, 5, 7)
    assert item["target"].dtype == torch.int64
    assert item["target"].shape == ()
    assert int(item["target"]) == data.labels[4] == 1
    assert data.shape.target == (3,)
    assert data.whole(data.groups) is None
    assert data.data_range == (0.0, 1.0)
    assert data.groups == data.names


def test_items_at_once_are_items_one_by_one_and_a_loaders() -> None:
    data = source(standardise="dataset")
    view = data.training(range(N), ("key", 1))
    single = batch([view[place] for place in range(N)])
    assert torch.equal(batch(view.__getitems__(list(range(N)))), single)
    loaded = torch.cat([part["input"] for part in DataLoader(view, batch_size=7)])
    assert torch.equal(loaded, single)


def test_items_may_be_written_to() -> None:
    data = source()
    before = data.fingerprint()
    data.fixed([0])[0]["input"].zero_()
    assert data.fingerprint() == before
    assert float(data.fixed([0])[0]["input"].sum()) > 0


def test_own_standardisation_leaves_the_test_part_out() -> None:
    data = source(standardise="dataset")
    trained = batch(data.fixed(range(40)).__getitems__(list(range(40)))).double()
    assert trained.mean((0, 2, 3)).abs().max() < 1e-6
    assert (trained.std((0, 2, 3), correction=0) - 1).abs().max() < 1e-6
    assert source(standardise="dataset", part="test").standardise != data.standardise


@pytest.mark.parametrize("channels", [1, 3])
def test_colour_makes_three_channels_or_one(channels: int) -> None:
    pictures = torch.arange(4 * channels * 2 * 2, dtype=torch.uint8).reshape(4, channels, 2, 2)
    three = source(pictures, test=None, colour=True)
    assert three.shape.input == (3, 2, 2)
    one = source(pictures, test=None, colour=False)
    assert one.shape.input == (1, 2, 2)
    assert source(pictures, test=None).shape.input == (channels, 2, 2)
    luminance = pictures.double().numpy()
    if channels == 3:
        luminance = np.einsum("nchw,c->nhw", luminance, [0.2125, 0.7154, 0.0721])[:, None]
    values = batch(one.fixed(range(4)).__getitems__(range(4)))
    # Half a grey level, to which luminance is rounded.
    assert np.abs(values.numpy() * 255 - luminance).max() <= 0.5 + 1e-4


def test_a_subset_has_classes_and_test_part_in_proportion() -> None:
    whole = source()
    data = source(items=30)
    assert len(data) == 30
    assert max(Counter(data.labels).values()) - min(Counter(data.labels).values()) <= 2
    assert data.test_items is not None
    assert abs(len(data.test_items) - 10) <= 1
    assert all(int(data.names[index][8:-1]) >= 40 for index in data.test_items)
    assert data.names == sorted(data.names, key=whole.names.index)
    assert data.names == source(items=30).names
    assert data.names != source(items=30, seed=1).names
    assert data.fingerprint() != source(items=30, seed=1).fingerprint()


def test_a_part_is_data_of_its_own() -> None:
    assert source(part="train").names == [f"picture[{index}]" for index in range(40)]
    assert source(part="test").names == [f"picture[{index}]" for index in range(40, N)]
    assert source(part="train").test_items is None
    assert source().test_items == tuple(range(40, N))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"items": 2}, r"data.items \(=2\) must be from 3 \(one of each class\) to the 60 items"),
        ({"items": 61}, r"data.items \(=61\) must be from 3"),
        ({"items": 30.0}, r"data.items \(=30.0\) must be a whole number"),
        ({"part": "val"}, r"unknown data.part 'val'"),
        ({"part": "train", "test": None}, r"data.part \(=train\) needs data with a test part"),
        ({"seed": -1}, r"data.seed \(=-1\)"),
        ({"colour": "yes"}, r"data.colour \(='yes'\) must be true or false"),
        ({"standardise": "own"}, r"data.standardise \(='own'\) must be null"),
        ({"standardise": [0.5]}, r"data.standardise \(=\[0.5\]\) must be null"),
        ({"standardise": [0.5, 0]}, r"deviations must be above 0"),
        ({"standardise": [0.5, float("nan")]}, r"must be null"),
        ({"standardise": [[], 0.1]}, r"must be null"),
        ({"standardise": [[0.5, 0.5], 0.1]}, r"numbers for 2 channels, and the pictures have 3"),
    ],
)
def test_bad_values_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        source(**keys)


def test_alike_values_cannot_be_standardised() -> None:
    with pytest.raises(ConfigError, match=r"data.standardise \(=dataset\): all values of a channel are alike"):
        source(torch.full((6, 1, 2, 2), 7, dtype=torch.uint8), test=None, standardise="dataset")


def test_one_class_is_none() -> None:
    about = Labels([1, 1], ["a", "b"], ["x", "y"], "a test")
    with pytest.raises(ConfigError, match="at least 2 classes, and the data has class b alone"):
        Labelled(Held(torch.zeros(2, 1, 2, 2)), about)


def test_the_fingerprint_is_that_of_the_items() -> None:
    pictures = torch.zeros(6, 1, 2, 2, dtype=torch.uint8)
    same = source(pictures, test=None).fingerprint()
    assert source(pictures.clone(), test=None).fingerprint() == same
    changed = pictures.clone()
    changed[5, 0, 1, 1] = 1
    others = [source(changed, test=None), source(pictures, test=range(3, 6)), source(pictures, test=None, colour=True)]
    others.append(source(pictures, test=None, standardise=[0.5, 0.5]))
    assert len({same, *(other.fingerprint() for other in others)}) == 5


def test_the_description_says_what_there_is() -> None:
    assert source(standardise=[0.5, 0.25]).describe() == [
        "60 colour pictures of 5 x 7 in 3 classes from a test",
        "items of a class: 20 each",
        "20 of them are the data's own test part (partition=given tests on these alone)",
        "values in [0, 1] less 0.5, over 0.25; kept in memory",
        "training: no random changes",
    ]
    assert source(items=20, part="test").describe()[1] == "items of a class: a 6, b 7, c 7"


def test_digits_are_scikit_learns() -> None:
    from sklearn.datasets import load_digits

    data, loaded = Digits(), load_digits()
    assert (len(data), data.shape.input, data.shape.target) == (1797, (1, 8, 8), (10,))
    values = batch(data.fixed(range(1797)).__getitems__(range(1797)))
    assert np.array_equal(values[:, 0].numpy() * 16, loaded.images)
    assert data.labels == loaded.target.tolist()
    assert data.classes == list("0123456789")
    assert data.test_items is None
