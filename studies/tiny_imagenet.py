"""Twenty classes of Tiny ImageNet and ResNet-18: what the front of CIFAR-10 is worth as a start."""

from __future__ import annotations

import statistics

from bitfront.search.front import hypervolume_share
from bitfront.search.results.results import Results, ideal_point
from studies import pages
from studies.searches import results, searched
from studies.steps import MADE_UP, Place, Step, Study, settings_of

SEEDS = (0, 1, 2)
TRIALS = 20
TRIAL_MINUTES = 0.35
MADE = ("task.subset=null", "task.pretrain.epochs=1", "task.model.width=8", "search.trials=4")
MADE_SMALL = (f"task.dataset={MADE_UP}", *MADE)
MADE_LARGE = (*MADE_SMALL, "task.data={size: 64}")


def carried(place: Place) -> None:
    """The search whose front is carried is in the home, even where only its kept file was."""
    changes = settings_of(MADE_SMALL if place.rehearsal else ())
    place.bitfront("run", place.folder / "cifar10.yaml", "--name", "cifar10", *changes)


def arm(whose: str, seed: int) -> Step:
    """The search with one seed, from nothing or from the front of CIFAR-10."""
    warm = whose == "warm"
    what = f"{TRIALS} trials from {'the front of CIFAR-10' if warm else 'nothing'}, seed {seed}"
    return searched(
        f"{whose}-seed{seed}",
        what,
        TRIALS * TRIAL_MINUTES,
        MADE_LARGE,
        "cold.yaml",
        lambda _place: [f"search.seed={seed}"],
        carried if warm else lambda _place: None,
        ("--warm-start", "cifar10") if warm else (),
        repeats=seed > 0,
    )


STEPS = (
    searched("cifar10", "the front of CIFAR-10, 24 trials", 6, MADE_SMALL),
    *(arm(whose, seed) for seed in SEEDS for whose in ("cold", "warm")),
)


def growth(found: Results) -> list[float]:
    """The hypervolume after every trial that finished, as a share."""
    values = [e.values for e in found.entries if e.values is not None]
    ideal, objectives = ideal_point(found.config), found.config.front_objectives
    return [
        hypervolume_share(values[:count], found.reference, ideal, objectives)
        for count in range(1, len(values) + 1)
    ]


def reached(curve: list[float], level: float) -> int | None:
    """After how many trials a search had that hypervolume."""
    return next((n for n, share in enumerate(curve, 1) if share >= level), None)


def numbers(place: Place) -> str:
    seeds = [s for s in SEEDS if place.has(f"cold-seed{s}") and place.has(f"warm-seed{s}")]
    left = pages.missing(place, [step.name for step in STEPS])
    if not seeds:
        return left
    rows, needed = [], []
    for seed in seeds:
        cold, warm = (growth(results(place, f"{whose}-seed{seed}")) for whose in ("cold", "warm"))
        needed.append(reached(warm, cold[-1]))
        rows.append(
            {
                "seed": str(seed),
                "from nothing, %": pages.percent(cold[-1], 2),
                "from CIFAR-10's front, %": pages.percent(warm[-1], 2),
                "trials from nothing": str(reached(cold, cold[-1])),
                "trials from the front to the same": _count(needed[-1]),
            }
        )
    had = [n for n in needed if n is not None]
    mean = f", after {statistics.fmean(had):.1f} trials in the mean" if had else ""
    told = f"{len(had)} of {len(seeds)} warm searches reach what the cold one ends with{mean}."
    return "\n\n".join(filter(None, [pages.table(rows), told, left]))


def _count(trials: int | None) -> str:
    return "not reached" if trials is None else str(trials)


STUDY = Study("tiny-imagenet-20", STEPS, {"transfer": numbers})
