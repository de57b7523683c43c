"""Warm workers: jobs forked from a process that has imported torch, which takes seconds.

A workflow rule starts a client (client.py), which uses only the standard library. It requests a
worker from the server (server.py) of its kind, and starts that server if there is none. The worker
is a new process with its own memory and does the job as if it had been started directly.
"""

kind = "plain"
"""How this process started: "plain" (directly) or "warm" (forked from the server)."""
