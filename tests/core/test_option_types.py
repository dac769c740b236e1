"""Every option of the library's functions refuses a value of another type in a sentence that names it."""

from __future__ import annotations

import typing
from dataclasses import fields
from inspect import signature
from itertools import product
from typing import Any

import numpy as np
import pytest

from core.ask import Ask
from core.autocomplete import Autocomplete
from core.drafting.drafts import Options
from core.errors import InputError
from core.samplers import (
    DRY,
    XTC,
    Eta,
    MinP,
    Mirostat,
    Temperature,
    TopH,
    TopK,
    TopNSigma,
    TopP,
    TopW,
    Typical,
)
from core.speculative import generate
from core.speculative.options import SpeculationOptions
from core.superposed import superpose
from tests.completing import complete
from tests.table_model import TableModel

STRANGE: list[Any] = [None, "word", 1.5, True, 3, [], {}, object(), b"x", float("nan"), 10**400, 1j, int, np.zeros(2)]


def wrong(kind: Any) -> list[Any]:
    """Values that a field of this kind never takes."""
    found = []
    for value in STRANGE:
        alternatives = typing.get_args(kind) if "|" in str(kind) else (kind,)
        plain = {int, float, bool, str, type(None)}
        if all(each in plain or typing.get_origin(each) is typing.Literal for each in alternatives):
            words = {type(word) for each in alternatives if each not in plain for word in typing.get_args(each)}
            types = {each for each in alternatives if each in plain} | words
            if type(value) not in types and not (float in types and type(value) is int):
                found.append(value)
    return found


@pytest.mark.parametrize("options", [Options, Ask, SpeculationOptions])
def test_every_option_refuses_a_value_of_another_type(options: type) -> None:
    hints = typing.get_type_hints(options)
    tried = 0
    for each in fields(options):
        refused = wrong(hints[each.name])
        for value in STRANGE:  # none of them ends in another error
            try:
                options(**{each.name: value})
            except InputError as error:
                said = str(error)
                assert said
            else:
                said = None
            if any(value is one for one in refused):
                tried += 1
                assert said is not None and said.startswith(f"{each.name} "), said
                assert "expected." in said and "\n" not in said and len(said) < 200
    assert tried > 100


def test_the_functions_refuse_them_too() -> None:
    model = TableModel()
    for call in (
        lambda: next(superpose(model, [1], reset_every=None)),
        lambda: next(superpose(model, [1], k="3")),
        lambda: next(superpose(model, [1], tau="hot")),
        lambda: next(superpose(model, [1], rule="min-p")),
        lambda: next(generate(model, None, [1], mode="off", length="long")),
        lambda: complete(Autocomplete(model).open(), "a", heal="yes"),
    ):
        with pytest.raises(InputError, match=r"(given|changes nothing).*\."):
            call()


def test_numbers_of_numpy_are_numbers() -> None:
    options = Options(k=np.int64(2), length=np.int32(4), tau=np.float32(1), end_below=np.float64(0.1))
    assert (options.k, options.length) == (2, 4)


RULES = [DRY, XTC, Eta, MinP, Mirostat, Temperature, TopH, TopK, TopNSigma, TopP, TopW, Typical]


@pytest.mark.parametrize("rule", RULES)
def test_every_number_of_a_rule_refuses_what_is_none(rule: Any) -> None:
    more = {"metric": "uniform"} if rule is TopW else {}
    numbers = [each.name for each in signature(rule).parameters.values() if type(each.default) in (int, float)]
    assert numbers
    for name, value in product(numbers, ("x", None, {}, object(), ["x"], [None])):
        with pytest.raises(InputError, match=f"{name} .* given"):
            rule(**{name: value}, **more)
