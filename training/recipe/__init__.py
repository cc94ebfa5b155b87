"""The keys of a training, declared once, with default, meaning and limits. Nothing here imports torch."""
