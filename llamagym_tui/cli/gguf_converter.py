"""Runs llama.cpp's converter; writes into the file where replies end, and tells how a tokenizer splits text, where that
is GPT-2's way and it knows no name.

The converter knows tokenizers by a hash of what they make of a text, so one that was trained anew, as the bundled
model's, is unknown to it whatever it does. It is run as a program: what is written into the file besides, as JSON, the
path of the converter, then its arguments. It imports nothing of ours.
"""

import json
import runpy
import sys
from collections.abc import Mapping
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


def write_besides(values: Mapping[str, bool | int | float]) -> None:
    """Have every GGUF file say some values, by their names in it, whatever the converter has found."""
    import gguf

    as_it_is = gguf.GGUFWriter.write_header_to_file

    def with_values(writer: Any, *args: Any) -> None:
        for name, value in values.items():
            if isinstance(value, bool):
                writer.add_bool(name, value)
            elif isinstance(value, int):
                writer.add_uint32(name, value)
            else:
                writer.add_float32(name, value)
        as_it_is(writer, *args)

    gguf.GGUFWriter.write_header_to_file = with_values  # type: ignore


def main(values: Mapping[str, bool | int | float], script: Path) -> None:
    sys.path.insert(0, str(script.parent))
    write_besides(values)
    try:
        from conversion.base import TextModel  # type: ignore[import-not-found]
    except ModuleNotFoundError as error:
        if error.name != "conversion":
            raise
        # One of before it had parts: it knows the tokenizers that it knows.
        runpy.run_path(str(script), run_name="__main__")
        return
    known = TextModel.get_vocab_base_pre

    def named(model: Any, tokenizer: Any) -> str:
        try:
            return str(known(model, tokenizer))
        except NotImplementedError:
            if splits_as_gpt2(tokenizer):
                return GPT2
            raise

    TextModel.get_vocab_base_pre = named
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    del sys.argv[0]
    main(json.loads(sys.argv.pop(0)), Path(sys.argv[0]))
