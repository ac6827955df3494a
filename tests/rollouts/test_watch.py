"""A training of somebody else's as a run of ours: told by hand, and by TRL's own trainers on the bundled model."""

from __future__ import annotations

import math
from functools import reduce as fold
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from llamagym_tui import LlamaGymWatch
from llamagym_tui.engine.model.sources import bundled_model_path
from llamagym_tui.protocol.events import TurnInspected, WarningRaised
from llamagym_tui.rollouts.formats import rollouts_of
from llamagym_tui.rollouts.index import Rollouts
from llamagym_tui.rollouts.overheard import SAMPLES, SCORES, Overheard, turns
from llamagym_tui.rollouts.rollout import Rollout, Said, Token
from llamagym_tui.runs.run_store import RunStore, is_held, read_config, read_events
from llamagym_tui.settings import RunConfig
from llamagym_tui.state.reduce import reduce
from llamagym_tui.state.run import RunState, initial_state


def rollouts(folder: Path) -> list[Rollout]:
    """What `view` finds in a folder."""
    found = Rollouts(str(folder))
    while found.read_on():
        pass
    return [found.rollout(each) for each in found.entries]


def state(folder: Path) -> RunState:
    """What `replay` shows at the end."""
    return fold(reduce, read_events(folder), initial_state(read_config(folder)))


def warnings_of(folder: Path) -> list[str]:
    return [each.message for each in read_events(folder) if isinstance(each, WarningRaised)]


def test_a_rollout_told_by_hand_is_the_one_that_view_reads(tmp_path: Path) -> None:
    watch = LlamaGymWatch(tmp_path / "run")
    watch.rollout(
        messages=[
            {"role": "system", "content": "Add."},
            {"role": "user", "content": "2 + 2?"},
            {
                "role": "assistant",
                "content": "four",
                "reward": 0.25,
                "tokens": ["fo", "ur"],
                "logprobs": [-0.5, -1.23456],
                "ref_logprobs": [-0.75, -2.0],
            },
            {"role": "tool", "content": "a digit, please"},
            {"role": "assistant", "content": "4", "reward": 0.75, "tool_calls": [
                {"function": {"name": "say", "arguments": {"what": 4}}}
            ]},
        ],
        reward=1.0,
        advantage=-0.5,
        group=7,
        truncated=True,
    )  # fmt: skip
    watch.rollout(prompt="1 + 1?", completion="2", reward=3.0)
    watch.update(policy_loss=0.125, kl_ref=0.5, lr=1e-6, unheard_of=1)
    watch.close()
    first, second = rollouts(tmp_path / "run")
    assert first.messages == (
        Said("system", "Add."),
        Said("user", "2 + 2?"),
        Said("assistant", "four", reward=0.25, tokens=(
            Token("fo", -0.5, -0.75, -0.5), Token("ur", -1.2346, -2.0, -0.5)
        )),
        Said("user", "a digit, please"),
        Said("assistant", "4\nsay({'what': 4})", reward=0.75),
    )  # fmt: skip
    assert (first.group, first.reward, first.advantage) == ("7", 1.0, -0.5)
    assert dict(first.facts)["end"] == "truncated"
    assert second.messages == (Said("user", "1 + 1?"), Said("assistant", "2", reward=3.0))
    shown = state(tmp_path / "run")
    assert shown.stats is not None
    assert (shown.stats.mean_return, shown.stats.return_std, shown.stats.turns) == (2.0, 1.0, 3)
    assert (shown.stats.policy_loss, shown.stats.kl_ref, shown.stats.lr) == (0.125, 0.5, 1e-6)
    assert math.isnan(shown.stats.entropy), "nobody has told it"
    assert (shown.episodes, shown.updates, shown.phase) == (2, 1, "stopped")
    wanted = "There is no figure unheard_of; it is left out. METRICS names all."
    assert warnings_of(tmp_path / "run") == [wanted]


def test_every_rollout_is_kept_and_readers_see_an_update_at_once(tmp_path: Path) -> None:
    watch = LlamaGymWatch(tmp_path / "run")
    for number in range(300):
        watch.rollout(prompt="?", completion=str(number), reward=number)
    watch.update()
    assert [each.messages[-1].text for each in rollouts(tmp_path / "run")] == [
        str(number) for number in range(300)
    ]
    assert is_held(tmp_path / "run")
    watch.close()
    assert not is_held(tmp_path / "run")


def test_ids_become_texts_by_the_tokenizer(tmp_path: Path) -> None:
    tokenizer = SimpleNamespace(
        decode=lambda ids, **_: f"t{ids[0]}", convert_ids_to_tokens=lambda token: f"\u2581{token}"
    )
    for name, known, texts in (("a", tokenizer, [" t5", " t6"]), ("b", None, ["5", "6"])):
        watch = LlamaGymWatch(tmp_path / name, tokenizer=known)
        watch.rollout(prompt="?", completion="56", token_ids=[5, 6], logprobs=[-1, -2.0])
        watch.close()
        (rollout,) = rollouts(tmp_path / name)
        assert [each.text for each in rollout.messages[-1].tokens] == texts


def test_what_cannot_be_written_is_said_once_and_harms_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    held = RunStore.create(RunConfig(agent="a", run_dir=str(tmp_path / "held")))
    (tmp_path / "file").touch()
    LlamaGymWatch(tmp_path / "other").update()
    for name, why in (
        ("held", "Another process trains in"),
        ("other", "Another process trains in"),
        ("file/run", "cannot be written (Not a directory)"),
    ):
        watch = LlamaGymWatch(tmp_path / name)
        watch.rollout(prompt="?", completion="!")
        watch.update()
        watch.close()
        (said,) = caplog.messages
        assert why in said
        assert "the training goes on" in said
        caplog.clear()
    held.close()
    LlamaGymWatch(tmp_path / "held").update()
    assert "already holds a run (config.json). Name a new folder." in caplog.text


def test_a_fault_of_its_own_is_said_once_and_the_rest_is_written(tmp_path: Path) -> None:
    watch = LlamaGymWatch(tmp_path / "run")
    for _ in range(2):
        watch.rollout(prompt="?", completion="half of a character: \ud800")
        watch.update(lr="fast", entropy=None)
    watch.rollout(prompt="?", completion="whole", reward=1.0)
    watch.update(lr=0.5, entropy=None)
    left_out, refused = warnings_of(tmp_path / "run")
    assert "left out, and the training goes on: UnicodeEncodeError" in left_out
    assert "left out, and the training goes on: ValueError" in refused
    assert [each.messages[-1].text for each in rollouts(tmp_path / "run")] == ["whole"]
    stats = state(tmp_path / "run").stats
    assert stats is not None
    assert stats.lr == 0.5


def test_other_processes_of_a_training_write_nothing(tmp_path: Path) -> None:
    watch = LlamaGymWatch(tmp_path / "run")
    told = SimpleNamespace(is_world_process_zero=False, global_step=0)
    model = SimpleNamespace(config=SimpleNamespace(name_or_path="m"))
    control = SimpleNamespace(should_log=False)
    watch.on_train_begin(None, told, control, model=model, processing_class=None)
    watch.on_step_end(None, told, control)
    watch.on_train_end(None, told, control)
    assert not (tmp_path / "run").exists()


# TRL


@pytest.fixture(scope="module")
def trl() -> Any:
    import trl

    return trl


PROMPTS = [
    [{"role": "system", "content": "Play."}, {"role": "user", "content": f"You have {total}."}]
    for total in range(10, 18)
]


def trained(
    trl: Any,
    kind: str,
    folder: Path,
    watch: LlamaGymWatch,
    *,
    rollout_func: Any = None,
    **settings: Any,
) -> Any:
    """A trainer of TRL's after two steps of eight rollouts, and the ids that its reward functions were given."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer

    ids: list[list[int]] = []

    def hits(completions: Any, completion_ids: Any, **_: Any) -> list[float]:
        ids.extend(completion_ids)
        return [float("1" in completion[0]["content"]) for completion in completions]

    def seldom(completions: Any, prompts: Any, **_: Any) -> list[float | None]:
        return [4.0 if prompt[1]["content"][-2] in "02468" else None for prompt in prompts]

    usual = {
        "output_dir": str(folder / "out"),
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "num_generations": 4,
        "max_completion_length": 8,
        "max_steps": 2,
        "logging_steps": 1,
        "reward_weights": [1.0, 0.5],
        "beta": 0.1,
        "learning_rate": 0.0,
        "use_cpu": True,
        "bf16": False,
        "report_to": [],
        "save_strategy": "no",
        "disable_tqdm": True,
    }
    trainer = getattr(trl, f"{kind}Trainer")(
        model=AutoModelForCausalLM.from_pretrained(bundled_model_path()),
        processing_class=AutoTokenizer.from_pretrained(bundled_model_path()),
        reward_funcs=[hits, seldom],
        train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in PROMPTS]),
        args=getattr(trl, f"{kind}Config")(**usual | settings),
        callbacks=[watch],
        **({"rollout_func": rollout_func} if rollout_func else {}),
    )
    trainer.train()
    return trainer, ids


def expected_logprobs(trainer: Any, prompt: list[dict[str, str]], ids: list[int]) -> list[float]:
    """Those of some tokens after a prompt, computed by the model itself."""
    import torch

    before = trainer.processing_class.apply_chat_template(prompt, add_generation_prompt=True)[
        "input_ids"
    ]
    with torch.no_grad():
        logits = trainer.model(torch.tensor([[*before, *ids]])).logits[0, len(before) - 1 : -1]
    return logits.log_softmax(-1)[range(len(ids)), ids].tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("GRPO", {}),
        ("RLOO", {}),
        # A batch for two updates: its log-probabilities are known before the first one.
        ("GRPO", {"steps_per_generation": 4}),
    ],
)
def test_trls_trainer_is_watched(kind: str, settings: Any, trl: Any, tmp_path: Path) -> None:
    trainer, ids = trained(trl, kind, tmp_path, LlamaGymWatch(tmp_path / "run"), **settings)
    found = rollouts(tmp_path / "run")
    assert len(found) == len(ids) == 16
    text_of = trainer.processing_class.decode
    for rollout, sampled in zip(found, ids, strict=True):
        system, user, reply = rollout.messages
        prompt = [{"role": each.role, "content": each.text} for each in (system, user)]
        assert prompt in PROMPTS
        assert reply.text == text_of(sampled, skip_special_tokens=True)
        assert rollout.reward == ("1" in reply.text) + 2.0 * (user.text[-2] in "02468")
        assert [each.text for each in reply.tokens] == [text_of([each]) for each in sampled]
        expected = expected_logprobs(trainer, prompt, sampled)
        assert [each.logprob for each in reply.tokens] == pytest.approx(expected, abs=2e-3)
        assert [each.reference for each in reply.tokens] == pytest.approx(expected, abs=2e-3)
        assert {each.advantage for each in reply.tokens} == {rollout.advantage}
    for start in range(0, 16, 4):
        group = found[start : start + 4]
        assert len({(each.group, each.messages[1].text) for each in group}) == 1
        assert sum(each.advantage or 0.0 for each in group) == pytest.approx(0.0, abs=1e-5)
    shown = state(tmp_path / "run")
    assert (shown.updates, shown.episodes, shown.phase) == (2, 16, "stopped")
    assert (shown.agent, shown.config.model) == (f"{kind}Trainer", str(bundled_model_path()))
    assert [sample.update for sample in shown.history.samples] == [1, 2]
    for sample, logged in zip(shown.history.samples, trainer.state.log_history, strict=False):
        assert sample.stats.kl_ref == logged["kl"]
        assert sample.stats.entropy == logged["entropy"]
        flat = logged.get("frac_reward_zero_std", math.nan)  # of a batch at its first update
        assert sample.stats.flat_groups == pytest.approx(flat, nan_ok=True)
    assert not warnings_of(tmp_path / "run")
    assert not {"_generate_and_score_completions", "_get_per_token_logps_and_entropies"} & set(
        vars(trainer)
    ), "the trainer's methods are its own again"


def test_of_a_rollout_with_an_environment_the_sampled_tokens_are_kept(
    trl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")

    def played(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        ids = [trainer.processing_class(text)["input_ids"] for text in ("hit", " bust", "stand")]
        mask = [[own] * len(each) for own, each in zip((1, 0, 1), ids, strict=True)]
        whole, sampled = list(chain(*ids)), list(chain(*mask))
        return {
            "prompt_ids": [[5, 6, 7]] * len(prompts),
            "completion_ids": [whole] * len(prompts),
            "logprobs": [[-1.0] * len(whole)] * len(prompts),
            "env_mask": [sampled] * len(prompts),
        }

    trained(trl, "GRPO", tmp_path, LlamaGymWatch(tmp_path / "run"), rollout_func=played)
    for rollout in rollouts(tmp_path / "run"):
        reply = rollout.messages[-1]
        assert reply.text == "hit buststand"
        assert "".join(each.text for each in reply.tokens) == "hitstand"
        assert dict(rollout.facts)["end"] == "truncated", "it has no end of a turn"


def test_a_trainer_that_does_not_sample_as_trl_does_is_left_alone() -> None:
    trainer = SimpleNamespace(_logs={}, **{SCORES: len})
    with pytest.raises(AttributeError, match=SAMPLES):
        Overheard(trainer, pytest.fail)
    assert getattr(trainer, SCORES) is len


@pytest.mark.parametrize("left_out", [0, 1])
def test_tokens_stand_in_the_turns_that_they_make_up(left_out: int) -> None:
    row = {
        "completion_ids": [2, 3, 4, 5, 6, 9, 0],
        "completion_mask": [1, 1, 1, 1, 1, 1, 0],
        "tool_mask": [1, 1, 0, 0, 1, 1, 0],
        "old_per_token_logps": [-0.2, -0.3, -0.4, -0.5, -0.6, -0.9, 0.0],
    }
    if left_out:  # the answer of the tool was too long for another reply
        row = {name: values[:4] for name, values in row.items()}
    said = [{"role": role, "content": role} for role in ("assistant", "tool", "assistant")]
    example = [{"role": "user", "content": "?"}, said[0]]
    record = {"prompt": example, "completion": said, "trajectory": turns(row, said)}
    (rollout,) = rollouts_of(record, lambda ids: list(map(str, ids)))
    tokens = [each.tokens for each in rollout.messages]
    second = () if left_out else (Token("6", -0.6), Token("9", -0.9))
    assert tokens == [(), (), (Token("2", -0.2), Token("3", -0.3)), (), second]


def test_only_so_many_tokens_of_a_step_are_kept_and_steps_without_a_log_are_written(
    trl: Any, tmp_path: Path
) -> None:
    watch = LlamaGymWatch(tmp_path / "run", most_tokens=3 * 8)
    trained(trl, "GRPO", tmp_path, watch, logging_steps=2, max_completion_length=4)
    events = list(read_events(tmp_path / "run"))
    inspected = {each.episode % 8 for each in events if isinstance(each, TurnInspected)}
    assert inspected == {0, 1, 2, 3, 4, 5}, "six rollouts of at most four tokens"
    first, second = state(tmp_path / "run").history.samples
    assert math.isnan(first.stats.kl_ref)
    assert second.stats.kl_ref == pytest.approx(0.0, abs=1e-6)


def test_a_fault_of_the_watch_does_not_reach_the_trainer(trl: Any, tmp_path: Path) -> None:
    watch = LlamaGymWatch(tmp_path / "run", tokenizer=object())
    trainer, _ = trained(trl, "GRPO", tmp_path, watch)
    assert len(warnings_of(tmp_path / "run")) == 1
    assert trainer.state.global_step == 2
    assert state(tmp_path / "run").updates == 2


def test_of_a_trainer_without_rollouts_the_figures_are_written(trl: Any, tmp_path: Path) -> None:
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer

    said = [*PROMPTS[0], {"role": "assistant", "content": '{"action": 1}'}]
    trl.SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(bundled_model_path()),
        processing_class=AutoTokenizer.from_pretrained(bundled_model_path()),
        train_dataset=Dataset.from_list([{"messages": said}] * 4),
        args=trl.SFTConfig(
            output_dir=str(tmp_path / "out"),
            per_device_train_batch_size=2,
            max_steps=2,
            logging_steps=1,
            use_cpu=True,
            bf16=False,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        ),
        callbacks=[LlamaGymWatch(tmp_path / "run")],
    ).train()
    shown = state(tmp_path / "run")
    losses = shown.history.values("policy_loss")
    assert len(losses) == 2
    assert losses[0][1] > losses[1][1] > 0
    (warning,) = warnings_of(tmp_path / "run")
    assert "only figures are written" in warning
