"""The terminal: its keys, its width, its colours, and text that is safe and fits."""
