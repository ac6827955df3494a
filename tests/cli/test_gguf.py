"""A run's model as llama.cpp and Ollama have it: the file plays as the model does here, the Modelfile says the same."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import pipeline
from typer.testing import CliRunner

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.cli.export import CONVERTER
from llamagym_tui.cli.gguf_converter import splits_as_gpt2
from llamagym_tui.cli.main import app
from llamagym_tui.engine.model.loading import load_model_and_tokenizer
from llamagym_tui.game.chat import system, user
from llamagym_tui.runs.run_folder import MODEL_DIR
from tests import fakes
from tests.recorded_run import record

PYTHON = os.environ.get("LLAMA_CPP_PYTHON", sys.executable)
"""A Python that has llama-cpp-python."""
PLAYED = """
import json, sys
from llama_cpp import Llama
llama = Llama(sys.argv[1], n_ctx=1024, n_threads=1, verbose=False)
for messages in json.load(sys.stdin):
    made = llama.create_chat_completion(messages, temperature=0, max_tokens=32)
    print(json.dumps(made["choices"][0]["message"]["content"]))
"""


def test_only_a_tokenizer_that_splits_as_gpt2_is_named_so() -> None:
    tokenizer = load_model_and_tokenizer("bundled").tokenizer
    assert splits_as_gpt2(tokenizer)
    whole = json.loads(tokenizer.backend_tokenizer.to_str())
    for changed in (
        {"normalizer": {"type": "Lowercase"}},
        {"pre_tokenizer": whole["pre_tokenizer"] | {"use_regex": False}},
        {"pre_tokenizer": None},
    ):
        text = json.dumps(whole | changed)
        other = SimpleNamespace(backend_tokenizer=SimpleNamespace(to_str=lambda text=text: text))
        assert not splits_as_gpt2(other)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_gguf_file_plays_as_the_model_does_here(tmp_path: Path) -> None:
    if shutil.which(CONVERTER) is None:
        pytest.skip(f"llama.cpp's {CONVERTER} is not on the PATH")
    if subprocess.run([PYTHON, "-c", "import llama_cpp"], capture_output=True).returncode:
        pytest.skip(f"{PYTHON} has no llama-cpp-python; LLAMA_CPP_PYTHON names one that has")
    loaded = load_model_and_tokenizer("bundled", "cpu")
    torch.manual_seed(0)
    with (
        torch.no_grad()
    ):  # as if it had learnt; much more, and it is undecided within what 16 bits round away
        for weights in loaded.model.pretrained_model.parameters():
            weights *= 1 + 0.1 * torch.randn_like(weights)
    run_dir = record(tmp_path / "one", [*fakes.opening_events(), *fakes.learning(2)])
    loaded.model.save_pretrained(run_dir / MODEL_DIR)
    loaded.tokenizer.save_pretrained(run_dir / MODEL_DIR)
    out = tmp_path / "a"
    made = CliRunner().invoke(app, ["export", str(run_dir), str(out), "--merge", "--gguf"])
    assert made.exit_code == 0, made.stderr
    agent = BlackjackAgent()
    states = [*product(range(12, 22), (1, 4, 7, 8, 10), (0,))]
    asked: list[Any] = [
        [system(agent.get_system_prompt()), user(agent.format_observation(state))]
        for state in states
    ]
    here = pipeline("text-generation", str(out), do_sample=False)
    own = [here(messages)[0]["generated_text"][-1]["content"] for messages in asked]
    words = [PYTHON, "-c", PLAYED, str(out / "a.gguf")]
    played = subprocess.run(words, input=json.dumps(asked), capture_output=True, text=True)
    assert played.returncode == 0, played.stderr
    there = [json.loads(line) for line in played.stdout.splitlines()]
    assert len(there) == 50
    assert [agent.read(reply) for reply in there] == [agent.read(reply) for reply in own]
