/* A stand-in for libnvidia-ml.so.1 whose GPUs are what a text file says.
 *
 * The file is the one that the environment variable FAKE_NVML names, else "fake-nvml.conf" beside this library. It is looked
 * at in each call and read again when it changed, so a test or a shell changes a running machine: write another file and
 * move it there. If "<file>.calls" exists, the name of each function that is called is appended to it.
 *
 * A line is a word and its values; "#" begins a comment. Of the machine:
 *   init CODE             what nvmlInit_v2 answers
 *   driver VERSION        550.54.15; from 580.82 on fields 251 to 273 are expected by their new numbers in "field" lines
 *   cuda NUMBER           12040
 *   gpus NUMBER           how many there are, 8 at most
 *   code FUNCTION CODE    what this function answers, whatever is asked
 *   hang FUNCTION         this function does not return as long as the line is there; "exit": what is done when the library
 *                         is unloaded or the process ends
 * Of a GPU ("gpu INDEX ..."), each with a default that makes an idle H100:
 *   lost CODE             every call about it answers this
 *   uuid NAME | name WORDS | minor NUMBER | pci DOMAIN BUS DEVICE (hexadecimal)
 *   capability MAJOR MINOR | cores NUMBER
 *   util GPU MEMORY ENCODER DECODER JPEG OFA   percent; the samples follow the first
 *   sample MICROSECONDS PERCENT   a sample of utilisation; with one such line there are no others
 *   buffer SECONDS        how far back the samples reach, 20; 0: there are none; negative: not supported
 *   memory TOTAL USED RESERVED | bar1 TOTAL USED   bytes
 *   power MILLIWATTS | energy MILLIJOULES      without the latter, energy is power times time
 *   clocks GRAPHICS SM MEMORY VIDEO | temperature DEGREES | margin DEGREES | throttle BITS | pstate NUMBER
 *   fans NUMBER PERCENT | pcie GENERATION WIDTH MAXGENERATION MAXWIDTH | mode COMPUTE PERSISTENCE
 *   field ID SCOPE TYPE VALUE   TYPE: double uint ulong ullong sllong sint ushort, or code; SCOPE: a number or all
 *   process PID BYTES PERCENT KIND [GI CI]     BYTES - if not available; KIND: compute graphics mps
 *   gpm 0|1 | activity METRIC VALUE [GI]       VALUE may be nan; percent or MiB/s
 *   mig 0|1 | part SLOT UUID GI CI SLICES GISLICES MULTIPROCESSORS MIB NAME
 *   xid SERIAL CODE [GI CI] | migchange SERIAL      delivered once, in order of SERIAL, to who registered before
 *
 * Build: cc -std=gnu11 -shared -fPIC -o libnvidia-ml.so.1 fake-nvml.c -ldl -lpthread
 * Variants for old drivers: -DNO_SHUTDOWN, -DNO_INIT, and -DOLD_DRIVER (no fields, activity, parts, newer structures).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef int ret;
typedef unsigned int uint;
typedef unsigned long long ull;
enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, UNSUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, TIMEOUT = 10, VERSION = 25 };
enum { GPUS = 8, SLOTS = 8, LIST = 128, LISTED = 4096 };

/* As in nvml.h. */
typedef union { double d; int si; uint ui; unsigned long ul; ull u; long long s; unsigned short us; } value;
typedef struct { uint id, scope; long long when, latency; uint type; ret code; value v; } field_value;
typedef struct { ull when; value v; } sample;
typedef struct { uint pid; ull bytes; uint gi, ci; } process_info;
typedef struct { uint pid; ull when; uint sm, mem, enc, dec; } process_sample;
typedef struct { uint sms, copy, dec, enc, jpeg, ofa, gi_slices, ci_slices; ull mib; } attributes;
typedef struct { char legacy[16]; uint domain, bus, device, id, subsystem; char name[32]; } pci_info;
typedef struct { uint version; ull total, reserved, free, used; } memory_v2;
typedef struct { ull total, free, used; } memory_v1;
typedef struct { uint id; ret code; double v; const char *words[3]; } gpm_metric;
typedef struct { uint version, count; void *earlier, *later; gpm_metric metrics[210]; } gpm_get;
typedef struct { void *device; ull type, data; uint gi, ci; } event_data;
_Static_assert(sizeof(field_value) == 40 && sizeof(process_info) == 24 && sizeof(gpm_metric) == 40, "layouts");

struct part { int there; char uuid[96], name[96]; uint gi, ci, slices, gi_slices, sms; ull mib; };
struct field { uint id, scope, type; ret code; value v; };
struct process { uint pid, sm, gi, ci; ull bytes; char kind; };
struct activity { uint metric, gi; double v; };
struct event { uint serial, gi, ci; ull type, data; };
struct gpu {
    ret lost;
    char uuid[96], name[96];
    uint minor, domain, bus, device, major, rest, cores, util[6], power, clocks[4], temperature, pstate, fans, fan;
    uint pcie[4], mode[2];
    int buffer, margin, gpm, mig;
    long long energy;
    ull memory[3], bar1[2], throttle;
    uint n_samples, n_fields, n_processes, n_activity, n_events;
    sample samples[LIST];
    struct field fields[LIST];
    struct process processes[LISTED];
    struct activity activity[LIST];
    struct event events[LIST];
    struct part parts[SLOTS];
};
struct rule { char function[64]; ret code; int hangs; };
struct config {
    struct stat seen;
    ret init;
    char driver[64];
    uint cuda, gpus, n_rules;
    struct rule rules[LIST];
    struct gpu gpu[GPUS];
};

typedef struct { int gpu, slot; } device;
static device devices[GPUS][1 + SLOTS];
typedef struct { device *of; uint gi; } gpm_sample;
typedef struct { ull types[GPUS]; uint heard[GPUS]; } event_set;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct config *now_valid;
static int opened;
static double loaded;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static const char *file_name(void) {
    static char name[PATH_MAX];
    Dl_info self;
    const char *given = getenv("FAKE_NVML");
    if (given) return given;
    if (!name[0] && dladdr((void *)&file_name, &self) && strlen(self.dli_fname) < sizeof name - 32) {
        strcpy(name, self.dli_fname);
        char *slash = strrchr(name, '/');
        strcpy(slash ? slash + 1 : name, "fake-nvml.conf");
    }
    return name;
}

/* ---- reading the file ---- */

static void an_idle_h100(struct gpu *g, int index) {
    *g = (struct gpu){.minor = index, .bus = 0x10 + index, .major = 9, .cores = 16896, .power = 70000, .energy = -1,
        .clocks = {345, 345, 2619, 765}, .temperature = 30, .margin = 57, .buffer = 20, .gpm = 1, .throttle = 1,
        .pcie = {5, 16, 5, 16}, .mode = {0, 1}, .memory = {85520809984ULL, 0, 600000000}, .bar1 = {137438953472ULL, 1048576}};
    snprintf(g->uuid, sizeof g->uuid, "GPU-00000000-0000-0000-0000-%012d", index);
    strcpy(g->name, "NVIDIA H100 80GB HBM3");
}

static uint scope_of(const char *word) { return strcmp(word, "all") ? (uint)strtoul(word, NULL, 0) : UINT_MAX; }

static void read_field(struct gpu *g, const char *text) {
    char scope[16], type[16], v[64];
    struct field f = {0};
    if (g->n_fields == LIST || sscanf(text, "%u %15s %15s %63s", &f.id, scope, type, v) != 4) return;
    static const char *types[] = {"double", "uint", "ulong", "ullong", "sllong", "sint", "ushort"};
    f.scope = scope_of(scope);
    f.type = 99;
    for (uint t = 0; t < 7; t++)
        if (!strcmp(type, types[t])) f.type = t;
    if (!strcmp(type, "code")) f.code = atoi(v);
    else if (f.type == 0) f.v.d = strtod(v, NULL);
    else f.v.u = strtoull(v, NULL, 0); /* little endian: every smaller member begins here; negative ones wrap */
    g->fields[g->n_fields++] = f;
}

static void read_gpu(struct gpu *g, const char *key, const char *text) {
    uint *u = g->util;
    if (!strcmp(key, "lost")) g->lost = atoi(text);
    else if (!strcmp(key, "uuid")) sscanf(text, "%95s", g->uuid);
    else if (!strcmp(key, "name")) sscanf(text, "%95[^\n]", g->name);
    else if (!strcmp(key, "minor")) g->minor = atoi(text);
    else if (!strcmp(key, "pci")) sscanf(text, "%x %x %x", &g->domain, &g->bus, &g->device);
    else if (!strcmp(key, "capability")) sscanf(text, "%u %u", &g->major, &g->rest);
    else if (!strcmp(key, "cores")) g->cores = atoi(text);
    else if (!strcmp(key, "util")) sscanf(text, "%u %u %u %u %u %u", u, u + 1, u + 2, u + 3, u + 4, u + 5);
    else if (!strcmp(key, "buffer")) g->buffer = atoi(text);
    else if (!strcmp(key, "memory")) sscanf(text, "%llu %llu %llu", g->memory, g->memory + 1, g->memory + 2);
    else if (!strcmp(key, "bar1")) sscanf(text, "%llu %llu", g->bar1, g->bar1 + 1);
    else if (!strcmp(key, "power")) g->power = atoi(text);
    else if (!strcmp(key, "energy")) g->energy = atoll(text);
    else if (!strcmp(key, "clocks")) sscanf(text, "%u %u %u %u", g->clocks, g->clocks + 1, g->clocks + 2, g->clocks + 3);
    else if (!strcmp(key, "temperature")) g->temperature = atoi(text);
    else if (!strcmp(key, "margin")) g->margin = atoi(text);
    else if (!strcmp(key, "throttle")) g->throttle = strtoull(text, NULL, 0);
    else if (!strcmp(key, "pstate")) g->pstate = atoi(text);
    else if (!strcmp(key, "fans")) sscanf(text, "%u %u", &g->fans, &g->fan);
    else if (!strcmp(key, "pcie")) sscanf(text, "%u %u %u %u", g->pcie, g->pcie + 1, g->pcie + 2, g->pcie + 3);
    else if (!strcmp(key, "mode")) sscanf(text, "%u %u", g->mode, g->mode + 1);
    else if (!strcmp(key, "gpm")) g->gpm = atoi(text);
    else if (!strcmp(key, "mig")) g->mig = atoi(text);
    else if (!strcmp(key, "field")) read_field(g, text);
    else if (!strcmp(key, "sample") && g->n_samples < LIST) {
        sample *s = &g->samples[g->n_samples++];
        sscanf(text, "%llu %llu", &s->when, &s->v.u);
    } else if (!strcmp(key, "process") && g->n_processes < LISTED) {
        struct process *p = &g->processes[g->n_processes++];
        char bytes[32] = "-";
        p->gi = p->ci = UINT_MAX;
        sscanf(text, "%u %31s %u %c%*s %u %u", &p->pid, bytes, &p->sm, &p->kind, &p->gi, &p->ci);
        p->bytes = *bytes == '-' ? ULLONG_MAX : strtoull(bytes, NULL, 0);
    } else if (!strcmp(key, "activity") && g->n_activity < LIST) {
        struct activity *a = &g->activity[g->n_activity++];
        a->gi = UINT_MAX;
        sscanf(text, "%u %lf %u", &a->metric, &a->v, &a->gi);
    } else if (!strcmp(key, "part")) {
        struct part p = {.there = 1};
        uint slot = SLOTS;
        sscanf(text, "%u %95s %u %u %u %u %u %llu %95[^\n]", &slot, p.uuid, &p.gi, &p.ci, &p.slices, &p.gi_slices, &p.sms,
            &p.mib, p.name);
        if (slot < SLOTS) g->parts[slot] = p;
    } else if ((!strcmp(key, "xid") || !strcmp(key, "migchange")) && g->n_events < LIST) {
        struct event *e = &g->events[g->n_events++];
        *e = (struct event){.type = *key == 'x' ? 8 : 0x100, .gi = UINT_MAX, .ci = UINT_MAX};
        sscanf(text, "%u %llu %u %u", &e->serial, &e->data, &e->gi, &e->ci);
    }
}

static struct config *read_file(FILE *file) {
    struct config *c = calloc(1, sizeof *c);
    char line[512], key[64];
    strcpy(c->driver, "550.54.15");
    c->cuda = 12040;
    c->gpus = 1;
    for (int i = 0; i < GPUS; i++) an_idle_h100(&c->gpu[i], i);
    while (file && fgets(line, sizeof line, file)) {
        int used = 0, index = 0, more = 0;
        if (sscanf(line, " %63s %n", key, &used) < 1 || *key == '#') continue;
        const char *text = line + used;
        struct rule *rule = &c->rules[c->n_rules < LIST - 1 ? c->n_rules : LIST - 1];
        if (!strcmp(key, "init")) c->init = atoi(text);
        else if (!strcmp(key, "driver")) sscanf(text, "%63s", c->driver);
        else if (!strcmp(key, "cuda")) c->cuda = atoi(text);
        else if (!strcmp(key, "gpus")) c->gpus = atoi(text) > GPUS ? GPUS : atoi(text);
        else if (!strcmp(key, "hang") && sscanf(text, "%63s", rule->function) == 1) rule->hangs = 1, c->n_rules++;
        else if (!strcmp(key, "code") && sscanf(text, "%63s %d", rule->function, &rule->code) == 2) c->n_rules++;
        else if (!strcmp(key, "gpu") && sscanf(text, "%d %63s %n", &index, key, &more) == 2 && index >= 0 && index < GPUS)
            read_gpu(&c->gpu[index], key, text + more);
    }
    return c;
}

/* What the file says now. Old ones are kept: another thread may look at them. */
static struct config *config(void) {
    struct stat s = {0};
    const char *name = file_name();
    stat(name, &s);
    struct config *c = now_valid;
    if (!c || c->seen.st_ino != s.st_ino || c->seen.st_size != s.st_size ||
        memcmp(&c->seen.st_mtim, &s.st_mtim, sizeof s.st_mtim)) {
        FILE *file = fopen(name, "re");
        c = read_file(file);
        if (file) fclose(file);
        c->seen = s;
        now_valid = c;
    }
    return c;
}

/* A real library may wait here for a lock that a call which hangs has. */
__attribute__((destructor)) static void at_the_end(void) {
    for (;;) {
        struct config *c = config();
        int hangs = 0;
        for (uint i = 0; i < c->n_rules; i++) hangs |= c->rules[i].hangs && !strcmp(c->rules[i].function, "exit");
        if (!hangs) return;
        usleep(2000);
    }
}

/* ---- every call begins here ---- */

static struct config *enter(const char *function, device *d, ret *code) {
    pthread_mutex_lock(&lock);
    if (!loaded) loaded = now();
    char calls[PATH_MAX + 8];
    snprintf(calls, sizeof calls, "%s.calls", file_name());
    FILE *log = access(calls, W_OK) ? NULL : fopen(calls, "ae");
    if (log) fprintf(log, "%s\n", function), fclose(log);
    for (;;) {
        struct config *c = config();
        int hangs = 0;
        *code = OK;
        for (uint i = 0; i < c->n_rules; i++)
            if (!strcmp(c->rules[i].function, function)) {
                hangs |= c->rules[i].hangs;
                *code = c->rules[i].code;
            }
        if (!hangs) {
            int init = !strncmp(function, "nvmlInit", 8);
            if (!*code && !opened && !init) *code = UNINITIALIZED;
            if (!*code && d && c->gpu[d->gpu].lost) *code = c->gpu[d->gpu].lost;
            pthread_mutex_unlock(&lock);
            return c;
        }
        pthread_mutex_unlock(&lock);
        usleep(2000);
        pthread_mutex_lock(&lock);
    }
}

#define MACHINE                                   \
    ret code;                                     \
    struct config *c = enter(__func__, 0, &code); \
    if (code) return code;                        \
    (void)c;
#define GPU                                       \
    ret code;                                     \
    struct config *c = enter(__func__, d, &code); \
    if (code) return code;                        \
    struct gpu *g = &c->gpu[d->gpu];              \
    (void)g;
/* What a part of a GPU does not have. */
#define WHOLE GPU if (d->slot >= 0) return UNSUPPORTED;

/* ---- the machine ---- */

#ifndef NO_INIT
ret nvmlInit_v2(void) {
    MACHINE
    if (c->init) return c->init;
    for (int i = 0; i < GPUS; i++)
        for (int s = 0; s <= SLOTS; s++) devices[i][s] = (device){i, s - 1};
    opened++;
    return OK;
}
#endif
#ifndef NO_SHUTDOWN
ret nvmlShutdown(void) { MACHINE return opened--, OK; }
#endif
ret nvmlSystemGetDriverVersion(char *to, uint length) { MACHINE return snprintf(to, length, "%s", c->driver), OK; }
ret nvmlSystemGetNVMLVersion(char *to, uint length) { MACHINE return snprintf(to, length, "12.%s", c->driver), OK; }
ret nvmlSystemGetCudaDriverVersion_v2(int *to) { MACHINE return *to = c->cuda, OK; }
ret nvmlSystemGetCudaDriverVersion(int *to) { MACHINE return *to = c->cuda, OK; }
ret nvmlDeviceGetCount_v2(uint *to) { MACHINE return *to = c->gpus, OK; }
ret nvmlDeviceGetHandleByIndex_v2(uint index, device **to) {
    MACHINE
    if (index >= c->gpus) return INVALID;
    *to = &devices[index][0];
    return c->gpu[index].lost;
}

/* ---- who a GPU is ---- */

ret nvmlDeviceGetUUID(device *d, char *to, uint length) {
    GPU
    if (d->slot >= 0 && !g->parts[d->slot].there) return INVALID;
    return snprintf(to, length, "%s", d->slot < 0 ? g->uuid : g->parts[d->slot].uuid), OK;
}
ret nvmlDeviceGetName(device *d, char *to, uint length) {
    GPU return snprintf(to, length, "%s", d->slot < 0 ? g->name : g->parts[d->slot].name), OK;
}
ret nvmlDeviceGetMinorNumber(device *d, uint *to) { WHOLE return *to = g->minor, OK; }
ret nvmlDeviceGetPciInfo_v3(device *d, pci_info *to) {
    WHOLE
    *to = (pci_info){.domain = g->domain, .bus = g->bus, .device = g->device};
    snprintf(to->name, sizeof to->name, "%08X:%02X:%02X.0", g->domain, g->bus, g->device);
    return OK;
}
ret nvmlDeviceGetCudaComputeCapability(device *d, int *major, int *minor) {
    GPU return *major = g->major, *minor = g->rest, OK;
}
ret nvmlDeviceGetNumGpuCores(device *d, uint *to) { WHOLE return *to = g->cores, OK; }
ret nvmlDeviceGetComputeMode(device *d, uint *to) { WHOLE return *to = g->mode[0], OK; }
ret nvmlDeviceGetPersistenceMode(device *d, uint *to) { WHOLE return *to = g->mode[1], OK; }

/* ---- how it is ---- */

static ull millijoules(struct gpu *g) { return g->energy >= 0 ? (ull)g->energy : (ull)((now() - loaded) * g->power); }

ret nvmlDeviceGetUtilizationRates(device *d, uint to[2]) {
    WHOLE
    if (g->mig) return UNSUPPORTED;
    return to[0] = g->util[0], to[1] = g->util[1], OK;
}
ret nvmlDeviceGetEncoderUtilization(device *d, uint *to, uint *period) { WHOLE return *to = g->util[2], *period = 166667, OK; }
ret nvmlDeviceGetDecoderUtilization(device *d, uint *to, uint *period) { WHOLE return *to = g->util[3], *period = 166667, OK; }
ret nvmlDeviceGetTemperature(device *d, uint sensor, uint *to) {
    WHOLE return sensor ? INVALID : (*to = g->temperature, OK);
}
ret nvmlDeviceGetPowerUsage(device *d, uint *to) { WHOLE return *to = g->power, OK; }
ret nvmlDeviceGetEnforcedPowerLimit(device *d, uint *to) { WHOLE return *to = 700000, OK; }
ret nvmlDeviceGetPowerManagementLimit(device *d, uint *to) { WHOLE return *to = 650000, OK; }
ret nvmlDeviceGetPowerManagementDefaultLimit(device *d, uint *to) { WHOLE return *to = 700000, OK; }
ret nvmlDeviceGetPowerManagementLimitConstraints(device *d, uint *min, uint *max) {
    WHOLE return *min = 200000, *max = 700000, OK;
}
ret nvmlDeviceGetTotalEnergyConsumption(device *d, ull *to) { WHOLE return *to = millijoules(g), OK; }
ret nvmlDeviceGetClockInfo(device *d, uint clock, uint *to) {
    WHOLE return clock > 3 ? INVALID : (*to = g->clocks[clock], OK);
}
ret nvmlDeviceGetMaxClockInfo(device *d, uint clock, uint *to) {
    static const uint most[] = {1980, 1980, 2619, 1545};
    WHOLE return clock > 3 ? INVALID : (*to = most[clock], OK);
}
ret nvmlDeviceGetCurrentClocksThrottleReasons(device *d, ull *to) { WHOLE return *to = g->throttle, OK; }
ret nvmlDeviceGetPerformanceState(device *d, uint *to) { WHOLE return *to = g->pstate, OK; }
ret nvmlDeviceGetNumFans(device *d, uint *to) { WHOLE return g->fans ? (*to = g->fans, OK) : UNSUPPORTED; }
ret nvmlDeviceGetFanSpeed_v2(device *d, uint fan, uint *to) { WHOLE return fan < g->fans ? (*to = g->fan, OK) : INVALID; }
ret nvmlDeviceGetCurrPcieLinkGeneration(device *d, uint *to) { WHOLE return *to = g->pcie[0], OK; }
ret nvmlDeviceGetCurrPcieLinkWidth(device *d, uint *to) { WHOLE return *to = g->pcie[1], OK; }
ret nvmlDeviceGetMaxPcieLinkGeneration(device *d, uint *to) { WHOLE return *to = g->pcie[2], OK; }
ret nvmlDeviceGetMaxPcieLinkWidth(device *d, uint *to) { WHOLE return *to = g->pcie[3], OK; }
/* Blocks for 20 ms, as the real one does. */
ret nvmlDeviceGetPcieThroughput(device *d, uint counter, uint *to) { WHOLE (void)counter; return usleep(20000), *to = 0, OK; }
ret nvmlDeviceGetBAR1MemoryInfo(device *d, memory_v1 *to) {
    WHOLE return *to = (memory_v1){g->bar1[0], g->bar1[0] - g->bar1[1], g->bar1[1]}, OK;
}

static memory_v2 memory_of(struct gpu *g, device *d) {
    ull total = d->slot < 0 ? g->memory[0] : g->parts[d->slot].mib << 20, used = d->slot < 0 ? g->memory[1] : total / 4;
    ull reserved = d->slot < 0 ? g->memory[2] : 0;
    return (memory_v2){0, total, reserved, total - used - reserved, used};
}
ret nvmlDeviceGetMemoryInfo(device *d, memory_v1 *to) {
    GPU
    memory_v2 m = memory_of(g, d);
    return *to = (memory_v1){m.total, m.free, m.used}, OK;
}

/* Every 1/6 second, counted from the epoch, as far back as the buffer reaches. */
ret nvmlDeviceGetSamples(device *d, uint kind, ull last, uint *type, uint *count, sample *to) {
    WHOLE
    enum { PERIOD = 166667 };
    if (kind != 1 || g->buffer < 0 || g->mig) return UNSUPPORTED;
    ull newest = (ull)(now() * 1e6) / PERIOD, periods = (ull)g->buffer * 1000000 / PERIOD;
    uint n = 0, room = to ? *count : 0;
    *type = 1;
    for (uint i = 0; i < g->n_samples; i++)
        if (g->samples[i].when > last && n++ < room) to[n - 1] = g->samples[i];
    for (ull p = newest - periods + 1; !g->n_samples && p <= newest; p++)
        if (p * PERIOD > last && n++ < room) to[n - 1] = (sample){p * PERIOD, {.ui = g->util[0]}};
    if (!n) return NOT_FOUND;
    *count = to && n > room ? room : n;
    return OK;
}

/* ---- processes ---- */

ret nvmlDeviceGetProcessUtilization(device *d, process_sample *to, uint *count, ull last) {
    WHOLE
    uint n = 0, room = to ? *count : 0;
    ull when = (ull)(now() * 1e6);
    if (g->mig) return UNSUPPORTED;
    for (uint i = 0; when > last && i < g->n_processes; i++) {
        struct process *p = &g->processes[i];
        if (p->sm && n++ < room) to[n - 1] = (process_sample){p->pid, when, p->sm, 0, 0, 0};
    }
    if (!n) return NOT_FOUND;
    *count = n;
    return n > room ? TOO_SMALL : OK;
}

/* ---- events ---- */

ret nvmlEventSetCreate(event_set **to) { MACHINE return *to = calloc(1, sizeof **to), OK; }
ret nvmlEventSetFree(event_set *set) { MACHINE return free(set), OK; }
ret nvmlDeviceGetSupportedEventTypes(device *d, ull *to) { WHOLE return *to = 8 | 0x100, OK; }
ret nvmlDeviceRegisterEvents(device *d, ull types, event_set *set) {
    WHOLE
    set->types[d->gpu] |= types;
    for (uint i = 0; i < g->n_events; i++)
        if (g->events[i].serial > set->heard[d->gpu]) set->heard[d->gpu] = g->events[i].serial;
    return OK;
}
ret nvmlEventSetWait_v2(event_set *set, event_data *to, uint timeout) {
    MACHINE
    (void)timeout;
    for (int n = 0; n < GPUS; n++) {
        struct event *next = NULL;
        for (uint i = 0; i < c->gpu[n].n_events; i++) {
            struct event *e = &c->gpu[n].events[i];
            if (e->type & set->types[n] && e->serial > set->heard[n] && (!next || e->serial < next->serial)) next = e;
        }
        if (!next) continue;
        set->heard[n] = next->serial;
        return *to = (event_data){&devices[n][0], next->type, next->data, next->gi, next->ci}, OK;
    }
    return TIMEOUT;
}

#ifndef OLD_DRIVER

ret nvmlDeviceGetMemoryInfo_v2(device *d, memory_v2 *to) {
    GPU
    uint version = to->version;
    if (version != (sizeof *to | 2 << 24)) return VERSION;
    return *to = memory_of(g, d), to->version = version, OK;
}
ret nvmlDeviceGetJpgUtilization(device *d, uint *to, uint *period) { WHOLE return *to = g->util[4], *period = 166667, OK; }
ret nvmlDeviceGetOfaUtilization(device *d, uint *to, uint *period) { WHOLE return *to = g->util[5], *period = 166667, OK; }
ret nvmlDeviceGetMarginTemperature(device *d, uint to[2]) {
    WHOLE
    if (to[0] != (8 | 1 << 24)) return VERSION;
    return to[1] = (uint)g->margin, OK;
}
static ret list(device *d, const char *function, char kind, uint *count, process_info *to) {
    ret code;
    struct config *c = enter(function, d, &code);
    if (code) return code;
    struct gpu *g = &c->gpu[d->gpu];
    uint n = 0, room = to ? *count : 0;
    for (uint i = 0; i < g->n_processes; i++) {
        struct process *p = &g->processes[i];
        if (p->kind == kind && n++ < room) to[n - 1] = (process_info){p->pid, p->bytes, p->gi, p->ci};
    }
    *count = n;
    return n > room ? TOO_SMALL : OK;
}

ret nvmlDeviceGetComputeRunningProcesses_v3(device *d, uint *n, process_info *to) { return list(d, __func__, 'c', n, to); }
ret nvmlDeviceGetGraphicsRunningProcesses_v3(device *d, uint *n, process_info *to) { return list(d, __func__, 'g', n, to); }
ret nvmlDeviceGetMPSComputeRunningProcesses_v3(device *d, uint *n, process_info *to) { return list(d, __func__, 'm', n, to); }

/* ---- fields ---- */

static void answer(struct gpu *g, field_value *f) {
    f->code = UNSUPPORTED;
    for (uint i = 0; i < g->n_fields; i++)
        if (g->fields[i].id == f->id && g->fields[i].scope == f->scope) {
            f->code = g->fields[i].code, f->type = g->fields[i].type, f->v = g->fields[i].v;
            return;
        }
    if (f->scope) return;
    f->type = 1;
    if (f->id == 83) f->type = 3, f->v.u = millijoules(g), f->code = OK;
    else if (f->id == 82) f->v.ui = g->temperature + 8, f->code = OK;
    else if (f->id == 185 || f->id == 186) f->v.ui = g->power, f->code = OK;
    else if (f->id == 1) f->v.ui = 1, f->code = OK;
}
ret nvmlDeviceGetFieldValues(device *d, int count, field_value *f) {
    WHOLE
    for (int i = 0; i < count; i++) answer(g, &f[i]);
    return OK;
}

/* ---- parts ---- */

ret nvmlDeviceGetMigMode(device *d, uint *current, uint *pending) { WHOLE return *current = *pending = g->mig, OK; }
ret nvmlDeviceGetMaxMigDeviceCount(device *d, uint *to) { WHOLE return *to = 7, OK; }
ret nvmlDeviceGetMigDeviceHandleByIndex(device *d, uint slot, device **to) {
    WHOLE
    if (slot >= SLOTS || !g->mig) return INVALID;
    if (!g->parts[slot].there) return NOT_FOUND;
    return *to = &devices[d->gpu][slot + 1], OK;
}
#define PART GPU if (d->slot < 0 || !g->parts[d->slot].there) return INVALID; struct part *p = &g->parts[d->slot];
ret nvmlDeviceGetGpuInstanceId(device *d, uint *to) { PART return *to = p->gi, OK; }
ret nvmlDeviceGetComputeInstanceId(device *d, uint *to) { PART return *to = p->ci, OK; }
ret nvmlDeviceGetAttributes_v2(device *d, attributes *to) {
    PART return *to = (attributes){.sms = p->sms, .gi_slices = p->gi_slices, .ci_slices = p->slices, .mib = p->mib}, OK;
}

/* ---- activity ---- */

ret nvmlGpmQueryDeviceSupport(device *d, uint to[2]) { GPU return to[0] == 1 ? (to[1] = g->gpm, OK) : VERSION; }
ret nvmlGpmSampleAlloc(gpm_sample **to) { MACHINE return *to = calloc(1, sizeof **to), OK; }
ret nvmlGpmSampleFree(gpm_sample *s) { MACHINE return free(s), OK; }
ret nvmlGpmSampleGet(device *d, gpm_sample *to) { GPU return g->gpm ? (*to = (gpm_sample){d, UINT_MAX}, OK) : UNSUPPORTED; }
ret nvmlGpmMigSampleGet(device *d, uint gi, gpm_sample *to) { WHOLE return g->gpm ? (*to = (gpm_sample){d, gi}, OK) : UNSUPPORTED; }
ret nvmlGpmMetricsGet(gpm_get *get) {
    gpm_sample *a = get->earlier, *b = get->later;
    device *d = a ? a->of : NULL;
    GPU
    if (get->version != 1) return VERSION;
    if (!b || a == b || a->of != b->of || a->gi != b->gi || get->count > 210) return INVALID;
    for (uint i = 0; i < get->count; i++) {
        gpm_metric *m = &get->metrics[i];
        m->code = m->id <= 3 && a->gi == UINT_MAX ? OK : UNSUPPORTED;
        m->v = m->id == 3 ? g->util[0] / 2.0 : g->util[0];
        for (uint k = 0; k < g->n_activity; k++)
            if (g->activity[k].metric == m->id && g->activity[k].gi == a->gi) m->code = OK, m->v = g->activity[k].v;
    }
    return OK;
}
#endif
