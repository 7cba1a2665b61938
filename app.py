"""The entry, `streamlit run app.py`: navigation, theme and language. The rest is in pages/, lessons/ and engine/."""

import streamlit as st

from engine.settings import SettingsError
from pages.parts.engine import shared_engine
from pages.parts.markdown import plain
from pages.parts.shell import ICON, choose_language, mark_as_opened, navigation, style

st.set_page_config(page_title="Replica Lab", page_icon=str(ICON), layout="wide")
style()
language = choose_language()
page = navigation(language)
st.set_page_config(page_title=f"{page.title} · Replica Lab")
try:
    shared_engine()  # begins to import TensorFlow with the first visit, whichever page that is
except SettingsError as error:  # a limit in the environment: for whoever started this server
    st.error(plain(str(error)))
    st.stop()
mark_as_opened()
page.run()
