"""The environment that LlamaGym 0.1.1 still runs in, and a model as its libraries of 2024 read it.

The environment is made by venv and pip, in a cache folder, from `llamagym_requirements.txt`; it needs Python 3.11.
The model keeps its weights: only the names of settings, the spelling of BPE merges and the chat template change.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from benchmarks import own_environment

REQUIREMENTS = Path(__file__).with_name("llamagym_requirements.txt")
LLAMAGYM = "llamagym==0.1.1"
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


def interpreter(folder: Path | None, python: str | None) -> Path:
    """The Python of LlamaGym's environment, made first if it is not there.

    Args:
        folder: of the environment. None: in the user's cache.
        python: that makes it, of version 3.11. None: this one if it is, else the one of that name.
    Raises:
        subprocess.CalledProcessError: venv or pip failed; their error is on stderr.
    """
    place = (folder or own_environment.default_folder("llamagym-0.1.1")).expanduser().absolute()
    return own_environment.interpreter(place, python or default_python(), REQUIREMENTS, [LLAMAGYM])


def default_python() -> str:
    """This Python if it is 3.11, else the one of that name."""
    return sys.executable if sys.version_info[:2] == (3, 11) else "python3.11"


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
    """Whether a model's conversations are in ChatML; else they are in the bundled model's words."""
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
