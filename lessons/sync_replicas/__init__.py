"""The lesson on SyncReplicasOptimizer: its texts, what a trace says, the moving figure and the story."""
