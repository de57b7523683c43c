"""Jobs without the seconds that importing torch takes: forked from a process that has done it.

A client (client.py) is what a rule of the workflow starts: light, standard library alone. It asks
the server (server.py) of its kind for a worker, and starts that server if there is none. The worker
is a fresh process with memory of its own, and runs the rule's script as if it had been started.
"""

kind = "plain"
"""How this process was started: "plain" by itself, "warm" as a fork of the server."""
