# What the models execute.
#
#   in:  the definition of each model (config/models/{model}.yaml, or torchvision's; study.smk)
#        results/{target}/device.json
#   out: results/tuples/{model}.pkl     a model's operator tuples and calls, or why there are none
#        results/{target}/calls/{model}.pkl
#                                       the same, as a target's device makes them
#        results/models.parquet         what each model is made of (+ .csv, .txt)
#        results/operator_tuples.json   the unique tuples over all models
#
# `snakemake --cores 2 models` extracts all models and tabulates them, and measures nothing.


rule extract:
    output:
        extraction("{model}"),
    log:
        "logs/extract/{model}.log",
    conda:
        "../../envs/opcost.yaml"
    resources:
        processor=1,
    params:
        definition=definition,
    message:
        "Extracting the operators of {wildcards.model}"
    shell:
        '"$OPCOST_PYTHON" "$OPCOST_SCRIPTS"/extract.py --definition {params.definition:q}'
        ' --search-path "$OPCOST_MODELS" --output {output:q} 2> >(tee {log:q} >&2)'


# On a device of another kind than the processor, which extracts.
rule record_calls:
    input:
        tuples=extraction("{model}"),
        device=ancient(device_file(EACH_TARGET)),
    output:
        recording(EACH_TARGET, "{model}"),
    log:
        "logs/{target}/calls/{model}.log",
    group:
        batch(lambda: STUDY.models)
    conda:
        "../../envs/opcost.yaml"
    threads: target_threads
    resources:
        **MEASURING,
        runtime=longest_minutes,
    params:
        conditions=conditions,
        definition=definition,
    message:
        "Recording the calls of {wildcards.model} on target {wildcards.target}"
    shell:
        '"$OPCOST_PYTHON" "$OPCOST_SCRIPTS"/record_calls.py --target {wildcards.target}'
        " --definition {params.definition:q} --tuples {input.tuples:q}"
        ' --search-path "$OPCOST_MODELS" --device {input.device:q}'
        " --conditions {params.conditions:q} --output {output:q} 2> >(tee {log:q} >&2)"


rule models:
    input:
        tuples=extracted,
    output:
        note=note("models"),
        table=MODEL_TABLE,
        csv=report(
            MODEL_TABLE.with_suffix(".csv"), caption="../report/models.rst", category="Models"
        ),
        text=report(
            MODEL_TABLE.with_suffix(".txt"), caption="../report/models.rst", category="Models"
        ),
    log:
        "logs/models.log",
    conda:
        "../../envs/opcost.yaml"
    resources:
        processor=1,
    params:
        asked=ASKED["models"],
    message:
        "Tabulating what the models are made of"
    script:
        "../../scripts/models.py"


# The devices are inputs so that nothing is measured before every target is known to exist.
checkpoint collect:
    input:
        tuples=extracted,
        recorded=recorded,
        devices=devices,
    output:
        manifest=MANIFEST,
        note=note("collect"),
    log:
        "logs/collect.log",
    conda:
        "../../envs/opcost.yaml"
    params:
        operators=STUDY.operators,
        folders=FOLDERS,
        models_on=MODELS_ON,
        asked=ASKED["collect"],
    message:
        "Collecting the unique operator tuples"
    script:
        "../../scripts/collect.py"
