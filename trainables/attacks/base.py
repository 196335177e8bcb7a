"""What an attack declares, for training and for evaluation, and the l_inf ball all of them stay in
(docs/methods.md 5.5, 5.12). The attacks themselves are in the files beside this one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from bitfront.trainables.registry import Registry

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from bitfront.trainables.data import DatasetInfo
    from bitfront.trainables.settings import AttackSpec
    from bitfront.trainables.task import Task

# (logits of the attacked images) -> one loss per image.
Losses = Callable[["Tensor"], "Tensor"]


# --- attacks in training ------------------------------------------------------------------------


@dataclass(frozen=True)
class Ball:
    """The images x' that an attack on x may return: |x' - x| <= eps in every pixel, and pixels in
    [0, 1]. All four tensors are in the normalised units of the network's input and have the shape
    (1, channels, 1, 1)."""

    eps: Tensor
    step: Tensor
    low: Tensor
    high: Tensor

    @classmethod
    def of(
        cls,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        eps: float,
        step: float,
        device: torch.device | str = "cpu",
    ) -> Ball:
        """The ball for pixels that are normalised by `mean` and `std`."""
        import torch

        m, s = (torch.tensor(v, device=device).view(1, -1, 1, 1) for v in (mean, std))
        return cls(eps / s, step / s, -m / s, (1 - m) / s)

    def uniform(self, x: Tensor) -> Tensor:
        """A point of the ball around x, drawn uniformly."""
        import torch

        return self.inside(x + (2 * torch.rand_like(x) - 1) * self.eps, x)

    def inside(self, moved: Tensor, x: Tensor) -> Tensor:
        """The point of the ball around x nearest to `moved`."""
        import torch

        near = torch.minimum(torch.maximum(moved, x - self.eps), x + self.eps)
        return torch.minimum(torch.maximum(near, self.low), self.high)


def ascend(model: nn.Module, losses: Losses, moved: Tensor) -> tuple[Tensor, Tensor]:
    """(sign of the gradient of the losses with respect to the images, loss of every image)."""
    import torch

    moved = moved.detach().requires_grad_()
    each = losses(model(moved).float())
    (gradient,) = torch.autograd.grad(each.sum(), moved)
    return gradient.sign(), each.detach()


def sign_steps(
    model: nn.Module,
    losses: Losses,
    x: Tensor,
    start: Tensor,
    ball: Ball,
    steps: int,
    iterate: str = "last",
) -> Tensor:
    """PGD: x_{k+1} = P(x_k + alpha sign(grad_x loss(x_k))), P the projection into the ball (Madry
    et al., ICLR 2018; docs/methods.md 5.9). The `worst` iterate is, for every image, the one of
    greatest loss among those whose loss was computed: the start included, the last one not."""
    import torch

    moved, worst = start, start
    greatest = x.new_full((len(x),), -torch.inf)
    for _ in range(steps):
        direction, each = ascend(model, losses, moved)
        if iterate == "worst":
            worse = each > greatest
            greatest = torch.where(worse, each, greatest)
            worst = torch.where(worse.view(-1, 1, 1, 1), moved, worst)
        moved = ball.inside(moved + ball.step * direction, x)
    return (worst if iterate == "worst" else moved).detach()


@contextmanager
def attacking(model: nn.Module, norms: str, device: torch.device) -> Iterator[None]:
    """Inside, batch norms are in the mode `norms` (train or eval) and autocast is off."""
    import torch

    changed = [
        m
        for m in model.modules()
        if isinstance(m, torch.nn.modules.batchnorm._BatchNorm) and m.training != (norms == "train")
    ]
    for norm in changed:
        norm.train(norms == "train")
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        for norm in changed:
            norm.train(norms != "train")


class AdversarialLoss:
    """The loss of a training step on attacked images. A subclass declares `name` and computes the
    loss of a batch in `__call__`."""

    name: ClassVar[str]
    doc: ClassVar[str]
    visits: ClassVar[bool] = False
    """whether it keeps a state for every image between epochs: batches are `Visit`s then, and
    training uses one worker"""
    default_step: ClassVar[float] = 1 / 4
    """the size of a step as a share of eps, when the task gives none"""

    def __init__(self, attack: AttackSpec, ball: Ball, label_smoothing: float = 0.0) -> None:
        self.attack = attack
        self.ball = ball
        self.label_smoothing = label_smoothing
        self.right: Tensor | int = 0
        self.seen = 0

    @classmethod
    def make(cls, task: Task, ball: Ball, examples: int, info: DatasetInfo) -> Self:
        """The loss of a task whose training part has `examples` examples."""
        return cls(task.attack, ball, task.loss.label_smoothing)

    @classmethod
    def check(cls, task: Task, info: DatasetInfo) -> None:
        """Raise a UserError where the task cannot be trained with this loss."""

    def __call__(self, model: nn.Module, x: Any, y: Tensor) -> Tensor:
        raise NotImplementedError

    def cross_entropy(self, logits: Tensor, y: Tensor) -> Tensor:
        import torch

        return torch.nn.functional.cross_entropy(logits, y, label_smoothing=self.label_smoothing)

    def count(self, logits: Tensor, y: Tensor) -> None:
        """Count the attacked images that are classified correctly."""
        self.right = self.right + (logits.detach().argmax(1) == y).sum()
        self.seen += len(y)

    def take_metrics(self) -> dict[str, float]:
        """Since the last call: the share of attacked training images that were classified
        correctly, as `train_robust_NAME`."""
        if not self.seen:
            return {}
        share = int(self.right) / self.seen
        self.right, self.seen = 0, 0
        return {f"train_robust_{self.name}": share}

    def state_dict(self) -> dict[str, Tensor]:
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        pass


TRAINING_ATTACKS: Registry[type[AdversarialLoss]] = Registry(
    "attack of training", package=__package__
)


# --- attacks in evaluation ----------------------------------------------------------------------


@dataclass(frozen=True)
class EvaluationAttack:
    """An attack under which accuracy is measured, as `val_robust_NAME`."""

    name: str
    title: str
    run: Callable[[nn.Module, Tensor, Tensor, float, int], Tensor]
    """(network on pixels in [0, 1], pixels, labels, eps, classes) -> attacked pixels"""
    every_epoch: bool = True
    """measured after every epoch; else after the last one only"""
    least_classes: int = 2

    @property
    def metric(self) -> str:
        return f"val_robust_{self.name}"


EVALUATION_ATTACKS: Registry[EvaluationAttack] = Registry(
    "attack of evaluation", package=__package__
)
