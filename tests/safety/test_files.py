"""Data and weights of strangers: nothing is unpickled, read from elsewhere, or unpacked beyond the memory."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from PIL import Image

from onn_runner import plain
from onn_runner.network.zoo import load_weights

ARRAYS = ("data=arrays", "data.input=x", "data.target=y", "model=conv", "dry_run=true")
VALUES = np.zeros((8, 16, 16), np.float32)


class Payload:
    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


def outside(file: h5py.File, elsewhere: Path) -> None:
    (elsewhere.parent / "secret").write_bytes(VALUES.tobytes())
    file.create_dataset(
        "x", VALUES.shape, VALUES.dtype, external=[(str(elsewhere.parent / "secret"), 0, VALUES.nbytes)]
    )


def virtual(file: h5py.File, elsewhere: Path) -> None:
    with h5py.File(elsewhere.parent / "secret.h5", "w") as other:
        other["d"] = VALUES
    layout = h5py.VirtualLayout(VALUES.shape, VALUES.dtype)
    layout[:] = h5py.VirtualSource("../secret.h5", "d", VALUES.shape)
    file.create_virtual_dataset("x", layout)


def linked(file: h5py.File, elsewhere: Path) -> None:
    with h5py.File(elsewhere.parent / "secret.h5", "w") as other:
        other["d"] = VALUES
    file["x"] = h5py.ExternalLink("../secret.h5", "/d")


def huge(file: h5py.File, elsewhere: Path) -> None:
    file.create_dataset("x", (8, 10**7, 10**7), np.float32, chunks=(1, 64, 64))


@pytest.mark.parametrize(
    ("write", "part"),
    [(outside, "kept elsewhere"), (virtual, "kept elsewhere"), (linked, "holds one array, y"), (huge, "the memory")],
)
def test_an_hdf5_file_is_read_from_itself(box, write, part):
    with h5py.File("a.h5", "w") as file:
        file["y"] = VALUES
        write(file, box.elsewhere)
    assert part in box.refused(box.onn_run("data.path=a.h5", *ARRAYS))


def pickled(box, file: Path) -> None:
    np.savez(file, x=np.array([Payload(box.touch)], dtype=object), y=VALUES)


def declared(box, file: Path) -> None:
    """Values of 10^17 bytes in a file of a few hundred."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (8, 10**8, 10**8)})
    y = io.BytesIO()
    np.save(y, VALUES)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", header.getvalue())
        archive.writestr("y.npy", y.getvalue())


@pytest.mark.parametrize(("write", "part"), [(pickled, "hold Python's pickles"), (declared, "more than the memory")])
def test_arrays_of_numpy_are_numbers_that_fit(box, write, part):
    write(box, Path("a.npz"))
    assert part in box.refused(box.onn_run("data.path=a.npz", *ARRAYS))


def test_pictures_that_would_fill_the_memory_are_named(box):
    Path("pictures").mkdir()
    Image.fromarray(np.zeros((32, 32), np.uint8)).save("pictures/a.png")
    small = io.BytesIO()
    Image.fromarray(np.zeros((32, 32), np.uint8)).save(small, "GIF")
    content = bytearray(small.getvalue())
    content[6:10] = b"\xff\xff\xff\xff"
    Path("pictures/b\x1b[31m.gif").write_bytes(content)
    line = box.refused(box.onn_run("data=images", "data.path=pictures", "model=conv", "dry_run=true"))
    assert "exceeds limit" in line


def test_the_pickles_that_cifar_is_published_in_hold_arrays_only(box):
    Path("cifar").mkdir()
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch", "batches.meta"):
        Path("cifar", name).write_bytes(pickle.dumps({"data": Payload(box.touch), "label_names": []}))
    line = box.refused(box.onn_run("data=cifar10", "data.path=cifar", "model=conv", "dry_run=true"))
    assert "it asks for posix.system" in line


def zipped(payload: Payload, path: Path) -> None:
    torch.save({"weight": payload}, path)


def bare(payload: Payload, path: Path) -> None:
    path.write_bytes(pickle.dumps(payload))


def packed(payload: Payload, path: Path) -> None:
    content = io.BytesIO()
    torch.save({"weight": torch.zeros(3)}, content)
    with zipfile.ZipFile(content) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name) + bytes(10_000_000 * ("/data/" in name)))


def pipe(payload: Payload, path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("write", "part"),
    [(zipped, "objects of Python"), (bare, "objects of Python"), (packed, "more memory"), (pipe, "it is no file")],
)
def test_weights_are_tensors(box, write, part):
    path = Path("weights.pt")
    write(Payload(box.touch), path)
    with pytest.raises(plain.ConfigError) as told:
        load_weights(torch.nn.Linear(2, 3), path)
    assert part in str(told.value)
    assert "weights_only" not in str(told.value)
    box.unharmed(str(told.value))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mb", "a�[31mb"),
        ("a\rb", "a�b"),
        ("\u202eevil", "�evil"),
        ("ä\n\tπ 猫", "ä\n\tπ 猫"),
        ("\x9b2J", "�2J"),
    ],
)
def test_what_steers_a_terminal_is_not_shown(text, shown):
    assert plain.printable(text) == shown
