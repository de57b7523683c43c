# The plan of a run: `snakemake --cores 1 plan`. It extracts the models, and measures nothing.
#
#   in:  results/tuples/{model}.pkl, and existing measurements
#   out: text on the terminal


rule plan:
    input:
        extracted,
    log:
        "logs/plan.log",
    conda:
        "../../envs/opcost.yaml"
    params:
        addressed=ADDRESSED,
    message:
        "Planning"
    script:
        "../../scripts/plan.py"
