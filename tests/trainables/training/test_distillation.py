"""Claims about learning from a teacher: the terms have their closed forms, every kind of teacher
loads, what cannot work is said before training, and a resumed run is the uninterrupted one."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import yaml
from safetensors.torch import save_file
from timm.models.nest import TransformerLayer
from torch import nn

from bitfront.trainables import packed
from bitfront.trainables.errors import UserError
from bitfront.trainables.models import build_model
from bitfront.trainables.settings import DistillSpec, LossSpec
from bitfront.trainables.task import Task
from bitfront.trainables.training.checkpoint_files import weights_of
from bitfront.trainables.training.checkpoints import load_state, save_state
from bitfront.trainables.training.distillation import (
    Distillation,
    check_teacher,
    distance,
    load_teacher,
    similarity,
    soft_cross_entropy,
    watched,
)
from bitfront.trainables.training.pretraining import PretrainedCache

TINY = {"name": "tinyvit", "patch": 4, "depth": 2, "width": 16, "heads": 2}


@pytest.fixture(scope="module")
def teacher_file(make_spec, start, finish, tmp_path_factory) -> Path:
    """A small transformer in full precision, as a state dict."""
    training = finish(start(make_spec("fp", plan="F" * 8, model=TINY, epochs=2)))
    path = tmp_path_factory.mktemp("teacher") / "teacher.safetensors"
    save_file(weights_of(training.model), path)
    return path


def distilled(make_spec, kind="bibert", teacher="stage", model=TINY, level="W", **task):
    return make_spec(
        "bnn",
        level,
        model=model,
        loss={"distill": {"kind": kind, "teacher": str(teacher)}},
        **({"epochs": 2} | task),
    )


# --- the terms ----------------------------------------------------------------------------------


def test_soft_cross_entropy_is_the_teachers_mean_of_the_students_log_probability() -> None:
    student, teacher = (
        torch.tensor([[0.0, 1.0], [2.0, 0.0]]),
        torch.tensor([[1.0, 1.0], [0.0, 3.0]]),
    )
    p = [[0.5, 0.5], [1 / (1 + math.e**3), math.e**3 / (1 + math.e**3)]]
    log = student.log_softmax(1).tolist()
    expected = (
        -sum(
            a * b for row, logs in zip(p, log, strict=True) for a, b in zip(row, logs, strict=True)
        )
        / 2
    )
    assert float(soft_cross_entropy(student, teacher)) == pytest.approx(expected, rel=1e-6)
    # At its minimum, the teacher itself, it is the teacher's entropy.
    entropy = float(soft_cross_entropy(teacher, teacher))
    assert entropy < float(soft_cross_entropy(student, teacher))


def test_a_temperature_keeps_the_size_of_the_gradient() -> None:
    teacher = torch.randn(64, 10, generator=torch.Generator().manual_seed(0)) * 0.1
    norms = []
    for temperature in (1.0, 4.0):
        student = torch.zeros(64, 10, requires_grad=True)
        soft_cross_entropy(student, teacher, temperature).backward()
        norms.append(float(student.grad.norm()))
    assert norms[0] == pytest.approx(norms[1], rel=0.1)


def test_distance_sees_directions_only() -> None:
    s, t = torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, 5.0]])
    assert float(distance(s, t)) == pytest.approx(math.sqrt(2))
    assert float(distance(s, 7 * s)) == pytest.approx(0.0, abs=1e-6)
    assert float(distance(s, -s)) == pytest.approx(2.0)


def test_similarity_is_the_scaled_product_of_tokens() -> None:
    x = torch.tensor([[[[1.0, 2.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]]])
    assert similarity(x).tolist() == [[[[2.5, 1.0], [1.0, 0.5]]]]


def test_a_watched_transformer_shows_the_queries_its_attention_uses() -> None:
    torch.manual_seed(0)
    model = build_model("tinyvit", {k: v for k, v in TINY.items() if k != "name"}, (1, 8, 8), 10)
    model.eval()
    x = torch.randn(3, 1, 8, 8)
    with watched(model) as shown:
        logits = model(x)
    assert [tuple(q.shape) for q, _, _ in shown.qkv] == [(3, 2, 5, 8)] * 2
    assert [tuple(h.shape) for h in shown.hidden] == [(3, 5, 16)] * 3
    block = model.blocks[0]
    q, k, v = shown.qkv[0]
    mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
    after = shown.hidden[0] + block.attn.proj(mixed)
    torch.testing.assert_close(after + block.mlp(block.norm2(after)), shown.hidden[1])
    torch.testing.assert_close(model.head(model.norm(shown.hidden[-1])[:, 0]), logits)
    model(x)
    assert len(shown.qkv) == 2, "a hook was left behind"


def test_blocks_of_an_image_are_watched_like_images_of_their_own() -> None:
    """NesT's attention has (images, blocks of an image, tokens, width); it was a traceback."""
    torch.manual_seed(0)
    layer = TransformerLayer(dim=8, num_heads=2)
    x = torch.randn(2, 3, 4, 8)
    with watched(nn.Sequential(layer)) as shown, torch.no_grad():
        layer(x)
    by_hand = layer.attn.qkv(layer.norm1(x[1, 2])).detach()
    q, _, v = shown.qkv[0]
    assert q.shape == (6, 2, 4, 4)
    torch.testing.assert_close(q[5, 1], by_hand[:, 4:8])
    torch.testing.assert_close(v[5, 0], by_hand[:, 16:20])
    assert shown.hidden[0].shape == (2, 3, 4, 8)


def test_the_loss_is_the_weighted_sum_of_its_terms() -> None:
    torch.manual_seed(0)
    params = {k: v for k, v in TINY.items() if k != "name"}
    student, teacher = (build_model("tinyvit", params, (1, 8, 8), 10).eval() for _ in range(2))
    x, y = torch.randn(4, 1, 8, 8), torch.tensor([1, 2, 3, 4])

    def loss(**weights: float) -> float:
        spec = DistillSpec(
            kind="bibert", **{"soft": 0, "hard": 0, "similarity": 0, "hidden": 0} | weights
        )
        return float(Distillation(spec, teacher)(student, x, y).detach())

    with torch.no_grad(), watched(student) as s:
        logits = student(x)
    with torch.no_grad(), watched(teacher) as t:
        theirs = teacher(x)
    assert loss(soft=1) == pytest.approx(float(soft_cross_entropy(logits, theirs)), rel=1e-5)
    assert loss(hard=1) == pytest.approx(float(F.cross_entropy(logits, y)), rel=1e-5)
    qkv = sum(
        float(distance(similarity(a), similarity(b)))
        for ours, others in zip(s.qkv, t.qkv, strict=True)
        for a, b in zip(ours, others, strict=True)
    )
    assert loss(similarity=1) == pytest.approx(qkv, rel=1e-5)
    hidden = sum(float(distance(a, b)) for a, b in zip(s.hidden, t.hidden, strict=True))
    assert loss(hidden=1) == pytest.approx(hidden, rel=1e-5)
    parts = 2 * loss(soft=1) + 3 * loss(hard=1) + 5 * qkv + 7 * hidden
    assert loss(soft=2, hard=3, similarity=5, hidden=7) == pytest.approx(parts, rel=1e-5)


def test_labels_weigh_a_half_beside_bibert_and_nothing_beside_logits() -> None:
    assert DistillSpec(kind="bibert").hard_weight == 0.5
    assert DistillSpec(kind="logits").hard_weight == 0.0
    assert DistillSpec(kind="logits", hard=0.3).hard_weight == 0.3
    assert LossSpec.model_validate({"distill": "bibert"}).distill.kind == "bibert"


# --- teachers -----------------------------------------------------------------------------------


def test_every_kind_of_teacher_gives_its_own_logits(
    make_spec, start, finish, teacher_file, tmp_path
) -> None:
    x = torch.randn(4, 1, 8, 8)
    full = make_spec("fp", plan="F" * 8, model=TINY, epochs=2)
    trained = finish(start(full))
    expected = trained.model.eval()(x)
    packed_file = tmp_path / "packed.safetensors"
    packed.save(trained.network, full, packed_file, {})
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        yaml.safe_dump({"spec": full.model_dump(mode="json"), "final": {"epochs": 2}})
    )
    pretrained = PretrainedCache(tmp_path / "pretrained")
    for teacher in (teacher_file, packed_file, recipe):
        spec = distilled(make_spec, teacher=teacher)
        check_teacher(spec.task)
        model = load_teacher(start(spec, pretrained=pretrained)).eval()
        torch.testing.assert_close(model(x), expected, msg=str(teacher))
    of_pretraining = distilled(make_spec, pretrain=2)
    check_teacher(of_pretraining.task)
    model = load_teacher(start(of_pretraining, pretrained=pretrained)).eval()
    torch.testing.assert_close(model(x), expected)
    assert len(list((tmp_path / "pretrained").glob("*.safetensors"))) <= 2


def test_a_teacher_stays_as_it_is_and_draws_no_random_number(
    make_spec, start, teacher_file
) -> None:
    training = start(distilled(make_spec, teacher=teacher_file))
    before = torch.get_rng_state()
    loss = training.loss
    assert torch.equal(before, torch.get_rng_state())
    kept = {k: v.clone() for k, v in loss.teacher.state_dict().items()}
    training.epoch()
    assert not loss.teacher.training
    assert all(torch.equal(v, kept[k]) for k, v in loss.teacher.state_dict().items())


def test_a_student_comes_closer_to_its_teacher(make_spec, start, finish, teacher_file) -> None:
    """Without labels: what it learns it learns from the teacher."""
    spec = distilled(make_spec, "logits", teacher_file, epochs=8, subset=800)
    training = start(spec)
    teacher = training.loss.teacher
    x = training.validation.x

    def agreement() -> float:
        with torch.no_grad():
            same = training.model.eval()(x).argmax(1) == teacher(x).argmax(1)
        return float(same.float().mean())

    before = agreement()
    finish(training)
    assert agreement() > max(0.5, before + 0.2)


def test_an_added_norm_of_the_student_is_not_asked_of_the_teacher(make_spec, start, teacher_file):
    spec = distilled(make_spec, teacher=teacher_file, model={**TINY, "attention_norm": True})
    check_teacher(spec.task)
    teacher = load_teacher(start(spec))
    assert not any("added_norm" in name for name in teacher.state_dict())
    start(spec).epoch()


@pytest.mark.parametrize("kind", ["logits", "bibert"])
def test_a_resumed_student_ends_like_the_uninterrupted_one(
    make_spec, start, finish, tmp_path, kind
) -> None:
    pretrained = PretrainedCache(tmp_path / "pretrained")
    spec = distilled(make_spec, kind, epochs=3, pretrain=1)
    whole = finish(start(spec, pretrained=pretrained))
    half = start(spec, pretrained=pretrained)
    half.epoch()
    save_state(half, tmp_path / "state.pt")
    other = start(spec, pretrained=pretrained)
    assert load_state(other, tmp_path / "state.pt")
    finish(other)
    assert [h["train_loss"] for h in other.history] == [h["train_loss"] for h in whole.history]
    for key, value in whole.model.state_dict().items():
        assert torch.equal(value, other.model.state_dict()[key]), key


# --- before anything starts ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, "no full-precision pretraining to learn from"),
        ({"teacher": "nowhere.pt"}, "nowhere.pt: no such file"),
        ({"pretrain": 1, "model": {"name": "mlp"}}, "bibert is for transformers, mlp has no"),
        (
            {"teacher": "THERE", "model": {**TINY, "depth": 3}},
            "part of the teacher would be random",
        ),
        ({"teacher": "THERE", "model": {"name": "mlp"}}, "another architecture"),
        ({"teacher": "RECIPE"}, "its blocks and widths are not those of tinyvit"),
        ({"teacher": "RECIPE", "dataset": "mnist"}, "was trained on digits"),
    ],
)
def test_what_cannot_teach_is_said_before_training(
    make_spec, teacher_file, tmp_path, change, message
) -> None:
    wide = make_spec("fp", plan="F" * 8, model={**TINY, "width": 32})
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        yaml.safe_dump({"spec": wide.model_dump(mode="json"), "final": {"epochs": 1}})
    )
    files = {"THERE": str(teacher_file), "RECIPE": str(recipe)}
    change = dict(change)
    teacher = change.pop("teacher", "stage")
    task = Task.model_validate(
        {"dataset": "digits", "model": TINY}
        | change
        | {"loss": {"distill": {"kind": "bibert", "teacher": files.get(teacher, teacher)}}}
    )
    with pytest.raises(UserError, match=message):
        check_teacher(task)


def test_any_network_learns_from_logits_of_another_one(make_spec, start, teacher_file, tmp_path):
    full = make_spec("fp", plan="F" * 8, model=TINY, epochs=1)
    path = tmp_path / "packed.safetensors"
    training = start(full)
    training.epoch()
    packed.save(training.network, full, path, {})
    spec = distilled(make_spec, "logits", path, model={"name": "cresnet", "depth": 8, "width": 4})
    check_teacher(spec.task)
    assert start(spec).epoch()["train_loss"] > 0


def test_a_teacher_makes_another_trial_and_its_place_does_not(make_spec) -> None:
    plain = make_spec(model=TINY)
    unused = make_spec(model=TINY, loss={"distill": {"temperature": 3.0}})
    one, other = (
        make_spec(
            model=TINY,
            loss={"distill": {"kind": "logits", "teacher": place, "sha256": "ab"}},
        )
        for place in ("here.pt", "there.pt")
    )
    assert plain.fingerprint() == unused.fingerprint()
    assert one.fingerprint() == other.fingerprint() != plain.fingerprint()
