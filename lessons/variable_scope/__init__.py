"""The lesson on variable scopes: names, sharing, and what a scope does not do."""
