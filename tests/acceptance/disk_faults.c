/* Faults of the disk of a journal, for LD_PRELOAD: what the folder $FAULTS (else the folder faults of the data directory)
   has a file for happens to files of a journal.

   hang        a sync does not end          sync-eio    it fails
   slow        a sync takes 0.2 s           full        nothing is written, no space is given
   read-only   nothing is written or opened for writing (as after errors=remount-ro)
   read-eio    nothing can be read                          hang-read   a read from the page file does not end
   hold-read   a read does not end                          slow-read   a read takes 0.1 s */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name)) dlsym(RTLD_NEXT, #name))

static int file_has(const char *fault, const char *file)
{
    char path[4096];
    const char *folder = getenv("FAULTS"), *journal = strstr(file, "/journal/");
    if (journal == NULL)
        return 0;
    if (folder != NULL)
        snprintf(path, sizeof path, "%s/%s", folder, fault);
    else
        snprintf(path, sizeof path, "%.*s/faults/%s", (int)(journal - file), file, fault);
    return access(path, F_OK) == 0;
}

static int has(const char *fault, int fd)
{
    char link[64], file[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, file, sizeof file - 1);
    if (n < 0)
        return 0;
    file[n] = 0;
    return file_has(fault, file);
}

static int fails(const char *fault, int number, int fd)
{
    if (!has(fault, fd))
        return 0;
    errno = number;
    return 1;
}

int fdatasync(int fd)
{
    while (has("hang", fd))
        usleep(10000);
    if (fails("slow", 0, fd))
        usleep(200000);
    if (fails("sync-eio", EIO, fd) || fails("read-only", EROFS, fd))
        return -1;
    return REAL(fdatasync)(fd);
}

/* What os.pwritev of Python calls. */
ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t at, int flags)
{
    if (fails("full", ENOSPC, fd) || fails("read-only", EROFS, fd))
        return -1;
    return REAL(pwritev64v2)(fd, parts, count, at, flags);
}

ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t at, int flags)
{
    return pwritev64v2(fd, parts, count, at, flags);
}

int posix_fallocate64(int fd, off64_t at, off64_t size)
{
    if (fails("full", ENOSPC, fd))
        return ENOSPC;
    return REAL(posix_fallocate64)(fd, at, size);
}

int posix_fallocate(int fd, off_t at, off_t size)
{
    return posix_fallocate64(fd, at, size);
}

/* What os.preadv of Python calls.  The page file has no name. */
ssize_t preadv64v2(int fd, const struct iovec *parts, int count, off64_t at, int flags)
{
    char fault[4096];
    const char *folder = getenv("FAULTS");
    if (folder != NULL) {
        snprintf(fault, sizeof fault, "%s/hang-read", folder);
        while (access(fault, F_OK) == 0)
            usleep(10000);
    }
    return REAL(preadv64v2)(fd, parts, count, at, flags);
}

ssize_t preadv2(int fd, const struct iovec *parts, int count, off_t at, int flags)
{
    return preadv64v2(fd, parts, count, at, flags);
}

ssize_t read(int fd, void *to, size_t size)
{
    if (fails("read-eio", EIO, fd))
        return -1;
    while (has("hold-read", fd))
        usleep(10000);
    if (has("slow-read", fd))
        usleep(100000);
    return REAL(read)(fd, to, size);
}

int open64(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    if ((flags & O_ACCMODE) != O_RDONLY && file_has("read-only", path)) {
        errno = EROFS;
        return -1;
    }
    return REAL(open64)(path, flags, mode);
}
