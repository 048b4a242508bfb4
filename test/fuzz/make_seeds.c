/* SPDX-License-Identifier: MIT */
/*
 * Writes first inputs for the fuzz targets, from the random worlds of the differential
 * test:
 *
 *     make_seeds DIRECTORY      DIRECTORY/command/, DIRECTORY/snapshot/ must exist
 *
 * For when the encoding has changed and the corpora with it; libFuzzer's -merge=1 then
 * picks those that are worth keeping.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/door.h"
#include "core/machine.h"
#include "model/generate.h"

enum {
    WORLDS = 60,
    COMMANDS = 40,
    STREAM_BYTES = 4096,
    PATH_BYTES = 4096,
    END_BYTES = 10, /* of a snapshot: its last item */
};

static void write_file(const char *directory, const char *target, unsigned number,
                       const unsigned char *head, size_t head_len,
                       const unsigned char *body, size_t len)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s/seed-%03u", directory, target, number);
    FILE *out = fopen(path, "wb");
    if (out == NULL || fwrite(head, 1, head_len, out) != head_len ||
        fwrite(body, 1, len, out) != len || fclose(out) != 0) {
        perror(path);
        exit(1);
    }
}

/* One world: its commands as a stream, its last state as a snapshot. */
static void write_world(const char *directory, unsigned number)
{
    static unsigned char stream[STREAM_BYTES];
    struct generator *g = generator_new(number);
    struct pk_machine *m = pk_machine_new();
    struct pk_effects effects = {0};
    struct generated next;
    size_t len = 0;
    for (int i = 0; i < COMMANDS; i++) {
        generator_next(g, pk_machine_clock(m), pk_machine_next_deadline(m), &next);
        size_t size = pk_command_size(&next.command);
        if (len + size <= sizeof stream) {
            len += pk_command_encode(&next.command, stream + len);
        }
        pk_effects_reset(&effects);
        pk_machine_step(m, &next.command, &effects);
        generator_observe(g, &next, &effects);
    }
    unsigned char *snapshot = NULL;
    size_t bytes = pk_machine_snapshot(m, &snapshot);
    write_file(directory, "command", number, stream, 0, stream, len);
    if (bytes < STREAM_BYTES) {
        unsigned char mend = (unsigned char)(number % 2);
        write_file(directory, "snapshot", number, &mend, 1, snapshot,
                   bytes - mend * (size_t)END_BYTES);
    }
    pk_door_resize(snapshot, 0);
    pk_effects_free(&effects);
    pk_machine_free(m);
    generator_free(g);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
        return 2;
    }
    for (unsigned i = 0; i < WORLDS; i++) {
        write_world(argv[1], i);
    }
    return 0;
}
