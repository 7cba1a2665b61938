"""The page of the lesson on SyncReplicasOptimizer."""

from lessons.sync_replicas.lesson import LESSON
from pages.parts.lesson import lesson_page
from pages.parts.shell import through_app

through_app()
lesson_page(LESSON)
