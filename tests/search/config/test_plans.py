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


def test_a_parameter_of_all_methods_is_one_of_each_that_has_it(make_space):
    config, space = make_space(
        "space.method=[fp, bc, pc, bnn++]",
        "space.method.scale=layer",
        "space.pc.scale=[none, channel]",  # what is said of one goes before what is said of all
        "space.method.mu={schedule: {from: 4, to: 40}}",
    )
    assert {m: sorted(p) for m, p in space.method_params.items()} == {
        "bc": ["scale"],
        "pc": ["scale"],
        "bnn++": ["mu_end", "mu_start", "scale"],
    }
    assert config.space["bc.scale"] == config.space["bnn++.scale"] == "layer"
    assert config.space["pc.scale"] == ["none", "channel"]
    assert "method.scale" not in config.space


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("space.method.skale=layer", "space.method.skale: no method .* did you mean 'scale'"),
        ("space.method.scale=big", "space.bc.scale: .*big"),
    ],
)
def test_a_wrong_parameter_of_all_methods_is_named(make_config, assignment, message):
    with pytest.raises(UserError, match=message):
        make_config("space.method=[bc, bnn++]", assignment)
