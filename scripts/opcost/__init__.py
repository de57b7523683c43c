"""What does a PyTorch model cost, in seconds and in joules, and where does it go?

>>> import opcost
>>> cost = opcost.explain("alexnet")          # or a module and its inputs
>>> cost.time                                 # seconds, with their 95 % interval
>>> cost.operators                            # a pandas DataFrame; shares add up to 1
>>> print(cost)                               # the text of `opcost explain`

`opcost.run` measures models that a database does not contain yet. `opcost.time` and
`opcost.compare` measure any function in this process:

>>> print(opcost.time(torch.relu, torch.ones(1000)))
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opcost.errors import need

if TYPE_CHECKING:
    import pandas as pd

    from opcost.costs.model_cost import ModelCost
    from opcost.measuring.function_timing import FunctionComparison, FunctionTime

__version__ = "0.1.0"
workflow_commit: str | None = None
"""The commit of the workflow's code, in its jobs."""

__all__ = ["compare", "explain", "run", "time", "time_over"]


def explain(
    model: Any,
    inputs: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    database: Any = None,
    target: str | None = None,
    batch_size: int | None = None,
    dtype: str | None = None,
    predict: bool = True,
) -> "ModelCost":
    """The cost of a model, from the measured operators in a database. Measures nothing.

    `model` is an `nn.Module` (which is not modified, and not run on its data), or an argument of
    `opcost explain`: a torchvision name, the path of a model config, `package.module:factory` or
    `file.py:factory`. It may also be the result of an extraction (`ModelTuples`).

    The cost of a module is that of inference, inside `with torch.autocast(...)` in that precision.
    A training step or a request to a language model needs a model config, whose path is `model`:
    docs/how_to/train.md has one for your own module, docs/how_to/generate.md one that generates
    text.

    `inputs` are the positional arguments of a module's forward: a tensor, or a tuple or list of
    arguments; `kwargs` its keyword arguments. For a name, they are sizes such as "8x3x224x224" or
    "1x128:int64<30522", and `kwargs` the arguments of the constructor or factory. `batch_size`
    applies to official inputs or a config, or is put in front of the sizes. Parameters and inputs
    are converted to `dtype`; by default, they stay as they are built.

    `database` is a path or several, by default results/database.parquet in the current folder and
    the databases that are part of opcost. `target` selects a target by name, or by conditions_id in
    a merged database; the default is the first one with the most operators measured.

    With `predict`, operators that nobody measured on the target are predicted from others, if they
    are alike; `predicted_share` says how much of the time they are.

    Raises opcost.errors.OpcostError, with a remedy, if the model cannot be built or run, or a file
    is not a database.

    >>> net, x = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU()), torch.randn(4, 8)
    >>> cost = opcost.explain(net, x)
    >>> cost.time or cost.reason
    >>> cost.modules.nlargest(10, "time_s")

    >>> with torch.autocast(x.device.type, torch.bfloat16):
    ...     cost = opcost.explain(net, x)

    >>> attention, x = torch.nn.MultiheadAttention(8, 2), torch.randn(4, 1, 8)
    >>> opcost.explain(attention, (x, x, x), {"need_weights": False}).missing
    """
    from opcost.costs.lookup import look_up

    kwargs = {} if kwargs is None else kwargs
    return look_up(model, inputs, kwargs, database, target, batch_size, dtype, predict)


def run(
    model: Any,
    inputs: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    folder: Any = ".",
    name: str | None = None,
    device: str | None = None,
    threads: int | None = None,
    max_device_time: str | None = None,
) -> "ModelCost":
    """Measure a model, end to end and operator by operator, and return its cost.

    Like `opcost run` in a terminal, with the same results: the workflow runs in `folder`, keeps
    everything in its results/, and measures only what is missing there.

    `model` is an `nn.Module` that takes `inputs` by position and `kwargs` by name; or a name, as
    for `explain`. A module is saved in results/modules/ of the folder, as `name` (by default, its
    class), and loaded by the processes that measure it. Its classes must therefore be defined in a
    file that can be imported, not in a notebook; its weights and the values of its inputs are
    irrelevant. As for `explain`, a module is measured in inference, and under an active
    torch.autocast; training and generation need a model config.

    `device`, `threads` and `max_device_time` ("90s", "10min", "2h") are options of `opcost run`.

    Raises opcost.errors.OpcostError if the model cannot be saved or run, or the workflow fails.

    Example, which takes minutes:

        cost = opcost.run("resnet18", "8x3x224x224", max_device_time="5min")
    """
    need("torch")
    from opcost.runs.from_python import run_from_python

    options = {"device": device, "threads": threads, "max_device_time": max_device_time}
    return run_from_python(model, inputs, {} if kwargs is None else kwargs, name, folder, options)


def time(
    function: Callable[..., Any],
    *args: Any,
    cache: str = "cold",
    max_time_s: float = 1.0,
    precision: float = 0.01,
    device: str | None = None,
    energy: bool = True,
) -> "FunctionTime":
    """The time and energy of `function(*args)`, any Python function, in this process.

    PyTorch's settings stay as they are. Some calls, of which the first may compile, and a tenth of
    `max_time_s` warm up. Then calls are timed for at most `max_time_s` seconds, until half of the
    95 % interval is within `precision` of the time. `functools.partial` holds keyword arguments.

    The device is the one that the tensors among the arguments are on, or else the results;
    `device`, such as cuda:1, chooses another. On a processor, time is wall-clock time and includes
    Python's call. On a GPU, it is the time between two events, without launching (`host_time`),
    unless the function waits for the device.

    In state "cold" of the `cache`, each call gets another copy of `args`, so that they come from
    memory. What else the function uses, such as weights, stays, as with `cache="warm"`, where each
    call gets `args` themselves.

    `energy` is what the whole device draws, other programs included, during a further `max_time_s`
    of calls, if it has a sensor (NVIDIA, AMD, RAPL); a separate process reads it.

    The interval covers variation during the measurement, and the usual variation between processes
    (2 %). To learn which of two functions is faster, `compare` them.

    Raises opcost.errors.OpcostError for what cannot be called, with the function's own error, and
    if tensors are on several devices or, in a process that uses a GPU, on none.

    >>> a, b = torch.randn(64, 64), torch.randn(64, 64)
    >>> found = opcost.time(torch.mm, a, b)
    >>> found.time, found.energy or found.energy_reason, found.notes
    """
    need("torch")
    from opcost.measuring.function_timing import Options, measure

    [found], _ = measure([function], args, Options(cache, max_time_s, precision, device, energy))
    return found


def compare(
    first: Callable[..., Any], second: Callable[..., Any], *args: Any, **options: Any
) -> "FunctionComparison":
    """Which of two functions is faster on the same arguments, with the ratio of their times.

    Blocks of calls of both take turns, so that drift of the machine cancels in the ratio. Its 95 %
    interval decides: the first is "faster", "slower" or "not distinguishable". `max_time_s` is for
    both together; other options, and errors, are those of `time`.

    >>> opcost.compare(torch.relu, lambda x: x.clamp(min=0), torch.randn(1000)).verdict
    """
    need("torch")
    from opcost.measuring import function_timing as timing

    return timing.compare(first, second, args, timing.Options.of(options))


def time_over(
    grid: Mapping[str, Sequence[Any]], make: Callable[..., tuple[Any, ...]], **options: Any
) -> "pd.DataFrame":
    """A table of times, with a row for each point of a grid of sizes.

    `make` gets a value of each name, and returns a function and its arguments. Options and errors
    are those of `time`.

    >>> opcost.time_over({"n": [64, 128]}, lambda n: (torch.mm, torch.ones(n, n), torch.ones(n, n)))
    """
    need("torch")
    from opcost.measuring import function_timing as timing

    return timing.time_over(grid, make, timing.Options.of(options))
