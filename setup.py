"""Finds the packages for pyproject.toml, which cannot say that folders at the top are packages in `llamagym_tui`.

Its links to these folders are followed where there are any; they may be missing, or be text files.
"""

from setuptools import find_packages, setup

packages = set(find_packages(include=["llamagym_tui", "llamagym_tui.*"]))
for folder in ("agents", "screens", "sft_data"):
    found = find_packages(include=[folder, f"{folder}.*"])
    packages |= {f"llamagym_tui.{name}" for name in found}

setup(packages=sorted(packages))
