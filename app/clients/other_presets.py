"""Presets of other programs: the settings that SillyTavern, mikupad and text-generation-webui export, as far as their
meaning is the same here.

The names of their fields are read off their own files: SillyTavern's *Text Completion presets* (JSON), mikupad's
sessions (JSON), text-generation-webui's presets (YAML: one `name: value` a line).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from app.clients.harmless import HARMLESS, RENAMED, SWITCHES
from app.clients.options import DROPS_NONE
from app.options.given import RULE_FLAGS
from core.chains import joined
from core.controls import CATALOG, DEFAULT_RULE, Preset
from core.errors import InputError
from core.files import parsed_json
from core.options import DRAFTING, Value

MOST_FIELDS = 400
MOST_CHARACTERS = 200_000


# The flag of each field of theirs that is an option here.
_FLAGS: Mapping[str, str] = {
    **dict.fromkeys(("temperature", "temp"), "temperature"),
    **{name: own.replace("_", "-") for name, own in RENAMED.items()},
    **{name: name.replace("_", "-") for name in ("top_k", "top_p", "min_p", "xtc_probability", "xtc_threshold")},
    **{name: name.replace("_", "-") for name in ("dry_multiplier", "dry_base")},
    "eta_cutoff": "epsilon",
}
_UNITS = {"eta_cutoff": 1e-4}  # in text-generation-webui and SillyTavern
# Fields that say how much to write, or what the page looks like. They say nothing about how tokens are chosen.
_ELSEWHERE = frozenset(
    {"genamt", "max_length", "max_new_tokens", "max_tokens", "n_predict", "max_predict_tokens", "seed", "sampler_seed"}
    | {"stream", "streaming", "name", "preset", "sampler_order", "sampler_priority", "samplers", "enabled_samplers"}
    | {"temperature_last", "dry_sequence_breakers", "dry_penalty_last_n", "rep_pen_range", "rep_pen_slope"}
    | {"repeat_last_n", "repetition_penalty_range", "mirostat_mode", "mirostat", "ctx", "truncation_length"}
    | {"do_sample", "smoothing_curve", "min_temp", "max_temp", "dynatemp_low", "dynatemp_high", "dynatemp_exponent"}
    | {"dynatemp_range_exponent", "num_beams", "length_penalty", "early_stopping", "add_bos_token"}
)
_ORDERS = ("samplers", "sampler_priority", "sampler_order", "enabled_samplers")  # the first that a file has counts
_NUMBERS = {6: "repetition_penalty", 0: "top_k", 1: "top_a", 2: "top_p", 3: "tfs", 4: "typical_p", 5: "temperature"}


@dataclass
class _Reading:
    values: dict[str, Value] = field(default_factory=dict)  # by flag
    left_out: list[str] = field(default_factory=list)


def read(text: str, name: str) -> tuple[Preset, list[str]]:
    """The preset of another program's file, and a clause for each field that is left out.

    Args:
        name: of the preset, for a file that has none.
    Raises: InputError for a file without a field that is known here.
    """
    fields = {_snake(key): value for key, value in _fields(text).items()}
    if not fields.keys() & _FLAGS.keys():
        raise InputError(
            "The file has no setting that Polydraft knows; choose one that Polydraft, SillyTavern, mikupad or "
            "text-generation-webui exported."
        )
    reading = _Reading()
    mirostat = fields.get("mirostat_mode", fields.get("mirostat", 0))
    for key, value in fields.items():
        if key in _FLAGS:
            _take(reading, key, value, {**fields, "mirostat": mirostat})
        elif key not in _ELSEWHERE and _is_set(key, value):
            reading.left_out.append(f"{key} {value}")
    if mirostat == 1:
        reading.left_out.append("mirostat 1, because a preset has version 2 alone")
    temperature = float(reading.values.pop("temperature", DRAFTING["temperature"].default))
    owners = dict.fromkeys(RULE_FLAGS[flag].owners[0] for flag in reading.values)
    chain = sorted(owners, key=lambda rule: _place(rule, fields))
    if "mirostat" in chain and len(chain) > 1:
        reading.left_out += [f"{CATALOG[rule].title}, which mirostat replaces" for rule in chain if rule != "mirostat"]
        chain = ["mirostat"]
    values = {
        RULE_FLAGS[flag].control.name: value
        for flag, value in reading.values.items()
        if RULE_FLAGS[flag].owners[0] in chain
    }
    called = fields.get("name") if isinstance(fields.get("name"), str) else name
    return Preset(str(called)[:80], joined(chain) or DEFAULT_RULE, values, temperature), reading.left_out


def _take(reading: _Reading, key: str, value: Any, fields: Mapping[str, Any]) -> None:
    """Takes over the value of a field, or says that it is left out."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < 1e300:  # nor NaN
        reading.left_out.append(f"{key} {value!r:.40}")
        return
    flag, switch = _FLAGS[key], SWITCHES.get(key, key)
    state = fields.get(switch, 0)
    if state in DROPS_NONE.get(flag, ()) or (switch in HARMLESS and HARMLESS[switch](state)):
        return
    if switch == "mirostat" and state != 2:  # this version is ours
        return
    control = RULE_FLAGS[flag].control if flag in RULE_FLAGS else DRAFTING[flag]
    number = round(value * _UNITS.get(key, 1.0), 10)
    try:
        reading.values[flag] = control.checked(int(number) if control.kind == "int" else float(number))
    except InputError as error:
        reading.left_out.append(f"{key} {value} ({error})")


def _is_set(key: str, value: Any) -> bool:
    """Whether a field that Polydraft does not have would change the text in the other program."""
    if value in (None, "", False, 0) or isinstance(value, list | dict):
        return False
    return key not in HARMLESS or not HARMLESS[key](value)


def _place(rule: str, fields: Mapping[str, Any]) -> int:
    """Where a rule stands in the file's order of samplers; after those that it names if it does not name this one."""
    order = next((fields[name] for name in _ORDERS if isinstance(fields.get(name), list)), [])
    names = [_NUMBERS.get(each, "") if isinstance(each, int) else _snake(str(each)) for each in order]
    keys = [key for key, flag in _FLAGS.items() if flag in {c.flag for c in CATALOG[rule].controls}]
    return min((names.index(key) for key in (rule.replace("-", "_"), *keys) if key in names), default=len(names))


def _fields(text: str) -> dict[str, Any]:
    """The fields of a file: of JSON, or of YAML with one level. Raises InputError for another form."""
    if len(text) > MOST_CHARACTERS:
        raise InputError(f"The file has {len(text)} characters; a preset has at most {MOST_CHARACTERS}, choose one.")
    try:
        content: Any = parsed_json(text)
    except ValueError:
        try:
            content = yaml.safe_load(text)
        except (yaml.YAMLError, RecursionError):
            content = None
    if isinstance(content, dict) and isinstance(content.get("session"), dict):  # mikupad's
        content = content["session"]
    if not isinstance(content, dict) or len(content) > MOST_FIELDS:
        raise InputError("The file is neither JSON nor YAML with one setting a line; choose an exported file.")
    return {str(key): value for key, value in content.items()}


def _snake(name: str) -> str:
    """mikupad's topK as the others' top_k."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name)
