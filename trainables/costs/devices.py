"""Device tables: how long the layers of networks take on a machine, at each level, as `bitfront
bench` measured them. A table is bound to costs that are measured (`Cost.on`), which are then exact
functions of a planned network like all others. Measuring is in `bitfront.trainables.runtime`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bitfront.trainables.errors import UserError, quoted
from bitfront.trainables.files import write_atomically
from bitfront.trainables.text_files import check_format, read_json

FORMAT = 1
# The folder of a home with the device tables of all its searches, and the copy a search keeps.
FOLDER = "devices"
KEPT = "device.json"
# At these levels torch computes what it computes for another: a pruned weight is stored whole.
SAME = {"S": "F"}

Milliseconds = Annotated[float, Field(ge=0, lt=1e9)]


class _Stored(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Agreement(_Stored):
    """How well sums over layers predict plans that were measured whole and not fitted to."""

    plans: int
    error_pct: float
    """mean of |predicted - measured| / measured"""
    rank: float | None = None
    """Spearman's correlation of predicted and measured times"""


class NetworkTimes(_Stored):
    """The times of one network in milliseconds per call."""

    model: str
    """as it was named when it was measured; what it is follows from its layers"""
    layers: dict[str, dict[str, Milliseconds]]
    """by name and level"""
    rest: Milliseconds
    """of everything that no plan decides"""
    whole: dict[str, Milliseconds] = Field(default_factory=dict)
    """plans measured whole, that the times of the layers were fitted to, or checked with"""
    agreement: Agreement
    kernels: int
    """version of the kernels; 0: there were none"""
    versions: dict[str, str] = Field(default_factory=dict)
    measured: str = ""
    """when, UTC"""

    @property
    def levels(self) -> list[str]:
        """The levels whose times are known."""
        first = next(iter(self.layers.values()), {})
        return list(first)


class _File(_Stored):
    """A device table as it is stored."""

    bitfront_device: Literal[1] = 1
    name: str
    cpu: str
    threads: Annotated[int, Field(ge=1)]
    batch: Annotated[int, Field(ge=1)]
    networks: dict[str, NetworkTimes]


@dataclass(frozen=True)
class DeviceTable:
    """The times of networks on one machine, by the identity of the network (`CostTable.identity`),
    for calls with so many examples on so many threads."""

    name: str
    cpu: str
    threads: int
    batch: int
    networks: Mapping[str, NetworkTimes] = field(default_factory=dict)

    def of_layer(self, network: str, layer: str, letter: str) -> float:
        """Milliseconds of a layer at a level; 0 for a layer that no plan decided when the network
        was measured: it is a part of the rest."""
        times = self.times(network).layers.get(layer, {"F": 0.0})
        level = SAME.get(letter, letter)
        if level not in times:
            raise UserError(
                f"device table {self.name} has no time of layer {layer} at level {letter}, only at "
                f"{', '.join(times)}",
                "measure it: bitfront bench --levels",
            )
        return times[level]

    def of_rest(self, network: str) -> float:
        """Milliseconds of what no plan decides."""
        return self.times(network).rest

    def times(self, network: str) -> NetworkTimes:
        """The times of a network; a UserError where it was not measured."""
        if network not in self.networks:
            raise UserError(f"device table {self.name} has no times of this network")
        return self.networks[network]

    def has(self, networks: Iterable[str]) -> bool:
        """Whether all these networks were measured."""
        return all(network in self.networks for network in networks)

    def only(self, networks: Iterable[str]) -> DeviceTable:
        """The table with these networks alone."""
        return replace(self, networks={n: self.networks[n] for n in sorted(set(networks))})

    def with_networks(self, more: Mapping[str, NetworkTimes]) -> DeviceTable:
        """The table with these networks too, in place of what it had of them."""
        return replace(self, networks={**self.networks, **more})

    @property
    def digest(self) -> str:
        """A hash of all that costs depend on: machine, conditions, times."""
        return hashlib.sha256(self.text().encode()).hexdigest()

    def text(self) -> str:
        """The content of its file."""
        content = _File.model_validate({**vars(self), "networks": dict(self.networks)})
        return json.dumps(content.model_dump(mode="json"), indent=1, sort_keys=True)

    def write(self, path: Path) -> None:
        """Store the table."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, self.text() + "\n")

    @classmethod
    def read(cls, path: Path) -> DeviceTable:
        """The table of a file; a UserError for another or a damaged file."""
        content = read_json(path)
        if not isinstance(content, dict) or "bitfront_device" not in content:
            raise UserError(f"{path}: not a device table", "make one: bitfront bench MODEL")
        check_format(content["bitfront_device"], FORMAT, f"{path}: the device table")
        try:
            found = _File.model_validate(content)
        except ValidationError as error:
            where = ".".join(map(str, error.errors()[0]["loc"]))
            raise UserError(f"{path}: damaged: {where}: {error.errors()[0]['msg']}") from None
        return cls(found.name, found.cpu, found.threads, found.batch, found.networks)

    def describe_json(self) -> dict[str, Any]:
        """The machine-readable form: the content of the file, with its hash."""
        return {**json.loads(self.text()), "sha256": self.digest}

    def describe(self) -> str:
        """The machine and the conditions, in a line."""
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        return f"{self.cpu}, {threads}, batch {self.batch}"


def usual_name(cpu: str, threads: int, batch: int) -> str:
    """The name of a table: `amd-epyc-znver4-1-thread-batch-1`."""
    words = re.sub(r"\((r|tm)\)|processor|\bcpu\b", " ", cpu.lower())
    slug = re.sub(r"[^a-z0-9]+", "-", words).strip("-") or "device"
    return f"{slug}-{threads}-thread{'s' if threads > 1 else ''}-batch-{batch}"


_homes: list[Path] = []


def look_in(home: Path | str) -> None:
    """Look for device tables in this home too, before all others."""
    place = Path(home)
    if place in _homes:
        _homes.remove(place)
    _homes.insert(0, place)


def file_of(text: str, home: Path) -> Path:
    """The file of a table: a path, or the name of one in the folder `devices` of a home."""
    if text.endswith(".json") or "/" in text:
        return Path(text).expanduser()
    return home / FOLDER / f"{text}.json"


def named(text: str) -> DeviceTable:
    """The table of a file or of that name in one of the homes; a UserError where there is none."""
    files = [file_of(text, home) for home in _homes]
    files += [home / text for home in _homes if "/" in text or text.endswith(".json")]
    found = next((file for file in files if file.is_file()), None)
    if found is None:
        known = sorted({file.stem for home in _homes for file in (home / FOLDER).glob("*.json")})
        there = f"there are {', '.join(known)}" if known else "there is none yet"
        raise UserError(f"no device table {quoted(text)}: {there}", "bitfront bench makes one")
    return DeviceTable.read(found)


def kept(search: str) -> DeviceTable | None:
    """The table that the search of this name keeps in one of the homes; None where there is
    none."""
    files = [home / search / KEPT for home in _homes]
    return next((DeviceTable.read(file) for file in files if file.is_file()), None)


def of_machine(cpu: str, networks: Iterable[str]) -> DeviceTable | None:
    """The table of a CPU, one thread and one example that has all these networks, of the first home
    that has one; None where none has."""
    wanted = list(networks)
    for home in _homes:
        file = file_of(usual_name(cpu, 1, 1), home)
        if file.is_file():
            table = DeviceTable.read(file)
            if table.cpu == cpu and table.has(wanted):
                return table
    return None
