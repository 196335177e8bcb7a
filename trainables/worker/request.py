"""What Ray reserves for a trial. It is sent to every worker together with the actor's class, and is
here because a worker has to import what it is made of before its first trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ray import tune


@dataclass(frozen=True)
class Request:
    """The resources of a trial, whose number of GPUs is decided when it begins. `beside_gpus`: what
    a trial that has GPUs asks for too."""

    always: Mapping[str, float]
    beside_gpus: Mapping[str, float] = field(default_factory=dict)

    def __call__(self, config: dict[str, Any]) -> tune.PlacementGroupFactory:
        gpus = float(config["gpus"])
        more = {"GPU": gpus, **self.beside_gpus} if gpus > 0 else {}
        return tune.PlacementGroupFactory([{**self.always, **more}])
