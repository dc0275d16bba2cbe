/* A libnvidia-ml.so.1 without GPUs, for tests. It tells what the file named by NVML_STUB says, one "key value" a line
 * (made from a scenario by __init__.py), and reads it again whenever it changes. Structures as in nvml.h of API 13.
 *
 *   nvml.driver, nvml.count, nvml.init (an error), nvml.early (an event wait that returns at once)
 *   gpuN.KEY, gpuN.migM.KEY: uuid name arch pci total reserved used util mem_util power limit temperature margin
 *     slowdown clock_sm clock_mem reasons supported_reasons mig gi ci gpm event_types lost (seconds), lost_error,
 *     ecc (uncorrected errors) persistence nvlinks (up, of nvlinks_of) lanes lanes_of
 *   gpuN.field.ID.SCOPE      "TYPE BASE RATE": a counter that has BASE at the start and rises by RATE per second
 *   gpuN.gpm.ID              "VALUE": the value of a metric from now on; a sample pair gives the mean over its time
 *   gpuN.processes           "PID:BYTES ..."
 *   gpuN.event.K             "SECONDS TYPE DATA [GI]": an event that long after the start
 *   gpuN.error.FUNCTION, gpuN.field.ID.SCOPE.error, gpuN.gpm.ID.error    an NVML return code
 *   gpuN.delay.FUNCTION      "MILLISECONDS [FIRST COUNT]": these calls take that long
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { OK, UNINITIALIZED, INVALID, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND = 6, SMALL = 7, TIMEOUT = 10, LOST = 15,
       VERSION = 25 };
enum { GPUS = 16, SLICES = 8, METRICS = 64, KEYS = 8192 };

typedef struct { int gpu, mig; } Handle;
typedef struct { char *key, *text; double sum, since; int calls, told; } Entry;
typedef struct { int gpu; double at, sum[METRICS]; } Sample;
typedef struct { int unused; } Events;

static Handle handles[GPUS][SLICES + 1];
static Entry table[KEYS];
static int entries, started, registered[GPUS];
static uint64_t wanted[GPUS];
static double start;
static struct timespec seen;
static ino_t seen_inode;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

static int by_key(const void *a, const void *b) { return strcmp(((const Entry *)a)->key, ((const Entry *)b)->key); }

static Entry *find(const char *key) {
  Entry wanted = {.key = (char *)key};
  return bsearch(&wanted, table, entries, sizeof *table, by_key);
}

static double rate_of(const Entry *e) {
  if (strstr(e->key, ".gpm.")) return atof(e->text);
  double type, base, rate = 0;
  return sscanf(e->text, "%lf %lf %lf", &type, &base, &rate) == 3 && strstr(e->key, ".field.") ? rate : 0;
}

static double summed(const Entry *e, double t) { return e->sum + rate_of(e) * (t - e->since); }

/* Reads the file again if it is another one; what counters have counted so far stays. */
static void refresh(void) {
  const char *path = getenv("NVML_STUB");
  struct stat s;
  if (!path || stat(path, &s)) return;
  if (s.st_mtim.tv_sec == seen.tv_sec && s.st_mtim.tv_nsec == seen.tv_nsec && s.st_ino == seen_inode) return;
  FILE *file = fopen(path, "r");
  if (!file) return;
  seen = s.st_mtim, seen_inode = s.st_ino;
  static Entry before[KEYS];
  int count = entries;
  memcpy(before, table, count * sizeof *table);
  double t = now();
  char line[4096];
  for (entries = 0; entries < KEYS && fgets(line, sizeof line, file);) {
    line[strcspn(line, "\n")] = 0;
    char *space = strchr(line, ' ');
    if (!space) continue;
    *space = 0;
    table[entries++] = (Entry){strdup(line), strdup(space + 1), 0, t, 0, 0};
  }
  fclose(file);
  qsort(table, entries, sizeof *table, by_key);
  for (int i = 0; i < count; i++) {
    Entry *e = find(before[i].key);
    if (e) e->sum = summed(&before[i], t), e->calls = before[i].calls, e->told = before[i].told;
    free(before[i].key), free(before[i].text);
  }
}

static char *scope(Handle *h, char *buffer) {
  if (h->mig < 0) sprintf(buffer, "gpu%d", h->gpu);
  else sprintf(buffer, "gpu%d.mig%d", h->gpu, h->mig);
  return buffer;
}

static Entry *get(Handle *h, const char *format, const char *a, unsigned b) {
  char key[256], part[200], name[32];
  snprintf(part, sizeof part, format, a, b);
  snprintf(key, sizeof key, "%s.%s", scope(h, name), part);
  return find(key);
}

static Entry *value(Handle *h, const char *name) { return get(h, "%s", name, 0); }

/* Begins a call: waits as long as the scenario says, and returns its error. The lock is held afterwards. */
static int begin(Handle *h, const char *function) {
  pthread_mutex_lock(&lock);
  refresh();
  if (!started) return UNINITIALIZED;
  Handle none = {-1, -1};
  Entry *delay = h ? get(h, "delay.%s", function, 0) : NULL;
  if (delay) {
    double milliseconds = 0, first = 1, count = 1e9;
    sscanf(delay->text, "%lf %lf %lf", &milliseconds, &first, &count);
    int call = ++delay->calls;
    if (call >= first && call < first + count) {
      struct timespec t = {milliseconds / 1000, 0};
      t.tv_nsec = (milliseconds - t.tv_sec * 1000.0) * 1e6;
      pthread_mutex_unlock(&lock);
      nanosleep(&t, NULL);
      pthread_mutex_lock(&lock);
      refresh();
    }
  }
  if (!h) h = &none;
  if (h->gpu < 0) return OK;
  Handle whole = {h->gpu, -1};
  Entry *lost = value(&whole, "lost");
  if (lost && now() - start >= atof(lost->text)) {
    Entry *instead = value(&whole, "lost_error");
    return instead ? atoi(instead->text) : LOST;
  }
  Entry *error = get(h, "error.%s", function, 0);
  return error ? atoi(error->text) : OK;
}

static int done(int code) {
  pthread_mutex_unlock(&lock);
  return code;
}

#define BEGIN(h) \
  int code = begin(h, __func__); \
  if (code) return done(code)
#define TEXT(h, name, buffer, size) \
  Entry *e = value(h, name); \
  if (!e) return done(NOT_SUPPORTED); \
  snprintf(buffer, size, "%s", e->text); \
  return done(OK)
#define NUMBER(h, name, out) \
  Entry *e = value(h, name); \
  if (!e) return done(NOT_SUPPORTED); \
  *(out) = atof(e->text); \
  return done(OK)

int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  pthread_mutex_lock(&lock);
  refresh();
  Entry *e = find("nvml.delay");
  double seconds = e ? atof(e->text) / 1000 : 0;
  struct timespec t = {seconds, (seconds - (long)seconds) * 1e9};
  pthread_mutex_unlock(&lock);
  nanosleep(&t, NULL);
  pthread_mutex_lock(&lock);
  if ((e = find("nvml.init"))) return done(atoi(e->text));
  if (!started++) start = now();
  for (int i = 0; i < entries; i++) table[i].since = now(), table[i].sum = 0;
  for (int gpu = 0; gpu < GPUS; gpu++)
    for (int mig = 0; mig <= SLICES; mig++) handles[gpu][mig] = (Handle){gpu, mig - 1};
  return done(OK);
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { pthread_mutex_lock(&lock); if (started) started--; return done(OK); }
const char *nvmlErrorString(int code) { (void)code; return "an error that the test asked for"; }

int nvmlSystemGetDriverVersion(char *buffer, unsigned size) {
  BEGIN(NULL);
  Entry *e = find("nvml.driver");
  snprintf(buffer, size, "%s", e ? e->text : "0");
  return done(OK);
}
int nvmlDeviceGetCount_v2(unsigned *count) {
  BEGIN(NULL);
  Entry *e = find("nvml.count");
  *count = e ? atoi(e->text) : 0;
  return done(OK);
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Handle **out) {
  if (index >= GPUS) return INVALID;
  BEGIN(&handles[index][0]);
  if (!value(&handles[index][0], "uuid")) return done(INVALID);
  *out = &handles[index][0];
  return done(OK);
}
int nvmlDeviceGetHandleByUUID(const char *uuid, Handle **out) {
  BEGIN(NULL);
  for (int gpu = 0; gpu < GPUS; gpu++)
    for (int mig = 0; mig <= SLICES; mig++) {
      Entry *e = value(&handles[gpu][mig], "uuid");
      if (e && !strcmp(e->text, uuid)) { *out = &handles[gpu][mig]; return done(OK); }
    }
  return done(NOT_FOUND);
}
int nvmlDeviceGetUUID(Handle *h, char *buffer, unsigned size) { BEGIN(h); TEXT(h, "uuid", buffer, size); }
int nvmlDeviceGetName(Handle *h, char *buffer, unsigned size) { BEGIN(h); TEXT(h, "name", buffer, size); }
int nvmlDeviceGetIndex(Handle *h, unsigned *out) { BEGIN(h); *out = h->gpu; return done(OK); }
int nvmlDeviceGetArchitecture(Handle *h, unsigned *out) { BEGIN(h); NUMBER(h, "arch", out); }

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } Pci;
int nvmlDeviceGetPciInfo_v3(Handle *h, Pci *out) {
  BEGIN(h);
  memset(out, 0, sizeof *out);
  TEXT(h, "pci", out->bus_id, sizeof out->bus_id);
}

/* Memory: used and reserved apart in version 2; together in the older one. */
static double number(Handle *h, const char *name) { Entry *e = value(h, name); return e ? atof(e->text) : 0; }
typedef struct { uint64_t total, free, used; } Memory;
typedef struct { unsigned version; uint64_t total, reserved, free, used; } Memory2;
int nvmlDeviceGetMemoryInfo(Handle *h, Memory *out) {
  BEGIN(h);
  if (!value(h, "total")) return done(NOT_SUPPORTED);
  out->total = number(h, "total"), out->used = number(h, "used") + number(h, "reserved");
  out->free = out->total - out->used;
  return done(OK);
}
int nvmlDeviceGetMemoryInfo_v2(Handle *h, Memory2 *out) {
  BEGIN(h);
  if (out->version != 0x02000028) return done(VERSION);
  if (!value(h, "total")) return done(NOT_SUPPORTED);
  out->total = number(h, "total"), out->used = number(h, "used"), out->reserved = number(h, "reserved");
  out->free = out->total - out->used - out->reserved;
  return done(OK);
}

typedef struct { unsigned gpu, memory; } Utilization;
int nvmlDeviceGetUtilizationRates(Handle *h, Utilization *out) {
  BEGIN(h);
  if (h->mig >= 0 || !value(h, "util")) return done(NOT_SUPPORTED);
  out->gpu = number(h, "util"), out->memory = number(h, "mem_util");
  return done(OK);
}
int nvmlDeviceGetPowerUsage(Handle *h, unsigned *out) { BEGIN(h); NUMBER(h, "power", out); }
int nvmlDeviceGetEnforcedPowerLimit(Handle *h, unsigned *out) { BEGIN(h); NUMBER(h, "limit", out); }
int nvmlDeviceGetTemperature(Handle *h, unsigned sensor, unsigned *out) {
  BEGIN(h);
  if (sensor) return done(INVALID);
  NUMBER(h, "temperature", out);
}
typedef struct { unsigned version, sensor; int temperature; } TemperatureV;
int nvmlDeviceGetTemperatureV(Handle *h, TemperatureV *out) {
  BEGIN(h);
  if (out->version != 0x100000C) return done(VERSION);
  NUMBER(h, "temperature", &out->temperature);
}
typedef struct { unsigned version; int margin; } Margin;
int nvmlDeviceGetMarginTemperature(Handle *h, Margin *out) {
  BEGIN(h);
  if (out->version != 0x1000008) return done(VERSION);
  NUMBER(h, "margin", &out->margin);
}
int nvmlDeviceGetTemperatureThreshold(Handle *h, unsigned kind, unsigned *out) {
  BEGIN(h);
  if (kind != 1) return done(NOT_SUPPORTED);
  NUMBER(h, "slowdown", out);
}
int nvmlDeviceGetClockInfo(Handle *h, unsigned kind, unsigned *out) {
  BEGIN(h);
  NUMBER(h, kind == 2 ? "clock_mem" : "clock_sm", out);
}
int nvmlDeviceGetSupportedClocksEventReasons(Handle *h, uint64_t *out) { BEGIN(h); NUMBER(h, "supported_reasons", out); }
int nvmlDeviceGetCurrentClocksEventReasons(Handle *h, uint64_t *out) { BEGIN(h); NUMBER(h, "reasons", out); }
int nvmlDeviceGetSupportedClocksThrottleReasons(Handle *h, uint64_t *out) { BEGIN(h); NUMBER(h, "supported_reasons", out); }
int nvmlDeviceGetCurrentClocksThrottleReasons(Handle *h, uint64_t *out) { BEGIN(h); NUMBER(h, "reasons", out); }

typedef union { double d; unsigned u; unsigned long ul; unsigned long long ull; long long ll; int i; unsigned short us; } Value;
typedef struct { uint32_t id, scope; int64_t timestamp, latency; int type, code; Value value; } FieldValue;
int nvmlDeviceGetFieldValues(Handle *h, int count, FieldValue *fields) {
  struct timespec wall;
  BEGIN(h);
  clock_gettime(CLOCK_REALTIME, &wall);
  int good = 0;
  for (int i = 0; i < count; i++) {
    FieldValue *f = &fields[i];
    char key[64];
    snprintf(key, sizeof key, "field.%u.%u", f->id, f->scope);
    Entry *e = value(h, key), *error = get(h, "%s.error", key, 0);
    double type = 0, base = 0;
    f->timestamp = wall.tv_sec * 1000000 + wall.tv_nsec / 1000, f->latency = f->id;
    f->code = error ? atoi(error->text) : e ? OK : h->mig >= 0 ? NOT_SUPPORTED : INVALID;
    if (f->code) continue;
    good++;
    sscanf(e->text, "%lf %lf", &type, &base);
    double total = base + summed(e, now());
    f->type = type;
    if (f->type == 0) f->value.d = total;
    else if (f->type == 1) f->value.u = (unsigned)(uint64_t)total; /* it wraps */
    else if (f->type == 5) f->value.i = total;
    else f->value.ull = total;
  }
  return done(good || !count ? OK : fields[0].code);
}

typedef struct { unsigned pid; uint64_t memory; unsigned gi, ci; } Process;
static int processes(Handle *h, unsigned *count, Process *out, const char *function) {
  int code = begin(h, function);
  if (code) return done(code);
  Entry *e = value(h, "processes");
  unsigned found = 0, room = *count;
  int length = 0;
  unsigned pid;
  unsigned long long memory;
  for (const char *text = e ? e->text : ""; sscanf(text, " %u:%llu%n", &pid, &memory, &length) == 2; text += length) {
    if (found < room && out) out[found] = (Process){pid, memory, 0xFFFFFFFF, 0xFFFFFFFF};
    found++;
  }
  *count = found;
  return done(found > room || (found && !out) ? SMALL : OK);
}
int nvmlDeviceGetComputeRunningProcesses_v3(Handle *h, unsigned *count, Process *out) { return processes(h, count, out, __func__); }
int nvmlDeviceGetComputeRunningProcesses_v2(Handle *h, unsigned *count, Process *out) { return processes(h, count, out, __func__); }

/* MIG */
int nvmlDeviceGetMigMode(Handle *h, unsigned *current, unsigned *pending) {
  BEGIN(h);
  *pending = number(h, "mig");
  NUMBER(h, "mig", current);
}
int nvmlDeviceGetTotalEccErrors(Handle *h, unsigned kind, unsigned since, uint64_t *out) { BEGIN(h); NUMBER(h, "ecc", out); }
int nvmlDeviceGetPersistenceMode(Handle *h, unsigned *out) { BEGIN(h); NUMBER(h, "persistence", out); }
int nvmlDeviceGetCurrPcieLinkWidth(Handle *h, unsigned *out) { BEGIN(h); NUMBER(h, "lanes", out); }
int nvmlDeviceGetMaxPcieLinkWidth(Handle *h, unsigned *out) { BEGIN(h); NUMBER(h, "lanes_of", out); }
int nvmlDeviceGetNvLinkState(Handle *h, unsigned link, unsigned *out) {
  BEGIN(h);
  Entry *up = value(h, "nvlinks"), *of = value(h, "nvlinks_of");
  if (!up || !of || link >= (unsigned)atoi(of->text)) return done(INVALID);
  *out = link < (unsigned)atoi(up->text);
  return done(OK);
}
int nvmlDeviceGetMaxMigDeviceCount(Handle *h, unsigned *out) { BEGIN(h); *out = 7; return done(OK); }
int nvmlDeviceGetMigDeviceHandleByIndex(Handle *h, unsigned index, Handle **out) {
  if (index >= SLICES) return INVALID;
  BEGIN(&handles[h->gpu][index + 1]);
  if (!value(&handles[h->gpu][index + 1], "uuid")) return done(NOT_FOUND);
  *out = &handles[h->gpu][index + 1];
  return done(OK);
}
int nvmlDeviceIsMigDeviceHandle(Handle *h, unsigned *out) { *out = h->mig >= 0; return OK; }
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Handle *h, Handle **out) { *out = &handles[h->gpu][0]; return OK; }
int nvmlDeviceGetGpuInstanceId(Handle *h, unsigned *out) { BEGIN(h); NUMBER(h, "gi", out); }
int nvmlDeviceGetComputeInstanceId(Handle *h, unsigned *out) { BEGIN(h); NUMBER(h, "ci", out); }

/* GPM: a sample holds the integrals of the metrics. */
typedef struct { const char *name, *longer, *unit; } Info;
typedef struct { unsigned id; int code; double value; Info info; } Metric;
typedef struct { unsigned version, count; Sample *before, *after; Metric metrics[]; } Metrics;
typedef struct { unsigned version, supported; } Support;
int nvmlGpmQueryDeviceSupport(Handle *h, Support *out) {
  BEGIN(h);
  if (out->version != 1) return done(VERSION);
  out->supported = number(h, "gpm");
  return done(OK);
}
int nvmlGpmSampleAlloc(Sample **out) { *out = calloc(1, sizeof(Sample)); return OK; }
int nvmlGpmSampleFree(Sample *sample) { free(sample); return OK; }
static int take(Handle *h, Sample *sample) {
  sample->at = now();
  sample->gpu = (h->gpu + 1) * 100 + h->mig;
  for (int id = 0; id < METRICS; id++) {
    char key[32];
    sprintf(key, "gpm.%d", id);
    Entry *e = value(h, key);
    sample->sum[id] = e ? summed(e, sample->at) : 0;
  }
  return OK;
}
int nvmlGpmSampleGet(Handle *h, Sample *sample) {
  BEGIN(h);
  return done(number(h, "gpm") ? take(h, sample) : NOT_SUPPORTED);
}
int nvmlGpmMigSampleGet(Handle *h, unsigned instance, Sample *sample) {
  BEGIN(h);
  for (int mig = 0; mig < SLICES; mig++) {
    Handle *slice = &handles[h->gpu][mig + 1];
    if (value(slice, "gi") && number(slice, "gi") == instance)
      return done(number(h, "gpm") ? take(slice, sample) : NOT_SUPPORTED);
  }
  return done(INVALID);
}
int nvmlGpmMetricsGet(Metrics *request) {
  pthread_mutex_lock(&lock);
  refresh();
  if (request->version != 1) return done(VERSION);
  if (!request->before || !request->after || request->before->gpu != request->after->gpu) return done(INVALID);
  double seconds = request->after->at - request->before->at;
  if (!request->before->at || seconds <= 0) return done(INVALID);
  Handle *h = &handles[request->before->gpu / 100 - 1 + (request->before->gpu % 100 == 99)]
                      [(request->before->gpu + 1) % 100];
  for (unsigned i = 0; i < request->count; i++) {
    Metric *m = &request->metrics[i];
    char key[32];
    sprintf(key, "gpm.%u", m->id);
    Entry *e = value(h, key), *error = get(h, "%s.error", key, 0);
    m->code = error ? atoi(error->text) : e ? OK : NOT_SUPPORTED;
    m->value = e && m->id < METRICS ? (request->after->sum[m->id] - request->before->sum[m->id]) / seconds : 0;
  }
  return done(OK);
}

/* Events */
typedef struct { Handle *device; uint64_t type, data; unsigned gi, ci; } Event;
int nvmlEventSetCreate(Events **out) { BEGIN(NULL); *out = calloc(1, sizeof(Events)); return done(OK); }
int nvmlEventSetFree(Events *set) { free(set); return OK; }
int nvmlDeviceGetSupportedEventTypes(Handle *h, uint64_t *out) { BEGIN(h); NUMBER(h, "event_types", out); }
int nvmlDeviceRegisterEvents(Handle *h, uint64_t types, Events *set) {
  (void)set;
  BEGIN(h);
  if (types & ~(uint64_t)number(h, "event_types")) return done(NOT_SUPPORTED);
  registered[h->gpu] = 1, wanted[h->gpu] = types;
  return done(OK);
}
static int next_event(Event *out) {
  for (int i = 0; i < entries; i++) {
    int gpu, k;
    double at, type, data, gi = 0xFFFFFFFF;
    Entry *e = &table[i];
    if (sscanf(e->key, "gpu%d.event.%d", &gpu, &k) != 2 || e->told || !registered[gpu]) continue;
    if (sscanf(e->text, "%lf %lf %lf %lf", &at, &type, &data, &gi) < 3 || now() - start < at) continue;
    if (!((uint64_t)type & wanted[gpu])) continue;
    e->told = 1;
    *out = (Event){&handles[gpu][0], type, data, gi, 0xFFFFFFFF};
    return 1;
  }
  return 0;
}
int nvmlEventSetWait_v2(Events *set, Event *out, unsigned milliseconds) {
  (void)set;
  for (double until = now() + milliseconds / 1000.0;;) {
    BEGIN(NULL);
    int early = find("nvml.early") != NULL;
    if (next_event(out)) return done(OK);
    done(OK);
    if (early || now() >= until) return TIMEOUT;
    nanosleep(&(struct timespec){0, 100000000}, NULL);
  }
}
