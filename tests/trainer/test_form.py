"""What a run does where most replies of a model that has learnt nothing here name no action."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from llamagym_tui import run_store
from llamagym_tui.config import RunConfig
from llamagym_tui.errors import UsageError
from llamagym_tui.protocol.events import WarningRaised
from llamagym_tui.setup.run_config import run_config
from llamagym_tui.trainer.form import unread_share
from llamagym_tui.trainer.rollout.episode_counts import EpisodeCounts
from tests.fake_parts import Stage


def stage_with(
    monkeypatch: pytest.MonkeyPatch, folder: Path, unread: float, **settings: object
) -> Stage:
    """A session that has ended, of whose first replies such a share named no action."""
    monkeypatch.setattr("llamagym_tui.trainer.session.unread_share", lambda *parts: unread)
    stage = Stage(folder, episodes=2, **{"form": "auto", **settings})
    assert stage.session.run() == "stopped"
    return stage


@dataclass
class Replies:
    """Builders whose model's replies name an action or not, in turn."""

    config: RunConfig
    named: str
    """A letter for each: ``y`` or ``n``."""

    def evaluate(
        self,
        *parts: object,
        ended: list[EpisodeCounts],
        should_stop: Callable[[], bool],
        progress: Callable[[int], None],
        episodes: int,
        **_: object,
    ) -> None:
        while len(ended) < episodes and not should_stop():
            letters = self.named[len(ended) : len(ended) + self.config.n_envs]
            ended += [EpisodeCounts(length=1, parse_failures=int(name == "n")) for name in letters]
            progress(len(ended))


@pytest.mark.parametrize(
    ("named", "share", "told"),
    [
        ("n" * 16, 1.0, [8]),  # eight of sixteen is half of them, whatever the others are
        ("n" * 7 + "y" * 9, 7 / 16, [8, 16]),
        ("y" * 8 + "n" * 8, 0.5, [8, 16]),
    ],
)
def test_no_more_replies_are_tried_than_it_takes(named: str, share: float, told: list[int]):
    tried: list[int] = []
    builders = Replies(RunConfig(agent="blackjack", run_dir=""), named)
    parts = SimpleNamespace(agent=None, policy=None, rollout=SimpleNamespace(system_prompt="Play."))
    found = unread_share(builders, parts, lambda done, of: tried.append(done))  # type: ignore[arg-type]
    assert (found, tried) == (share, told)


@pytest.mark.parametrize(
    ("unread", "settings", "policy"),
    [
        (0.94, {}, "score"),
        (0.5, {}, "score"),
        (0.49, {}, "generate"),
        (0.94, {"form": "off"}, "generate"),
    ],
)
def test_replies_are_chosen_by_score_where_most_name_no_action_unless_it_is_off(
    monkeypatch, tmp_path, unread, settings, policy
):
    stage = stage_with(monkeypatch, tmp_path, unread, **settings)
    assert stage.policy.generation.policy == policy
    assert run_store.read_config(tmp_path).generation.policy == policy
    told = [event.message for event in stage.of(WarningRaised)]
    if policy == "score":
        (message,) = told
        assert message.startswith(f"{unread:.0%} of the first replies of this model name no action")
        assert "--form off" in message
    else:
        assert told == []


def test_what_was_found_is_not_tried_again_by_a_resumed_run(monkeypatch, tmp_path):
    before = stage_with(monkeypatch, tmp_path, 0.94)
    after = Stage(tmp_path, form="auto", episodes=4, resume=True)
    after.builders.saved.extend(before.builders.saved)
    monkeypatch.setattr("llamagym_tui.trainer.session.unread_share", lambda *parts: 1 / 0)
    assert after.session.run() == "stopped"


def test_who_names_the_policy_has_chosen_the_form():
    def chosen(*assignments: str, **options: object) -> tuple[str, str]:
        config = run_config(
            agent="blackjack",
            run_dir=None,
            resume=False,
            assignments=assignments,
            **options,  # type: ignore[arg-type]
        )
        return config.form, config.generation.policy

    assert chosen() == ("auto", "generate")
    assert chosen(form="score") == ("score", "score")
    assert chosen("generation.policy=generate") == ("off", "generate")
    assert chosen("generation.policy=generate", form="auto") == ("auto", "generate")


def test_an_adapter_is_on_the_head_where_actions_have_names_and_one_process_trains():
    def layers(*assignments: str, agent: str = "blackjack", **options: object) -> str:
        config = run_config(
            agent=agent,
            run_dir=None,
            resume=False,
            model="smollm2",
            assignments=assignments,
            **options,  # type: ignore[arg-type]
        )
        return config.lora.layers

    assert layers() == "head"
    assert layers("lora.layers=all") == "all"
    assert layers("lora.layers=top") == "top"
    assert layers("lora.target_modules=all-linear") == "all"
    assert layers("generation.server=http://localhost:8000/v1") == "all"
    assert layers(ranks=2) == "all"


def test_settings_of_an_adapter_are_refused_where_other_weights_are_trained(tmp_path):
    def refusal(*assignments: str, **options: object) -> str:
        with pytest.raises(UsageError) as refused:
            run_config(
                agent="blackjack",
                run_dir=None,
                resume=False,
                assignments=assignments,
                **options,  # type: ignore[arg-type]
            )
        return str(refused.value)

    assert refusal("lora.r=8", "lora.layers=all") == (
        "All weights of bundled are trained, so lora.r, lora.layers would have no effect: leave it out, or add "
        "--set full_finetuning=false for an adapter."
    )
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "adapter_config.json").write_text("{}")
    for given in ("lora.r=8", "full_finetuning=true"):
        said = refusal(given, model=str(tmp_path))
        assert "has an adapter, which is trained as it is: leave" in said
        assert given.partition("=")[0] in said


def test_a_head_alone_is_not_trained_by_several_processes(tmp_path):
    from llamagym_tui.setup.run_config import with_run_dir

    config = run_config(
        agent="blackjack",
        run_dir=tmp_path / "run",
        resume=False,
        model="smollm2",
        ranks=2,
        assignments=["lora.layers=head"],
    )
    with pytest.raises(UsageError, match=r"leave out --ranks, or add --set lora\.layers=all"):
        with_run_dir(config)
