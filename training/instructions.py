"""Instructions to answer, composed of templates and their fillings: questions, sums, beginnings of programs. A head
that drafts for an instruction model must be trained on text that such a model writes."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Collection
from pathlib import Path

OURS = Path(__file__).with_name("instructions.json")


def instructions(count: int, seed: int = 0, kinds: Collection[str] = ()) -> list[str]:
    """`count` instructions, sampled uniformly from the given kinds of templates, by default all; some may be equal."""
    content = json.loads(OURS.read_text(encoding="utf-8"))
    chance = random.Random(seed)
    templates = [each for kind, each in content["templates"].items() if not kinds or kind in kinds]

    def filled(template: str) -> str:
        return re.sub(r"{(\w+)}", lambda match: chance.choice(content["fill"][match[1]]), template)

    return [filled(chance.choice(chance.choice(templates))).rstrip() + "\n\n" for _ in range(count)]
