"""Questions whose answers can be checked by comparing text, for evaluations of correctness with small models.

The papers use TriviaQA, Natural Questions and GSM8K. A model that fits on a laptop answers almost none of their
questions. The answers to these questions follow from the prompt: sums after solved examples, and facts of a list that
the prompt states.
"""

from __future__ import annotations

import random

from research.questions import Question

KINDS = ("sums", "facts")
SHOTS = 4  # solved examples before a sum, as for GSM8K in ARC's appendix A.4
PEOPLE = ("Anna", "Ben", "Carla", "David", "Elena", "Farid", "Greta", "Hugo", "Irene", "Jonas", "Karin", "Louis")
CITIES = ("Bergen", "Cordoba", "Dresden", "Edinburgh", "Florence", "Gdansk", "Helsinki", "Krakow", "Lisbon", "Montreal")
FACTS = 6  # people of a list, with a city each
REPEATED = 2  # of them stand again before the question, so a guess among the other cities is right in one of four


def questions(kind: str, count: int, seed: int = 0) -> list[Question]:
    """Returns `count` different questions of one of KINDS; the same for the same seed."""
    rng, by_prompt = random.Random(f"{kind} {seed}"), dict[str, Question]()
    while len(by_prompt) < count:
        question = _sum(rng) if kind == "sums" else _fact(rng)
        by_prompt[question.prompt] = question
    return list(by_prompt.values())


def _sum(rng: random.Random) -> Question:
    """Returns a sum of two numbers with two digits. SmolLM2's tokenizer makes every digit a token, so an answer has two
    or three tokens."""
    pairs = [(rng.randint(10, 99), rng.randint(10, 99)) for _ in range(SHOTS + 1)]
    solved = "".join(f"{a} + {b} = {a + b}\n" for a, b in pairs[:-1])
    a, b = pairs[-1]
    return Question("sums", f"{solved}{a} + {b} =", str(a + b))


def _fact(rng: random.Random) -> Question:
    """Returns a list of people and cities, whose second copy in another order ends at a person. SmolLM2-135M cannot
    answer questions in sentences ("the city where Anna lives is called"): it is right less often than a guess."""
    facts = list(zip(rng.sample(PEOPLE, FACTS), rng.sample(CITIES, FACTS), strict=True))
    *repeated, (person, city) = rng.sample(facts, REPEATED + 1)
    stated = "".join(f"{who} - {where}\n" for who, where in facts)
    again = "".join(f"{who} - {where}\n" for who, where in repeated)
    prompt = f"People and the cities where they live:\n{stated}\nThe same list in another order:\n{again}{person} -"
    return Question("facts", prompt, city)
