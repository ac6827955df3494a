"""What TRL's trainers of rollouts (GRPO, RLOO) sample, score and earn, as records that `formats` reads.

A callback is told neither its trainer nor a rollout. What the trainer keeps for its own tables (`_logs`) has the texts
in order; what it keeps for its updates has the tokens, shuffled; and log-probabilities are kept nowhere where one
update follows each batch. So two of its methods are listened to: they are called as they are, and what they return is
looked at. They are its own again afterwards. torch is not imported: tensors become lists.
"""

import math
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from itertools import chain, compress, groupby
from operator import mul
from typing import Any

SAMPLES = "_generate_and_score_completions"
SCORES = "_get_per_token_logps_and_entropies"
COLUMNS = (
    "old_per_token_logps",
    "ref_per_token_logps",
    "prompt_ids",
    "prompt_mask",
    "completion_ids",
    "completion_mask",
    "tool_mask",
)
"""Tensors of a batch, a row for each rollout of this process."""


def calling_trainer(callback: object) -> Any:
    """The trainer that calls a callback at the moment; None: none does.

    Handlers pass a callback everything but the trainer, so it is looked for on the stack.
    """
    frame = sys._getframe()
    while frame := frame.f_back:  # type: ignore[assignment]
        caller = frame.f_locals.get("self")
        if callback in getattr(getattr(caller, "callback_handler", None), "callbacks", ()):
            return caller
    return None


def harmless(method: Callable[..., None]) -> Callable[..., None]:
    """The method, of which no error reaches the training: its object is told of it."""

    @wraps(method)
    def called(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:
            self.told(error)

    return called


class Overheard:
    """A trainer that is listened to."""

    def __init__(self, trainer: Any, told: Callable[[Exception], None]) -> None:
        """Begin to listen.

        Args:
            trainer: the trainer.
            told: called with an error of the listening, which does not reach the trainer.
        Raises:
            AttributeError: it samples no rollouts, or not as TRL 1.16 does.
        """
        self._trainer = trainer
        self._logs = trainer._logs
        self.told = told
        self._batch: dict[str, Any] = {}
        self._unlearnt: list[Any] = []
        """Log-probabilities since the last batch that are not of an update: the policy's, then the reference's."""
        self._learnt: list[tuple[Any, Any, Any]] = []
        """Ids, mask and log-probabilities in the update, for each part of the batch."""
        heard = {
            SAMPLES: _heard(getattr(trainer, SAMPLES), self._sampled),
            SCORES: _heard(getattr(trainer, SCORES), self._scored),
        }
        vars(trainer).update(heard)

    def leave(self) -> None:
        """Listen no more."""
        for name in (SAMPLES, SCORES):
            delattr(self._trainer, name)

    @harmless
    def _scored(self, result: Any, model: Any, ids: Any, mask: Any, *_: Any) -> None:
        logprobs = result[0]
        if logprobs.requires_grad:
            self._learnt.append((ids, mask, logprobs.detach()))
        else:
            self._unlearnt.append(logprobs)

    @harmless
    def _sampled(self, batch: dict[str, Any], *_: Any) -> None:
        if self._trainer.model.training:
            self._batch = dict(batch)
            if "old_logps" in batch:  # RLOO keeps their sums alone
                self._batch |= zip(COLUMNS, self._unlearnt, strict=False)
        self._unlearnt = []

    def records(self, most_tokens: int) -> Iterator[dict[str, Any]]:
        """The rollouts since the last time, in the trainer's order; about `most_tokens` tokens of the first ones."""
        batch, self._batch = self._batch, {}
        learnt, self._learnt = self._learnt, []
        if not batch:
            return
        most = most_tokens // batch["completion_ids"].shape[1]
        known = {name: batch[name][:most].tolist() for name in COLUMNS if name in batch}
        rows = [dict(zip(known, row, strict=True)) for row in zip(*known.values(), strict=True)]
        parts = (zip(*(each.tolist() for each in part), strict=True) for part in learnt)
        logprobs = {_unpadded(ids, mask): row for part in parts for ids, mask, row in part}
        logs, trainer = self._logs, self._trainer
        weights = trainer.reward_weights.tolist()
        columns = (
            logs["prompt"],
            logs["completion"],
            logs["advantages"],
            *logs["rewards"].values(),
        )
        for index, (prompt, completion, advantage, *earned) in enumerate(
            zip(*columns, strict=True)
        ):
            # A function that does not score a rollout gives NaN.
            scores = [each for each in map(mul, weights, earned) if not math.isnan(each)]
            record = {
                "prompt": prompt,
                "completion": completion,
                "reward": sum(scores) if scores else None,
                "advantage": advantage,
                "group": index // trainer.num_generations + 1,
            }
            if index < len(rows):
                row = rows[index]
                whole = _unpadded(
                    row["prompt_ids"] + row["completion_ids"],
                    row["prompt_mask"] + row["completion_mask"],
                )
                row.setdefault("old_per_token_logps", logprobs.get(whole, ()))
                record["truncated"] = whole[-1] not in trainer.eos_token_ids
                record["trajectory"] = turns(row, completion)
            yield record


def turns(row: dict[str, Any], completion: Any) -> list[dict[str, Any]]:
    """The tokens of each reply of a rollout, by its row of a batch.

    What a tool has said between two replies was not sampled; what an environment of the user's own has said stands in
    the one reply.
    """
    mask = row["completion_mask"]
    sampled = list(map(min, mask, row.get("tool_mask", mask)))
    runs = [list(run) for own, run in groupby(range(len(mask)), sampled.__getitem__) if own]
    roles = [] if isinstance(completion, str) else [each["role"] for each in completion]
    replies = roles.count("assistant")
    if replies < 2:
        runs = [list(chain(*runs))]
    runs += [[] for _ in range(len(runs), replies)]  # the last ones have no tokens
    columns = {
        "token_ids": row["completion_ids"],
        "logprobs": row["old_per_token_logps"],
        "ref_logprobs": row.get("ref_per_token_logps"),
    }
    return [
        {"tokens": {name: [each[at] for at in run] for name, each in columns.items() if each}}
        for run in runs
    ]


def _heard(method: Callable[..., Any], hear: Callable[..., None]) -> Callable[..., Any]:
    """The method, with somebody who hears what it returns and what it was called with."""

    @wraps(method)
    def heard(*args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        hear(result, *args)
        return result

    return heard


def _unpadded(ids: list[int], mask: list[int]) -> tuple[int, ...]:
    return tuple(compress(ids, mask))
