# Measurements: one job for each unique operator tuple and for each model, on each target.
#
#   in:  results/operator_tuples.json
#        results/tuples/{model}.pkl or results/{target}/calls/{model}.pkl
#                                                        the calls that a model is expected to make
#        results/{target}/sensor.json                    what its power sensor is like
#   out: results/{target}/device.json                    the device that the target stands for
#        results/{target}/rounds/{round}.json            what a round after the first measures
#        results/{target}/{series}/{tuple_id}.parquet    one execution: one row
#        results/{target}/{series}/{model}.parquet       one execution: one row
#        results/{target}/overhead_{round}.json          what calls cost, as device.json has it
#
# A series is a kind of measurement in one round (operators, operators_2, models, models_2, ...), or
# whole models in a launch mode (models_graph, models_compiled). A round is planned when the one
# before it has been measured: it measures again what makes the answers most precise for its time.
#
# The manifest, the device and the sensor are `ancient`: another model, or the same device identified
# again, is no reason to measure again. What is one (settings, protocol version, a model's
# definition) is compared with each row (outdated.smk).


# A checkpoint because it tells what `auto` is, and so whether calls are recorded there.
checkpoint identify_target:
    output:
        # `update`: where it is refused, the device that was measured on stays known.
        update(device_file(EACH_TARGET)),
    log:
        "logs/{target}/identify_target.log",
    # Before anything is measured: it refuses what a target cannot be.
    priority: 1000
    conda:
        "../../envs/opcost.yaml"
    threads: target_threads
    resources:
        **MEASURING,
    params:
        conditions=conditions,
    message:
        "Identifying the device of target {wildcards.target}"
    shell:
        '"$OPCOST_PYTHON" "$OPCOST_SCRIPTS"/identify_target.py'
        " --conditions {params.conditions:q} --output {output:q} 2> >(tee {log:q} >&2)"


rule benchmark_operator:
    input:
        manifest=ancient(MANIFEST),
        device=ancient(device_file(EACH_TARGET)),
        sensor=ancient(sensor_file(EACH_TARGET)),
    output:
        measurement_in(EACH_TARGET, all_series(OPERATORS), "{tuple_id}"),
    log:
        "logs/{target}/{series}/{tuple_id}.log",
    priority: operator_priority
    group:
        batch(benchmarked)
    conda:
        "../../envs/opcost.yaml"
    threads: target_threads
    resources:
        **MEASURING,
        runtime=longest_minutes,
    params:
        conditions=conditions,
        subject=lambda wildcards: wildcards.tuple_id,
        tuples=MANIFEST,
    shell:
        '"$OPCOST_PYTHON" "$OPCOST_SCRIPTS"/benchmark.py --series {wildcards.series}'
        " --subject {params.subject:q} --tuples {params.tuples:q}"
        ' --search-path "$OPCOST_MODELS" --target {wildcards.target} --device {input.device:q}'
        " --sensor {input.sensor:q} --conditions {params.conditions:q} --output {output:q}"
        " 2> >(tee {log:q} >&2)"


use rule benchmark_operator as benchmark_model with:
    output:
        measurement_in(EACH_TARGET, all_series(MODELS), "{model}"),
    log:
        "logs/{target}/{series}/{model}.log",
    priority: model_priority
    group:
        batch(lambda: STUDY.models)
    params:
        conditions=conditions,
        subject=definition,
        # The manifest was made from it. As a new input, it would measure old rows again.
        tuples=expected_calls,


rule measure_overhead:
    input:
        device=ancient(device_file(EACH_TARGET)),
        # Only then may all others begin, of which this is the last.
        sensor=ancient(sensor_file(EACH_TARGET)),
    output:
        overhead_file(EACH_TARGET, "{round}"),
    log:
        "logs/{target}/measure_overhead_{round}.log",
    conda:
        "../../envs/opcost.yaml"
    threads: target_threads
    resources:
        **MEASURING,
    params:
        conditions=conditions,
    shell:
        '"$OPCOST_PYTHON" "$OPCOST_SCRIPTS"/measure_overhead.py --target {wildcards.target}'
        " --device {input.device:q} --conditions {params.conditions:q} --output {output:q}"
        " 2> >(tee {log:q} >&2)"


checkpoint plan_round:
    input:
        measured_before,
    output:
        plan=round_plan(EACH_TARGET, "{round}"),
        note=note("{target}_round_{round}"),
    log:
        "logs/{target}/plan_round_{round}.log",
    conda:
        "../../envs/opcost.yaml"
    resources:
        processor=1,
    params:
        asked=ASKED["rounds"],
        began_s=BEGAN_S,
    message:
        "Planning round {wildcards.round} of target {wildcards.target}"
    script:
        "../../scripts/plan_round.py"
