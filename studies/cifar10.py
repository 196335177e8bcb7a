"""CIFAR-10 and a pretrained ResNet-20: a search over levels and methods beside the plans of
selectors and the stock combination, and what is left of the differences after final training."""

from __future__ import annotations

import json
import statistics
from functools import partial
from typing import Any

from bitfront.search.config.source import read as read_yaml
from bitfront.search.ledger.entry import Entry
from bitfront.search.results.results import Results
from studies import finals, fronts, pages
from studies.searches import results, searched
from studies.steps import MADE_UP, Place, Step, Study, settings_of
from studies.stock import stock
from studies.throughput import throughput

SEEDS = (0, 1, 2)
# Of the selectors' searches.
DRAWS = (0, 1)
# Those that tell most are trained first, and once more to the end.
FIRST, REST = (40, 20), (80, 60, 10)
PAIRS = ("ours-40", "selector-40", "ours-20", "selector-20")
WITH_W = ("with-w-40", "with-w-20")
EPOCHS = 1
BAR = 0.005
# A selector stops beside its budget by half a layer at most, in percent of the FLOPs.
SLACK = 2.9
# Of one core: 6,000 images trained and 2,500 measured.
TRIAL_MINUTES = 0.35
FINAL_MINUTES = 2.5
SEARCHES = {"ours": "layers", "with-w": "flops-w"}
MADE = (
    f"task.dataset={MADE_UP}",
    "task.normalize=dataset",
    "task.pretrain.checkpoint=null",
    "task.pretrain.sha256=null",
    "task.subset=null",
)


def selected(budgets: tuple[int, ...], seed: int) -> Step:
    """Every selector at some budgets with one seed, trained by the method that is best on
    a plan at 20 %."""
    name = _selected(budgets, seed)

    def settings(place: Place) -> list[str]:
        plan = read_yaml(place.folder / "selectors.yaml").data["space"]["plan"]
        plan["budget"] = budgets
        if place.rehearsal:
            plan |= {"budget": budgets[:2], "selector": ["mixbin-grad", "last"]}
        trials = len(plan["selector"]) * len(plan["budget"])
        return [
            *method_and_rate(place),
            f"space.plan={json.dumps(plan)}",
            f"search.seed={seed}",
            f"search.trials={trials}",
        ]

    what = f"six selectors at {', '.join(map(str, budgets))} % of the FLOPs, seed {seed}"
    minutes = 6 * len(budgets) * TRIAL_MINUTES + 2
    return searched(name, what, minutes, MADE, "selectors.yaml", settings, repeats=seed > 0)


def _selected(budgets: tuple[int, ...], seed: int) -> str:
    return f"selectors-{'-'.join(map(str, budgets))}-seed{seed}"


def best_of_methods(place: Place) -> Entry:
    """The trial that is best on the plan of MixBin-Grad at 20 %."""
    found = results(place, "methods").entries
    return max(found, key=lambda e: e.metrics.get("val_accuracy", 0.0))


def rate(place: Place) -> list[str]:
    """The learning rate of every arm."""
    return [f"task.optimizer.lr={best_of_methods(place).spec.task.optimizer.lr}"]


def method_and_rate(place: Place) -> list[str]:
    """What ten trials chose for the selectors and for our search alike."""
    return [f"space.method={best_of_methods(place).spec.method}", *rate(place)]


def selections(place: Place, budgets: tuple[tuple[int, ...], ...] = (FIRST, REST)) -> list[Results]:
    """The trials of the selectors that are kept, a search for every seed."""
    names = [_selected(each, seed) for each in budgets for seed in DRAWS]
    return [results(place, name) for name in names if place.has(name)]


def best_selected(place: Place, budget: int) -> list[tuple[Results, Entry]]:
    """The trials, one a seed, of the selector whose mean at a budget is best, each with its search;
    random draws are none that a selector would make again."""
    kept = [(r, e) for r in selections(place) for e in r.entries if e.values is not None]
    found = fronts.together(e for _, e in kept)
    at = [same for (name, b), same in found.items() if b == budget and name != "random"]
    best = max(at, key=lambda same: statistics.fmean(e.metrics["val_accuracy"] for e in same))
    return [(r, e) for r, e in kept if e in best]


def chosen(place: Place, name: str, seed: int) -> tuple[Results, Entry]:
    """The point of a final training. A selector may make another plan with every seed; ours is the
    best of the front that costs no more than the selector's dearest."""
    whose, _, budget = name.rpartition("-")
    if whose == "selector":
        same = best_selected(place, int(budget))
        return same[seed % len(same)]
    ours = results(place, SEARCHES[whose])
    most = max(e.costs["flops_pct"] for _, e in best_selected(place, int(budget)))
    fitting = [e for e in ours.front if e.costs["flops_pct"] <= most]
    return ours, max(fitting or ours.front[:1], key=lambda e: e.metrics["val_accuracy"])


def measured_layers(place: Place) -> None:
    """The device table of the search for latency; one that has begun keeps its table."""
    if (place.home / "latency").exists():
        return
    changes = settings_of(MADE if place.rehearsal else ())
    seconds = 2 if place.rehearsal else 60
    place.bitfront("bench", place.folder / "latency.yaml", "--seconds", seconds, *changes)


def final(name: str, seed: int) -> Step:
    """The final training of a point with one seed."""
    again = seed > 0 or name not in ("ours-20", "selector-20")
    point = partial(chosen, name=name, seed=seed)
    return finals.trained(name, point, seed, EPOCHS, FINAL_MINUTES, repeats=again)


def search(name: str, what: str, trials: int) -> Step:
    """A search of ours at the learning rate of every arm."""
    rehearsed = (*MADE, "search.trials=6")
    return searched(name, what, trials * TRIAL_MINUTES + 1, rehearsed, settings=rate)


STEPS = (
    searched("methods", "five methods and two rates, a plan at 20 %", 10 * TRIAL_MINUTES, MADE),
    searched(
        "layers", "our search for layers at 43 % of the FLOPs and below, 36 trials",
        36 * TRIAL_MINUTES + 1, (*MADE, "search.trials=6"), settings=method_and_rate,
    ),
    *(selected(FIRST, seed) for seed in DRAWS),
    *(final(name, seed) for seed in SEEDS for name in PAIRS),
    finals.deployed("ours-20", partial(chosen, name="ours-20", seed=0), 0, 2),
    search("flops", "the same over five methods, 36 trials", 36),
    search("flops-w", "the same with binary weights only (W) as a level, 36 trials", 36),
    *(final(name, seed) for seed in SEEDS for name in WITH_W),
    search("whole", "our search over the whole front, 90 trials", 90),
    stock(
        "stock", "whole.yaml", "TPE of the stock combination, 90 trials", 90 * TRIAL_MINUTES + 8,
        90, MADE, rate,
    ),
    *(selected(REST, seed) for seed in DRAWS),
    throughput("whole.yaml", 10, MADE, rate),
    searched(
        "latency", "our search for milliseconds, 40 trials", 40 * TRIAL_MINUTES + 3,
        (*MADE, "search.trials=3"), settings=rate, before=measured_layers,
    ),
)  # fmt: skip


# --- the page -------------------------------------------------------------------------------------


def near(place: Place) -> list[fronts.Arm]:
    """What is kept of the arms at 40 and 20 %: our searches, every selector."""
    found = [
        fronts.searched(name, results(place, search))
        for name, search in (
            ("bitfront", "layers"),
            # What there is of it, while it is not done.
            ("bitfront, five methods", "flops" if place.has("flops") else "flops-begun"),
            ("bitfront, five methods, W too", "flops-w"),
        )
        if place.has(search)
    ]
    return found + _selectors(selections(place, (FIRST,)))


def whole(place: Place) -> list[fronts.Arm]:
    """What is kept of the arms over the whole front: our search, stock, every selector."""
    found = []
    if place.has("whole"):
        found.append(fronts.searched("bitfront", results(place, "whole")))
    if place.has("stock"):
        found.append(fronts.stock(place.read("stock")["trials"]))
    return found + _selectors(selections(place))


def _selectors(several: list[Results]) -> list[fronts.Arm]:
    names = sorted({fronts.selector_of(e) for r in several for e in r.entries})
    return [fronts.selected(several, name) for name in (None, *names)] if several else []


def _table(place: Place, arms: list[fronts.Arm], like: str, budgets: tuple[int, ...]) -> str:
    """What every arm trained, and its best point at every budget."""
    box = results(place, like)
    rows = [
        {
            "arm": arm.name,
            "trials": str(arm.trials),
            "epochs": str(arm.epochs),
            "CPU min": f"{arm.seconds / 60:.1f}",
            "hypervolume, %": pages.percent(arm.share(box), 2),
            **{f"at {b} %": _accuracy(_at(arm, b)) for b in budgets},
        }
        for arm in arms
    ]
    return pages.table(rows)


def _at(arm: fronts.Arm, budget: int) -> fronts.Point | None:
    """The best point within a budget; of a selector the one that it made for it, which is missing
    where another selector made the same plan before."""
    searches = arm.name.startswith(("bitfront", "stock"))
    return arm.within(budget + SLACK, 0 if searches else budget - SLACK)


def search_numbers(place: Place) -> str:
    if missing := pages.missing(place, ["methods", "layers"]):
        return missing
    best = best_of_methods(place).spec
    said = (
        f"Best on MixBin-Grad's plan at 20 %: learning rate {best.task.optimizer.lr:g} for all, "
        f"`{best.method}` for selectors and for `bitfront`."
    )
    found = near(place)
    figure = "![The points of the searches and of the selectors](front.png)"
    left = pages.missing(place, ["flops", "flops-w", *(_selected(FIRST, seed) for seed in DRAWS)])
    shown = _table(place, found, "layers", FIRST)
    bar = training_bar(place, found[0])
    return "\n\n".join(filter(None, [shown, said, bar, twice(place), figure, left]))


def twice(place: Place) -> str:
    """How far two trainings of a point with other seeds are from each other."""
    points: dict[str, list[float]] = {}
    for entry in results(place, "layers").entries:
        if entry.values is not None:
            points.setdefault(entry.spec.plan, []).append(entry.metrics["val_accuracy"])
    apart = [max(same) - min(same) for same in points.values() if len(same) > 1]
    if not apart:
        return ""
    median, most = (100 * f(apart) for f in (statistics.median, max))
    return (
        f"`bitfront` trained {len(apart)} points again with another seed: {median:.1f} points of "
        f"accuracy apart in the median, {most:.1f} at most."
    )


def training_bar(place: Place, ours: fronts.Arm) -> str:
    """Whether our search trained no more than the selectors together, at all budgets."""
    several = selections(place)
    if not several:
        return ""
    theirs = fronts.selected(several).epochs
    reached = "met" if ours.epochs <= theirs else "**missed**"
    all_budgets = all(place.has(_selected(REST, seed)) for seed in DRAWS)
    so_far = "" if all_budgets else ", which are not at 80, 60 and 10 % yet"
    return (
        f"Trained: {ours.epochs} epochs by `bitfront`, {theirs} by the selectors{so_far} "
        f"(bar: no more than theirs): {reached}."
    )


def whole_numbers(place: Place) -> str:
    left = pages.missing(place, ["whole", "stock", *(_selected(REST, seed) for seed in DRAWS)])
    if not place.has("whole"):
        return left
    shown = _table(place, whole(place), "whole", (80, 60, 40, 20, 10))
    figure = "![The whole fronts of search, selectors and stock combination](whole.png)"
    return "\n\n".join(filter(None, [shown, figure, left]))


def _accuracy(point: fronts.Point | None) -> str:
    return "-" if point is None else pages.percent(point.accuracy)


def finished(place: Place, name: str) -> list[dict[str, Any]]:
    steps = [finals.step_of(name, seed) for seed in SEEDS]
    return [place.read(step) for step in steps if place.has(step)]


def final_numbers(place: Place) -> str:
    names = (*PAIRS, *WITH_W)
    found = {name: trained for name in names if (trained := finished(place, name))}
    left = pages.missing(place, [finals.step_of(n, s) for n in names for s in SEEDS])
    if not found:
        return left
    rows = []
    for name, trained in found.items():
        tests = [t["test_accuracy"] for t in trained]
        spread = f" ± {100 * statistics.stdev(tests):.2f}" if len(tests) > 1 else ""
        rows.append(
            {
                "point": name,
                "method": "/".join(dict.fromkeys(t["method"] for t in trained)),
                "FLOPs, %": "/".join(dict.fromkeys(f"{t['flops_pct']:.1f}" for t in trained)),
                "test accuracy, %": f"{100 * statistics.fmean(tests):.2f}{spread}",
                "seeds": str(len(tests)),
                "validation in the search, %": pages.percent(trained[0]["val_accuracy"]),
                "plan, seed 0": f"`{trained[0]['plan']}`",
            }
        )
    verdicts = [verdict(place, whose, budget) for whose in SEARCHES for budget in FIRST]
    return "\n\n".join(filter(None, [pages.table(rows), *verdicts, left]))


def verdict(place: Place, whose: str, budget: int) -> str:
    """Whether a search is above the best selector's point, over the seeds that both have."""
    ours, theirs = (
        {t["seed"]: t["test_accuracy"] for t in finished(place, f"{arm}-{budget}")}
        for arm in (whose, "selector")
    )
    gains = [accuracy - theirs[seed] for seed, accuracy in ours.items() if seed in theirs]
    if not gains:
        return ""
    gain = statistics.fmean(gains)
    reached = "met" if gain >= BAR else "**missed**"
    each = ", ".join(f"{100 * g:+.2f}" for g in gains)
    return (
        f"`{whose}` at {budget} %: {100 * gain:+.2f} points (by seed {each}; bar: at least "
        f"+{100 * BAR:g} in the mean): {reached}, with {len(gains)} of {len(SEEDS)} seeds; "
        f"p = {finals.chance(list(ours.values()), list(theirs.values())):.2f}."
    )


def deployed_numbers(place: Place) -> str:
    if missing := pages.missing(place, ["deployed"]):
        return missing
    return finals.deployed_text(place.read("deployed"))


def throughput_numbers(place: Place) -> str:
    if missing := pages.missing(place, ["throughput"]):
        return missing
    found = place.read("throughput")
    rows = [
        {
            "": name,
            "trials": str(row["trials"]),
            "epochs": str(row["epochs"]),
            "seconds": f"{row['wall_seconds']:.0f}",
            "training, % of the cores' time": pages.percent(row["training_share"]),
            "hypervolume, %": pages.percent(row["hypervolume_share"], 2),
        }
        for name, row in found["rows"].items()
    ]
    share = found["rows"]["bitfront"]["training_share"]
    reached = "met" if share >= 0.95 else "**missed**"
    about = f"{found['minutes']:g} minutes on {found['cores']} cores; bar 95 % training: {reached}."
    return f"{pages.table(rows)}\n\n{about}"


def latency_numbers(place: Place) -> str:
    if missing := pages.missing(place, ["latency"]):
        return missing
    rows = [
        {
            "ms": f"{entry.costs['latency_ms']:.3f}",
            "validation, %": pages.percent(entry.metrics["val_accuracy"]),
            "FLOPs, %": f"{entry.costs['flops_pct']:.1f}",
            "method": entry.spec.method,
            "plan": f"`{entry.spec.plan}`",
        }
        for entry in results(place, "latency").front
    ]
    return pages.table(rows)


def draw(place: Place) -> None:
    several = {
        "front": (near(place), "ResNet-20 on CIFAR-10 at 40 and 20 %, after the search"),
        "whole": (whole(place) if place.has("whole") else [], "ResNet-20, the whole front"),
    }
    for name, (found, title) in several.items():
        shown = [arm for arm in found if arm.name.startswith(("bitfront", "stock", "selectors"))]
        if shown:
            pages.fronts(shown, place.out / f"{name}.png", title)


STUDY = Study(
    "cifar10-resnet20",
    STEPS,
    {
        "search": search_numbers,
        "finals": final_numbers,
        "deployed": deployed_numbers,
        "whole": whole_numbers,
        "throughput": throughput_numbers,
        "latency": latency_numbers,
    },
    draw,
)
