"""Synthetic windows of a three-axis sensor: rest, walking, running and falling."""

import numpy as np

STEPS = 128
# Strides per window and how strongly each axis follows them, by class.
GAITS = [(0.0, (0.0, 0.0, 0.0)), (4.0, (0.4, 0.2, 1.0)), (9.0, (1.0, 0.5, 1.6))]


def windows(count: int, seed: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """(windows of shape (count, 3, STEPS), classes)."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 4, count)
    t = np.linspace(0, 2 * np.pi, STEPS)
    x = noise * rng.standard_normal((count, 3, STEPS))
    for i, kind in enumerate(y):
        if kind < len(GAITS):
            pace, axes = GAITS[kind]
            wave = np.sin(pace * rng.uniform(0.8, 1.2) * t + rng.uniform(0, 2 * np.pi))
            x[i] += np.outer(axes, wave)
        else:
            at = int(rng.integers(20, STEPS - 20))
            x[i, :, at : at + 8] += 3 * rng.choice([-1, 1], (3, 1))
    return x.astype(np.float32), y


def load(noise: float = 0.5):
    """The training part and the test part."""
    return windows(800, seed=0, noise=noise), windows(200, seed=1, noise=noise)
