"""A file of demonstrations is a dataset of TRL as it is: SFTTrainer takes a step on it, on the replies alone.

The model and its tokenizer are made here, with random weights, from nothing but this file.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from llamagym_tui.demos import files as demo_files
from llamagym_tui.demos.demonstration import Demonstration
from llamagym_tui.game.agent_base import prompt_sha256
from llamagym_tui.game.chat import assistant, system, user

PROMPT = "Play."
REPLIES = ('{"action": 1}', '{"action": 0}')
TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' }}"
    "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|end|>' }}{% endgeneration %}"
    "{% else %}{{ message['content'] + '<|end|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "blackjack.jsonl"
    for seed in range(4):
        demo = Demonstration(
            messages=[
                system(PROMPT),
                user("Your total: 12."),
                assistant(REPLIES[0]),
                user("Your total: 20."),
                assistant(REPLIES[1]),
            ],
            agent="blackjack",
            env_id="Blackjack-v1",
            env_kwargs={"natural": False},
            seed=seed,
            actions=[1, 0],
            rewards=[0.0, 1.0],
            episode_return=1.0,
            length=2,
            end="terminated",
            source="human",
            model=None,
            prompt_sha256=prompt_sha256(PROMPT),
            recorded_at="2026-01-31T12:00:00Z",
        )
        demo_files.append(path, demo)
    return path


def test_trl_trains_on_the_replies_of_a_file_as_it_is(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import torch
    from datasets import load_dataset
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from trl import SFTConfig, SFTTrainer

    specials = ["<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate(specials + letters)}
    bytes_alone = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    bytes_alone.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_alone.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bytes_alone,
        pad_token="<|pad|>",
        eos_token="<|end|>",
        additional_special_tokens=specials[2:],
        chat_template=TEMPLATE,
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(vocabulary),
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=256,
            pad_token_id=0,
            bos_token_id=None,
            eos_token_id=1,
        )
    )
    before = model.lm_head.weight.detach().clone()
    trainer = SFTTrainer(
        model=model,
        processing_class=tokenizer,
        train_dataset=load_dataset(
            "json", data_files=str(file), split="train", cache_dir=str(tmp_path / "cache")
        ),
        args=SFTConfig(
            output_dir=str(tmp_path / "out"),
            max_steps=1,
            per_device_train_batch_size=2,
            learning_rate=1e-2,
            assistant_only_loss=True,
            report_to=[],
            use_cpu=True,
            bf16=False,
            save_strategy="no",
            disable_tqdm=True,
        ),
    )
    batch = next(iter(trainer.get_train_dataloader()))
    labels = batch["labels"][0]
    trained = tokenizer.decode(labels[labels != -100])
    assert trained == "".join(f"{reply}<|end|>" for reply in REPLIES)
    assert trainer.train().global_step == 1
    assert not torch.equal(before, model.lm_head.weight)
