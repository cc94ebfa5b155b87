"""From a plan to a run folder, and from a run folder to a job: the first attempt and every later one."""
