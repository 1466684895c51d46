/* Loads that a guard has to stop, each bounded by itself: 4 GiB, two minutes, its parent's life.
 *
 *   hog alloc BYTES BYTES_PER_SECOND   take anonymous memory (0 a second: as fast as it goes), hold
 *   hog touch BYTES                    the same once and end: memory that a hypervisor hands out at
 *                                      the first touch is there afterwards, for a second or two
 *   hog fork MOST                      children that only wait, until fork fails; then hold
 *   hog thrash FILE READERS            read pages of a file at random, through a mapping
 *   hog burn CORES                     spin
 *
 * "go" as the last word waits for a byte on stdin first. "lone" before the mode: it outlives its
 * parent, as a real load does.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 4 << 20, PAGE = 4096, LIFE_S = 120 };
static const unsigned long long MAX_BYTES = 4ULL << 30;

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static void hold(void) { for (;;) pause(); }

static unsigned long long wanted, a_second;
static atomic_ullong claimed;
static double begun;

static void *take(void *none) {
    for (;;) {
        unsigned long long before = atomic_fetch_add(&claimed, CHUNK);
        if (before >= wanted) return none;
        char *at = mmap(NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) return none;
        for (size_t page = 0; page < CHUNK; page += PAGE) at[page] = 1;
        double ahead = a_second ? (double)before / (double)a_second - (now() - begun) : 0;
        if (ahead > 0) usleep((useconds_t)(ahead * 1e6));
    }
}

/* Two threads: one alone does not reach a gibibyte a second everywhere. */
static void alloc(unsigned long long bytes, unsigned long long rate) {
    pthread_t second;
    wanted = bytes < MAX_BYTES ? bytes : MAX_BYTES;
    a_second = rate;
    begun = now();
    int more = pthread_create(&second, NULL, take, NULL) == 0;
    take(NULL);
    if (more) pthread_join(second, NULL);
}

static void bomb(int most) {
    for (int made = 0; made < most; made++) {
        pid_t child = fork();
        if (child < 0) break;
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            alarm(LIFE_S);
            hold();
        }
    }
    hold();
}

static void thrash(const char *path, int readers) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat about;
    if (file < 0 || fstat(file, &about) != 0 || about.st_size < PAGE) exit(2);
    char *at = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_SHARED, file, 0);
    if (at == MAP_FAILED) exit(2);
    for (int more = 1; more < readers; more++)
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            alarm(LIFE_S);
            break;
        }
    unsigned long long state = (unsigned long long)getpid() * 2654435761u + 1;
    volatile char sum = 0;
    for (;;) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        sum ^= at[(state >> 20) % (unsigned long long)about.st_size];
    }
}

static void burn(int cores) {
    for (int more = 1; more < cores; more++)
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            alarm(LIFE_S);
            break;
        }
    for (volatile unsigned long long spin = 0;; spin++) {}
}

static void first_to_go(void) {
    int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (file >= 0) {
        if (write(file, "1000", 4) < 0) perror("oom_score_adj");
        close(file);
    }
}

int main(int count, char **words) {
    alarm(LIFE_S);
    first_to_go();
    if (count > 2 && !strcmp(words[1], "lone")) {
        words++;
        count--;
    } else {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    if (count > 2 && !strcmp(words[count - 1], "go")) {
        char byte;
        count--;
        while (read(0, &byte, 1) != 1)
            if (errno != EINTR) return 2;
    }
    if (count == 4 && !strcmp(words[1], "alloc")) {
        alloc(strtoull(words[2], NULL, 10), strtoull(words[3], NULL, 10));
        hold();
    }
    if (count == 3 && !strcmp(words[1], "touch")) {
        alloc(strtoull(words[2], NULL, 10), 0);
        return 0;
    }
    if (count == 3 && !strcmp(words[1], "fork")) bomb(atoi(words[2]));
    if (count == 4 && !strcmp(words[1], "thrash")) thrash(words[2], atoi(words[3]));
    if (count == 3 && !strcmp(words[1], "burn")) burn(atoi(words[2]));
    fprintf(stderr, "usage: hog [lone] alloc|touch|fork|thrash|burn … [go]\n");
    return 2;
}
