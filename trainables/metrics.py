"""What a metric is: its name in YAML and ledger, its direction and how people read its values. Each
is declared by what measures it: those a search may optimize by the kinds of task in `tasks`, those
that tell how training went by `layers.diagnostics`. Every other number a training reports reaches
the ledger and MLflow all the same."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """Something measured on the validation part: its name in YAML and ledger starts with `val_`."""

    name: str
    label: str
    ideal: float
    maximize: bool = True
    share: bool = True
    """a fraction in [0, 1], shown to people in percent"""

    @property
    def bare(self) -> str:
        return self.name.removeprefix("val_")

    @property
    def unit(self) -> str:
        return " %" if self.share else ""

    def number(self, value: float | None, digits: int = 2) -> str:
        """The value as people read it, without its unit."""
        if value is None:
            return "-"
        return f"{100 * value:.{digits}f}" if self.share else f"{value:.4g}"

    def text(self, value: float | None, digits: int = 2) -> str:
        """The value as people read it, with its unit."""
        return self.number(value, digits) + ("" if value is None else self.unit)

    def better(self, one: float, other: float) -> bool:
        """Whether `one` is strictly better than `other`."""
        return one > other if self.maximize else one < other
