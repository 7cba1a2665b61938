"""The lesson on learning rate and replicas: its texts, what a trace says, the curves, the story, and the sweep."""
