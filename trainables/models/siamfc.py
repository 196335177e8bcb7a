"""Siamese trackers: one backbone embeds an exemplar and a search region, and the maximum of their
cross-correlation is the place of the target (docs/methods.md 4.7)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

from bitfront.trainables.errors import UserError
from bitfront.trainables.models.activations import ACTIVATION
from bitfront.trainables.models.activations import activation as make_activation
from bitfront.trainables.models.base import MODELS, Shape, parameter
from bitfront.trainables.models.residual import UNIT, Block, stage_layers, start_convolutions
from bitfront.trainables.parameters import Int
from bitfront.trainables.plan import PlanLayer

SMALLEST = 31
# The output scale 1e-3 of siamfc-pytorch is meant for exemplars of about FEATURES numbers. For
# smaller exemplars, whose correlation is a sum of fewer products, it is increased in proportion.
OUT_SCALE, FEATURES = 1e-3, 10 * 10 * 256
# The side from which the stem of ImageNet networks is used.
LARGE = 128


@MODELS.declare("siamfc", kind="object-tracking")
class SiamFC(nn.Module):
    """SiamFC on the stem and the first three stages of a ResNet, total stride 8 (4 for search
    regions below 128 pixels); costs are of one search region: the exemplar is embedded once per
    sequence, the correlation has no weights.

    The stem is not padded. The stages are, and one cell is cropped at each edge of their outputs,
    so that exemplar and search features differ by a whole number of cells (docs/methods.md 4.7)."""

    def __init__(
        self,
        shape: Shape,
        classes: int = 0,
        *,
        width: int = parameter(64, Int(1, 1024), "channels of the first stage", search=Int(8, 64)),
        blocks: int = parameter(
            2, Int(1, 16), "per stage, of two convolutions each", search=Int(1, 2)
        ),
        activation: str = ACTIVATION,
        unit: str = UNIT,
    ) -> None:
        super().__init__()
        if min(shape[1:]) < SMALLEST:
            raise UserError(
                f"model.name: siamfc takes images of {SMALLEST} pixels or more, not {shape}"
            )
        large = min(shape[1:]) >= LARGE
        self.stem = nn.Conv2d(shape[0], width, 7 if large else 3, stride=2, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.act = make_activation(activation, width)
        self.pool: nn.Module = nn.MaxPool2d(3, 2) if large else nn.Identity()
        self.stages = nn.ModuleList()
        inside = width
        for stage, stride in enumerate((1, 2, 1)):
            out = width * 2**stage
            units = []
            for block in range(blocks):
                units.append(Block(inside, out, 1 if block else stride, activation, unit))
                inside = out
            self.stages.append(nn.Sequential(*units))
        start_convolutions(self)

    def forward(self, x: Tensor | tuple[Tensor, Tensor]) -> Tensor:
        """The features of images, or the responses for a pair (exemplars, search regions)."""
        if isinstance(x, Tensor):
            return self.embed(x)
        exemplars, searches = x
        return respond(self.embed(exemplars), self.embed(searches)[:, None])[:, 0]

    def embed(self, x: Tensor) -> Tensor:
        x = self.pool(self.act(self.norm(self.stem(x))))
        for stage in self.stages:
            x = stage(x)[:, :, 1:-1, 1:-1]
        return x

    def plan_layers(self, scope: str) -> list[PlanLayer]:
        body = stage_layers(self.stages, scope)
        return [PlanLayer("stem", "stem", "stem"), *body] if scope == "all" else body


def respond(exemplars: Tensor, searches: Tensor) -> Tensor:
    """The responses f(z, x) = s phi(z) * phi(x): the cross-correlation of SiamFC (Bertinetto et
    al., 2016) with the output scale s and no bias. From features of exemplars (n, c, h, w) and of k
    search regions per exemplar (n, k, c, H, W) to responses (n, k, H - h + 1, W - w + 1)."""
    n, k, c, height, width = searches.shape
    stacked = searches.transpose(0, 1).reshape(k, n * c, height, width)
    scale = OUT_SCALE * FEATURES / exemplars[0].numel()
    # One group per exemplar: each is correlated with its own regions only.
    responses = conv2d(stacked, exemplars * scale, groups=n)
    return torch.transpose(responses, 0, 1)
