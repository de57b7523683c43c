# The Slurm plugin (2.8.0), told to ask squeue, asks sacct all the same when the controller does not
# answer; without accounting, Snakemake would wait for ever. Here squeue is asked until it answers.

import sys


def ask_nothing_but_squeue():
    plugin = sys.modules.get("snakemake_executor_plugin_slurm")
    if plugin and getattr(workflow.executor_settings, "status_command", None) == "squeue":
        plugin.is_query_tool_available = lambda tool: tool == "squeue"
