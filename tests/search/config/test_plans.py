"""`space.plan` and the values of `space`: what they stand for, and what is refused."""

import pytest

from bitfront.search.config.cautions import cautions
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
        ("{per: layer, prior: {heed: F}}", "no layer of that name"),
        ("{per: layer, levels: [F, B], prior: {head: W}}", "plan are F, B, not W"),
        ("{selector: front, budget: {float: [10, 90], prior: 50}}", "no value is the best one"),
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


@pytest.mark.parametrize(
    ("advice", "message"),
    [
        ("mixbin-grod", "search.advice.selector: unknown selector 'mixbin-grod'"),
        ("slimming", "removes channels"),
        ("{selector: hawq, level: W}", "levels of the plan are F, B"),
        ("3", "search.advice"),
    ],
)
def test_wrong_advice_is_named(make_config, advice, message):
    with pytest.raises(UserError, match=message):
        make_config("space={method: bnn, plan: {per: layer}}", f"search.advice={advice}")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{float: [1e-4, 1], log: true, prior: 2}", "prior: 2 is not in 0.0001..1"),
        ("{float: [1e-4, 1], prior: [0.1]}", "not a single value"),
        ("{float: [1e-4, 1], prior: 0.1, confidence: sure}", "low"),
        ("{float: [1e-4, 1], confidence: high}", "confidence without a prior"),
        ("{choice: [0.1, 0.2], prior: 0.3}", "prior: 0.3 is not in {0.1, 0.2}"),
    ],
)
def test_a_wrong_prior_is_named(make_config, value, message):
    with pytest.raises(UserError, match=message):
        make_config(f"space={{method: bnn, plan: {{per: layer}}, optimizer.lr: {value}}}")


def test_priors_are_known_by_their_keys(make_space):
    """And a sampler that does not use them says so."""
    given = (
        "space={method: {choice: [bnn, bnn++], prior: bnn++, confidence: high}, "
        "plan: {per: layer, prior: {layers.2: F}}, "
        "optimizer.lr: {float: [1e-4, 1], log: true, prior: 0.01}, "
        "bnn++.mu: {schedule: {from: 5, to: {float: [10, 100], prior: 20, confidence: low}}}}"
    )
    config, space = make_space(given, "search.sampler=free-cost")
    assert {key: prior.describe() for key, prior in space.priors().items()} == {
        "method": "bnn++ (high)",
        "plan.layers.2": "F (medium)",
        "optimizer.lr": "0.01 (medium)",
        "bnn++.mu_end": "20 (low)",
    }
    assert not any("prior" in text for text in cautions(config, space))
    config, space = make_space(given, "search.sampler=tpe")
    assert any("tpe does not use priors" in text for text in cautions(config, space))
