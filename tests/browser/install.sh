#!/usr/bin/env bash
# Chromium from the distribution, for tests/test_report_page.py.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
apt-get update --quiet
apt-get install --quiet --yes --no-install-recommends chromium
