"""Warm workers: jobs forked from a process that has imported torch, which takes seconds.

The first job of a run starts the run's server (server.py). A job (client.py) asks it for a worker:
a new process with its own memory, which does the job as if it had been started directly. A job that
finds no server does its work itself.
"""

kind = "plain"
"""How this process started: "plain" (directly) or "warm" (forked from the server)."""
