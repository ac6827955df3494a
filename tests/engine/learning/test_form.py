"""Learning the form: what it measures, what it teaches, and the plain model that comes out."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.config import LoraConfig, SFTSettings
from llamagym_tui.engine.learning import form
from llamagym_tui.engine.learning.form import form_of, learn_form, save_form
from llamagym_tui.engine.model.loading import load_model_and_tokenizer
from llamagym_tui.engine.model.value_head import AutoModelForCausalLMWithValueHead, with_adapter
from llamagym_tui.errors import RunStoreError
from llamagym_tui.game.chat import Conversation, assistant, system, user
from tests.engine.conftest import REPLIES, tiny_llama

AGENT = BlackjackAgent()
IDS = torch.tensor([[5, 6, 7, 8]])


def lessons(count: int) -> list[Conversation]:
    """Hands with replies that are drawn at random."""
    drawn = random.Random(0)
    return [
        [
            system(AGENT.get_system_prompt()),
            user(AGENT.format_observation((drawn.randint(4, 20), drawn.randint(1, 10), 0))),
            assistant(drawn.choice(REPLIES)),
        ]
        for _ in range(count)
    ]


def test_the_form_is_measured_on_what_the_model_says_before_the_reply(make_policy) -> None:
    policy = make_policy(temperature=1.0)
    asked = lessons(3)
    named, entropies = [], []
    for *before, _ in asked:
        shares = []
        for reply in REPLIES:
            prompt, ids = policy.chat.prompt(before), list(policy.chat.reply_ids(reply))
            with torch.no_grad():
                logits = policy.model.causal_lm(torch.tensor([prompt + ids])).logits[0]
            logprobs = logits.log_softmax(-1)[len(prompt) - 1 : -1]
            shares.append(logprobs[range(len(ids)), ids].sum().exp().item())
        named.append(sum(shares))
        split = [share / sum(shares) for share in shares]
        entropies.append(-sum(p * math.log(p) for p in split) / math.log(2))
    found = form_of(policy, asked)
    assert found.named == pytest.approx(sum(named) / 3, rel=1e-3)
    assert found.entropy == pytest.approx(sum(entropies) / 3, abs=1e-3)


def test_the_form_is_learnt_and_no_action_is_preferred(
    make_policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A model of random weights has nothing to begin from, so it takes larger steps.
    settings = SFTSettings(epochs=6, min_steps=0, batch_size=8, lr=1e-2)
    monkeypatch.setattr(form, "SETTINGS_OF_ALL", settings)
    monkeypatch.setattr(form, "ROUNDS", 1)
    policy = make_policy(max_new_tokens=12)
    reported: list[tuple[int, int]] = []
    learnt = learn_form(
        policy,
        lessons(32 + form.MEASURED),
        seed=0,
        progress=lambda done, total: reported.append((done, total)),
        should_stop=lambda: False,
    )
    assert reported[-1] == (24, 24)
    assert learnt.before.named < 1e-6
    assert learnt.after.named > 0.2
    assert learnt.after.entropy > 0.9


def test_lessons_are_gone_through_again_until_the_form_is_known_and_not_where_it_is(
    make_policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = iter([0.1, 0.6, 0.97, 0.97])
    seeds: list[int] = []
    monkeypatch.setattr(form, "form_of", lambda policy, asked: form.Form(next(named), 1.0))
    monkeypatch.setattr(form, "train_on", lambda *args, seed, **more: seeds.append(seed))
    policy = make_policy(lora=True)

    def learn() -> form.FormLearnt:
        return learn_form(
            policy, lessons(20), seed=7, progress=lambda *at: None, should_stop=lambda: False
        )

    assert learn()[:2] == (form.Form(0.1, 1.0), form.Form(0.97, 1.0))
    assert seeds == [7, 8]
    assert learn().was_known
    assert seeds == [7, 8], "nothing to teach"


def test_what_is_saved_is_a_plain_model_with_the_same_logits(make_policy, tmp_path: Path) -> None:
    policy = make_policy(lora=True)
    for name, weight in policy.model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.2)
    with torch.no_grad():
        logits = policy.model.pretrained_model(IDS).logits
    folder = save_form(tmp_path, policy, "what it is")
    assert folder == tmp_path / "form"
    assert not [file.name for file in folder.iterdir() if "adapter" in file.name]
    assert (folder / "README.md").read_text() == "what it is"
    with torch.no_grad():
        saved = AutoModelForCausalLM.from_pretrained(folder)(IDS).logits
    torch.testing.assert_close(saved, logits, atol=1e-4, rtol=1e-4)
    assert (
        AutoTokenizer.from_pretrained(folder).chat_template == policy.chat.tokenizer.chat_template
    )


def test_a_folder_that_cannot_be_written_is_told_in_one_sentence(
    make_policy, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunStoreError, match=r"cannot be written in .*; make room, or name another"):
        save_form(tmp_path / "file", make_policy(lora=True), "")


def test_a_merged_head_leaves_the_embedding_that_it_shared_its_weights_with(
    tokenizer, tmp_path: Path
) -> None:
    adapted = with_adapter(tiny_llama(len(tokenizer)), LoraConfig(layers="head", r=4))
    model = AutoModelForCausalLMWithValueHead(adapted)
    head = model.causal_lm.get_output_embeddings()
    with torch.no_grad():
        head.lora_A["default"].weight.normal_()
        head.lora_B["default"].weight.normal_(std=0.1)
        logits = model.pretrained_model(IDS).logits
    plain = model.merged()
    plain.save_pretrained(tmp_path)
    with torch.no_grad():
        torch.testing.assert_close(plain(IDS).logits, logits, atol=1e-4, rtol=1e-4)
        saved = AutoModelForCausalLM.from_pretrained(tmp_path)(IDS).logits
    torch.testing.assert_close(saved, logits, atol=1e-4, rtol=1e-4)


def test_an_adapter_on_the_form_of_a_run_is_found_where_the_run_has_been_moved(
    make_policy, tokenizer, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    save_form(run, make_policy(lora=True), "")
    loaded = load_model_and_tokenizer(
        str(run / "form"), "cpu", full_finetuning=False, lora=LoraConfig(layers="head", r=4)
    )
    head = loaded.model.causal_lm.get_output_embeddings()
    with torch.no_grad():
        head.lora_A["default"].weight.normal_()
        head.lora_B["default"].weight.normal_(std=0.1)
        logits = loaded.model.pretrained_model(IDS).logits
    loaded.model.save_pretrained(run / "model")
    tokenizer.save_pretrained(run / "model")
    moved = run.rename(tmp_path / "elsewhere")
    again = load_model_and_tokenizer(str(moved), "cpu")
    with torch.no_grad():
        torch.testing.assert_close(again.model.pretrained_model(IDS).logits, logits)
