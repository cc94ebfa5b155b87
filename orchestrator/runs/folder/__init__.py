"""The run folder: all that is known of a run. Where other sources disagree, it is believed."""
