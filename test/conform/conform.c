/* SPDX-License-Identifier: MIT */
#include "conform.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "host/filelock.h"

/* The unit tests' harness, behind a main() of our own that takes the URL. */
int tap_main(int argc, char **argv);
#define main tap_main
#include "tap.c"
#undef main

static const char *url;

/* ---- names ---- */

enum { NAMES_MAX = 256 };

static char names[NAMES_MAX][192];
static unsigned n_names, n_cases;

const char *name_of(const char *what)
{
    CHECK(n_names < NAMES_MAX);
    char *name = names[n_names++];
    (void)snprintf(name, sizeof names[0], "conform/%llx/%u/%s",
                   (unsigned long long)now_ms() << 16 | (unsigned)getpid() % 65536,
                   n_cases, what);
    return name;
}

/* ---- the store ---- */

static struct picket_guarantees declared;

const struct picket_guarantees *guarantees(void)
{
    return &declared;
}

bool fair(void)
{
    return strcmp(declared.fairness, "fifo") == 0;
}

void needs(int flag, const char *what)
{
    static char why[128];
    if (!flag) {
        (void)snprintf(why, sizeof why, "not declared: %s", what);
        SKIP(why);
    }
}

void check_status(enum picket_status s, enum picket_status wanted, const char *file,
                  int line, const char *what)
{
    if (s != wanted) {
        printf("# %s: %s\n", picket_status_name(s),
               s == PICKET_OK ? "not refused" : picket_last_error());
    }
    tap_check(s == wanted, file, line, what);
}

void check_refused(enum picket_status s, const char *file, int line, const char *what)
{
    char scheme[32];
    check_status(s, PICKET_UNSUPPORTED, file, line, what);
    (void)snprintf(scheme, sizeof scheme, "%.*s://", (int)strcspn(url, ":"), url);
    if (strstr(picket_last_error(), declared.driver) == NULL &&
        strstr(picket_last_error(), scheme) == NULL) {
        printf("# %s\n", picket_last_error());
        tap_check(false, file, line, "the sentence names the driver");
    }
}

void check_sentence(void)
{
    const char *said = picket_last_error();
    const char *at = strstr(url, "://"), *host = strrchr(url, '@');
    char address[64], password[64] = "";
    printf("# %s\n", said);
    CHECK(said[0] != '\0' && strchr(said, '\n') == NULL);
    CHECK(at != NULL); /* else there is no server to speak of */
    const char *user = at + 3, *colon = strchr(user, ':');
    host = host != NULL ? host + 1 : user;
    (void)snprintf(address, sizeof address, "%.*s", (int)strcspn(host, ",/?"), host);
    CHECK(strstr(said, address) != NULL || strstr(said, declared.driver) != NULL);
    if (host != user && colon < host) {
        (void)snprintf(password, sizeof password, "%.*s", (int)(host - colon - 2),
                       colon + 1);
        CHECK(strstr(said, password) == NULL);
    }
}

enum picket_status open_as(const struct picket_options *o, struct picket **out)
{
    return picket_open(url, o, out);
}

struct picket *try_open(uint32_t ttl_ms)
{
    struct picket *p = NULL;
    struct picket_options o = {.ttl_ms = ttl_ms, .note = "conform"};
    return open_as(&o, &p) == PICKET_OK ? p : NULL;
}

struct picket *open_client(uint32_t ttl_ms)
{
    struct picket *p = try_open(ttl_ms);
    CHECK(p != NULL);
    return p;
}

struct picket_lock *take(struct picket *p, const char *name)
{
    struct picket_lock *l;
    struct picket_acquire_options o = {.wait_ms = PATIENCE_MS};
    CHECK_OK(picket_acquire(p, name, &o, &l));
    return l;
}

struct picket_lock *enqueue(struct picket *p, const char *name,
                            const struct picket_acquire_options *o)
{
    struct picket_lock *l;
    struct picket_want want = {.name = name};
    if (o != NULL) {
        want.mode = o->mode;
        want.slots = o->slots;
    }
    CHECK_OK(picket_enqueue(p, &want, 1, o, &l));
    return l;
}

void await_grant(struct picket_lock *l)
{
    CHECK(readable(picket_ready_fd(l), PATIENCE_MS));
    CHECK_OK(picket_wait(l, 0));
    CHECK((picket_token(l) != 0) == (guarantees()->tokens != 0));
}

static struct picket_view *look_at(struct picket *p, const char *name)
{
    struct picket_view *v;
    CHECK_OK(picket_show(p, name, &v));
    return v;
}

uint32_t waiters_of(struct picket *p, const char *name)
{
    struct picket_view *v = look_at(p, name);
    uint32_t n = v->waiters;
    picket_view_free(v);
    return n;
}

uint32_t holders_of(struct picket *p, const char *name)
{
    struct picket_view *v = look_at(p, name);
    uint32_t n = v->holders;
    picket_view_free(v);
    return n;
}

bool readable(int fd, int timeout_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int n;
    do {
        n = poll(&p, 1, timeout_ms);
    } while (n < 0 && errno == EINTR);
    return n == 1 && (p.revents & POLLIN) != 0;
}

uint64_t now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* ---- the server ---- */

static int control_from = -1, control_to = -1;

static bool find_control(void)
{
    const char *fds = getenv("CONFORM_CONTROL");
    char *comma = NULL, *end = NULL;
    if (fds == NULL) {
        return true;
    }
    control_from = (int)strtol(fds, &comma, 10);
    control_to = *comma == ',' ? (int)strtol(comma + 1, &end, 10) : -1;
    return end != NULL && *end == '\0';
}

void needs_control(void)
{
    if (control_to < 0) {
        SKIP("no server to do that to");
    }
}

struct picket *open_through(uint32_t ttl_ms)
{
    struct picket *p = NULL;
    struct picket_options o = {.ttl_ms = ttl_ms, .note = "conform"};
    const char *way = getenv("CONFORM_THROUGH");
    if (way == NULL) {
        SKIP("no way to the store that could lose answers");
    }
    CHECK_OK(picket_open(way, &o, &p));
    return p;
}

void control(const char *action)
{
    char answer[512];
    size_t len = 0;
    CHECK(dprintf(control_to, "%s\n", action) > 0);
    do {
        CHECK(readable(control_from, 4 * PATIENCE_MS));
        CHECK(read(control_from, &answer[len], 1) == 1);
        len += len < sizeof answer - 1;
    } while (answer[len - 1] != '\n');
    answer[len - 1] = '\0';
    CHECK_STR(answer, "done");
}

/* ---- workers ---- */

static struct worker workers[WORKERS_MAX];

_Noreturn void die(const char *file, int line, const char *what)
{
    printf("# worker: %s:%d: not true: %s (%s)\n", file, line, what, picket_last_error());
    (void)fflush(stdout);
    _exit(99);
}

static void forget(struct worker *w)
{
    (void)close(w->to);
    (void)close(w->from);
    *w = (struct worker){0};
}

void fire(struct worker *w)
{
    if (w->pid > 0) {
        (void)kill(w->pid, SIGKILL);
        (void)waitpid(w->pid, NULL, 0);
        forget(w);
    }
}

void freeze(const struct worker *w)
{
    CHECK(pk_filelock_stop(w->pid));
}

__attribute__((destructor)) static void fire_all(void)
{
    for (int i = 0; i < WORKERS_MAX; i++) {
        fire(&workers[i]);
    }
}

int dismiss(struct worker *w)
{
    int status = -1;
    CHECK(hear(w) == 0);
    CHECK(waitpid(w->pid, &status, 0) == w->pid);
    forget(w);
    return status;
}

void begin(void)
{
    fire_all();
    n_names = 0;
    n_cases++;
}

/* Others' pipes must end when they do, so a child keeps none of them. */
static void keep_only(int in, int out)
{
    for (int i = 0; i < WORKERS_MAX; i++) {
        if (workers[i].pid > 0) {
            (void)close(workers[i].to);
            (void)close(workers[i].from);
            workers[i].pid = 0;
        }
    }
    (void)close(control_from);
    (void)close(control_to);
    MUST(in >= 0 && out >= 0);
}

struct worker *hire(void (*job)(int in, int out, void *arg), void *arg)
{
    int to[2], from[2], i = 0;
    while (i < WORKERS_MAX && workers[i].pid > 0) {
        i++;
    }
    CHECK(i < WORKERS_MAX);
    CHECK(pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0);
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        MUST(getppid() == parent);
        (void)close(to[1]);
        (void)close(from[0]);
        keep_only(to[0], from[1]);
        job(to[0], from[1], arg);
        _exit(0);
    }
    CHECK(pid > 0);
    (void)close(to[0]);
    (void)close(from[1]);
    workers[i] = (struct worker){pid, to[1], from[0]};
    return &workers[i];
}

static int next_byte(int fd, int timeout_ms)
{
    char byte = 0;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int n;
    do {
        n = poll(&p, 1, timeout_ms);
    } while (n < 0 && errno == EINTR);
    return n <= 0 ? -1 : read(fd, &byte, 1) == 1 ? byte : 0;
}

int hear(const struct worker *w)
{
    return next_byte(w->from, PATIENCE_MS);
}

void tell(const struct worker *w, char byte)
{
    CHECK(write(w->to, &byte, 1) == 1);
}

void say(int out, char byte)
{
    MUST(write(out, &byte, 1) == 1);
}

void await(int in, char byte)
{
    int told = next_byte(in, 4 * PATIENCE_MS);
    if (told == 0) {
        _exit(0); /* the case is over */
    }
    MUST(told == byte);
}

void *share(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    return p;
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 3 || !find_control()) {
        (void)fprintf(stderr, "usage: %s URL [--list | TEXT | =NAME]\n", argv[0]);
        return 2;
    }
    url = argv[1];
    struct picket *p = try_open(0);
    if (p == NULL) {
        (void)fprintf(stderr, "conform: %s\n", picket_last_error());
        return 1;
    }
    declared = *picket_guarantees(p);
    picket_close(p);
    argv[1] = argv[0];
    return tap_main(argc - 1, argv + 1);
}
