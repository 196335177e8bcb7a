"""Training against attacks: the images a step is made on, and the losses around them (methods.md
5.5, 5.8, 5.9). Robust accuracy is measured elsewhere, by libraries (`robustness`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bitfront.trainables.data import DATASETS, DatasetInfo, Visit, pixel_statistics
from bitfront.trainables.data.augmentations import crop_margin, gathered
from bitfront.trainables.errors import UserError
from bitfront.trainables.methods import METHODS
from bitfront.trainables.task import NO_EPS, AttackSpec, Task, TrialSpec

if TYPE_CHECKING:
    from bitfront.trainables.training.loop import Training

# The noise the images of TRADES start from, in pixels.
TRADES_NOISE = 0.001
# Soft labels of FGSM with ATTA: what remains of the label at each visit, and its share of the loss.
KEPT_LABEL, SOFT_SHARE = 0.9, 0.9
# A perturbation is kept as a whole number of eps / LEVELS.
LEVELS = 127


# --- where perturbations live -------------------------------------------------------------------


@dataclass(frozen=True)
class Ball:
    """The images an attack may use, in the units the network takes: at most eps from x in every
    pixel, and pixels in [0, 1]. All are (1, channels, 1, 1)."""

    eps: Tensor
    step: Tensor
    low: Tensor
    high: Tensor

    @classmethod
    def of(
        cls, info: DatasetInfo, normalize: str, eps: float, step: float, device: Any = "cpu"
    ) -> Ball:
        mean, std = (
            torch.tensor(values, device=device).view(1, -1, 1, 1)
            for values in pixel_statistics(info, normalize)
        )
        return cls(eps / std, step / std, -mean / std, (1 - mean) / std)

    def uniform(self, x: Tensor) -> Tensor:
        """x with a random change, within the ball."""
        return self.inside(x + (2 * torch.rand_like(x) - 1) * self.eps, x)

    def inside(self, moved: Tensor, x: Tensor) -> Tensor:
        """The point of the ball around x nearest to `moved`."""
        near = torch.minimum(torch.maximum(moved, x - self.eps), x + self.eps)
        return torch.minimum(torch.maximum(near, self.low), self.high)


# (logits of the attacked images) -> a loss an image.
Losses = Callable[[Tensor], Tensor]


def ascend(model: nn.Module, losses: Losses, moved: Tensor) -> tuple[Tensor, Tensor]:
    """(sign of the gradient at the images, their losses)."""
    moved = moved.detach().requires_grad_()
    each = losses(model(moved).float())
    (gradient,) = torch.autograd.grad(each.sum(), moved)
    return gradient.sign(), each.detach()


def pgd(
    model: nn.Module,
    losses: Losses,
    x: Tensor,
    start: Tensor,
    ball: Ball,
    steps: int,
    iterate: str = "last",
) -> Tensor:
    """Sign steps uphill, each projected into the ball. The `worst` iterate is, image by image,
    the one of greatest loss among those whose loss was computed: start included, last one not."""
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
    """Batch norms in the mode named, and float32 whatever training uses."""
    changed = [
        m
        for m in model.modules()
        if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.training != (norms == "train")
    ]
    for norm in changed:
        norm.train(norms == "train")
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        for norm in changed:
            norm.train(norms != "train")


# --- the losses ---------------------------------------------------------------------------------


class AdversarialLoss:
    """What a step against attacks makes smaller; counts how many attacked images were right."""

    def __init__(self, attack: AttackSpec, ball: Ball, label_smoothing: float = 0.0) -> None:
        self.attack = attack
        self.ball = ball
        self.label_smoothing = label_smoothing
        self.right: Tensor | int = 0
        self.seen = 0

    name = ""

    def __call__(self, model: nn.Module, x: Any, y: Tensor) -> Tensor:
        raise NotImplementedError

    def cross_entropy(self, logits: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(logits, y, label_smoothing=self.label_smoothing)

    def count(self, logits: Tensor, y: Tensor) -> None:
        self.right = self.right + (logits.detach().argmax(1) == y).sum()
        self.seen += len(y)

    def take_metrics(self) -> dict[str, float]:
        """Since the last call: the share of attacked training images that were right, as they
        were met, under the name of the attack."""
        if not self.seen:
            return {}
        share = int(self.right) / self.seen
        self.right, self.seen = 0, 0
        return {f"train_robust_{self.name}": share}

    def state_dict(self) -> dict[str, Tensor]:
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        pass


class PGDTraining(AdversarialLoss):
    """min E max CE(f(x + d), y): cross-entropy of the images PGD finds."""

    name = "pgd"

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        attack = self.attack

        def losses(logits: Tensor) -> Tensor:
            return F.cross_entropy(logits, y, reduction="none")

        with attacking(model, attack.norms, x.device):
            start = self.ball.uniform(x)
            found = pgd(model, losses, x, start, self.ball, attack.steps, attack.iterate)
        logits = model(found)
        self.count(logits, y)
        return self.cross_entropy(logits, y)


class Trades(AdversarialLoss):
    """CE(f(x), y) + beta KL(f(x) || f(x')), x' the image that disagrees most."""

    name = "trades"

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        with attacking(model, "eval", x.device):
            with torch.no_grad():
                clean = model(x).float().softmax(1)

            def losses(logits: Tensor) -> Tensor:
                return F.kl_div(logits.log_softmax(1), clean, reduction="none").sum(1)

            noise = TRADES_NOISE / self.attack.eps * self.ball.eps * torch.randn_like(x)  # type: ignore[operator]
            found = pgd(model, losses, x, x + noise, self.ball, self.attack.steps)
        logits, attacked = model(x), model(found)
        self.count(attacked, y)
        apart = F.kl_div(attacked.log_softmax(1), logits.softmax(1), reduction="batchmean")
        return self.cross_entropy(logits, y) + self.attack.beta * apart


class Atta(AdversarialLoss):
    """FGSM from the perturbation an image had at its last visit (methods.md 5.5): one step, then
    the loss. Perturbations are kept in the coordinates of the image with a margin, a byte a
    channel of every pixel, and written back only where the visit saw them."""

    name = "fgsm-atta"

    def __init__(
        self,
        attack: AttackSpec,
        ball: Ball,
        examples: int,
        shape: tuple[int, ...],
        classes: int,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(attack, ball, label_smoothing)
        device = ball.eps.device
        self.frame = tuple(side + 2 * crop_margin(*shape[1:]) for side in shape[1:])
        kept = kept_shape(shape, attack.shrink)
        size = (examples, *kept)
        self.memory = torch.randint(-LEVELS, LEVELS + 1, size, dtype=torch.int8, device=device)
        self.labels: Tensor | None = None
        self.classes = classes
        self.met = torch.zeros(examples, dtype=torch.bool, device=device)
        if attack.soft_labels:
            self.labels = torch.zeros(examples, classes, device=device)

    def framed(self, ids: Tensor) -> Tensor:
        """The perturbations of these images with their margins, in the units of the network."""
        kept = self.memory[ids].float() * (self.ball.eps / LEVELS)
        if self.attack.shrink == 1:
            return kept
        times = float(self.attack.shrink)
        return F.interpolate(kept, scale_factor=times)[:, :, : self.frame[0], : self.frame[1]]

    def keep(self, ids: Tensor, framed: Tensor) -> None:
        if self.attack.shrink > 1:
            k = self.attack.shrink
            framed = F.avg_pool2d(framed, k, ceil_mode=True, count_include_pad=False)
        self.memory[ids] = (framed * LEVELS / self.ball.eps).round().to(torch.int8)

    def __call__(self, model: nn.Module, x: Any, y: Tensor) -> Tensor:
        assert isinstance(x, Visit)
        ball, images = self.ball, x.x

        def losses(logits: Tensor) -> Tensor:
            return F.cross_entropy(logits, y, reduction="none")

        framed = self.framed(x.ids)
        with attacking(model, self.attack.norms, images.device):
            start = ball.inside(images + gathered(framed, x.places, images.shape), images)
            found = pgd(model, losses, images, start, ball, steps=1)
        places = x.places[:, None].expand(-1, images.shape[1], -1)
        seen = (found - images).flatten(2)
        self.keep(x.ids, framed.flatten(2).scatter(2, places, seen).view(framed.shape))
        logits = model(found)
        self.count(logits, y)
        if self.labels is None:
            return self.cross_entropy(logits, y)
        return F.cross_entropy(logits, self._soft(x.ids, logits.detach().float(), y))

    def _soft(self, ids: Tensor, logits: Tensor, y: Tensor) -> Tensor:
        """target <- 0.9 target + 0.1 softmax(logits), beginning with the label; trained on is
        0.1 label + 0.9 target."""
        assert self.labels is not None
        label = F.one_hot(y, self.classes).float()
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
    """Of one image's perturbation as FGSM with ATTA keeps it, margin included: a byte each."""
    pad = crop_margin(*shape[1:])
    return (shape[0], *(-(-(side + 2 * pad) // shrink) for side in shape[1:]))


def atta_bytes(shape: tuple[int, ...], shrink: int = 1) -> int:
    """What FGSM with ATTA keeps of one image, soft labels aside."""
    channels, height, width = kept_shape(shape, shrink)
    return channels * height * width


def adversarial_loss(training: Training) -> AdversarialLoss:
    """The loss of a training run whose spec asks for attacks."""
    task, adversary = training.spec.task, training.spec.adversary
    attack, info = task.attack, DATASETS.get(task.dataset)
    assert attack.eps is not None
    step = attack.step or attack.eps / (2 if adversary == "fgsm-atta" else 4)
    ball = Ball.of(info, task.normalize, attack.eps, step, training.device)
    smoothing = task.loss.label_smoothing
    if adversary == "fgsm-atta":
        return Atta(attack, ball, len(training.train), info.shape, info.classes, smoothing)
    return {"pgd": PGDTraining, "trades": Trades}[adversary](attack, ball, smoothing)


# --- before anything starts ---------------------------------------------------------------------


def check_attack(spec: TrialSpec) -> None:
    """An error where the task's attacks could not be made, found without training."""
    task, adversary = spec.task, spec.adversary
    attack = task.attack
    if not METHODS.get(spec.method).from_weights and task.pretrain.active:
        raise UserError(
            f"pretrain: {spec.method} prunes random weights: there is nothing to start from"
        )
    if adversary == "none" and not attack.evaluate:
        return
    if attack.eps is None:
        why = f" ({spec.method} trains against attacks)" if attack.train == "none" else ""
        raise UserError(f"attack.eps: {NO_EPS.removeprefix('eps ')}{why}")
    info = DATASETS.get(task.dataset)
    if info.kind != "classification" or len(info.shape) != 3:
        raise UserError(f"attack: attacks are on images with a label, {task.dataset} has none")
    if "autoattack" in attack.evaluate and info.classes < 4:
        raise UserError(
            f"attack.evaluate: autoattack needs 4 classes or more, {task.dataset} has "
            f"{info.classes}"
        )
    if adversary != "none" and task.loss.distill.kind != "none":
        raise UserError("attack.train: a teacher's loss and one against attacks exclude each other")
    if adversary == "fgsm-atta":
        _check_atta(task, info)


def _check_atta(task: Task, info: DatasetInfo) -> None:
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
