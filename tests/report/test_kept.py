"""What a fold keeps for comparisons: which items, how much of them; a file is read back or refused in words."""

import zipfile

import numpy as np
import pytest

from onn_runner.report import kept
from onn_runner.report.kept import Kept, places, read, reduced_item, to_bytes

RNG = np.random.default_rng(0)


def item(*shape, given=None, name="item", place=0, data_range=(0.0, 1.0)):
    arrays = [RNG.random(given or shape), RNG.random(shape), RNG.random(shape)]
    return reduced_item(name, place, *(a.astype(np.float32) for a in arrays), data_range=data_range)


@pytest.mark.parametrize(
    ("count", "expected"), [(0, []), (1, [0]), (2, [0, 1]), (3, [0, 1, 2]), (4, [0, 1, 2, 3]), (40, [5, 15, 25, 35])]
)
def test_places_are_spread_evenly(count, expected):
    assert places(count) == expected


def test_values_are_scaled_to_the_datas_range_within_half_precision():
    values = RNG.uniform(-100, 300, (3, 5, 7)).astype(np.float32)
    found = reduced_item("a", 3, values, values, values, data_range=(-100.0, 300.0))
    assert (found.place, found.size, found.output.dtype) == (3, (), np.float16)
    # Half precision has 11 bits: at 1 its steps are 2 ** -11 of the range below and twice that above.
    np.testing.assert_allclose(found.output.astype(float), (values + 100.0) / 400.0, atol=2**-11)


def test_of_large_images_the_middle_is_kept_and_of_a_smaller_input_the_same_place():
    rows, columns = np.meshgrid(np.arange(300), np.arange(200), indexing="ij")
    target = ((rows * 1000 + columns) / 1000.0)[None].astype(np.float32)
    found = reduced_item("a", 0, target[:, ::2, ::2], target, target, data_range=(0.0, 300.0))
    assert (found.target.shape, found.input.shape, found.size) == ((1, 128, 128), (1, 64, 64), (300, 200))
    np.testing.assert_allclose(found.target[0, 0, 0] * 300, 86.036, rtol=2**-11)
    np.testing.assert_allclose(found.input[0, 0, 0] * 300, 86.036, rtol=2**-11)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((2, 9, 5), (1, 9, 5)),
        ((3, 9, 5), (3, 9, 5)),
        ((1, 4, 9, 5), (1, 9, 5)),
        ((1, 31), (1, 31)),
        ((2, 3000), (1, 1024)),
        ((1, 1, 1), (1, 1, 1)),
    ],
)
def test_other_channels_volumes_and_signals(shape, expected):
    assert item(*shape).target.shape == expected


def test_a_file_is_read_back_and_is_the_same_for_the_same_values(tmp_path):
    values = [item(1, 6, 4, given=(1, 3, 2), name='ümlaut<script>"', place=7), item(3, 9)]
    values[0].output[0, 0, 0] = np.nan
    values[0].output[0, 1, 0] = np.inf
    classes, confusions = ("a b", "ø"), np.array([[3, 1], [0, 2]])
    content = to_bytes(Kept("test", tuple(values), classes, confusions, 5))
    assert content == to_bytes(Kept("test", tuple(values), classes, confusions, 5))
    (tmp_path / kept.FILE).write_bytes(content)
    back = read(tmp_path / kept.FILE)
    assert (back.part, back.classes, back.overflowing) == ("test", classes, 5)
    np.testing.assert_array_equal(back.confusions, confusions)
    for one, other in zip(back.items, values, strict=True):
        assert (one.name, one.place, one.size) == (other.name, other.place, other.size)
        for word in ("input", "output", "target"):
            np.testing.assert_array_equal(getattr(one, word), getattr(other, word))


def test_four_large_colour_images_stay_small(tmp_path):
    images = tuple(item(3, 500, 500) for _ in range(kept.ITEMS))
    assert len(to_bytes(Kept("test", images))) < 1.3e6


def test_there_may_be_none(tmp_path):
    assert read(tmp_path / kept.FILE) is None


def damaged(tmp_path):
    whole = to_bytes(Kept("test", (item(1, 6, 4),)))
    yield b""
    yield b"PK"
    yield whole[: len(whole) // 2]
    yield whole[:60] + bytes(40) + whole[100:]
    path = tmp_path / "other.npz"
    for arrays in (
        {"schema": 2},
        {"schema": 1, "part": "test", "target_0": np.zeros((1, 2, 2), np.float16)},
        {"schema": 1, "part": "test", "classes": np.array([b"a"]), "confusions": np.zeros((2, 2), int)},
        {"schema": np.array([{"a": 1}], dtype=object)},
        {f"{word}_0": np.zeros((2, 2, 2), np.float16) for word in ("input", "output", "target")}
        | {"schema": 1, "part": "test", "name_0": b"a", "place_0": 0, "size_0": np.zeros(0, int)},
    ):
        np.savez(path, **arrays)
        yield path.read_bytes()


def test_damaged_files_are_refused_in_words(tmp_path):
    for content in damaged(tmp_path):
        (tmp_path / kept.FILE).write_bytes(content)
        with pytest.raises(ValueError, match=r"kept\.npz cannot be read \("):
            read(tmp_path / kept.FILE)


def test_what_unpacks_to_too_much_is_not_unpacked(tmp_path):
    with zipfile.ZipFile(tmp_path / kept.FILE, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("schema.npy", bytes(kept.MOST_BYTES + 1))
    with pytest.raises(ValueError, match="too large"):
        read(tmp_path / kept.FILE)
