# Extraction of the models' operators.
#
#   in:  the definition of each model (config/models/{model}.yaml, or torchvision's; study.smk)
#        results/{target}/{conditions}/device.json
#   out: results/tuples/{model}.pkl     a model's operator tuples and calls, or the reason for none
#        results/{target}/{conditions}/calls/{model}.pkl
#                                       the same, traced on a target's device
#        results/models.parquet         the table of models (+ .csv, .txt)
#        results/studies/{study}/       the study's configuration, and its models' unique tuples
#
# {model} ends with a digest of its definition. Inputs are `ancient`, and parameters trigger no run
# (Snakemake does not record those of functions that have `input`): an existing file is identified
# by its path.
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


# On a device of another kind than the processor, on which extraction runs.
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
        "Tracing the calls of {wildcards.model} on target {wildcards.target}"
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
        "Tabulating the models"
    script:
        "../../scripts/models.py"


# Devices and sensors are inputs so that nothing is measured before all targets have been
# identified.
checkpoint collect:
    input:
        tuples=extracted,
        traced=traced,
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
