"""The lesson on scope placement: its texts, what a trace says, the figure, the story, and what mends a run."""
