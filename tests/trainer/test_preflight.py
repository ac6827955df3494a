"""A run that does not fit into memory is refused before its weights are loaded, with what would fit."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import gymnasium
import pytest
from msgspec.structs import replace
from transformers import AutoTokenizer, Qwen2Config

from llamagym_tui.config import GenerationConfig, RunConfig
from llamagym_tui.engine.memory import workload_of
from llamagym_tui.engine.model.loading import held_as
from llamagym_tui.engine.model.sources import bundled_model_path
from llamagym_tui.engine.tokens.tokenization import ChatTokenizer
from llamagym_tui.errors import EnvError, ModelLoadError, PromptTooLongError, UsageError
from llamagym_tui.protocol.events import SessionFailed, WarningRaised
from llamagym_tui.setup import catalog
from llamagym_tui.trainer import preflight as module
from llamagym_tui.trainer.event_sinks import session_failed
from llamagym_tui.trainer.preflight import preflight, would_fit
from tests.fake_parts import Loaded, Stage
from tests.text_env import ROOMS, CommandAgent
from tests.toy_env import CountAgent

GIB = 2**30


@pytest.fixture(scope="module")
def half_billion(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with the configuration and tokenizer of a 0.5 B model, its weights empty."""
    folder = tmp_path_factory.mktemp("half-billion")
    config = Qwen2Config(
        hidden_size=896, num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2,
        intermediate_size=4864, vocab_size=151_936, tie_word_embeddings=True,
    )  # fmt: skip
    config.save_pretrained(folder)
    AutoTokenizer.from_pretrained(bundled_model_path(), local_files_only=True).save_pretrained(
        folder
    )
    (folder / "model.safetensors").touch()
    return str(folder)


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch):
    """Say how much memory is free, and that this process holds nothing."""

    def say(gib: float) -> None:
        monkeypatch.setattr(module, "free_memory", lambda device: int(gib * GIB))
        monkeypatch.setattr(module, "held_memory", lambda device: 0)

    return say


def checked(model: str, **settings):
    config = RunConfig(agent="blackjack", run_dir="", model=model, device="cpu", **settings)
    return preflight(config, catalog.find_agent("blackjack")())


def test_a_half_billion_parameter_model_trains_with_an_adapter_on_24_gib(
    half_billion: str, there
) -> None:
    there(24.0)
    found = checked(half_billion)
    assert found is not None
    assert found.fits
    assert found.parameters == 494_032_768
    assert found.estimate.training == 5 * 4 * 8_798_208
    assert found.warning is None


def test_what_scores_cost_is_known_where_replies_change_with_the_turn(there, monkeypatch) -> None:
    there(24.0)
    scored = []
    monkeypatch.setattr(
        module, "workload_of", lambda *given: scored.append(given[3]) or workload_of(*given)
    )
    config = RunConfig(
        agent="chest", run_dir="", device="cpu", generation=GenerationConfig(policy="score")
    )
    assert preflight(config, CommandAgent()) is not None
    chat = ChatTokenizer(AutoTokenizer.from_pretrained(bundled_model_path(), local_files_only=True))
    names = ROOMS["attic, with key"][
        1
    ]  # the most tokens that can be admissible, two steps from the start
    assert scored[0] == [len(chat.reply_ids(name)) for name in names]


def test_where_prompts_leave_out_earlier_turns_the_longest_conversation_is_a_window_of_them() -> (
    None
):
    chat = ChatTokenizer(AutoTokenizer.from_pretrained(bundled_model_path(), local_files_only=True))
    agent = catalog.find_agent("blackjack")()
    config = RunConfig(agent="blackjack", run_dir="")
    lengths = {}
    for history in ("all", 0, 1):
        changed = replace(config, history=history)
        _, lengths[history] = module.conversations(agent, changed, chat, [["one", "two", "three"]])
    first = [
        len(chat.opening(agent.get_system_prompt(), text).rest) for text in ("one", "two", "three")
    ]
    later = [len(chat.continuation(text, ended=False)) for text in ("one", "two", "three")]
    assert lengths == {
        "all": [[first[0], *later[1:]]],
        0: [[length] for length in first],
        1: [[first[0]], [first[0] + 32 + later[1]], [first[1] + 32 + later[2]]],
    }


def test_a_run_that_finds_how_many_earlier_turns_help_is_counted_without_any() -> None:
    agent = catalog.find_agent("blackjack")()
    agent.history = None
    chat = ChatTokenizer(AutoTokenizer.from_pretrained(bundled_model_path(), local_files_only=True))
    given = RunConfig(agent="blackjack", run_dir="")
    _, whole = module.conversations(agent, given, chat, [["one", "two", "three"]])
    finding = replace(given, measured={"history": ""})
    _, found = module.conversations(agent, finding, chat, [["one", "two", "three"]])
    assert (len(whole), len(found)) == (1, 3)


def test_a_model_that_only_just_fits_is_warned_of(half_billion: str, there) -> None:
    there(24.0)
    need = checked(half_billion).estimate.total / GIB
    there(need / 0.9)
    assert f"about {need:.1f} GiB of the {need / 0.9:.1f} GiB" in checked(half_billion).warning
    there(need * 0.99)
    with pytest.raises(UsageError):
        checked(half_billion)


def test_a_refusal_names_what_is_needed_what_is_there_and_only_what_would_fit(
    half_billion: str, there
) -> None:
    there(24.0)
    full = checked(half_billion, full_finetuning=True, n_envs=16).estimate.total / GIB
    there(full - 1)
    with pytest.raises(UsageError) as refused:
        checked(
            half_billion,
            full_finetuning=True,
            n_envs=16,
            generation=GenerationConfig(max_new_tokens=8),
        )
    sentence = str(refused.value)
    assert f"and {full - 1:.1f} GiB are there on cpu; what would fit: a LoRA adapter" in sentence
    assert "bf16 weights" in sentence
    assert "environments" not in sentence  # there are 16 already


def test_each_change_that_is_enough_alone_is_named() -> None:
    config = RunConfig(agent="x", run_dir="", full_finetuning=False)
    short = would_fit(config, lambda c: c.n_envs <= 16 or c.generation.max_new_tokens <= 16)
    replies = "replies of 16 tokens (--set generation.max_new_tokens=16)"
    assert short == ["16 environments (--envs 16)", replies]
    assert would_fit(config, lambda c: c.n_envs <= 16 and c.generation.max_new_tokens <= 16) == []
    assert would_fit(config, lambda c: c.dtype == "bfloat16", learns=False) == []


def test_where_nothing_fits_a_smaller_model_is_proposed(half_billion: str, there) -> None:
    there(1.0)
    with pytest.raises(
        UsageError, match=r"and 1\.0 GiB are there on cpu; no single setting makes it fit"
    ):
        checked(half_billion)


def test_a_configuration_that_cannot_be_read_is_left_to_loading(tmp_path: Path, there) -> None:
    there(24.0)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").touch()
    assert checked(str(tmp_path)) is None


def test_weights_are_held_as_loading_would_hold_them() -> None:
    shape = module.counted_shape(
        Qwen2Config(hidden_size=32, num_hidden_layers=1, intermediate_size=32, vocab_size=99)
    )
    config = RunConfig(agent="x", run_dir="", model="some/model")
    assert held_as(config, shape)[0]
    assert not held_as(config, shape, is_adapted=True)[0]
    assert held_as(RunConfig(agent="x", run_dir="", dtype="bfloat16"), shape) == (False, 2)
    with pytest.raises(ModelLoadError, match="too coarse"):
        held_as(RunConfig(agent="x", run_dir="", dtype="bfloat16", full_finetuning=True), shape)


def test_a_session_reports_a_refusal_before_it_loads_a_model(tmp_path: Path) -> None:
    stage = Stage(
        tmp_path, faults={"preflight": UsageError("Too large."), "model": AssertionError("loaded")}
    )
    stage.session.run()
    assert [event.message for event in stage.of(SessionFailed)] == ["Too large."]
    assert isinstance(stage.session.error, UsageError)


def test_a_session_warns_and_goes_on(tmp_path: Path) -> None:
    stage = Stage(tmp_path, faults={"model": UsageError("Later.")})
    stage.builders.__dict__["memory_warning"] = "Scarce."
    stage.session.run()
    assert [event.message for event in stage.of(WarningRaised)] == ["Scarce."]


def test_a_model_that_is_right_but_slow_is_warned_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.fake_parts.Loaded", partial(Loaded, warning="Right but slow."))

    def ends(*_: object) -> None:
        raise EnvError("Later.")

    stage = Stage(tmp_path)
    stage.builders.__dict__["policy"] = ends
    stage.session.run()
    assert [event.message for event in stage.of(WarningRaised)] == ["Right but slow."]


def test_a_first_prompt_that_the_model_cannot_read_is_refused_before_memory_is_estimated(
    there,
) -> None:
    class Verbose(CountAgent):
        def format_observation(self, observation: int) -> str:
            return "q " * 25_000

    there(0.001)
    config = RunConfig(agent="count", run_dir="")
    with pytest.raises(
        PromptTooLongError,
        match=r"one observation of LlamaCount-v0 are \d\d,\d{3} tokens, .* 4,096",
    ):
        preflight(config, Verbose())


def failing(method: str) -> CountAgent:
    """An agent one of whose methods always divides by zero; `reset` and `step` are its environment's."""

    def divide(*_: object) -> int:
        return 1 // 0

    if method in ("reset", "step"):
        wrapper = type("Failing", (gymnasium.Wrapper,), {method: lambda *_, **__: divide()})
        return type("Bad", (CountAgent,), {"wrap_env": lambda self, env: wrapper(env)})()
    return type("Bad", (CountAgent,), {method: divide})()


@pytest.mark.parametrize("method", ["format_observation", "actions", "reset"])
def test_an_agent_that_cannot_begin_an_episode_is_refused_with_its_line(method: str, there) -> None:
    there(100.0)
    where = (
        rf"{__file__}, line \d+, in divide: ZeroDivisionError: integer division or modulo by zero;"
    )
    with pytest.raises(EnvError, match=f"^{where} LlamaCount-v0 cannot be played"):
        preflight(RunConfig(agent="count", run_dir="", device="cpu"), failing(method))


def test_an_episode_that_fails_later_is_left_to_the_rollout_to_report(there) -> None:
    class Later(CountAgent):
        def format_observation(self, observation: int) -> str:
            return f"{1 // (1 - observation)}"

    there(100.0)
    assert preflight(RunConfig(agent="count", run_dir="", device="cpu"), Later())
    assert preflight(RunConfig(agent="count", run_dir="", device="cpu"), failing("step"))


@pytest.mark.parametrize("method", ["get_system_prompt", "replies", "format_action"])
def test_a_session_that_fails_by_the_users_code_says_where(method: str, there) -> None:
    there(100.0)
    config = RunConfig(
        agent="count", run_dir="", device="cpu", generation=GenerationConfig(policy="score")
    )
    with pytest.raises(ZeroDivisionError) as caught:
        preflight(config, failing(method))
    said = session_failed(caught.value, Path("run.log")).message
    assert said.startswith(f"{__file__}, line ")
    assert ", in divide: ZeroDivisionError: integer division" in said
