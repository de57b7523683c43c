#!/usr/bin/env bash
# Slurm and munge from the distribution, for tests/test_slurm.py. Starts nothing.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
apt-get update --quiet
apt-get install --quiet --yes --no-install-recommends slurmctld slurmd slurm-client munge
