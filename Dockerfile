# docker build -t replica-lab . && docker run --rm -p 8501:8501 replica-lab
FROM python:3.13-slim

ENV PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore

# First what changes least and takes longest.
WORKDIR /app
COPY requirements.txt .
RUN pip install -r requirements.txt

# A home to write caches to. The app itself stays root's: what runs in it cannot change it.
RUN useradd --create-home --uid 1000 learner
COPY . .
RUN python -m compileall -q app.py pages engine lessons
USER learner

EXPOSE 8501
# The start includes nothing slow: TensorFlow is imported beside the server, and the page says how far it is.
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8501/_stcore/health', timeout=4)"]

# Without a shell in between, so that `docker stop` reaches the server. The browser's address is only what the log tells:
# from in here the machine's own cannot be seen.
CMD ["python", "-m", "streamlit", "run", "app.py", "--server.address=0.0.0.0", "--server.headless=true", "--browser.serverAddress=localhost"]
