"""The metrics of a training run: quality with hard weights, quality with the weights of training,
quality of the mean over draws, robust accuracy. The loop decides which epochs are measured; the
metrics of a kind of task are in `tasks`."""

from __future__ import annotations

import torch
from torch import nn

from bitfront.trainables.attacks import EVALUATION_ATTACKS
from bitfront.trainables.data import Part
from bitfront.trainables.tasks import KINDS
from bitfront.trainables.training.norms import kept_statistics, recalibrate
from bitfront.trainables.training.robustness import robust_accuracies
from bitfront.trainables.training.run import Run
from bitfront.trainables.training.schedules import phases

# Examples on which the gap between the quality with the weights of training and with hard weights
# is measured before the last epoch; it is only a diagnostic there.
GAP_EXAMPLES = 1024


def evaluate(model: nn.Module, part: Part, kind: str = "classification") -> dict[str, float]:
    """The metrics of that kind of task, in evaluation mode."""
    return KINDS.get(kind).evaluate(model, part)


def measure(run: Run) -> dict[str, float]:
    """Every metric of the epoch that has just been trained."""
    return _validate(run) | _robustness(run) | run.method.diagnose()


def evaluate_as_is(run: Run) -> dict[str, float]:
    """Every metric of the network, robust accuracies and the mean over draws included, with its
    batch-norm statistics as they are."""
    return _hard(run) | _mean_quality(run) | _robustness(run)


def quality_in_training(run: Run) -> float | None:
    """The accuracy with the weights of training on some training examples, which shows whether a
    run without a validation part learns; None where it is not measured. The random generators are
    restored, so that training does not depend on it."""
    if run.done or run.kind.name != "classification":
        return None  # other kinds take long, or measure several tasks
    devices = [run.device] if run.device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        return _quality_as_trained(run, run.train.first(GAP_EXAMPLES))


def deciding_metric(run: Run) -> str:
    """The metric by which the best epoch is chosen: the first robust accuracy that is measured
    every epoch, else the quality of the kind of task."""
    attacks = [EVALUATION_ATTACKS.get(name) for name in run.spec.task.attack.evaluate]
    return next((a.metric for a in attacks if a.every_epoch), run.kind.quality.name)


def _validate(run: Run) -> dict[str, float]:
    """The metrics of the hard-binarized network. Where training uses soft weights, batch-norm
    statistics are first estimated anew for the hard ones; after the last epoch the quality without
    that (`_raw`) and the quality with the weights of training (`acc_soft`) are reported too
    (docs/methods.md 6.4)."""
    if not run.method.soft or not run.network.binary:
        return _hard(run) | _mean_quality(run)
    quality, batch_size = run.kind.quality.name, run.spec.task.batch_size
    if run.done:
        raw = run.kind.evaluate(run.model, run.validation)[quality]
        soft = _quality_as_trained(run, run.validation)
        recalibrate(run.model, run.train, batch_size)
        hard = _hard(run)
        gap = soft - hard[quality]
        measured = {**hard, f"{quality}_raw": raw, "acc_soft": soft, "soft_gap": gap}
        return measured | _mean_quality(run)
    real = run.phases[phases.locate(run.phases, run.epochs_done - 1)[0]].real
    some = run.validation if real else run.validation.first(GAP_EXAMPLES)
    soft = _quality_as_trained(run, some)
    with kept_statistics(run.model):
        recalibrate(run.model, run.train, batch_size)
        hard = _hard(run) | _mean_quality(run)
        of_some = hard
        if len(some) < len(run.validation):
            of_some = run.kind.evaluate(run.model, some)
    as_trained = {"acc_soft": soft} if real else {}
    return {**hard, **as_trained, "soft_gap": soft - of_some[quality]}


def _hard(run: Run) -> dict[str, float]:
    run.method.before_evaluation()
    return run.kind.evaluate(run.model, run.validation) | _on_training_part(run)


def _on_training_part(
    run: Run, model: nn.Module | None = None, suffix: str = ""
) -> dict[str, float]:
    """The quality on all training examples, where the task measures it now; that of `model` with
    this suffix of its name in place of the network's own."""
    wanted = run.spec.task.measure_train
    if wanted == "never" or (wanted == "end" and not run.done):
        return {}
    reached = run.kind.on_training_part(run.model if model is None else model, run.train)
    return {} if reached is None else {f"train_{run.kind.quality.bare}{suffix}": reached}


def _quality_as_trained(run: Run, part: Part) -> float:
    with run.method.as_trained():
        return run.kind.evaluate(run.model, part)[run.kind.quality.name]


def _mean_quality(run: Run) -> dict[str, float]:
    """The quality of the mean prediction over draws of the weights (`_mean`), that of each task in
    continual learning and that on the training part too, where the method draws weights: after the
    last epoch, and every so many epochs where it says so."""
    every = run.method.mean_every
    if not run.done and not (every and run.epochs_done % every == 0):
        return {}
    mean = run.method.predictions(run.model, run.kind.combine, run.spec.seed)
    if mean is None:
        return {}
    measured = run.kind.evaluate(mean, run.validation)
    quality = run.kind.quality.name
    found = {f"{name}_mean": v for name, v in measured.items() if name.startswith(quality)}
    return found | _on_training_part(run, mean, "_mean")


def _robustness(run: Run) -> dict[str, float]:
    """Accuracy of the hard-binarized network under the attacks the task names."""
    wanted = run.spec.task.attack.evaluate
    now = [name for name in wanted if run.done or EVALUATION_ATTACKS.get(name).every_epoch]
    if not now:
        return {}
    return robust_accuracies(run.model, run.validation, run.spec.task, now)
