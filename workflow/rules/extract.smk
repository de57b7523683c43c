# What the models execute.
#
#   in:  the definition of each model (config/models/{model}.yaml, or torchvision's; study.smk)
#        results/{target}/device.json
#   out: results/tuples/{model}.pkl     a model's operator tuples and calls, or why there are none
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
        asked=ASKED["collect"],
    message:
        "Collecting the unique operator tuples"
    script:
        "../../scripts/collect.py"
