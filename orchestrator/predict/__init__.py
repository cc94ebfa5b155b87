"""What a training would cost before it is submitted: pure functions from published constants to seconds."""
