/* SPDX-License-Identifier: MIT */
/*
 * Golden scenarios:
 *
 *     scenario-run [--accept] FILE|DIRECTORY...
 *
 * Plays each script and compares what came out with what it says, TAP on stdout, one
 * line per file; of a directory all *.txt. --accept writes what came out into the files
 * instead: read the difference before you believe it. Each script is played twice, the
 * second time with the machine saved and restored after every command; both must say
 * the same.
 *
 * A directory's `refused` folder, if there is one, has scripts that must fail, each
 * with the error in its title: "# refused: LINE: WHAT", or "# refused: differs". They
 * prove that the runner can say no.
 */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "core/door.h"
#include "player.h"

enum { PATH_BYTES = 4096 };

static int files, failed;
static bool accepting;

/* ---- files ---- */

static bool read_file(const char *path, struct text *out)
{
    FILE *in = fopen(path, "rb");
    char part[16384];
    size_t len;
    if (in == NULL) {
        return false;
    }
    while ((len = fread(part, 1, sizeof part, in)) > 0) {
        text_add(out, part, len);
    }
    bool good = ferror(in) == 0;
    fclose(in);
    return good;
}

static bool write_file(const char *path, const struct text *from)
{
    FILE *out = fopen(path, "wb");
    if (out == NULL) {
        return false;
    }
    bool good = fwrite(from->data, 1, from->len, out) == from->len;
    return fclose(out) == 0 && good;
}

/* ---- comparing ---- */

static struct pk_bytes text_bytes(const struct text *t)
{
    return pk_bytes(t->data, t->len);
}

/* Cuts the first line off `rest`. */
static struct pk_bytes cut_line(struct pk_bytes *rest)
{
    const char *newline = memchr(rest->data, '\n', rest->len);
    struct pk_bytes line = pk_bytes(rest->data, (size_t)(newline - rest->data));
    *rest = pk_bytes(newline + 1, rest->len - line.len - 1);
    return line;
}

static uint32_t count_lines(struct pk_bytes text)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < text.len; i++) {
        n += text.data[i] == '\n';
    }
    return n;
}

/* Prints what differs between the lines written and those that came out: all between the
 * first and the last difference. */
static bool compare(const char *path, const struct script *s,
                    const struct script_block *b, struct pk_bytes actual)
{
    uint32_t n_actual = count_lines(actual);
    struct pk_bytes *came = pk_door_resize(NULL, (n_actual + 1) * sizeof *came);
    const struct pk_bytes *wrote = s->raw + b->expect_first;
    uint32_t head = 0;
    uint32_t tail = 0;
    uint32_t shorter = n_actual < b->n_expected ? n_actual : b->n_expected;
    for (uint32_t i = 0; i < n_actual; i++) {
        came[i] = cut_line(&actual);
    }
    while (head < shorter && pk_bytes_equal(came[head], wrote[head])) {
        head++;
    }
    while (tail < shorter - head &&
           pk_bytes_equal(came[n_actual - 1 - tail], wrote[b->n_expected - 1 - tail])) {
        tail++;
    }
    bool same = head + tail == n_actual && n_actual == b->n_expected;
    if (!same) {
        const struct script_line *line = &s->lines[b->first_line + b->n_lines - 1];
        printf("# %s:%" PRIu32 ": %.*s\n", path, b->expect_first + head + 1,
               (int)line->text.len, line->text.data);
        for (uint32_t i = head; i < b->n_expected - tail; i++) {
            printf("#   expected: %.*s\n", (int)wrote[i].len, wrote[i].data);
        }
        for (uint32_t i = head; i < n_actual - tail; i++) {
            printf("#   came out: %.*s\n", (int)came[i].len, came[i].data);
        }
    }
    pk_door_resize(came, 0);
    return same;
}

/* ---- one script ---- */

/* The script's text from raw line `from` up to, not including, `to`. */
static void copy_lines(struct text *to_text, const struct script *s, uint32_t from,
                       uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        text_addf(to_text, "%.*s\n", (int)s->raw[i].len, s->raw[i].data);
    }
}

/* Plays block by block, with a second player that is restored after every command. */
static bool play(const char *path, const struct script *s, struct text *rendered,
                 struct script_error *error)
{
    struct player straight;
    struct player saved;
    struct text output = {0};
    struct text again = {0};
    uint32_t copied = 0;
    bool good = true;
    bool as_written = true;
    player_init(&straight, error);
    player_init(&saved, error);
    saved.restore_always = true;
    for (uint32_t i = 0; i < s->n_blocks && good; i++) {
        const struct script_block *b = &s->blocks[i];
        text_clear(&output);
        text_clear(&again);
        good =
            player_block(&straight, s, b, &output) && player_block(&saved, s, b, &again);
        if (good && !text_equal(&output, &again)) {
            good = script_wrong(error, s->lines[b->first_line].number,
                                "a restored machine answers differently",
                                text_bytes(&again));
        }
        if (good && !accepting) {
            as_written = compare(path, s, b, text_bytes(&output)) && as_written;
        }
        copy_lines(rendered, s, copied, b->expect_first);
        text_addf(rendered, "%s", b->open ? "----\n" : "");
        text_add(rendered, output.data, output.len);
        copied = b->expect_first + b->n_expected;
    }
    copy_lines(rendered, s, copied, s->n_raw);
    player_free(&straight);
    player_free(&saved);
    text_free(&output);
    text_free(&again);
    return good && as_written;
}

/* The error that a script of `refused` wants to see, from its title; empty: none. */
static struct pk_bytes wanted_error(const struct text *source)
{
    static const char mark[] = "# refused: ";
    size_t len = sizeof mark - 1;
    if (source->len <= len || memcmp(source->data, mark, len) != 0) {
        return pk_bytes("", 0);
    }
    struct pk_bytes rest = pk_bytes(source->data + len, source->len - len);
    return cut_line(&rest);
}

/* Compares how a script failed with how it should; what it prints is for the log. */
static bool fails_as_wanted(bool good, const struct script_error *error,
                            struct pk_bytes wanted)
{
    struct text how = {0};
    if (error->line != 0) {
        text_addf(&how, "%" PRIu32 ": %s", error->line, error->why);
    } else {
        text_addf(&how, "%s", good ? "passes" : "differs");
    }
    bool same = pk_bytes_equal(text_bytes(&how), wanted);
    if (!same) {
        printf("#   expected: %.*s\n", (int)wanted.len, wanted.data);
        printf("#   came out: %.*s\n", (int)how.len, how.data);
    }
    text_free(&how);
    return same;
}

static void run_file(const char *path)
{
    struct text source = {0};
    struct text rendered = {0};
    struct script script = {0};
    struct script_error error = {0};
    bool good = false;
    if (!read_file(path, &source)) {
        perror(path);
    } else if (source.len == 0 || source.data[source.len - 1] != '\n') {
        printf("# %s: the last line has no end\n", path);
    } else {
        good = script_read(&script, text_bytes(&source), accepting, &error) &&
               play(path, &script, &rendered, &error);
    }
    if (error.line != 0) {
        printf("# %s:%" PRIu32 ": %s\n", path, error.line, error.why);
    }
    if (wanted_error(&source).len > 0) {
        good = accepting || fails_as_wanted(good, &error, wanted_error(&source));
    } else if (good && accepting && !text_equal(&source, &rendered)) {
        good = write_file(path, &rendered);
        printf("# %s: %s\n", path, good ? "rewritten" : "can't be written");
    }
    files++;
    failed += !good;
    printf("%s %d - %s\n", good ? "ok" : "not ok", files, path);
    script_free(&script);
    text_free(&source);
    text_free(&rendered);
}

/* ---- all of them ---- */

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_script(const struct dirent *entry)
{
    const char *dot = strrchr(entry->d_name, '.');
    return dot != NULL && strcmp(dot, ".txt") == 0;
}

static bool is_directory(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static void join(char to[PATH_BYTES], const char *directory, const char *name)
{
    int len = snprintf(to, PATH_BYTES, "%s/%s", directory, name);
    PK_ASSERT(len > 0 && len < PATH_BYTES);
}

static void run_directory(const char *directory)
{
    struct dirent **entries = NULL;
    int found = scandir(directory, &entries, is_script, by_name);
    for (int i = 0; i < found; i++) {
        char path[PATH_BYTES];
        join(path, directory, entries[i]->d_name);
        run_file(path);
        free(entries[i]);
    }
    free(entries);
    if (found <= 0) { /* scripts that went missing must not look green */
        files++;
        failed++;
        printf("not ok %d - %s: no scripts there\n", files, directory);
    }
}

int main(int argc, char **argv)
{
    int first = 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1 && strcmp(argv[1], "--accept") == 0) {
        accepting = true;
        first = 2;
    }
    if (first >= argc || argv[first][0] == '-') {
        fprintf(stderr, "usage: %s [--accept] FILE|DIRECTORY...\n", argv[0]);
        return 2;
    }
    for (int i = first; i < argc; i++) {
        if (is_directory(argv[i])) {
            char refused[PATH_BYTES];
            run_directory(argv[i]);
            join(refused, argv[i], "refused");
            if (is_directory(refused)) {
                run_directory(refused);
            }
        } else {
            run_file(argv[i]);
        }
    }
    printf("1..%d\n", files);
    return failed != 0;
}
