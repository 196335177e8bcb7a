"""The configuration that a search keeps in its folder (`search.yaml`), read back and checked, and
the check of its trials. The YAML of a user is read in `search.config.load`."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import ValidationError

from bitfront.search.config.known import is_cost
from bitfront.search.config.mistakes import first_mistake
from bitfront.search.config.schema import SEARCH_FORMAT, SearchConfig
from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.folder import SearchFolder, is_name, list_searches
from bitfront.search.ledger.states import TrialState
from bitfront.trainables.errors import UserError, quoted
from bitfront.trainables.text_files import MOST_YAML_BYTES, check_format, load_yaml, read_text

# The format key of the file itself: keys of a section are indented.
FORMAT_LINE = re.compile(r"^bitfront_search:", re.MULTILINE)


def newest_readable(root: Path) -> SearchFolder | None:
    """The newest search whose YAML can be read, or, where none can, the newest."""
    searches = list_searches(root)
    for folder in reversed(searches):
        try:
            stored_config(folder)
            return folder
        except UserError:
            continue
    return searches[-1] if searches else None


def stored_config(folder: SearchFolder) -> SearchConfig:
    """The configuration in `search.yaml`; a UserError where the file is damaged."""
    file = folder.config_file
    text = read_text(file, MOST_YAML_BYTES, stored=True)
    # Version 0.1 wrote no format number, and wrote the text 1e5 without quotes.
    old = FORMAT_LINE.search(text) is None
    data, _ = load_yaml(text, str(file), plain=old, fault="damaged: not valid YAML")
    if not isinstance(data, dict):
        raise UserError(f"{file}: damaged: not a mapping of keys")
    check_format(data.get("bitfront_search"), SEARCH_FORMAT, f"{file}: the search")
    if isinstance(data.get("paper"), dict):
        # Versions that did not run rows first wrote no `seeds`: their searches go on as they began.
        data["paper"].setdefault("seeds", 0)
    try:
        config = SearchConfig.model_validate(data)
    except ValidationError as error:
        path, problem = first_mistake(error, data)
        reason = f"{'.'.join(map(str, path))}: {problem}"
        raise UserError(f"{file}: damaged, or of another version: {reason}") from None
    wrong = _unknown_name(config)
    if wrong is not None:
        raise UserError(f"{file}: damaged, or of another version: {wrong}")
    return config


def _unknown_name(config: SearchConfig) -> str | None:
    """What is wrong with a name in the configuration; None where search, objectives, limits and
    paper name what exists. The space is not built for this."""
    if not is_name(config.name):
        return f"{quoted(config.name)} is no name of a search"
    try:
        known = {metric.name for metric in config.kind.metrics}
        costs = set(config.cost_names)
    except UserError as error:
        return error.message
    unknown = (set(config.objectives) - known - costs) | (set(config.limits) - known - costs)
    if unknown:
        return f"{quoted(min(unknown))} is no metric or cost"
    if not set(config.objectives) & known:
        return "no metric among its objectives"
    if config.paper is not None and config.paper.metric not in known:
        return f"{quoted(config.paper.metric)} is no metric"
    return None


def check_trials(entries: list[Entry], config: SearchConfig) -> None:
    """Raise a UserError where a trial lacks a cost or an objective."""
    metrics = {name for name in config.objectives if not is_cost(name)}
    costs = {"flops", "flops_pct", "parameters"} | (set(config.objectives) - metrics)
    for entry in entries:
        wrong = None
        if not costs <= set(entry.costs) or entry.costs["flops_pct"] <= 0:
            wrong = "costs"
        elif entry.state == TrialState.COMPLETE and not metrics <= set(entry.metrics):
            wrong = "metrics"
        elif entry.state == TrialState.COMPLETE and (
            entry.values is None or len(entry.values) != len(config.objectives)
        ):
            wrong = "values"
        if wrong is not None:
            raise UserError(
                f"the ledger of '{config.name}' cannot be read: trial {entry.number} of the ledger "
                f"is damaged: {wrong}"
            )
