"""How much of the variance of the quality each setting explains (fANOVA, Hutter, Hoos and
Leyton-Brown 2014, as Optuna implements it): a random forest is fitted to the finished trials, and
the variance of its prediction is split among the settings."""

from __future__ import annotations

import warnings
from typing import Any

from bitfront.search.ledger.optuna_log import silence
from bitfront.search.ledger.states import TrialState
from bitfront.search.results.view import SearchView, TrialView

LEAST_TRIALS = 10
# More trials make the forest slower and hardly better.
MOST_TRIALS = 250


def importances(view: SearchView) -> dict[str, float]:
    """The share of every setting that all finished trials have (sampled settings, the method, the
    level of every layer); they add up to 1. Empty where there are too few trials."""
    import optuna

    silence()
    finished = [
        t for t in view.trials if t.state == TrialState.COMPLETE and view.quality.name in t.values
    ]
    if len(finished) < LEAST_TRIALS:
        return {}
    step = -(-len(finished) // MOST_TRIALS)
    rows = [_settings(trial, view) for trial in finished[::step]]
    values = [trial.values[view.quality.name] for trial in finished[::step]]
    names = [n for n in rows[0] if all(n in row for row in rows)]
    names = [n for n in names if len({str(row[n]) for row in rows}) > 1]
    if not names or len(set(values)) < 2:
        return {}
    distributions = {n: _distribution([row[n] for row in rows]) for n in names}
    study = optuna.create_study(direction="maximize" if view.quality.maximize else "minimize")
    study.add_trials(
        optuna.trial.create_trial(
            params={n: row[n] for n in names}, distributions=distributions, value=value
        )
        for row, value in zip(rows, values, strict=True)
    )
    evaluator = optuna.importance.FanovaImportanceEvaluator(n_trees=16, max_depth=12, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return {name: float(share) for name, share in found.items()}


def _settings(trial: TrialView, view: SearchView) -> dict[str, Any]:
    """Method, sampled settings and the level of every layer of a trial."""
    layers = view.layers_of(trial)
    letters = {f"plan: {la.name}": p for la, p in zip(layers, trial.plan, strict=True)}
    return {"method": trial.method, **trial.params, **letters}


def _distribution(values: list[Any]) -> Any:
    """An Optuna distribution that holds these values."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        low, high = float(min(values)), float(max(values))
        return FloatDistribution(low, high, log=low > 0 and high / low >= 10)
    return CategoricalDistribution(sorted(set(values), key=str))
