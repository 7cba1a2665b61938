"""The status page: what is running on this server, and what is installed."""

from pages.parts.engine import shared_engine
from pages.parts.shell import get_app_texts, through_app
from pages.parts.status import status_page

through_app()
status_page(shared_engine(), get_app_texts())
