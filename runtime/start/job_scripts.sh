# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# run.sh --sbatch and --kubernetes: a batch script, or a manifest, that starts this program on several
# machines. run.sh reads this file, and gives world, transport and here.

# The ranks of each machine, or an error.
ranks_of_machine() { # machines
  [[ $1 =~ ^[1-9][0-9]{0,5}$ ]] || wrong_usage "'$1': it is no number of machines"
  ((world % $1 == 0)) || wrong_usage "$1 machines: the program has ${world} ranks, which they do not share equally"
  ranks=$((world / $1))
}

# A name that schedulers accept: small letters, digits and dashes.
job_name() {
  local name=${here##*/}
  name=${name,,}
  name=${name//[^a-z0-9]/-}
  name=${name#"${name%%[a-z0-9]*}"}
  echo "${name:-tpgen}"
}

# Slurm sends SIGUSR1 two minutes before the limit, and SIGTERM when it takes the machines away: a job that
# saves ends then with a checkpoint and status 75, and the script puts it in the queue again.
print_sbatch() { # machines, run.sh's arguments
  local ranks machines=$1 name
  ranks_of_machine "${machines}"
  shift
  name=$(job_name)
  cat <<END
#!/usr/bin/env bash
#SBATCH --job-name=${name}
#SBATCH --nodes=${machines}
#SBATCH --ntasks-per-node=${ranks}
#SBATCH --time=24:00:00
#SBATCH --signal=USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=${name}-%j.out
END
  [[ ${transport} != nccl ]] || echo "#SBATCH --gpus-per-node=${ranks}"
  [[ ${transport} == nccl ]] || echo "#SBATCH --exclusive"
  printf '\nprogram=%q\n' "${here}"
  if [[ ${transport} == nccl ]]; then
    cat <<'END'
"${program}/run.sh" --build || exit

# Ranks meet over TCP at the first machine, by a token of this job.
export MASTER_ADDR MASTER_PORT=$((20000 + SLURM_JOB_ID % 12000)) TPGEN_TOKEN
MASTER_ADDR=$(scontrol show hostnames "${SLURM_JOB_NODELIST}" | head -n 1)
TPGEN_TOKEN=$(</proc/sys/kernel/random/uuid)
srun "${program}/run.sh"\
END
  else
    cat <<'END' # the build is that of srun's ranks
"${program}/run.sh" --transport mpi --build || exit

cores=${SLURM_CPUS_ON_NODE%%(*}
srun --mpi=pmix --cpus-per-task=$((cores / SLURM_NTASKS_PER_NODE)) "${program}/run.sh"\
END
  fi
  (($# == 0)) || printf ' %q' "$@"
  cat <<'END'

status=$?
[[ ${status} -ne 75 ]] || scontrol requeue "${SLURM_JOB_ID}"
exit "${status}"
END
}

# A text as YAML has it between quotation marks.
quoted() {
  local text=$1
  [[ ${text} != *[[:cntrl:]]* ]] || wrong_usage "an argument has a control character, which a manifest cannot say"
  text=${text//\\/\\\\}
  printf '"%s"' "${text//\"/\\\"}"
}

# An MPIJob of Kubeflow's MPI operator (v2beta1). Its image has the program at the same path, or a volume.
print_kubernetes() { # machines, run.sh's arguments
  local ranks machines=$1 argument command
  ranks_of_machine "${machines}"
  shift
  command="mpirun, --allow-run-as-root, -n, \"${world}\", $(quoted "${here}/run.sh")"
  for argument in "$@"; do command+=", $(quoted "${argument}")"; done
  cat <<END
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata:
  name: $(job_name)
spec:
  slotsPerWorker: ${ranks}
  runPolicy:
    cleanPodPolicy: Running
    backoffLimit: 10
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      restartPolicy: OnFailure
      template:
        spec:
          containers:
          - name: launcher
            image: IMAGE
            command: [${command}]
            volumeMounts:
            - {name: work, mountPath: $(quoted "${here}")}
          volumes:
          - {name: work, persistentVolumeClaim: {claimName: CLAIM}}
    Worker:
      replicas: ${machines}
      template:
        spec:
          containers:
          - name: worker
            image: IMAGE
END
  [[ ${transport} != nccl ]] || cat <<END
            resources:
              limits: {nvidia.com/gpu: ${ranks}}
END
  cat <<END
            volumeMounts:
            - {name: work, mountPath: $(quoted "${here}")}
          volumes:
          - {name: work, persistentVolumeClaim: {claimName: CLAIM}}
END
}
