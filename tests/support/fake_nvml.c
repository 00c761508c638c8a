/* NVML as its documentation tells (nvml.h), for two cards: what the tests ask for and no more. Numbers change by call. */
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned int pid; unsigned long long usedGpuMemory; unsigned int instance, compute; } process_t;

enum { SUCCESS = 0, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15, DRIVER_NOT_LOADED = 9 };
static int cards[2] = {0, 1};
static int calls;

static int odd(const char *name) { const char *word = getenv("FAKE_NVML"); return word && strstr(word, name) != 0; }

int nvmlInitWithFlags(unsigned int flags) { (void)flags; return odd("unloaded") ? DRIVER_NOT_LOADED : SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { return code == DRIVER_NOT_LOADED ? "Driver Not Loaded" : "An Error"; }
int nvmlDeviceGetCount_v2(unsigned int *count) { *count = 2; return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int i, void **card) { *card = &cards[i]; return SUCCESS; }

int nvmlDeviceGetClockInfo(void *card, unsigned int type, unsigned int *mhz) {
    if (odd("lost")) return GPU_IS_LOST;
    /* SM is type 1, memory type 2; the second card's falls from 1,800 to 1,600 and goes on so. */
    *mhz = type == 2 ? 2619 : *(int *)card == 0 ? 1800 : (calls++ % 2 ? 1600 : 1800);
    return SUCCESS;
}
int nvmlDeviceGetPowerUsage(void *card, unsigned int *milliwatts) { (void)card; *milliwatts = 350500; return SUCCESS; }
int nvmlDeviceGetTemperature(void *card, unsigned int sensor, unsigned int *c) {
    if (sensor != 0) return NOT_SUPPORTED;
    *c = *(int *)card == 0 ? 60 : 88;
    return SUCCESS;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void *card, unsigned long long *reasons) {
    /* Idle for the first; the power cap and heat for the second. */
    *reasons = *(int *)card == 0 ? 0x1 : 0x4 | 0x40;
    return SUCCESS;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *card, unsigned int *count, process_t *found) {
    if (*(int *)card == 1) return NOT_SUPPORTED;
    if (found == 0) { *count = 2; return INSUFFICIENT_SIZE; }
    for (unsigned int i = 0; i < 2; i++) found[i] = (process_t){.pid = 100 + i, .usedGpuMemory = 1 << 30};
    *count = 2;
    return SUCCESS;
}
