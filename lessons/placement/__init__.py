"""The lesson on placement: which process a variable lives on, and who shares it."""
