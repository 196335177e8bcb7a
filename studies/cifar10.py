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
# Those that tell most are trained first, and once more to the end.
FIRST, REST = (40, 20), (80, 60, 10)
FINALS = ("ours-40", "selector-40", "ours-20", "selector-20", "ours-10")
EPOCHS = 3
BAR = 0.005
# Of one core: 6,000 images trained at levels F to B and 5,000 measured took 17 to 24 seconds.
TRIAL_MINUTES = 0.4
FINAL_MINUTES = 8.0
MADE = (
    f"task.dataset={MADE_UP}",
    "task.normalize=dataset",
    "task.pretrain.checkpoint=null",
    "task.pretrain.sha256=null",
    "task.subset=null",
    "task.epochs=1",
)


def selected(budgets: tuple[int, ...], seed: int) -> Step:
    """Every selector at some budgets with one seed, trained by the method that is best where all is
    binary."""
    name = _selected(budgets, seed)

    def settings(place: Place) -> list[str]:
        plan = read_yaml(place.folder / "selectors.yaml").data["space"]["plan"]
        plan["budget"] = budgets
        if place.rehearsal:
            plan |= {"budget": budgets[:2], "selector": ["mixbin-grad", "last"]}
        trials = len(plan["selector"]) * len(plan["budget"])
        return [
            f"space.method={best_of_methods(place).spec.method}",
            *rate(place),
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
    """The trial that is best where every layer is binary."""
    found = results(place, "methods").entries
    return max(found, key=lambda e: e.metrics.get("val_accuracy", 0.0))


def rate(place: Place) -> list[str]:
    """The learning rate of every arm."""
    return [f"task.optimizer.lr={best_of_methods(place).spec.task.optimizer.lr}"]


def selections(place: Place) -> list[Results]:
    """The trials of the selectors that are kept, a search for every seed."""
    names = [_selected(budgets, seed) for budgets in (FIRST, REST) for seed in SEEDS]
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
    whose, budget = name.split("-")
    if whose == "selector":
        same = best_selected(place, int(budget))
        return same[seed % len(same)]
    ours = results(place, "flops")
    most = float(budget)
    if int(budget) in FIRST:
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


STEPS = (
    searched("methods", "five methods and two rates, all binary", 10 * TRIAL_MINUTES, MADE),
    searched(
        "flops", "our search, 90 trials", 90 * TRIAL_MINUTES, (*MADE, "search.trials=6"),
        settings=rate,
    ),
    *(selected(FIRST, seed) for seed in SEEDS),
    *(
        finals.trained(
            name, partial(chosen, name=name, seed=seed), seed, EPOCHS, FINAL_MINUTES,
            repeats=seed > 0 or name not in ("ours-20", "selector-20"),
        )
        for seed in SEEDS
        for name in FINALS
    ),
    stock(
        "stock", "flops.yaml", "TPE of the stock combination, 90 trials", 90 * TRIAL_MINUTES + 8,
        90, MADE, rate,
    ),
    *(selected(REST, seed) for seed in SEEDS),
    finals.deployed("ours-20", partial(chosen, name="ours-20", seed=0), 0, 2),
    throughput("flops.yaml", 10, MADE, rate),
    searched(
        "latency", "our search for milliseconds, 40 trials", 40 * TRIAL_MINUTES + 3,
        (*MADE, "search.trials=3"), settings=rate, before=measured_layers,
    ),
)  # fmt: skip


# --- the page -------------------------------------------------------------------------------------


def arms(place: Place) -> list[fronts.Arm]:
    """What is kept of the arms: ours, stock, every selector."""
    found = []
    if place.has("flops"):
        found.append(fronts.searched("bitfront", results(place, "flops")))
    if place.has("stock"):
        found.append(fronts.stock(place.read("stock")["trials"]))
    several = selections(place)
    names = sorted({fronts.selector_of(e) for r in several for e in r.entries})
    if several:
        found.append(fronts.selected(several))
        found += [fronts.selected(several, name) for name in names]
    return found


def search_numbers(place: Place) -> str:
    if missing := pages.missing(place, ["flops"]):
        return missing
    like = results(place, "flops")
    rows = [
        {
            "arm": arm.name,
            "trials": str(arm.trials),
            "epochs": str(arm.epochs),
            "CPU min": f"{arm.seconds / 60:.1f}",
            "hypervolume, %": pages.percent(arm.share(like), 2),
            **{f"within {b} %": _accuracy(arm.within(1.1 * b)) for b in (80, 60, 40, 20, 10)},
        }
        for arm in arms(place)
    ]
    said = "![The fronts of the search, the selectors and the stock combination](front.png)"
    if place.has("methods"):
        best = best_of_methods(place).spec
        chosen = (
            f"learning rate {best.task.optimizer.lr:g} for all arms, `{best.method}` for selectors"
        )
        said = f"Best where all is binary: {chosen}.\n\n{said}"
    selections = (s.name for s in STEPS if s.name.startswith("selectors"))
    left = pages.missing(place, ["stock", *selections])
    return "\n\n".join(filter(None, [pages.table(rows), said, left]))


def _accuracy(point: fronts.Point | None) -> str:
    return "-" if point is None else pages.percent(point.accuracy)


def finished(place: Place, name: str) -> list[dict[str, Any]]:
    steps = [finals.step_of(name, seed) for seed in SEEDS]
    return [place.read(step) for step in steps if place.has(step)]


def final_numbers(place: Place) -> str:
    found = {name: trained for name in FINALS if (trained := finished(place, name))}
    left = pages.missing(place, [finals.step_of(n, s) for s in SEEDS for n in FINALS])
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
    verdicts = [verdict(place, budget) for budget in FIRST]
    return "\n\n".join(filter(None, [pages.table(rows), *verdicts, left]))


def verdict(place: Place, budget: int) -> str:
    """Whether ours is above the best selector's point, over the seeds that both have."""
    pair = zip(
        finished(place, f"ours-{budget}"), finished(place, f"selector-{budget}"), strict=False
    )
    gains = [a["test_accuracy"] - b["test_accuracy"] for a, b in pair]
    if not gains:
        return ""
    gain = statistics.fmean(gains)
    reached = "met" if gain >= BAR else "**missed**"
    return (
        f"At {budget} %: {100 * gain:+.2f} points over {len(gains)} seed{'s' * (len(gains) > 1)} "
        f"(bar: at least +{100 * BAR:g}): {reached}."
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
    shown = [arm for arm in arms(place) if arm.name in ("bitfront", "stock", "selectors")]
    if shown:
        pages.fronts(shown, place.out / "front.png", "ResNet-20 on CIFAR-10, after the search")


STUDY = Study(
    "cifar10-resnet20",
    STEPS,
    {
        "search": search_numbers,
        "finals": final_numbers,
        "deployed": deployed_numbers,
        "throughput": throughput_numbers,
        "latency": latency_numbers,
    },
    draw,
)
