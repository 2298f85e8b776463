"""What stands for the original of a model: an `.ir` file has none to run, so its module as it was read, saved unchanged, is it."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from compiler.backend.saved_model import save
from compiler.execution import SavedModelArtefact
from compiler.frontend.source import SourceModel


def with_original(source: SourceModel) -> SourceModel:
    """The source, with something to run; the folder made for it goes with it."""
    if source.artefact is not None:
        return source
    directory = Path(tempfile.mkdtemp(prefix="cleave-ir-"))
    whole = replace(source).owns(directory)
    whole.artefact = SavedModelArtefact(save(source.module, directory / "model").path)
    return whole
