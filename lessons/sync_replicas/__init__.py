"""The lesson on SyncReplicasOptimizer: its texts, what a trace says, the figure, the story, and what mends a run."""
