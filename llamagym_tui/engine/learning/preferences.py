"""Training of the policy on preferences, through TRL's `DPOTrainer`: a person's replies over the model's own.

It trains on the ids that a rollout has: TRL prepares nothing. The reference is the policy before: a frozen copy of
its adapter, or of the model where it has none; both are gone afterwards. All else is as in `sft`.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any

from llamagym_tui.config import DPOSettings, WarmStartStats
from llamagym_tui.engine.learning.sft import Progress, arguments, drawn, trained
from llamagym_tui.engine.own_torch import own_torch
from llamagym_tui.engine.policy.episode import prompt_after
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.game.chat import Preference


def pair_row(policy: Policy, pair: Preference) -> dict[str, list[int]]:
    """A pair as `DPOTrainer` reads it once prepared: ids of the prompt that the policy sees, and of both replies."""
    prefix, rest = prompt_after(policy, pair.prompt)
    return {
        "prompt_ids": [*prefix, *rest],
        "chosen_ids": list(policy.chat.reply_ids(pair.chosen)),
        "rejected_ids": list(policy.chat.reply_ids(pair.rejected)),
    }


def _tokens(row: dict[str, list[int]]) -> int:
    """Tokens of a pair in a forward, which has it twice, once with each reply, both as long as the longer."""
    reply = max(len(row["chosen_ids"]), len(row["rejected_ids"]))
    return 2 * (len(row["prompt_ids"]) + reply)


@own_torch()
def prefer(
    policy: Policy,
    pairs: Sequence[Preference],
    settings: DPOSettings,
    *,
    seed: int = 0,
    progress: Progress = lambda step, steps, loss: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> WarmStartStats:
    """Train the policy on preferences, with the arguments and errors of `sft.train_on`."""
    rows = [pair_row(policy, pair) for pair in drawn(pairs, settings, seed)]
    model = policy.model.pretrained_model
    reference = None
    if not policy.model.is_adapted:  # of an adapter TRL makes the copy itself, as another adapter
        reference = copy.deepcopy(model).requires_grad_(False)

    def trainer(folder: str, callbacks: list[Any]) -> Any:
        from datasets import Dataset
        from trl import DPOConfig, DPOTrainer

        class OwnIds(DPOTrainer):
            def _prepare_dataset(self, dataset: Any, *_: Any) -> Any:
                return dataset

        return OwnIds(
            model=model,
            ref_model=reference,
            processing_class=policy.chat.tokenizer,
            train_dataset=Dataset.from_list(rows),
            callbacks=callbacks,
            args=arguments(
                DPOConfig,
                policy,
                settings,
                folder,
                seed,
                rows=len(rows),
                longest=max(map(_tokens, rows), default=1),
                beta=settings.beta,
            ),
        )

    tokens = sum(len(row["chosen_ids"]) for row in rows)
    try:
        return trained(
            policy,
            trainer,
            demonstrations=len(rows),
            tokens=tokens,
            progress=progress,
            should_stop=should_stop,
        )
    finally:
        if policy.model.is_adapted and "ref" in model.peft_config:
            model.set_adapter("default")
            model.delete_adapter("ref")
