"""Claims about what trained selectors compute: flipped layers are the layers of the other plan,
scores are what their equations say, epochs are counted."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bitfront.trainables.data import Arrays, Part, in_order
from bitfront.trainables.methods import build_method
from bitfront.trainables.selectors import SelectionSpec, select
from bitfront.trainables.selectors.scores.curvature import (
    binary_error,
    hawq_scores,
    hutchinson_traces,
    planned_weights,
    second_moments,
)
from bitfront.trainables.selectors.scores.relaxation import MixedLayer, full_precision_preference
from bitfront.trainables.selectors.scores.scoring import Scoring
from bitfront.trainables.task import Task
from bitfront.trainables.training.checkpoint_files import load_weights, weights_of
from bitfront.trainables.training.evaluation import evaluate
from bitfront.trainables.training.network import Network
from bitfront.trainables.training.norms import recalibrate

MLP = {"name": "mlp", "depth": 5, "width": 12}
CONV = {"name": "cresnet", "depth": 8, "width": 4}


def scoring_of(model=MLP, selector="mixbin-loss", **params) -> Scoring:
    task = {
        "dataset": "digits",
        "model": model,
        "epochs": 2,
        "batch_size": 32,
        "optimizer": {"lr": 0.02},
        "subset": 160,
    }
    spec = SelectionSpec(
        selector=selector,
        params=params,
        task=Task.model_validate(task),
        method_params={"scale": "channel"},
    )
    return Scoring(spec)


def planned(scoring: Scoring, plan: str, weights) -> nn.Module:
    """The network a trial of this plan would evaluate, with these weights."""
    network = Network(scoring.trial(plan))
    load_weights(network.model, weights, "test")
    return network.model.eval()


def images_of(part: Part) -> Tensor:
    assert isinstance(part, Arrays)
    return part.x


# --- flips --------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [MLP, CONV], ids=["mlp", "cresnet"])
@pytest.mark.parametrize("binary", [True, False])
def test_a_flipped_network_is_the_network_of_the_other_plan(model, binary) -> None:
    scoring = scoring_of(model)
    net = scoring.switchable(binary)
    weights = scoring.pretrained("B" if binary else "F")
    n = scoring.layers
    for flipped in ([], [0], [1, 3], range(n)):
        for index in flipped:
            net.flip(index)
        plan = "".join("B" if (i in flipped) != binary else "F" for i in range(n))
        other = planned(scoring, plan, weights)
        x = images_of(scoring.validation)
        torch.testing.assert_close(net.model(x), other(x))
        for index in flipped:
            net.flip(index)


# --- MixBin -------------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", ["bin2fp", "fp2bin"])
def test_the_loss_score_is_what_the_other_plan_adds_to_the_loss(direction: str) -> None:
    scoring = scoring_of()
    start, other = ("B", "F") if direction == "bin2fp" else ("F", "B")
    net = scoring.switchable(start == "B")
    scores = scoring.loss_after(net, [0, 2], {"examples": 100})
    weights = scoring.pretrained(start)
    images = scoring.examples(100)
    n = scoring.layers

    def loss(plan: str, anew: bool) -> float:
        model = planned(scoring, plan, weights)
        if anew:
            recalibrate(model, scoring.train, 32)
        return evaluate(model, images)["val_loss"]

    for index in (0, 2):
        flipped = start * index + other + start * (n - 1 - index)
        expected = loss(flipped, True) - loss(start * n, False)
        assert scores[index] == pytest.approx(expected, abs=1e-5)


def test_a_gradient_is_that_of_the_weight_the_layer_multiplies_with() -> None:
    """Against differences of the loss, on a network in full precision."""
    scoring = scoring_of()
    net = scoring.switchable(binary=False)
    images = scoring.examples(60)
    gradients = net.gradients(in_order(images, 32))
    model = net.model.double()
    x, y = images_of(images).double(), images.y
    for index in range(scoring.layers):
        latent = net.layers[index].latent
        used, other = (t.double() for t in net.both_weights(index))
        assert torch.equal(used, latent)
        step = other - used
        losses = []
        for eps in (1e-5, -1e-5):
            with torch.no_grad():
                latent += eps * step
                losses.append(float(F.cross_entropy(model(x), y)))
                latent -= eps * step
        slope = (losses[0] - losses[1]) / 2e-5
        assert float((gradients[index].double() * step).sum()) == pytest.approx(slope, abs=1e-4)


def test_a_gradient_of_a_binary_network_reaches_its_first_layer() -> None:
    scoring = scoring_of()
    net = scoring.switchable(binary=True)
    gradients = net.gradients(in_order(scoring.examples(60), 32))
    assert all(float(g.abs().sum()) > 0 for g in gradients)
    used, other = net.both_weights(0)
    assert used.unique().numel() <= 2 * len(used)
    assert other.unique().numel() > 2 * len(other)


def test_the_first_layer_binarized_hurts_least_and_the_last_one_promoted_first() -> None:
    for direction in ("fp2bin", "bin2fp"):
        scoring = scoring_of(direction=direction)
        values = {"direction": direction, "update": "one-shot", "per_flop": False, "examples": 100}
        ranking = scoring.convert(values, scoring.loss_after)
        scores = list(ranking.scores)
        ordered = [scores[i] for i in ranking.order]
        assert ordered == sorted(ordered, reverse=direction == "bin2fp")


def test_greedy_scores_again_after_every_conversion() -> None:
    counts = []
    for update in ("one-shot", "greedy"):
        scoring = scoring_of()
        calls: list[int] = []

        def spy(net, left, values, calls=calls):
            calls.append(len(left))
            return {i: float(i) for i in left}

        values = {"direction": "bin2fp", "update": update, "per_flop": False}
        ranking = scoring.convert(values, spy)
        assert list(ranking.order) == [3, 2, 1, 0]
        counts.append(calls)
    assert counts == [[4], [4, 3, 2]]


def test_scores_can_be_counted_by_the_flop() -> None:
    scoring = scoring_of(CONV)
    values = {"direction": "fp2bin", "update": "one-shot", "per_flop": True}
    ranking = scoring.convert(values, lambda net, left, values: dict.fromkeys(left, 1.0))
    costs = {layer.name: layer.macs for layer in scoring.table.layers}
    macs = [costs[layer.name] for layer in scoring.table.plan_layers]
    in_order_of_order = [macs[i] for i in ranking.order]
    assert in_order_of_order == sorted(macs, reverse=True)


def test_examples_scored_and_epochs_trained_are_counted() -> None:
    found = select(scoring_of(selector="mixbin-grad", examples=50, update="greedy").spec)
    train = len(scoring_of().train)
    # Four layers: three backward passes, a new estimate of batch norm after two conversions.
    assert found.scored_examples == 3 * 50 + 2 * train
    assert found.training_epochs == 2
    iterative = select(scoring_of(selector="iterative", epochs=1).spec)
    assert iterative.training_epochs == 4 + 3 + 2


def test_iterative_keeps_the_candidate_of_lowest_loss() -> None:
    scoring = scoring_of(selector="iterative")
    ranking = scoring.train_every_candidate(1, 100)
    images = scoring.examples(100)
    losses = [
        evaluate(scoring.trained("F" * i + "B" + "F" * (3 - i), 1).model, images)["val_loss"]
        for i in range(4)
    ]
    assert list(ranking.scores) == pytest.approx(losses)
    assert ranking.order[0] == min(range(4), key=losses.__getitem__)


# --- rivals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [MLP, CONV], ids=["mlp", "cresnet"])
def test_hutchinson_traces_are_those_of_the_hessian(model) -> None:
    """Against the diagonal of the Hessian, computed a second derivative at a time."""
    scoring = scoring_of(model)
    network = scoring.full_precision()
    weights = planned_weights(network, scoring)[:1]
    images = scoring.examples(32)
    traces = hutchinson_traces(network, weights, list(in_order(images, 16)), 100, 0)
    loss = F.cross_entropy(network(images_of(images)), images.y)
    for w, trace in zip(weights, traces, strict=True):
        (gradient,) = torch.autograd.grad(loss, w, create_graph=True)
        flat = gradient.flatten()
        exact = sum(
            float(torch.autograd.grad(flat[i], w, retain_graph=True)[0].flatten()[i])
            for i in range(len(flat))
        )
        assert trace == pytest.approx(exact, rel=0.25, abs=0.02)


def test_hutchinson_finds_a_trace_in_closed_form() -> None:
    """Two classes of equal logits have the Hessian [[1/4, -1/4], [-1/4, 1/4]] x^2, of trace
    x^2 / 2, for the two weights of one input."""
    layer = nn.Linear(1, 2, bias=False)
    nn.init.zeros_(layer.weight)
    x, y = torch.tensor([[3.0]]), torch.tensor([0])
    (trace,) = hutchinson_traces(layer, [layer.weight], [(x, y)], 1000, 0)
    assert trace == pytest.approx(4.5, rel=0.2)


def test_the_hawq_score_is_the_mean_trace_times_the_squared_error() -> None:
    scoring = scoring_of()
    scores = hawq_scores(scoring, 3, 64)
    network = scoring.full_precision()
    weights = planned_weights(network, scoring)
    batches = list(in_order(scoring.examples(64), 128))
    traces = hutchinson_traces(network, weights, batches, 3, scoring.spec.seed)
    for w, trace, score in zip(weights, traces, scores, strict=True):
        scale = w.detach().abs().mean(1, keepdim=True)
        error = (torch.where(w >= 0, scale, -scale) - w).square().sum()
        assert score == pytest.approx(trace / w.numel() * error.item(), rel=1e-4)
        torch.testing.assert_close(binary_error(w.detach()).square().sum(), error.detach())


def test_second_moments_are_the_mean_squares_of_the_gradients_of_batches() -> None:
    layer = nn.Linear(1, 2, bias=False)
    nn.init.zeros_(layer.weight)
    batches = [(torch.tensor([[x]]), torch.tensor([0])) for x in (1.0, 3.0)]
    (moment,) = second_moments(layer, [layer.weight], batches)
    # dL/dw = (p - y) x with p = 1/2: squares 0.25 and 2.25.
    torch.testing.assert_close(moment, torch.full((2, 1), 1.25))


@pytest.mark.parametrize("layer", [nn.Linear(6, 4), nn.Conv2d(6, 4, 3, padding=1, bias=False)])
def test_a_mixed_layer_is_between_its_two_versions(layer: nn.Module) -> None:
    method = build_method("bnn", {"scale": "channel"})
    mixed = MixedLayer(layer, method, "B").eval()
    x = torch.randn(2, 6, 5, 5) if isinstance(layer, nn.Conv2d) else torch.randn(2, 6)
    ends = []
    for logit in (50.0, -50.0):
        mixed.logits[0].data.fill_(logit)
        ends.append(mixed(x))
    torch.testing.assert_close(ends[0], layer(x))
    mixed.logits[0].data.zero_()
    torch.testing.assert_close(mixed(x), (ends[0] + ends[1]) / 2)
    assert not torch.allclose(ends[0], ends[1])
    assert not any("logit" in name for name, _ in mixed.named_parameters())


def test_a_penalty_on_flops_pushes_shares_to_binary() -> None:
    free, dear = (
        full_precision_preference(scoring_of(selector="bnas"), penalty, 0.05, 2)
        for penalty in (0.0, 100.0)
    )
    assert all(d < 0 for d in dear)
    assert all(d < f for d, f in zip(dear, free, strict=True))
    assert len(set(free)) == len(free)


def test_levels_of_weights_alone_leave_the_inputs_as_they_are() -> None:
    scoring = scoring_of()
    scoring.spec = scoring.spec.model_copy(update={"level": "W"})
    net = scoring.switchable(binary=True)
    assert net.inputs == [[]] * scoring.layers
    weights = scoring.pretrained("W")
    x = images_of(scoring.validation)
    torch.testing.assert_close(net.model(x), planned(scoring, "W" * scoring.layers, weights)(x))


def test_pretraining_is_that_of_a_trial(make_spec, start, finish) -> None:
    scoring = scoring_of()
    spec = scoring.trial("B" * scoring.layers)
    trained = weights_of(finish(start(spec)).model)
    found = scoring.pretrained("B")
    assert all(torch.equal(found[k], v) for k, v in trained.items())
    assert found.keys() == trained.keys()
