# What the models execute.
#
#   in:  the definition of each model (config/models/{model}.yaml, read by study.smk)
#   out: results/tuples/{model}.pkl     a model's operator tuples and calls
#        results/operator_tuples.json   the unique tuples over all models


rule extract:
    output:
        "results/tuples/{model}.pkl",
    log:
        "logs/extract/{model}.log",
    conda:
        "../../envs/opcost.yaml"
    params:
        definition=definition,
    message:
        "Extracting the operators of {wildcards.model}"
    shell:
        '"$OPCOST_PYTHON" "$OPCOST_SCRIPTS"/extract.py --definition {params.definition:q}'
        ' --search-path "$OPCOST_MODELS" --output {output:q} 2> >(tee {log:q} >&2)'


checkpoint collect:
    input:
        expand("results/tuples/{model}.pkl", model=STUDY.models),
    output:
        "results/operator_tuples.json",
    log:
        "logs/collect.log",
    conda:
        "../../envs/opcost.yaml"
    params:
        operators=STUDY.operators,
    message:
        "Collecting the unique operator tuples"
    script:
        "../../scripts/collect.py"
