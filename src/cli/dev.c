/* SPDX-License-Identifier: MIT */
/*
 * A cluster on this machine, to try things out.
 *
 * The nodes are plain `picket serve` processes with a file of options each, so that one
 * of them can be killed and started again by hand. They end with us, however we end; so
 * do those that were started again, which show by the locks on their directories.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/cluster.h"
#include "cli/errors.h"
#include "cli/output.h"
#include "core/door.h"
#include "host/clock.h"
#include "host/fd.h"
#include "host/memory.h"

enum {
    NODES_DEFAULT = 3,
    NODES_MAX = 5,
    BASE_PORT = 7420, /* of n1; each node has three, and ten to itself */
    PORTS_EACH = 10,
    /* Others are taken from below those that the kernel gives to outgoing connections, so
     * that a node that was killed finds its port free when it comes back. */
    OTHER_FROM = 18000,
    OTHER_PLACES = 1300,
    LAST_PORT = 65535,
    TRIES_MAX = 100,
    STARTS_MAX = 3,      /* somebody may take a port between our look and its use */
    SERVING_MS = 120000, /* on a machine that has other things to do */
    ENDING_MS = 6000,    /* more than a node's own patience while it drains */
    NAP_MS = 20,
};

struct settings {
    struct pk_common common;
    uint64_t nodes; /* 0: not given */
    const char *data;
};

struct node {
    char name[24];
    uint16_t client, http, raft;
    pid_t pid; /* 0: not running, as far as we know */
};

struct dev {
    char *dir;
    int dir_fd;    /* locked: only one of us at a time */
    bool thrown;   /* away at the end */
    char *program; /* this very one */
    int signals;
    struct node nodes[NODES_MAX];
    size_t count;
    char url[NODES_MAX * 24];
    sigset_t mask; /* as it was before */
};

static const struct pk_option own[] = {
    {PK_OPTION_NUMBER, 0, "nodes", "N", "how many: 1, 3 (the default) or 5",
     offsetof(struct settings, nodes), 1, NODES_MAX},
    {PK_OPTION_TEXT, 0, "data", "DIR",
     "keep the state there, to go on with it next time\n(default: a directory that is "
     "deleted at the end)",
     offsetof(struct settings, data), 0, 0},
    {0},
};

static const struct pk_option_group groups[] = {
    {own, 0},
    {pk_options_output, offsetof(struct settings, common)},
    {pk_options_common, offsetof(struct settings, common)},
    {0},
};

static char *in_dir(const struct dev *d, const char *name, const char *suffix)
{
    return pk_memory_print("%s/%s%s", d->dir, name, suffix);
}

static void nap(void)
{
    struct timespec t = {.tv_nsec = NAP_MS * 1000000L};
    (void)nanosleep(&t, NULL);
}

/* ---- ports ---- */

static bool is_free(uint16_t port)
{
    struct sockaddr_in here = {.sin_family = AF_INET,
                               .sin_addr = {htonl(INADDR_LOOPBACK)},
                               .sin_port = htons(port)};
    int one = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool bound = fd >= 0 &&
                 setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 &&
                 bind(fd, (const struct sockaddr *)&here, sizeof here) == 0;
    pk_fd_close(&fd);
    return bound;
}

static void set_ports(struct dev *d, uint16_t base)
{
    for (size_t i = 0; i < d->count; i++) {
        struct node *n = &d->nodes[i];
        (void)snprintf(n->name, sizeof n->name, "n%zu", i + 1);
        n->client = (uint16_t)(base + i * PORTS_EACH);
        n->http = (uint16_t)(n->client + 1);
        n->raft = (uint16_t)(n->client + 2);
    }
}

static bool take_ports(struct dev *d, uint16_t base)
{
    set_ports(d, base);
    for (size_t i = 0; i < d->count; i++) {
        const struct node *n = &d->nodes[i];
        if (!is_free(n->client) || !is_free(n->http) || !is_free(n->raft)) {
            return false;
        }
    }
    return true;
}

static int choose_ports(struct dev *d, bool others)
{
    if (!others && take_ports(d, BASE_PORT)) {
        return 0;
    }
    for (int i = 0; i < TRIES_MAX; i++) {
        uint64_t place = pk_random() % OTHER_PLACES;
        if (take_ports(d, (uint16_t)(OTHER_FROM + place * PORTS_EACH))) {
            return 0;
        }
    }
    return pk_errors_fail("dev: no free ports were found on 127.0.0.1");
}

/* ---- the directory ---- */

/* A cluster that was here before has its addresses in its log: the same ones again. */
static int read_ports(struct dev *d, const struct settings *s, bool *found)
{
    char line[64] = "";
    char *path = in_dir(d, "ports", "");
    FILE *f = fopen(path, "re");
    *found = f != NULL;
    if (f != NULL) {
        line[fread(line, 1, sizeof line - 1, f)] = '\0';
        (void)fclose(f);
    }
    char *end = line;
    unsigned long base = strtoul(line, &end, 10);
    unsigned long count = strtoul(end, &end, 10);
    bool sound = base > 0 && base <= LAST_PORT - NODES_MAX * PORTS_EACH && count > 0 &&
                 count <= NODES_MAX && *end == '\n';
    int code = 0;
    if (*found && !sound) {
        code =
            pk_errors_fail("dev: %s is damaged; delete %s to begin anew", path, d->dir);
    } else if (*found && s->nodes != 0 && s->nodes != count) {
        code = pk_errors_fail("dev: %s has a cluster of %lu nodes; leave out --nodes",
                              d->dir, count);
    } else if (*found) {
        d->count = count;
        set_ports(d, (uint16_t)base);
    }
    free(path);
    return code;
}

static int write_file(const char *path, const char *text, size_t len)
{
    FILE *f = fopen(path, "we");
    bool written = f != NULL && fwrite(text, 1, len, f) == len;
    written = f != NULL && fclose(f) == 0 && written;
    return written ? 0 : pk_errors_fail("dev: can't write %s: %s", path, strerror(errno));
}

static int write_ports(const struct dev *d)
{
    char text[64];
    int len = snprintf(text, sizeof text, "%u %zu\n", d->nodes[0].client, d->count);
    char *path = in_dir(d, "ports", "");
    int code = write_file(path, text, (size_t)len);
    free(path);
    return code;
}

/* The node's options, as `picket serve --config` reads them. */
static int write_config(const struct dev *d, const struct node *n)
{
    char members[NODES_MAX * 32];
    size_t used = 0;
    for (size_t i = 0; i < d->count; i++) {
        used +=
            (size_t)snprintf(members + used, sizeof members - used, "%s%s=127.0.0.1:%u",
                             i == 0 ? "" : ",", d->nodes[i].name, d->nodes[i].raft);
    }
    char *text =
        pk_memory_print("name = %s\ndata = %s/%s\nlisten = 127.0.0.1:%u\n"
                        "http = 127.0.0.1:%u\nraft = 127.0.0.1:%u\ncluster = %s\n",
                        n->name, d->dir, n->name, n->client, n->http, n->raft, members);
    char *path = in_dir(d, n->name, ".conf");
    int code = write_file(path, text, strlen(text));
    free(path);
    free(text);
    return code;
}

static int open_dir(struct dev *d, const struct settings *s)
{
    if (s->data != NULL) {
        if (mkdir(s->data, 0700) != 0 && errno != EEXIST) {
            return pk_errors_fail("dev: can't make %s: %s", s->data, strerror(errno));
        }
        d->dir = realpath(s->data, NULL);
    } else {
        const char *tmp = getenv("TMPDIR");
        d->dir = pk_memory_print("%s/picket-dev-XXXXXX",
                                 tmp != NULL && tmp[0] != '\0' ? tmp : "/tmp");
        d->thrown = mkdtemp(d->dir) != NULL;
    }
    if (d->dir == NULL || (s->data == NULL && !d->thrown)) {
        return pk_errors_fail("dev: can't use %s: %s", s->data != NULL ? s->data : d->dir,
                              strerror(errno));
    }
    d->dir_fd = open(d->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->dir_fd < 0 || flock(d->dir_fd, LOCK_EX | LOCK_NB) != 0) {
        return pk_errors_fail("dev: %s is in use by another 'picket dev'", d->dir);
    }
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static void remove_tree(const char *path)
{
    enum { DESCRIPTORS = 16 };
    struct stat st;
    if (lstat(path, &st) == 0 &&
        nftw(path, remove_one, DESCRIPTORS, FTW_DEPTH | FTW_PHYS) != 0) {
        pk_errors_remark("can't delete %s: %s", path, strerror(errno));
    }
}

/* ---- starting ---- */

/* In the child. Does not come back. */
static void become_node(const struct dev *d, const char *config, const char *log,
                        pid_t parent)
{
    /* Its own group: Ctrl-C is for us, who end the nodes in order. */
    (void)setpgid(0, 0);
    (void)sigprocmask(SIG_SETMASK, &d->mask, NULL);
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 || getppid() != parent) {
        _exit(PK_EXIT_ERROR);
    }
    int in = open("/dev/null", O_RDWR | O_CLOEXEC);
    int out = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (in < 0 || out < 0 || dup2(in, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 ||
        dup2(out, STDERR_FILENO) < 0) {
        _exit(PK_EXIT_ERROR);
    }
    char *const words[] = {"picket", "serve", "--config", (char *)config, NULL};
    (void)execv("/proc/self/exe", words);
    _exit(PK_EXIT_ERROR);
}

static int start_node(const struct dev *d, struct node *n)
{
    int code = write_config(d, n);
    if (code != 0) {
        return code;
    }
    char *config = in_dir(d, n->name, ".conf");
    char *log = in_dir(d, n->name, ".log");
    pid_t parent = getpid();
    n->pid = fork();
    if (n->pid == 0) {
        become_node(d, config, log, parent);
    }
    if (n->pid < 0) {
        n->pid = 0;
        code = pk_errors_fail("dev: can't start %s: %s", n->name, strerror(errno));
    }
    free(config);
    free(log);
    return code;
}

/* What a node wrote last before it ended, to be shown: one line of it. */
static void last_line(const char *path, char *out, size_t size)
{
    char line[1024];
    FILE *f = fopen(path, "re");
    out[0] = '\0';
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        (void)snprintf(out, size, "%s", line);
    }
    if (f != NULL) {
        (void)fclose(f);
    }
}

/* ---- waiting ---- */

/* The node that has just ended, with its status; NULL: none has. */
static struct node *reap(struct dev *d, int *status)
{
    for (pid_t pid; (pid = waitpid(-1, status, WNOHANG)) > 0;) {
        for (size_t i = 0; i < d->count; i++) {
            if (d->nodes[i].pid == pid) {
                d->nodes[i].pid = 0;
                return &d->nodes[i];
            }
        }
    }
    return NULL;
}

static bool asked_to_end(const struct dev *d)
{
    struct signalfd_siginfo info;
    bool end = false;
    while (read(d->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        end = end || info.ssi_signo != SIGCHLD;
    }
    return end;
}

enum progress { SERVING, ENDED, DIED, LATE };

/* Until somebody serves. DIED: a node ended before that, and `*who` is it. */
static enum progress await_serving(struct dev *d, struct pk_cluster_view *v,
                                   struct node **who)
{
    struct pk_cluster c = {.url = d->url};
    uint64_t began = pk_clock_ms();
    int status;
    PK_ASSERT(pk_remote_places(d->url + strlen("picket:"), &c.places) == PICKET_OK);
    while (pk_clock_ms() - began < SERVING_MS) {
        *who = reap(d, &status);
        if (*who != NULL) {
            return DIED;
        }
        if (asked_to_end(d)) {
            return ENDED;
        }
        if (pk_cluster_find_leader(&c, v)) {
            return SERVING;
        }
        nap();
    }
    return LATE;
}

/* ---- ending ---- */

static bool any_runs(const struct dev *d)
{
    for (size_t i = 0; i < d->count; i++) {
        if (d->nodes[i].pid != 0) {
            return true;
        }
    }
    return false;
}

static void tell_nodes(const struct dev *d, int signo)
{
    for (size_t i = 0; i < d->count; i++) {
        if (d->nodes[i].pid != 0) {
            (void)kill(d->nodes[i].pid, signo);
        }
    }
}

static void stop_nodes(struct dev *d)
{
    uint64_t began = pk_clock_ms();
    int status;
    tell_nodes(d, SIGTERM);
    while (any_runs(d)) {
        if (reap(d, &status) == NULL) {
            if (pk_clock_ms() - began > ENDING_MS) {
                tell_nodes(d, SIGKILL);
            }
            nap();
        }
    }
}

/* A node that somebody started again by hand: who has its directory. 0: nobody. */
static pid_t stranger_of(const struct dev *d, const struct node *n)
{
    char text[32] = "";
    char *path = in_dir(d, n->name, "/lock");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool locked = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    ssize_t got = locked ? pread(fd, text, sizeof text - 1, 0) : 0;
    pk_fd_close(&fd);
    free(path);
    long pid = got > 0 ? strtol(text, NULL, 10) : 0;
    return pid > 1 ? (pid_t)pid : 0;
}

/* Ends process `pid` and waits until it has ended: a node gives up the lock of its
 * directory a moment before. It is not our child, so its descriptor tells. */
static void end_process(pid_t pid)
{
    int process = (int)syscall(SYS_pidfd_open, pid, 0);
    if (process < 0) {
        return; /* it has ended */
    }
    struct pollfd p = {.fd = process, .events = POLLIN};
    (void)kill(pid, SIGTERM);
    if (poll(&p, 1, ENDING_MS) == 0) {
        (void)kill(pid, SIGKILL);
        (void)poll(&p, 1, -1);
    }
    pk_fd_close(&process);
}

static void stop_strangers(const struct dev *d)
{
    for (size_t i = 0; i < d->count; i++) {
        pid_t pid;
        while ((pid = stranger_of(d, &d->nodes[i])) != 0) {
            end_process(pid);
            nap();
        }
    }
}

/* ---- telling ---- */

static void print_text(const struct dev *d, const struct pk_cluster_view *v)
{
    (void)printf("export PICKET_URL=%s\n", d->url);
    for (size_t i = 0; i < d->count; i++) {
        const struct node *n = &d->nodes[i];
        (void)printf("# %s  pid %ld  http://127.0.0.1:%u/%s\n", n->name, (long)n->pid,
                     n->http, strcmp(v->leader, n->name) == 0 ? "  leads" : "");
    }
    (void)printf("# state and logs in %s%s; Ctrl-C ends it\n", d->dir,
                 d->thrown ? ", deleted at the end" : "");
}

static void print_json(const struct dev *d, const struct pk_cluster_view *v)
{
    struct pk_json j = {0};
    char text[64];
    pk_json_object(&j, NULL);
    pk_json_text(&j, "url", d->url);
    pk_json_text(&j, "dir", d->dir);
    pk_json_text(&j, "leader", v->leader);
    pk_json_array(&j, "nodes");
    for (size_t i = 0; i < d->count; i++) {
        const struct node *n = &d->nodes[i];
        pk_json_object(&j, NULL);
        pk_json_text(&j, "node", n->name);
        pk_json_number(&j, "pid", (uint64_t)n->pid);
        (void)snprintf(text, sizeof text, "127.0.0.1:%u", n->client);
        pk_json_text(&j, "client", text);
        (void)snprintf(text, sizeof text, "http://127.0.0.1:%u/", n->http);
        pk_json_text(&j, "http", text);
        pk_json_end_object(&j);
    }
    pk_json_end_array(&j);
    pk_json_end_object(&j);
}

static void tell_of_end(const struct dev *d, const struct node *n, int status)
{
    bool killed = WIFSIGNALED(status);
    pk_errors_remark(
        "%s has ended (%s %d); the others go on. To start it again: %s serve "
        "--config %s/%s.conf",
        n->name, killed ? "signal" : "exit code",
        killed ? WTERMSIG(status) : WEXITSTATUS(status), d->program, d->dir, n->name);
}

/* ---- the verb ---- */

static int catch_signals(struct dev *d)
{
    static const int caught[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD};
    sigset_t set;
    (void)sigemptyset(&set);
    for (size_t i = 0; i < sizeof caught / sizeof caught[0]; i++) {
        (void)sigaddset(&set, caught[i]);
    }
    PK_ASSERT(sigprocmask(SIG_BLOCK, &set, &d->mask) == 0);
    d->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return d->signals >= 0
               ? 0
               : pk_errors_fail("dev: can't watch for signals: %s", strerror(errno));
}

static void name_url(struct dev *d)
{
    size_t used = (size_t)snprintf(d->url, sizeof d->url, "picket://");
    for (size_t i = 0; i < d->count; i++) {
        used += (size_t)snprintf(d->url + used, sizeof d->url - used, "%s127.0.0.1:%u",
                                 i == 0 ? "" : ",", d->nodes[i].client);
    }
}

/* Says why no cluster came about. */
static int complain(const struct dev *d, enum progress p, const struct node *n)
{
    char said[1024];
    if (p != DIED) {
        return pk_errors_fail("dev: nobody leads after %d s; see the logs in %s",
                              SERVING_MS / 1000, d->dir);
    }
    char *log = in_dir(d, n->name, ".log");
    last_line(log, said, sizeof said);
    free(log);
    return pk_errors_fail("dev: %s did not start: %s", n->name,
                          said[0] != '\0' ? said : "it wrote nothing");
}

static int start_all(struct dev *d)
{
    int code = write_ports(d);
    name_url(d);
    for (size_t i = 0; i < d->count && code == 0; i++) {
        code = start_node(d, &d->nodes[i]);
    }
    return code;
}

static void throw_away_nodes(const struct dev *d)
{
    for (size_t i = 0; i < d->count; i++) {
        char *data = in_dir(d, d->nodes[i].name, "");
        remove_tree(data);
        free(data);
    }
}

/* Makes a cluster that serves. `old`: one with ports of its own. -1 to go on, else an
 * exit code. */
static int bring_up(struct dev *d, bool old, struct pk_cluster_view *v)
{
    enum progress p = LATE;
    struct node *who = NULL;
    for (int i = 0; i < STARTS_MAX; i++) {
        int code = old ? 0 : choose_ports(d, i > 0);
        code = code == 0 ? start_all(d) : code;
        if (code != 0) {
            return code;
        }
        p = await_serving(d, v, &who);
        if (p != DIED || !d->thrown || i + 1 == STARTS_MAX) {
            break;
        }
        pk_errors_detail("%s did not start; trying other ports", who->name);
        stop_nodes(d);
        throw_away_nodes(d);
    }
    if (p == DIED || p == LATE) {
        return complain(d, p, who);
    }
    return p == ENDED ? 0 : -1;
}

static void stay(struct dev *d)
{
    struct pollfd p = {.fd = d->signals, .events = POLLIN};
    while (!asked_to_end(d)) {
        int status;
        for (const struct node *n; (n = reap(d, &status)) != NULL;) {
            tell_of_end(d, n, status);
        }
        (void)poll(&p, 1, -1);
    }
}

static int live(struct dev *d, const struct settings *s)
{
    bool old = false;
    int code = catch_signals(d);
    if (code == 0) {
        code = read_ports(d, s, &old);
    }
    if (code == 0 && !old) {
        d->count = s->nodes != 0 ? (size_t)s->nodes : NODES_DEFAULT;
    }
    if (code != 0) {
        return code;
    }
    struct pk_cluster_view *v = pk_door_resize(NULL, sizeof *v);
    code = bring_up(d, old, v);
    if (code < 0) {
        (s->common.json ? print_json : print_text)(d, v);
        (void)fflush(stdout);
        stay(d);
    }
    pk_door_resize(v, 0);
    stop_nodes(d);
    if (code < 0) {
        stop_strangers(d); /* of a cluster that came about, and is ours */
        code = 0;
    }
    return code;
}

static int run(int argc, char **argv)
{
    struct pk_words words;
    struct settings s = {0};
    struct dev d = {.signals = -1, .dir_fd = -1};
    int code = pk_options_parse(&pk_cli_dev, argc, argv, &s, &words);
    if (code >= 0) {
        return code;
    }
    if (s.nodes != 0 && s.nodes % 2 == 0) {
        return pk_errors_fail("dev: --nodes is 1, 3 or 5");
    }
    d.program = realpath("/proc/self/exe", NULL);
    PK_ASSERT(d.program != NULL);
    code = open_dir(&d, &s);
    if (code == 0) {
        code = live(&d, &s);
    }
    if (d.thrown) {
        remove_tree(d.dir);
    }
    pk_fd_close(&d.signals);
    pk_fd_close(&d.dir_fd);
    free(d.dir);
    free(d.program);
    return code;
}

const struct pk_cli_verb pk_cli_dev = {
    .name = "dev",
    .brief = "run a whole cluster on this machine, to try things out",
    .usage = "[--nodes N] [--data DIR]",
    .about =
        "Starts a cluster of nodes on 127.0.0.1, prints its URL for the shell and the "
        "address of\n"
        "each node's page for the browser, and stays until Ctrl-C. Then all of it is "
        "gone, "
        "but\n"
        "for --data.\n"
        "\n"
        "Kill nodes to see what happens (the pids are printed); a line tells how to "
        "start "
        "one\n"
        "again.",
    .exits = "  0    ended as asked\n"
             "  125  our own error: a wrong call, a cluster that does not come about",
    .examples = "  picket dev\n"
                "  picket dev --nodes 5\n"
                "  picket dev --nodes 1 --data ./locks",
    .words = "",
    .groups = groups,
    .common = offsetof(struct settings, common),
    .run = run,
};
