"""Claims about declared parameters and about the registry: what is accepted comes back in its own
type, what is not gets an error that helps."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfront.trainables.errors import UnknownNameError, UserError, did_you_mean
from bitfront.trainables.parameters import Choice, Float, Int, Param, resolve
from bitfront.trainables.registry import Registry

# --- domains ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("domain", "inside", "outside"),
    [
        (Float(0.5, 2.0), [0.5, 1, 2.0], [0.49, 2.01, math.nan, math.inf, True, "1", None]),
        (Int(2, 10, step=4), [2, 6, 10, 6.0], [3, 1, 14, 6.5, True, "6", math.nan]),
        (Int(1, 8, log=True), [1, 8], [0, 9]),
        (Choice(("a", "b")), ["a"], ["c", 1, None]),
        (Choice((True, False)), [True, False], [1, 0, "true"]),
        (Choice((0, 1)), [0, 1, 1.0], [True, False, 2]),
        (Choice((2.0, 5.0)), [2.0, 5], [3.0, "5"]),
    ],
)
def test_a_domain_contains_exactly_its_values(domain, inside: list, outside: list) -> None:
    assert [v for v in inside if not domain.contains(v)] == []
    assert [v for v in outside if domain.contains(v)] == []


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Float(2, 1), "low 2 is above high 1"),
        (lambda: Float(0, 1, log=True), "starts above 0"),
        (lambda: Float(0, math.inf), "not finite"),
        (lambda: Float(math.nan, 1), "not finite"),
        (lambda: Int(2, 1), "low 2 is above high 1"),
        (lambda: Int(1, 4, step=0), "step 0 is below 1"),
        (lambda: Int(0, 4, log=True), "starts above 0"),
        (lambda: Int(1, 4, step=2, log=True), "takes no step"),
        (lambda: Choice(()), "at least one value"),
        (lambda: Choice(("a", "a")), "lists a value twice"),
    ],
)
def test_an_impossible_domain_is_refused(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("domain", "words"),
    [
        (Float(0.5, 2), "0.5..2"),
        (Float(0.001, 0.1, log=True), "0.001..0.1 (log)"),
        (Int(1, 9), "1..9"),
        (Int(8, 20, step=6), "8..20 step 6"),
        (Int(1, 9, log=True), "1..9 (log)"),
        (Choice(("a", True, 2)), "{a, true, 2}"),
    ],
)
def test_a_domain_describes_itself(domain, words: str) -> None:
    assert domain.describe() == words


@given(low=st.integers(-50, 50), span=st.integers(0, 60), step=st.integers(1, 9))
def test_the_size_of_an_int_range_is_the_number_of_its_values(low, span, step) -> None:
    domain = Int(low, low + span, step)
    assert domain.size == sum(domain.contains(v) for v in range(low - 5, low + span + 6))


def test_sizes_of_floats_and_choices() -> None:
    assert Float(0, 1).size == math.inf
    assert Float(1, 1).size == 1
    assert Choice(("a", "b", "c")).size == 3


# --- declared parameters ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("domain", "given", "expected"),
    [
        (Float(0, 10), 5, 5.0),
        (Int(0, 10), 5.0, 5),
        (Choice((2.0, 5.0)), 5, 5.0),
        (Choice((True, False)), True, True),
        (Choice((1, True)), True, True),
        (Choice((0, 1)), 1.0, 1),
        (Choice(("none", "layer")), "layer", "layer"),
    ],
)
def test_a_value_comes_back_in_the_parameters_own_type(domain, given, expected) -> None:
    value = Param(domain.low if hasattr(domain, "low") else domain.values[0], domain).check(
        "x", given
    )
    assert value == expected
    assert type(value) is type(expected)


def test_a_value_outside_says_what_is_accepted() -> None:
    with pytest.raises(UserError, match=r"m\.mu: 20 is outside 2\.\.10 \(log\)"):
        Param(5.0, Float(2, 10, log=True)).check("m.mu", 20)


def test_a_wrong_choice_gets_a_suggestion() -> None:
    scale = Param("none", Choice(("none", "layer", "channel")))
    with pytest.raises(UnknownNameError, match=r"m\.scale: chanel is not accepted.*'channel'"):
        scale.check("m.scale", "chanel")
    with pytest.raises(UnknownNameError, match=r"m\.clamp: 1 is not accepted, one of: false, true"):
        Param(True, Choice((True, False))).check("m.clamp", 1)


def test_the_searched_range_is_shown_next_to_the_accepted_one() -> None:
    shown = Param(5.0, Float(0.1, 1000), "sharpness", search=Float(2, 10)).describe()
    assert shown == {"default": 5.0, "range": "2..10", "accepts": "0.1..1000", "doc": "sharpness"}
    assert Param(1, Int(1, 4)).describe()["range"] == "1..4"


DECLARED = {"mu": Param(5.0, Float(1, 10)), "scale": Param("none", Choice(("none", "layer")))}


def test_resolve_fills_in_the_defaults() -> None:
    assert resolve("m", DECLARED, {}) == {"mu": 5.0, "scale": "none"}
    assert resolve("m", DECLARED, {"mu": 7}) == {"mu": 7.0, "scale": "none"}


def test_resolve_refuses_unknown_keys_and_bad_values() -> None:
    with pytest.raises(UnknownNameError, match=r"m\.scal: unknown key, did you mean 'scale'"):
        resolve("m", DECLARED, {"scal": "none"})
    with pytest.raises(UserError, match=r"m\.mu: 11 is outside"):
        resolve("m", DECLARED, {"mu": 11})
    assert resolve("m", DECLARED, {"mu": 11}, check=False)["mu"] == 11


# --- the registry -------------------------------------------------------------------------------


@pytest.fixture
def nets() -> Registry[int]:
    registry: Registry[int] = Registry("model")
    for number, name in enumerate(("resnet20", "resnet8", "mlp")):
        registry.add(name, number)
    return registry


def test_a_duplicate_name_is_an_error_and_changes_nothing(nets: Registry[int]) -> None:
    with pytest.raises(ValueError, match="model 'mlp' is registered twice"):
        nets.add("mlp", 7)
    assert nets.get("mlp") == 2


def test_listing_is_sorted_and_takes_wildcards(nets: Registry[int]) -> None:
    assert nets.names() == ["mlp", "resnet20", "resnet8"]
    assert nets.names("resnet*") == ["resnet20", "resnet8"]
    assert nets.names("vit*") == []
    assert list(nets) == nets.names()
    assert nets.items() == [("mlp", 2), ("resnet20", 0), ("resnet8", 1)]
    assert len(nets) == 3
    assert "mlp" in nets
    assert "vit" not in nets


def test_an_unknown_name_gets_the_nearest_one(nets: Registry[int]) -> None:
    with pytest.raises(UnknownNameError, match="unknown model 'resnet-20', did you mean 'resnet20"):
        nets.get("resnet-20")


def test_an_unknown_name_near_nothing_gets_the_list(nets: Registry[int]) -> None:
    with pytest.raises(UserError, match="unknown model 'xyz', one of: mlp, resnet20, resnet8"):
        nets.get("xyz")


def test_the_decorator_registers_and_returns_its_class(nets: Registry) -> None:
    @nets.register("new")
    class New:
        pass

    assert nets.get("new") is New


def test_suggestions_stay_short() -> None:
    assert did_you_mean("zzz", []) == "there are none"
    many = did_you_mean("zzz", [f"name{i:02}" for i in range(30)])
    assert many.endswith("name11, ...")


def test_a_user_error_shows_its_hint_on_a_second_line() -> None:
    assert str(UserError("what", "do this")) == "what\n  do this"
    assert str(UserError("what")) == "what"
