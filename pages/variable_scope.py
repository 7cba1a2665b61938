"""The page of the lesson on variable scopes."""

from lessons.variable_scope.lesson import LESSON
from pages.parts.lesson import lesson_page
from pages.parts.shell import through_app

through_app()
lesson_page(LESSON)
