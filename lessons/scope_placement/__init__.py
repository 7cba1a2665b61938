"""The lesson on scope placement: its texts, what a trace says, the figure, the story, and the fix of a run."""
