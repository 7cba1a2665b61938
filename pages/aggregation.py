"""The page of the lesson on variable aggregation."""

from lessons.aggregation.lesson import LESSON
from pages.parts.lesson import lesson_page
from pages.parts.shell import through_app

through_app()
lesson_page(LESSON)
