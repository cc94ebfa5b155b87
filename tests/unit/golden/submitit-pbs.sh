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
export PYTHONPATH=/my/code
export SUBMITIT_EXECUTOR=pbs TORUSRUN_NODES=2
# The job's name among submitit's files: tasks of an array count from 0; a job that goes on for another keeps its name.
id="${PBS_ARRAY_INDEX:+${PBS_ARRAY_ID}_$PBS_ARRAY_INDEX}"
id="${TORUSRUN_CONTINUES:-${id:-$PBS_JOBID}}"
folder='/shared/my logs/%j'
folder="${folder//%j/$id}"
folder="${folder//%A/${id%%_*}}"
folder="${folder//%a/${id##*_}}"
mkdir -p "$folder"
log="$folder/${id}_0_log"
exec >> "$log.out" 2>> "$log.err"
cd /usr || exit
module load x

mpirun --mca plm_rsh_agent '/opt/env/bin/python /opt/torusrun/orchestrator/schedulers/remote.py pbs' --mca plm_rsh_no_tree_spawn 1 --mca routed direct --leave-session-attached --hostfile "$PBS_NODEFILE" --oversubscribe -np 4 --map-by ppr:2:node -x PATH -x SUBMITIT_EXECUTOR -x TORUSRUN_NODES ${PYTHONPATH+-x PYTHONPATH} /opt/env/bin/python -u -c 'import sys; sys.path[:] = [p for p in sys.path if p]; import runpy; runpy.run_module(sys.argv.pop(1), None, "__main__", True)' orchestrator.schedulers.task "$folder" &
child=$!
# The warning before the time limit, which these schedulers do not give, or one that somebody asked for.
(
  for ((waited = 0; waited < 5340; waited += 2)); do
    if [[ -e "$folder/${id}_interrupt" ]]; then rm -f "$folder/${id}_interrupt"; break; fi
    sleep 2
  done
  kill -USR2 "$child"
) &
timer=$!
trap : TERM USR1 USR2  # the scheduler sends these to every process of the job
wait "$child"; code=$?
while kill -0 "$child" 2> /dev/null; do wait "$child"; code=$?; done
kill "$timer" 2> /dev/null
echo over
exit "$code"
