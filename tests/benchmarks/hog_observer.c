/* Looks at the machine and at a hog a thousand times a second; one line of JSON when it is over.
 *
 *   hog_observer THRESHOLD_BYTES PID CGROUP_EVENTS LIMIT_SECONDS
 *
 * Says "ready" first. Times are CLOCK_MONOTONIC nanoseconds, 0 for what did not happen:
 * crossed  MemAvailable below the threshold for the first time
 * dying    the hog bears the kernel's mark of a process that ends (PF_EXITING)
 * dead     its memory is gone and its parent could reap it (its pidfd is readable)
 * empty    its cgroup says "populated 0" ("-" for no cgroup: same as dead)
 * back     MemAvailable above the threshold again
 * grew: the hog's memory passed 16 MiB; size: what it held when crossed, in bytes.
 * lowest: the least MemAvailable seen. late: its own worst delay, for how far to trust the rest.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PF_EXITING = 0x4, TICK_NS = 1000000 };
typedef long long ns;

static ns now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

static ssize_t text(int file, char *into, size_t size) {
    ssize_t got = pread(file, into, size - 1, 0);
    into[got > 0 ? got : 0] = 0;
    return got;
}

static long long available(int meminfo) {
    char page[4096];
    if (text(meminfo, page, sizeof page) <= 0) return -1;
    char *at = strstr(page, "MemAvailable:");
    return at ? atoll(at + 13) * 1024 : -1;
}

static long long size_of(int statm) {
    char line[256];
    long long pages = 0;
    if (statm < 0 || text(statm, line, sizeof line) <= 0) return 0;
    return sscanf(line, "%*s %lld", &pages) == 1 ? pages * 4096 : 0;
}

static int is_dying(int stat) {
    char line[1024];
    if (stat < 0 || text(stat, line, sizeof line) <= 0) return 1;
    char *at = strrchr(line, ')');
    unsigned flags = 0;
    /* after the name: state ppid pgrp session tty tpgid flags */
    return at && sscanf(at + 2, "%*c %*d %*d %*d %*d %*d %u", &flags) == 1 && (flags & PF_EXITING);
}

static int is_empty(int events) {
    char page[256];
    return text(events, page, sizeof page) <= 0 || strstr(page, "populated 0") != NULL;
}

int main(int count, char **words) {
    if (count != 5) return 2;
    long long threshold = atoll(words[1]), lowest = -1;
    int pid = atoi(words[2]);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int meminfo = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    int stat = open(path, O_RDONLY | O_CLOEXEC);
    snprintf(path, sizeof path, "/proc/%d/statm", pid);
    int statm = open(path, O_RDONLY | O_CLOEXEC);
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    int events = strcmp(words[3], "-") ? open(words[3], O_RDONLY | O_CLOEXEC) : -1;
    if (meminfo < 0 || stat < 0 || pidfd < 0 || (events < 0 && strcmp(words[3], "-"))) return 3;
    struct sched_param first = { .sched_priority = 50 };
    int real_time = sched_setscheduler(0, SCHED_FIFO, &first) == 0;
    if (!real_time) setpriority(PRIO_PROCESS, 0, -20);
    mlockall(MCL_CURRENT | MCL_FUTURE);
    ns crossed = 0, dying = 0, dead = 0, empty = 0, back = 0, late = 0, grew = 0;
    long long size = 0;
    printf("ready\n");
    fflush(stdout);
    ns begun = now(), due = begun, limit = begun + (ns)(atof(words[4]) * 1e9);
    while (now() < limit && !(dead && empty && (back || !crossed))) {
        due += TICK_NS;
        struct timespec until = { due / 1000000000LL, due % 1000000000LL };
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
        ns woke = now();
        if (woke - due > late) late = woke - due;
        if (woke - due > TICK_NS) due = woke;
        long long left = available(meminfo);
        if (left < 0) return 4;
        ns at = now();
        if (lowest < 0 || left < lowest) lowest = left;
        if (!grew && size_of(statm) > 16 << 20) grew = at;
        if (!crossed && left < threshold) {
            crossed = at;
            size = size_of(statm);
        }
        if (!dying && is_dying(stat)) dying = now();
        struct pollfd end = { pidfd, POLLIN, 0 };
        if (!dead && poll(&end, 1, 0) == 1) dead = now();
        if (!empty && (events < 0 ? dead != 0 : is_empty(events))) empty = now();
        if (crossed && dead && !back && left > threshold) back = at;
    }
    printf("{\"crossed\": %lld, \"dying\": %lld, \"dead\": %lld, \"empty\": %lld, \"back\": %lld, "
           "\"grew\": %lld, \"size\": %lld, \"lowest\": %lld, \"late\": %lld, \"real_time\": %s}\n",
           crossed, dying, dead, empty, back, grew, size, lowest, late, real_time ? "true" : "false");
    return 0;
}
