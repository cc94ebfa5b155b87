"""The terminal: its streams, remarks, and text that is safe and fits."""
