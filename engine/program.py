"""Programs: the plain script, and the notebook, that an experiment renders to for one choice of settings."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import nbformat
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from engine.experiments import Experiment
from engine.settings import Settings
from engine.versions import Versions

PROGRAMS = Path(__file__).parent / "programs"
# The cell that starts a cluster. Any exit status but 0 stops the notebook, as an exception in a cell does.
RUN_SCRIPT = """\
import sys

# By this kernel's own Python: `!python` may be another one, without TensorFlow.
!"{sys.executable}" script.py
if _exit_code:
    raise RuntimeError(
        f"script.py ended with exit status {_exit_code}: an error event above is TensorFlow's "
        "answer to these settings; with no event above, nothing ran."
    )"""


@lru_cache(maxsize=1)
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(PROGRAMS),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )


def render(experiment: Experiment[Any], settings: Settings, versions: Versions) -> str:
    """The program: complete, and exactly what runs. Only validated settings reach the template."""
    template = _environment().get_template(experiment.template)
    tasks = experiment.tasks(settings)
    cluster = {"tasks": tasks, "serving": [job for job in experiment.serving(settings) if job in tasks]}
    return template.render(settings.model_dump(), **cluster, **experiment.context(settings, versions)).lstrip("\n")


def notebook(program: str) -> str:
    """The program as a Jupyter notebook (nbformat 4), a cell for each of its sections. Needs a fresh kernel a run.

    A cluster needs a file to start its tasks from: one cell writes it, the next runs it and raises where it fails."""
    if "TF_CONFIG" in program:
        sections = [f"%%writefile script.py\n{program}", RUN_SCRIPT]
    else:
        # A section starts where the program leaves two blank lines or a comment opens a paragraph.
        sections = re.split(r"\n\n\n|\n\n(?=# )", program.strip("\n"))
    book = nbformat.from_dict(  # type: ignore[no-untyped-call]
        {
            "nbformat": 4,
            "nbformat_minor": 5,
            "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
            "cells": [
                {
                    "cell_type": "code",
                    "id": f"cell-{number}",
                    "source": section.strip("\n"),
                    "metadata": {},
                    "execution_count": None,
                    "outputs": [],
                }
                for number, section in enumerate(sections)
            ],
        }
    )
    nbformat.validate(book)
    text: str = nbformat.writes(book)  # type: ignore[no-untyped-call]
    return text + "\n"
