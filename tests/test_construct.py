"""What reaches a constructor is what the config means."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from omegaconf import OmegaConf

from onn_runner import targets
from onn_runner.construct import make


@dataclass(frozen=True)
class File:
    """A source of items as far as its methods' names tell."""

    name: str
    path: list[str]

    def training(self) -> None: ...

    def fixed(self) -> None: ...

    def fingerprint(self) -> None: ...


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r"\${z}", "${z}"),
        (r"a \${b}/\${c}", "a ${b}/${c}"),
        (r"\\\${z}", r"\${z}"),
        (r"back\slash", r"back\slash"),
        ("$x{y}", "$x{y}"),
        ("${seed}", 4),
    ],
)
def test_a_folder_may_be_called_like_a_reference(monkeypatch: pytest.MonkeyPatch, written: str, meant: object) -> None:
    monkeypatch.setattr(targets, "_named", (__name__,))
    config = OmegaConf.create({"seed": 4, "data": {"_target_": f"{__name__}.File", "name": written}})
    config.data.path = [written]
    assert config.data.name == meant
    assert make(config.data, "data") == File(name=meant, path=[meant])  # type: ignore[arg-type]
