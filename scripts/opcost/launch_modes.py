"""The launch modes of whole models; measuring/launch.py has what makes a workload run in each."""

LAUNCH_MODES = {
    "eager": "call by call",
    "graph": "a CUDA graph of all calls, which needs no host",
    "compiled": "torch.compile, which fuses operators",
}
"""Launch mode -> what it is. Operators are called one by one."""

EAGER, *FURTHER_MODES = LAUNCH_MODES

FURTHER_MODES_TEXT = "; ".join(f"{mode}, {LAUNCH_MODES[mode]}" for mode in FURTHER_MODES)
