/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/errors.h"
#include "core/door.h"
#include "host/memory.h"
#include "raft/identity.h"
#include "server/log.h"
#include "server/server.h"

struct settings {
    struct pk_common common;
    struct pk_server_options server;
    const char *config;
    const char *log;
    uint64_t election_ms, connections, log_mb, trace_mb;
    struct pk_option_list prefixes;
};

enum {
    ELECTION_MIN_MS = 50,
    ELECTION_MAX_MS = 60000,
    LOG_MIN_MB = 16,
    LOG_MAX_MB = 1024,
    CONFIG_LINES_MAX = 64,
};

static const struct pk_option options[] = {
    {PK_OPTION_TEXT, 0, "name", "NAME", "of this node (default: n1)",
     offsetof(struct settings, server.name), 0, 0},
    {PK_OPTION_TEXT, 0, "data", "DIR", "where its state is (default: ./picket-data)",
     offsetof(struct settings, server.data), 0, 0},
    {PK_OPTION_TEXT, 0, "listen", "HOST:PORT", "for clients (default: 127.0.0.1:7420)",
     offsetof(struct settings, server.listen), 0, 0},
    {PK_OPTION_TEXT, 0, "http", "HOST:PORT",
     "for metrics and health (default: 127.0.0.1:7421), or off",
     offsetof(struct settings, server.http), 0, 0},
    {PK_OPTION_TEXT, 0, "raft", "HOST:PORT",
     "for other nodes (default: its place in --cluster,\nelse 127.0.0.1:7422)",
     offsetof(struct settings, server.raft), 0, 0},
    {PK_OPTION_TEXT, 0, "advertise", "HOST",
     "the host under which others reach this node\n(default: that of --listen)",
     offsetof(struct settings, server.advertise), 0, 0},
    {PK_OPTION_TEXT, 0, "cluster", "LIST",
     "the first nodes, the same on each of them:\nn1=HOST:RAFTPORT,n2=...; 1, 3 or 5 "
     "of them\n(default: this node alone)",
     offsetof(struct settings, server.cluster), 0, 0},
    {PK_OPTION_TEXT, 0, "join", "HOST:PORT",
     "join the cluster of which that node serves clients",
     offsetof(struct settings, server.join), 0, 0},
    {PK_OPTION_NUMBER, 0, "election-ms", "MS",
     "without a leader for that long, elect one\n(default: 300)",
     offsetof(struct settings, election_ms), ELECTION_MIN_MS, ELECTION_MAX_MS},
    {PK_OPTION_NUMBER, 0, "connections", "N", "of clients, at most (default: 10000)",
     offsetof(struct settings, connections), 1, 1000000},
    {PK_OPTION_NUMBER, 0, "log-mb", "N",
     "the log takes at most N MiB of the disk (default: 256)",
     offsetof(struct settings, log_mb), LOG_MIN_MB, LOG_MAX_MB},
    {PK_OPTION_LIST, 0, "metrics-prefix", "PREFIX",
     "label metrics of locks by this prefix of their names;\nmay be repeated",
     offsetof(struct settings, prefixes), 0, 0},
    {PK_OPTION_TEXT, 0, "trace", "FILE",
     "record what happens for 'picket sim replay'; goes on at\nthe end of FILE",
     offsetof(struct settings, server.trace), 0, 0},
    {PK_OPTION_NUMBER, 0, "trace-mb", "N",
     "begin FILE anew after N MiB, and keep the last one as\nFILE.old (default: 64)",
     offsetof(struct settings, trace_mb), 1, 1 << 20},
    {PK_OPTION_TEXT, 0, "log", "FORMAT", "text (the default) or json",
     offsetof(struct settings, log), 0, 0},
    {PK_OPTION_TEXT, 0, "config", "FILE",
     "read options from FILE: lines of NAME = VALUE, # for remarks;\nthe command line "
     "counts more",
     offsetof(struct settings, config), 0, 0},
    {0},
};

static const struct pk_option_group groups[] = {
    {options, 0},
    {pk_options_common, offsetof(struct settings, common)},
    {0},
};

/* ---- the file of options ---- */

static char *trimmed(char *text)
{
    text += strspn(text, " \t\r\n");
    size_t len = strlen(text);
    while (len > 0 && strchr(" \t\r\n", text[len - 1]) != NULL) {
        text[--len] = '\0';
    }
    return text;
}

/* "name = value" as "--name=value"; NULL for an empty line. False: it is none. */
static bool option_of_line(char *line, char **out)
{
    *out = NULL;
    char *text = trimmed(line);
    if (text[0] == '\0' || text[0] == '#') {
        return true;
    }
    char *equals = strchr(text, '=');
    if (equals == NULL) {
        return false;
    }
    *equals = '\0';
    *out = pk_memory_print("--%s=%s", trimmed(text), trimmed(equals + 1));
    return true;
}

/* Puts the file's options before those of the command line. The words live as long as
 * the process. Returns an exit code, or -1 to go on. */
static int add_config(const char *path, int *argc, char ***argv)
{
    FILE *f = fopen(path, "re");
    if (f == NULL) {
        return pk_errors_fail("can't read %s: %s", path, strerror(errno));
    }
    static char **words;
    words = pk_door_resize(NULL, ((size_t)*argc + CONFIG_LINES_MAX + 1) * sizeof(char *));
    int n = 0;
    words[n++] = (*argv)[0];
    char line[4096];
    int number = 0;
    while (fgets(line, sizeof line, f) != NULL) {
        number++;
        char *option;
        if (!option_of_line(line, &option) || n > CONFIG_LINES_MAX) {
            (void)fclose(f);
            return pk_errors_fail("%s:%d: a line is NAME = VALUE, as in: listen = "
                                  "127.0.0.1:7420",
                                  path, number);
        }
        if (option != NULL) {
            words[n++] = option;
        }
    }
    (void)fclose(f);
    memcpy(words + n, *argv + 1, (size_t)*argc * sizeof(char *)); /* with the NULL */
    *argc += n - 1;
    *argv = words;
    return -1;
}

static const char *config_path(int argc, char **argv)
{
    static const char name[] = "--config";
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], name) == 0 && i + 1 < argc) {
            return argv[i + 1];
        }
        if (strncmp(argv[i], name, strlen(name)) == 0 && argv[i][strlen(name)] == '=') {
            return argv[i] + strlen(name) + 1;
        }
    }
    return NULL;
}

/* ---- the verb ---- */

static int check(struct settings *s)
{
    const char *wrong =
        s->server.name == NULL ? NULL : pk_node_name_wrong(s->server.name);
    if (wrong != NULL) {
        return pk_errors_fail("--name %s: %s", s->server.name, wrong);
    }
    if (strcmp(s->log, "text") != 0 && strcmp(s->log, "json") != 0) {
        return pk_errors_fail("--log is text or json, not %s", s->log);
    }
    s->server.election_ms = (uint32_t)s->election_ms;
    s->server.connections = (uint32_t)s->connections;
    s->server.log_bytes = s->log_mb << 20;
    s->server.trace_bytes = s->trace_mb << 20;
    s->server.prefixes = s->prefixes.at;
    s->server.n_prefixes = s->prefixes.count;
    return 0;
}

static int run(int argc, char **argv)
{
    struct settings s = {.server = {.data = "picket-data",
                                    .listen = "127.0.0.1:7420",
                                    .http = "127.0.0.1:7421"},
                         .log = "text",
                         .trace_mb = 64};
    struct pk_words words;
    const char *config = config_path(argc, argv);
    int code = config == NULL ? -1 : add_config(config, &argc, &argv);
    if (code < 0) {
        code = pk_options_parse(&pk_cli_serve, argc, argv, &s, &words);
    }
    if (code >= 0) {
        return code;
    }
    code = check(&s);
    if (code != 0) {
        return code;
    }
    pk_log_open(s.common.quiet     ? PK_LOG_ERROR
                : s.common.verbose ? PK_LOG_DEBUG
                                   : PK_LOG_INFO,
                strcmp(s.log, "json") == 0);
    return pk_server_run(&s.server);
}

const struct pk_cli_verb pk_cli_serve = {
    .name = "serve",
    .brief = "run a node of the lock service",
    .usage = "[OPTIONS]",
    .about =
        "Runs one node until SIGTERM or SIGINT; then it hands leadership over, answers "
        "what is\n"
        "pending and exits. Alone it is a whole service, with its state in "
        "./picket-data;\n"
        "three or five of them go on when one or two of them die. Clients use\n"
        "--on picket://HOST[:PORT],HOST...\n"
        "\n"
        "The nodes of --cluster form it together, when all of them are up. A node whose "
        "directory\n"
        "is lost waits, with an empty one, until 'picket cluster replace NAME' admits "
        "it.",
    .exits = "  0    stopped as asked\n"
             "  121  a write to its disk failed; nothing was acknowledged after it\n"
             "  125  our own error: a wrong call, an address in use, a damaged directory",
    .examples = "  picket serve\n"
                "  picket serve --name n1 --cluster "
                "n1=10.0.0.1:7422,n2=10.0.0.2:7422,n3=10.0.0.3:"
                "7422 \\\n"
                "      --listen 10.0.0.1:7420 --raft 10.0.0.1:7422\n"
                "  picket serve --name n4 --join 10.0.0.1:7420 --raft 10.0.0.4:7422",
    .words = "",
    .groups = groups,
    .common = offsetof(struct settings, common),
    .run = run,
};
