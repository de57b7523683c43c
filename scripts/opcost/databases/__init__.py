"""All measurements of a study in one file, and several such files in one."""
