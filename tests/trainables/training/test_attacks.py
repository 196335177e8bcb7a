"""Claims about attacks: those we train with are the library's; the perturbations ATTA keeps follow
their images; robust accuracy names its attack and disturbs nothing (docs/methods.md 5.5, 5.12)."""

from __future__ import annotations

import math

import foolbox
import pytest
import torch
import torch.nn.functional as F
from foolbox.models.pytorch import PyTorchModel
from torch import nn

from bitfront.trainables.attacks import EVALUATION_ATTACKS
from bitfront.trainables.attacks.atta import UNITS, Atta, atta_bytes, kept_shape
from bitfront.trainables.attacks.base import Ball, ascend, attacking
from bitfront.trainables.attacks.base import sign_steps as pgd
from bitfront.trainables.attacks.pgd import PGDTraining
from bitfront.trainables.attacks.trades import Trades
from bitfront.trainables.data import DATASETS, Arrays, Batches, Visit
from bitfront.trainables.data.augmentations import crop_flip_index, cut_out, gathered, unmoved
from bitfront.trainables.errors import UserError
from bitfront.trainables.settings import AttackSpec
from bitfront.trainables.task import Task
from bitfront.trainables.training.adversarial import check_attack
from bitfront.trainables.training.checkpoints import load_state, save_state
from bitfront.trainables.training.robustness import OnPixels, robust_accuracies

NARROW = {"name": "rn-narrow", "width": 4, "stages": 2}
EPS = 0.1


def small_task(**fields: object) -> Task:
    return Task.model_validate(
        {"dataset": "digits", "model": NARROW, "attack": {"eps": EPS}} | fields
    )


@pytest.fixture(scope="module")
def net() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten()]
    model = nn.Sequential(*layers, nn.Linear(384, 10))
    model(torch.randn(64, 1, 8, 8))
    return model.eval()


@pytest.fixture(scope="module")
def images() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.rand(40, 1, 8, 8, generator=generator), torch.randint(
        10, (40,), generator=generator
    )


def ball_of(step: float = EPS / 4, dataset: str = "digits") -> Ball:
    info = DATASETS.get(dataset)
    return Ball.of(info.mean, info.std, EPS, step)


def normalised(pixels: torch.Tensor) -> torch.Tensor:
    info = DATASETS.get("digits")
    return (pixels - info.mean[0]) / info.std[0]


def in_pixels(x: torch.Tensor) -> torch.Tensor:
    info = DATASETS.get("digits")
    return x * info.std[0] + info.mean[0]


# --- the attack of training against the library -------------------------------------------------


@pytest.mark.parametrize("steps", [1, 4, 10])
def test_our_pgd_is_that_of_foolbox(net, images, steps: int) -> None:
    pixels, y = images
    x = normalised(pixels)
    ours = pgd(net, lambda z: F.cross_entropy(z, y, reduction="none"), x, x, ball_of(), steps)
    network = OnPixels(net, small_task(), torch.device("cpu"))
    theirs = foolbox.attacks.LinfPGD(abs_stepsize=EPS / 4, steps=steps, random_start=False)
    wrapped = PyTorchModel(network.eval(), bounds=(0, 1), device="cpu")
    _, found, _ = theirs(wrapped, pixels, y, epsilons=EPS)
    # Signs of gradients that are 0 but for rounding may differ: nearly all pixels are the same.
    same = (in_pixels(ours) - found).abs() < 1e-5
    assert same.float().mean() > 0.99
    with torch.no_grad():
        losses = [float(F.cross_entropy(network(p), y)) for p in (pixels, in_pixels(ours), found)]
    assert losses[1] == pytest.approx(losses[2], rel=1e-3)
    assert losses[1] > losses[0]


@pytest.mark.parametrize("iterate", ["last", "worst"])
def test_attacked_images_stay_in_the_ball_and_in_the_pixels(net, images, iterate: str) -> None:
    pixels, y = images
    pixels = pixels.round()  # black and white: the bounds are met
    x = normalised(pixels)
    ball = ball_of()
    torch.manual_seed(0)
    found = pgd(
        net, lambda z: F.cross_entropy(z, y, reduction="none"), x, ball.uniform(x), ball, 7, iterate
    )
    moved = in_pixels(found)
    assert (moved - pixels).abs().max() <= EPS + 1e-5
    assert moved.min() >= -1e-5
    assert moved.max() <= 1 + 1e-5


def test_the_worst_iterate_is_the_worst_of_those_computed(net, images) -> None:
    pixels, y = images
    x, ball = normalised(pixels), ball_of(step=EPS)  # steps so long that the loss goes up and down

    def losses(z: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(z, y, reduction="none")

    start = ball.inside(x + 0.3 * ball.eps, x)
    moved, seen = start, []
    for _ in range(5):
        direction, each = ascend(net, losses, moved)
        seen.append((each, moved))
        moved = ball.inside(moved + ball.step * direction, x)
    worst = pgd(net, losses, x, start, ball, 5, "worst")
    last = pgd(net, losses, x, start, ball, 5, "last")
    assert torch.equal(last, moved)
    table = torch.stack([each for each, _ in seen])
    for i, step in enumerate(table.argmax(0).tolist()):
        assert torch.equal(worst[i], seen[step][1][i])


def test_the_random_start_fills_the_ball() -> None:
    torch.manual_seed(0)
    x = torch.zeros(200, 1, 8, 8)  # the mean of the pixels, far from both bounds
    moved = ball_of().uniform(x) / ball_of().eps
    assert moved.abs().max() <= 1 + 1e-6
    assert float(moved.mean()) == pytest.approx(0, abs=0.02)
    assert float(moved.std()) == pytest.approx(1 / math.sqrt(3), abs=0.02)


# --- batch norms --------------------------------------------------------------------------------


@pytest.mark.parametrize(("norms", "steps"), [("train", 3), ("eval", 3)])
def test_batch_norms_are_in_the_mode_that_was_asked_for(net, images, norms: str, steps) -> None:
    model = nn.Sequential(*net, nn.Identity()).train()
    norm = model[1]
    x, y = normalised(images[0]), images[1]
    before = int(norm.num_batches_tracked)
    loss = PGDTraining(AttackSpec(eps=EPS, norms=norms, steps=steps), ball_of())
    loss(model, x, y)
    passes = int(norm.num_batches_tracked) - before
    assert passes == (steps + 1 if norms == "train" else 1)
    assert norm.training
    with attacking(model, "eval", torch.device("cpu")):
        assert not norm.training
        assert model.training
    model.eval()


def test_trades_looks_with_running_statistics(net, images) -> None:
    model = nn.Sequential(*net, nn.Identity()).train()
    before = int(model[1].num_batches_tracked)
    Trades(AttackSpec(eps=EPS, steps=3), ball_of())(model, normalised(images[0]), images[1])
    assert int(model[1].num_batches_tracked) - before == 2
    model.eval()


def test_trades_is_cross_entropy_and_beta_times_divergence(net, images) -> None:
    x, y = normalised(images[0]), images[1]
    torch.manual_seed(3)
    clean = Trades(AttackSpec(eps=EPS, beta=0.0), ball_of())(net, x, y)
    assert float(clean) == pytest.approx(float(F.cross_entropy(net(x), y)), rel=1e-5)
    torch.manual_seed(3)
    both = Trades(AttackSpec(eps=EPS, beta=6.0), ball_of())(net, x, y)
    torch.manual_seed(3)
    one = Trades(AttackSpec(eps=EPS, beta=1.0), ball_of())(net, x, y)
    assert float(both - clean) == pytest.approx(6 * float(one - clean), rel=1e-3)
    assert one > clean


# --- ATTA ---------------------------------------------------------------------------------------


def atta(examples: int = 40, **fields: object) -> Atta:
    torch.manual_seed(0)
    spec = AttackSpec.model_validate({"eps": EPS, "train": "fgsm-atta"} | fields)
    return Atta(spec, ball_of(step=EPS / 2), examples, (1, 8, 8), 10)


def test_cut_out_pixels_are_found_again_by_their_places() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(30, 3, 32, 32)
    places = crop_flip_index(30, 32, 32, generator, "cpu")
    moved = cut_out(x, places)
    framed = F.pad(x, (4, 4, 4, 4))
    assert torch.equal(gathered(framed, places, x.shape), moved)
    back = torch.zeros_like(framed).flatten(2)
    back = back.scatter(2, places[:, None].expand(-1, 3, -1), moved.flatten(2)).view(framed.shape)
    seen = back != 0
    assert torch.equal(back[seen], framed[seen])
    assert seen.float().mean() > 0.5
    still = unmoved(30, 32, 32, "cpu")
    assert torch.equal(cut_out(x, still), x)


@pytest.mark.parametrize("augmentation", ["none", "crop-flip"])
def test_a_visit_is_the_batch_it_would_have_been(augmentation: str) -> None:
    part = Arrays(torch.rand(50, 1, 8, 8), torch.arange(50))
    plain = Batches(part, 10, 3, augmentation)
    visits = Batches(part, 10, 3, augmentation, visits=True)
    for (x, y), (visit, labels) in zip(plain, visits, strict=True):
        assert isinstance(visit, Visit)
        assert torch.equal(visit.x, x)
        assert torch.equal(labels, y)
        assert torch.equal(visit.ids, y)


def test_perturbations_are_kept_where_they_were_seen_and_nowhere_else(net, images) -> None:
    loss = atta()
    x, y = normalised(images[0]), images[1]
    places = crop_flip_index(40, 8, 8, torch.Generator().manual_seed(1), "cpu")
    before = loss.memory.clone()
    visit = Visit(cut_out(x, places), torch.arange(40), places)
    loss(net, visit, y)
    seen = torch.zeros(40, 100, dtype=torch.bool).scatter(1, places, True).view(40, 1, 10, 10)
    assert torch.equal(loss.memory[~seen], before[~seen])
    assert (loss.memory[seen] != before[seen]).float().mean() > 0.3
    assert loss.memory.abs().max() <= UNITS
    # What the next visit of the same window starts from is what this one ended with.
    again = gathered(loss.framed(visit.ids), places, x.shape) / loss.ball.eps
    assert again.abs().max() <= 1 + 1e-6


def test_two_visits_climb_further_than_one(net, images) -> None:
    loss = atta(soft_labels=False)
    x, y = normalised(images[0]), images[1]
    visit = Visit(x, torch.arange(40), unmoved(40, 8, 8, "cpu"))
    losses = [float(loss(net, visit, y).detach()) for _ in range(4)]
    assert losses[1] > losses[0]
    assert losses[-1] >= losses[1]


def test_soft_labels_are_averages_over_visits(net) -> None:
    loss = atta(examples=2)
    ids, y = torch.tensor([0, 1]), torch.tensor([3, 5])
    logits = torch.zeros(2, 10)
    first = loss._soft(ids, logits, y)
    label = F.one_hot(y, 10).float()
    target = 0.9 * label + 0.1 * torch.full((2, 10), 0.1)
    torch.testing.assert_close(first, 0.1 * label + 0.9 * target)
    second = loss._soft(ids, logits, y)
    target = 0.9 * target + 0.1 * torch.full((2, 10), 0.1)
    torch.testing.assert_close(second, 0.1 * label + 0.9 * target)


def test_perturbations_can_be_kept_smaller(net, images) -> None:
    loss = atta(shrink=4)
    assert loss.memory.shape == (40, 1, 3, 3)
    framed = loss.framed(torch.arange(3))
    assert framed.shape == (3, 1, 10, 10)
    assert torch.equal(framed[:, :, :4, :4], framed[:, :, :1, :1].expand(-1, -1, 4, 4))
    loss.keep(torch.arange(3), framed)
    torch.testing.assert_close(loss.framed(torch.arange(3)), framed)


def test_what_atta_keeps_of_an_image() -> None:
    assert atta_bytes((3, 32, 32)) == 3 * 40 * 40
    assert kept_shape((3, 224, 224), 8) == (3, 29, 29)
    assert atta_bytes((3, 224, 224), 8) == 3 * 29 * 29


def test_a_resumed_run_remembers_its_perturbations(make_spec, start, finish, tmp_path) -> None:
    spec = make_spec(
        "edge-popup", "W", params={"rate": 0.5}, model=NARROW, epochs=3,
        attack={"eps": EPS, "train": "fgsm-atta"}, augmentation="crop-flip",
    )  # fmt: skip
    whole = start(spec)
    whole.epoch()
    save_state(whole, tmp_path / "state.pt")
    finish(whole)
    torch.manual_seed(999)
    resumed = start(spec)
    assert load_state(resumed, tmp_path / "state.pt")
    finish(resumed)
    assert torch.equal(resumed.loss.memory, whole.loss.memory)
    assert torch.equal(resumed.loss.labels, whole.loss.labels)
    pairs = zip(resumed.model.parameters(), whole.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


# --- robust accuracy ----------------------------------------------------------------------------


def test_adversarial_training_pays_under_attack_and_costs_on_clean_images(
    make_spec, start, finish
) -> None:
    def run(train: str) -> dict[str, float]:
        spec = make_spec(
            "fp", "F", model={"name": "mlp", "depth": 2, "width": 64}, subset=None, epochs=6,
            optimizer={"lr": 0.01},
            attack={"eps": EPS, "train": train, "steps": 5, "evaluate": ["pgd20"]},
        )  # fmt: skip
        return finish(start(spec)).history[-1]

    clean, robust = run("none"), run("pgd")
    assert robust["val_robust_pgd20"] > clean["val_robust_pgd20"] + 0.15
    assert robust["val_robust_pgd20"] <= robust["val_accuracy"]
    assert "train_robust_pgd" in robust
    assert "train_robust_pgd" not in clean


def test_measuring_robustness_disturbs_nothing(make_spec, start) -> None:
    spec = make_spec("edge-popup", "W", params={"rate": 0.5}, model=NARROW, attack={"eps": EPS})
    training = start(spec)
    training.epoch()
    training.model.train()
    state = {k: v.clone() for k, v in training.model.state_dict().items()}
    random = torch.get_rng_state()
    args = (training.model, training.validation, spec.task, ["fgsm", "pgd10"])
    found = robust_accuracies(*args)
    assert torch.equal(torch.get_rng_state(), random)
    assert training.model.training
    assert all(torch.equal(v, training.model.state_dict()[k]) for k, v in state.items())
    assert all(p.requires_grad for p in training.model.parameters())
    assert robust_accuracies(*args) == found
    assert set(found) == {"val_robust_fgsm", "val_robust_pgd10"}


@pytest.mark.parametrize("name", [n for n, a in EVALUATION_ATTACKS.items() if a.every_epoch])
def test_attacked_images_stay_images_within_eps(net, images, name) -> None:
    network = OnPixels(net, small_task(), torch.device("cpu")).eval()
    pixels, y = images
    found = EVALUATION_ATTACKS.get(name).run(network, pixels, y, EPS, 10)
    assert float((found - pixels).abs().max()) <= EPS + 1e-6
    assert 0 <= float(found.min()) <= float(found.max()) <= 1


def test_autoattack_is_its_authors_standard_composition(net, images, monkeypatch) -> None:
    import pyautoattack

    made = []
    original = pyautoattack.AutoAttack

    def watched(*args, **kwargs):
        made.append(original(*args, **kwargs))
        # The whole suite takes minutes; its composition is what is checked here.
        monkeypatch.setattr(
            made[-1], "run_standard_evaluation", lambda x, y, batch_size: x, raising=True
        )
        return made[-1]

    monkeypatch.setattr(pyautoattack, "AutoAttack", watched)
    network = OnPixels(net, small_task(), torch.device("cpu")).eval()
    pixels, y = images
    EVALUATION_ATTACKS.get("autoattack").run(network, pixels, y, EPS, 10)
    (suite,) = made
    assert list(suite.attacks_to_run) == ["apgd-ce", "apgd-t", "fab-t", "square"]
    assert suite.norm == "Linf"
    assert suite.epsilon == EPS
    assert suite.apgd.n_iter == suite.apgd_targeted.n_iter == suite.fab.n_iter == 100
    assert suite.square.n_queries == 5000
    assert suite.fab.n_target_classes == suite.apgd_targeted.n_target_classes == 9


def test_autoattack_finds_at_least_what_pgd_finds(net, images) -> None:
    pixels = images[0][:6]
    part = Arrays(normalised(pixels), net(normalised(pixels)).argmax(1))
    task = small_task(attack={"eps": 0.02})
    found = robust_accuracies(net, part, task, ["pgd20", "autoattack"])
    assert found["val_robust_autoattack"] <= found["val_robust_pgd20"]


# --- before anything starts ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["at", "trades", "rst"])
def test_a_missing_eps_is_an_error_before_training(make_spec, start, name: str) -> None:
    with pytest.raises(UserError, match=r"attack\.eps: is missing.*trains against attacks"):
        start(make_spec(name, "W", attack={}))


@pytest.mark.parametrize("attack", [{"train": "pgd"}, {"evaluate": ["pgd20"]}])
def test_attacks_of_a_task_need_an_eps(attack: dict) -> None:
    with pytest.raises(ValueError, match="eps is missing: how far a pixel"):
        AttackSpec.model_validate(attack)


@pytest.mark.parametrize(("given", "eps"), [("8/255", 8 / 255), (0.1, 0.1), ("0.25", 0.25)])
def test_eps_may_be_written_as_everybody_does(given, eps: float) -> None:
    assert AttackSpec(eps=given).eps == eps


@pytest.mark.parametrize("given", [0, -0.1, 1.5, "8/0", "a/b", "eight"])
def test_other_eps_are_refused(given) -> None:
    with pytest.raises(ValueError, match="eps"):
        AttackSpec(eps=given)


def test_points_cannot_be_attacked(make_spec) -> None:
    spec = make_spec("fp", "F", dataset="moons", attack={"eps": EPS, "train": "pgd"})
    with pytest.raises(UserError, match="attacks are on images with a label, moons has none"):
        check_attack(spec)


def test_atta_needs_images_it_can_follow_and_memory(make_spec) -> None:
    attack = {"eps": EPS, "train": "fgsm-atta"}
    with pytest.raises(UserError, match="not affine-flip"):
        check_attack(make_spec("fp", "F", attack=attack, augmentation="affine-flip"))
    with pytest.raises(UserError, match=r"perturbations of 200 images take .* MB"):
        check_attack(make_spec("fp", "F", attack={**attack, "memory_mb": 0.001}))


def test_ids_of_clean_trials_are_what_they_were_before_there_were_attacks(make_spec) -> None:
    plain = make_spec("bnn", "B")
    assert plain.fingerprint() == make_spec("bnn", "B", attack={"eps": 0.1}).fingerprint()
    attacked_ = make_spec("bnn", "B", attack={"eps": 0.1, "train": "pgd"})
    assert attacked_.fingerprint() != plain.fingerprint()
