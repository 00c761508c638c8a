/* A disk that takes no more from its n-th write on: preloaded, counts what changes a disk and then refuses it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static long counted, from = -1, until = -1;

/* The writes from the n-th (0 the first) to before the m-th fail, none where n is below 0; how many there were so far. */
long fail_writes(long n, long m) { long before = counted; counted = 0; from = n; until = m; return before; }

static int refused(void) {
    long n = __sync_fetch_and_add(&counted, 1);
    if (from < 0 || n < from || n >= until) return 0;
    errno = ENOSPC;
    return 1;
}
static int refused_file(int file) {
    struct stat status;
    return file > 2 && !fstat(file, &status) && S_ISREG(status.st_mode) && refused();
}

#define REAL(name) ({ static __typeof__(&name) real; if (!real) real = dlsym(RTLD_NEXT, #name); real; })
#define OF_FILE(type, name, given, used) type name given { return refused_file(file) ? -1 : REAL(name) used; }
OF_FILE(ssize_t, write, (int file, const void *data, size_t size), (file, data, size))
OF_FILE(ssize_t, writev, (int file, const struct iovec *data, int count), (file, data, count))
OF_FILE(ssize_t, pwrite, (int file, const void *data, size_t size, off_t at), (file, data, size, at))
OF_FILE(ssize_t, pwrite64, (int file, const void *data, size_t size, off64_t at), (file, data, size, at))
OF_FILE(ssize_t, copy_file_range, (int file0, off64_t *at0, int file, off64_t *at, size_t size, unsigned how),
        (file0, at0, file, at, size, how))
OF_FILE(int, fsync, (int file), (file))

int mkdir(const char *path, mode_t mode) { return refused() ? -1 : REAL(mkdir)(path, mode); }
int rename(const char *a, const char *b) { return refused() ? -1 : REAL(rename)(a, b); }

#define OPENED(name, given, used) int name given { \
    va_list more; va_start(more, how); mode_t mode = how & O_CREAT ? va_arg(more, mode_t) : 0; va_end(more); \
    return how & O_CREAT && refused() ? -1 : REAL(name) used; }
OPENED(open, (const char *path, int how, ...), (path, how, mode))
OPENED(open64, (const char *path, int how, ...), (path, how, mode))
OPENED(openat, (int place, const char *path, int how, ...), (place, path, how, mode))
OPENED(openat64, (int place, const char *path, int how, ...), (place, path, how, mode))
