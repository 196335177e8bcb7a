"""The results of a search as a small JSON file, for a repository: its configuration, its trials
without their curves, the notes of its rows. It is written from a ledger, pages are written from
it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bitfront.search.config.schema import SearchConfig
from bitfront.search.config.settle import IN_DATA, is_file
from bitfront.search.config.source import read as read_yaml
from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.folder import SearchFolder
from bitfront.search.ledger.states import TrialState
from bitfront.search.results.results import Results
from bitfront.search.session.rows import notes_from_json
from bitfront.spaces.ready_made import searches, teacher_file
from bitfront.trainables.errors import UserError
from bitfront.trainables.files import write_atomically
from bitfront.trainables.task import TrialSpec
from bitfront.trainables.text_files import check_format, parse_json, read_text, whole_path

FORMAT = 1
TIMES = ("seconds", "cpu_seconds")


def write(results: Results, folder: Path) -> Path:
    """Write the results of a search to `NAME.json` in a folder; returns the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{results.config.name}.json"
    config = _portable(results.config)
    head = {
        "bitfront_results": FORMAT,
        "environment": results.environment,
        "config": config.open_data(),
        "reference": results.reference,
        "rows": [note.as_json() for note in results.rows.values()],
    }
    task = results.config.task.model_dump(mode="json")
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    trials = ",\n".join(json.dumps(_trial(entry, task)) for entry in results.entries)
    text = "{\n" + ",\n".join([*lines, f'"trials": [\n{trials}\n]']) + "\n}\n"
    write_atomically(path, text.encode())
    return path


def read(path: Path) -> Results:
    """The results that a file keeps; a UserError where it is damaged."""
    try:
        data = parse_json(read_text(path), str(path))
        check_format(data["bitfront_results"], FORMAT, f"{path}: the results")
        config = SearchConfig.model_validate(data["config"])
        task = config.task.model_dump(mode="json")
        entries = [_entry(each, task) for each in data["trials"]]
        # There is no such folder: what is asked of it, such as whether it runs, is no.
        folder = SearchFolder(path.with_suffix(""))
        results = Results.from_entries(folder, config, entries, data["reference"])
        results.environment = data["environment"]
        results.rows = notes_from_json(data["rows"])
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise UserError(f"{path}: damaged, or no kept results: {type(error).__name__}") from None
    return results


def with_rows_of_today(results: Results) -> Results:
    """The results beside the printed numbers that the ready-made search of their name has today: a
    number that was copied wrongly is corrected there, not in what is kept."""
    path = searches().get(results.config.name)
    if path is not None:
        paper = not_run(path).config.paper
        results.config = results.config.model_copy(update={"paper": paper})
    return results


def not_run(path: Path) -> Results:
    """The results of a search of which nothing has been run, read from its YAML without a look at
    its network: enough to list its rows."""
    source = read_yaml(path)
    source.data.setdefault("name", path.stem)
    try:
        config = SearchConfig.model_validate(source.data)
    except ValueError:
        raise UserError(f"{path}: not valid: bitfront validate {path.stem}") from None
    reference = [0.0] * len(config.objectives)
    return Results.from_entries(SearchFolder(path.with_suffix("")), config, [], reference)


def _portable(config: SearchConfig) -> SearchConfig:
    """The configuration without the places of one machine."""
    task = config.task
    pretrain, distill = task.pretrain, task.loss.distill
    teacher = distill.teacher_file
    if is_file(pretrain.checkpoint):
        inside = _within_data(Path(str(pretrain.checkpoint)), task.data_dir)
        pretrain = pretrain.model_copy(update={"checkpoint": inside})
    if teacher is not None and teacher_file(Path(teacher).stem) == Path(teacher):
        distill = distill.model_copy(update={"teacher": Path(teacher).stem})
    loss = task.loss.model_copy(update={"distill": distill})
    changes = {"data_dir": None, "pretrain": pretrain, "loss": loss}
    places = {"tracking": type(config.tracking)(), "storage": None}
    return config.model_copy(update={"task": task.model_copy(update=changes), **places})


def _within_data(file: Path, data_dir: str | None) -> str:
    """A file as `data:FILE` where it is in the data directory, else its name; which file it is, its
    hash says."""
    chosen = data_dir or os.environ.get("BITFRONT_DATA")
    known = whole_path(chosen) if chosen else None
    inside = known is not None and file.is_relative_to(known)
    return f"{IN_DATA}{file.relative_to(known).as_posix()}" if inside and known else file.name


# --- trials ---------------------------------------------------------------------------------------


def _trial(entry: Entry, task: Mapping[str, Any]) -> dict[str, Any]:
    """A trial as plain data; of its spec what the task of the search does not say."""
    spec = entry.spec.model_dump(mode="json")
    beyond = _beyond(spec, {"task": task})
    if _merged({"task": task}, beyond) != spec:
        raise UserError(f"trial {entry.id} lacks keys of the search's task")
    known = {
        "id": entry.id,
        "number": entry.number,
        "state": str(entry.state),
        "point": entry.point,
        "drawn": entry.drawn,
        "spec": beyond,
        "values": entry.values,
        "costs": entry.costs,
        "metrics": entry.metrics,
        "failure": entry.failure,
        "message": entry.message,
        "seconds": entry.seconds and round(entry.seconds, 2),
        "cpu_seconds": entry.cpu_seconds and round(entry.cpu_seconds, 2),
    }
    return {key: value for key, value in known.items() if value is not None}


def _entry(data: Mapping[str, Any], task: Mapping[str, Any]) -> Entry:
    spec = TrialSpec.model_validate(_merged({"task": task}, data["spec"]))
    times = {name: data[name] for name in TIMES if name in data}
    return Entry(
        id=data["id"],
        number=data["number"],
        state=TrialState(data["state"]),
        stored=spec,
        costs=data["costs"],
        point=data["point"],
        drawn=data["drawn"],
        values=data.get("values"),
        metrics=data["metrics"],
        history=[times] if times else [],
        failure=data.get("failure"),
        message=data.get("message"),
        # Only that it has ended counts.
        ended=0.0 if times else None,
    )


def _beyond(data: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a nested mapping that have another value than in `base`."""
    found = {}
    for key, value in data.items():
        there = base.get(key)
        if isinstance(value, dict) and isinstance(there, dict):
            if value != there:
                found[key] = _beyond(value, there)
        elif key not in base or value != there:
            found[key] = value
    return found


def _merged(base: Mapping[str, Any], beyond: Mapping[str, Any]) -> dict[str, Any]:
    """A nested mapping with the keys of another one put in; the reverse of `_beyond`."""
    found = dict(base)
    for key, value in beyond.items():
        there = base.get(key)
        if isinstance(value, dict) and isinstance(there, dict):
            found[key] = _merged(there, value)
        else:
            found[key] = value
    return found
