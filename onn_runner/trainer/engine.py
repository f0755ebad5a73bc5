"""Engine: one network with its optimizers, schedules and scaler; backward, clip and update; its state as a dict."""

from __future__ import annotations

import copy
import math
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_value_, clip_grads_with_norm_, get_total_norm
from torch.optim import Optimizer

from onn_runner.convert import take_over
from onn_runner.errors import ConfigError, RunError, unknown
from onn_runner.model.base import Unrepresentable
from onn_runner.seeding import derive
from onn_runner.trainer.averages import RunningMean
from onn_runner.trainer.batches import Turn
from onn_runner.trainer.checkpoint import Checkpoint
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
        schedule = make_schedule(
            job.build_scheduler, optimizer, epochs=settings.epochs, steps=job.updates, higher=higher
        )
        self.schedules = {"main": schedule}
        self.scaler = torch.amp.GradScaler(self.device.type) if settings.precision == "fp16" else None
        self.average = RunningMean(self.network, settings.ema) if settings.ema is not None else None
        self.scored = self.average.network if self.average is not None else self.network
        """Whose weights are evaluated and kept as the best."""
        self.uncompiled = self.in_precision(self.network)
        self.evaluating = self.uncompiled if self.average is None else self.in_precision(self.scored)
        self.training = self.uncompiled
        if settings.compile:
            # torch compiles a network class eight times at most, so what earlier starts needed is dropped; and for each
            # batch size by itself, since code for all sizes would depend on which came first, and so on resuming
            torch.compiler.reset()
            self.training = self.in_precision(cast(nn.Module, torch.compile(self.network, dynamic=False)))
        self.turn = Turn()
        """Of the batch at hand, among those of one update."""
        self.losses: list[float] = []
        self.norms: list[float] = []
        self.skipped = 0

    def in_precision(self, network: nn.Module) -> nn.Module:
        """The network under autocast where trainer.precision is a half one."""
        precision = self.settings.precision
        return Autocast(network, self.device, precision) if precision in HALF else network

    @property
    def rate(self) -> float:
        return float(self.optimizers["main"].param_groups[0]["lr"])

    def step(self, loss: Tensor, optimizer: str = "main") -> None:
        """Backward, and one update with the last of an update's batches.

        Raises NonFiniteError, before anything is updated, for a bad loss or gradient.
        """
        if optimizer not in self.optimizers:
            raise unknown("optimizer", optimizer, self.optimizers)
        chosen = self.optimizers[optimizer]
        if self.turn.first:
            chosen.zero_grad(set_to_none=True)
        part = loss if self.turn.share == 1 else loss * self.turn.share
        torch.autograd.backward(part if self.scaler is None else self.scaler.scale(part))
        if self.turn.last:
            self._update(chosen, loss.detach().float())
            self.schedules[optimizer].after_step()
            if self.average is not None:
                self.average.update(self.network)
        else:
            self._take_loss(float(loss.detach()))

    def _update(self, chosen: Optimizer, loss: Tensor) -> None:
        if self.scaler is not None:
            self.scaler.unscale_(chosen)
        parameters = [p for group in chosen.param_groups for p in group["params"] if p.grad is not None]
        total = get_total_norm([p.grad for p in parameters if p.grad is not None])
        # The one place where the CPU waits for the device.
        value, norm = torch.stack([loss, total.float()]).tolist()
        self._take_loss(value)
        self._check_norm(norm)
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

    def _take_loss(self, loss: float) -> None:
        if not math.isfinite(loss):
            raise NonFiniteError(f"train/loss is {loss}")
        self.losses.append(loss)

    def _check_norm(self, norm: float) -> None:
        if math.isfinite(norm):
            self.skipped = 0
            return
        self.skipped += 1
        if self.scaler is None or self.skipped > SKIPS:
            raise NonFiniteError(f"gradient norm is {norm}")

    def state(self) -> dict[str, Any]:
        """The fields of a Checkpoint that are the engine's; tensors are shared with it, not copied."""
        open_update = () if self.turn.last else self.network.named_parameters()
        return {
            **self.weights(),
            "schedules": {name: schedule.state_dict() for name, schedule in self.schedules.items()},
            "scaler": self.scaler.state_dict() if self.scaler is not None else {},
            "gradients": {name: p.grad for name, p in open_update if p.grad is not None},
        }

    def weights(self) -> dict[str, Any]:
        """Of these fields, what belongs to the weights: they can be gone back to."""
        return {
            "network": dict(self.network.state_dict()),
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()},
            "average": dict(self.average.model.state_dict()) if self.average is not None else {},
        }

    def load(self, state: Checkpoint) -> None:
        self._load_weights(state.network, state.optimizers, state.average)
        try:
            for name, schedule in self.schedules.items():
                schedule.load_state_dict(state.schedules[name])
        except (KeyError, ValueError) as error:
            raise _another(error) from error
        if self.scaler is not None and state.scaler:
            self.scaler.load_state_dict(state.scaler)
        for name, parameter in self.network.named_parameters():
            if name in state.gradients:
                parameter.grad = state.gradients[name].to(self.device)

    def go_back(self, weights: dict[str, Any]) -> None:
        """To what `weights` gave, apart from the learning rates."""
        rates = {name: [g["lr"] for g in optimizer.param_groups] for name, optimizer in self.optimizers.items()}
        # Optimizers take tensors over as they are, and change them in place.
        self._load_weights(**copy.deepcopy(weights))
        for name, optimizer in self.optimizers.items():
            for group, rate in zip(optimizer.param_groups, rates[name], strict=True):
                group["lr"] = rate

    def _load_weights(self, network: dict[str, Any], optimizers: dict[str, Any], average: dict[str, Any]) -> None:
        self.load_network(network)
        try:
            for name, optimizer in self.optimizers.items():
                optimizer.load_state_dict(optimizers[name])
        except (KeyError, ValueError) as error:
            raise _another(error) from error
        if self.average is not None:
            self.average.model.load_state_dict(average)

    def begin_with(self, source: nn.Module, *, near: bool) -> None:
        """The weights of a network of the same layers with first-order neurons.

        Raises ConfigError where the networks differ, and for neurons that cannot be what they are to start as.
        """
        try:
            take_over(self.network, source.to(self.device), near=near)
        except ConfigError as error:
            remedy = "" if near or not isinstance(error, Unrepresentable) else "; start_near=true begins close to it, "
            raise ConfigError(f"start_from: {error}{remedy and remedy + 'where that is possible'}") from error
        self.load_network(dict(self.network.state_dict()))

    def load_network(self, state: dict[str, Any]) -> None:
        """Raises RunError where the weights are those of another network."""
        try:
            self.network.load_state_dict(state)
            if self.average is not None:
                self.scored.load_state_dict(state)
        except RuntimeError as error:
            lines = " ".join(str(error).split())
            raise RunError(f"the checkpoint's weights do not fit this network: {lines}") from error


def _another(error: Exception) -> ConfigError:
    return ConfigError(f"the checkpoint has another optimizer or scheduler than the config: {error}")
