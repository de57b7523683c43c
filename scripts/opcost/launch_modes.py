"""The launch modes of models; measuring/launch.py applies them to workloads."""

LAUNCH_MODES = {
    "eager": "call by call",
    "graph": "a CUDA graph of all calls, which needs no host",
    "compiled": "torch.compile, which fuses operators",
}
"""Launch mode -> its description. Operators are called one by one."""

EAGER, *FURTHER_MODES = LAUNCH_MODES

FURTHER_MODES_TEXT = "; ".join(f"{mode}, {LAUNCH_MODES[mode]}" for mode in FURTHER_MODES)
