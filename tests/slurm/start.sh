#!/usr/bin/env bash
# start.sh FOLDER PORT KIND...: a Slurm cluster on this machine, as root or as an ordinary user.
#
# It has a node for each KIND, n0 and so on, with one GPU of that kind: a link to /dev/null, which
# Slurm allots like a real one. There is no accounting. All state lies in FOLDER, process ids in
# FOLDER/run. The controller listens on PORT, the nodes on the ports after it.
set -euo pipefail
folder=$(realpath -m "$1")
port=$2
kinds=("${@:3}")
nodes=${#kinds[@]}
me=$(id -un)
host=$(hostname -s)
umask 022
mkdir -p "$folder"/{etc,log,run,state,dev,bin}
mkdir -p -m 700 "$folder/munge"
(umask 077 && head -c 128 /dev/urandom > "$folder/munge/key")
echo "CgroupPlugin=cgroup/v1" > "$folder/etc/cgroup.conf"

cat > "$folder/etc/slurm.conf" << CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=$me
SlurmdUser=$me
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$folder/run/munge.socket
StateSaveLocation=$folder/state
SlurmctldPidFile=$folder/run/slurmctld.pid
SlurmctldLogFile=$folder/log/slurmctld.log
SlurmdPidFile=$folder/run/slurmd.%n.pid
SlurmdLogFile=$folder/log/slurmd.%n.log
SlurmdSpoolDir=$folder/state/%n
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
TaskProlog=$folder/etc/task_prolog
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2,sched_min_interval=0,batch_sched_delay=0
GresTypes=gpu
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
MinJobAge=3600
KillWait=2
CONF

# Jobs of two nodes would meet in one /tmp here, and so in one lock of the processor. A folder for
# each node stands for the /tmp of a host of its own.
cat > "$folder/etc/task_prolog" << PROLOG
#!/bin/sh
echo "export TMPDIR=$folder/tmp/\$SLURMD_NODENAME"
echo "export OPCOST_LOCKS=$folder/tmp/\$SLURMD_NODENAME"
PROLOG
chmod +x "$folder/etc/task_prolog"

: > "$folder/etc/gres.conf"
for ((n = 0; n < nodes; n++)); do
  mkdir -p "$folder/state/n$n" "$folder/tmp/n$n"
  ln -sfn /dev/null "$folder/dev/n$n"
  echo "NodeName=n$n Name=gpu Type=${kinds[n]} File=$folder/dev/n$n" >> "$folder/etc/gres.conf"
  echo "NodeName=n$n NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1 + n)) CPUs=4" \
    "RealMemory=64000 Gres=gpu:${kinds[n]}:1 State=UNKNOWN" >> "$folder/etc/slurm.conf"
done
echo "PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP" >> "$folder/etc/slurm.conf"

# A Slurm job's own Snakemake drops SLURM_CONF before it calls srun.
printf '#!/bin/sh\nSLURM_CONF=%s exec %s "$@"\n' "$folder/etc/slurm.conf" "$(command -v srun)" \
  > "$folder/bin/srun"
chmod +x "$folder/bin/srun"

export SLURM_CONF="$folder/etc/slurm.conf" PATH=$PATH:/usr/sbin
munged --socket="$folder/run/munge.socket" --key-file="$folder/munge/key" \
  --pid-file="$folder/run/munged.pid" --log-file="$folder/munge/munged.log" \
  --seed-file="$folder/munge/seed"
slurmctld -c
for ((n = 0; n < nodes; n++)); do slurmd -c -N "n$n"; done
for _ in $(seq 300); do
  [ "$(sinfo -h -N -o %T | grep -cx idle)" = "$nodes" ] && exit 0
  sleep 0.1
done
sinfo -N -l
tail -n 20 "$folder"/log/*.log
exit 1
