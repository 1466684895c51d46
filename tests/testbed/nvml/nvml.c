/* A scripted libnvidia-ml.so.1: answers NVML's calls from the text file that OMNI_NVML_SCRIPT
 * names, read anew on each call so that a running program sees a card change under it.
 *
 * Lines are "KEY VALUE". Card keys are "INDEX.NAME"; MIG instance J of card I is card 100*(I+1)+J.
 * A missing key, or the value not_supported, gives NVML_ERROR_NOT_SUPPORTED.
 *   count N | driver TEXT | cuda N | fail.FUNCTION CODE | hang.FUNCTION SECONDS | hang.all SECONDS
 *   I.lost 1 | I.fail.FUNCTION CODE | I.hang.FUNCTION SECONDS | I.procs PID:BYTES PID:BYTES
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7,
       NO_DRIVER = 9, LOST = 15, UNKNOWN = 999 };
typedef unsigned int u32;
typedef unsigned long long u64;
typedef struct { u64 total, free, used; } Memory;
typedef struct { u32 version; u64 total, reserved, free, used; } Memory2;
typedef struct { u32 gpu, memory; } Utilization;
typedef struct { u32 pid; u64 used; u32 gpu_instance, compute_instance; } Process;
typedef struct { u32 version, sensor; int value; } Temperature;
typedef struct {
    char legacy[16];
    u32 domain, bus, device, id, subsystem;
    char bus_id[32];
} Pci;

static int started;

/* A handle is its card's number, kept off zero: callers take a null handle for no handle. */
static void *handle_of(int card) { return (void *)(long)(card + 1); }
static int card_of(void *handle) { return (int)(long)handle - 1; }

static int read_key(const char *key, char *value, size_t size) {
    const char *path = getenv("OMNI_NVML_SCRIPT");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[512];
    size_t length = strlen(key);
    int found = 0;
    while (file && !found && fgets(line, sizeof line, file))
        if (!strncmp(line, key, length) && line[length] == ' ') {
            line[strcspn(line, "\n")] = 0;
            snprintf(value, size, "%s", line + length + 1);
            found = 1;
        }
    if (file) fclose(file);
    return found && strcmp(value, "not_supported");
}

static int text(int card, const char *name, char *value, size_t size) {
    char key[160];
    if (card < 0) snprintf(key, sizeof key, "%s", name);
    else snprintf(key, sizeof key, "%d.%s", card, name);
    return read_key(key, value, size);
}

static int number(int card, const char *name, u64 *value) {
    char raw[64];
    if (!text(card, name, raw, sizeof raw)) return NOT_SUPPORTED;
    *value = strtoull(raw, NULL, 10);
    return OK;
}

static u64 number_or(int card, const char *name, u64 other) {
    u64 value;
    return number(card, name, &value) == OK ? value : other;
}

static int scripted(int card, const char *function) {
    char name[128];
    snprintf(name, sizeof name, "hang.%s", function);
    u64 seconds = number_or(card, name, 0);
    if (seconds) sleep((u32)seconds);
    snprintf(name, sizeof name, "fail.%s", function);
    return (int)number_or(card, name, OK);
}

/* What every call does first: hang, fail or find its card gone, as the script has it. */
static int gate(int card, const char *function) {
    sleep((u32)number_or(-1, "hang.all", 0));
    int code = scripted(-1, function);
    if (code != OK) return code;
    if (!started) return UNINITIALIZED;
    if (card < 0) return OK;
    char uuid[96];
    if (!text(card, "uuid", uuid, sizeof uuid)) return INVALID;
    if (number_or(card, "lost", 0)) return LOST;
    return scripted(card, function);
}
#define GATE(card) do { int code = gate(card, __func__); if (code != OK) return code; } while (0)

static int start(const char *function) {
    u64 cards;
    if (number(-1, "count", &cards) != OK) return NO_DRIVER;
    started = 1;
    int code = gate(-1, function);
    if (code != OK) started = 0;
    return code;
}
int nvmlInit_v2(void) { return start(__func__); }
int nvmlInitWithFlags(u32 flags) { (void)flags; return start(__func__); }
int nvmlShutdown(void) { started = 0; return OK; }

const char *nvmlErrorString(int code) {
    switch (code) {
    case OK: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case TOO_SMALL: return "Insufficient Size";
    case NO_DRIVER: return "Driver Not Loaded";
    case 10: return "Timeout";
    case LOST: return "GPU is lost";
    case 16: return "GPU requires reset";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

static int text_answer(int card, const char *name, char *value, u32 size) {
    char raw[256];
    if (!text(card, name, raw, sizeof raw)) return NOT_SUPPORTED;
    if (strlen(raw) >= size) return TOO_SMALL;
    strcpy(value, raw);
    return OK;
}
#define SYSTEM_TEXT(function, name) \
    int function(char *v, u32 size) { GATE(-1); return text_answer(-1, name, v, size); }
#define CARD_TEXT(function, name) \
    int function(void *h, char *v, u32 size) { \
        GATE(card_of(h)); \
        return text_answer(card_of(h), name, v, size); \
    }
SYSTEM_TEXT(nvmlSystemGetDriverVersion, "driver")
SYSTEM_TEXT(nvmlSystemGetNVMLVersion, "driver")
CARD_TEXT(nvmlDeviceGetName, "name")
CARD_TEXT(nvmlDeviceGetUUID, "uuid")
CARD_TEXT(nvmlDeviceGetSerial, "serial")

static int u32_answer(int card, const char *name, u32 *value) {
    u64 raw;
    int code = number(card, name, &raw);
    if (code == OK) *value = (u32)raw;
    return code;
}
#define SYSTEM_NUMBER(function, name) \
    int function(u32 *v) { GATE(-1); return u32_answer(-1, name, v); }
#define CARD_NUMBER(function, name) \
    int function(void *h, u32 *v) { GATE(card_of(h)); return u32_answer(card_of(h), name, v); }
#define CARD_NUMBER_OF(function, name) \
    int function(void *h, u32 kind, u32 *v) { \
        (void)kind; \
        GATE(card_of(h)); \
        return u32_answer(card_of(h), name, v); \
    }
SYSTEM_NUMBER(nvmlDeviceGetCount_v2, "count")
SYSTEM_NUMBER(nvmlSystemGetCudaDriverVersion, "cuda")
SYSTEM_NUMBER(nvmlSystemGetCudaDriverVersion_v2, "cuda")
CARD_NUMBER(nvmlDeviceGetPowerUsage, "power")
CARD_NUMBER(nvmlDeviceGetEnforcedPowerLimit, "power_limit")
CARD_NUMBER(nvmlDeviceGetPowerManagementLimit, "power_limit")
CARD_NUMBER(nvmlDeviceGetFanSpeed, "fan")
CARD_NUMBER(nvmlDeviceGetPerformanceState, "pstate")
CARD_NUMBER(nvmlDeviceGetPersistenceMode, "persistence")
CARD_NUMBER_OF(nvmlDeviceGetTemperature, "temp")
CARD_NUMBER_OF(nvmlDeviceGetTemperatureThreshold, "temp_limit")
CARD_NUMBER_OF(nvmlDeviceGetClockInfo, "clock")
CARD_NUMBER_OF(nvmlDeviceGetMaxClockInfo, "clock_max")

int nvmlDeviceGetTemperatureV(void *h, Temperature *out) {
    u32 value;
    GATE(card_of(h));
    int code = u32_answer(card_of(h), "temp", &value);
    if (code == OK) out->value = (int)value;
    return code;
}

#define CARD_WIDE(function, name) \
    int function(void *h, u64 *v) { GATE(card_of(h)); return number(card_of(h), name, v); }
CARD_WIDE(nvmlDeviceGetCurrentClocksEventReasons, "throttle")
CARD_WIDE(nvmlDeviceGetCurrentClocksThrottleReasons, "throttle")
CARD_WIDE(nvmlDeviceGetTotalEnergyConsumption, "energy")

#define CARD_FACT(function, fact) \
    int function(void *h, u32 *v) { GATE(card_of(h)); *v = (u32)(fact); return OK; }
CARD_FACT(nvmlDeviceGetIndex, card_of(h))
CARD_FACT(nvmlDeviceGetMinorNumber, card_of(h))

int nvmlDeviceGetHandleByIndex_v2(u32 index, void **out) {
    GATE(-1);
    if (index >= number_or(-1, "count", 0)) return INVALID;
    GATE((int)index);
    *out = handle_of((int)index);
    return OK;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **out) {
    char raw[96];
    GATE(-1);
    for (int card = 0; card < (int)number_or(-1, "count", 0); card++)
        if (text(card, "uuid", raw, sizeof raw) && !strcmp(raw, uuid)) {
            GATE(card);
            *out = handle_of(card);
            return OK;
        }
    return NOT_FOUND;
}

static int memory(int card, u64 *total, u64 *used) {
    return number(card, "mem_total", total) || number(card, "mem_used", used) ? NOT_SUPPORTED : OK;
}

int nvmlDeviceGetMemoryInfo(void *h, Memory *out) {
    GATE(card_of(h));
    int code = memory(card_of(h), &out->total, &out->used);
    if (code == OK) out->free = out->total - out->used;
    return code;
}

int nvmlDeviceGetMemoryInfo_v2(void *h, Memory2 *out) {
    GATE(card_of(h));
    int code = memory(card_of(h), &out->total, &out->used);
    if (code != OK) return code;
    out->reserved = number_or(card_of(h), "mem_reserved", 0);
    out->free = out->total - out->used - out->reserved;
    return OK;
}

int nvmlDeviceGetUtilizationRates(void *h, Utilization *out) {
    GATE(card_of(h));
    int code = u32_answer(card_of(h), "util", &out->gpu);
    if (code == OK) out->memory = (u32)number_or(card_of(h), "mem_util", 0);
    return code;
}

int nvmlDeviceGetCudaComputeCapability(void *h, int *major, int *minor) {
    char raw[32];
    GATE(card_of(h));
    if (!text(card_of(h), "capability", raw, sizeof raw)) return NOT_SUPPORTED;
    return sscanf(raw, "%d.%d", major, minor) == 2 ? OK : UNKNOWN;
}

int nvmlDeviceGetPciInfo_v3(void *h, Pci *out) {
    char raw[32];
    GATE(card_of(h));
    if (!text(card_of(h), "pci", raw, sizeof raw)) return NOT_SUPPORTED;
    memset(out, 0, sizeof *out);
    if (sscanf(raw, "%x:%x:%x", &out->domain, &out->bus, &out->device) != 3) return UNKNOWN;
    u32 domain = out->domain & 0xffff, bus = out->bus & 0xff, device = out->device & 0xff;
    snprintf(out->bus_id, sizeof out->bus_id, "%08X:%02X:%02X.0", domain, bus, device);
    snprintf(out->legacy, sizeof out->legacy, "%04X:%02X:%02X.0", domain, bus, device);
    return OK;
}

int nvmlDeviceGetMigMode(void *h, u32 *now, u32 *pending) {
    GATE(card_of(h));
    int code = u32_answer(card_of(h), "mig", now);
    if (code == OK) *pending = (u32)number_or(card_of(h), "mig_pending", *now);
    return code;
}

static int processes(int card, const char *name, u32 *count, Process *out) {
    char raw[512], *rest = raw, *word;
    u32 found = 0, room = out ? *count : 0;
    if (!text(card, name, raw, sizeof raw)) raw[0] = 0;
    while ((word = strsep(&rest, " ")))
        if (*word) {
            Process one = {0, 0, ~0u, ~0u};
            if (sscanf(word, "%u:%llu", &one.pid, &one.used) < 1) return UNKNOWN;
            if (found < room) out[found] = one;
            found++;
        }
    *count = found;
    return found > room ? TOO_SMALL : OK;
}
#define CARD_PROCESSES(function, name) \
    int function(void *h, u32 *count, Process *out) { \
        GATE(card_of(h)); \
        return processes(card_of(h), name, count, out); \
    }
CARD_PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, "procs")
CARD_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, "graphics")
