"""What a rank runs: our training, a measurement, or the user's own command."""
