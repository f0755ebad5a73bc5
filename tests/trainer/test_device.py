"""Devices and precisions by name."""

import os

import pytest
import torch

from onn_runner.errors import ConfigError
from onn_runner.trainer import device
from onn_runner.trainer.device import Randomness, check_precision, choose_device, matmul_precision


class Gpus:
    """Two older GPUs, for machines that have none."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 0))
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Old GPU")
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: False)


def test_auto_takes_the_first_gpu_or_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == choose_device("cpu") == torch.device("cpu")
    with pytest.raises(ConfigError, match=r"trainer\.device=cuda is not available here\. Options: auto, cpu\."):
        choose_device("cuda")
    Gpus(monkeypatch)
    assert choose_device("auto") == choose_device("cuda") == torch.device("cuda:0")
    assert choose_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(ConfigError, match=r"cuda:2 is not available here\. Options: auto, cpu, cuda, cuda:0, cuda:1"):
        choose_device("cuda:2")


def test_precisions_that_a_device_lacks_are_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda:0")
    for precision in ("fp32", "bf16"):
        check_precision(precision, cpu)
    for precision in ("tf32", "fp16"):
        with pytest.raises(ConfigError, match=f"{precision} is a number format of GPUs, and the device is cpu"):
            check_precision(precision, cpu)
    Gpus(monkeypatch)
    for precision in ("fp32", "fp16"):
        check_precision(precision, gpu)
    with pytest.raises(ConfigError, match=r"tf32 needs compute capability 8\.0, Old GPU is older"):
        check_precision("tf32", gpu)
    with pytest.raises(ConfigError, match="bf16 is not supported by Old GPU"):
        check_precision("bf16", gpu)


def test_tf32_is_on_for_a_block_and_off_elsewhere() -> None:
    conv = torch.backends.cudnn.conv
    before = conv.fp32_precision
    with matmul_precision("tf32"):
        assert (conv.fp32_precision, torch.backends.cuda.matmul.fp32_precision) == ("tf32", "tf32")
    with matmul_precision("fp32"):
        assert (conv.fp32_precision, torch.backends.cuda.matmul.fp32_precision) == ("ieee", "ieee")
    assert conv.fp32_precision == before


def test_autocast_gives_float32() -> None:
    seen: list[torch.dtype] = []
    linear = torch.nn.Linear(3, 3)
    linear.register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    output = device.Autocast(linear, torch.device("cpu"), "bf16")(torch.ones(2, 3))
    assert (seen, output.dtype) == ([torch.bfloat16], torch.float32)


def test_keys_decide_what_is_drawn() -> None:
    random = Randomness(torch.device("cpu"))
    before = torch.get_rng_state()
    with random.forked():
        random.key("step", 1)
        one = torch.rand(3)
        random.key("step", 2)
        two = torch.rand(3)
        random.key("step", 1)
        assert torch.equal(torch.rand(3), one)
        assert not torch.equal(one, two)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16", "fp16"])
def test_training_on_a_gpu(precision: str, tmp_path: object) -> None:
    from pathlib import Path

    from tiny_fold import make_job

    from onn_runner.trainer import QuietReporter, StopRequest, train_fold

    job = make_job(Path(str(tmp_path)), device="cuda", precision=precision)
    result = train_fold(job, reporter=QuietReporter(), stop=StopRequest())
    assert result.status == "done"
    assert result.starts[0].test["test/psnr"] > 15


def test_threads_follow_the_work_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with device.threads(4):
        counts = [device.sensible_threads(macs) for macs in (0, 48_000_000, 399_000_000, 400_000_000, 10**12)]
        assert counts == [1, 1, 1, 2, 4]
        monkeypatch.setenv("OMP_NUM_THREADS", "4")
        assert device.sensible_threads(0) == 4


def test_a_busy_machine_is_told_where_threads_would_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (3.0, 3.0, 3.0))
    assert device.busy(1) is None
    assert "trainer.threads=1 helps" in (device.busy(2) or "")
    monkeypatch.setattr(os, "getloadavg", lambda: (0.1, 3.0, 3.0))
    assert device.busy(2) is None
