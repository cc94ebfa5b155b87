"""What a run would cost, before and beside it."""
