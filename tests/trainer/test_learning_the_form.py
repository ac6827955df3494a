"""A run that learns the form first: on what, when, with what model afterwards, and what is said of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from msgspec.structs import replace

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.config import LoraConfig, RunConfig
from llamagym_tui.engine.learning import form as engine_form
from llamagym_tui.engine.learning.form import Form, FormLearnt
from llamagym_tui.errors import EnvError, UsageError
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.protocol.commands import Stop
from llamagym_tui.protocol.events import Progressed, WarningRaised
from llamagym_tui.setup import catalog
from llamagym_tui.setup.run_config import run_config
from llamagym_tui.trainer.builders import Builders
from llamagym_tui.trainer.event_builders import form_learnt
from llamagym_tui.trainer.form_lessons import form_lessons
from tests.engine.conftest import tiny_llama
from tests.fake_parts import Stage

LEARNT = FormLearnt(Form(0.03, 0.5), Form(0.994, 0.97), 71.4)
IDS = torch.tensor([[5, 6, 7, 8]])


def config_of(**settings: Any) -> RunConfig:
    return RunConfig(agent="blackjack", run_dir="", **settings)


def test_lessons_are_states_of_random_play_with_replies_drawn_at_random() -> None:
    agent = BlackjackAgent()
    lessons = form_lessons(agent, config_of(), 400)
    assert len(lessons) == 400
    assert {len(lesson) for lesson in lessons} == {3}, "no prompt has an earlier hand"
    assert {lesson[0]["content"] for lesson in lessons} == {agent.get_system_prompt()}
    replies = Counter(lesson[-1]["content"] for lesson in lessons)
    assert set(replies) == {agent.format_action(0), agent.format_action(1)}
    assert min(replies.values()) == 200, "each as often"
    assert len({lesson[1]["content"] for lesson in lessons}) > 100
    hits = Counter(
        lesson[1]["content"].split(".")[0]
        for lesson in lessons
        if lesson[-1]["content"] == agent.format_action(1)
    )
    assert len(hits) > 10, "whatever the total"
    assert form_lessons(agent, config_of(), 400) == lessons, "the same seed"
    assert form_lessons(agent, config_of(seed=1), 400) != lessons


@pytest.mark.parametrize(("history", "longest"), [(1, 2), ("all", 8)])
def test_lessons_have_the_turns_that_prompts_have_and_teach_the_last_reply(
    history: Any, longest: int
) -> None:
    config = config_of(history=history, system_prompt="Hit below 17.")
    lessons = form_lessons(BlackjackAgent(), config, 100)
    turns = [sum(message["role"] == "user" for message in lesson) for lesson in lessons]
    assert 2 <= max(turns) <= longest
    for lesson in lessons:
        weights = [each.get("weight", 1) for each in lesson if each["role"] == "assistant"]
        assert weights == [0] * (len(weights) - 1) + [1]
        assert lesson[0]["content"] == "Hit below 17."


def test_where_a_reason_is_asked_for_each_lessons_action_follows_a_reason_of_its_own() -> None:
    agent = catalog.find_agent("blackjack", prompt="reason")()
    lessons = form_lessons(agent, config_of(history="all"), 300)
    said = Counter(lesson[-1]["content"] for lesson in lessons)
    by_action = [agent.replies(action) for action in (0, 1)]
    assert set(said) == {*by_action[0], *by_action[1]}
    assert [sum(said[reply] for reply in replies) for replies in by_action] == [150, 150]
    assert min(said.values()) > 30, "reasons are drawn at random, too"
    earlier = {m["content"] for lesson in lessons for m in lesson[:-1] if m["role"] == "assistant"}
    assert earlier <= set(said), "what the policy will have said before"
    assert {lesson[0]["content"] for lesson in lessons} == {agent.get_system_prompt()}


def test_a_prompt_that_asks_for_a_reason_has_room_for_one_and_its_form_is_learnt(
    tmp_path: Path,
) -> None:
    config = options("blackjack", prompt="reason", model="smollm2")
    assert (config.form, config.generation.policy, config.lora.layers) == (
        "learn",
        "generate",
        "head",
    )
    assert config.generation.max_new_tokens == 48
    assert catalog.agent_of(config).asks_reason
    given = options(
        "frozen-lake", "generation.max_new_tokens=20", prompt="reason", form="off", model="smollm2"
    )
    assert (given.form, given.generation.max_new_tokens) == ("off", 20)
    assert options("blackjack", "generation.policy=score", prompt="reason").form == "off"
    assert options("blackjack").generation.max_new_tokens == 32
    with pytest.raises(
        UsageError, match=r"cart_pole has no prompt that asks for a reason.*blackjack"
    ):
        options("cart_pole", prompt="reason")
    run = tmp_path / "run"
    (run / "model").mkdir(parents=True)
    (run / "events.jsonl").write_bytes(b"")
    (run / "config.json").write_bytes(msgspec.json.encode(replace(config, run_dir=str(run))))
    resumed = run_config(agent=None, run_dir=run, resume=True)
    assert (resumed.prompt, resumed.generation.max_new_tokens) == ("reason", 48)
    with pytest.raises(UsageError, match="under the prompt 'reason', which it keeps"):
        run_config(agent=None, run_dir=run, resume=True, prompt="own")


def test_an_environment_that_cannot_be_played_teaches_nothing() -> None:
    class Broken(BlackjackAgent):
        def format_observation(self, observation: Any) -> str:
            raise ValueError("no words")

    with pytest.raises(EnvError, match="in format_observation: ValueError: no words; Blackjack-v1"):
        form_lessons(Broken(), config_of(), 10)


@pytest.fixture
def made(tmp_path: Path, tokenizer, monkeypatch: pytest.MonkeyPatch) -> Builders:
    """Builders of a run with a tiny model, whose form takes few steps."""
    monkeypatch.setattr("llamagym_tui.trainer.builders.LESSONS", 24)
    model = tmp_path / "tiny"
    tiny_llama(len(tokenizer)).save_pretrained(model)
    tokenizer.save_pretrained(model)
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    config = replace(
        config_of(model=str(model), form="learn", full_finetuning=False, threads=1, device="cpu"),
        run_dir=str(run_dir),
        lora=LoraConfig(layers="head", r=4),
    )
    return Builders(config)


def test_the_runs_model_is_the_one_that_has_learnt_the_form(made: Builders) -> None:
    before = made.model().model.pretrained_model(IDS).logits
    learnt = made.learn_form(
        made.agent(), progress=lambda done, total: None, should_stop=lambda: False
    )
    loaded = made.model()
    after = loaded.model.pretrained_model(IDS).logits
    assert learnt.after != learnt.before
    assert not torch.allclose(after, before, atol=1e-3)
    assert loaded.model.has_narrow_head, "the form's own adapter is merged"
    assert loaded.name == made.config.model
    card = Path(made.config.run_dir, "form", "README.md").read_text()
    assert f"base_model: {made.config.model}\n" in card
    assert "was not taught to play" in card
    # The same from the run's settings alone, as a resumed run has them.
    resumed = Builders(replace(made.config, resume=True)).model()
    torch.testing.assert_close(resumed.model.pretrained_model(IDS).logits, after)


def test_a_stop_ends_the_lesson(made: Builders) -> None:
    steps: list[int] = []
    made.learn_form(
        made.agent(),
        progress=lambda done, total: steps.append(done),
        should_stop=lambda: len(steps) >= 1,
    )
    assert steps == [1], "of six: the second one ends between two layers"
    assert made.model().name == made.config.model


def lesson_of(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> tuple[list[AgentBase], list[bool]]:
    """Who is taught in a session on fakes, and whether the lesson is to stop, before and after a person wants it to."""
    taught: list[AgentBase] = []
    stops: list[bool] = []

    def learn_form(_: Any, agent: AgentBase, *, progress: Any, should_stop: Any) -> FormLearnt:
        assert "loaded" not in stage.builders.made, "the run's own model comes after it"
        taught.append(agent)
        stage.builders.clock.now += 1.0
        progress(8, 24)
        stops.append(should_stop())
        stage.command_queue.put(Stop())
        stops.append(should_stop())
        return LEARNT

    monkeypatch.setattr(type(stage.builders), "learn_form", learn_form)
    return taught, stops


def test_a_run_learns_the_form_before_its_model_is_loaded_and_says_what_came_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path, episodes=2, form="learn")
    taught, stops = lesson_of(stage, monkeypatch)
    assert stage.session.run() == "stopped"
    assert taught == [stage.agent]
    assert stops == [False, True]
    progress = stage.of(Progressed)
    assert (progress[0].doing, progress[0].done, progress[0].total) == ("learning the form", 8, 24)
    assert [each.message for each in stage.of(WarningRaised)] == [
        "The form is learnt, in 71 s: 0.6% of replies name no action in it (97% before), and the entropy of the "
        "action is 0.97 of its maximum: no play was taught."
    ]


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (
            0.97,
            0.97,
            "is known already (3.0% of replies name no action in it), so it was not taught again",
        ),
        (0.0, 0.3, "is not learnt: after 9 s 70% of replies name no action in it (100% before)"),
    ],
)
def test_it_is_said_where_nothing_was_taught_and_where_it_was_in_vain(
    before: float, after: float, words: str
) -> None:
    assert words in form_learnt(FormLearnt(Form(before, 1.0), Form(after, 1.0), 9.0))


def test_a_resumed_run_learns_no_form_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Stage(tmp_path, episodes=2)
    before.session.run()
    stage = Stage(tmp_path, episodes=4, form="learn", resume=True)
    stage.builders.saved.extend(before.builders.saved)
    taught, _ = lesson_of(stage, monkeypatch)
    assert stage.session.run() == "stopped"
    assert taught == []


def options(agent: str, *assignments: str, **given: Any) -> RunConfig:
    return run_config(agent=agent, run_dir=None, resume=False, assignments=assignments, **given)


def test_only_an_agent_that_names_actions_can_learn_the_form(tmp_path: Path) -> None:
    (tmp_path / "free.py").write_text(
        "from llamagym_tui import Agent\n"
        "class Free(Agent):\n"
        "    env_id = 'MountainCarContinuous-v0'\n"
        "    def get_system_prompt(self): return ''\n"
        "    def format_observation(self, observation): return ''\n"
        "    def extract_action(self, response): return [0.0]\n"
    )
    with pytest.raises(UsageError, match="Free has no named ones; leave it out"):
        options(str(tmp_path / "free.py"), form="learn")
    with pytest.raises(UsageError, match="one process that samples itself"):
        options("blackjack", form="learn", ranks=2)
    with pytest.raises(UsageError, match="one process that samples itself"):
        options("blackjack", "generation.server=http://localhost:1/v1", form="learn")
    config = options("blackjack", form="learn", model="smollm2")
    assert (config.form, config.generation.policy, config.lora.layers) == (
        "learn",
        "generate",
        "head",
    )


def test_what_imitates_gets_an_adapter_on_all_layers() -> None:
    assert options("blackjack", model="smollm2").lora.layers == "head"
    assert options("blackjack", model="smollm2", sft_data="x.jsonl").lora.layers == "all"
    assert msgspec.to_builtins(engine_form.ADAPTER)["layers"] == "all"
