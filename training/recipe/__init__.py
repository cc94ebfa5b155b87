"""What a training is, declared once: every key with its default, meaning and limits. Nothing here imports torch."""
