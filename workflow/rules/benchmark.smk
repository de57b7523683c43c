# Measurements: one job for each unique operator tuple and for each model, on each target.
#
#   in:  results/studies/{study}/operator_tuples.json
#        results/tuples/{model}.pkl or results/{target}/{conditions}/calls/{model}.pkl
#                                                 the calls that a model is expected to make
#        results/{target}/{conditions}/sensor.json
#                                                 the properties of its power sensor
#   out, in results/{target}/{conditions}/:
#        settings.json                            the settings of the target and of measurements
#        device.json                              the device of the target
#        rounds/{study}-{round}.json              the plan of a study's round after the first
#        {series}/{tuple_id}.parquet              one run: one row
#        {series}/{model}.parquet                 one run: one row
#        overhead_{round}.json                    the call overhead, as in device.json
#
# Measurements have no inputs, because Snakemake would measure again when these change: an existing
# file is identified by its path. The manifest is made after devices and sensors. A deleted one is
# made again before anything is measured, by its priority.
#
# A series is a kind of measurement in one round (operators, operators_2, models, models_2, ...), or
# models in a launch mode (models_graph, models_compiled). A round is planned after the previous
# one: it repeats the measurements that improve the precision of the answers most for their time.


rule identify_target:
    output:
        device_file(EACH),
    log:
        "logs/{target}/{conditions}/identify_target.log",
    # Before anything is measured, because it refuses impossible targets.
    priority: 1000
    conda:
        "../../envs/opcost.yaml"
    threads: target_threads
    resources:
        **MEASURING,
    params:
        job=job_command,
        conditions=conditions,
    message:
        "Identifying the device of target {wildcards.target}"
    shell:
        "{params.job} identify {output:q} --conditions {params.conditions:q} 2> >(tee {log:q} >&2)"


rule benchmark_operator:
    output:
        measurement_in(EACH, all_series(OPERATORS), "{tuple_id}"),
    log:
        "logs/{target}/{conditions}/{series}/{tuple_id}.log",
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
        job=job_command,
        conditions=conditions,
        tuples=lambda wildcards, input: str(MANIFEST),
        models=lambda wildcards, input: str(STUDY.model_directory),
    shell:
        "{params.job} measure {output:q} --conditions {params.conditions:q} --tuples {params.tuples:q}"
        " --search-path {params.models:q} 2> >(tee {log:q} >&2)"


use rule benchmark_operator as benchmark_model with:
    output:
        measurement_in(EACH, all_series(MODELS), "{model}"),
    log:
        "logs/{target}/{conditions}/{series}/{model}.log",
    priority: model_priority
    group:
        batch(lambda: MODEL_AT)
    params:
        job=job_command,
        conditions=conditions,
        tuples=lambda wildcards, input: expected_calls(wildcards),
        models=lambda wildcards, input: str(STUDY.model_directory),


rule measure_overhead:
    output:
        overhead_file(EACH, "{round}"),
    log:
        "logs/{target}/{conditions}/measure_overhead_{round}.log",
    conda:
        "../../envs/opcost.yaml"
    threads: target_threads
    resources:
        **MEASURING,
    params:
        job=job_command,
        conditions=conditions,
    shell:
        "{params.job} overhead {output:q} --conditions {params.conditions:q} 2> >(tee {log:q} >&2)"


checkpoint plan_round:
    input:
        measured_before,
    output:
        round_plan(EACH, ADDRESSES.name, "{round}"),
    log:
        "logs/{target}/{conditions}/plan_round_{round}.log",
    localrule: True
    conda:
        "../../envs/opcost.yaml"
    resources:
        processor=1,
    params:
        addressed=ADDRESSED,
        budget=STUDY.max_device_time_s,
        precision=[STUDY.precision.models, STUDY.precision.rows],
        began_s=lambda wildcards, input: BEGAN_S,
        anew=anew_if_cut,
    message:
        "Planning round {wildcards.round} of target {wildcards.target}"
    script:
        "../../scripts/plan_round.py"
