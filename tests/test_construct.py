"""What reaches a constructor is what the config means."""

from __future__ import annotations

import pytest
from omegaconf import OmegaConf

from onn_runner.construct import make
from onn_runner.data.files import File


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
def test_a_folder_may_be_called_like_a_reference(written: str, meant: object) -> None:
    config = OmegaConf.create({"seed": 4, "data": {"_target_": "onn_runner.data.files.File", "name": written}})
    config.data.path = [written]
    assert config.data.name == meant
    assert make(config.data, "data") == File(name=meant, path=[meant])  # type: ignore[arg-type]
