/* Settings: read from the environment when the library is loaded, or set by tests. */
#include "simulated.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double settings[KEY_COUNT] = {
#define X(name, initial) initial,
    KEYS
#undef X
};

static const char *const names[] = {
#define X(name, initial) #name,
    KEYS
#undef X
};

typedef struct { char part[64]; rule rule; } kernel_rule;
static kernel_rule rules[64];
static int rule_count;

/* Kernels whose names contain PART take so long, and draw so much: PART=MICROSECONDS[:WATTS],... */
void simulated_cuda_kernels(const char *text) {
    rule_count = 0;
    while (text && *text && rule_count < 64) {
        kernel_rule *next = &rules[rule_count];
        double us, watts = GET(kernel_w);
        if (sscanf(text, "%63[^=]=%lf:%lf", next->part, &us, &watts) < 2) {
            fprintf(stderr, "SIMULATED_KERNELS: '%s' is not PART=MICROSECONDS[:WATTS],...\n", text);
            abort();
        }
        next->rule = (rule){us * 1e-6, watts};
        rule_count++;
        text = strchr(text, ',');
        if (text) text++;
    }
}

rule rule_of(const char *kernel) {
    for (int i = 0; i < rule_count; i++)
        if (strstr(kernel, rules[i].part)) return rules[i].rule;
    return (rule){-1, 0};
}

int simulated_cuda_set(const char *name, double value) {
    for (int key = 0; key < KEY_COUNT; key++) {
        if (strcmp(names[key], name) != 0) continue;
        settings[key] = value;
        return 1;
    }
    return 0;
}

__attribute__((constructor(101))) static void begin(void) {
    for (int key = 0; key < KEY_COUNT; key++) {
        char name[64] = "SIMULATED_";
        for (size_t i = 0; names[key][i] && i < 53; i++) name[10 + i] = (char)toupper(names[key][i]);
        const char *value = getenv(name);
        if (value) settings[key] = atof(value);
    }
    simulated_cuda_kernels(getenv("SIMULATED_KERNELS"));
}
