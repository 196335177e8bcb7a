"""What a deployed file says about its network: how an image becomes an input, what the outputs
mean, and what was trained. As JSON in the file or beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from bitfront.trainables.data import DATASETS, dataset_title
from bitfront.trainables.data.datasets import class_names, pixel_statistics
from bitfront.trainables.own_code import shown

if TYPE_CHECKING:
    from bitfront.trainables.task import TrialSpec

# The names of the input and the output of a file.
INPUT, OUTPUT = "input", "output"
FORMAT = 1


@dataclass(frozen=True)
class Description:
    """A network from the outside."""

    input_shape: tuple[int, ...]
    """of one example, without the batch"""
    integers: bool
    """whether examples are integers, which reach the network as they are"""
    mean: tuple[float, ...]
    std: tuple[float, ...]
    """of pixels or values from 0 to 1: the network takes (x - mean) / std per channel"""
    kind: str
    """of the task: classification, regression, ..."""
    classes: int
    class_names: list[str]
    """in the order of the outputs; empty where they are not known"""
    model: str
    dataset: str
    method: str
    plan: str
    measured: dict[str, Any] = field(default_factory=dict)
    """what final training noted"""

    @property
    def image(self) -> bool:
        """Whether examples are images (channels, height, width)."""
        return len(self.input_shape) == 3 and not self.integers

    def as_dict(self) -> dict[str, Any]:
        """As it is written: with the names of input and output, and the version of this form."""
        return {"bitfront": FORMAT, "input": INPUT, "output": OUTPUT, **asdict(self)}

    def as_json(self) -> str:
        """The same as text."""
        return json.dumps(self.as_dict(), indent=2) + "\n"


def describe(spec: TrialSpec, notes: Mapping[str, Any], data_dir: str | None = None) -> Description:
    """The description of a packed network. The names of classes may be those of folders of the
    dataset, which are looked for in `data_dir`."""
    task, info = spec.task, DATASETS.get(spec.task.dataset)
    mean, std = pixel_statistics(info, task.normalize)
    return Description(
        input_shape=tuple(info.shape),
        integers=info.integers,
        mean=() if info.integers else tuple(mean),
        std=() if info.integers else tuple(std),
        kind=info.kind,
        classes=info.classes,
        class_names=class_names(task.dataset, data_dir),
        model=shown(task.model.name),
        dataset=dataset_title(task.dataset),
        method=shown(spec.method),
        plan=spec.plan,
        measured={k: v for k, v in notes.items() if isinstance(v, int | float | str)},
    )
