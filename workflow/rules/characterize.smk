# The power sensor of each target's device: `snakemake --cores 1 characterize`.
#
#   in:  results/{target}/{conditions}/device.json
#   out: results/{target}/{conditions}/sensor.json
#                              refresh, averaging, lag, noise of its readings; idle power
#
# Benchmarks read it. It describes hardware: targets of one device, such as a GPU's operating
# points, and a target under other conditions, copy it. To characterise again, delete all of these
# files.


rule characterize_sensor:
    input:
        device=ancient(device_file(EACH)),
    output:
        sensor_file(EACH),
    log:
        "logs/{target}/{conditions}/characterize_sensor.log",
    priority: 999
    conda:
        "../../envs/opcost.yaml"
    threads: target_threads
    resources:
        **MEASURING,
    params:
        job=job_command,
        conditions=conditions,
    message:
        "Characterising the power sensor of target {wildcards.target}"
    shell:
        "{params.job} characterize {output:q} --conditions {params.conditions:q} 2> >(tee {log:q} >&2)"


rule characterize:
    input:
        [sensor_file(folder) for folder in FOLDERS.values()],
