"""best.safetensors: the bits of best.pt for anyone, whole or known not to be."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from onn_runner.errors import RunError
from onn_runner.trainer import checkpoint, weights
from onn_runner.trainer.checkpoint import Checkpoint, Damaged


def made(**network: Any) -> Checkpoint:
    return Checkpoint(
        config={"data": {"sigma": 25}, "name": "Grün"},
        seed=3,
        fold=1,
        start=2,
        epoch=4,
        network=network,
        best={"val/psnr": {"epoch": 4.0, "value": 30.5}},
        history=[{"epoch": 4.0, "val/psnr": 30.5, "val/snr": math.nan}],
        averaged=[2, 4],
    )


TIED = torch.randn(3, 5)
NETWORK = {
    "z": torch.randn(4, 3, 2, 1).permute(3, 1, 0, 2),
    "tied": TIED,
    "tied_too": TIED,
    "part": TIED[:, 1:3],
    "scalar": torch.tensor(7),
    "none": torch.empty(0, 3),
    "half": torch.tensor([1.5, math.nan, -math.inf], dtype=torch.bfloat16),
    "flags": torch.tensor([True, False]),
    "complex": torch.tensor([1 + 2j], dtype=torch.complex128),
    "layer._extra_state": {"plans": {(1, "a"): torch.ones(2)}, "chosen": "chebyshev"},
}


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and repr(one) == repr(other)
    return repr(one) == repr(other)


def test_everything_comes_back(tmp_path: Path) -> None:
    weights.save_best(tmp_path / "best.pt", made(**NETWORK))
    found, stored = weights.read(tmp_path / "best.safetensors"), checkpoint.load(tmp_path / "best.pt")
    assert list(found.network) == list(NETWORK)
    assert all(same(found.network[name], value) for name, value in stored.network.items())
    for name in ("config", "seed", "fold", "start", "epoch", "best", "averaged", "threads", "torch", "format"):
        assert getattr(found, name) == getattr(stored, name), name
    assert repr(found.history) == repr(stored.history)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best.pt", "best.safetensors"]


def test_other_programs_read_it(tmp_path: Path) -> None:
    layer = torch.nn.Conv2d(2, 3, 3)
    weights.save_best(tmp_path / "best.pt", made(**layer.state_dict()))
    other = torch.nn.Conv2d(2, 3, 3)
    other.load_state_dict(load_file(tmp_path / "best.safetensors"))
    assert torch.equal(other.weight, layer.weight)
    with safe_open(tmp_path / "best.safetensors", framework="pt") as file:
        metadata = file.metadata()
    assert json.loads(metadata["config"]) == {"data": {"sigma": 25}, "name": "Grün"}
    assert (json.loads(metadata["checkpoint"])["epoch"], metadata["format"]) == (4, "pt")


def test_every_damage_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "best.safetensors"
    content = weights.encoded(made(weight=torch.arange(3.0)))
    path.write_bytes(content)
    assert weights.read(path).epoch == 4
    places = range(0, len(content), 7)
    flipped = [content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :] for at in places]
    cut = [content[:length] for length in range(0, len(content), 19)]
    for damaged in (*cut, *flipped, content + b"\0", bytes(len(content))):
        path.write_bytes(damaged)
        try:
            found = weights.read(path)
        except Damaged:
            continue
        # Blanks of the header may be other ones without another meaning.
        assert torch.equal(found.network["weight"], torch.arange(3.0))
        assert (found.config, found.best, found.epoch) == (made().config, made().best, 4)
    with pytest.raises(RunError, match="does not exist"):
        weights.read(tmp_path / "missing.safetensors")


def test_the_copy_stands_in_for_a_damaged_best(tmp_path: Path) -> None:
    path = tmp_path / "best.pt"
    weights.save_best(path, made(weight=torch.arange(3.0)))
    path.write_bytes(path.read_bytes()[:-1])
    assert torch.equal(weights.load_best(path).network["weight"], torch.arange(3.0))
    path.with_suffix(".safetensors").write_bytes(b"")
    with pytest.raises(Damaged, match=r"best\.pt is damaged: .* So is its copy, or there is none: resume the run"):
        weights.load_best(path)
    path.unlink()
    with pytest.raises(RunError, match="does not exist"):
        weights.load_best(path)
