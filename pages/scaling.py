"""The page of the lesson on learning rate and replicas."""

from lessons.scaling.lesson import LESSON
from pages.parts.lesson import lesson_page
from pages.parts.shell import through_app

through_app()
lesson_page(LESSON)
