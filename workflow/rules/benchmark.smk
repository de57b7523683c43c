# Measurements: one job for each unique operator tuple and for each model, on each target.
#
#   in:  results/operator_tuples.json
#        results/{target}/sensor.json                    what its power sensor is like
#   out: results/{target}/device.json                    the device that the target stands for
#        results/{target}/operators/{tuple_id}.parquet   one row
#        results/{target}/again/{tuple_id}.parquet       one row, as before: how well it reproduces
#        results/{target}/models/{model}.parquet         one row
#        results/{target}/models_again/{model}.parquet   one row, as before
#        results/{target}/overhead_again.json            what calls cost, as device.json has it
#
# The manifest, the device and the sensor are `ancient`: another model, or the same device found
# anew, is no reason to measure again. What is one (settings, protocol version) travels as `params`.


rule identify_target:
    output:
        "results/{target}/device.json",
    log:
        "logs/{target}/identify_target.log",
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
        manifest=ancient("results/operator_tuples.json"),
        device=ancient("results/{target}/device.json"),
        sensor=ancient("results/{target}/sensor.json"),
    output:
        "results/{target}/operators/{tuple_id}.parquet",
    log:
        "logs/{target}/operators/{tuple_id}.log",
    priority: importance
    group:
        batch("operators", benchmarked)
    conda:
        "../../envs/opcost.yaml"
    threads: target_threads
    resources:
        **MEASURING,
        runtime=longest_minutes,
    params:
        conditions=conditions,
    shell:
        '"$OPCOST_PYTHON" "$OPCOST_SCRIPTS"/benchmark_operator.py --tuple-id {wildcards.tuple_id}'
        " --manifest {input.manifest:q} --target {wildcards.target} --device {input.device:q}"
        " --sensor {input.sensor:q} --conditions {params.conditions:q} --output {output:q}"
        " 2> >(tee {log:q} >&2)"


use rule benchmark_operator as benchmark_operator_again with:
    output:
        "results/{target}/again/{tuple_id}.parquet",
    log:
        "logs/{target}/again/{tuple_id}.log",
    priority: 0
    group:
        batch("again", benchmarked)


rule benchmark_model:
    input:
        manifest=ancient("results/operator_tuples.json"),
        device=ancient("results/{target}/device.json"),
        sensor=ancient("results/{target}/sensor.json"),
    output:
        "results/{target}/models/{model}.parquet",
    log:
        "logs/{target}/models/{model}.log",
    priority: 1 if STUDY.max_device_time_s is None else 2
    group:
        batch("models", lambda: STUDY.models)
    conda:
        "../../envs/opcost.yaml"
    threads: target_threads
    resources:
        **MEASURING,
        runtime=longest_minutes,
    params:
        definition=definition,
        conditions=conditions,
    shell:
        '"$OPCOST_PYTHON" "$OPCOST_SCRIPTS"/benchmark_model.py --definition {params.definition:q}'
        ' --search-path "$OPCOST_MODELS" --target {wildcards.target} --device {input.device:q}'
        " --sensor {input.sensor:q} --conditions {params.conditions:q} --output {output:q}"
        " 2> >(tee {log:q} >&2)"


use rule benchmark_model as benchmark_model_again with:
    output:
        "results/{target}/models_again/{model}.parquet",
    log:
        "logs/{target}/models_again/{model}.log",
    priority: 0
    group:
        batch("models_again", lambda: STUDY.models)


rule measure_overhead_again:
    input:
        device=ancient("results/{target}/device.json"),
        # Only then may all others begin, of which this is the last.
        sensor=ancient("results/{target}/sensor.json"),
    output:
        "results/{target}/overhead_again.json",
    log:
        "logs/{target}/measure_overhead_again.log",
    conda:
        "../../envs/opcost.yaml"
    threads: target_threads
    resources:
        **MEASURING,
    params:
        conditions=conditions,
    shell:
        '"$OPCOST_PYTHON" "$OPCOST_SCRIPTS"/measure_overhead_again.py --target {wildcards.target}'
        " --device {input.device:q} --conditions {params.conditions:q} --output {output:q}"
        " 2> >(tee {log:q} >&2)"
