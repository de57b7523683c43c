"""A study on a host without network that is lent for some minutes at a time.

docs/how_to/offline_gpu.md is the guide. `campaign/` in the repository, which git ignores, holds
what travels:

    campaign/host.json   the Python and the packages of the host
    campaign/wheels/     the packages that it lacks
    campaign/home/       what the last command brought home; the next one goes on from there
    campaign/record/     what the commands did, and what they found beside results/
"""

from pathlib import Path

FOLDER = Path("campaign")
HOST = FOLDER / "host.json"
WHEELS = FOLDER / "wheels"
HOME = FOLDER / "home"
RECORD = FOLDER / "record"
