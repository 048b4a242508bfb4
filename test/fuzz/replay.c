/* SPDX-License-Identifier: MIT */
/*
 * Replays corpus directories through one fuzz target as an ordinary test:
 *
 *     replay_machine test/fuzz/corpus/machine...
 *
 * TAP on stdout: one line per directory. Files run in byte order of their names, each
 * from a block of exactly its size, so that a sanitizer sees a read past the end. The
 * comment before a crash names the input. An empty directory fails: a corpus that went
 * missing must not look green.
 */
#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_BYTES = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static bool replay_file(const char *path)
{
    struct stat info;
    FILE *in = fopen(path, "rb");
    if (in == NULL || fstat(fileno(in), &info) != 0 || !S_ISREG(info.st_mode)) {
        printf("# %s: not a readable file\n", path);
        if (in != NULL) {
            fclose(in);
        }
        return false;
    }
    size_t size = (size_t)info.st_size;
    uint8_t *data = malloc(size);
    bool whole = (data != NULL || size == 0) && fread(data, 1, size, in) == size;
    fclose(in);
    printf("# %s, %zu bytes\n", path, size);
    if (whole) {
        (void)LLVMFuzzerTestOneInput(data, size);
    }
    free(data);
    return whole;
}

/* The number of inputs that ran; -1 when the directory or a file in it can't be read. */
static int replay_directory(const char *directory)
{
    struct dirent **entries;
    int found = scandir(directory, &entries, is_visible, by_name);
    int ran = 0;
    for (int i = 0; i < found; i++) {
        char path[PATH_BYTES];
        int len = snprintf(path, sizeof path, "%s/%s", directory, entries[i]->d_name);
        bool fits = len > 0 && (size_t)len < sizeof path;
        if (ran >= 0) {
            ran = fits && replay_file(path) ? ran + 1 : -1;
        }
        free(entries[i]);
    }
    if (found < 0) {
        perror(directory);
        return -1;
    }
    free(entries);
    return ran;
}

int main(int argc, char **argv)
{
    int failed = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("1..%d\n", argc - 1);
    for (int i = 1; i < argc; i++) {
        int ran = replay_directory(argv[i]);
        failed += ran <= 0;
        printf("%s %d - %s: %d inputs\n", ran > 0 ? "ok" : "not ok", i, argv[i], ran);
    }
    return failed != 0 || argc < 2;
}
