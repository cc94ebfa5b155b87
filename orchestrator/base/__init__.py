"""What everything else stands on: errors, states, processes, private files, the terminal."""
