"""Names, tags and parameters of runs in MLflow, made of a search's configuration and its trials.
What writes them is in mirror.py."""

from __future__ import annotations

from typing import Any

from bitfront.search.config.schema import SearchConfig
from bitfront.search.ledger.entry import Entry
from bitfront.search.results.settings import LONGEST, in_a_line, settings_of
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
