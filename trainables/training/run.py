"""Protocols of a training run: the attributes of `loop.Training` that losses, pretraining and
evaluation use without importing it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from bitfront.trainables.data import Part
    from bitfront.trainables.methods import Method
    from bitfront.trainables.task import TrialSpec
    from bitfront.trainables.tasks import Kind
    from bitfront.trainables.training.network import Network
    from bitfront.trainables.training.pretraining import PretrainedCache
    from bitfront.trainables.training.schedules.phases import Phase


class Run(Protocol):
    """One training run: `epoch()` is called until `done`."""

    spec: TrialSpec
    device: torch.device
    network: Network
    model: nn.Module
    method: Method
    kind: Kind
    train: Part
    validation: Part
    phases: Sequence[Phase]
    epochs_done: int
    history: list[dict[str, float]]
    pretrained: PretrainedCache | None
    inherited: dict[str, Tensor] | None
    """weights that the first epoch begins with, instead of those of the task"""

    @property
    def done(self) -> bool: ...

    def epoch(self) -> dict[str, float]: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Start(Protocol):
    """A function or class that makes a run of a spec, as `loop.Training` does."""

    def __call__(
        self,
        spec: TrialSpec,
        train: Part,
        validation: Part,
        device: torch.device | str = "cpu",
        validate_each_epoch: bool = True,
        pretrained: PretrainedCache | None = None,
    ) -> Run: ...
