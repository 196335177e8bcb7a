"""How MLflow shows the runs of a search: ready views of its table, of all trials and of the front,
with their columns, order and charts. They are tags of the experiment, which MLflow's links to
shared views name."""

from __future__ import annotations

import json
from collections.abc import Mapping

from bitfront.search.config.schema import SearchConfig

# In the address of a page: the view for training models, not the one for language models.
TRAINING = "workflowType=machine_learning"
TAG = "mlflow.sharedViewState."
TRIALS, FRONT_RUNS = "trials", "front"
COST = "flops_pct"


def key_of(identity: str, view: str) -> str:
    """The name of a view in addresses."""
    return f"bitfront-{identity}-{view}"


def path_of(experiment: str, identity: str, view: str) -> str:
    """The path of a view on a server."""
    key = key_of(identity, view)
    return f"#/experiments/{experiment}/runs?{TRAINING}&viewStateShareKey={key}"


def tags_of(config: SearchConfig, identity: str) -> Mapping[str, str]:
    """The tags of the experiment that hold the views of a search."""
    search = f"tags.`bitfront.search_id` = '{identity}'"
    quality = config.quality.name
    filters = {
        TRIALS: (f"{search} AND tags.`bitfront.kind` = 'trial'", quality, False),
        FRONT_RUNS: (f"{search} AND tags.pareto = 'true'", COST, True),
    }
    return {
        TAG + key_of(identity, view): json.dumps(_state(quality, *filters[view]))
        for view in filters
    }


def _state(quality: str, searched: str, order: str, ascending: bool) -> dict[str, object]:
    """The state of MLflow's table of runs, as its links to shared views keep it."""
    columns = [f"metrics.`{quality}`", f"metrics.`{COST}`"]
    columns += ["params.`method`", "params.`plan`", "tags.`pareto`", "tags.`state`"]
    section = {"uuid": "front", "name": "Front", "display": True, "isReordered": False}
    axes = [{"key": name, "type": "METRIC"} for name in (COST, quality)]
    common = {"deleted": False, "isGenerated": False, "metricSectionId": "front"}
    scatter = {"uuid": "scatter", "type": "SCATTER", "xaxis": axes[0], "yaxis": axes[1]}
    parallel = {
        "uuid": "parallel",
        "type": "PARALLEL",
        "selectedParams": ["method"],
        "selectedMetrics": [COST, quality],
    }
    return {
        "searchFilter": searched,
        "orderByKey": f"metrics.`{order}`",
        "orderByAsc": ascending,
        "selectedColumns": columns,
        "runsHiddenMode": "SHOW_ALL",
        "compareRunSections": [section],
        "compareRunCharts": [{**common, **chart} for chart in (scatter, parallel)],
    }
