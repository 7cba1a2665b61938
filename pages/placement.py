"""The page of the lesson that this file is named after; these files are all the same."""

from pathlib import Path

from pages.parts.lesson import lesson_page
from pages.parts.shell import through_app

through_app()
lesson_page(Path(__file__).stem)
