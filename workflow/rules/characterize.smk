# The power sensor of each target's device: `snakemake --cores 1 characterize`.
#
#   in:  results/{target}/device.json
#   out: results/{target}/sensor.json   refresh, averaging, lag, noise of its readings; idle power
#
# Benchmarks read it. It describes hardware, so only another device of the target makes it again:
# delete it to characterise again, after a new driver for instance. Targets of one GPU, such as its
# operating points, share it: delete the file of each.


rule characterize_sensor:
    input:
        device=ancient(device_file(EACH_TARGET)),
    output:
        sensor_file(EACH_TARGET),
    log:
        "logs/{target}/characterize_sensor.log",
    conda:
        "../../envs/opcost.yaml"
    threads: target_threads
    resources:
        **MEASURING,
    params:
        device=target_device,
    message:
        "Characterising the power sensor of target {wildcards.target}"
    shell:
        '"$OPCOST_PYTHON" "$OPCOST_SCRIPTS"/characterize_sensor.py --target {wildcards.target}'
        " --device {params.device:q} --device-file {input.device:q} --output {output:q}"
        " 2> >(tee {log:q} >&2)"


rule characterize:
    input:
        [sensor_file(folder) for folder in FOLDERS.values()],
