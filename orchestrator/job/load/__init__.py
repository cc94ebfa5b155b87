"""What a node does while a job runs on it: its cores, memory, network and GPUs, and how its ranks step."""
