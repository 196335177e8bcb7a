"""Names, tags and parameters of runs in MLflow, made of a search's configuration and its trials.
What writes them is in mirror.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bitfront.search import benched
from bitfront.search.config.schema import SearchConfig
from bitfront.search.front import Front
from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.results.settings import LONGEST, in_a_line, settings_of
from bitfront.search.tracking.notes import FRONT
from bitfront.trainables.data import dataset_title
from bitfront.trainables.methods import METHODS
from bitfront.trainables.metrics import Metric
from bitfront.trainables.own_code import references_in, shown


def experiment_name(config: SearchConfig) -> str:
    """The experiment that holds the runs of a search."""
    named = f"{dataset_title(config.task.dataset)} {shown(config.task.model.name)}"
    return config.tracking.experiment or named


def run_name(entry: Entry, quality: Metric) -> str:
    """The name of a trial's run: id, method, settings that vary, flops as a share of the dearest
    network's, and what this trial reached with its seed in the metric that the search optimizes:
    the front shows means over seeds."""
    share = entry.costs["flops_pct"]
    settings = in_a_line(settings_of(entry), LONGEST)
    parts = [
        entry.id,
        shown(entry.spec.method),
        settings,
        f"{share:.{0 if share >= 9.5 else 1}f} %",
    ]
    value = entry.metrics.get(quality.name)
    if value is not None:
        parts.append(f"{quality.number(value, 1)} (seed {entry.spec.seed})")
    return " ".join(filter(None, parts))


def code_tags(data: Any) -> dict[str, str]:
    """A tag with the references to code of the user's own in this data, with their hashes; none
    where there are none."""
    found = references_in(data)
    return {"bitfront.code": ", ".join(found)[:5000]} if found else {}


def role_of(entry: Entry, config: SearchConfig) -> str:
    """`exploration`, or `confirmation` for a trial that repeats a point with another seed."""
    return "exploration" if entry.spec.seed == config.search.seed else "confirmation"


def end_tags(entry: Entry, quality: Metric) -> dict[str, str]:
    """The tags that a trial's run gets when the trial has ended."""
    tags = {"state": entry.state, "mlflow.runName": run_name(entry, quality)}
    if entry.failure:
        tags |= {"failure": entry.failure, "message": (entry.message or "")[:500]}
    return tags


def look_tags(entry: Entry) -> dict[str, str]:
    """The tags of a trial that inherited weights. What its look measured is a tag and no metric:
    the metrics of a run are of the training that counts."""
    look = entry.look
    if look is None:
        return {}
    tags = {"inherits_from": look.parent, "look_epochs": str(look.epochs)}
    if look.void is not None:
        return {**tags, "look": look.void[:500]}
    if not look.history:
        return tags
    told = {k: v for k, v in look.history[-1].items() if k.startswith("val_")}
    return tags | {f"look_{name}": f"{value:.6g}" for name, value in told.items()}


def flat_params(entry: Entry) -> dict[str, str]:
    """The parameters of a trial's run: those in which trials of a search differ. What they share is
    in the parent run's search.yaml; it would only fill the columns of a comparison."""
    spec = entry.spec
    flat = {"method": shown(spec.method), "plan": spec.plan, "seed": str(spec.seed)}
    # Not by the method's own name: MLflow takes no '+' in a key.
    flat |= {f"method.{name}": str(value) for name, value in spec.params.items()}
    drawn = {
        k: shown(str(v)) for k, v in entry.drawn.items() if k.rpartition(".")[0] not in METHODS
    }
    return drawn | flat


def front_metrics(
    config: SearchConfig, folder: SearchFolder, front: Front, seeds: Mapping[str, int]
) -> dict[str, dict[str, float]]:
    """The metrics that MLflow shows for each point of the front, by trial: the mean quality over
    its seeds, and their number."""
    name = config.quality.name
    place = list(config.objectives).index(name)
    found = benched.read(folder) if config.search.bench else None
    latency = {} if found is None else found.milliseconds
    return {
        key: {
            f"{FRONT}{name}": values[place],
            f"{FRONT}seeds": seeds[key],
            **({FRONT + benched.MEASURED: latency[key]} if key in latency else {}),
        }
        for key, values in front.items
    }
