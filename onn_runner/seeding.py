"""Keyed randomness: every random number is a function of named parts, never of what was drawn before.

A generator is made from a key such as ``("noise", seed, fold, start, epoch, item)``. Resuming, another number of
loader workers or another order of evaluation therefore cannot change a number.
"""

from __future__ import annotations

import hashlib

import torch

Part = int | str


def derive(*parts: Part) -> int:
    """A seed in [0, 2^63) from the parts of a key; stable over processes, platforms and Python versions."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def generator(*parts: Part) -> torch.Generator:
    """A CPU generator seeded by `derive`."""
    return torch.Generator().manual_seed(derive(*parts))
