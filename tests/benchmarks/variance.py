"""Where does the variance of a measured time arise: batch, execution, round or run?

Measures operators of all kinds and whole models of a finished results folder again and again: in
rounds some minutes apart, each with several executions of every subject in random order, each
execution a process with memory of its own. With several files, each is a run.

    python -m tests.benchmarks.variance --output RUN.parquet [--results results]
    python -m tests.benchmarks.variance --table RUN.parquet...

The table gives relative standard deviations in per cent, with 95 % intervals from drawing the
subjects anew:

- batch: within an execution, robustly from the median deviation of its undisturbed batches;
- execution: between executions of a subject in one round, beyond what batches explain;
- round of a subject: between its rounds, beyond executions;
- round of all: what all subjects of a round share;
- run: between a subject's means over runs, beyond rounds.
"""

import argparse
import dataclasses
import random
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch  # noqa: F401  # imported once, before the forks
from opcost.devices.device_file import read_device
from opcost.measuring.job import subject_job
from opcost.measuring.subjects import ModelSubject, OperatorSubject
from opcost.measuring.target_files import TargetFiles
from opcost.models.user_code import reason  # noqa: F401  # imported once, too
from opcost.results_folder import device_file, sensor_file, target_folders
from opcost.rows import records, schemas  # noqa: F401
from opcost.study import Conditions, load_study
from opcost.tuples.model_tuples import read_extractions

COLUMNS = ["status", "time_s", "time_ci_low_s", "time_ci_high_s", "batch_time_s"]
COLUMNS += ["batch_undisturbed", "flags", "sentinel_time_s", "device_time_s", "started_at"]
DRAWS = 400
LEVELS = ("batch", "execution", "round of a subject", "round of all", "run")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--table", type=Path, nargs="+")
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--search-path", type=Path, default=Path("config/models"))
    parser.add_argument("--operators", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--executions", type=int, default=3)
    parser.add_argument("--every-s", type=float, default=240)
    parser.add_argument("--time-s", type=float, default=0.3)
    arguments = parser.parse_args()
    if arguments.output:
        measure(arguments)
    else:
        print_table([pd.read_parquet(path) for path in arguments.table])


def measure(arguments):
    """Measure all rounds, and write a row for each execution as soon as a round is complete."""
    [folder] = target_folders(arguments.results)
    files = TargetFiles(
        folder.name, conditions(arguments.time_s), device_file(folder), sensor_file(folder)
    )
    chosen = subjects(arguments.results, arguments.operators, arguments.search_path)
    print(f"{read_device(files.device_file).device_name}: {len(chosen)} subjects", flush=True)
    found = []
    for number in range(arguments.rounds):
        start_s = time.monotonic()
        for execution in range(arguments.executions):
            for subject in random.sample(chosen, len(chosen)):
                found.append(
                    executed(subject, files, arguments.output)
                    | {"round": number, "execution": execution}
                )
        pd.DataFrame(found).to_parquet(arguments.output)
        print(f"round {number}: {time.monotonic() - start_s:.0f} s", flush=True)
        if number + 1 < arguments.rounds:
            time.sleep(max(0.0, arguments.every_s - (time.monotonic() - start_s)))


def conditions(time_s):
    """The default settings, with the same time for each execution."""
    [default] = load_study(
        {"torchvision": {"names": ["alexnet"]}, "targets": {"local": {"device": "auto"}}}
    ).conditions.values()
    settings = dataclasses.replace(
        default.measurement,
        time_relative_ci=1e-6,
        max_repeats=0,
        min_time_s=time_s,
        max_time_s=time_s,
        model_time_s=time_s,
    )
    return Conditions(default.target, settings, default.protocol_version)


def subjects(results, operators, search_path):
    """All extracted models, and operator tuples of all kinds in turn, at random in each."""
    models = [
        model for model in read_extractions(results.glob("tuples/*.pkl")) if not model.refusal
    ]
    by_operator = {}
    for model in models:
        for record, _ in model.kernels():
            tuples = by_operator.setdefault(record.operator_tuple.operator, {})
            tuples[record.operator_tuple.tuple_id] = record
    stacks = [
        random.Random(0).sample(list(each.values()), len(each))
        for _, each in sorted(by_operator.items())
    ]
    chosen = []
    while len(chosen) < operators and any(stacks):
        chosen += [OperatorSubject(stack.pop()) for stack in stacks if stack]
    return [*chosen[:operators], *(ModelSubject(m.definition, search_path) for m in models)]


def executed(subject, files, output):
    """What one execution found."""
    path = output.with_suffix(".execution")
    subject_job(subject, files, 0, path)
    [row] = records.read(path, subject.schema).to_pylist()
    return {"kind": subject.kind, "subject": subject.description} | {
        name: row[name] for name in COLUMNS
    }


def print_table(runs):
    """The components by kind of subject, and of small and large operators."""
    every = pd.concat([frame.assign(run=number) for number, frame in enumerate(runs)])
    every = every[every.status == "ok"].copy()
    every["log"] = np.log(every.time_s)
    every["batch"] = [
        within(*each) for each in zip(every.batch_time_s, every.batch_undisturbed, strict=True)
    ]
    every["error"] = (
        every.batch * 1.2533 / np.sqrt([max(1, sum(each)) for each in every.batch_undisturbed])
    )
    typical = every.groupby("subject").time_s.transform("median")
    groups = {
        "models": every[every.kind == "model"],
        "operators": every[every.kind == "operator"],
        "operators below 100 µs": every[(every.kind == "operator") & (typical < 1e-4)],
        "operators from 100 µs": every[(every.kind == "operator") & (typical >= 1e-4)],
    }
    for name, group in groups.items():
        names = group.subject.unique()
        if len(names) < 2:
            continue
        found = components(group)
        drawn = np.array(
            [list(components(resampled(group, names, seed)).values()) for seed in range(DRAWS)]
        )
        low, high = np.nanpercentile(drawn, [2.5, 97.5], axis=0)
        print(f"{name} ({len(names)}, {len(group)} executions)")
        for level, value, least, most in zip(LEVELS, found.values(), low, high, strict=True):
            if not np.isnan(value):
                print(f"  {level:20} {value:6.2%} [{least:.2%}, {most:.2%}]")


def within(times_s, undisturbed):
    """The relative standard deviation of the batches of an execution, robustly."""
    times_s = np.asarray(times_s)
    counted = times_s[np.asarray(undisturbed)] if sum(undisturbed) > 2 else times_s
    middle = np.median(counted)
    return np.median(np.abs(counted / middle - 1)) / 0.6745


def resampled(group, names, seed):
    drawn = np.random.default_rng(seed).choice(names, len(names))
    parts = [
        group[group.subject == name].assign(subject=f"{number}")
        for number, name in enumerate(drawn)
    ]
    return pd.concat(parts)


def components(group):
    """Level -> relative standard deviation, by the analysis of variance of nested means."""
    cells = group.groupby(["subject", "run", "round"]).log
    centred = group.log - group.groupby(["subject", "run"]).log.transform("mean")
    shared = centred.groupby([group.run, group["round"]]).median()
    means = cells.mean().reset_index()
    means["log"] -= shared.reindex(pd.MultiIndex.from_frame(means[["run", "round"]])).to_numpy()
    of_runs = means.groupby(["subject", "run"]).log
    executions = robust_variance(cells)
    rounds = robust_variance(of_runs)
    runs = np.nan
    if group.run.nunique() > 1:
        runs = robust_variance(of_runs.mean().groupby("subject")) - rounds / of_runs.size().mean()
    variances = (
        float((group.batch**2).median()),
        executions - float((group.error**2).median()),
        rounds - executions / cells.size().mean(),
        float(shared.groupby("run").var(ddof=1).mean()),
        runs,
    )
    return dict(zip(LEVELS, np.sqrt(np.maximum(variances, 0.0)), strict=True))


def robust_variance(groups):
    """From the median absolute deviation from the means of groups, scaled by their sizes."""
    deviations = groups.transform(
        lambda each: (each - each.mean()) * np.sqrt(len(each) / max(1, len(each) - 1))
    )
    return float((np.median(np.abs(deviations)) / 0.6745) ** 2)


if __name__ == "__main__":
    main()
