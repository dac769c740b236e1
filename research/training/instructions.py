"""What a model is asked to write, composed of templates and their fillings: answers to questions, sums, programs, and
messages. A head that drafts for an instruction model must be trained on text that such a model writes; an adapter to
prose may read some, to forget less of how the model wrote before."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Collection
from pathlib import Path

OURS = Path(__file__).with_name("instructions.json")
OF_MESSAGES = Path(__file__).with_name("messages.json")
GREETED = 0.5  # the share of messages that begin with a greeting


def instructions(count: int, seed: int = 0, kinds: Collection[str] = ()) -> list[str]:
    """`count` instructions, sampled uniformly from the given kinds of templates, by default all; some may be equal."""
    content = json.loads(OURS.read_text(encoding="utf-8"))
    rng = random.Random(seed)
    templates = [each for kind, each in content["templates"].items() if not kinds or kind in kinds]

    def filled(template: str) -> str:
        return re.sub(r"{(\w+)}", lambda match: rng.choice(content["fill"][match[1]]), template)

    return [filled(rng.choice(rng.choice(templates))).rstrip() + "\n\n" for _ in range(count)]


def beginnings_of_messages(count: int, seed: int = 0) -> list[str]:
    """`count` beginnings of letters and messages: a greeting or none, and the first words of a sentence."""
    content = json.loads(OF_MESSAGES.read_text(encoding="utf-8"))
    rng = random.Random(seed)
    texts: list[str] = []
    for _ in range(count):
        words = rng.choice(content["words"])
        if rng.random() < GREETED:
            greeting = rng.choice(content["greetings"]).replace("{name}", rng.choice(content["names"]))
            words = greeting + rng.choice(content["between"]) + words
        texts.append(words)
    return texts
