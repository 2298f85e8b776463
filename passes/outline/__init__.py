"""Outlining: a compound function that was opened into small nodes becomes a call of a body of its kind; `expand-kinds` opens it again."""
