"""The final quality that a stopped trial would have had, extrapolated from the learning curves of
finished trials. The model that uses it is in `ask`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bitfront.search.samplers.surrogate.model import Floats


@dataclass(frozen=True)
class Extrapolation:
    """The final quality as a linear function of the quality after some epochs, fitted to finished
    trials:

        end(v) = mean(ends) + b (v - mean(then)),   b = (n b_ls + 4) / (n + 4)

    with the slope b_ls of least squares over n trials. Four pseudo-trials with slope 1 (differences
    stay as they are) keep a line through few points from being steep by chance."""

    then: float
    """mean quality after that many epochs"""
    ends: float
    """mean final quality"""
    slope: float
    variance: float
    """of the residuals"""

    @staticmethod
    def of(then: Floats, ends: Floats) -> Extrapolation | None:
        """The line fitted to finished trials; None where there are fewer than 4."""
        if len(then) < 4:
            return None
        spread = float(then.var())
        slope = float(np.cov(then, ends, bias=True)[0, 1]) / spread if spread > 1e-12 else 0.0
        slope = (len(then) * slope + 4.0) / (len(then) + 4)
        residual = ends - ends.mean() - slope * (then - then.mean())
        return Extrapolation(
            float(then.mean()), float(ends.mean()), slope, float(residual.var()) + 1e-8
        )

    def end(self, value: Floats) -> Floats:
        """The expected final qualities of trials that were stopped at these values."""
        return self.ends + self.slope * (value - self.then)
