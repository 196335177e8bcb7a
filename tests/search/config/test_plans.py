"""`space.plan` and the values of `space`: what they stand for, and what is refused."""

import pytest

from bitfront.trainables.errors import UserError


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ("{only: blok}", "'blok' is not known, did you mean 'block'"),
        ("{only: block, level: F}", "is to be binary"),
        ("{only: block, levels: [B]}", "did you mean 'level'"),
        ("{per: layer, levels: [F, F]}", "each level once"),
        ("{per: layer, level: F}", "did you mean 'levels'"),
        ("{selector: front}", "space.plan.budget: is missing"),
        ("{selector: front, budget: 101}", "not a percentage"),
        ("{selector: front, budget: 50, rule: neerest}", "did you mean 'nearest'"),
        ("{selector: front, budget: 50, seeds: [a]}", "give a list of whole numbers"),
        ("{selector: frst, budget: 50}", "unknown selector 'frst', did you mean 'first'"),
        ("{selector: [front, front], budget: 50}", "give each selector once"),
        ("[F, B]", "give letters"),
    ],
)
def test_a_wrong_plan_gets_a_suggestion(make_config, plan, message):
    with pytest.raises(UserError, match=message):
        make_config(f"space.plan={plan}")
