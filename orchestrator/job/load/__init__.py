"""The load of a node while a job runs on it: cores, memory, network, GPUs, and the step times of its ranks."""
