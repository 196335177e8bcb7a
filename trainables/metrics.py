"""The declaration of a metric: its name in YAML and ledger, its direction and the format of its
values. Kinds of task (`tasks`) declare the metrics a search may optimize; diagnostics are declared
in `layers.diagnostics`. Other numbers that a training reports need no declaration: they are written
to the ledger and MLflow too."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """A number measured on the validation part; its name in YAML and ledger starts with `val_`."""

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
        """The value as text without its unit: a fraction in percent, `-` for None."""
        if value is None:
            return "-"
        return f"{100 * value:.{digits}f}" if self.share else f"{value:.4g}"

    def text(self, value: float | None, digits: int = 2) -> str:
        """The value as text with its unit."""
        return self.number(value, digits) + ("" if value is None else self.unit)

    def better(self, one: float, other: float) -> bool:
        """Whether `one` is strictly better than `other`."""
        return one > other if self.maximize else one < other
