"""Bytes that training needs: what a forward keeps for backward, and the peak of forward and backward together."""

from __future__ import annotations

import contextlib
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

OUTSIDE = ""
"""Where something happens that belongs to no layer."""


@dataclass
class Place:
    """Which of the watched modules is at work."""

    names: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.names[-1] if self.names else OUTSIDE


@contextlib.contextmanager
def watched(
    modules: Mapping[str, nn.Module],
    place: Place,
    *,
    enter: Callable[[str, tuple[Any, ...]], None] = lambda name, inputs: None,
    leave: Callable[[str, Any], None] = lambda name, output: None,
) -> Iterator[None]:
    """Keep `place` up to date while the modules run; told of each one's inputs and of its output."""
    handles = []
    for name, module in modules.items():

        def before(module: nn.Module, inputs: tuple[Any, ...], name: str = name) -> None:
            place.names.append(name)
            enter(name, inputs)

        def after(module: nn.Module, inputs: tuple[Any, ...], output: Any, name: str = name) -> None:
            leave(name, output)
            place.names.pop()

        handles += [module.register_forward_pre_hook(before), module.register_forward_hook(after)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def kept_bytes(network: nn.Module, modules: Mapping[str, nn.Module], x: Tensor) -> dict[str, int]:
    """What a forward leaves for backward, by the module that kept it first; OUTSIDE: between them.

    Storages count once and whole; those of parameters and buffers, which are there anyway, do not count.
    """
    own = {tensor.untyped_storage().data_ptr() for tensor in (*network.parameters(), *network.buffers())}
    place, sizes, alive = Place(), defaultdict[str, int](int), []
    seen: set[int] = set()

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own | seen:
            seen.add(storage.data_ptr())
            sizes[place.name] += storage.nbytes()
        # An address is not given to another storage while this one lives.
        alive.append(tensor.detach())
        return tensor.detach()

    with watched(modules, place), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        network(x)
    return dict(sizes)


class LiveBytes(TorchDispatchMode):
    """Bytes of the tensors that live, of those that are made while this is active, and the most there were.

    What kernels need inside themselves is not seen.
    """

    def __init__(self, present: set[int]) -> None:
        """`present`: addresses of storages that are there before and do not count."""
        super().__init__()
        self.present = present
        self.now = self.peak = 0
        self._known: dict[int, Any] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._take(tensor.untyped_storage())
        return result

    def _take(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key in self._known or storage.data_ptr() in self.present or storage.device.type == "meta":
            return
        size = storage.nbytes()
        self.now += size
        self.peak = max(self.peak, self.now)
        self._known[key] = weakref.finalize(storage, self._drop, key, size)

    def _drop(self, key: int, size: int) -> None:
        self.now -= size
        self._known.pop(key, None)


def peak_bytes(network: nn.Module, step: Callable[[], None], *given: Tensor) -> int:
    """The most that a step needs beyond what is there before it: the network, its gradients and `given`.

    On a GPU by torch's own count, workspaces included; on the CPU by the tensors that are made.
    """
    device = given[0].device
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        step()
        torch.cuda.synchronize(device)
        return int(torch.cuda.max_memory_allocated(device) - before)
    tensors = [*network.parameters(), *network.buffers(), *given]
    tensors += [p.grad for p in network.parameters() if p.grad is not None]
    with LiveBytes({tensor.untyped_storage().data_ptr() for tensor in tensors}) as live:
        step()
    return live.peak
