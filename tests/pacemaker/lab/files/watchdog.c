/* A watchdog for sbd where the machine has none: the lab's power unit resets a node that feeds it no more.
 *
 * Preloaded.  Of the program's calls those that concern SBD_WATCHDOG_DEV, reboot(2) and the system's log are answered
 * here; the device is a file of the node that one process can lock.  Nothing of it reaches the machine.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/watchdog.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define POWER_UNIT "/run/lab/power.sock"
#define DEVICE "/run/watchdog"   /* a node without this file has no watchdog */
#define LOG "/var/log/pacemaker/sbd.log"

static int device = -1;
static int seconds = 60;
static int magic;

/* One line to the power unit.  Its answer is not waited for: a driver does not block its caller. */
static void tell(const char *verb, int number)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = POWER_UNIT};
    char host[64] = "", line[128];
    int size, unit = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    gethostname(host, sizeof host - 1);
    size = number ? snprintf(line, sizeof line, "%s %s %d\n", verb, host, number)
                  : snprintf(line, sizeof line, "%s %s\n", verb, host);
    if (unit >= 0 && connect(unit, (struct sockaddr *)&address, sizeof address) == 0)
        send(unit, line, (size_t)size, MSG_NOSIGNAL);
    syscall(SYS_close, unit);
}

static int open_device(void)
{
    int found = (int)syscall(SYS_openat, AT_FDCWD, DEVICE, O_RDWR, 0);

    if (found < 0)
        return -1;
    if (flock(found, LOCK_EX | LOCK_NB) < 0) {
        syscall(SYS_close, found);
        errno = EBUSY; /* as every driver says to the second that opens it */
        return -1;
    }
    magic = 0;
    tell("feed", seconds);
    return device = found;
}

int open(const char *path, int flags, ...)
{
    const char *name = getenv("SBD_WATCHDOG_DEV");
    mode_t mode = 0;

    if (flags & O_CREAT) {
        va_list rest;
        va_start(rest, flags);
        mode = va_arg(rest, mode_t);
        va_end(rest);
    }
    if (strcmp(path, name ? name : "/dev/watchdog") == 0)
        return open_device();
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

ssize_t write(int file, const void *data, size_t size)
{
    if (file < 0 || file != device)
        return syscall(SYS_write, file, data, size);
    if (memchr(data, 'V', size))
        magic = 1;
    else
        tell("feed", seconds);
    return (ssize_t)size;
}

int close(int file)
{
    if (file >= 0 && file == device) {
        if (magic)
            tell("disarm", 0);
        device = -1;
    }
    return (int)syscall(SYS_close, file);
}

int ioctl(int file, unsigned long request, ...)
{
    va_list rest;
    void *value;

    va_start(rest, request);
    value = va_arg(rest, void *);
    va_end(rest);
    if (file < 0 || file != device)
        return (int)syscall(SYS_ioctl, file, request, value);
    switch (request) {
    case WDIOC_SETTIMEOUT:
        seconds = *(int *)value;
        return 0;
    case WDIOC_SETOPTIONS:
        if (*(int *)value & WDIOS_DISABLECARD)
            tell("disarm", 0);
        return 0;
    case WDIOC_GETSUPPORT:
        memset(value, 0, sizeof(struct watchdog_info));
        strcpy((char *)((struct watchdog_info *)value)->identity, "watchdog of the lab");
        return 0;
    }
    errno = ENOTTY;
    return -1;
}

int reboot(int command)
{
    (void)command;
    tell("reboot", 0);
    for (;;)
        pause(); /* nothing is done after it */
}

/* There is no syslog in a node. */
void vsyslog(int priority, const char *format, va_list rest)
{
    char text[1024];
    struct timespec now;
    int size, log = (int)syscall(SYS_openat, AT_FDCWD, LOG, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);

    (void)priority;
    clock_gettime(CLOCK_REALTIME, &now);
    size = snprintf(text, 32, "%lld.%03ld ", (long long)now.tv_sec, now.tv_nsec / 1000000);
    size += vsnprintf(text + size, sizeof text - 34, format, rest);
    size = size > (int)sizeof text - 2 ? (int)sizeof text - 2 : size;
    text[size++] = '\n';
    if (syscall(SYS_write, log, text, (size_t)size) < 0) {
    }
    syscall(SYS_close, log);
}

void syslog(int priority, const char *format, ...)
{
    va_list rest;
    va_start(rest, format);
    vsyslog(priority, format, rest);
    va_end(rest);
}

void __syslog_chk(int priority, int flag, const char *format, ...)
{
    va_list rest;
    (void)flag;
    va_start(rest, format);
    vsyslog(priority, format, rest);
    va_end(rest);
}
