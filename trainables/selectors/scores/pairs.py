"""How much the loss rises when two layers of a full-precision network become binary together
(docs/methods.md 4.5)."""

from __future__ import annotations

from bitfront.trainables.data import Part
from bitfront.trainables.progress import report
from bitfront.trainables.selectors.scores.scoring import Scoring, Switchable
from bitfront.trainables.training.norms import kept_statistics


def pair_losses(scoring: Scoring, examples: int, together: bool = True) -> list[list[float]]:
    """d, of which the diagonal has L(i) - L and what is above it L(i, j) - L(i) - L(j) + L, where L
    is the loss of the network in full precision and L(i, j) that with the layers i and j binary and
    batch norms estimated anew. Not `together`: the diagonal alone."""
    net = scoring.switchable(binary=False)
    images = scoring.examples(examples)
    layers = range(scoring.layers)

    def loss(*binary: int) -> float:
        return loss_with(scoring, net, images, binary)

    report(f"losses of {len(layers)} layers")
    start = loss()
    alone = [loss(i) - start for i in layers]
    found = [[0.0] * len(layers) for _ in layers]
    for i in layers:
        found[i][i] = alone[i]
        if together:
            report(f"losses of pairs, layer {i + 1} of {len(layers)}")
            for j in layers[i + 1 :]:
                found[i][j] = loss(i, j) - start - alone[i] - alone[j]
    return found


def loss_with(scoring: Scoring, net: Switchable, images: Part, binary: tuple[int, ...]) -> float:
    """The loss with these layers binary; the network is left as it was."""
    for index in binary:
        net.flip(index)
    with kept_statistics(net.model):
        if binary:
            scoring.recalibrate(net)
        found = scoring.loss_on(net, images)
    for index in binary:
        net.flip(index)
    return found
