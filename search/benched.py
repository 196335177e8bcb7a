"""The points of a front as measured when the search ended (`search.bench`): `bench.json` in its
folder. How networks are measured: `bitfront.trainables.runtime.measuring`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from bitfront.search.ledger.entry import Entry
from bitfront.search.ledger.folder import SearchFolder
from bitfront.trainables.costs.devices import SAME, DeviceTable
from bitfront.trainables.errors import UserError
from bitfront.trainables.files import write_atomically
from bitfront.trainables.runtime.machine import cpu_name
from bitfront.trainables.text_files import NoSuchFileError, read_json

FILE = "bench.json"
# The name of the number in MLflow, in a recipe and in JSON.
MEASURED = "latency_ms_measured"
# Points that are measured side by side at most, and for how long each.
MOST_POINTS = 60
SECONDS_EACH = 1.0
LEAST_SECONDS = 5.0


@dataclass(frozen=True)
class Benched:
    """Milliseconds per call of trials' networks on one machine, measured side by side."""

    cpu: str
    threads: int
    batch: int
    milliseconds: dict[str, float] = field(default_factory=dict)
    """by trial"""

    def describe(self) -> str:
        """The machine and the conditions, in words."""
        return DeviceTable("", self.cpu, self.threads, self.batch).describe()


def read(folder: SearchFolder) -> Benched | None:
    """What was measured; None where nothing was."""
    file = folder.path / FILE
    try:
        found = Benched(**read_json(file))
        numbers = [float(value) for value in found.milliseconds.values()]
        if not all(0 < number < 1e9 for number in numbers):
            raise ValueError
    except NoSuchFileError:
        return None
    except (TypeError, ValueError, AttributeError):
        raise UserError(f"{file}: damaged: not what was measured of a front") from None
    return found


def bench_front(
    front: Iterable[Entry],
    folder: SearchFolder,
    device: DeviceTable | None,
    told: Callable[[str], None],
) -> Benched:
    """Measure the networks of these trials side by side, under their plans and with random weights,
    as many examples and threads at once as the device table has, and store the times."""
    from bitfront.trainables.runtime.measuring import whole_times
    from bitfront.trainables.runtime.planned import MEASURED as LEVELS
    from bitfront.trainables.runtime.planned import Subject

    threads, batch = (1, 1) if device is None else (device.threads, device.batch)
    subjects: dict[str, tuple[Subject, str]] = {}
    known: dict[str, Subject] = {}
    for entry in list(front)[:MOST_POINTS]:
        plan = "".join(SAME.get(letter, letter) for letter in entry.spec.plan)
        if set(plan) <= set(LEVELS):
            network = repr((entry.spec.task.model, entry.spec.task.settled_activations))
            subject = known.setdefault(network, Subject.of(entry.spec.task))
            subjects[entry.id] = subject, plan
    told(f"measuring {len(subjects)} networks of the front")
    seconds = max(LEAST_SECONDS, SECONDS_EACH * len(subjects))
    times = whole_times(subjects, batch, threads, seconds) if subjects else {}
    found = Benched(cpu_name(), threads, batch, times)
    write_atomically(folder.path / FILE, json.dumps(vars(found), indent=1) + "\n")
    return found
