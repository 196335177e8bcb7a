"""What is no mistake in a search but probably not what somebody wants: told when it is validated,
previewed and started, and never in the way."""

from __future__ import annotations

from bitfront.search.config.schema import SearchConfig


def cautions(config: SearchConfig) -> list[str]:
    """A sentence each."""
    return [*_test_part(config), *_subset(config), *_one_level(config)]


def _test_part(config: SearchConfig) -> list[str]:
    from bitfront.trainables.data import missing_test

    missing = missing_test(config.task.dataset, config.task.data_dir)
    if missing is None:
        return []
    return [
        f"{config.task.dataset} has no test part: {missing}. The search does without it, "
        "bitfront train will not"
    ]


def _subset(config: SearchConfig) -> list[str]:
    from bitfront.trainables.data import train_examples

    wanted = config.task.subset
    if wanted is None:
        return []
    there = train_examples(config.task.dataset, config.task.data_dir)
    if there is None or wanted <= there:
        return []
    return [
        f"task.subset: {wanted:,} examples of {config.task.dataset}, which has {there:,}: "
        "all of them are used"
    ]


def _one_level(config: SearchConfig) -> list[str]:
    from bitfront.search.config.space import build_space
    from bitfront.spaces.space import FreePlan

    plan = build_space(config).plan
    if not isinstance(plan, FreePlan) or len(plan.levels) > 1:
        return []
    (level,) = plan.levels
    return [
        f"space.plan: every layer is {level}, the plan decides nothing: give two levels, for "
        f"example [F, B], or write plan: {level}"
    ]
