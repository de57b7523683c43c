# What the models execute.
#
#   in:  the definition of each model (config/models/{model}.yaml, or torchvision's; study.smk)
#        results/{target}/{conditions}/device.json
#   out: results/tuples/{model}.pkl     a model's operator tuples and calls, or why there are none
#        results/{target}/{conditions}/calls/{model}.pkl
#                                       the same, as a target's device makes them
#        results/models.parquet         what each model is made of (+ .csv, .txt)
#        results/studies/{study}/       what the study asks for, and the unique tuples of its models
#
# {model} ends with a digest of what it is. Inputs are `ancient`, and parameters are no reason to run
# (Snakemake does not record those of functions that have `input`): where the file exists, it is of what
# its path says.
#
# `snakemake --cores 2 models` extracts all models and tabulates them, and measures nothing.


rule extract:
    input:
        ancient(model_sources),
    output:
        extraction("{model}"),
    log:
        "logs/extract/{model}.log",
    conda:
        "../../envs/opcost.yaml"
    resources:
        processor=1,
    params:
        job=job_command,
        definition=lambda wildcards, input: STUDY.models[
            model_at(wildcards.model, EXTRACTED_AT)
        ].to_json(),
        settings=lambda wildcards, input: STUDY.extraction.to_json(),
        models=lambda wildcards, input: str(STUDY.model_directory),
    message:
        "Extracting the operators of {wildcards.model}"
    shell:
        "{params.job} extract {output:q} --definition {params.definition:q} --settings {params.settings:q}"
        " --search-path {params.models:q} 2> >(tee {log:q} >&2)"


# On a device of another kind than the processor, which extracts.
rule record_calls:
    input:
        tuples=ancient(extraction("{model}")),
        device=ancient(device_file(EACH)),
    output:
        recording(EACH, "{model}"),
    log:
        "logs/{target}/{conditions}/calls/{model}.log",
    group:
        batch(lambda: EXTRACTED_AT)
    conda:
        "../../envs/opcost.yaml"
    threads: target_threads
    resources:
        **MEASURING,
        runtime=longest_minutes,
    params:
        job=job_command,
        conditions=conditions,
        models=lambda wildcards, input: str(STUDY.model_directory),
    message:
        "Recording the calls of {wildcards.model} on target {wildcards.target}"
    shell:
        "{params.job} record {output:q} --conditions {params.conditions:q} --tuples {input.tuples:q}"
        " --search-path {params.models:q} 2> >(tee {log:q} >&2)"


rule models:
    input:
        tuples=extracted,
    output:
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
        models=list(SHOWN.extractions.values()),
        code=CODE,
    message:
        "Tabulating what the models are made of"
    script:
        "../../scripts/models.py"


# Devices and sensors are inputs so that nothing is measured before every target is known to exist.
checkpoint collect:
    input:
        tuples=extracted,
        recorded=recorded,
        devices=ancient(devices),
        sensors=ancient(sensors),
    output:
        study=ADDRESSES.file,
        manifest=MANIFEST,
    log:
        "logs/collect.log",
    localrule: True  # as others: on a cluster, on Snakemake's own machine
    conda:
        "../../envs/opcost.yaml"
    params:
        addressed=ADDRESSED,
    message:
        "Collecting the unique operator tuples"
    script:
        "../../scripts/collect.py"
