"""submitit on PBS and Grid Engine, and the jobs of ours that go through its executors."""
