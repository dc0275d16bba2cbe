/* Preloaded: counts the calls of one process that touch files below some folders, and its Slurm commands; disturbs one.
 *
 * calls_arm() begins the count, in the process that calls it alone. Each call is one line of the report:
 * NUMBER CLASS NAME PATH, where CLASS is r (it reads), w (it writes), x (a command is about to be executed) or
 * y (a command has ended), followed by " *" where that call was disturbed.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { KILL = -1, TORN = -2, LOST = -3 }; /* an errno where it is above 0 */
enum { ROOTS = 4, COMMANDS = 16, LENGTH = PATH_MAX + NAME_MAX + 2 };

static pid_t armed;
static char roots[ROOTS][PATH_MAX];
static char report[PATH_MAX];
static int fault, without_locks, shorter = 1;
static long count, wanted;
/* Several threads may have commands under way. */
static struct { pid_t pid; char name[64]; } commands[COMMANDS];
static pid_t refused;

/* Of a child of vfork the memory is its parent's: what it notes here is for the parent. */
static int is_armed(void) { return armed && syscall(SYS_getpid) == armed; }

static int is_below(const char *path)
{
    for (int i = 0; i < ROOTS && roots[i][0]; i++) {
        size_t length = strlen(roots[i]);
        if (!strncmp(path, roots[i], length) && (path[length] == '/' || !path[length]))
            return 1;
    }
    return 0;
}

static int of_descriptor(int descriptor, char *path)
{
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", descriptor);
    ssize_t length = syscall(SYS_readlink, name, path, PATH_MAX - 1);
    path[length < 0 ? 0 : length] = 0;
    return length > 0;
}

/* A path by way of a folder that the process keeps open becomes the plain one. */
static void leave_descriptor(char *path)
{
    char folder[LENGTH];
    int descriptor, length = 0;
    if (sscanf(path, "/proc/self/fd/%d%n", &descriptor, &length) < 1 || path[length] != '/')
        return;
    if (!of_descriptor(descriptor, folder))
        return;
    strncat(folder, path + length, NAME_MAX);
    strcpy(path, folder);
}

static int is_mine(int folder, const char *given, char *path)
{
    if (!is_armed() || !given)
        return 0;
    path[0] = 0;
    if (given[0] != '/') {
        if (folder == AT_FDCWD ? syscall(SYS_getcwd, path, PATH_MAX) < 0 : !of_descriptor(folder, path))
            return 0;
        if (given[0])
            strcat(path, "/");
    }
    strncat(path, given, PATH_MAX - 1);
    leave_descriptor(path);
    return is_below(path);
}

static int is_open_below(int descriptor, char *path)
{
    return is_armed() && of_descriptor(descriptor, path) && is_below(path);
}

static int writes(int descriptor)
{
    int flags = syscall(SYS_fcntl, descriptor, F_GETFL);
    return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
}

static void note(char class, const char *name, const char *path, int hit)
{
    char line[LENGTH + 64];
    int length = snprintf(line, sizeof line, "%ld %c %s %s%s\n", count, class, name, path, hit ? " *" : "");
    /* Opened each time: the child of a fork closes all that it does not know before it executes a command. */
    int descriptor = syscall(SYS_openat, AT_FDCWD, report, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    syscall(SYS_write, descriptor, line, length);
    syscall(SYS_close, descriptor);
}

static void end(void)
{
    kill(armed, SIGKILL);
    for (;;)
        _exit(137); /* a child of vfork: its parent is dead */
}

/* Whether this call is the one; its fault has yet to be done. */
static int is_the_one(char class, const char *name, const char *path)
{
    int hit = ++count == wanted;
    note(class, name, path, hit);
    return hit;
}

/* The errno that this call is to fail with, 0 where it is to go on. */
static int failure(char class, const char *name, const char *path)
{
    if (!is_the_one(class, name, path))
        return 0;
    if (fault == KILL || fault == TORN)
        end();
    return fault > 0 ? fault : 0;
}

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

#define FAIL_AT(class, name, folder, given) \
    do { \
        char path[LENGTH]; \
        int error; \
        if (is_mine(folder, given, path) && (error = failure(class, name, path))) { \
            errno = error; \
            return -1; \
        } \
    } while (0)

#define FAIL_FD(class, name, descriptor) \
    do { \
        char path[LENGTH]; \
        int error; \
        if (is_open_below(descriptor, path) && (error = failure(class, name, path))) { \
            errno = error; \
            return -1; \
        } \
    } while (0)

void calls_arm(const char *const *folders, const char *report_path, long number, int what, int no_locks, int divisor)
{
    for (int i = 0; i < ROOTS && folders[i]; i++)
        snprintf(roots[i], PATH_MAX, "%s", folders[i]);
    snprintf(report, sizeof report, "%s", report_path);
    wanted = number, fault = what, without_locks = no_locks, shorter = divisor > 0 ? divisor : 1;
    count = 0;
    armed = syscall(SYS_getpid);
}

static char class_of(int flags) { return (flags & O_ACCMODE) != O_RDONLY || flags & (O_CREAT | O_TRUNC) ? 'w' : 'r'; }

static mode_t mode_in(int flags, va_list more)
{
    return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(more, mode_t) : 0;
}

#define OPEN(name, parameters, folder, ...) \
    int name parameters \
    { \
        REAL(name); \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = mode_in(flags, more); \
        va_end(more); \
        FAIL_AT(class_of(flags), "open", folder, given); \
        return real(__VA_ARGS__, flags, mode); \
    }
OPEN(open, (const char *given, int flags, ...), AT_FDCWD, given)
OPEN(open64, (const char *given, int flags, ...), AT_FDCWD, given)
OPEN(openat, (int folder, const char *given, int flags, ...), folder, folder, given)
OPEN(openat64, (int folder, const char *given, int flags, ...), folder, folder, given)

DIR *opendir(const char *given)
{
    REAL(opendir);
    char path[LENGTH];
    int error;
    if (is_mine(AT_FDCWD, given, path) && (error = failure('r', "opendir", path))) {
        errno = error;
        return NULL;
    }
    return real(given);
}

#define STAT(name, parameters, folder, ...) \
    int name parameters \
    { \
        REAL(name); \
        FAIL_AT('r', "stat", folder, given); \
        return real(__VA_ARGS__); \
    }
STAT(stat, (const char *given, struct stat *facts), AT_FDCWD, given, facts)
STAT(stat64, (const char *given, struct stat64 *facts), AT_FDCWD, given, facts)
STAT(lstat, (const char *given, struct stat *facts), AT_FDCWD, given, facts)
STAT(lstat64, (const char *given, struct stat64 *facts), AT_FDCWD, given, facts)
STAT(fstatat, (int folder, const char *given, struct stat *facts, int flags), folder, folder, given, facts, flags)
STAT(fstatat64, (int folder, const char *given, struct stat64 *facts, int flags), folder, folder, given, facts, flags)

ssize_t read(int descriptor, void *buffer, size_t size)
{
    REAL(read);
    FAIL_FD('r', "read", descriptor);
    return real(descriptor, buffer, size);
}

ssize_t pread64(int descriptor, void *buffer, size_t size, off64_t offset)
{
    REAL(pread64);
    FAIL_FD('r', "read", descriptor);
    return real(descriptor, buffer, size, offset);
}

/* A write that is torn leaves its first half; an error of a full disk may leave that too, as in reality. */
ssize_t write(int descriptor, const void *buffer, size_t size)
{
    REAL(write);
    char path[LENGTH];
    if (is_open_below(descriptor, path) && is_the_one('w', "write", path)) {
        if (fault == TORN && size > 1)
            real(descriptor, buffer, size / 2);
        if (fault == KILL || fault == TORN)
            end();
        if (fault > 0) {
            errno = fault;
            return -1;
        }
    }
    return real(descriptor, buffer, size);
}

ssize_t pwrite64(int descriptor, const void *buffer, size_t size, off64_t offset)
{
    REAL(pwrite64);
    FAIL_FD('w', "pwrite", descriptor);
    return real(descriptor, buffer, size, offset);
}

ssize_t writev(int descriptor, const struct iovec *vectors, int size)
{
    REAL(writev);
    FAIL_FD('w', "writev", descriptor);
    return real(descriptor, vectors, size);
}

ssize_t sendfile64(int out, int in, off64_t *offset, size_t size)
{
    static ssize_t (*real)(int, int, off64_t *, size_t);
    if (!real)
        real = (ssize_t (*)(int, int, off64_t *, size_t))dlsym(RTLD_NEXT, "sendfile64");
    FAIL_FD('w', "sendfile", out);
    return real(out, in, offset, size);
}

#define ONE_PATH(name, parameters, folder, given, ...) \
    int name parameters \
    { \
        REAL(name); \
        FAIL_AT('w', #name, folder, given); \
        return real(__VA_ARGS__); \
    }
#define ONE_DESCRIPTOR(name, parameters, ...) \
    int name parameters \
    { \
        REAL(name); \
        FAIL_FD('w', #name, descriptor); \
        return real(__VA_ARGS__); \
    }
ONE_PATH(rename, (const char *from, const char *to), AT_FDCWD, to, from, to)
ONE_PATH(renameat, (int folder, const char *from, int other, const char *to), other, to, folder, from, other, to)
ONE_PATH(renameat2, (int folder, const char *from, int other, const char *to, unsigned int flags), other, to, folder,
         from, other, to, flags)
ONE_PATH(link, (const char *from, const char *to), AT_FDCWD, to, from, to)
ONE_PATH(linkat, (int folder, const char *from, int other, const char *to, int flags), other, to, folder, from, other,
         to, flags)
ONE_PATH(symlink, (const char *from, const char *to), AT_FDCWD, to, from, to)
ONE_PATH(symlinkat, (const char *from, int folder, const char *to), folder, to, from, folder, to)
ONE_PATH(unlink, (const char *given), AT_FDCWD, given, given)
ONE_PATH(unlinkat, (int folder, const char *given, int flags), folder, given, folder, given, flags)
ONE_PATH(mkdir, (const char *given, mode_t mode), AT_FDCWD, given, given, mode)
ONE_PATH(mkdirat, (int folder, const char *given, mode_t mode), folder, given, folder, given, mode)
ONE_PATH(rmdir, (const char *given), AT_FDCWD, given, given)
ONE_PATH(chmod, (const char *given, mode_t mode), AT_FDCWD, given, given, mode)
ONE_PATH(fchmodat, (int folder, const char *given, mode_t mode, int flags), folder, given, folder, given, mode, flags)
ONE_PATH(truncate64, (const char *given, off64_t size), AT_FDCWD, given, given, size)
ONE_DESCRIPTOR(fchmod, (int descriptor, mode_t mode), descriptor, mode)
ONE_DESCRIPTOR(fsync, (int descriptor), descriptor)
ONE_DESCRIPTOR(fdatasync, (int descriptor), descriptor)
ONE_DESCRIPTOR(ftruncate64, (int descriptor, off64_t size), descriptor, size)

/* The descriptor is gone in any case; what was written may not have arrived. */
int close(int descriptor)
{
    REAL(close);
    char path[LENGTH];
    int error = 0;
    if (is_open_below(descriptor, path) && writes(descriptor))
        error = failure('w', "close", path);
    int status = real(descriptor);
    if (error)
        errno = error;
    return error ? -1 : status;
}

int flock(int descriptor, int operation)
{
    REAL(flock);
    if (is_armed() && without_locks) {
        errno = ENOSYS;
        return -1;
    }
    FAIL_FD('w', "flock", descriptor);
    return real(descriptor, operation);
}

#define FCNTL(name) \
    int name(int descriptor, int what, ...) \
    { \
        REAL(name); \
        va_list more; \
        va_start(more, what); \
        void *argument = va_arg(more, void *); \
        va_end(more); \
        if (is_armed() && (what == F_SETLK || what == F_SETLKW)) { \
            if (without_locks) { \
                errno = ENOSYS; \
                return -1; \
            } \
            FAIL_FD('w', "lockf", descriptor); \
        } \
        return real(descriptor, what, argument); \
    }
FCNTL(fcntl)
FCNTL(fcntl64)

static int place_of(pid_t pid)
{
    for (int i = 0; i < COMMANDS; i++)
        if (commands[i].pid == pid)
            return i;
    return -1;
}

/* In the child. A command is looked for in each folder of PATH; what has failed once goes on failing. */
static int about_to_execute(const char *given)
{
    pid_t me = syscall(SYS_getpid);
    if (!armed || me == armed || syscall(SYS_getppid) != armed || syscall(SYS_access, given, X_OK))
        return 0;
    if (refused != me) {
        const char *base = strrchr(given, '/');
        int place = place_of(0);
        if (place < 0)
            return 0;
        snprintf(commands[place].name, sizeof commands[place].name, "%s", base ? base + 1 : given);
        commands[place].pid = me;
        if (!is_the_one('x', "execute", commands[place].name) || fault == LOST)
            return 0;
        if (fault == KILL || fault == TORN)
            end();
        refused = me, commands[place].pid = 0;
    }
    errno = fault;
    return -1;
}

int execve(const char *given, char *const argv[], char *const environment[])
{
    REAL(execve);
    return about_to_execute(given) ? -1 : real(given, argv, environment);
}

int execv(const char *given, char *const argv[])
{
    REAL(execv);
    return about_to_execute(given) ? -1 : real(given, argv);
}

/* The command has answered. Its answer is lost where its status says that a signal ended it. */
pid_t waitpid(pid_t which, int *status, int options)
{
    REAL(waitpid);
    pid_t found = real(which, status, options);
    int place = found > 0 && is_armed() ? place_of(found) : -1;
    if (place >= 0) {
        commands[place].pid = 0;
        if (is_the_one('y', "answered", commands[place].name)) {
            if (fault == KILL || fault == TORN)
                end();
            if (status)
                *status = SIGKILL;
        }
    }
    return found;
}

/* Pauses are shorter, so that a campaign spends its time on calls. */
int clock_nanosleep(clockid_t clock, int flags, const struct timespec *wish, struct timespec *left)
{
    REAL(clock_nanosleep);
    if (!is_armed() || shorter == 1)
        return real(clock, flags, wish, left);
    struct timespec now = {0, 0};
    if (flags & TIMER_ABSTIME)
        clock_gettime(clock, &now);
    long long wait = (wish->tv_sec - now.tv_sec) * 1000000000LL + wish->tv_nsec - now.tv_nsec;
    wait = wait > 0 ? wait / shorter : 0;
    struct timespec shortened = {wait / 1000000000LL, wait % 1000000000LL};
    return real(clock, 0, &shortened, NULL);
}
