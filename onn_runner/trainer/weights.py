"""best.safetensors beside best.pt: the best weights for other programs, and a second copy where best.pt is damaged."""

from __future__ import annotations

import base64
import io
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from onn_runner import storage
from onn_runner.errors import RunError
from onn_runner.trainer import checkpoint
from onn_runner.trainer.checkpoint import UNREADABLE, Checkpoint, Damaged

SUFFIX = ".safetensors"
ALIKE = ("seed", "fold", "start", "epoch", "averaged", "best", "history", "threads", "torch", "format")
"""Fields of a checkpoint that best.pt has beside config and network."""

KINDS = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
)
"""What a safetensors file holds of torch; other tensors go with what is none."""


def save_best(path: Path, best: Checkpoint) -> None:
    """`best` as best.pt, then as best.safetensors. Raises RunError where one of them cannot be written."""
    checkpoint.save(path, best)
    storage.write(path.with_suffix(SUFFIX), encoded(best), often=True)


def publish_best(path: Path, folder: Path, *, often: bool = False) -> None:
    """Show both files in `folder` too."""
    for source in (path, path.with_suffix(SUFFIX)):
        if source.exists():
            storage.publish(source, folder / source.name, often=often)


def load_best(path: Path) -> Checkpoint:
    """best.pt or, where that is damaged, its copy. Raises Damaged where both are, and as `checkpoint.load`."""
    try:
        return checkpoint.load(path)
    except Damaged as error:
        try:
            return read(path.with_suffix(SUFFIX))
        except RunError:
            raise Damaged(f"{error} So is its copy, or there is none: resume the run to train this again.") from error


def encoded(best: Checkpoint) -> bytes:
    """The content of a safetensors file: the tensors of a state_dict, all else about them as metadata.

    What layers keep beside tensors (extra_state) is there as base64 of a file of torch.
    """
    tensors = {name: _owned(value) for name, value in best.network.items() if _fits(value)}
    extra = io.BytesIO()
    torch.save({name: value for name, value in best.network.items() if name not in tensors}, extra)
    metadata = {
        "format": "pt",
        "config": json.dumps(best.config),
        "checkpoint": json.dumps({name: getattr(best, name) for name in ALIKE}),
        "order": json.dumps(list(best.network)),
        "extra_state": base64.b64encode(extra.getvalue()).decode(),
    }
    return safetensors.torch.save(tensors, {**metadata, "crc32": _checksum(tensors, metadata)})


def read(path: Path) -> Checkpoint:
    """What `encoded` was given. Raises Damaged, and RunError where there is no such file."""
    try:
        content = path.read_bytes()
        metadata = dict(json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"])
        tensors = safetensors.torch.load(content)
        if metadata.pop("crc32") != _checksum(tensors, metadata):
            raise Damaged(f"{path} is damaged: its checksum does not fit.")
        extra = torch.load(io.BytesIO(base64.b64decode(metadata["extra_state"])), weights_only=True)
        network = {**tensors, **extra}
        return Checkpoint(
            config=json.loads(metadata["config"]),
            network={name: network[name] for name in json.loads(metadata["order"])},
            **json.loads(metadata["checkpoint"]),
        )
    except FileNotFoundError:
        raise RunError(f"{path} does not exist.") from None
    except RunError:
        raise
    except (safetensors.SafetensorError, *UNREADABLE) as error:
        raise Damaged(f"{path} is damaged: {' '.join(str(error).split())}") from error


def _fits(value: Any) -> bool:
    return isinstance(value, Tensor) and value.layout == torch.strided and value.dtype in KINDS


def _owned(value: Tensor) -> Tensor:
    """A contiguous copy on the CPU: tied weights share memory, which such files cannot tell."""
    return value.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)


def _checksum(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """Of names, shapes, kinds and bytes of all tensors, and of the metadata."""
    found = zlib.crc32(json.dumps(dict(metadata), sort_keys=True).encode())
    for name in sorted(tensors):
        value = tensors[name]
        found = zlib.crc32(f"{name} {value.dtype} {tuple(value.shape)}".encode(), found)
        found = zlib.crc32(value.reshape(-1).view(torch.uint8).numpy().data, found) if value.numel() else found
    return f"{found:08x}"
