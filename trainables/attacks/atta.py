"""FGSM with ATTA in training: one step per visit of an image, starting from the perturbation that
its last visit ended with (Zheng et al., CVPR 2020; docs/methods.md 5.5, 5.9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from bitfront.trainables.attacks.base import (
    TRAINING_ATTACKS,
    AdversarialLoss,
    Ball,
    attacking,
    sign_steps,
)
from bitfront.trainables.data.augmentations import crop_margin, gathered
from bitfront.trainables.data.batches import Visit
from bitfront.trainables.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bitfront.trainables.data import DatasetInfo
    from bitfront.trainables.settings import AttackSpec
    from bitfront.trainables.task import Task

# Soft labels (docs/methods.md 5.5): the weight of the old target in its moving average, and the
# weight of the target in the label that is trained on.
KEPT_LABEL, SOFT_SHARE = 0.9, 0.9
# Stored perturbations are multiples of eps / UNITS, in one signed byte.
UNITS = 127


@TRAINING_ATTACKS.register
class Atta(AdversarialLoss):
    """The loss CE(f(x + d), y) at the perturbation d of one step from the stored D[id] (Algorithm 2
    of robust pruning, docs/methods.md 5.5, 5.9):

    d <- crop and flip of D[id], as those of the image
    d <- clip(d + alpha sign(grad_x CE(f(x + d), y)), -eps, eps);  d <- clip(x + d, 0, 1) - x
    D[id] <- d, where the crop shows D[id]

    D has the frame of the image with its margin and one byte per channel and pixel."""

    name = "fgsm-atta"
    doc = "one step from the perturbation of the visit before"
    visits = True
    default_step = 1 / 2

    def __init__(
        self,
        attack: AttackSpec,
        ball: Ball,
        examples: int,
        shape: tuple[int, ...],
        classes: int,
        label_smoothing: float = 0.0,
    ) -> None:
        import torch

        super().__init__(attack, ball, label_smoothing)
        device = ball.eps.device
        self.frame = tuple(side + 2 * crop_margin(*shape[1:]) for side in shape[1:])
        size = (examples, *kept_shape(shape, attack.shrink))
        self.memory = torch.randint(-UNITS, UNITS + 1, size, dtype=torch.int8, device=device)
        self.labels: Tensor | None = None
        self.classes = classes
        self.met = torch.zeros(examples, dtype=torch.bool, device=device)
        if attack.soft_labels:
            self.labels = torch.zeros(examples, classes, device=device)

    @classmethod
    def make(cls, task: Task, ball: Ball, examples: int, info: DatasetInfo) -> Self:
        smoothing = task.loss.label_smoothing
        return cls(task.attack, ball, examples, info.shape, info.classes, smoothing)

    @classmethod
    def check(cls, task: Task, info: DatasetInfo) -> None:
        augmentation = info.augmentation if task.augmentation == "default" else task.augmentation
        if augmentation not in ("none", "crop-flip"):
            raise UserError(
                f"attack.train: fgsm-atta follows images that are shifted and mirrored, not "
                f"{augmentation}",
                "augmentation: crop-flip",
            )
        examples = task.subset or info.train_size
        wanted = examples * atta_bytes(info.shape, task.attack.shrink) / 1e6
        if wanted > task.attack.memory_mb:
            raise UserError(
                f"attack.memory_mb: perturbations of {examples:,} images take {wanted:,.0f} MB, "
                f"{task.attack.memory_mb:,.0f} are allowed",
                "allow more, or keep them at a lower resolution: attack.shrink: 8",
            )

    def framed(self, ids: Tensor) -> Tensor:
        """The perturbations of these images with their margins, in the units of the network."""
        import torch

        kept = self.memory[ids].float() * (self.ball.eps / UNITS)
        if self.attack.shrink == 1:
            return kept
        times = float(self.attack.shrink)
        large = torch.nn.functional.interpolate(kept, scale_factor=times)
        return large[:, :, : self.frame[0], : self.frame[1]]

    def keep(self, ids: Tensor, framed: Tensor) -> None:
        """Store the perturbations of these images, margins included."""
        import torch

        if self.attack.shrink > 1:
            framed = torch.nn.functional.avg_pool2d(
                framed, self.attack.shrink, ceil_mode=True, count_include_pad=False
            )
        self.memory[ids] = (framed * UNITS / self.ball.eps).round().to(torch.int8)

    def __call__(self, model: nn.Module, x: Any, y: Tensor) -> Tensor:
        import torch

        assert isinstance(x, Visit)
        ball, images = self.ball, x.x
        cross_entropy = torch.nn.functional.cross_entropy

        def losses(logits: Tensor) -> Tensor:
            return cross_entropy(logits, y, reduction="none")

        framed = self.framed(x.ids)
        with attacking(model, self.attack.norms, images.device):
            start = ball.inside(images + gathered(framed, x.places, images.shape), images)
            found = sign_steps(model, losses, images, start, ball, steps=1)
        places = x.places[:, None].expand(-1, images.shape[1], -1)
        seen = (found - images).flatten(2)
        self.keep(x.ids, framed.flatten(2).scatter(2, places, seen).view(framed.shape))
        logits = model(found)
        self.count(logits, y)
        if self.labels is None:
            return self.cross_entropy(logits, y)
        return cross_entropy(logits, self._soft(x.ids, logits.detach().float(), y))

    def _soft(self, ids: Tensor, logits: Tensor, y: Tensor) -> Tensor:
        """The label that is trained on: 0.1 label + 0.9 target, where every visit updates
        target <- 0.9 target + 0.1 softmax(logits), and the first target is the label."""
        import torch

        assert self.labels is not None
        label = torch.nn.functional.one_hot(y, self.classes).float()
        before = torch.where(self.met[ids, None], self.labels[ids], label)
        target = KEPT_LABEL * before + (1 - KEPT_LABEL) * logits.softmax(1)
        self.labels[ids] = target
        self.met[ids] = True
        return (1 - SOFT_SHARE) * label + SOFT_SHARE * target

    def state_dict(self) -> dict[str, Tensor]:
        labels = {} if self.labels is None else {"labels": self.labels}
        return {"memory": self.memory, "met": self.met, **labels}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        for name, tensor in self.state_dict().items():
            tensor.copy_(state[name])


def kept_shape(shape: tuple[int, ...], shrink: int) -> tuple[int, ...]:
    """The shape of one image's stored perturbation, margin included: one byte per element."""
    pad = crop_margin(*shape[1:])
    return (shape[0], *(-(-(side + 2 * pad) // shrink) for side in shape[1:]))


def atta_bytes(shape: tuple[int, ...], shrink: int = 1) -> int:
    """The bytes of one image's stored perturbation; its soft label is not counted."""
    channels, height, width = kept_shape(shape, shrink)
    return channels * height * width
