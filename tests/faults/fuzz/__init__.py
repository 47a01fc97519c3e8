"""Damaged and hostile inputs for every reader. What must hold: an answer or a `UserError`, in 5 s and 1 GB."""
