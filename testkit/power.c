/* A disk that forgets: what a process has written below $POWER_DIR and not synced can be taken back.
 *
 * What is below $POWER_DIR/$POWER_SPARED is not taken back.  Loaded with LD_PRELOAD.  Before each change of a file or a name it appends to $POWER_UNDO/log what was there before,
 * and after each sync that it was synced.  Files that were changed are linked as $POWER_UNDO/i-INODE, which must be on
 * the same file system.  `power.py` reads the log after the process was killed.  A sync takes $POWER_MS milliseconds,
 * and nothing is really synced: the machine does not lose its power.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITE = 1, SYNC = 2, CREATE = 3, RENAME = 4, UNLINK = 5, NAMES = 6, SHRINK = 7 };

struct record {
    uint32_t kind, octets; /* of what follows: old content, or names with a zero behind each */
    uint64_t inode, offset, length, size;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *folder, *undo, *spared;
static size_t prefix;
static int log_fd = -1;
static useconds_t slowness;

static void cut_torn_end(void)
{
    struct record found;
    off_t at = 0;
    while (pread(log_fd, &found, sizeof found, at) == (ssize_t) sizeof found) {
        off_t next = at + (off_t) sizeof found + found.octets;
        if (next > lseek(log_fd, 0, SEEK_END))
            break;
        at = next;
    }
    if (syscall(SYS_ftruncate, log_fd, at) != 0)
        abort();
}

__attribute__((constructor)) static void begin(void)
{
    char name[PATH_MAX];
    const char *ms = getenv("POWER_MS");
    folder = getenv("POWER_DIR");
    undo = getenv("POWER_UNDO");
    spared = getenv("POWER_SPARED");
    if (folder == NULL || undo == NULL)
        return;
    prefix = strlen(folder);
    slowness = ms != NULL ? (useconds_t) atoi(ms) * 1000 : 0;
    snprintf(name, sizeof name, "%s/log", undo);
    log_fd = (int) syscall(SYS_openat, AT_FDCWD, name, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log_fd >= 0)
        cut_torn_end();
}

static int below(const char *path)
{
    if (log_fd < 0 || strncmp(path, folder, prefix) != 0 || path[prefix] != '/')
        return 0;
    size_t length = spared != NULL ? strlen(spared) : 0;
    return !length || strncmp(path + prefix + 1, spared, length) != 0 || path[prefix + 1 + length] != '/';
}

static int absolute(const char *path, char *out)
{
    char here[PATH_MAX];
    if (path[0] == '/')
        return snprintf(out, PATH_MAX, "%s", path) < PATH_MAX;
    return getcwd(here, sizeof here) != NULL && snprintf(out, PATH_MAX, "%s/%s", here, path) < PATH_MAX;
}

static int path_of(int fd, char *out)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, out, PATH_MAX - 1);
    if (length < 0)
        return 0;
    out[length] = 0;
    return 1;
}

/* True if what happens to this descriptor is noted. */
static int ours(int fd, struct stat *found)
{
    char path[PATH_MAX];
    return log_fd >= 0 && fd != log_fd && fstat(fd, found) == 0 && (S_ISREG(found->st_mode) || S_ISDIR(found->st_mode))
        && path_of(fd, path) && (below(path) || strcmp(path, folder) == 0);
}

static void note(struct record *head, const void *body)
{
    struct iovec parts[2] = {{head, sizeof *head}, {(void *) body, head->octets}};
    if (syscall(SYS_writev, log_fd, parts, 2) != (long) (sizeof *head + head->octets))
        abort();
}

static void keep(const char *path, uint64_t inode)
{
    char name[PATH_MAX];
    snprintf(name, sizeof name, "%s/i-%llu", undo, (unsigned long long) inode);
    linkat(AT_FDCWD, path, AT_FDCWD, name, AT_SYMLINK_FOLLOW);
}

static void keep_open(int fd, uint64_t inode)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    keep(link, inode);
}

/* The old content of a range that will be overwritten; read through a descriptor of its own. */
static void note_range(int fd, const struct stat *file, uint32_t kind, off_t offset, size_t length)
{
    char link[64];
    off_t end = offset + (off_t) length < file->st_size ? offset + (off_t) length : file->st_size;
    size_t octets = end > offset ? (size_t) (end - offset) : 0;
    char *old = malloc(octets + 1);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int reader = octets ? (int) syscall(SYS_openat, AT_FDCWD, link, O_RDONLY | O_CLOEXEC) : -1;
    if (old == NULL || (octets && pread(reader, old, octets, offset) != (ssize_t) octets))
        abort();
    if (reader >= 0)
        close(reader);
    keep_open(fd, file->st_ino);
    struct record head = {kind, (uint32_t) octets, file->st_ino, (uint64_t) offset, length, (uint64_t) file->st_size};
    note(&head, old);
    free(old);
}

static void note_names(uint32_t kind, uint64_t inode, const char *one, const char *other)
{
    char names[2 * PATH_MAX];
    int octets = snprintf(names, sizeof names, "%s%c%s", one, 0, other) + 1;
    struct record head = {kind, (uint32_t) octets, inode, 0, 0, 0};
    note(&head, names);
}

static size_t sum(const struct iovec *parts, int count)
{
    size_t found = 0;
    for (int at = 0; at < count; at++)
        found += parts[at].iov_len;
    return found;
}

/* ---- writing ---- */

static void before_write(int fd, off_t offset, size_t length)
{
    struct stat file;
    if (length && ours(fd, &file) && S_ISREG(file.st_mode))
        note_range(fd, &file, WRITE, offset < 0 ? file.st_size : offset, length);
}

static off_t here(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && (flags & O_APPEND) ? -1 : lseek(fd, 0, SEEK_CUR);
}

#define LOCKED(before, call)           \
    do {                               \
        pthread_mutex_lock(&lock);     \
        before;                        \
        long found = call;             \
        int error = errno;             \
        pthread_mutex_unlock(&lock);   \
        errno = error;                 \
        return found;                  \
    } while (0)

ssize_t write(int fd, const void *data, size_t length)
{
    if (log_fd < 0 || fd <= 2)
        return syscall(SYS_write, fd, data, length);
    LOCKED(before_write(fd, here(fd), length), syscall(SYS_write, fd, data, length));
}

ssize_t pwrite64(int fd, const void *data, size_t length, off64_t offset)
{
    LOCKED(before_write(fd, offset, length), syscall(SYS_pwrite64, fd, data, length, offset));
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t offset) { return pwrite64(fd, data, length, offset); }

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset)
{
    LOCKED(before_write(fd, offset, sum(parts, count)), syscall(SYS_pwritev, fd, parts, count, offset, 0));
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset)
{
    return pwritev64(fd, parts, count, offset);
}

ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t offset, int flags)
{
    (void) flags;
    return pwritev64(fd, parts, count, offset);
}

ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t offset, int flags)
{
    (void) flags;
    return pwritev64(fd, parts, count, offset);
}

static void before_length(int fd, off_t length)
{
    struct stat file;
    if (!ours(fd, &file) || length == file.st_size)
        return;
    if (length > file.st_size)
        note_range(fd, &file, WRITE, file.st_size, (size_t) (length - file.st_size));
    else
        note_range(fd, &file, SHRINK, length, (size_t) (file.st_size - length));
}

int ftruncate64(int fd, off64_t length) { LOCKED(before_length(fd, length), syscall(SYS_ftruncate, fd, length)); }

int ftruncate(int fd, off_t length) { return ftruncate64(fd, length); }

static void before_allocation(int fd, off_t end)
{
    struct stat file;
    if (fstat(fd, &file) == 0 && end > file.st_size)
        before_length(fd, end);
}

int posix_fallocate64(int fd, off64_t offset, off64_t length)
{
    LOCKED(before_allocation(fd, offset + length), syscall(SYS_fallocate, fd, 0, offset, length) ? errno : 0);
}

int posix_fallocate(int fd, off_t offset, off_t length) { return posix_fallocate64(fd, offset, length); }

/* ---- syncing ---- */

static int synced(int fd)
{
    struct stat file;
    char path[PATH_MAX];
    if (!ours(fd, &file))
        return 0;
    usleep(slowness);
    pthread_mutex_lock(&lock);
    if (S_ISDIR(file.st_mode) && path_of(fd, path)) {
        note_names(NAMES, file.st_ino, path, "");
    } else {
        struct record head = {SYNC, 0, file.st_ino, 0, 0, 0};
        note(&head, "");
    }
    pthread_mutex_unlock(&lock);
    return 1;
}

int fdatasync(int fd) { return synced(fd) ? 0 : (int) syscall(SYS_fdatasync, fd); }

int fsync(int fd) { return synced(fd) ? 0 : (int) syscall(SYS_fsync, fd); }

/* ---- names ---- */

static int open_any(int folder_fd, const char *path, int flags, mode_t mode)
{
    char whole[PATH_MAX];
    struct stat file;
    int changes = flags & (O_CREAT | O_TRUNC);
    if (log_fd < 0 || !changes || (folder_fd != AT_FDCWD && path[0] != '/') || !absolute(path, whole) || !below(whole))
        return (int) syscall(SYS_openat, folder_fd, path, flags, mode);
    pthread_mutex_lock(&lock);
    int there = stat(whole, &file) == 0;
    if (!there && (flags & O_CREAT))
        note_names(CREATE, 0, whole, "");
    int fd = (int) syscall(SYS_openat, AT_FDCWD, whole, flags & ~O_TRUNC, mode);
    int error = errno;
    if (fd >= 0 && there && (flags & O_TRUNC) && file.st_size) {
        note_range(fd, &file, SHRINK, 0, (size_t) file.st_size);
        if (syscall(SYS_ftruncate, fd, 0) != 0)
            abort();
    }
    pthread_mutex_unlock(&lock);
    errno = error;
    return fd;
}

#define MODE(flags)                     \
    mode_t mode = 0;                    \
    if ((flags) & (O_CREAT)) {          \
        va_list more;                   \
        va_start(more, flags);          \
        mode = va_arg(more, mode_t);    \
        va_end(more);                   \
    }

int open64(const char *path, int flags, ...)
{
    MODE(flags)
    return open_any(AT_FDCWD, path, flags | O_LARGEFILE, mode);
}

int open(const char *path, int flags, ...)
{
    MODE(flags)
    return open_any(AT_FDCWD, path, flags, mode);
}

int openat(int folder_fd, const char *path, int flags, ...)
{
    MODE(flags)
    return open_any(folder_fd, path, flags, mode);
}

int openat64(int folder_fd, const char *path, int flags, ...)
{
    MODE(flags)
    return open_any(folder_fd, path, flags, mode);
}

int rename(const char *old, const char *new)
{
    char one[PATH_MAX], other[PATH_MAX];
    struct stat file;
    if (log_fd < 0 || !absolute(old, one) || !absolute(new, other) || !below(other) || !below(one))
        return (int) syscall(SYS_renameat2, AT_FDCWD, old, AT_FDCWD, new, 0);
    pthread_mutex_lock(&lock);
    uint64_t replaced = stat(other, &file) == 0 ? file.st_ino : 0;
    if (replaced)
        keep(other, replaced);
    if (stat(one, &file) == 0)
        note_names(RENAME, replaced, one, other);
    int found = (int) syscall(SYS_renameat2, AT_FDCWD, one, AT_FDCWD, other, 0);
    int error = errno;
    pthread_mutex_unlock(&lock);
    errno = error;
    return found;
}

int unlink(const char *path)
{
    char whole[PATH_MAX];
    struct stat file;
    if (log_fd < 0 || !absolute(path, whole) || !below(whole) || stat(whole, &file) != 0)
        return (int) syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    pthread_mutex_lock(&lock);
    keep(whole, file.st_ino);
    note_names(UNLINK, file.st_ino, whole, "");
    int found = (int) syscall(SYS_unlinkat, AT_FDCWD, whole, 0);
    int error = errno;
    pthread_mutex_unlock(&lock);
    errno = error;
    return found;
}
