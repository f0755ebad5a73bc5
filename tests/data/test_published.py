"""Fashion-MNIST, MNIST and CIFAR from folders in their layouts; damaged, missing and hostile files."""

from __future__ import annotations

import gzip
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torchvision
from cifar_layout import learnable, write_cifar10, write_cifar100, write_idx, write_mnist

from onn_runner.data import mnist5k
from onn_runner.data.cifar import Cifar10, Cifar100, read_pickle
from onn_runner.data.fashion_mnist import FILES, FashionMnist
from onn_runner.data.held import Held
from onn_runner.data.idx import read_idx
from onn_runner.data.mnist import Mnist
from onn_runner.data.published import Published
from onn_runner.errors import ConfigError, RunError


def pixels(data: Any) -> Any:
    assert isinstance(data.pictures, Held)
    return data.pictures.values.numpy()


@pytest.mark.parametrize("gzipped", [True, False])
@pytest.mark.parametrize("below", ["", "FashionMNIST/raw"])
def test_fashion_mnist_is_read_from_idx_files(tmp_path: Path, gzipped: bool, below: str) -> None:
    write_mnist(tmp_path / "data" / below, gzipped=gzipped)
    data = FashionMnist(path=str(tmp_path / "data"))
    assert (len(data), data.shape.input, data.shape.target) == (130, (1, 28, 28), (10,))
    assert data.test_items == tuple(range(100, 130))
    labels = [index % 10 for index in range(100)]
    assert np.array_equal(pixels(data)[:100], learnable(labels, side=28, channels=1, seed=1))
    assert data.labels == labels + labels[:30]
    assert (data.names[99], data.names[100]) == ("train[99]", "test[0]")
    assert data.classes[9] == "ankle boot"


def test_mnist_has_the_same_layout(tmp_path: Path) -> None:
    data = Mnist(path=str(write_mnist(tmp_path / "MNIST" / "raw").parents[1]), part="test", colour=True)
    assert (len(data), data.shape.input) == (30, (3, 28, 28))


@pytest.mark.parametrize("shape", [(), (3,), (2, 0, 5), (2, 3, 4, 5)])
def test_idx_holds_any_shape(tmp_path: Path, shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape, dtype=int), dtype=np.uint8).reshape(shape)
    write_idx(tmp_path / "values", values, gzipped=False)
    assert np.array_equal(read_idx(tmp_path / "values").numpy(), values)


@pytest.mark.parametrize(
    "content", [b"", b"\0\0\x08", b"\0\0\x08\x01\0\0\0\x05abc", b"\0\0\x0d\x01\0\0\0\x01a", b"text"]
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_damaged_idx_files_are_named(tmp_path: Path, content: bytes, suffix: str) -> None:
    path = tmp_path / f"train-images-idx3-ubyte{suffix}"
    path.write_bytes(gzip.compress(content) if suffix else content)
    with pytest.raises(ConfigError, match=r"cannot read .*train-images"):
        read_idx(path)


CUT = gzip.compress(b"\0" * 5000)[:30]


@pytest.mark.parametrize("content", [b"", b"no gzip", CUT], ids=["empty", "other", "cut"])
def test_damaged_archives_are_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.gz").write_bytes(content)
    with pytest.raises(ConfigError, match=r"cannot read .*x.gz"):
        read_idx(tmp_path / "x.gz")


def test_idx_files_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    folder = write_mnist(tmp_path / "raw", gzipped=False)
    write_idx(folder / "t10k-labels-idx1-ubyte", np.zeros(29, np.uint8), gzipped=False)
    with pytest.raises(ConfigError, match=r"t10k-\* hold pictures of shape \[30, 28, 28\] and classes of shape \[29\]"):
        FashionMnist(path=str(folder))
    write_idx(folder / "t10k-labels-idx1-ubyte", np.full(30, 10, np.uint8), gzipped=False)
    with pytest.raises(ConfigError, match="hold class 10, and there are 10"):
        FashionMnist(path=str(folder))
    write_idx(folder / "t10k-images-idx3-ubyte", np.zeros((30, 5, 5), np.uint8), gzipped=False)
    write_idx(folder / "t10k-labels-idx1-ubyte", np.zeros(30, np.uint8), gzipped=False)
    with pytest.raises(ConfigError, match="have different sizes"):
        FashionMnist(path=str(folder))
    (folder / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(ConfigError, match=r"holds no t10k-labels-idx1-ubyte or t10k-labels-idx1-ubyte.gz"):
        FashionMnist(path=str(folder))


@pytest.mark.parametrize("below", ["", "cifar-10-batches-py"])
def test_cifar10_is_read_from_its_batches(tmp_path: Path, below: str) -> None:
    data = Cifar10(path=str(write_cifar10(tmp_path) / below))
    assert (len(data), data.shape.input, data.shape.target) == (250, (3, 32, 32), (10,))
    assert data.test_items == tuple(range(200, 250))
    labels = [index % 10 for index in range(40)]
    assert np.array_equal(pixels(data)[40:80], learnable(labels, side=32, channels=3, seed=2))
    assert data.labels[40:80] == labels
    assert data.classes[:2] == ["airplane", "automobile"]
    assert data.names[200] == "test[0]"


@pytest.mark.parametrize(("labels", "classes"), [("fine", 100), ("coarse", 20)])
def test_cifar100_has_fine_and_coarse_classes(tmp_path: Path, labels: str, classes: int) -> None:
    data = Cifar100(path=str(write_cifar100(tmp_path)), labels=labels)
    assert data.shape.target == (classes,)
    assert data.labels[7] == (7 if labels == "fine" else 1)
    assert data.classes[7] == f"{labels} 7"
    with pytest.raises(ConfigError, match=r"unknown data.labels 'both'"):
        Cifar100(path=str(tmp_path), labels="both")


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_pickles_of_any_age_are_read(tmp_path: Path, protocol: int) -> None:
    values = np.arange(12, dtype=np.uint8).reshape(3, 4)
    (tmp_path / "p").write_bytes(pickle.dumps({b"data": values, "labels": [1, 2, 3]}, protocol=protocol))
    read = read_pickle(tmp_path / "p")
    assert np.array_equal(read["data"], values)
    assert read["labels"] == [1, 2, 3]


class Hostile:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_pickles_run_nothing(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path) / "cifar-10-batches-py"
    (folder / "test_batch").write_bytes(pickle.dumps({"data": Hostile(tmp_path / "made")}))
    with pytest.raises(ConfigError, match=r"cannot read .*test_batch: it asks for (posix|nt)\.mkdir, which"):
        Cifar10(path=str(tmp_path))
    assert not (tmp_path / "made").exists()
    huge = b"cnumpy\nndarray\n((I1000000000000\nttR."
    (folder / "test_batch").write_bytes(huge)
    with pytest.raises(ConfigError, match=r"cannot read .*test_batch: 'str' object is not callable"):
        Cifar10(path=str(tmp_path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot read .*data_batch_3"),
        (b"\x80\x02}q\x00", "cannot read .*data_batch_3"),
        (pickle.dumps([1]), "holds list, not a dictionary"),
        (pickle.dumps({"labels": [1]}), "holds no pictures of 3 x 32 x 32"),
        (pickle.dumps({"data": np.zeros((2, 3071), np.uint8), "labels": [1, 1]}), "holds no pictures"),
        (pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": [1, 10]}), "holds no labels from 0 to 9"),
        (pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": [1]}), "holds no labels from 0 to 9"),
    ],
    ids=["empty", "cut off", "list", "no data", "other size", "other class", "too few"],
)
def test_damaged_batches_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = write_cifar10(tmp_path) / "cifar-10-batches-py" / "data_batch_3"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        Cifar10(path=str(tmp_path))
    path.unlink()
    with pytest.raises(ConfigError, match=r"data_batch_3 is missing: unpack the archive again"):
        Cifar10(path=str(tmp_path))


def test_missing_names_are_named(tmp_path: Path) -> None:
    (write_cifar10(tmp_path) / "cifar-10-batches-py" / "batches.meta").write_bytes(pickle.dumps({}))
    with pytest.raises(ConfigError, match=r"batches.meta holds no label_names"):
        Cifar10(path=str(tmp_path))


@pytest.mark.parametrize("kind", [Cifar10, Cifar100, Mnist])
def test_what_is_not_there_is_said_with_what_to_do(tmp_path: Path, kind: Any) -> None:
    with pytest.raises(ConfigError, match=r"needs data.path: a folder that holds .*set data.download=true"):
        kind()
    with pytest.raises(ConfigError, match=r"data.path \(=.*\) holds no .*: give a folder"):
        kind(path=str(tmp_path))
    with pytest.raises(ConfigError, match=r"is no folder with"):
        kind(path=str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"data.path \(=3\) must be a folder that holds"):
        kind(path=3)
    with pytest.raises(ConfigError, match=r"data.download \(='yes'\) must be true or false"):
        kind(path=str(tmp_path), download="yes")


def test_the_systems_folder_is_found_without_a_path(tmp_path: Path) -> None:
    there = Published("x", "X", ("",), FILES.mark, "1 MB", system=(str(tmp_path / "none"), str(tmp_path / "there")))
    with pytest.raises(ConfigError, match=r"data=x needs data.path"):
        there.folder(None, False)
    write_mnist(tmp_path / "there")
    assert there.folder(None, False) == tmp_path / "there"


def test_only_download_reaches_torchvision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []

    def download(root: Path, *, download: bool) -> None:
        assert download
        asked.append(root)
        write_cifar10(root)

    monkeypatch.setattr(torchvision.datasets, "CIFAR10", download)
    with pytest.raises(ConfigError, match="is no folder with"):
        Cifar10(path=str(tmp_path / "new"))
    assert len(Cifar10(path=str(tmp_path / "new"), download=True)) == 250
    assert len(Cifar10(path=str(tmp_path / "new"), download=True)) == 250
    assert asked == [tmp_path / "new"]


@pytest.mark.parametrize("error", [OSError("no route to host"), RuntimeError("File not found or corrupted.")])
def test_a_failed_download_is_one_sentence(tmp_path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(root: Path, *, download: bool) -> None:
        raise error

    monkeypatch.setattr(torchvision.datasets, "CIFAR100", download)
    with pytest.raises(RunError, match=f"data.download: CIFAR100 cannot be downloaded to .*: {error}"):
        Cifar100(path=str(tmp_path), download=True)


def test_mnist5k_is_read_from_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "digits.csv.gz"
    rows = np.zeros((20, 785), np.uint8)
    rows[:, 5], rows[:, 784] = np.arange(20), np.arange(20) % 10
    with gzip.open(path, "wt") as file:
        np.savetxt(file, rows, fmt="%d", delimiter=",")
    monkeypatch.setattr(mnist5k, "_file", lambda: path)
    data = mnist5k.Mnist5k()
    assert (len(data), data.shape.input) == (20, (1, 28, 28))
    assert pixels(data)[7, 0, 0, 5] == 7
    assert data.labels == [index % 10 for index in range(20)]


def test_mnist5k_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mnist5k, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'onn-runner\[mnist\]'"):
        mnist5k.Mnist5k()
