"""The tracker of SiamFC with three scales and its constants, run on many sequences at a time, and
the measures of OTB (Bertinetto et al., ECCVW 2016; docs/methods.md 4.7)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from bitfront.trainables.data.sequence_files import valid
from bitfront.trainables.data.sequences import Sequences, context_side
from bitfront.trainables.models.siamfc import SiamFC, respond

SCALE_STEP, SCALE_PENALTY, SCALE_DAMPING = 1.0375, 0.9745, 0.59
WINDOW_INFLUENCE = 0.176
UPSAMPLING = 16
# The size of a target stays within these multiples of its first size.
SMALLEST, LARGEST = 0.2, 5.0
# Pixels of search regions that are embedded at once; each region has three scales.
PIXELS_AT_ONCE = 2**19

# OTB: thresholds of the overlap, 21 from 0 to 1, and of the distance of centres, in pixels.
OVERLAPS = np.linspace(0, 1, 21)
NEAR = 20.0


@dataclass(frozen=True)
class Scores:
    """Means over sequences, as OTB reports them."""

    auc: float
    precision: float


@torch.no_grad()
def track(model: nn.Module, sequences: Sequences) -> list[np.ndarray]:
    """The tracked boxes of every sequence, starting from its first true box. Several sequences are
    tracked at a time, one frame of each per step."""
    assert isinstance(model, SiamFC)
    model.eval()
    at_once = max(1, min(64, PIXELS_AT_ONCE // sequences.sizes[1] ** 2))
    found: list[np.ndarray] = []
    for start in range(0, len(sequences), at_once):
        some = sequences.subset(np.arange(start, min(start + at_once, len(sequences))))
        found += _track_side_by_side(model, some)
    return found


def _track_side_by_side(model: SiamFC, sequences: Sequences) -> list[np.ndarray]:
    small, large = sequences.sizes
    items = sequences.items
    boxes = np.stack([item.boxes[0] for item in items])
    middle, size = boxes[:, :2] + boxes[:, 2:] / 2, boxes[:, 2:].copy()
    first_size = size.copy()
    side = context_side(size)
    exemplars = model.embed(
        sequences.cut([(i, 0, *middle[i], side[i]) for i in range(len(items))], small)
    )
    factors = SCALE_STEP ** np.array([-1.0, 0.0, 1.0])
    tracked = [[box] for box in boxes]
    for frame in range(1, max(map(len, items))):
        here = np.array([i for i, item in enumerate(items) if frame < len(item)])
        side = context_side(size) * large / small
        cuts = [(int(i), frame, *middle[i], side[i] * f) for i in here for f in factors]
        features = model.embed(sequences.cut(cuts, large)).unflatten(0, (len(here), 3))
        moved, scale = locate(respond(exemplars[torch.as_tensor(here)], features))
        # From shares of the response's extent to pixels of the frame.
        pixels = side[here] * factors[scale] * (large - small) / large
        middle[here] += moved * pixels[:, None]
        change = 1 - SCALE_DAMPING + SCALE_DAMPING * factors[scale]
        size[here] = np.clip(
            size[here] * change[:, None], SMALLEST * first_size[here], LARGEST * first_size[here]
        )
        for i in here:
            tracked[i].append(np.concatenate([middle[i] - size[i] / 2, size[i]]))
    return [np.stack(boxes) for boxes in tracked]


def locate(responses: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """(places of the targets, indices of the best scales) from responses (n, 3, r, r) at three
    scales. A place is (x, y) from the centre, as shares of the response's extent."""
    n, k, r, _ = responses.shape
    upsampled = interpolate(responses.float(), scale_factor=UPSAMPLING, mode="bicubic")
    penalty = torch.full((k,), SCALE_PENALTY, device=responses.device)
    penalty[k // 2] = 1.0
    upsampled = upsampled * penalty.view(1, k, 1, 1)
    scale = upsampled.flatten(2).amax(2).argmax(1)
    best = upsampled[torch.arange(n, device=scale.device), scale].flatten(1)
    best = best - best.amin(1, keepdim=True)
    best = best / (best.sum(1, keepdim=True) + 1e-16)
    side = r * UPSAMPLING
    hann = torch.hann_window(side, periodic=False, device=responses.device)
    window = torch.outer(hann, hann).flatten()
    window = window / window.sum()
    peak = ((1 - WINDOW_INFLUENCE) * best + WINDOW_INFLUENCE * window).argmax(1)
    place = torch.stack([peak % side, peak // side], 1) - (side - 1) / 2
    # The extent of the response is r - 1 cells, from the first centre to the last, and a cell is
    # UPSAMPLING wide here.
    return (place / (UPSAMPLING * (r - 1))).cpu().numpy(), scale.cpu().numpy()


def overlap(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Intersection over union, box by box."""
    low = np.maximum(a[:, :2], b[:, :2])
    high = np.minimum(a[:, :2] + a[:, 2:], b[:, :2] + b[:, 2:])
    common = np.prod(np.clip(high - low, 0, None), 1)
    union = np.prod(a[:, 2:], 1) + np.prod(b[:, 2:], 1) - common
    share: np.ndarray = common / np.maximum(union, 1e-12)
    return share


def measure(truth: list[np.ndarray], tracked: list[np.ndarray]) -> Scores:
    """The scores of OTB's one-pass evaluation, means over sequences: the area under the success
    curve (share of frames with an overlap above a threshold, mean over OVERLAPS), and the share of
    frames whose centre is at most NEAR pixels off. Frames without the target do not count."""
    aucs, precisions = [], []
    for boxes, guesses in zip(truth, tracked, strict=True):
        shown = valid(boxes)
        true, found = boxes[shown], guesses[shown]
        success = overlap(true, found)[:, None] > OVERLAPS
        off = np.linalg.norm((true - found)[:, :2] + (true - found)[:, 2:] / 2, axis=1)
        aucs.append(success.mean())
        precisions.append((off <= NEAR).mean())
    return Scores(float(np.mean(aucs)), float(np.mean(precisions)))
