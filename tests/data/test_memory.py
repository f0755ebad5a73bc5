"""How much memory data may take."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from onn_runner.data import memory
from onn_runner.errors import ConfigError


def test_the_budget_is_half_of_what_is_free_or_what_was_said() -> None:
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < memory.budget(None) <= physical / 2
    assert (memory.budget(True), memory.budget(False)) == (math.inf, 0)
    with pytest.raises(ConfigError, match=r"data.in_memory \(=1\) must be true or false"):
        memory.budget(1)


@pytest.mark.parametrize("content", [None, "", "MemFree: 3 kB\n", "MemAvailable:\n"])
def test_systems_without_meminfo_count_free_pages(content: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_text(path: Path) -> str:
        if content is None:
            raise FileNotFoundError
        return content

    monkeypatch.setattr(Path, "read_text", read_text)
    monkeypatch.setattr(os, "sysconf", {"SC_AVPHYS_PAGES": 10, "SC_PAGE_SIZE": 4096}.__getitem__)
    assert memory.budget(None) == 5 * 4096


def test_sizes_are_told_in_megabytes() -> None:
    assert memory.megabytes(1_234_567_890) == "1,234.6 MB"
