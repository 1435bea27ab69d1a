// An NVTX tool for tests: appends every push and pop of a domain's ranges to $CAPTURE_LOG.
// NVTX loads it when NVTX_INJECTION64_PATH names it; no GPU and no profiler are needed.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALLBACKS_TABLE = 1, CORE2_MODULE = 5 };
enum { RANGE_PUSH = 4, RANGE_POP = 5, REGISTER_STRING = 10, DOMAIN_CREATE = 12 };
enum { REGISTERED_MESSAGE = 3 };

typedef void (*function)(void);
typedef function **function_table;
typedef struct {
    size_t size;
    int (*module_functions)(int module, function_table *table, unsigned *count);
} callbacks;

typedef struct {  // nvtxEventAttributes_t
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    int64_t payload;
    int32_t message_type;
    const char *message;
} attributes;

static FILE *out;

static void *domain_create(const char *name) { return strdup(name); }
static void *register_string(void *domain, const char *text) { return strdup(text); }

static int range_push(void *domain, const attributes *a) {
    const char *name = a->message_type == REGISTERED_MESSAGE ? a->message : "?";
    fprintf(out, "push|%s|%s|%08x|%lld\n", (char *)domain, name, a->color, (long long)a->payload);
    return 0;
}

static int range_pop(void *domain) {
    fprintf(out, "pop|%s\n", (char *)domain);
    return 0;
}

int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t)) {
    out = fopen(getenv("CAPTURE_LOG"), "a");
    if (!out) return 0;
    setvbuf(out, NULL, _IOLBF, 0);  // a line each, in order with those of fake_cudart.c
    const callbacks *c = export_table(CALLBACKS_TABLE);
    function_table table;
    unsigned count;
    if (!c->module_functions(CORE2_MODULE, &table, &count)) return 0;
    *table[DOMAIN_CREATE] = (function)domain_create;
    *table[REGISTER_STRING] = (function)register_string;
    *table[RANGE_PUSH] = (function)range_push;
    *table[RANGE_POP] = (function)range_pop;
    return 1;
}
