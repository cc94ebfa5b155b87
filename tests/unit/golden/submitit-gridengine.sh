#!/usr/bin/env bash
#$ -N try
#$ -pe mpi 1
#$ -l gpu=2
#$ -l h_rt=01:30:00
#$ -S /bin/bash
#$ -j y
#$ -o /dev/null
#$ -notify
#$ -r n
#$ -l mem_free=1536M
#$ -q gpu
#$ -P g1
#$ -m e
umask 077
export PYTHONPATH=/my/code
export SUBMITIT_EXECUTOR=gridengine
# The job's name among submitit's files: tasks of an array count from 0; a job that continues another keeps its name.
id="$JOB_ID"
[[ "${SGE_TASK_ID:-undefined}" == undefined ]] || id="${JOB_ID}_$((SGE_TASK_ID - 1))"
folder='/shared/my logs/%j'
folder="${folder//%j/$id}"
folder="${folder//%A/${id%%_*}}"
folder="${folder//%a/${id##*_}}"
again="$folder/${id}_again"
mkdir -p "$folder"
# How the job ended, for schedulers that keep no record of it. A scheduler may kill this script soon after its SIGTERM.
ended="$folder/${id}_ended" limit_s=5400
rm -f "$ended"
record() { echo "$1" > "$ended.new" && mv "$ended.new" "$ended"; }
told_to_end() { if (( SECONDS >= limit_s - 5 )); then record TIMEOUT; else record CANCELLED; fi; }
log="$folder/${id}_0_log"
exec >> "$log.out" 2>> "$log.err"
cd /usr || exit
module load x
rm -f "$again"

# A warning is ignored until there is a function to take it: submitit takes one, and those after it are ignored.
trap '' USR2
trap told_to_end TERM
/opt/env/bin/python -u /opt/torusrun/training/entry/torusrun torusrun.orchestrator.submitit.environments "$folder" &
child=$!
# The warning before the time limit, which these schedulers do not give, or one that somebody asked for.
(
  for ((waited = 0; waited < 5340; waited += 2)); do
    if [[ -e "$folder/${id}_interrupt" ]]; then rm -f "$folder/${id}_interrupt"; break; fi
    sleep 2
  done
  while kill -USR2 "$child"; do sleep 5; done 2> /dev/null  # again, for a function that has not begun
) &
timer=$!
trap : USR1 USR2  # the scheduler sends these to every process of the job
wait "$child"; code=$?
while kill -0 "$child" 2> /dev/null; do wait "$child"; code=$?; done
kill "$timer" 2> /dev/null
echo over
# Now that all tasks have ended, the job may continue: two never run at once.
if [[ -e "$again" && ! -e "$folder/${id}_cancelled" ]]; then
  continues=1 code=99  # sge_conf(5): run me again, under the same id
fi
if [[ "$code" == 0 || -n "${continues:-}" ]]; then
  rm -f "$ended"
elif [[ ! -e "$ended" ]]; then
  if (( SECONDS >= 5340 )); then record TIMEOUT; else record FAILED; fi
fi
exit "$code"
