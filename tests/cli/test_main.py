"""The command line: options reach the right place, and every mistake gets one sentence."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import typer
from filelock import FileLock
from typer.testing import CliRunner, Result

from llamagym_tui.agents.sorting import SortingAgent
from llamagym_tui.cli import evaluation, main, sorting, training
from llamagym_tui.cli.main import app
from llamagym_tui.errors import ModelLoadError, UsageError
from llamagym_tui.runs import model_registry
from llamagym_tui.settings import RunConfig
from llamagym_tui.setup import catalog, run_config
from llamagym_tui.setup.run_config import checked_model
from tests import fakes
from tests.recorded_run import record

SHIPPED = Path(__file__).resolve().parents[2] / "sft_data" / "blackjack.jsonl"


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "data"
    monkeypatch.setenv("LLAMAGYM_TUI_DATA", str(folder))
    return folder


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


BEGINS = "--device --dtype --env --envs --episodes --from --history --learner --minutes --mode --model --prompt-file"
BEGINS += " --ranks --read-depth --resume --run-dir --seed --set --threads --track --wordings"
IMITATES = "--device --dtype --env --episodes --history --json --model --prompt-file --run-dir --seed --set"
IMITATES += " --sft-data --threads"
MEASURES = "--device --dtype --env --envs --episodes --greedy --history --json --model --prompt-file --sampled --seed"
MEASURES += " --set --threads"
COMMAND_LINE = {
    "play": BEGINS,
    "train": f"{BEGINS} --final-episodes --json --sft-data --sft-warm-start --trust-agent",
    "sft": IMITATES,
    "dpo": IMITATES,
    "eval": MEASURES,
    "compare": f"{MEASURES} --b-model --b-prompt-file --b-temperature --half-width",
    "match": "--b-model --device --envs --episodes --greedy --json --model --sampled --seed --set --threads",
    "sort": "--actions --device --model --prompt-file --reward --set --threads",
    "report": "--csv --film --output -o",
    "export": "--gguf --merge",
    "serve": "--host --port --seats --sessions --watch",
    "lessons": "",
    "replay": "--follow",
}
"""Options of each command; all take --debug."""


def test_scripts_go_by_the_options_of_each_command() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for name, words in COMMAND_LINE.items():
        found = [
            word for each in commands[name].params for word in [*each.opts, *each.secondary_opts]
        ]
        options = {word for word in found if word.startswith("-")}
        assert options == set(words.split()), name


def test_sort_reads_its_items_by_the_settings_that_were_typed(tmp_path: Path) -> None:
    items = tmp_path / "things.txt"
    items.write_text("a lamp\na chair\n", encoding="utf-8")
    words = ("sort", str(items), "--actions", "keep,bin", "--threads", "2")
    assert run(*words, "--set", "lora.r=8").output == "llamagym-tui: Sorting needs a terminal.\n"
    assert "--actions names 1 different" in run(*words[:3], "keep").output
    assert "name a model that is loaded here" in run(*words, "--model", "http://a/v1").output


@pytest.fixture
def sorts(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is sorted on the screen, which is not shown."""
    found: list[Any] = []
    monkeypatch.setattr(sorting, "sort", lambda reading: found.append(reading) or 0)
    monkeypatch.setattr(main, "_is_shown", lambda: True)
    return found


def test_a_file_with_actions_is_sorted_without_the_name_of_the_command(
    sorts: list[Any], tmp_path: Path
) -> None:
    items = tmp_path / "things.txt"
    items.write_text("a lamp\na chair\n", encoding="utf-8")
    assert run(str(items), "--actions=keep,later,bin", "--model", "smollm2").exit_code == 0
    (reading,) = sorts
    assert reading.path == items
    assert reading.actions == ["keep", "later", "bin"]
    assert reading.config.model == "smollm2"


def test_a_person_is_the_reward_of_an_agent_that_has_items(sorts: list[Any], data: Path) -> None:
    assert run("sorting", "--reward", "me").exit_code == 0
    (reading,) = sorts
    assert reading.path == data / "judged" / "sorting.txt"
    assert reading.path.read_text("utf-8").splitlines() == list(SortingAgent.items)
    assert reading.actions == list(SortingAgent.action_names)
    assert reading.prompt == SortingAgent().get_system_prompt()


def test_an_agent_without_items_cannot_be_rewarded_by_a_person() -> None:
    assert (
        "blackjack has no items that a person could judge"
        in run("blackjack", "--reward", "me").output
    )


class Headless:
    """Stands for the module that trains: keeps the calls."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.calls: list[Any] = []

    def train(self, config: RunConfig, **options: Any) -> None:
        self.calls.append((config, options))
        if self.error is not None:
            raise self.error

    evaluate = train


@pytest.fixture
def headless(monkeypatch: pytest.MonkeyPatch) -> Headless:
    return install(monkeypatch, Headless())


def install(monkeypatch: pytest.MonkeyPatch, fake: Headless) -> Headless:
    monkeypatch.setattr(training, "train", fake.train)
    monkeypatch.setattr(evaluation, "evaluate", fake.evaluate)
    return fake


def test_train_hands_its_options_to_the_session(headless: Headless, tmp_path: Path) -> None:
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("Hit below 13.\n", encoding="utf-8")
    result = run(
        *(
            "train",
            "blackjack",
            "--episodes",
            "20",
            "--minutes",
            "1.5",
            "--seed",
            "3",
            "--envs",
            "16",
        ),
        *(
            "--device",
            "cpu",
            "--threads",
            "2",
            "--mode",
            "inference",
            "--prompt-file",
            str(prompt),
            "--json",
        ),
        *("--run-dir", str(tmp_path / "run"), "--set", "max_turns=9"),
    )
    assert result.exit_code == 0, result.stderr
    [(config, options)] = headless.calls
    assert config == RunConfig(
        agent="blackjack",
        run_dir=str(tmp_path / "run"),
        episodes=20,
        minutes=1.5,
        seed=3,
        n_envs=16,
        device="cpu",
        threads=2,
        mode="inference",
        system_prompt="Hit below 13.",
        max_turns=9,
        measured={name: "" for name in fakes.MEASURED_OF_HEAD if name != "n_envs"},
        **fakes.HEAD_ALONE,
    )
    assert options == {"json_output": True}


def write_agent(folder: Path, more: str = "pass") -> Path:
    methods = (
        "get_system_prompt(self)",
        "format_observation(self, observation)",
        "extract_action(self, response)",
    )
    body = "".join(f"    def {method}: return ''\n" for method in methods)
    source = f"from llamagym_tui import Agent\nclass Mine(Agent):\n    env_id = 'Taxi-v4'\n    {more}\n{body}"
    (folder / "mine.py").write_text(source, encoding="utf-8")
    return folder / "mine.py"


def test_a_relative_agent_file_is_absolute_for_the_trainer(
    headless: Headless, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_agent(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert run("train", "./mine.py:Mine").exit_code == 0
    assert headless.calls[0][0].agent == f"{tmp_path / 'mine.py'}:Mine"


def test_eval_hands_its_options_on(headless: Headless) -> None:
    result = run(
        *(
            "eval",
            "blackjack",
            "--episodes",
            "50",
            "--sampled",
            "--seed",
            "7",
            "--envs",
            "8",
            "--json",
        ),
        *("--env", "sab=true"),
    )
    assert result.exit_code == 0, result.stderr
    [(config, options)] = headless.calls
    assert options == {"episodes": 50, "greedy": False, "json_output": True}
    assert (config.agent, config.model, config.mode, config.run_dir) == (
        "blackjack",
        "bundled",
        "inference",
        "",
    )
    assert (config.seed, config.n_envs, config.env, config.device) == (7, 8, {"sab": True}, "auto")
    assert (config.threads, config.system_prompt) == (None, None)


def test_eval_obeys_settings_of_play(headless: Headless) -> None:
    settings = ["--set", "generation.temperature=0.5", "--set", "max_turns=7"]
    result = run("eval", "blackjack", "--dtype", "bfloat16", *settings)
    assert result.exit_code == 0, result.stderr
    config = headless.calls[0][0]
    assert (config.dtype, config.max_turns, config.generation.temperature) == ("bfloat16", 7, 0.5)


def test_eval_goes_by_what_the_agent_sets_for_its_runs(headless: Headless, tmp_path: Path) -> None:
    path = write_agent(tmp_path, "run_settings = {'max_turns': 5}")
    assert run("eval", str(path)).exit_code == 0
    assert headless.calls[0][0].max_turns == 5


def a_run_folder(folder: Path, **settings: Any) -> RunConfig:
    config = RunConfig(agent="blackjack", run_dir=str(folder), seed=5, n_envs=32, **settings)
    (folder / "model").mkdir(parents=True)
    (folder / "config.json").write_bytes(msgspec.json.encode(config))
    (folder / "events.jsonl").write_bytes(b"")
    return config


def test_a_local_model_is_absolute_for_the_trainer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_run_folder(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    assert checked_model("./run") == str(tmp_path / "run")
    assert checked_model("run") == str(tmp_path / "run")


def test_a_model_is_named_by_its_run_and_update_too(data: Path, tmp_path: Path) -> None:
    a_run_folder(data / "runs" / "mine")
    (data / "runs" / "mine" / "update-3").mkdir()
    assert checked_model("mine") == str(data / "runs" / "mine")
    assert (
        checked_model("mine@3")
        == checked_model(f"{data}/runs/mine@3")
        == str(data / "runs" / "mine" / "update-3")
    )
    with pytest.raises(UsageError, match=r"keeps no checkpoint of update 4; it has 3\."):
        checked_model("mine@4")


def test_resume_keeps_the_runs_settings_except_those_that_are_given(
    headless: Headless, tmp_path: Path
) -> None:
    earlier = a_run_folder(tmp_path / "run", history=3)
    assert (
        run("train", "--resume", "--run-dir", str(tmp_path / "run"), "--minutes", "2").exit_code
        == 0
    )
    assert headless.calls[0][0] == msgspec.structs.replace(earlier, minutes=2.0, resume=True)


def test_a_run_that_names_its_own_agent_file_needs_trust_agent(
    headless: Headless, tmp_path: Path
) -> None:
    agent = tmp_path / "own.py"
    agent.write_text("", encoding="utf-8")
    folder = record(tmp_path / "run", fakes.opening_events(), checkpoint=True, agent=str(agent))
    refused = run("train", "--resume", "--run-dir", str(folder))
    assert (refused.exit_code, headless.calls) == (2, [])
    assert "own.py" in refused.stderr
    assert "--trust-agent" in refused.stderr
    assert run("train", "--resume", "--run-dir", str(folder), "--trust-agent").exit_code == 0
    assert len(headless.calls) == 1


def test_any_setting_can_be_given_and_a_resumed_run_keeps_the_others_of_its_section(
    headless: Headless, tmp_path: Path
) -> None:
    folder = ["--run-dir", str(tmp_path / "run")]
    assert (
        run(
            "train", "blackjack", *folder, "--set", "ppo.lr=1e-3", "--set", "ppo.target_kl=0.02"
        ).exit_code
        == 0
    )
    earlier = headless.calls[0][0]
    assert (earlier.ppo.lr, earlier.ppo.target_kl) == (1e-3, 0.02)
    a_run_folder(tmp_path / "run", ppo=earlier.ppo)
    assert run("train", "--resume", *folder, "--set", "ppo.lr=1e-4").exit_code == 0
    assert headless.calls[1][0].ppo == msgspec.structs.replace(earlier.ppo, lr=1e-4)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["blackjak"], "no agent named 'blackjak'; did you mean blackjack"),
        (["train", "blackjak"], "no agent named 'blackjak'; did you mean blackjack"),
        (["eval", "blackjak"], "no agent named 'blackjak'; did you mean blackjack"),
        (["train"], "Name an agent"),
        (["eval"], "Missing argument 'AGENT'"),
        (["blackjack"], "needs a terminal; without one, use `llamagym-tui train blackjack`"),
        ([], "needs a terminal; without one, use `llamagym-tui train"),
        (["table", "blackjack"], "A table needs a terminal."),
        (["table", "blackjak"], "no agent named 'blackjak'; did you mean blackjack"),
        (["table", "CliffWalking-v1", "--env", "size=9"], "unexpected keyword argument 'size'"),
        (["blackjack", "--model", "./nope"], "no model folder ./nope"),
        (
            ["blackjack", "--prompt-file", "nope.txt"],
            "prompt file nope.txt cannot be read: [Errno 2] No such file",
        ),
        (["blackjack", "--envs", "0"], "--envs takes a whole number from 1, not '0'"),
        (["train", "blackjack", "--minutes", "-5"], "--minutes takes a number above 0 or none"),
        (["train", "blackjack", "--history", "-1"], "--history takes all or own or a whole number"),
        (["sft", "blackjack", "--set", "dpo.beta=0.2"], "not made here but by the command dpo."),
        (["train", "blackjack", "--set", "sft.lr=1e-4"], "by --sft-warm-start, or the command sft"),
        (["match", "blackjack", "--b-model", "expert"], "blackjack is no game for two"),
        (["match", "tic-tac-toe", "--b-model", "self"], "against somebody else"),
        (
            ["match", "tic-tac-toe", "--model", "http://localhost:1", "--b-model", "expert"],
            "A has to be a model that is loaded here: name the endpoint as --b-model",
        ),
        (
            ["train", "tic-tac-toe", "--env", "opponent=me"],
            "opponent is one of random, careful, expert, first, self, a run (RUN or RUN@UPDATE), a model",
        ),
        (
            ["train", "tic-tac-toe", "--env", "opponent=expert+"],
            "opponent is one of random, careful,",
        ),
        (
            ["serve", "tic-tac-toe", "--seats", "3", "--env", "opponent=bundled"],
            "A class plays against an opponent of the agent's own, and bundled is a policy",
        ),
        (
            ["train", "tic-tac-toe", "--env", "opponent=self+bundled"],
            "self, bundled are several policies",
        ),
        (
            ["eval", "tic-tac-toe", "--model", "http://localhost:1", "--env", "opponent=bundled"],
            "An endpoint plays against a policy as its opponent alone",
        ),
        (
            ["demos", "generate", "tic-tac-toe", "--env", "opponent=bundled"],
            "choose an opponent among random, careful, expert, first",
        ),
        (["train", "blackjack", "--mode", "dream"], "--mode takes inference or train, not 'dream'"),
        (["train", "blackjack", "--resume"], "--resume needs --run-dir"),
        (
            ["train", "--resume", "--run-dir", "nope"],
            "nope to resume; `llamagym-tui runs` lists them",
        ),
        (["train", "./nope.py", "--envs", "1"], "no agent file"),
        (
            ["train", "blackjack", "--set", "ppo.gama=1"],
            "There is no setting 'ppo.gama'; near it: ppo.gamma",
        ),
        (["blackjack", "--set", "ppo.lr=-1"], "ppo.lr takes a number above 0, not '-1'"),
        (["--nope"], "No such option: --nope"),
    ],
)
def test_a_mistake_gets_one_sentence_on_stderr(words: list[str], sentence: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert result.stdout == ""


def test_a_broken_agent_file_is_reported_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("x = 1\nthis is not Python\n", encoding="utf-8")
    result = run("train", str(path))
    assert result.exit_code == 2
    assert f"{path}, line 2: " in result.stderr


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            ModelLoadError("The hub cannot be reached."),
            "llamagym-tui: The hub cannot be reached.\n",
        ),
    ],
)
def test_a_failure_is_one_sentence_and_code_1(
    monkeypatch: pytest.MonkeyPatch, error: Exception, sentence: str
) -> None:
    install(monkeypatch, Headless(error=error))
    result = run("train", "blackjack")
    assert (result.exit_code, result.stderr) == (1, sentence)


def test_a_fault_of_somebody_elses_code_is_told_with_file_and_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, Headless(error=ValueError("odd\nand more")))
    result = run("train", "blackjack")
    assert result.exit_code == 1
    assert re.fullmatch(
        r"llamagym-tui: Unexpected ValueError: odd \(\S+test_main\.py, line \d+\); "
        r"run it again with --debug to see the traceback\.\n",
        result.stderr,
    )


def test_the_playground_opens_on_an_agent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    opened: list[RunConfig | None] = []

    def open_playground(config: RunConfig, **more: object) -> int:
        opened.append(config)
        return 1

    def open_home() -> int:
        opened.append(None)
        return 0

    fake = SimpleNamespace(open_playground=open_playground, open_home=open_home)
    monkeypatch.setitem(sys.modules, "llamagym_tui.app.app", fake)
    monkeypatch.setattr(main, "_require_terminal", lambda agent: None)
    assert run("blackjack", "--seed", "4", "--run-dir", str(tmp_path / "run")).exit_code == 1
    assert run().exit_code == 0
    assert opened == [
        RunConfig(
            agent="blackjack",
            run_dir=str(tmp_path / "run"),
            seed=4,
            measured=fakes.MEASURED_OF_HEAD,
            **fakes.HEAD_ALONE,
        ),
        None,
    ]


def test_agents_are_listed_with_what_they_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        catalog, "missing", lambda agent: "pip install it" if agent.extra == "minigrid" else ""
    )
    result = run("agents")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert len(lines) == len(catalog.built_in())
    known = catalog.built_in()["blackjack"].description
    assert lines[0] == f"blackjack            Blackjack-v1                   {known}"
    assert [
        line.split()[0] for line in lines if line.endswith(" Not installed: pip install it.")
    ] == ["babyai"]
    assert not [line for line in lines if ":" in line.split()[1]], "ids without their modules"


def test_a_command_hands_on_what_it_was_given(
    monkeypatch: pytest.MonkeyPatch, data: Path, tmp_path: Path
) -> None:
    calls: list[Any] = []

    def kept(name: str, code: Any = 3) -> Any:
        return lambda *words, **options: calls.append((name, *words, options)) or code

    fake = SimpleNamespace(
        open_playground=kept("playground"), open_replay=kept("replay"), open_home=kept("home")
    )
    monkeypatch.setitem(sys.modules, "llamagym_tui.app.app", fake)
    monkeypatch.setattr(main, "_is_shown", lambda: True)
    monkeypatch.setattr(run_config, "require_library", kept("library"))
    monkeypatch.setattr("llamagym_tui.cli.doctor.report", kept("doctor"))
    monkeypatch.setattr("llamagym_tui.cli.training.warm_start", kept("taught"))
    monkeypatch.setattr(run_config, "sft_file", lambda agent, given, method: "/mine.jsonl")
    a_run_folder(data / "runs" / "one")
    one, new = data / "runs" / "one", tmp_path / "new"
    assert run("blackjack", "--track", "wandb", "--run-dir", str(new)).exit_code == 3
    (library, playground), calls = calls, []
    assert library == ("library", "wandb", "wandb", {})
    assert (playground[1].track, playground[1].run_dir) == ("wandb", str(new))
    assert run("replay", "one").exit_code == 3
    assert run("doctor").exit_code == 3
    assert run("dpo", "blackjack", "--sft-data", "a", "--env", "sab=true").exit_code == 0
    config = calls[-1][1]
    assert (config.sft_data, config.env) == ("/mine.jsonl", {"sab": True})
    given = {"method": "dpo", "episodes": 2000, "json_output": False}
    assert calls == [
        ("replay", one, {"follows": False}),
        ("doctor", {}),
        ("taught", config, given),
    ]


def test_ctrl_c_before_anything_has_begun_is_one_word(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Headless(error=typer.Abort()))
    interrupted = run("train", "blackjack")
    assert (interrupted.exit_code, interrupted.stderr) == (1, "llamagym-tui: Interrupted.\n")


def test_runs_and_their_models_are_listed(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    none = run("runs")
    assert none.stdout == ""
    assert "llamagym-tui blackjack begins the first" in none.stderr
    a_run_folder(data / "runs" / "one")
    assert re.fullmatch(
        rf"[-\d]{{10}} \d\d:\d\d  blackjack        can be resumed  {data / 'runs' / 'one'}\n",
        run("runs").stdout,
    )
    with FileLock(data / "runs" / "one" / ".lock"):
        listed = run("runs").stdout
    assert ("running " in listed, str(data / "runs" / "one") in listed) == (True, True)
    a_run_folder(data / "runs" / "two")
    (data / "runs" / "two" / "model").rmdir()
    monkeypatch.setattr(model_registry, "is_here", lambda name: name == "bundled")
    models = run("models").stdout.splitlines()
    assert models[:3] == [
        "bundled                              1.05 M  here      mit",
        "HuggingFaceTB/SmolLM2-135M-Instruct   135 M  not here  apache-2.0",
        "google/gemma-3-270m-it                268 M  not here  gemma, gated",
    ]
    assert not [line for line in models if line.startswith(str(data / "runs" / "two"))]
    assert models[-1] == f"{data / 'runs' / 'one'}  bundled trained on blackjack"


def test_a_replay_needs_a_run_and_a_terminal(data: Path) -> None:
    assert "llamagym-tui blackjack begins one" in run("replay").stderr
    missing = run("replay", "nowhere")
    assert missing.exit_code == 2, "as any other wrong name"
    assert (
        missing.stderr == "llamagym-tui: There is no run nowhere; `llamagym-tui runs` lists them.\n"
    )
    a_run_folder(data / "runs" / "one")
    (data / "runs" / "one" / "events.jsonl").touch()
    refused = run("replay", "one")
    assert (refused.exit_code, "needs a terminal" in refused.stderr) == (2, True)


def test_demos_are_checked_and_listed(tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_bytes(b"{}\n" * 6)
    checked = run("demos", "check", str(bad))
    assert (checked.exit_code, checked.stdout.startswith(f"{bad}:1: ")) == (1, True)
    assert run("demos", "list", str(tmp_path)).stdout.startswith(f"{bad}, line 1: ")
    good = tmp_path / "good.jsonl"
    good.write_bytes(SHIPPED.read_bytes()[: SHIPPED.read_bytes().index(b"\n") + 1])
    assert run("demos", "check", str(good)).stdout == f"{good}: 1 episode, nothing wrong\n"
    missing = run("demos", "list", str(tmp_path / "none"))
    assert (missing.exit_code, f"There is no {tmp_path / 'none'};" in missing.stderr) == (2, True)


def test_help_names_the_commands_but_not_the_hidden_one() -> None:
    text = run("--help").stdout
    assert all(
        command in text for command in ("train", "eval", "agents", "models", "runs", "demos")
    )
    assert "│ play " not in text.split("Commands")[1]
    assert "AGENT [OPTIONS]" in run("blackjack", "--help").stdout


def test_a_shell_completes_commands_and_options():
    def completed(words: str, index: int) -> list[str]:
        asked = {
            "COMP_WORDS": words,
            "COMP_CWORD": str(index),
            "_LLAMAGYM_TUI_COMPLETE": "complete_bash",
        }
        return CliRunner().invoke(app, [], prog_name="llamagym-tui", env=asked).stdout.split()

    assert completed("llamagym-tui do", 1) == ["doctor"]
    assert completed("llamagym-tui blackjack --thr", 2) == ["--threads"]
