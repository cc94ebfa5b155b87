#!/usr/bin/env bash
#PBS -N try
#PBS -l select=2:ncpus=6:mpiprocs=2:ngpus=2:mem=1536mb
#PBS -l place=scatter
#PBS -l walltime=01:30:00
#PBS -o /dev/null
#PBS -e /dev/null
#PBS -r n
#PBS -q gpu
#PBS -P g1
#PBS -m e
umask 077
declare -A was
for name in $(compgen -e); do was[$name]="${!name}"; done
export PYTHONPATH=/my/code
command -v pbs_tmrsh > /dev/null || PATH+=":$(. "${PBS_CONF_FILE:-/etc/pbs.conf}" 2> /dev/null && echo "$PBS_EXEC")/bin"
export SUBMITIT_EXECUTOR=pbs TORUSRUN_NODES=2
# The job's name among submitit's files: tasks of an array count from 0; a job that goes on for another keeps its name.
id="${PBS_ARRAY_INDEX:+${PBS_ARRAY_ID}_$PBS_ARRAY_INDEX}"
id="${TORUSRUN_CONTINUES:-${id:-$PBS_JOBID}}"
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
hosts="$PBS_NODEFILE"
[[ -z "$hosts" ]] || export TORUSRUN_HOSTS="$(awk '!seen[$1]++ { print $1 }' "$hosts" | tr '\n' ' ')"
# mpirun hands on to other nodes what it is told to: these variables, and all that were set or changed above.
told=' PATH LD_LIBRARY_PATH PYTHONPATH VIRTUAL_ENV CONDA_PREFIX PBS_JOBID PBS_JOBNAME PBS_ARRAY_ID PBS_ARRAY_INDEX PBS_QUEUE PBS_O_HOST PBS_O_WORKDIR TORUSRUN_CONTINUES '
passed=()
for name in $(compgen -e); do
  [[ "$told" == *" $name "* || -z "${was[$name]+set}" || "${was[$name]}" != "${!name}" ]] || continue
  case "$name" in _ | PWD | OLDPWD | SHLVL) ;; *) passed+=(-x "$name") ;; esac
done
rm -f "$again.sh"

# A warning is ignored until there is a function to take it: submitit takes one, and those after it are ignored.
trap '' USR2
trap told_to_end TERM
mpirun --mca plm_rsh_agent '/opt/env/bin/python /opt/torusrun/orchestrator/schedulers/remote_shell.py pbs' --mca plm_rsh_no_tree_spawn 1 --mca routed direct --leave-session-attached --hostfile "$PBS_NODEFILE" --oversubscribe -np 4 --map-by ppr:2:node "${passed[@]}" sh -c 'trap "" USR2; exec "$@"' sh /opt/env/bin/python -u -c 'import sys; sys.path[:] = [p for p in sys.path if p]; import runpy; runpy.run_module(sys.argv.pop(1), None, "__main__", True)' orchestrator.schedulers.for_submitit.task "$folder" &
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
# Now that all tasks have ended, the job may go on: two never run at once.
if [[ -e "$again.sh" && ! -e "$folder/${id}_cancelled" ]]; then
  if next="$(qsub "$again.sh")"; then
    continues=1
    echo "$next" > "$folder/${id}_continues_as.new" && mv "$folder/${id}_continues_as.new" "$folder/${id}_continues_as"
    [[ ! -e "$folder/${id}_cancelled" ]] || qdel "$next"
  else
    echo "torusrun: the job cannot go on: qsub on $HOSTNAME ended with exit code $?" >&2
    code=1
  fi
fi
if [[ "$code" == 0 || -n "${continues:-}" ]]; then
  rm -f "$ended"
elif [[ ! -e "$ended" ]]; then
  if (( SECONDS >= 5340 )); then record TIMEOUT; else record FAILED; fi
fi
exit "$code"
