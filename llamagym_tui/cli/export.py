"""`export`: writes the model of a run, without its value head, as a plain folder of transformers with a model card.

The folder gets its name once the model that is loaded from it gives the log-probabilities of the one in memory.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from llamagym_tui import load_model_and_tokenizer
from llamagym_tui.cli import gguf_converter
from llamagym_tui.cli.report import Story, story_of, summary
from llamagym_tui.engine.model.value_head import AutoModelForCausalLMWithValueHead
from llamagym_tui.engine.policy.policy import generation_config_of
from llamagym_tui.engine.tokens.tokenization import ChatTokenizer
from llamagym_tui.errors import LlamaGymError, RunStoreError, UsageError
from llamagym_tui.runs.run_store import has_checkpoint, last_settings
from llamagym_tui.user_files import discard, draft_folder, file_text, make_folder

BY_SCORE = (
    "in the run, replies were chosen among the legal ones by their scores: text that this model writes freely may "
    "name no action, so begin its reply with what they have in common, token by token, and take the likelier of what "
    "may follow"
)
OF_BASE = (
    "transformers takes sampling and ends of replies of an adapter from its base model: pass "
    "`generation_config=GenerationConfig.from_pretrained(FOLDER)` of this folder to `generate`, and take the tokenizer "
    "from here"
)
ADAPTER = "adapter_config.json"
TEMPLATE = "chat_template.jinja"
_GENERATION = re.compile(r"\{%-?\s*(?:end)?generation\s*-?%\}")
CONVERTER = "convert_hf_to_gguf.py"
"""The program of llama.cpp that converts a model."""
TOLERANCE = 1e-3
"""Largest difference of a log-probability, in nats: more than rounding in float32, less than any training."""
MOST_IDS = 256
"""Ids of the prompt that are compared."""


def export(
    run_dir: Path,
    out: Path,
    *,
    merge: bool,
    gguf: bool = False,
) -> str:
    """Write a run's latest model into a new folder; returns a sentence that names the places.

    Raises:
        UsageError: the folder is there already, or the converter is not.
        LlamaGymError: the run has no model, or it cannot be loaded, written or converted; or what was written is not
            what was trained, and nothing of it stays.
    """
    converter = shutil.which(CONVERTER)
    if gguf and (converter is None or not merge):
        raise UsageError(
            f"--gguf needs --merge and llama.cpp's {CONVERTER} on the PATH; leave --gguf out."
        )
    if out.exists():
        raise UsageError(f"{out} is there already; name a new folder.")
    if not has_checkpoint(run_dir):
        raise RunStoreError(
            f"The run in {run_dir} has no checkpoint, so there is no model to export."
        )
    try:
        make_folder(out)
        out.rmdir()  # until there is a model to write: loading takes its time, and may fail
        _write(run_dir, out, merge=merge)
    except OSError as error:
        raise RunStoreError(
            f"{out} cannot be written ({error.strerror}); name another folder."
        ) from error
    places = [str(out)]
    if gguf:
        places.append(str(out / f"{out.name}.gguf"))
        _convert(str(converter), out, places[-1])
    return f"The model of {run_dir.name} is in {' and '.join(places)}"


def _write(run_dir: Path, out: Path, *, merge: bool) -> None:
    # What is merged into weights of 16 bits is rounded away.
    loaded = load_model_and_tokenizer(str(run_dir), "cpu", dtype="float32" if merge else None)
    story = story_of(run_dir)
    text = f"{story.state.system_prompt} {story.state.agent}"
    if loaded.model.is_adapted and loaded.model.read_depth and not merge:
        raise UsageError(
            f"The run reads the first {loaded.model.read_depth} layers of its model, which an adapter cannot say of "
            "its base: export it with --merge."
        )
    model = loaded.model.pretrained_model
    trained = _logprobs(model, loaded.tokenizer, text)
    if loaded.model.is_adapted and merge:
        model = loaded.model.merged()
        _require_same(trained, _logprobs(model, loaded.tokenizer, text), "the merged model")
    sampling = last_settings(run_dir).generation
    chat = ChatTokenizer(loaded.tokenizer, loaded.model.causal_lm.generation_config)
    dtype = model.dtype
    draft = draft_folder(out.parent)
    try:
        model.save_pretrained(draft)
        generation_config_of(model, sampling, chat.end_ids).save_pretrained(draft)
        loaded.tokenizer.save_pretrained(draft)
        is_adapter = (draft / ADAPTER).is_file()
        about = card(story, by_score=sampling.policy == "score", is_adapter=is_adapter)
        (draft / "README.md").write_text(about, encoding="utf-8")
        del model, loaded  # it is read again next
        try:
            written = _logprobs(*_read(draft, dtype), text)
        except Exception as error:  # of transformers, PEFT or safetensors
            reason = " ".join(str(error).split())[:300]
            raise RunStoreError(
                f"Nothing was written to {out}: it cannot be loaded again ({reason})."
            ) from error
        _require_same(trained, written, "what is loaded from there")
        os.replace(draft, out)
    finally:
        discard(draft)


def _read(folder: Path, dtype: torch.dtype) -> tuple[Any, Any]:
    """The model and the tokenizer of a folder."""
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    if (folder / ADAPTER).is_file():
        model = AutoModelForCausalLMWithValueHead.from_pretrained(
            folder, dtype=dtype, local_files_only=True
        )
        return model.pretrained_model, tokenizer
    lm = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True)
    return lm, tokenizer


@torch.no_grad()
def _logprobs(lm: Any, tokenizer: Any, text: str) -> Tensor:
    """(T, V) log-probabilities of a text's tokens in float32; the text is not empty."""
    lm.eval()
    ids = tokenizer(text)["input_ids"][:MOST_IDS]
    logits = lm(torch.tensor([ids]), use_cache=False).logits[0]
    return torch.as_tensor(logits.float().log_softmax(-1))


def _require_same(trained: Tensor, other: Tensor, what: str) -> None:
    """Raises RunStoreError if another model gives other log-probabilities."""
    if trained.shape != other.shape or not torch.allclose(trained, other, 0, TOLERANCE):
        raise RunStoreError(
            f"Nothing was written: {what} is not the model that was trained. If its base model was changed in memory, "
            "merge the adapter with --merge."
        )


def _convert(converter: str, model: Path, file: str) -> None:
    """Write a folder's model as a GGUF file, its weights in 16 bits."""
    with TemporaryDirectory(prefix="llamagym-gguf-") as beside:
        for each in model.iterdir():
            if each.name == TEMPLATE:
                # What marks the replies is for training alone, and unknown elsewhere.
                text = _GENERATION.sub("", file_text(each))
                Path(beside, each.name).write_text(text, encoding="utf-8")
            else:
                Path(beside, each.name).symlink_to(each.absolute())
        words = [sys.executable, gguf_converter.__file__, converter, beside]
        words += ["--outfile", file, "--outtype", "f16"]
        ended = subprocess.run(words, capture_output=True, text=True, errors="replace")
    if ended.returncode:
        why = ended.stderr.strip().rpartition("\n")[2]
        raise LlamaGymError(
            f"{CONVERTER} could not convert the model ({why}); {model} holds it for transformers."
        )


def card(story: Story, *, by_score: bool = False, is_adapter: bool = False) -> str:
    """The model card of a run.

    Args:
        by_score: replies were chosen by their scores, and not sampled.
        is_adapter: the base model is elsewhere.
    """
    state = story.state
    head = "---\nlibrary_name: transformers\npipeline_tag: text-generation\n---"
    first = f"# {state.model}, trained on {state.agent}\n\nBy {story.methods} with llamagym-tui:"
    prompt = "\n".join(f"    {line}" for line in (state.system_prompt or "(none)").split("\n"))
    end = f"± is half the 95 % confidence interval. Its system prompt:\n\n{prompt}"
    lines = summary(story)
    if by_score:
        lines.append(BY_SCORE)
    if is_adapter:
        lines.append(OF_BASE)
    return "\n\n".join([head, first, "\n".join(f"- {line}" for line in lines), f"{end}\n"])
