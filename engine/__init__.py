"""The truth of Replica Lab: experiments, programs, runtimes and traces. Knows nothing of pages or figures."""
