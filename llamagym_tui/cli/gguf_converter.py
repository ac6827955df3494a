"""Runs llama.cpp's converter, and tells it how a tokenizer splits text where that is GPT-2's way and it knows no name.

The converter knows tokenizers by a hash of what they make of a text, so one that was trained anew, as the bundled
model's, is unknown to it. It is run as a program: the path of the converter, then its arguments. It imports nothing of
ours.
"""

import json
import runpy
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

GPT2 = "gpt-2"
"""llama.cpp's name for splitting as GPT-2 does."""


def splits_as_gpt2(tokenizer: Any) -> bool:
    """True for a fast tokenizer that splits text by GPT-2's expression and changes nothing before."""
    whole = json.loads(tokenizer.backend_tokenizer.to_str())
    before = whole["pre_tokenizer"] or {}
    wanted = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    return whole["normalizer"] is None and wanted.items() <= before.items()


def name_gpt2() -> None:
    """Have the converter name a tokenizer that it does not know, if that splits text as GPT-2 does."""
    from conversion.base import TextModel  # type: ignore[import-not-found]

    known = TextModel.get_vocab_base_pre

    def named(model: Any, tokenizer: Any) -> str:
        try:
            return str(known(model, tokenizer))
        except NotImplementedError:
            if splits_as_gpt2(tokenizer):
                return GPT2
            raise

    TextModel.get_vocab_base_pre = named


if __name__ == "__main__":
    del sys.argv[0]
    script = Path(sys.argv[0])
    sys.path.insert(0, str(script.parent))
    # An older converter is one file, and knows the tokenizers that it knows.
    with suppress(ModuleNotFoundError):
        name_gpt2()
    runpy.run_path(str(script), run_name="__main__")
