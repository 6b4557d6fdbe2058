/* Records what NVIDIA's library answers, and answers later as it did: both by the same table of functions.
 *
 * Recording: where NVML_RECORD names a library, every call is passed on to it and written to stderr, a line a call:
 *   nvml SECONDS MICROSECONDS FUNCTION INPUTS -> CODE OUTPUTS
 * SECONDS are CLOCK_REALTIME, MICROSECONDS what the call took. A GPU is its index. Outputs are the bytes that the library
 * wrote, in hexadecimal, lists with their length before them. Fields are ID:SCOPE:CODE:TYPE:BYTES, activity is ID:CODE:NUMBER.
 * Texts stand in quotes.
 *
 * Answering: "nvml.txt" beside the library holds such lines, without "nvml " and possibly with others between them; a line
 * "at N" of "nvml.at" selects the sample: one begins with each nvmlEventSetWait_v2 that follows another call. A call is
 * answered as in the newest sample, up to that one, that has it; what was never asked is NVML_ERROR_NOT_SUPPORTED.
 *
 * Build: cc -std=gnu11 -shared -fPIC -o libnvidia-ml.so.1 recorded-nvml.c -ldl -lpthread
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef unsigned int uint;
typedef unsigned long long ull;
enum { OK = 0, UNSUPPORTED = 3, TOO_SMALL = 7, TIMEOUT = 10, MISSING = 13, GPUS = 16, LONGEST = 1 << 20 };

/* As in nvml.h. */
typedef struct { uint id, scope; long long when, latency; uint type; int code; unsigned char value[8]; } field_value;
typedef struct { uint id; int code; double value; const char *words[3]; } gpm_metric;
typedef struct { uint version, count; void *earlier, *later; gpm_metric metrics[210]; } gpm_get;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *gpus[GPUS];
static char text[LONGEST];
static size_t length;

static void add(const char *format, ...) {
    va_list list;
    va_start(list, format);
    int more = vsnprintf(text + length, sizeof text - length, format, list);
    va_end(list);
    if (more > 0 && length + more < sizeof text) length += more;
}

static void add_bytes(const void *from, size_t count) {
    for (size_t i = 0; i < count; i++) add("%02x", ((const unsigned char *)from)[i]);
}

static double seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int index_of(const void *handle) {
    for (int i = 0; i < GPUS; i++)
        if (handle && gpus[i] == handle) return i;
    return -1;
}

static const char *beside(const char *name) {
    static char path[PATH_MAX];
    Dl_info self;
    dladdr((void *)&beside, &self);
    snprintf(path, sizeof path, "%s", self.dli_fname);
    char *slash = strrchr(path, '/');
    snprintf(slash ? slash + 1 : path, 64, "%s", name);
    return path;
}

/* ---- answering ---- */

struct line { uint sample; char *key, *answer; };
static struct line *lines;
static uint known;

static void learn(void) {
    FILE *file = fopen(beside("nvml.txt"), "re");
    uint sample = 0, waits = 0;
    for (char *line = NULL; file && getline(&line, &(size_t){0}, file) > 0; line = NULL) {
        char *function = strstr(line, "nvml"), *arrow = function ? strstr(function, " -> ") : NULL;
        if (!arrow) continue;
        *arrow = 0;
        int waiting = !strncmp(function, "nvmlEventSetWait", 16);
        if (waiting && !waits) sample++;
        waits = waiting;
        lines = realloc(lines, (known + 1) * sizeof *lines);
        arrow[strcspn(arrow + 1, "\n") + 1] = 0;
        lines[known++] = (struct line){sample, function, arrow + 4};
    }
    if (file) fclose(file);
}

static uint now_valid(void) {
    uint at = 0;
    FILE *file = fopen(beside("nvml.at"), "re");
    if (file && fscanf(file, "at %u", &at) != 1) at = 0;
    if (file) fclose(file);
    return at;
}

/* The newest answer to what `text` asks in which this stands, if it is not NULL. */
static const char *recorded(const char *with) {
    uint at = now_valid();
    if (!lines) learn();
    for (uint i = known; i-- > 0;)
        if (lines[i].sample <= at && !strcmp(lines[i].key, text) && (!with || strstr(lines[i].answer, with)))
            return lines[i].answer;
    return NULL;
}

static int code_of(void) {
    const char *answer = recorded(NULL);
    return answer ? atoi(answer) : UNSUPPORTED;
}

static const char *take_bytes(const char *from, void *to, size_t count) {
    uint byte;
    while (*from == ' ') from++;
    for (size_t i = 0; i < count && sscanf(from, "%2x", &byte) == 1; i++, from += 2) ((unsigned char *)to)[i] = byte;
    return from;
}

/* ---- recording ---- */

typedef int (*real)(long, long, long, long, long, long);
struct timing { double began, ticks, took; };

static const char *recording(void) { return getenv("NVML_RECORD"); }

static real find(const char *function) {
    static void *library;
    if (!library && !(library = dlopen(recording(), RTLD_NOW | RTLD_LOCAL))) fprintf(stderr, "nvml: %s\n", dlerror());
    return library ? (real)dlsym(library, function) : NULL;
}

static struct timing begin(void) { return (struct timing){seconds(CLOCK_REALTIME), seconds(CLOCK_MONOTONIC), 0}; }
static void end(struct timing *t) { t->took = seconds(CLOCK_MONOTONIC) - t->ticks; }
static void write_line(const struct timing *t) { fprintf(stderr, "nvml %.6f %.0f %s\n", t->began, t->took * 1e6, text); }

/* ---- most calls come here ----
 * `what` says what each argument is: d a GPU, D where a GPU's handle is put, i a number, oN where N bytes are put, t a text and
 * its room, nN a length and the list of so many bytes each that follows, mN the same with the list first, h what is only
 * handed on. */

static int answered(const char *what, long *args, const char *answer) {
    int code = atoi(answer);
    answer += strcspn(answer, " ");
    for (uint a = 0; *what; a++) {
        char kind = *what++;
        size_t size = strtoul(what, (char **)&what, 10);
        if (kind == 'D') {
            int index = (int)args[0];
            *(void **)args[a] = gpus[index] = &gpus[index];
        } else if (kind == 'o' && args[a]) {
            answer = take_bytes(answer, (void *)args[a], size);
        } else if (kind == 't') {
            const char *from = strchr(answer, '"'), *to = from ? strrchr(answer, '"') : NULL;
            if (to) snprintf((char *)args[a], args[a + 1], "%.*s", (int)(to - from - 1), from + 1);
            a++;
        } else if (kind == 'n' || kind == 'm') {
            uint *count = (uint *)args[kind == 'n' ? a : a + 1], room = *count;
            void *list = (void *)args[kind == 'n' ? a + 1 : a];
            *count = strtoul(answer, (char **)&answer, 10);
            if (!code && list && *count > room) code = TOO_SMALL;
            if (!code && list) answer = take_bytes(answer, list, *count * size);
            a++;
        }
    }
    return code;
}

static int call(const char *function, const char *what, long a, long b, long c, long d, long e, long f) {
    long args[] = {a, b, c, d, e, f};
    pthread_mutex_lock(&lock);
    length = 0;
    add("%s", function);
    const char *w = what;
    for (uint i = 0; *w; i++) {
        char kind = *w++;
        while (isdigit((unsigned char)*w)) w++;
        if (kind == 'd') add(" %d", index_of((void *)args[i]));
        if (kind == 'i') add(" %lu", (unsigned long)(uint)args[i]);
        if ((kind == 'n' && !args[i + 1]) || (kind == 'm' && !args[i])) add(" length");
        if (kind == 't' || kind == 'n' || kind == 'm') i++;
    }
    int code;
    if (!recording()) {
        const char *answer = recorded(NULL);
        code = answer ? answered(what, args, answer) : UNSUPPORTED;
        pthread_mutex_unlock(&lock);
        return code;
    }
    real next = find(function);
    struct timing timing = begin();
    code = next ? next(a, b, c, d, e, f) : MISSING;
    end(&timing);
    add(" -> %d", code);
    for (uint i = 0; *what; i++) {
        char kind = *what++;
        size_t size = strtoul(what, (char **)&what, 10);
        if (kind == 'D' && !code && args[0] < GPUS) gpus[args[0]] = *(void **)args[i];
        if (kind == 'o' && args[i] && !code) add(" "), add_bytes((void *)args[i], size);
        if (kind == 't') i++, code ? (void)0 : add(" \"%s\"", (char *)args[i - 1]);
        if (next && (kind == 'n' || kind == 'm')) {
            uint count = *(uint *)args[kind == 'n' ? i : i + 1];
            void *list = (void *)args[kind == 'n' ? i + 1 : i];
            add(" %u ", count);
            if (list && !code) add_bytes(list, count * size);
            i++;
        }
    }
    write_line(&timing);
    pthread_mutex_unlock(&lock);
    return code;
}

#define CALL(name, what) \
    int name(long a, long b, long c, long d, long e, long f) { return call(#name, what, a, b, c, d, e, f); }
CALL(nvmlInit_v2, "")
CALL(nvmlShutdown, "")
CALL(nvmlSystemGetDriverVersion, "t")
CALL(nvmlSystemGetNVMLVersion, "t")
CALL(nvmlSystemGetCudaDriverVersion_v2, "o4")
CALL(nvmlSystemGetCudaDriverVersion, "o4")
CALL(nvmlDeviceGetCount_v2, "o4")
CALL(nvmlDeviceGetHandleByIndex_v2, "iD")
CALL(nvmlDeviceGetUUID, "dt")
CALL(nvmlDeviceGetName, "dt")
CALL(nvmlDeviceGetMinorNumber, "do4")
CALL(nvmlDeviceGetPciInfo_v3, "do68")
CALL(nvmlDeviceGetCudaComputeCapability, "do4o4")
CALL(nvmlDeviceGetNumGpuCores, "do4")
CALL(nvmlDeviceGetComputeMode, "do4")
CALL(nvmlDeviceGetPersistenceMode, "do4")
CALL(nvmlDeviceGetUtilizationRates, "do8")
CALL(nvmlDeviceGetEncoderUtilization, "do4o4")
CALL(nvmlDeviceGetDecoderUtilization, "do4o4")
CALL(nvmlDeviceGetJpgUtilization, "do4o4")
CALL(nvmlDeviceGetOfaUtilization, "do4o4")
CALL(nvmlDeviceGetTemperature, "dio4")
CALL(nvmlDeviceGetMarginTemperature, "do8")
CALL(nvmlDeviceGetPowerUsage, "do4")
CALL(nvmlDeviceGetEnforcedPowerLimit, "do4")
CALL(nvmlDeviceGetPowerManagementLimit, "do4")
CALL(nvmlDeviceGetPowerManagementDefaultLimit, "do4")
CALL(nvmlDeviceGetPowerManagementLimitConstraints, "do4o4")
CALL(nvmlDeviceGetTotalEnergyConsumption, "do8")
CALL(nvmlDeviceGetClockInfo, "dio4")
CALL(nvmlDeviceGetMaxClockInfo, "dio4")
CALL(nvmlDeviceGetCurrentClocksThrottleReasons, "do8")
CALL(nvmlDeviceGetPerformanceState, "do4")
CALL(nvmlDeviceGetNumFans, "do4")
CALL(nvmlDeviceGetFanSpeed_v2, "dio4")
CALL(nvmlDeviceGetCurrPcieLinkGeneration, "do4")
CALL(nvmlDeviceGetCurrPcieLinkWidth, "do4")
CALL(nvmlDeviceGetMaxPcieLinkGeneration, "do4")
CALL(nvmlDeviceGetMaxPcieLinkWidth, "do4")
CALL(nvmlDeviceGetBAR1MemoryInfo, "do24")
CALL(nvmlDeviceGetMemoryInfo, "do24")
CALL(nvmlDeviceGetMemoryInfo_v2, "do40")
CALL(nvmlDeviceGetSamples, "diho4n16")
CALL(nvmlDeviceGetProcessUtilization, "dm32h")
CALL(nvmlDeviceGetComputeRunningProcesses_v3, "dn24")
CALL(nvmlDeviceGetGraphicsRunningProcesses_v3, "dn24")
CALL(nvmlDeviceGetMPSComputeRunningProcesses_v3, "dn24")
CALL(nvmlEventSetCreate, "h")
CALL(nvmlEventSetFree, "h")
CALL(nvmlDeviceGetSupportedEventTypes, "do8")
CALL(nvmlDeviceRegisterEvents, "dih")
CALL(nvmlDeviceGetMigMode, "do4o4")
CALL(nvmlDeviceGetMaxMigDeviceCount, "do4")
CALL(nvmlGpmQueryDeviceSupport, "do8")
CALL(nvmlGpmSampleFree, "h")

/* ---- the others ---- */

int nvmlDeviceGetFieldValues(void *gpu, int count, field_value *fields) {
    pthread_mutex_lock(&lock);
    length = 0;
    add("nvmlDeviceGetFieldValues %d", index_of(gpu));
    int code = recording() ? OK : code_of();
    if (recording()) {
        real next = find("nvmlDeviceGetFieldValues");
        struct timing timing = begin();
        code = next ? next((long)gpu, count, (long)fields, 0, 0, 0) : MISSING;
        end(&timing);
        add(" -> %d", code);
        for (int i = 0; !code && i < count; i++) {
            add(" %u:%u:%d:%u:", fields[i].id, fields[i].scope, fields[i].code, fields[i].type);
            add_bytes(fields[i].value, sizeof fields[i].value);
        }
        write_line(&timing);
    }
    for (int i = 0; !recording() && !code && i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, " %u:%u:", fields[i].id, fields[i].scope);
        const char *answer = recorded(name);
        fields[i].code = UNSUPPORTED;
        if (!answer) continue;
        int used = 0;
        answer = strstr(answer, name) + strlen(name);
        if (sscanf(answer, "%d:%u:%n", &fields[i].code, &fields[i].type, &used) == 2) take_bytes(answer + used, fields[i].value, 8);
    }
    pthread_mutex_unlock(&lock);
    return code;
}

/* Which GPU an activity sample is of. */
static struct { void *sample; int gpu; } samples[4 * GPUS];

int nvmlGpmSampleAlloc(void **to) {
    static char place[4 * GPUS];
    static uint given;
    real next = recording() ? find("nvmlGpmSampleAlloc") : NULL;
    if (next) return next((long)to, 0, 0, 0, 0, 0);
    *to = &place[given++ % sizeof place];
    return OK;
}

static int sample_of(void *sample, int gpu) {
    for (uint i = 0; i < sizeof samples / sizeof *samples; i++)
        if (!samples[i].sample || samples[i].sample == sample) {
            if (gpu >= 0) samples[i].sample = sample, samples[i].gpu = gpu;
            return samples[i].gpu;
        }
    return -1;
}

int nvmlGpmSampleGet(void *gpu, void *sample) {
    int code = call("nvmlGpmSampleGet", "dh", (long)gpu, (long)sample, 0, 0, 0, 0);
    pthread_mutex_lock(&lock);
    sample_of(sample, index_of(gpu));
    pthread_mutex_unlock(&lock);
    return code;
}

int nvmlGpmMetricsGet(gpm_get *get) {
    pthread_mutex_lock(&lock);
    length = 0;
    add("nvmlGpmMetricsGet %d", sample_of(get->later, -1));
    int code = recording() ? OK : code_of();
    if (recording()) {
        real next = find("nvmlGpmMetricsGet");
        struct timing timing = begin();
        code = next ? next((long)get, 0, 0, 0, 0, 0) : MISSING;
        end(&timing);
        add(" -> %d", code);
        for (uint i = 0; !code && i < get->count; i++) add(" %u:%d:%.17g", get->metrics[i].id, get->metrics[i].code, get->metrics[i].value);
        write_line(&timing);
    }
    for (uint i = 0; !recording() && !code && i < get->count; i++) {
        char name[32];
        snprintf(name, sizeof name, " %u:", get->metrics[i].id);
        const char *answer = recorded(name);
        get->metrics[i].code = UNSUPPORTED;
        if (answer) sscanf(strstr(answer, name) + strlen(name), "%d:%lf", &get->metrics[i].code, &get->metrics[i].value);
    }
    pthread_mutex_unlock(&lock);
    return code;
}

typedef struct { void *gpu; ull type, data; uint gi, ci; } event;

int nvmlEventSetWait_v2(void *set, event *to, uint timeout) {
    pthread_mutex_lock(&lock);
    length = 0;
    add("nvmlEventSetWait_v2");
    int code = TIMEOUT;
    if (recording()) {
        real next = find("nvmlEventSetWait_v2");
        struct timing timing = begin();
        code = next ? next((long)set, (long)to, timeout, 0, 0, 0) : MISSING;
        end(&timing);
        add(" -> %d", code);
        if (!code) add(" %d:%llu:%llu:%u:%u", index_of(to->gpu), to->type, to->data, to->gi, to->ci);
        write_line(&timing);
    } else {
        /* Events of earlier samples were received there. */
        static uint received;
        uint at = now_valid();
        if (!lines) learn();
        for (; received < known && lines[received].sample <= at && code == TIMEOUT; received++) {
            int gpu;
            if (!strcmp(lines[received].key, text) && lines[received].sample == at &&
                sscanf(lines[received].answer, "0 %d:%llu:%llu:%u:%u", &gpu, &to->type, &to->data, &to->gi, &to->ci) == 5)
                to->gpu = gpus[gpu], code = OK;
        }
    }
    pthread_mutex_unlock(&lock);
    return code;
}
