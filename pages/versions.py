"""The page on versions: one choice on all of them, every place on all of them, and Keras 3 release by release."""

from pages.parts.engine import shared_engine
from pages.parts.shell import through_app
from pages.parts.versions import versions_page

through_app()
versions_page(shared_engine())
