"""What a finished training has to show: the shape of its quantizer, what its pruned layers keep."""

import pytest

from bitfront.trainables.task import Task, TrialSpec
from bitfront.trainables.training.pictures import masks, quantizer
from bitfront.trainables.worker.worker import Worker


def spec_of(method, plan="BBBB", **params):
    task = Task(
        dataset="digits", model={"name": "mlp", "depth": 5, "width": 16}, epochs=1, subset=100
    )
    return TrialSpec(task=task, method=method, plan=plan, params=params)


def test_a_sharpening_quantizer_is_shown_over_its_schedule():
    shapes = quantizer(spec_of("bnn++", mu_start=5.0, mu_end=30.0))
    assert shapes["values"][0] == 5.0
    assert shapes["values"][-1] == pytest.approx(30.0)
    assert shapes["values"] == sorted(shapes["values"])
    middle = shapes["x"].index(0.0)
    slopes = [curve[middle] for curve in shapes["backward"]["weights"]]
    assert slopes == sorted(slopes)  # ever steeper at 0
    assert shapes["forward"]["weights"][-1][0] == pytest.approx(-1, abs=1e-3)


def test_a_fixed_quantizer_does_not_change_and_full_precision_has_none():
    shapes = quantizer(spec_of("bnn"))
    assert len({tuple(curve) for curve in shapes["forward"]["weights"]}) == 1
    assert set(shapes["backward"]["weights"][0]) == {0.0, 1.0}
    assert quantizer(spec_of("fp", "FFFF")) is None
    assert quantizer(spec_of("bnn", "FFFF")) is None


@pytest.mark.parametrize(
    ("method", "plan", "pruned"), [("edge-popup", "WWWW", True), ("bnn", "BBBB", False)]
)
def test_pruned_layers_show_what_they_keep(tmp_path, method, plan, pruned):
    params = {"rate": 0.8} if pruned else {}
    trial = Worker(
        {"trial": "t", "spec": spec_of(method, plan, **params).model_dump(mode="json"),
         "folder": str(tmp_path), "checkpoint_every": 1, "threads": 1, "gpus": 0}
    )  # fmt: skip
    result = trial.step()
    assert "failure" not in result, result
    assert ("masks" in result["picture"]) is pruned
    if pruned:
        found = masks(trial._training)["layers"]
        kept = sum(la["kept"] * la["shape"][0] * la["shape"][1] for la in found.values())
        total = sum(la["shape"][0] * la["shape"][1] for la in found.values())
        assert kept / total == pytest.approx(0.2, abs=0.01)
        assert all(0 <= v <= 1 for la in found.values() for row in la["cells"] for v in row)
