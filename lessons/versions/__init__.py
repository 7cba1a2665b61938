"""One choice on every version: what came of each run in a few words, as a matrix, and along Keras's releases."""
