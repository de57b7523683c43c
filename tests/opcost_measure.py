"""`opcost measure` in a process, and what it says of the simulated card."""

import json
import subprocess
import sys

IDLE_W = 60.0
"""What the card draws: it idles, in real time, in the sampler's process."""

GPU = "cuda:0"


def measure(*arguments, **options):
    """Run it to its end."""
    command = [sys.executable, "-m", "opcost", "measure", *map(str, arguments)]
    options = {"capture_output": True, "text": True, "timeout": 120, **options}
    return subprocess.run(command, **options)


def used(found):
    """What `opcost measure --json` says of the card."""
    text = found.stderr
    document = json.loads(text[text.index("{") : text.rindex("}") + 1])
    return document["devices"][GPU]
