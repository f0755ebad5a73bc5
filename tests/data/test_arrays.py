"""Arrays: the same items from every kind of file, ranges that are known or refused, patches, groups, workers."""

from __future__ import annotations

import inspect
import itertools
import pickle
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse
import torch
import yaml
from array_files import write_every_kind, write_h5, write_matlab73
from torch.utils.data import DataLoader

from onn_runner.data.arrays import Arrays
from onn_runner.data.base import Source
from onn_runner.errors import ConfigError

OPTION = Path(__file__).parents[2] / "conf" / "data" / "arrays.yaml"
RANDOM = np.random.default_rng(4)
GIVEN = RANDOM.integers(0, 256, (6, 7, 9), dtype=np.uint8)
WANTED = RANDOM.integers(0, 256, (6, 7, 9), dtype=np.uint8)


def of_type(dtype: str) -> tuple[Any, Any]:
    """Two random arrays of 6 items of 7 x 9."""
    random = np.random.default_rng(7)
    values = random.random((2, 6, 7, 9))
    if dtype.startswith("uint"):
        values = np.floor(values * np.iinfo(dtype).max)
    elif dtype == "bool":
        values = values > 0.5
    return values[0].astype(dtype), values[1].astype(dtype)


@pytest.fixture
def h5(tmp_path: Path) -> str:
    path = tmp_path / "a.h5"
    write_h5(path, {"noisy": GIVEN, "clean": WANTED})
    return str(path)


def npz(path: Path, **keys: Any) -> Arrays:
    """A source over arrays `n` and `c`, saved first; other keys are the source's."""
    arrays = {name: keys.pop(name) for name in ("n", "c", "extra") if name in keys}
    np.savez(path / "a.npz", **arrays)
    return Arrays(path=str(path / "a.npz"), **{"input": "n", "target": "c", **keys})


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "bool", "float32", "float64"])
def test_every_kind_of_file_gives_the_same_items(tmp_path: Path, dtype: str) -> None:
    given, wanted = of_type(dtype)
    sources = {kind: Arrays(**keys) for kind, keys in write_every_kind(tmp_path, given, wanted).items()}
    first = sources["a.h5"]
    assert first.names == [f"item[{number}]" for number in range(6)]
    assert first.shape.input == first.shape.target == (1, 7, 9)
    for kind, source in sources.items():
        assert source.fingerprint() == first.fingerprint(), kind
        assert (source.names, source.groups, source.shape) == (first.names, first.groups, first.shape), kind
        # Where the file is, and whether it is in memory, is all that differs in what is printed.
        assert [line.partition(": ")[2] for line in source.describe()[1:3]] == [
            line.partition(": ")[2] for line in first.describe()[1:3]
        ]
        for one, other in zip(source.fixed(range(6)), first.fixed(range(6)), strict=True):
            for role in ("input", "target"):
                assert torch.equal(one[role], other[role]), kind
                assert one[role].is_contiguous(), kind
                assert one[role].dtype == torch.float32, kind


def test_values_are_scaled_once(h5: str) -> None:
    source: Source = Arrays(path=h5, input="noisy", target="clean", scale_to=[-1, 1])
    assert source.data_range == (-1.0, 1.0)
    item = source.fixed([3])[0]
    expected = (GIVEN[3].astype(np.float64) * (2 / 255) - 1).astype(np.float32)
    assert torch.equal(item["input"], torch.from_numpy(expected)[None])
    assert item["index"] == 3
    lines = source.describe()
    assert lines[0] == f"6 items from {h5}"
    assert lines[1] == (
        f"input noisy: 1x7x9, uint8, values {GIVEN.min()} to {GIVEN.max()}; "
        "range 0 to 255 by its type, scaled to [-1, 1]"
    )


@pytest.mark.parametrize(
    ("layout", "order"), [("CHW", (0, 1, 2, 3)), ("HWC", (0, 2, 3, 1)), ("CL", (0, 1, 2)), ("LC", (0, 2, 1))]
)
def test_layouts_and_the_axis_of_items(tmp_path: Path, layout: str, order: tuple[int, ...]) -> None:
    shape = (4, 3, 8, 5) if len(order) == 4 else (4, 2, 9)
    canonical = np.random.default_rng(1).integers(0, 256, (2, *shape), dtype=np.uint8)
    plain = npz(tmp_path, n=canonical[0], c=canonical[1], layout="CHW" if len(order) == 4 else "CL")
    for axis in range(len(order)):
        n, c = (np.moveaxis(array.transpose(order), 0, axis) for array in canonical)
        for item_axis in (axis, axis - len(order)):
            source = npz(tmp_path, n=n, c=c, layout=layout, item_axis=item_axis)
            assert source.shape == plain.shape
            assert source.fingerprint() == plain.fingerprint()
            assert torch.equal(source.fixed([2])[0]["input"], plain.fixed([2])[0]["input"])


@pytest.mark.parametrize("write", [scipy.io.savemat, write_matlab73])
def test_matlab_drops_a_last_axis_of_one(tmp_path: Path, write: Any) -> None:
    path = tmp_path / "a.mat"
    write(path, {"n": GIVEN, "c": WANTED})
    grey = Arrays(path=str(path), input="n", target="c", layout="HWC")
    assert grey.fingerprint() == Arrays(path=str(path), input="n", target="c").fingerprint()
    write(path, {"n": GIVEN[0], "c": WANTED[0]})
    write(first := tmp_path / "first.mat", {"n": GIVEN[:1], "c": WANTED[:1]})
    parts = [None, False] if write is write_matlab73 else [None]
    for layout, in_memory in itertools.product(("HW", "HWC", "CHW"), parts):
        file = first if layout == "CHW" else path
        single = Arrays(
            path=str(file), input="n", target="c", layout=layout, item_axis=-1, patch=3, in_memory=in_memory
        )
        assert torch.equal(single.whole(single.groups)[0]["target"][0], torch.from_numpy(WANTED[0] / 255).float())
    write(narrow := tmp_path / "narrow.mat", {"n": GIVEN[:, 0], "c": WANTED[:, 0]})
    with pytest.raises(ConfigError, match=r"has 2 axes .* choose L"):
        Arrays(path=str(narrow), input="n", target="c", layout="HW")


def test_signals(tmp_path: Path) -> None:
    waves = np.sin(np.linspace(0, 9, 5 * 40)).reshape(5, 40)
    source = npz(tmp_path, n=waves, c=waves[:, ::2], layout="L", patch=10, augmentation=True)
    assert source.shape.input == (1, 10)
    assert source.shape.target == (1, 5)
    assert source.names[:2] == ["item[0][0]", "item[0][10]"]
    turned = [source.training([3], ("k", number))[0] for number in range(20)]
    assert len({tuple(item["target"].flatten().tolist()) for item in turned}) == 2
    plain = source.fixed([3])[0]
    for item in turned:
        flipped = not torch.equal(item["input"], plain["input"])
        assert torch.equal(item["target"], plain["target"].flip(1) if flipped else plain["target"])


@pytest.mark.parametrize(
    ("low", "high", "expected"), [(0.0, 1.0, (0.0, 1.0)), (0.2, 0.7, (0.0, 1.0)), (-0.9, 0.4, (-1.0, 1.0))]
)
def test_range_of_float_values(tmp_path: Path, low: float, high: float, expected: tuple[float, float]) -> None:
    values = np.linspace(low, high, 2 * 4 * 3 * 3).reshape(2, 4, 3, 3)
    source = npz(tmp_path, n=values[:, ::-1].reshape(4, 3, 3, 2)[..., 0], c=values.reshape(4, 3, 3, 2)[..., 1])
    assert [scale.source for scale in source.scales] == [expected, expected]


def test_ranges_that_are_not_known_are_asked_for(tmp_path: Path) -> None:
    unit = RANDOM.random((3, 4, 5))
    cases = {
        r"int32, whose range is not known: state it": {"n": GIVEN.astype(np.int32), "c": WANTED},
        r"values from 0 to 255 are in neither \[0, 1\] nor \[-1, 1\]": {
            "n": np.float32([[[0, 255]]] * 2),
            "c": unit[:2],
        },
        r"negative in one array only: state data.range": {"n": unit - 0.5, "c": unit},
    }
    for message, arrays in cases.items():
        with pytest.raises(ConfigError, match=message):
            npz(tmp_path, **arrays)


def test_noisy_values_around_clean_ones_are_not_taken_for_grey_levels(tmp_path: Path) -> None:
    unit = RANDOM.random((3, 4, 5))
    noisy = 1.4 * unit - 0.2
    cases = {
        r"values from .* kept by data.range=\[0,1\] data.outside=keep$": {"n": noisy, "c": unit},
        r"kept by data.range=\[-1,1\] data.outside=keep$": {"n": 2 * noisy - 1, "c": 2 * unit - 1},
        r"state what the targets fill, such as data.range=\[-0.\d+,1.\d+\] data.outside=keep$": {
            "n": noisy,
            "c": noisy,
        },
        r"state the range, such as data.range=\[0,255\]$": {"n": 200 * unit, "c": unit},
        r"state the range, such as data.range=\[-\d+(.\d+)?,\d+(.\d+)?\]$": {"n": 900 * noisy, "c": 900 * unit},
    }
    for message, arrays in cases.items():
        with pytest.raises(ConfigError, match=message):
            npz(tmp_path, **arrays)
    assert npz(tmp_path, n=noisy, c=unit, range=[0, 1], outside="keep").fixed([0])[0]["input"].min() < 0


def test_values_that_hardly_fill_their_range_are_told(tmp_path: Path) -> None:
    unit = np.linspace(0, 1, 3 * 4 * 5).reshape(3, 4, 5)
    told = npz(tmp_path, n=unit, c=0.5 * unit, range=[0, 50]).describe()
    assert [line for line in told if "warning" in line] == [
        "warning: target c fills 1 % of its range, so that PSNR and SSIM say nothing: see data.range"
    ]


def test_values_outside_a_stated_range(tmp_path: Path) -> None:
    clean = RANDOM.random((6, 4, 4))
    noisy = clean.copy()
    noisy[2, 1, 1], noisy[5, 0, 0] = 1.5, -0.5
    keys: dict[str, Any] = {"n": noisy, "c": clean, "range": [0, 1]}
    with pytest.raises(ConfigError, match=r"values from -0.5 to 1.5 in items 2, 5, outside data.range \(=\[0, 1\]\)"):
        npz(tmp_path, **keys)
    kept, clipped = npz(tmp_path, **keys, outside="keep"), npz(tmp_path, **keys, outside="clip")
    assert kept.fixed([2])[0]["input"].max() == 1.5
    assert clipped.fixed([2])[0]["input"].max() == 1
    assert clipped.fixed([5])[0]["input"].min() == 0
    assert kept.fingerprint() != clipped.fingerprint()
    with pytest.raises(ConfigError, match="target c has values"):
        npz(tmp_path, n=clean, c=noisy, range=[0, 1], outside="keep")
    apart = npz(tmp_path, n=4095 * clean, c=clean, range=[0, 4095], target_range=[0, 1])
    # 4095 x and the division by 4095 round once each in float64, far below float32's last digit.
    torch.testing.assert_close(apart.fixed([1])[0]["input"], apart.fixed([1])[0]["target"], rtol=2e-7, atol=0)


def test_items_that_are_not_finite(tmp_path: Path) -> None:
    noisy, clean = RANDOM.random((6, 4, 4)), RANDOM.random((6, 4, 4))
    noisy[1, 2, 3], noisy[3] = np.nan, np.inf
    clean[5, 0, 0] = -np.inf
    with pytest.raises(ConfigError, match="items 1, 3, 5 hold NaN or infinity"):
        npz(tmp_path, n=noisy, c=clean)
    source = npz(tmp_path, n=noisy, c=clean, skip_bad=True)
    assert source.names == source.groups == ["item[0]", "item[2]", "item[4]"]
    assert "3 items with NaN or infinity left out: 1, 3, 5" in source.describe()
    assert torch.equal(source.fixed([1])[0]["input"], torch.from_numpy(noisy[2]).float()[None])
    for skip_bad in (False, True):
        with pytest.raises(ConfigError, match="all 6 items hold NaN or infinity: nothing is left"):
            npz(tmp_path, n=noisy * np.nan, c=clean, skip_bad=skip_bad)
    with pytest.raises(ConfigError, match="item 1 holds NaN or infinity: repair it, or leave it out"):
        npz(tmp_path, n=noisy[:3], c=clean[:3])


@pytest.mark.parametrize("factor", [1, 2, 3])
def test_patches_lie_on_the_same_part_of_input_and_target(tmp_path: Path, factor: int) -> None:
    small = RANDOM.integers(0, 256, (3, 7, 11), dtype=np.uint8)
    large = small.repeat(factor, 1).repeat(factor, 2)
    for given, wanted, patch in ((small, large, (2, 3)), (large, small, (2 * factor, 3 * factor))):
        source = npz(tmp_path, n=given, c=wanted, patch=list(patch))
        assert len(source) == 3 * 3 * 3
        assert source.groups[:9] == ["item[0]"] * 9
        assert len(set(source.names)) == len(source)
        for item in source.fixed(range(len(source))):
            less, more = sorted((item["input"], item["target"]), key=torch.numel)
            assert torch.equal(less.repeat_interleave(factor, 1).repeat_interleave(factor, 2), more)
        whole = source.whole(["item[2]", "item[0]"])
        assert whole is not None
        assert (whole.names, whole.groups, len(whole)) == (["item[0]", "item[2]"], ["item[0]", "item[2]"], 2)
        assert torch.equal(whole[1]["input"], torch.from_numpy(given[2] / 255).float()[None])
    assert npz(tmp_path, n=small, c=large).whole(["item[0]"]) is None


def test_patches_that_do_not_fit(tmp_path: Path) -> None:
    small, large = np.zeros((2, 4, 6), np.uint8), np.zeros((2, 8, 12), np.uint8)
    for message, keys in {
        r"data.patch \(=5x5\) is larger than an item's input \(4x6\)": {"n": small, "c": large, "patch": 5},
        r"data.patch \(=3x3\) must be a multiple of 2x2": {"n": large, "c": small, "patch": 3},
        r"data.patch \(=0\) must be a whole number": {"n": large, "c": small, "patch": 0},
        r"sizes \(4x6 and 8x6\) are not in proportion": {"n": small, "c": large[:, :, :6], "augmentation": True},
    }.items():
        with pytest.raises(ConfigError, match=message):
            npz(tmp_path, **keys)


@pytest.mark.parametrize(("size", "expected"), [((5, 5), 8), ((4, 6), 4)])
def test_augmentation_turns_both_alike(tmp_path: Path, size: tuple[int, int], expected: int) -> None:
    given = RANDOM.integers(0, 256, (2, *size), dtype=np.uint8)
    source = npz(tmp_path, n=given, c=given.repeat(2, 1).repeat(2, 2), augmentation=True)
    seen = set()
    for epoch in range(60):
        item = source.training([1, 0], (0, epoch))[1]
        assert torch.equal(item["input"].repeat_interleave(2, 1).repeat_interleave(2, 2), item["target"])
        assert torch.equal(item["input"], source.training([0], (0, epoch))[0]["input"])
        seen.add(tuple(item["input"].flatten().tolist()))
    assert len(seen) == expected
    assert torch.equal(source.fixed([0])[0]["input"][0], torch.from_numpy(given[0] / 255).float())


def test_groups_from_the_file_or_from_csv(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    write_h5(path, {"noisy": GIVEN, "clean": WANTED, "who": np.float64([1, 1, 2, 2, 3, 3]), "part": [0.5] * 6})
    with h5py.File(path, "a") as file:
        file["words"] = ["a", "a", "ü", "ü", "c d", "c d"]
    keys: dict[str, Any] = {"path": str(path), "input": "noisy", "target": "clean"}
    numbered = Arrays(**keys, groups="who")
    assert numbered.groups == ["1", "1", "2", "2", "3", "3"]
    assert "6 items in 3 groups" in numbered.describe()
    assert Arrays(**keys, groups="words").groups == ["a", "a", "ü", "ü", "c d", "c d"]
    scipy.io.savemat(tmp_path / "a.mat", {"n": GIVEN, "c": WANTED, "who": [[1, 1, 2, 2, 3, 3]], "words": ["a"] * 6})
    for name, expected in {"who": numbered.groups, "words": ["a"] * 6}.items():
        source = Arrays(path=str(tmp_path / "a.mat"), input="n", target="c", groups=name)
        assert source.groups == expected
    table = tmp_path / "groups.csv"
    table.write_text("item,group\n" + "".join(f"{number},{'xy'[number % 2]}\n" for number in range(6)))
    assert Arrays(**keys, groups=str(table), patch=7).groups == ["x", "y", "x", "y", "x", "y"]
    table.write_text("item,group\n0,x\n1,y\n")
    for groups, message in {
        str(table): "has no row for 2, 3, 4, 5",
        str(tmp_path / "none.csv"): "cannot be read",
        "part": "holds fractions",
        "clean": "give one label per item",
        "nothing": "unknown array in data.groups 'nothing'",
        3: "must be null, the name of an array",
    }.items():
        with pytest.raises(ConfigError, match=message):
            Arrays(**keys, groups=groups)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["packed.hdf5 on disk", "seven.mat on disk", "npy on disk", "a.npz"])
def test_workers_read_the_same(tmp_path: Path, kind: str) -> None:
    source = Arrays(**write_every_kind(tmp_path, GIVEN, WANTED)[kind])
    expected = [item["input"] for item in source.fixed(range(6))]
    for workers in (0, 2):
        loader: DataLoader[Any] = DataLoader(source.fixed(range(6)), batch_size=2, num_workers=workers)
        assert torch.equal(torch.cat([batch["input"] for batch in loader]), torch.stack(expected))
    copied = pickle.loads(pickle.dumps(source))
    assert torch.equal(copied.fixed([4])[0]["input"], expected[4])
    assert ("read from disk item by item" if "disk" in kind else "in memory") in source.describe()[-1]


def test_a_file_that_changes_while_it_is_read(tmp_path: Path) -> None:
    source = Arrays(**write_every_kind(tmp_path, GIVEN, WANTED)["a.h5 on disk"])
    copied = pickle.loads(pickle.dumps(source))
    (tmp_path / "a.h5").unlink()
    with pytest.raises(ConfigError, match="cannot be read, it is damaged or has changed"):
        copied.fixed([0])[0]


def test_the_fingerprint_is_the_items(tmp_path: Path) -> None:
    first = npz(tmp_path, n=GIVEN, c=WANTED).fingerprint()
    changed = WANTED.copy()
    changed[5, 6, 8] ^= 1
    others = [
        npz(tmp_path, n=GIVEN, c=changed),
        npz(tmp_path, n=WANTED, c=GIVEN),
        npz(tmp_path, n=GIVEN, c=WANTED, patch=3),
        npz(tmp_path, n=GIVEN, c=WANTED, scale_to=[-1, 1]),
        npz(tmp_path, n=GIVEN, c=WANTED, augmentation=True),
        npz(tmp_path, n=GIVEN[:5], c=WANTED[:5]),
    ]
    found = [first, *(source.fingerprint() for source in others)]
    assert len(set(found)) == len(found)
    assert npz(tmp_path, n=GIVEN, c=WANTED).fingerprint() == first


def test_names_are_asked_for_with_what_there_is(tmp_path: Path, h5: str) -> None:
    held = r"clean \(6 x 7 x 9, uint8\), noisy \(6 x 7 x 9, uint8\)"
    np.save(tmp_path / "one.npy", GIVEN)
    one = str(tmp_path / "one.npy")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"path": h5}, f"data.input must name an array of .*a.h5, which holds {held}"),
        ({"path": h5, "input": "noisy"}, "data.target must name an array"),
        ({"path": h5, "input": "nosy", "target": "clean"}, f"unknown array in data.input 'nosy'. .* holds {held}"),
        ({"path": h5, "input": 3, "target": "clean"}, r"data.input \(=3\) must be the name of an array"),
        ({"path": h5, "input": "clean", "target": "/clean"}, "input and target are the same array"),
        ({"path": one}, "holds one array, one .*name the targets' file in data.target_path"),
        ({"path": one, "target_path": one}, "input and target are the same array"),
    ]
    for keys, message in cases:
        with pytest.raises(ConfigError, match=message):
            Arrays(**keys)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("words", "is no array of numbers but string"),
        ("complex", "complex128: save real and imaginary parts as channels"),
        ("single", "is empty or a single number"),
        ("none", r"is empty or a single number: none \(0 x 3 x 3, float64\)"),
        ("null", "but empty: save it with values"),
        (
            "colour",
            r"has 4 axes \(6 x 7 x 9 x 3\), and data.layout \(=HW\) with the items' axis makes 3: choose CHW or HWC",
        ),
        ("few", "input few has 2 items and target clean has 6"),
    ],
)
def test_arrays_that_cannot_be_items(h5: str, name: str, message: str) -> None:
    with h5py.File(h5, "a") as file:
        file["words"], file["single"], file["none"] = ["a", "b"], 3.0, np.zeros((0, 3, 3))
        file["complex"], file["null"], file["few"] = GIVEN.astype(complex), h5py.Empty("f4"), GIVEN[:2]
        file["colour"] = np.zeros((6, 7, 9, 3), np.uint8)
    with pytest.raises(ConfigError, match=message):
        Arrays(path=h5, input=name, target="clean")


def test_channels_on_the_wrong_side(tmp_path: Path) -> None:
    colour = np.zeros((2, 7, 9, 3), np.uint8)
    with pytest.raises(ConfigError, match=r"data.layout \(=CHW\) reads 7 channels of 9 x 3 from data.input \(=n\)"):
        npz(tmp_path, n=colour, c=GIVEN[:2], layout="CHW")
    with pytest.raises(ConfigError, match=r"data.target_layout \(=HWC\) reads 9 channels of 3 x 7"):
        npz(tmp_path, n=GIVEN[:2], c=colour.transpose(0, 3, 1, 2), target_layout="HWC")


@pytest.mark.parametrize("name", ["struct", "cell", "sparse", "complex", "char"])
def test_what_matlab_keeps_beside_numbers(tmp_path: Path, name: str) -> None:
    held = {
        "struct": {"a": GIVEN},
        "cell": np.array([GIVEN, "x"], dtype=object),
        "sparse": scipy.sparse.eye(6).tocsc(),
        "complex": GIVEN * 1j,
        "char": ["ab", "cd"],
    }
    scipy.io.savemat(tmp_path / "a.mat", {"c": WANTED, **held})
    with pytest.raises(ConfigError, match=f"is no array of numbers but {name}"):
        Arrays(path=str(tmp_path / "a.mat"), input=name, target="c")


def test_pickles_are_never_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", n=np.array([GIVEN, None], dtype=object), c=WANTED)
    with pytest.raises(ConfigError, match="object: object arrays hold Python's pickles"):
        Arrays(path=str(tmp_path / "a.npz"), input="n", target="c")


def test_damaged_files_are_named(tmp_path: Path) -> None:
    kinds = write_every_kind(tmp_path, GIVEN, WANTED)
    for kind in ("a.h5", "packed.hdf5", "a.npz", "packed.npz", "npy", "five.mat", "packed.mat", "seven.mat"):
        path = Path(kinds[kind]["path"])
        whole = path.read_bytes()
        lengths = {0, 1, 60, 135, 140, 200, *(len(whole) * part // 20 for part in range(20)), len(whole) - 1}
        for length in sorted(lengths):
            path.write_bytes(whole[:length])
            with pytest.raises(ConfigError, match=str(path)):
                Arrays(**kinds[kind])
        path.write_bytes(b"this is no such file " * 40)
        with pytest.raises(ConfigError, match=str(path)):
            Arrays(**kinds[kind])


@pytest.mark.parametrize("in_memory", [None, False])
def test_a_damaged_block_is_named(tmp_path: Path, in_memory: bool | None) -> None:
    path = tmp_path / "a.h5"
    write_h5(path, {"n": GIVEN, "c": WANTED}, chunks=(1, 7, 9), compression="gzip", fletcher32=True)
    with h5py.File(path) as file:
        place = file["n"].id.get_chunk_info(3)
    whole = bytearray(path.read_bytes())
    whole[place.byte_offset + 8 : place.byte_offset + 20] = bytes(12)
    path.write_bytes(whole)
    with pytest.raises(ConfigError, match=r"a\.h5 cannot be read, it is damaged"):
        Arrays(path=str(path), input="n", target="c", in_memory=in_memory)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"path": None}, r"data.path \(=None\) must be a file with arrays: .h5, .hdf5, .npz, .npy, .mat"),
        ({"path": "none.h5"}, r"data.path \(=none.h5\) is no file"),
        ({"target_path": "none.h5"}, r"data.target_path \(=none.h5\) is no file"),
        ({"path": __file__}, "must end in one of .h5"),
        ({"layout": "NHW"}, "unknown data.layout 'NHW'"),
        ({"target_layout": 3}, "data.target_layout"),
        ({"layout": "L", "target_layout": "HW"}, "has 3 axes"),
        ({"item_axis": 5}, r"data.item_axis \(=5\) must be from -3 to 2"),
        ({"item_axis": "last"}, "data.item_axis .* must be a whole number"),
        ({"range": [3, 3]}, "data.range"),
        ({"range": [-1.7e308, 1.7e308]}, "data.range"),
        ({"range": 255}, "data.range"),
        ({"range": [0, float("nan")]}, "data.range"),
        ({"target_range": ["a", 1]}, "data.target_range"),
        ({"scale_to": [0, 255]}, r"data.scale_to \(=\[0, 255\]\) must be \[0, 1\] or \[-1, 1\]"),
        ({"scale_to": None}, "data.scale_to"),
        ({"outside": "warn"}, "unknown data.outside 'warn'"),
        ({"skip_bad": "yes"}, "data.skip_bad"),
        ({"augmentation": 1}, "data.augmentation"),
        ({"in_memory": "no"}, "data.in_memory"),
        ({"patch": "big"}, "data.patch"),
    ],
)
def test_values_that_cannot_be_carried_out(h5: str, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Arrays(**{"path": h5, "input": "noisy", "target": "clean", **keys})


def test_files_that_are_read_whole_cannot_stay_on_disk(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs files that can be read in parts"):
        npz(tmp_path, n=GIVEN, c=WANTED, in_memory=False)


def test_the_option_is_the_signature() -> None:
    option = yaml.safe_load(OPTION.read_text())
    assert option.pop("defaults") == [{"override /task@_global_.task": "restore"}]
    assert option.pop("_target_") == f"{Arrays.__module__}.{Arrays.__name__}"
    defaults = {name: parameter.default for name, parameter in inspect.signature(Arrays).parameters.items()}
    assert {key: tuple(value) if isinstance(value, list) else value for key, value in option.items()} == defaults
    assert list(option) == list(defaults)
