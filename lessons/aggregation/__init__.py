"""The lesson on variable aggregation: its texts, what a trace says, the moving figure and the story."""
