#!/bin/bash
# slurm.sh FOLDER SCRIPT: a cluster of this one machine, with munge, slurmctld and slurmd, that lives
# in FOLDER; it runs SCRIPT, which is a job array, to its end. It belongs into namespaces of its own,
# of the network, the host's name and processes, and is gone with the last of them.
set -euo pipefail
cd "$1"
hostname localhost
ip link set lo up
ip addr add 198.18.0.1/32 dev lo # Slurm wants an address that is not a loopback's
mkdir state spool
export SLURM_CONF=$PWD/slurm.conf
cat >slurm.conf <<-END
	ClusterName=test
	SlurmctldHost=localhost
	AuthType=auth/munge
	CredType=cred/munge
	AuthInfo=socket=$PWD/munge.socket
	SlurmUser=root
	SlurmdUser=root
	StateSaveLocation=$PWD/state
	SlurmdSpoolDir=$PWD/spool
	SlurmctldPidFile=$PWD/slurmctld.pid
	SlurmdPidFile=$PWD/slurmd.pid
	MailProg=/bin/true
	ProctrackType=proctrack/linuxproc
	TaskPlugin=task/none
	SelectType=select/cons_tres
	SelectTypeParameters=CR_CPU
	MpiDefault=none
	JobAcctGatherType=jobacct_gather/none
	AccountingStorageType=accounting_storage/none
	ReturnToService=2
	SlurmdParameters=config_overrides
	NodeName=localhost CPUs=2 State=UNKNOWN
	PartitionName=all Nodes=localhost Default=YES MaxTime=INFINITE State=UP
END
case $(slurmd -V) in # these insist on control groups unless told otherwise
*' 2'[0-2].* | *' 23.02'*) ;;
*) echo CgroupPlugin=disabled >cgroup.conf ;;
esac
(umask 077 && head -c 128 /dev/urandom >munge.key)
munged --foreground --force --key-file="$PWD/munge.key" --socket="$PWD/munge.socket" --pid-file="$PWD/munge.pid" \
	--log-file="$PWD/munge.log" --seed-file="$PWD/munge.seed" >munged.out 2>&1 &
for _ in $(seq 100); do [ ! -S munge.socket ] || break; sleep 0.1; done
slurmctld -D >slurmctld.out 2>&1 &
slurmd -D -N localhost >slurmd.out 2>&1 &
failed() {
	echo "$1" >&2
	tail -n 20 munged.out slurmctld.out slurmd.out >&2
	exit 1
}
ready() { sinfo -h -o %T 2>/dev/null | grep -qx idle; }
for _ in $(seq 300); do ! ready || break; sleep 0.1; done
ready || failed 'the node is not there after 30 s'
sbatch --wait "$2" || failed 'the job array has failed'
