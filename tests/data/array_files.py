"""The same arrays written into every kind of file that data=arrays reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import scipy.io

Arrays = Mapping[str, npt.NDArray[Any]]

MATLAB = {"bool": "logical", "float64": "double", "float32": "single"}


def write_h5(path: Path, arrays: Arrays, **options: Any) -> None:
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array, **options)


def write_matlab73(path: Path, arrays: Arrays) -> None:
    """As MATLAB does: 512 bytes of header, columns first, the class beside each array, logical values as bytes."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, array in arrays.items():
            values = array.astype(np.uint8) if array.dtype == bool else array
            dataset = file.create_dataset(name, data=values.T)
            dataset.attrs["MATLAB_class"] = np.bytes_(MATLAB.get(array.dtype.name, array.dtype.name))
    with path.open("r+b") as stream:
        stream.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(116) + bytes(8) + b"\x00\x02IM")


def write_every_kind(folder: Path, given: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> dict[str, dict[str, Any]]:
    """Kind of file -> the keys of data=arrays that read it."""
    both = {"noisy": given, "clean": wanted}
    write_h5(folder / "a.h5", both)
    write_h5(folder / "packed.hdf5", {f"set/{n}": a for n, a in both.items()}, compression="gzip", shuffle=True)
    np.savez(folder / "a.npz", **both)
    np.savez_compressed(folder / "packed.npz", **both)
    np.save(folder / "noisy.npy", given)
    np.save(folder / "clean.npy", np.asfortranarray(wanted))
    scipy.io.savemat(folder / "five.mat", both)
    scipy.io.savemat(folder / "packed.mat", both, do_compression=True)
    write_matlab73(folder / "seven.mat", both)
    names = {"input": "noisy", "target": "clean"}
    found: dict[str, dict[str, Any]] = {
        file: {"path": str(folder / file), **names}
        for file in ("a.h5", "a.npz", "packed.npz", "five.mat", "packed.mat", "seven.mat")
    }
    found["packed.hdf5"] = {"path": str(folder / "packed.hdf5"), "input": "set/noisy", "target": "/set/clean"}
    found["npy"] = {"path": str(folder / "noisy.npy"), "target_path": str(folder / "clean.npy")}
    for file in ("a.h5", "seven.mat", "npy", "packed.hdf5"):
        found[f"{file} on disk"] = {**found[file], "in_memory": False}
    return found
