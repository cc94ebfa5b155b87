"""A run: its folder, its plan, its program, code and image, its state, and the verbs that act on it."""
