"""Training of weights inside the model on demonstrations and preferences, by TRL's `SFTTrainer` and `DPOTrainer`.

They train on the ids that a rollout of the same conversation would have. Weights change in place; the value head stays
as it is. The reference of DPO is the policy before: a frozen copy of its adapter, or of the model where it has none.
TRL takes seconds to import, so that happens when training begins.
"""

import copy
import math
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from llamagym_tui.engine.policy.episode import prompt_after, replayed
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.errors import LlamaGymError
from llamagym_tui.game.chat import ChatMessage, Preference
from llamagym_tui.settings import DPOSettings, SFTSettings

Progress = Callable[[int, int, float], None]
"""Called with steps done, steps in all, and the loss of the last one."""
NOT_TRAINED = -100
"""Label of a token without loss, as transformers has it."""
MAX_GRAD_NORM = 1.0
"""Norm to which larger gradients are scaled down."""
LOGITS_AT_ONCE = 2**26
"""Logits of one forward at most. TRL keeps those of all tokens, several times over."""


@dataclass
class Watch:
    """Somebody watches a training, and may end it."""

    progress: Progress
    should_stop: Callable[[], bool]
    losses: list[float] = field(default_factory=list)
    """Of the steps made."""
    is_stopped: bool = False

    def made(self, steps: int, loss: float) -> None:
        """A step of this many was made."""
        self.losses.append(loss)
        self.progress(len(self.losses), steps, loss)

    def asks_to_stop(self) -> bool:
        """True if the training is to end here."""
        self.is_stopped = self.should_stop()
        return self.is_stopped


class Example(NamedTuple):
    """A row of the data set, by TRL's names."""

    input_ids: list[int]
    labels: list[int]
    """The ids of replies, `NOT_TRAINED` elsewhere."""


def examples(policy: Policy, conversation: Sequence[ChatMessage]) -> list[Example]:
    """A conversation as a rollout would have it: one row, or one a turn where prompts leave out earlier turns.

    Replies of weight 0 have no loss, and a row of such replies alone is left out.
    """
    found = []
    for segment in replayed(policy, conversation).finish("terminated").segments:
        mask = segment.mask
        if not any(mask):
            continue
        labels = [NOT_TRAINED] * len(segment.prefix)
        for token, is_trained in zip(segment.ids, mask, strict=True):
            labels.append(token if is_trained else NOT_TRAINED)
        found.append(Example(input_ids=[*segment.prefix, *segment.ids], labels=labels))
    return found


def pair_row(policy: Policy, pair: Preference) -> dict[str, list[int]]:
    """A pair as `DPOTrainer` reads it once prepared: ids of the prompt that the policy sees, and of both replies."""
    prefix, rest = prompt_after(policy, pair.prompt)
    return {
        "prompt_ids": [*prefix, *rest],
        "chosen_ids": list(policy.chat.reply_ids(pair.chosen)),
        "rejected_ids": list(policy.chat.reply_ids(pair.rejected)),
    }


def imitate(
    policy: Policy,
    conversations: Sequence[Sequence[ChatMessage]],
    settings: SFTSettings,
    seed: int,
    watch: Watch,
) -> int:
    """Train the policy on demonstrations; the number of tokens that it was trained on.

    It has a new version afterwards, cancelled or not.

    Args:
        seed: of the order.
    Raises:
        LlamaGymError: a weight is not finite any more, and the policy is lost.
    """
    rows = [row for conversation in conversations for row in examples(policy, conversation)]
    longest = max((len(row.input_ids) for row in rows), default=1)

    def trainer(folder: str, callback: Any) -> Any:
        from datasets import Dataset
        from trl import SFTConfig, SFTTrainer

        return SFTTrainer(
            model=policy.model.pretrained_model,
            processing_class=policy.chat.tokenizer,
            train_dataset=Dataset.from_list([row._asdict() for row in rows]),
            callbacks=[callback],
            args=_arguments(SFTConfig, policy, settings, folder, seed, len(rows), longest),
        )

    _train(policy, trainer, watch)
    return sum(label != NOT_TRAINED for row in rows for label in row.labels)


def prefer(
    policy: Policy, pairs: Sequence[Preference], settings: DPOSettings, seed: int, watch: Watch
) -> int:
    """Train the policy on preferences, as `imitate` does on demonstrations; the number of preferred tokens."""
    rows = [pair_row(policy, pair) for pair in pairs]
    longest = max((sum(map(len, row.values())) for row in rows), default=1)
    model = policy.model.pretrained_model
    reference = None
    if not policy.model.is_adapted:  # of an adapter TRL makes the copy itself, as another adapter
        reference = copy.deepcopy(model).requires_grad_(False)

    def trainer(folder: str, callback: Any) -> Any:
        from datasets import Dataset
        from trl import DPOConfig, DPOTrainer

        class OwnIds(DPOTrainer):
            def _prepare_dataset(self, dataset: Any, *_: Any) -> Any:
                return dataset

        arguments = _arguments(
            DPOConfig, policy, settings, folder, seed, len(rows), longest, beta=settings.beta
        )
        return OwnIds(
            model=model,
            ref_model=reference,
            processing_class=policy.chat.tokenizer,
            train_dataset=Dataset.from_list(rows),
            callbacks=[callback],
            args=arguments,
        )

    try:
        _train(policy, trainer, watch)
    finally:
        if policy.model.is_adapted and "ref" in model.peft_config:
            model.set_adapter("default")
            model.delete_adapter("ref")
    return sum(len(row["chosen_ids"]) for row in rows)


def _train(policy: Policy, make: Callable[[str, Any], Any], watch: Watch) -> None:
    """Train by the trainer that `make` gives for a folder and a callback; nothing is printed or reported."""
    import huggingface_hub.constants
    from transformers import PrinterCallback

    # Or TRL sends a report about its use and this machine.
    huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY = True
    with _restored(policy), tempfile.TemporaryDirectory() as folder:
        trainer = make(folder, _callback(watch))
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    if not policy.is_finite:
        raise LlamaGymError(
            "The training on demonstrations diverged and its policy is lost; try a lower sft.lr, or dpo.lr."
        )


def _arguments(
    kind: Any,
    policy: Policy,
    settings: SFTSettings,
    folder: str,
    seed: int,
    rows: int,
    longest: int,
    **more: Any,
) -> Any:
    """Settings by the names of TRL's configuration `kind`; it cuts off, writes, reports and prints nothing."""
    vocabulary = policy.model.causal_lm.config.get_text_config().vocab_size
    at_once = settings.batch_size
    if at_once * longest * vocabulary > LOGITS_AT_ONCE:
        at_once = 1
    steps_an_epoch = max(1, math.ceil(rows / settings.batch_size))
    with warnings.catch_warnings():
        # `gradient_checkpointing` has a new name that TRL lacks.
        warnings.simplefilter("ignore", FutureWarning)
        return kind(
            output_dir=folder,
            num_train_epochs=max(settings.epochs, math.ceil(settings.min_steps / steps_an_epoch)),
            per_device_train_batch_size=at_once,
            gradient_accumulation_steps=settings.batch_size // at_once,
            learning_rate=settings.lr,
            warmup_steps=settings.warmup,
            lr_scheduler_type="linear",
            max_grad_norm=MAX_GRAD_NORM,
            weight_decay=0.0,
            seed=seed,
            max_length=None,
            use_cpu=policy.model.backbone.device.type == "cpu",
            bf16=False,
            gradient_checkpointing=False,
            dataloader_pin_memory=False,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            **more,
        )


def _callback(watch: Watch) -> Any:
    """A callback for somebody who watches; a function, as transformers is imported late."""
    from transformers import TrainerCallback

    class Callback(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            control.should_training_stop |= watch.asks_to_stop()

        def on_log(
            self, args: Any, state: Any, control: Any, logs: dict[str, float], **kwargs: Any
        ) -> None:
            if "loss" in logs:
                watch.made(state.max_steps, logs["loss"])

    return Callback()


@contextmanager
def _restored(policy: Policy) -> Iterator[None]:
    """Undo what the trainer changes apart from weights: attributes, configuration, padding, random state, mode."""
    tokenizer = policy.chat.tokenizer
    lm = policy.model.causal_lm
    owners = [policy.model.pretrained_model, lm, lm.config, lm.generation_config]
    attributes = [dict(vars(owner)) for owner in owners if owner is not None]
    kinds = [(weight, weight.dtype) for weight in policy.model.parameters() if weight.requires_grad]
    pad_token = tokenizer.pad_token
    with torch.random.fork_rng():
        try:
            yield
        finally:
            for owner, kept in zip(filter(None, owners), attributes, strict=True):
                vars(owner).clear()  # TRL's own `forward` among them
                vars(owner).update(kept)
            for weight, kind in kinds:
                # TRL puts an adapter on coarse weights into bfloat16.
                weight.data = weight.data.to(kind)
            tokenizer.pad_token = pad_token
            policy.model.zero_grad(set_to_none=True)
            policy.model.eval()
            policy.version += 1
