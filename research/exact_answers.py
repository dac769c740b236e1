"""The probability that a sampled answer is right, computed instead of counted: a share of few sampled answers says
little, and the distributions that they are drawn from say all.

An answer is right if the continuation begins with it as a whole word (`Question.is_answered_by`). The probability is
that of the answer's own tokens, after one space, followed by a token that does not continue the word. Other spellings
and other ways to divide the answer into tokens also count as right where answers are sampled, and not here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

import torch
from torch import Tensor

from core.errors import InputError
from core.models import LanguageModel, Tokenizer
from research.questions import Question

ROWS = 64  # of logits at once


@dataclass(frozen=True)
class Answers:
    """The right answers to some questions, token by token.

    Attributes:
        logits: (n, V), before each token of each answer and after its last one.
        tokens: (n,), the answer's token; -1 after the last one.
        of_answer: (n,), the number of the answer.
        of_question: (answers,), the number of its question.
        ends: (V,), whether a token after an answer leaves it a whole word.
    """

    logits: Tensor
    tokens: Tensor
    of_answer: Tensor
    of_question: Tensor
    ends: Tensor


def read(model: LanguageModel, questions: Sequence[Question]) -> Answers:
    """Reads each question and its right answers once. Raises InputError for a question whose answer is a reply."""
    logits: list[Tensor] = []
    tokens: list[int] = []
    of_answer: list[int] = []
    of_question: list[int] = []
    with closing(model.open()) as sequence:
        for number, question in enumerate(questions):
            if question.asked:
                raise InputError(
                    f"{question.prompt!r} is answered by a reply, which is right wherever it has the answer; leave "
                    "--exact out, or give prompts that an answer continues."
                )
            prompt = question.ids(model.tokenizer)
            for answer in {text.lower(): text for text in (*question.others, question.answer)}.values():
                ids = model.tokenizer.encode(f" {answer}")
                if len(prompt) > 1:
                    sequence.sync(prompt[:-1])
                else:
                    sequence.rewind(0)
                logits.append(sequence.feed_every([prompt[-1], *ids]))
                tokens += [*ids, -1]
                of_answer += [len(of_question)] * (len(ids) + 1)
                of_question.append(number)
    return Answers(
        torch.cat(logits),
        torch.tensor(tokens),
        torch.tensor(of_answer),
        torch.tensor(of_question),
        _ends(model.tokenizer),
    )


def p_right(answers: Answers, rule: Callable[[None, Tensor], Tensor]) -> list[float]:
    """Returns the probability of a right answer to each question under a rule, which has the temperature."""
    p_tokens: list[Tensor] = []
    for rows, ids in zip(answers.logits.split(ROWS), answers.tokens.split(ROWS), strict=True):
        q = rule(None, rows).softmax(1).double()
        ended = torch.where(answers.ends, q, 0).sum(1)
        p_tokens.append(torch.where(ids < 0, ended, q.gather(1, ids.clamp(min=0)[:, None])[:, 0]))
    each = torch.ones(len(answers.of_question), dtype=torch.float64)
    each.scatter_reduce_(0, answers.of_answer, torch.cat(p_tokens), "prod")
    count = int(answers.of_question.max()) + 1
    return torch.zeros(count, dtype=torch.float64).index_add_(0, answers.of_question, each).tolist()


def _ends(tokenizer: Tokenizer) -> Tensor:
    """Which tokens (V,) do not begin with a letter, a digit or an underscore."""
    first = (piece.decode("utf-8", "replace")[:1] for piece in tokenizer.pieces)
    return torch.tensor([not (each.isalnum() or each == "_") for each in first])
