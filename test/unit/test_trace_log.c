/* SPDX-License-Identifier: MIT */
/* The server's trace as a file: full, cut off, not to be written. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/trace.h"
#include "tap.h"

static char folder[64];
static char path[96];
static char old_path[104];

static struct pk_trace_log *begin(uint64_t bytes_max)
{
    (void)snprintf(folder, sizeof folder, "/tmp/picket-trace-XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
    (void)snprintf(path, sizeof path, "%s/t.trace", folder);
    (void)snprintf(old_path, sizeof old_path, "%s.old", path);
    struct pk_trace_log_options o = {
        .path = path, .node = "n1", .cluster = 7, .bytes_max = bytes_max};
    struct pk_trace_log *t = NULL;
    CHECK(pk_trace_log_open(&o, &t) == NULL);
    return t;
}

static void end(void)
{
    (void)unlink(path);
    (void)unlink(old_path);
    CHECK(rmdir(folder) == 0);
}

static size_t text_of(const char *file, char *out, size_t size)
{
    FILE *f = fopen(file, "re");
    CHECK(f != NULL);
    size_t n = fread(out, 1, size - 1, f);
    out[n] = '\0';
    (void)fclose(f);
    return n;
}

TEST(trace_log__writes_when_it_is_told_to)
{
    char text[200];
    struct pk_trace_log *t = begin(1 << 20);
    pk_trace_log_leader(t, 5, "n2");
    pk_trace_log_leader(t, 6, "");
    pk_trace_log_gap(t, 7);
    CHECK_U64(text_of(path, text, sizeof text), 0);
    pk_trace_log_flush(t);
    (void)text_of(path, text, sizeof text);
    CHECK_STR(text, "picket-trace 1 n1 7\n5 leader n2\n6 leader -\n7 gap\n");
    pk_trace_log_free(t);
    end();
}

TEST(trace_log__of_nobody_does_nothing)
{
    pk_trace_log_leader(NULL, 5, "n2");
    pk_trace_log_gap(NULL, 7);
    pk_trace_log_flush(NULL);
    pk_trace_log_free(NULL);
}

TEST(trace_log__keeps_two_files_of_the_size_asked_for)
{
    struct stat now;
    struct stat old;
    char text[4096];
    struct pk_trace_log *t = begin(1000);
    for (uint64_t i = 0; i < 1000; i++) {
        pk_trace_log_leader(t, i, "n2");
        pk_trace_log_flush(t);
    }
    CHECK(stat(path, &now) == 0 && stat(old_path, &old) == 0);
    CHECK(now.st_size < 1100 && old.st_size >= 1000 && old.st_size < 1100);
    (void)text_of(old_path, text, sizeof text);
    CHECK(strncmp(text, "picket-trace 1 n1 7\n", 20) == 0);
    pk_trace_log_free(t);
    (void)text_of(path, text, sizeof text);
    CHECK(strncmp(text, "picket-trace 1 n1 7\n", 20) == 0);
    CHECK(strstr(text, "\n999 leader n2\n") != NULL);
    end();
}

/* A full disk, as far as a process can have one to itself. */
TEST(trace_log__that_cannot_be_written_ends_with_a_whole_line)
{
    struct rlimit usual;
    char text[4096];
    struct pk_trace_log *t = begin(1 << 20);
    pk_trace_log_flush(t);
    CHECK(getrlimit(RLIMIT_FSIZE, &usual) == 0);
    struct rlimit little = {.rlim_cur = 500, .rlim_max = usual.rlim_max};
    (void)signal(SIGXFSZ, SIG_IGN);
    CHECK(setrlimit(RLIMIT_FSIZE, &little) == 0);
    for (uint64_t i = 0; i < 100; i++) {
        pk_trace_log_leader(t, i, "n2");
        if (i % 7 == 0) {
            pk_trace_log_flush(t);
        }
    }
    CHECK(setrlimit(RLIMIT_FSIZE, &usual) == 0);
    pk_trace_log_leader(t, 200, "n2");
    pk_trace_log_flush(t);
    pk_trace_log_free(t);
    size_t len = text_of(path, text, sizeof text);
    CHECK(len > 400 && len <= 500);
    CHECK(text[len - 1] == '\n');
    CHECK(strstr(text, "200 leader") == NULL);
    end();
}

/* What is in the file after a crash has left `before` there, and another start. */
static void goes_on(const char *before, const char *after)
{
    char text[400];
    pk_trace_log_free(begin(1 << 20));
    FILE *f = fopen(path, "we");
    CHECK(f != NULL && fputs(before, f) >= 0 && fclose(f) == 0);
    struct pk_trace_log_options o = {
        .path = path, .node = "n1", .cluster = 7, .bytes_max = 1 << 20};
    struct pk_trace_log *t = NULL;
    CHECK(pk_trace_log_open(&o, &t) == NULL);
    pk_trace_log_free(t);
    (void)text_of(path, text, sizeof text);
    CHECK_STR(text, after);
    end();
}

TEST(trace_log__goes_on_after_a_cut)
{
    goes_on("picket-trace 1 n1 7\n1 gap\n",
            "picket-trace 1 n1 7\n1 gap\npicket-trace 1 n1 7\n");
    goes_on("picket-trace 1 n1 7\n12 granted x",
            "picket-trace 1 n1 7\npicket-trace 1 n1 7\n");
    goes_on("picket-trace 1 n", "picket-trace 1 n1 7\n");
}

TEST(trace_log__leaves_other_files_alone)
{
    char long_line[6000];
    memset(long_line, 'x', sizeof long_line - 1);
    long_line[sizeof long_line - 1] = '\0';
    memcpy(long_line, "picket-trace ", 13);
    const char *const others[] = {"precious\n", "picket-trace", long_line};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        char text[7000];
        pk_trace_log_free(begin(1 << 20));
        FILE *f = fopen(path, "we");
        CHECK(f != NULL && fputs(others[i], f) >= 0 && fclose(f) == 0);
        struct pk_trace_log_options o = {.path = path, .node = "n1", .bytes_max = 1};
        struct pk_trace_log *t = NULL;
        CHECK(pk_trace_log_open(&o, &t) != NULL);
        (void)text_of(path, text, sizeof text);
        CHECK_STR(text, others[i]);
        end();
    }
}
