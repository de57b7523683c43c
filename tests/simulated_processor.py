"""A simulated processor with an energy counter, in real powercap files and virtual time.

Simulates: 80 W at work and 20 W at rest, in one package; work is synchronous. Does not simulate:
memory domains, the pace of real counters, other processes.
"""


class Cores:
    """The processor: its own clock, and the load that keeps it at work."""

    iteration_s = 2e-3
    may_wait = False

    def __init__(self, folder):
        self.file = folder / "intel-rapl:0" / "energy_uj"
        self.file.parent.mkdir()
        (self.file.parent / "name").write_text("package-0\n")
        (self.file.parent / "max_energy_range_uj").write_text("1000000000\n")
        self.time_s = self.energy_j = 0.0
        self.sleep(0)

    def sleep(self, seconds, watts=20.0):
        self.time_s += seconds
        self.energy_j += seconds * watts
        self.file.write_text(f"{round(self.energy_j * 1e6)}\n")

    def now_s(self):
        return self.time_s

    def start(self, iterations):
        self.sleep(iterations * self.iteration_s, 80.0)
        return lambda: True
