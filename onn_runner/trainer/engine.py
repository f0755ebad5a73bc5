"""Engine: one network with its optimizers, schedules and scaler; backward, clip and update; its state as a dict."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_value_, clip_grads_with_norm_, get_total_norm

from onn_runner.errors import ConfigError, RunError, unknown
from onn_runner.seeding import derive
from onn_runner.trainer.device import HALF, Autocast, Randomness, choose_device
from onn_runner.trainer.divergence import NonFiniteError
from onn_runner.trainer.job import FoldJob
from onn_runner.trainer.parameters import freeze, make_optimizer
from onn_runner.trainer.schedule import make_schedule

SKIPS = 25
"""fp16 halves its loss scale after an overflow and skips the step; so many in a row are no longer the scale's fault."""


class Engine:
    """Raises ConfigError where the device or the frozen parameters cannot be had; `fold.check` tells of the rest."""

    def __init__(self, job: FoldJob, start: int, *, higher: bool) -> None:
        settings = job.settings
        self.settings = settings
        self.device = choose_device(settings.device)
        self.random = Randomness(self.device)
        torch.manual_seed(derive("init", job.seed, job.fold.index, start))
        self.network = job.build_network().to(self.device)
        freeze(self.network, settings.frozen)
        optimizer = make_optimizer(self.network, job.build_optimizer, settings)
        self.optimizers = {"main": optimizer}
        schedule = make_schedule(job.build_scheduler, optimizer, epochs=settings.epochs, steps=job.steps, higher=higher)
        self.schedules = {"main": schedule}
        self.scaler = torch.amp.GradScaler(self.device.type) if settings.precision == "fp16" else None
        self.evaluating: nn.Module = self.network
        self.training: nn.Module = self.network
        if settings.compile:
            # torch compiles a network class eight times at most, so what earlier starts needed is dropped; and for each
            # batch size by itself, since code for all sizes would depend on which came first, and so on resuming
            torch.compiler.reset()
            self.training = cast(nn.Module, torch.compile(self.network, dynamic=False))
        if settings.precision in HALF:
            self.evaluating = Autocast(self.evaluating, self.device, settings.precision)
            self.training = Autocast(self.training, self.device, settings.precision)
        self.losses: list[float] = []
        self.norms: list[float] = []
        self.skipped = 0

    @property
    def rate(self) -> float:
        return float(self.optimizers["main"].param_groups[0]["lr"])

    def step(self, loss: Tensor, optimizer: str = "main") -> None:
        """Backward and one update. Raises NonFiniteError, before anything is updated, for a bad loss or gradient."""
        if optimizer not in self.optimizers:
            raise unknown("optimizer", optimizer, self.optimizers)
        chosen = self.optimizers[optimizer]
        chosen.zero_grad(set_to_none=True)
        torch.autograd.backward(loss if self.scaler is None else self.scaler.scale(loss))
        if self.scaler is not None:
            self.scaler.unscale_(chosen)
        parameters = [p for group in chosen.param_groups for p in group["params"] if p.grad is not None]
        total = get_total_norm([p.grad for p in parameters if p.grad is not None])
        # The one place where the CPU waits for the device.
        value, norm = torch.stack([loss.detach().float(), total.float()]).tolist()
        self._check(value, norm)
        self.losses.append(value)
        if math.isfinite(norm):
            self.norms.append(norm)
            if self.settings.clip_norm is not None:
                clip_grads_with_norm_(parameters, self.settings.clip_norm, total)
            if self.settings.clip_value is not None:
                clip_grad_value_(parameters, self.settings.clip_value)
        if self.scaler is None:
            chosen.step()
        else:
            self.scaler.step(chosen)
            self.scaler.update()
        self.schedules[optimizer].after_step()

    def _check(self, loss: float, norm: float) -> None:
        if not math.isfinite(loss):
            raise NonFiniteError(f"train/loss is {loss}")
        if math.isfinite(norm):
            self.skipped = 0
            return
        self.skipped += 1
        if self.scaler is None or self.skipped > SKIPS:
            raise NonFiniteError(f"gradient norm is {norm}")

    def state(self) -> dict[str, Any]:
        """The fields of a Checkpoint that are the engine's."""
        return {
            "network": dict(self.network.state_dict()),
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()},
            "schedules": {name: schedule.state_dict() for name, schedule in self.schedules.items()},
            "scaler": self.scaler.state_dict() if self.scaler is not None else {},
        }

    def load(
        self, network: dict[str, Any], optimizers: dict[str, Any], schedules: dict[str, Any], scaler: dict[str, Any]
    ) -> None:
        self.load_network(network)
        try:
            for name, optimizer in self.optimizers.items():
                optimizer.load_state_dict(optimizers[name])
            for name, schedule in self.schedules.items():
                schedule.load_state_dict(schedules[name])
        except (KeyError, ValueError) as error:
            raise ConfigError(f"the checkpoint has another optimizer or scheduler than the config: {error}") from error
        if self.scaler is not None and scaler:
            self.scaler.load_state_dict(scaler)

    def load_network(self, state: dict[str, Any]) -> None:
        """Raises RunError where the weights are those of another network."""
        try:
            self.network.load_state_dict(state)
        except RuntimeError as error:
            raise RunError(f"the checkpoint's weights do not fit this network: {error}") from error
