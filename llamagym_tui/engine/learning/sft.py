"""Supervised training of the policy on demonstrations, through TRL's `SFTTrainer`.

It trains on the ids that a rollout of the same conversation would have: the same turns in each prompt, the same seam
between prompt and reply, the same end. Loss falls on the replies, ends included. The
policy's own weights change in place (its adapter alone, if it has one); the value head stays as it is.
TRL takes seconds to import, so that happens when training begins.
"""

import math
import random
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from llamagym_tui.config import SFTSettings, WarmStartStats
from llamagym_tui.engine.learning.movement import Marks, require_trainable
from llamagym_tui.engine.memory import as_gib, free_memory
from llamagym_tui.engine.model.shape import ACTIVATIONS, FP32, activation_bytes, shape_of
from llamagym_tui.engine.own_torch import own_torch
from llamagym_tui.engine.policy.episode import replayed
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.errors import LlamaGymError, StoodStill, UsageError
from llamagym_tui.game.chat import ChatMessage

T = TypeVar("T")
NOT_TRAINED = -100
"""Label of a token without loss, as transformers has it."""
MAX_GRAD_NORM = 1.0
"""Norm to which larger gradients are scaled down, on demonstrations and on preferences."""
LOGITS_KEPT = 4
"""Tensors of the size of a forward's logits that exist at once."""
MOST_OF_FREE = 0.5
"""Share of the free memory that a forward and its gradient may take; on the host `ACTIVATIONS` at most."""
Progress = Callable[[int, int, float], None]
"""Called with steps done, steps in all, and the loss of the last one."""


class _Stopped(Exception):
    """The training is to end in the middle of a step."""


class Example(NamedTuple):
    """A row of the data set, by the names that TRL has."""

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


@own_torch()
def train_on(
    policy: Policy,
    conversations: Sequence[Sequence[ChatMessage]],
    settings: SFTSettings,
    *,
    seed: int = 0,
    progress: Progress = lambda step, steps, loss: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> WarmStartStats:
    """Train the policy on demonstrations; it has a new version afterwards, cancelled or not.

    Args:
        seed: of the order, and of the choice if there are more than `max_examples`.
        progress: called after every step.
        should_stop: called between the layers; True ends the training, and what whole steps have learnt stays.
    Raises:
        LlamaGymError: a weight is not finite any more, and the policy of no use; or none has moved.
        UsageError: there is too little memory, and nothing was changed.
    """
    conversations = drawn(conversations, settings, seed)
    rows = [row for conversation in conversations for row in examples(policy, conversation)]

    def trainer(folder: str, callbacks: list[Any]) -> Any:
        from datasets import Dataset
        from trl import SFTConfig, SFTTrainer

        return SFTTrainer(
            model=policy.model.pretrained_model,
            processing_class=policy.chat.tokenizer,
            train_dataset=Dataset.from_list([row._asdict() for row in rows]),
            callbacks=callbacks,
            args=arguments(
                SFTConfig,
                policy,
                settings,
                folder,
                seed,
                rows=len(rows),
                longest=max((len(row.input_ids) for row in rows), default=1),
            ),
        )

    return trained(
        policy,
        trainer,
        demonstrations=len(conversations),
        tokens=sum(label != NOT_TRAINED for row in rows for label in row.labels),
        progress=progress,
        should_stop=should_stop,
    )


def drawn(lessons: Sequence[T], settings: SFTSettings, seed: int) -> Sequence[T]:
    """At most `max_examples` of them, drawn at random."""
    if settings.max_examples is None or len(lessons) <= settings.max_examples:
        return lessons
    return random.Random(seed).sample(list(lessons), settings.max_examples)


def trained(
    policy: Policy,
    make: Callable[[str, list[Any]], Any],
    *,
    demonstrations: int,
    tokens: int,
    progress: Progress,
    should_stop: Callable[[], bool],
) -> WarmStartStats:
    """Train by the trainer of TRL's that `make` gives for a folder and callbacks; nothing is printed or reported.

    Raises:
        LlamaGymError: as `train_on`.
    """
    import huggingface_hub.constants
    from transformers import PrinterCallback

    # Or TRL sends a report about its use and this machine.
    huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY = True
    began_s = time.perf_counter()
    require_trainable(policy)
    weights = [each for each in policy.model.pretrained_model.parameters() if each.requires_grad]
    marks = Marks(weights)
    callback = _callback(progress)
    with _restored(policy), tempfile.TemporaryDirectory() as folder:
        try:
            trainer = make(folder, [callback])
        except ValueError as error:  # as of an adapter on the LM head
            reason = " ".join(str(error).split())
            raise LlamaGymError(
                f"TRL does not train this model on demonstrations: {reason}"
            ) from error
        trainer.remove_callback(PrinterCallback)
        with suppress(_Stopped), _stopped_amid_a_step(policy, callback, should_stop):
            trainer.train()
    if not policy.is_finite:
        raise LlamaGymError(
            "The training on demonstrations diverged and its policy is lost; try a lower sft.lr, or dpo.lr."
        )
    losses = callback.losses
    cancelled = len(losses) < trainer.state.max_steps
    # The first step has a rate of 0 where there is a warm-up.
    if any(losses) and not (cancelled or marks.have_moved()):
        raise StoodStill(
            "The training on demonstrations has left every weight where it was: make more steps than its warm-up has "
            "(epochs, min_steps of sft or dpo), or raise lr."
        )
    return WarmStartStats(
        demonstrations=demonstrations,
        tokens=tokens,
        steps=len(losses),
        first_loss=losses[0] if losses else 0.0,
        last_loss=losses[-1] if losses else 0.0,
        elapsed_s=time.perf_counter() - began_s,
        cancelled=cancelled,
    )


def arguments(
    kind: Any,
    policy: Policy,
    settings: SFTSettings,
    folder: str,
    seed: int,
    *,
    rows: int,
    longest: int,
    **more: Any,
) -> Any:
    """Settings by the names of TRL's configuration `kind`; it cuts off, writes, reports and prints nothing.

    Args:
        rows: of the data set.
        longest: tokens that the longest of them is in a forward.
    """
    steps_an_epoch = math.ceil(rows / settings.batch_size)
    at_once = rows_at_once(policy, settings.batch_size, longest)
    epochs = max(settings.epochs, math.ceil(settings.min_steps / steps_an_epoch))
    with warnings.catch_warnings():
        # `gradient_checkpointing` has a new name that TRL lacks.
        warnings.simplefilter("ignore", FutureWarning)
        return kind(
            output_dir=folder,
            num_train_epochs=epochs,
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


def rows_at_once(policy: Policy, batch_size: int, longest: int) -> int:
    """Rows of one forward and its gradient, as many as there is memory for; a batch is a whole number of them.

    Raises:
        UsageError: there is too little for the longest row alone.
    """
    lm = policy.model.causal_lm
    shape = shape_of(lm.config)
    # transformers' forward keeps about twice what ours does, and TRL the logits of all tokens, with their gradient:
    # 3.9 MB a token of SmolLM2-135M were measured, of which these are 3.7.
    a_token = 2 * activation_bytes(shape, full=True, dtype_bytes=lm.dtype.itemsize)
    a_token += LOGITS_KEPT * shape.vocabulary * FP32
    device = policy.model.backbone.device
    free = free_memory(str(device))
    if a_token * longest > free:
        raise UsageError(
            f"To train on the longest conversation, {longest:,} tokens, would take about {as_gib(a_token * longest)}, "
            f"and {as_gib(free)} are free on {device.type}: let prompts have fewer earlier turns (--history), leave "
            "long episodes out, or take a smaller model."
        )
    most = free * MOST_OF_FREE
    if device.type == "cpu":
        most = min(most, ACTIVATIONS)
    fitting = int(most // (a_token * longest))
    return max(
        [1, *(rows for rows in range(1, min(batch_size, fitting) + 1) if batch_size % rows == 0)]
    )


def _callback(progress: Progress) -> Any:
    """A callback that reports progress; a function, as transformers is imported late."""
    from transformers import TrainerCallback

    class Callback(TrainerCallback):
        def __init__(self) -> None:
            self.losses: list[float] = []
            self.is_stepping = False
            """Whether weights are being changed, which is not to end halfway."""

        def on_pre_optimizer_step(self, *_: Any, **kwargs: Any) -> None:
            self.is_stepping = True

        def on_optimizer_step(self, *_: Any, **kwargs: Any) -> None:
            self.is_stepping = False

        def on_log(
            self, args: Any, state: Any, control: Any, logs: dict[str, float], **kwargs: Any
        ) -> None:
            if "loss" in logs:
                self.losses.append(logs["loss"])
                progress(state.global_step, state.max_steps, logs["loss"])

    return Callback()


@contextmanager
def _stopped_amid_a_step(
    policy: Policy, callback: Any, should_stop: Callable[[], bool]
) -> Iterator[None]:
    """Raise `_Stopped` between two layers, on the way there or back, and within one after ctrl+c.

    A step of a large model takes many seconds, and so do the scores of a large vocabulary, which TRL computes itself.
    """

    def look(*_: Any) -> None:
        if not callback.is_stepping and should_stop():
            raise _Stopped

    def interrupted(number: int, frame: Any) -> None:
        handler(number, frame)
        look()

    def look_both_ways(layer: Any, inputs: Any, output: Any) -> None:
        look()
        first = output[0] if isinstance(output, tuple) else output
        if isinstance(first, torch.Tensor) and first.requires_grad:
            first.register_hook(look)

    stacks = [each for each in policy.model.modules() if isinstance(each, torch.nn.ModuleList)]
    layers = [layer for stack in stacks for layer in stack]
    hooks = [layer.register_forward_hook(look_both_ways) for layer in layers]
    handler: Any = signal.getsignal(signal.SIGINT)
    handles = callable(handler) and threading.current_thread() is threading.main_thread()
    if handles:
        signal.signal(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        if handles and signal.getsignal(signal.SIGINT) is interrupted:
            signal.signal(signal.SIGINT, handler)
        for hook in hooks:
            hook.remove()


@contextmanager
def _restored(policy: Policy) -> Iterator[None]:
    """Undo what the trainer changes apart from weights: attributes, configuration, padding, random states, mode."""
    tokenizer = policy.chat.tokenizer
    lm = policy.model.causal_lm
    owners = [policy.model.pretrained_model, lm, lm.config]
    if lm.generation_config:
        owners.append(lm.generation_config)
    attributes = [dict(vars(owner)) for owner in owners]
    kinds = [(weight, weight.dtype) for weight in policy.model.parameters() if weight.requires_grad]
    pad_token = tokenizer.pad_token
    python_state = random.getstate()
    numpy_state = np.random.get_state()
    with torch.random.fork_rng():
        try:
            yield
        finally:
            for owner, kept in zip(owners, attributes, strict=True):
                vars(owner).clear()  # TRL's own `forward` among them
                vars(owner).update(kept)
            for weight, kind in kinds:
                # TRL puts an adapter on coarse weights into bfloat16.
                weight.data = weight.data.to(kind)
            tokenizer.pad_token = pad_token
            random.setstate(python_state)
            np.random.set_state(numpy_state)
            policy.model.zero_grad(set_to_none=True)
            policy.model.eval()
            policy.version += 1
