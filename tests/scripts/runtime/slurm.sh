#!/usr/bin/env bash
# A real Slurm of one machine, started here: run.sh under srun --mpi=pmix, and the script that run.sh --sbatch prints: a job
# that is asked to end by SIGUSR1 saves, goes back to the queue and goes on, and one that is taken off its machine goes on from its
# last save: the end has the bits of a job that was let alone. An array of jobs. Needs root, and Debian's slurmctld, slurmd, munge.
. "$(dirname "$0")/../common.sh"
for program in slurmctld slurmd munged srun; do
  command -v $program > /dev/null || [ -x "/usr/sbin/$program" ] || { echo "slurm: SKIPPED: $program is not installed"; exit 77; }
done
[ "$(id -u)" -eq 0 ] || { echo "slurm: SKIPPED: only root can start slurmd"; exit 77; }
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
PATH=$PATH:/usr/sbin
host=$(hostname -s)
# A socket's path may not be long.
place=$(mktemp -d /tmp/slurm.XXXXXX)
export SLURM_CONF=$place/slurm.conf
mkdir "$place"/{state,spool}
port=$((20000 + RANDOM % 10000))
chmod 755 "$place"
cat > "$SLURM_CONF" << END
ClusterName=tests
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$place/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmctldPidFile=$place/ctld.pid
SlurmdPidFile=$place/d.pid
StateSaveLocation=$place/state
SlurmdSpoolDir=$place/spool
SlurmctldLogFile=$place/ctld.log
SlurmdLogFile=$place/d.log
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=1,sched_interval=2,sched_min_interval=1
KillWait=30
ReturnToService=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(getconf _NPROCESSORS_ONLN) RealMemory=1000 State=UNKNOWN
PartitionName=tests Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
stops() {
  scancel -u root 2> /dev/null || true
  for name in d ctld munge; do [ ! -s "$place/$name.pid" ] || kill "$(cat "$place/$name.pid")" 2> /dev/null || true; done
  sleep 1
  rm -rf "$place"
}
trap stops EXIT
head -c 1024 /dev/urandom > "$place/key"
chmod 400 "$place/key"
munged --force --key-file="$place/key" --socket="$place/munge" --pid-file="$place/munge.pid" --log-file="$place/munge.log" --seed-file="$place/seed"
slurmctld && slurmd || { fail "Slurm does not start: $(tail -n 3 "$place"/*.log)"; finish; }
for ((i = 0; i < 100; i++)); do
  [ "$(sinfo -h -o %t 2> /dev/null)" = idle ] && break
  sleep 0.2
done

head -c 700 README.md > "$WORK/text.txt"
"$TPGEN" tests/plans/resume/tiny.lua -D tp=2 -o "$WORK/tiny" && "$WORK/tiny/run.sh" --transport mpi --build > "$WORK/build.log" 2>&1 ||
  { cat "$WORK/build.log"; fail "the build"; finish; }
cd "$WORK"
common=(--data "$WORK/text.txt" --log-every 50)
same() { cmp "$1" "$2" || fail "$3"; }

for mpi in pmix; do
  timeout 120 srun -n 2 --mpi=$mpi tiny/run.sh "${common[@]}" --steps 12 --save "$WORK/$mpi" > $mpi.said 2>&1 || fail "srun --mpi=$mpi: $(tail -n 3 $mpi.said)"
  ! grep -q 'steps 1 to 12' $mpi.said || [ "$(grep -c 'steps 1 to 12' $mpi.said)" -eq 1 ] || fail "$mpi: each rank is a job of its own"
done
timeout 120 tiny/run.sh "${common[@]}" --transport mpi --steps 12 --save "$WORK/alone" > alone.said 2>&1 || fail "alone"
same alone/model.safetensors pmix/model.safetensors "srun --mpi=pmix: other bits"

# job NAME STEPS MORE...: submits what run.sh --sbatch prints, and sets id.
job() {
  tiny/run.sh --sbatch 1 "${common[@]}" --steps "$2" --resume "$WORK/$1" --save-every 100 --metrics "$WORK/$1.jsonl" |
    sed "s/24:00:00/0:30:00/; s#tiny-%j.out#$1-%j.out#" > "$1.sh"
  id=$(sbatch --parsable "${@:3}" "$1.sh") || fail "$1: sbatch"
}
wait_for() { # SECONDS COMMAND...
  local i
  for ((i = 0; i < 5 * $1; i++)); do
    "${@:2}" && return
    sleep 0.2
  done
  fail "waited for ${*:2}: $(cat ./*.out | tail -n 5) $(tail -n 3 "$place/ctld.log")"
}
has_step() { [ "$(tail -n 1 "$1.jsonl" 2> /dev/null | sed -n 's/.*"step":\([0-9]*\).*/\1/p')" -ge "$2" ] 2> /dev/null; }
is_over() { [ -z "$(squeue -h -j "$1" 2> /dev/null)" ]; }
waits() { [ "$(squeue -h -j "$1" -o %T)" = PENDING ]; }
# Slurm lets a job that was queued again wait for a while.
now() { scontrol update jobid="$1" starttime=now 2> /dev/null || true; }

job asked 20000
wait_for 120 has_step asked 300
scancel --signal=USR1 "$id"
wait_for 60 waits "$id"
grep -q 'stops: SIGUSR1; .* has its checkpoint' asked-"$id".out || fail "SIGUSR1: $(cat asked-"$id".out)"
reached=$(tail -n 1 asked.jsonl | sed -n 's/.*"step":\([0-9]*\).*/\1/p')
goes_on() { now "$id"; has_step asked $((reached + 300)); }
wait_for 400 goes_on
# Taken off the machine: Slurm ends it, and puts it in the queue.
scontrol requeue "$id"
wait_for 90 waits "$id"
ends() { now "$id"; is_over "$id"; }
wait_for 900 ends
has_step asked 20000 || fail "it has come to $(tail -n 1 asked.jsonl)"
[ "$(grep -c 'steps [0-9]* to 20000' asked-"$id".out)" -eq 3 ] || fail "it has not begun three times: $(cat asked-"$id".out)"
timeout 600 tiny/run.sh "${common[@]}" --transport mpi --steps 20000 --save "$WORK/let_alone" > let_alone.said 2>&1 || fail "let alone"
same let_alone/model.safetensors asked/model.safetensors "queued twice again: other bits"

# An array: each job has a folder of its own.
tiny/run.sh --sbatch 1 "${common[@]}" --steps 12 --resume 'array.$SLURM_ARRAY_TASK_ID' | sed "s/24:00:00/0:30:00/; s#\\\\\\\$SLURM_ARRAY#\$SLURM_ARRAY#" > array.sh
id=$(sbatch --parsable --array=1-2 array.sh)
wait_for 240 is_over "$id"
for task in 1 2; do same alone/model.safetensors array.$task/model.safetensors "task $task of an array: other bits"; done
finish "srun by pmix, a job that is queued again twice, and an array, with the bits of jobs that are let alone"
