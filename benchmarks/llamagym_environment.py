"""LlamaGym 0.1.1 in an environment of its own, and a model as its libraries of 2024 read it.

The environment is made by venv and pip, in a cache folder, from `llamagym_requirements.txt`; it needs Python 3.11.
The model keeps its weights: only the names of settings, the spelling of BPE merges and the chat template change.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from benchmarks import own_environment
from llamagym_tui.agents.blackjack import BlackjackAgent

REQUIREMENTS = Path(__file__).with_name("llamagym_requirements.txt")
LLAMAGYM = "llamagym==0.1.1"
SIDE = Path(__file__).with_name("peers_llamagym.py")
TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %} <|assistant|>{{ message['content'] }}<|end|>"
    "{% else %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>"
    "{% if message['role'] == 'user' %}[/INST]{% endif %}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %} <|assistant|>{% endif %}"
)
"""The bundled model's own words, with Llama 2's ``[/INST]`` between prompt and reply, at which LlamaGym cuts.

The model still begins its reply after the token that it knows, so its replies stay as short as they are with us.
"""
CHATML = "<|im_start|>"
CHATML_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}[/INST] {{ message['content'] }}<|im_end|>"
    "{% else %}{{ '' if loop.first else '\n' }}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}[/INST] {% endif %}"
)
"""ChatML, with Llama 2's mark where a reply begins, which the tokenizer of `llamagym_side` reads as ChatML's own."""

KEPT = ("eos_token", "pad_token", "model_max_length", "clean_up_tokenization_spaces")
"""Settings of the tokenizer whose names are the same."""
POSITIONS = 256
"""Largest position that the converted model names; longer conversations still work.

transformers 4.38 copies a mask of positions x positions for every row of every forward. With the model's own 4096 that
alone takes more than nine tenths of LlamaGym's time, which would say nothing about LlamaGym.
"""


def interpreter() -> Path:
    """The Python of LlamaGym's environment in the user's cache, made first if it is not there.

    Raises:
        subprocess.CalledProcessError: venv or pip failed; their error is on stderr.
    """
    python = sys.executable if sys.version_info[:2] == (3, 11) else "python3.11"
    place = own_environment.default_folder("llamagym-0.1.1")
    return own_environment.interpreter(place, python, REQUIREMENTS, [LLAMAGYM])


@contextmanager
def llamagym_process(
    weights: Path, seed: int, *, adapter: bool, log: IO[str]
) -> Iterator[subprocess.Popen[str]]:
    """LlamaGym on one thread, loaded and ready.

    Args:
        adapter: whether it trains one; else all weights.
        log: takes what it prints.
    """
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        convert(weights, model)
        setup = Path(folder) / "setup.json"
        given = {"model": str(model), "threads": 1, "seed": seed, "adapter": adapter, **prompts()}
        setup.write_text(json.dumps(given))
        environment = own_environment.variables() | {
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_VERBOSITY": "error",
            "PYTHONWARNINGS": "ignore",
        }
        process = subprocess.Popen(
            [str(interpreter()), str(SIDE), str(setup)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
        )
        try:
            assert answer_of(process)["ready"]
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()


def answer_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The next line that LlamaGym's side prints.

    Raises:
        RuntimeError: it ended instead; the cause is in its log.
    """
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError("LlamaGym's process ended; its error is in its log.")
    return json.loads(line)


def prompts() -> dict[str, Any]:
    """Our agent's system prompt, and its text of every observation of Blackjack."""
    agent = BlackjackAgent()
    seen = [
        (total, dealer, ace) for total in range(2, 32) for dealer in range(1, 11) for ace in (0, 1)
    ]
    texts = {" ".join(map(str, state)): agent.format_observation(state) for state in seen}
    return {"system_prompt": agent.get_system_prompt(), "observations": texts}


def convert(source: Path, target: Path) -> None:
    """Write a model as transformers 4.38 and tokenizers 0.15 read it.

    Args:
        source: folder of the model.
        target: folder to write into; made if absent.
    """
    target.mkdir(parents=True, exist_ok=True)
    shutil.copy(source / "model.safetensors", target)
    _write(target / "config.json", old_config(_read(source / "config.json")))
    _write(target / "tokenizer.json", old_tokenizer(_read(source / "tokenizer.json")))
    tokens = _read(source / "tokenizer_config.json")
    kept = {name: tokens[name] for name in KEPT if name in tokens}
    special = {"additional_special_tokens": tokens.get("extra_special_tokens", [])}
    template = CHATML_TEMPLATE if is_chatml(source) else TEMPLATE
    rest = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template}
    _write(target / "tokenizer_config.json", {**kept, **special, **rest})


def is_chatml(source: Path) -> bool:
    """True if a model's conversations are in ChatML; else they are in the bundled model's words."""
    return CHATML in template_of(source)


def template_of(source: Path) -> str:
    return (source / "chat_template.jinja").read_text(encoding="utf-8")


def template_today(source: Path) -> str:
    """The template by which today's libraries write what the model was trained on here."""
    return template_of(source) if is_chatml(source) else TEMPLATE


def old_config(config: dict[str, Any]) -> dict[str, Any]:
    """The settings of a Llama by their names of 2024."""
    kept = {
        name: value
        for name, value in config.items()
        if name not in ("rope_parameters", "dtype", "head_dim")
    }
    renamed = {
        "rope_theta": config["rope_parameters"]["rope_theta"],
        "torch_dtype": config["dtype"],
    }
    return {**kept, **renamed, "max_position_embeddings": POSITIONS}


def old_tokenizer(tokenizer: dict[str, Any]) -> dict[str, Any]:
    """A tokenizer's file with its merges as strings."""
    model = {name: value for name, value in tokenizer["model"].items() if name != "ignore_merges"}
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    return {**tokenizer, "model": {**model, "merges": merges}}


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def _write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1), encoding="utf-8")
